"""Comparison of runs: which difference is clear, which is not, and what can't be compared."""

from pathlib import Path

import pytest
import torch

from colligate.cli.tables import print_differences
from colligate.intervals import Intervals
from colligate.records import Row, write_record
from colligate.scenes.space import ConceptSpace
from colligate.verbs.compare import Difference, compare
from colligate.verbs.config import CompareConfig

SCENES = ConceptSpace(color=6, shape=5).all_scenes(slots=2)


def run(folder: Path, name: str, outcomes: torch.Tensor, *, world: str = "w", kept: bool = True) -> Path:
    """A finished run whose objects are recognised where `outcomes` says so."""
    estimate = Intervals(SCENES.objects, SCENES.values).mean(outcomes)
    rows = [
        Row(id="probe.object", on="test", value=estimate.value, low=estimate.low, high=estimate.high, n=len(SCENES)),
        Row(id="probe.concept.color", on="test", value=1.0, concept="color"),
    ]
    record = {"kind": "study", "name": name, "config": {}, "inputs": {"world": {"content_hash": world}}}
    arrays = {}
    if kept:
        scored = torch.stack([outcomes.float(), torch.ones(len(SCENES))])
        arrays = {"scored.objects": SCENES.objects, "scored.probe.object": scored}
    write_record(folder / name, record, rows, {}, arrays)
    return folder / name


@pytest.fixture
def hard() -> torch.Tensor:
    """Scenes of some objects are never recognised: both models find the same ones hard."""
    generator = torch.Generator().manual_seed(0)
    return (SCENES.objects % 3 > 0).all(1) & (torch.rand(len(SCENES), generator=generator) < 0.9)


def test_pairing_finds_what_two_intervals_can_not(tmp_path: Path, hard: torch.Tensor):
    better = hard | (torch.arange(len(SCENES)) % 12 == 0)
    paired = compare(CompareConfig(first=run(tmp_path, "a", hard), others=(run(tmp_path, "b", better),)))[0]
    apart = compare(
        CompareConfig(first=run(tmp_path, "c", hard, kept=False), others=(run(tmp_path, "d", better, kept=False),))
    )[0]
    (one,), (other,) = paired.differences, apart.differences
    assert one.value == other.value == pytest.approx(float((better.double() - hard.double()).mean()))
    assert (one.how, other.how) == ("paired", "apart")
    assert one.clear
    assert not other.clear
    assert paired.sentence.startswith("b lets probes read the objects of ")
    assert apart.sentence.startswith("Undecided: ")


def test_a_run_does_not_differ_from_itself(tmp_path: Path, hard: torch.Tensor):
    folder = run(tmp_path, "a", hard)
    (one,) = compare(CompareConfig(first=folder, others=(folder,)))[0].differences
    assert (one.value, one.clear, one.none) == (0.0, False, True)
    assert one.low is not None
    assert one.high is not None
    assert one.low == -one.high < 0  # other objects might part them, had there been two models


@pytest.mark.parametrize("kept", [True, False])
def test_equal_numbers_are_no_difference_and_print_no_minus(tmp_path: Path, capsys, kept: bool):
    every = torch.ones(len(SCENES), dtype=torch.bool)
    folders = [run(tmp_path, name, every, kept=kept) for name in "ab"]
    found = compare(CompareConfig(first=folders[0], others=(folders[1],)))[0]
    start = "No difference seen: a and b agree in probe.object (1.000); on other scenes they may differ by up to "
    assert found.sentence.startswith(start)
    tiny = found.differences[0]._replace(value=-0.0, low=-3e-17, high=0.0)
    print_differences([*found.differences, tiny])
    said = capsys.readouterr().out
    assert said.count(f"no difference seen, {'paired' if kept else 'apart'}") == 2
    assert "-0.000" not in said
    assert "undecided" not in said


def test_a_clear_difference_that_three_decimals_hide_is_printed_with_its_digits(capsys):
    first, other = Row(id="r2", value=0.9994, low=0.9993, high=0.9995), Row(id="r2", value=0.9991)
    print_differences([Difference(first, other, -0.0003, -0.0004, -0.0002, "paired")])
    said = capsys.readouterr().out
    assert "-0.0003" in said
    assert "-0.0004 to -0.0002" in said
    assert "clear, below .001, paired" in said


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-3e-5, 3e-5, "no difference seen"),
        (-3e-5, 6e-4, "no difference seen"),
        (1e-5, 3e-5, "clear, below .001"),
        (None, None, "no interval"),
    ],
)
def test_what_is_said_of_a_difference_follows_its_interval(low: float | None, high: float | None, said: str):
    row = Row(id="r2", value=1.0)
    assert Difference(row, row, 2e-5, low, high, "apart").said == said


def test_apart_squares_and_adds(tmp_path: Path, hard: torch.Tensor):
    first, other = run(tmp_path, "a", hard, kept=False), run(tmp_path, "b", ~hard, kept=False)
    (one,) = compare(CompareConfig(first=first, others=(other,)))[0].differences
    (a, a_low, a_high), (b, b_low, b_high) = _numbers(one.row), _numbers(one.other)
    assert one.low == pytest.approx(b - a - ((b - b_low) ** 2 + (a_high - a) ** 2) ** 0.5)
    assert one.high == pytest.approx(b - a + ((b_high - b) ** 2 + (a - a_low) ** 2) ** 0.5)


def _numbers(row: Row) -> tuple[float, float, float]:
    assert row.value is not None
    assert row.low is not None
    assert row.high is not None
    return row.value, row.low, row.high


def test_all_numbers_and_other_worlds(tmp_path: Path, hard: torch.Tensor):
    first, other = run(tmp_path, "a", hard), run(tmp_path, "b", hard, world="else")
    compared = compare(CompareConfig(first=first, others=(other,), all=True))[0]
    assert [one.row.id for one in compared.differences] == ["probe.object", "probe.concept.color"]
    assert compared.differences[1].low is None
    assert "other scenes" in compared.notes[0]


def test_what_can_not_be_compared_is_refused(tmp_path: Path, hard: torch.Tensor):
    folder = run(tmp_path, "a", hard)
    write_record(tmp_path / "b", {"kind": "train", "name": "b"}, [Row(id="probe.size", value=1.0)], {}, {})
    with pytest.raises(ValueError, match="no leading number in common"):
        compare(CompareConfig(first=folder, others=(tmp_path / "b",)))
    with pytest.raises(ValueError, match="isn't a finished run"):
        compare(CompareConfig(first=folder, others=(tmp_path / "c",)))
    with pytest.raises(ValueError, match="two or more runs"):
        CompareConfig(first=folder, others=())


def areas(folder: Path, name: str, coverages: dict[str, tuple[float, ...]]) -> Path:
    """A finished run whose areas are over these coverages."""
    rows = [Row(id="probe.object", on="test", value=0.5, low=0.4, high=0.6, n=100)]
    for family, over in coverages.items():
        rows.append(Row(id="complexity.area", on="test", family=family, value=0.5, low=0.4, high=0.6, objects=40))
        rows += [Row(id="rescaled.complexity.object", on="test", family=family, coverage=c, value=0.5) for c in over]
    rows.append(Row(id="complexity.width", on="test", family="0.5", value=64.0))
    write_record(folder / name, {"kind": "study", "name": name, "config": {}, "inputs": {}}, rows, {}, {})
    return folder / name


def test_areas_over_other_coverages_are_not_compared_and_that_is_said(tmp_path: Path):
    first = areas(tmp_path, "a", {"additive": (0.2, 0.8), "mlp64": (0.2, 0.8), "mlp256": ()})
    other = areas(tmp_path, "b", {"additive": (0.2, 0.8), "mlp64": (0.4, 0.8), "mlp256": ()})
    found = compare(CompareConfig(first=first, others=(other,), all=True))[0]
    compared = [(one.row.id, one.row.family) for one in found.differences if one.row.id.startswith("complexity.")]
    assert compared == [("complexity.area", "additive")]
    assert [note[:69] for note in found.notes if "Areas" in note] == [
        "Areas of mlp256 aren't compared, being over other coverages: unknown ",
        "Areas of mlp64 aren't compared, being over other coverages: 0.2, 0.8 ",
    ]
    alike = compare(CompareConfig(first=first, others=(areas(tmp_path, "c", {"mlp64": (0.2, 0.8)}),), all=True))[0]
    assert {one.row.id for one in alike.differences} >= {"complexity.area", "complexity.width"}
    assert not any("Areas" in note for note in alike.notes)
