"""The functions of a notebook: objects in, a result out, nothing written unless asked for."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from safetensors.torch import save_file

import colligate
from colligate import ConceptSpace, Embeddings, Model, Result, World
from colligate.binding import object_table
from colligate.cli import main
from colligate.scenes.worlds import Kind, labels_bytes, load_world
from colligate.verbs.battery import BATTERIES

SPACE = ConceptSpace(color=["red", "blue", "green"], shape=["cube", "ball", "cone"])
PAIRS = SPACE.all_scenes(slots=2)
VECTORS = object_table(SPACE, slots=2, dim=16)(PAIRS.values).float()


def labels_frame() -> pd.DataFrame:
    words = {name: SPACE.words[c] for c, name in enumerate(SPACE.names)}
    columns = {
        f"slot{slot + 1}_{name}": [words[name][v] for v in PAIRS.values[:, slot, c].tolist()]
        for slot in range(2)
        for c, name in enumerate(SPACE.names)
    }
    return pd.DataFrame(columns)


class Counting:
    """A tower that tells captions by their letters."""

    @property
    def kind(self) -> Kind:
        return "text"

    @property
    def fingerprint(self) -> None:
        return None

    def embed(self, items: list[str]) -> torch.Tensor:
        return torch.tensor([[text.count(letter) for letter in "abcdefghijklmnoprstu"] for text in items]).double()


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLLIGATE_STORE", str(tmp_path / "store"))


@pytest.fixture(scope="module")
def probed() -> Result:
    return colligate.probe("oracle:object-product", "clevr")


# ----------------------------------------------------------------------------------------------- what may be given


def test_the_ways_to_give_vectors_give_the_same_numbers(tmp_path: Path):
    frame = labels_frame()
    save_file({"vectors": VECTORS}, tmp_path / "v.safetensors")
    (tmp_path / "labels.csv").write_bytes(labels_bytes(World("mine", PAIRS)))
    ways: dict[str, Result] = {
        "tensor": colligate.probe(VECTORS, labels=frame),
        "array": colligate.probe(VECTORS.numpy(), frame),
        "lists": colligate.probe([row.tolist() for row in VECTORS.double()], labels=frame),
        "frame": colligate.probe(pd.DataFrame(VECTORS.numpy()), labels=frame),
        "column": colligate.probe(pd.DataFrame({"v": list(VECTORS.numpy())}), labels=frame),
        "embeddings": colligate.probe(Embeddings(VECTORS, PAIRS)),
        "path": colligate.probe(VECTORS, labels=tmp_path / "labels.csv"),
        "file": colligate.probe(tmp_path / "v.safetensors", labels=tmp_path / "labels.csv"),
        "file and frame": colligate.probe(str(tmp_path / "v.safetensors"), labels=frame),
    }
    found = {way: result["probe.object"].value for way, result in ways.items()}
    assert len(set(found.values())) == 1, found


def test_rows_of_two_frames_are_matched_by_their_index_or_refused():
    frame, order = labels_frame(), np.random.default_rng(0).permutation(len(PAIRS))
    frame.index = pd.Index([f"scene {i}" for i in range(len(PAIRS))])
    vectors = pd.DataFrame(VECTORS.numpy(), index=frame.index)
    straight, shuffled = colligate.probe(vectors, labels=frame), colligate.probe(vectors.iloc[order], labels=frame)
    assert shuffled["probe.object"].value == straight["probe.object"].value
    with pytest.raises(ValueError, match="index of vectors isn't that of the labels"):
        colligate.probe(vectors.rename(index=lambda name: name + "!"), labels=frame)


def test_columns_in_common_join_two_frames():
    frame, order = labels_frame(), np.random.default_rng(0).permutation(len(PAIRS))
    frame["picture_id"] = [f"p{i}" for i in range(len(PAIRS))]
    vectors = pd.DataFrame({"picture_id": frame["picture_id"], "v": list(VECTORS.numpy())}).iloc[order]
    joined = colligate.probe(vectors.reset_index(drop=True), labels=frame)
    assert joined["probe.object"].value == colligate.probe(VECTORS, labels=frame)["probe.object"].value
    assert any("were found for each row" in note for note in joined.notes)


def test_a_tower_a_function_a_dict_and_a_model_are_models():
    tower = Counting()
    ways = [tower, tower.embed, {"text": tower}, Model("mine", {"text": tower})]
    found = [colligate.probe(way, "text8x8", fit=0.5) for way in ways]
    assert len({result["probe.concept"].value for result in found}) == 1
    assert [result.name for result in found] == ["Counting", "embed", "dict", "mine"]


@pytest.mark.parametrize(
    "world", ["clevr", load_world("clevr"), SPACE, PAIRS], ids=["a name", "a world", "a space", "scenes"]
)
def test_a_world_may_be_given_in_many_ways(world: Any):
    result = colligate.probe("oracle:object-table:32", world)
    assert result["probe.object"].value == 1


def test_a_control_gives_the_random_init_level():
    noise = torch.randn(VECTORS.shape, generator=torch.Generator().manual_seed(0))
    row = colligate.probe(VECTORS, labels=labels_frame(), control=noise)["probe.object"]
    assert row.random_init is not None
    assert row.random_init < 0.5 < row.value  # type: ignore[operator]


# -------------------------------------------------------------------------------------------------- numbers and files


def test_names_give_the_numbers_of_the_command_line(tmp_path: Path):
    assert main(["probe", "oracle:object-product", "--scenes", "clevr", "--seed", "3", "--runs", "kept"]) == 0
    [folder] = (tmp_path / "kept").iterdir()
    result = colligate.probe("oracle:object-product", "clevr", seed=3)
    assert result.rows == colligate.open_run(folder).rows
    assert result.record["run"] == folder.name


def test_nothing_is_written_unless_asked_for(tmp_path: Path):
    colligate.probe("oracle:object-product", "clevr")
    colligate.recognize("oracle:pair-bag:64", "clevr")
    colligate.repair("oracle:pair-rotated:16", "clevr", coverages=(0.5,), steps=0, ceiling=False)
    colligate.train(values=6, coverage=0.5, width=16, heads=1, dim=8, batch=8, steps=2, warmup=1)
    assert [path.name for path in tmp_path.iterdir() if path.name != "store"] == []


def test_save_leaves_the_run_that_the_command_line_leaves(tmp_path: Path, probed: Result):
    saved, at_once = probed.save("later"), colligate.probe("oracle:object-product", "clevr", save="at once")
    assert saved.folder is not None
    assert at_once.folder is not None
    assert saved.folder.name == at_once.folder.name
    assert saved.rows == at_once.rows == probed.rows
    names = [sorted(path.name for path in folder.iterdir()) for folder in (saved.folder, at_once.folder)]
    assert names[0] == names[1] == ["arrays.safetensors", "figures.json", "record.json", "table.csv"]
    assert main(["runs", str(tmp_path / "later")]) == 0


def test_objects_are_told_in_the_record_and_cannot_be_reproduced(capsys: pytest.CaptureFixture[str]):
    saved = colligate.probe(VECTORS, labels=labels_frame(), save="runs")
    assert saved.record["in_memory"] == ["embedder", "scenes"]
    assert saved.record["command"] == ""
    assert main(["reproduce", str(saved.folder)]) == 2
    assert "given as an object (embedder, scenes)" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------- what comes back


def test_a_result_reads_as_a_table(probed: Result):
    frame = probed.to_frame()
    assert len(frame) == len(probed.rows)
    assert frame["value"].dtype == "float64"
    assert frame["n"].dtype == "Int64"
    assert "share" in frame.attrs["units"]["value"]
    row = frame.set_index(["id", "on"]).loc[("probe.object", "test")]
    assert row["value"] == probed["probe.object"].value


def test_a_result_shows_its_finding_its_table_and_its_figure(probed: Result):
    text, page = repr(probed), probed._repr_html_()
    assert text.startswith(probed.verdict)
    assert re.search(r"^probe\.object +test +1\.000", text, re.M)
    assert probed.verdict[:40] in page
    assert "<svg" in page
    assert "<script" not in page


def test_what_a_model_is_called_cannot_steer_a_notebook():
    class Nasty(Counting):
        pass

    Nasty.__name__ = "<script>alert(1)</script>"
    page = colligate.probe(Nasty(), "text8x8")._repr_html_()
    assert "<script>" not in page


def test_figures_are_plotly_figures(probed: Result):
    assert probed.figures
    for name in probed.figures:
        assert isinstance(probed.figure(name), go.Figure)
    with pytest.raises(ValueError, match=r"no figure 'edits'; it has probes"):
        probed.figure("edits")


def test_an_unknown_row_names_the_nearest(probed: Result):
    with pytest.raises(KeyError, match=r"probe\.object"):
        probed["probe.objects"]


def test_the_page_is_written_where_one_says(probed: Result, tmp_path: Path):
    page = probed.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "oracle:object-product" in page
    with pytest.raises(ValueError, match="is a folder"):
        probed.report(tmp_path)


def test_two_results_are_compared(probed: Result):
    compared = probed.compare(colligate.probe("oracle:no-binding", "clevr"))
    frame = compared.to_frame().set_index("id")
    assert frame.loc["probe.object", "difference"] < 0
    assert frame.loc["probe.object", "interval"] == "paired"
    assert repr(compared).startswith(compared.verdict)
    assert "<table" in compared._repr_html_()


# --------------------------------------------------------------------------------------------- trained and repaired


def test_a_trained_model_is_at_once_usable_and_can_be_kept_later():
    tiny: dict[str, Any] = {
        "values": 6, "coverage": 0.5, "width": 16, "heads": 1, "dim": 8, "batch": 8, "steps": 4, "warmup": 2
    }  # fmt: skip
    result = colligate.train(**tiny)
    assert result.folder is None
    assert colligate.probe(result)["probe.concept"].value == colligate.probe(result.model)["probe.concept"].value
    kept, direct = result.save("later"), colligate.train(**tiny, save="direct")
    assert kept.rows == direct.rows == result.rows
    assert kept.folder is not None
    assert direct.folder is not None
    files = [{path.name: path.read_bytes() for path in one.folder.iterdir() if path.name != "record.json"}
             for one in (kept, direct) if one.folder is not None]  # fmt: skip
    assert files[0] == files[1]
    again = colligate.probe(f"run:{kept.folder}", "grid:6x6")
    assert again["probe.concept"].value == colligate.probe(result, "grid:6x6")["probe.concept"].value


def test_a_repaired_model_is_at_once_usable():
    result = colligate.repair("oracle:pair-rotated:16", "clevr", coverages=(0.5,), steps=0, ceiling=False)
    before = colligate.recognize("oracle:pair-rotated:16", "clevr")["crossmodal.object"].value
    after = colligate.recognize(result, "clevr")["crossmodal.object"].value
    assert before is not None
    assert after is not None
    assert after > before + 0.3
    saved = colligate.repair("oracle:pair-rotated:16", "clevr", coverages=(0.5,), steps=0, ceiling=False, save="runs")
    assert colligate.recognize(saved, "clevr")["crossmodal.object"].value == pytest.approx(after, abs=1e-6)


def test_a_sweep_and_its_structure():
    tiny = {"width": 16, "heads": 1, "dim": 8, "batch": 8, "steps": 2, "warmup": 1}
    swept = colligate.sweep(coverages=(0.5,), spaces=("6x6",), widths=(16,), seeds=2, train=tiny, save="runs")
    assert len(swept.rows) == 24
    rules = colligate.structure(swept, families=("additive",))
    assert rules.folder is None
    assert len(rules.findings.figures["models"]) == 2
    with pytest.raises(ValueError, match="save the results first"):
        colligate.structure(colligate.sweep(coverages=(0.5,), spaces=("6x6",), widths=(16,), seeds=1, train=tiny))


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(("given", "options", "words"), [
    (("oracle:object-product", "clevr"), {"seeds": 3}, "Unrecognized options: --seeds"),
    (("oracle:object-product", "clevr"), {"protocol": "strickt"}, "strict"),
    (("oracle:object-product", "clevr"), {"fit": "many"}, "--fit"),
    (("oracle:object-product", "clevr"), {"runs": "there"}, "use save"),
    (("oracle:object-product", "clevr"), {"control": VECTORS}, "a model has its own control"),
    (("oracle:nothing", "clevr"), {}, "No oracle is called 'nothing'"),
    (("oracle:object-product", "nowhere"), {}, "nowhere"),
    ((VECTORS,), {}, "need the labels of their rows"),
    ((VECTORS[:5],), {"labels": labels_frame()}, "holds 5 vectors for the 81 rows"),
    ((VECTORS.long(),), {"labels": labels_frame()}, "floating"),
    ((VECTORS,), {"labels": labels_frame(), "world": "clevr"}, "once"),
    ((VECTORS,), {"labels": labels_frame().iloc[:0]}, "no scenes"),
    ((VECTORS,), {"labels": labels_frame().assign(slot1_color=[[1]] * 81)}, "row 1, column slot1_color: a list"),
    ((3, "clevr"), {}, "type int is no model"),
    (("oracle:object-product", 3), {}, "type int is no world"),
    ((Counting(), "text8x8"), {"layer": 1}, "layer says how a named model is loaded"),
    (([["a", "b"]],), {"labels": labels_frame()}, "floating"),
])  # fmt: skip
def test_bad_input_is_one_sentence_and_nothing_is_written(
    given: tuple[Any, ...], options: dict[str, Any], words: str, tmp_path: Path
):
    with pytest.raises(ValueError, match=re.escape(words)) as told:
        colligate.probe(*given, **{"save": "runs", **options} if "runs" not in options else options)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "runs").exists()


def test_a_sentence_is_that_of_the_command_line(capsys: pytest.CaptureFixture[str]):
    assert main(["probe", "oracle:object-product", "--scenes", "clevr", "--protocol", "strickt"]) == 2
    said = capsys.readouterr().err.removeprefix("colligate: ").strip()
    with pytest.raises(ValueError, match="invalid choice") as told:
        colligate.probe("oracle:object-product", "clevr", protocol="strickt")
    assert str(told.value) == said


def test_every_function_has_the_options_of_its_verb():
    assert set(BATTERIES) == {"probes", "decomposition", "edits", "removal", "information", "complexity"}
    for name in ("study", "probe", "decompose", "edit", "remove", "information", "complexity", "recognize", "foils",
                 "repair", "train", "sweep", "structure"):  # fmt: skip
        function = getattr(colligate, name)
        with pytest.raises(ValueError, match="Unrecognized options: --no-such-option"):
            function(*(("oracle:no-binding",) if name not in ("train", "sweep", "structure") else ()), no_such_option=1)
