"""Edit lists: what is written is read back, lists by values name the same edits, and a wrong line is named."""

import re
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colligate.geometry.interventions import Edits, concept_edits, object_edits
from colligate.geometry.replay import edit_list_bytes, read_edit_list
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.tables import Table

SPACE = ConceptSpace(color=4, shape=3)
SCENES = SPACE.all_scenes(slots=2)
WITHOUT_SHARED = SCENES[~SCENES.shares_any()]
HEADER = "attr1,noun1,attr2,noun2,target_attr,edited_slot,control_row"


def same(first: Edits, second: Edits) -> bool:
    pairs = ((first.base, second.base), (first.slot, second.slot), (first.target, second.target))
    return all(torch.equal(one, other) for one, other in pairs)


def by_values(edits: Edits, concept: int) -> str:
    """The edits in the authors' columns."""
    lines = [HEADER]
    values = edits.scenes.values
    for base, slot, target in zip(edits.base.tolist(), edits.slot.tolist(), edits.target.tolist(), strict=True):
        held = [int(values[base, k, c]) for k in (0, 1) for c in (concept, 1 - concept)]
        new = int(values[target, slot, concept])
        lines.append(",".join(map(str, [*held, new, slot + 1, target])))
    return "\n".join(lines) + "\n"


@pytest.fixture
def edit_list(tmp_path: Path) -> Path:
    return tmp_path / "edits.csv"


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000), whole_objects=st.booleans(), three=st.booleans())
def test_a_written_list_reads_back(edit_list: Path, seed: int, whole_objects: bool, three: bool) -> None:
    scenes = ConceptSpace(color=2, shape=2).all_scenes(slots=3) if three else WITHOUT_SHARED
    edits = (object_edits(scenes) if whole_objects else concept_edits(scenes, 1)).draw(50, seed)
    edit_list.write_bytes(edit_list_bytes(edits))
    assert len(edits)
    assert same(read_edit_list(edit_list, scenes), edits)


@pytest.mark.parametrize("scenes", [SCENES, WITHOUT_SHARED], ids=["all", "no shared values"])
@pytest.mark.parametrize("concept", [0, 1])
def test_a_list_by_values_names_the_same_edits(edit_list: Path, scenes: Scenes, concept: int) -> None:
    edits = concept_edits(scenes, concept)
    edit_list.write_text(by_values(edits, concept))
    assert same(read_edit_list(edit_list, scenes), edits)
    assert same(read_edit_list(edit_list, scenes, concept=SPACE.names[concept]), edits)
    with pytest.raises(ValueError, match="line"):
        read_edit_list(edit_list, scenes, concept=SPACE.names[1 - concept])


def test_concepts_of_one_size_are_told_apart_by_the_targets(edit_list: Path) -> None:
    square = ConceptSpace(color=3, shape=3).all_scenes(slots=2)
    edits = concept_edits(square, 1)
    edit_list.write_text(by_values(edits, 1))
    assert same(read_edit_list(edit_list, square), edits)


def test_a_list_that_fits_both_concepts_needs_to_be_told_which(edit_list: Path) -> None:
    scenes = ConceptSpace(color=2, shape=2).scenes([[1, 3], [2, 3], [3, 3]])
    edit_list.write_text(f"{HEADER}\n0,1,1,1,1,1,2\n")
    with pytest.raises(ValueError, match="fits edits of color and of shape; say which concept"):
        read_edit_list(edit_list, scenes)
    assert read_edit_list(edit_list, scenes, concept="color").base.tolist() == [0]
    assert read_edit_list(edit_list, scenes, concept="shape").base.tolist() == [1]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("base_row,slot\n0,1\n", "a list of edits has base_row, slot, target_row"),
        ("base_row,slot,target_row\n0,0,3\n", r"line 2, column slot: 0 is outside 1..2"),
        ("base_row,slot,target_row\n0,1,144\n", "column target_row: 144 is outside 0..143"),
        ("base_row,slot,target_row\n0,1,12\n0,1,x\n", r"line 3, column target_row: 'x' is not a whole"),
        ("base_row,slot,target_row\n-1,1,12\n", "column base_row: '-1' is not a whole number"),
        ("base_row,slot,target_row\n0,2,12\n", "scene 12 is not scene 0 with another object in slot 2"),
        ("base_row,slot,target_row\n0,1,0\n", "scene 0 is not scene 0 with another object in slot 1"),
        ("base_row,slot,target_row\n0,1,13\n", "scene 13 is not scene 0 with another object in slot 1"),
        (f"{HEADER}\n0,0,0,0,1,1,37\n", "column control_row: row 37 shows .*, but changing color gives"),
        (f"{HEADER}\n0,0,0,0,9,1,36\n", "column target_attr: 9 is outside 0..3"),
        (f"{HEADER}\n0,0,0,0,1,3,36\n", "column edited_slot: 3 is outside 1..2"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(edit_list: Path, lines: str, message: str) -> None:
    edit_list.write_text(lines)
    with pytest.raises(ValueError, match=message):
        read_edit_list(edit_list, SCENES)


def test_a_scene_that_is_not_there_is_named(edit_list: Path) -> None:
    edit_list.write_text(f"{HEADER}\n0,0,0,0,1,1,0\n")
    with pytest.raises(ValueError, match=r"the scene 'color0 shape0 \| color0 shape0' isn't there"):
        read_edit_list(edit_list, WITHOUT_SHARED)


def test_replicates_need_a_list_by_rows(edit_list: Path) -> None:
    twice = Scenes.join([SCENES, SCENES[:1]])
    edit_list.write_text(f"{HEADER}\n0,0,0,0,1,1,36\n")
    with pytest.raises(ValueError, match="stands in several rows; list the edits by base_row, slot, target_row"):
        read_edit_list(edit_list, twice, concept="color")


def test_an_empty_slot_cannot_be_edited(edit_list: Path) -> None:
    ragged = SPACE.scenes([[0, -1], [0, 1], [2, 1]])
    edit_list.write_text("base_row,slot,target_row\n0,2,1\n")
    with pytest.raises(ValueError, match="slot 2 of scene 0 is empty"):
        read_edit_list(edit_list, ragged)
    edit_list.write_text("base_row,slot,target_row\n1,2,0\n")
    with pytest.raises(ValueError, match="scene 0 is not scene 1 with another object in slot 2"):
        read_edit_list(edit_list, ragged)


def test_lists_by_values_need_two_concepts_and_slots(edit_list: Path) -> None:
    edit_list.write_text(f"{HEADER}\n0,0,0,0,1,1,1\n")
    with pytest.raises(ValueError, match="have 3 and 2; list them by base_row"):
        read_edit_list(edit_list, ConceptSpace(color=2, shape=2, size=2).all_scenes(slots=2))


def labels_of(scenes: Scenes, names: list[str]) -> Table:
    return Table(Path("labels.csv"), ("picture",), len(scenes), lambda name: names)


def test_rows_may_be_named_by_a_column_of_the_labels_whatever_their_order(edit_list: Path) -> None:
    scenes = SPACE.all_scenes(2)
    names = [f"{row}.png" for row in range(len(scenes))]
    edit_list.write_text("base_picture,slot,target_picture\n0.png,1,12.png\n0.png,2,2.png\n")
    straight = read_edit_list(edit_list, scenes, labels=labels_of(scenes, names))
    order = torch.randperm(len(scenes), generator=torch.Generator().manual_seed(0))
    mixed = read_edit_list(edit_list, scenes[order], labels=labels_of(scenes, [names[row] for row in order.tolist()]))
    for edits in (straight, mixed):
        assert edits.scenes.describe(int(edits.target[0])) == scenes.describe(12)
        assert edits.scenes.describe(int(edits.base[1])) == scenes.describe(0)


@pytest.mark.parametrize(("lines", "message"), [
    ("base_picture,slot,target_picture\nx.png,1,12.png", "no row of labels.csv have the picture 'x.png'"),
    ("base_picture,slot,target_picture,base_row\n0.png,1,12.png,3", "is row 0 of labels.csv, and base_row says 3"),
    ("base_picture,slot,target_picture\nsame.png,1,12.png", "2 rows of labels.csv have the picture 'same.png'"),
])  # fmt: skip
def test_a_key_that_names_no_one_row_is_refused(edit_list: Path, lines: str, message: str) -> None:
    scenes = SPACE.all_scenes(2)
    names = [f"{row}.png" if row < len(scenes) - 2 else "same.png" for row in range(len(scenes))]
    edit_list.write_text(lines)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_edit_list(edit_list, scenes, labels=labels_of(scenes, names))


def test_rows_count_the_labels_where_scenes_of_one_object_stand_among_them(edit_list: Path) -> None:
    scenes = SPACE.all_scenes(2)
    edit_list.write_text("base_row,slot,target_row\n1,1,13\n")  # a scene of one object stands first
    edits = read_edit_list(edit_list, scenes, rows=torch.arange(len(scenes)) + 1)
    assert (edits.base.tolist(), edits.target.tolist()) == ([0], [12])
    edit_list.write_text("base_row,slot,target_row\n0,1,13\n")
    with pytest.raises(ValueError, match="row 0 of the labels is no scene of several objects"):
        read_edit_list(edit_list, scenes, rows=torch.arange(len(scenes)) + 1)
