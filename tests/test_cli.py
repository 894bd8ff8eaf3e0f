"""The command line from end to end: every verb, every exit code, and everything a user can get wrong."""

import errno
import io
import json
import os
import pickle
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from colligate.binding import object_table
from colligate.choices import EMBEDDERS
from colligate.cli import MEASUREMENTS, main
from colligate.cli.tables import show
from colligate.cli.terminal import stopped
from colligate.cli.verbs import verbs
from colligate.embedders import ORACLES, load_model
from colligate.progress import bars, progress
from colligate.records import COLUMNS, Row, read_record, read_table, sealed_json
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.names import BUILT_IN
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.worlds import WORLDS, World, labels_bytes, load_world
from colligate.training.config import TrainConfig
from colligate.training.presets import PaperConfig, PicturesConfig

VERBS = (
    "study", *MEASUREMENTS, "train", "sweep", "recognize", "foils", "repair", "embed", "render", "check-model",
    "check-data", "structure", "paper", "compare", "report", "reproduce", "runs", "worlds", "embedders",
)  # fmt: skip
SCRIPT = "<script>alert(1)</script>"
SPACE = ConceptSpace(color=["red", "green", SCRIPT], shape=["cube", "ball", "cone"])
PAIRS = SPACE.all_scenes(2)
SCENES = Scenes.join([PAIRS, SPACE.all_scenes(1)])
ORACLE = "oracle:object-table:24"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    def refused(self, *, code: int = 2) -> str:
        """The one sentence on stderr of a call that failed."""
        assert (self.code, self.out) == (code, ""), self
        assert self.err.startswith("colligate: "), self.err
        assert self.err.count("\n") == 1, self.err
        assert self.err.rstrip().endswith((".", "?")), self.err
        assert "Traceback" not in self.err
        return self.err


Call = Callable[..., Done]


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLLIGATE_STORE", str(tmp_path_factory.getbasetemp() / "cli-store"))
    monkeypatch.setattr("colligate.progress.EVERY", 1e6)  # on a busy machine, too, stderr holds complaints alone


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command line in this process."""

    def run(*words: object) -> Done:
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:  # how the parser of options ends
            code = stop.code if isinstance(stop.code, int) else 1
        said = capsys.readouterr()
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", said.out + said.err), "control characters off a terminal"
        return Done(code, said.out, said.err)

    return run


def shell(*words: str, **env: str) -> subprocess.Popen[str]:
    """The command, which Ctrl-C reaches even where the tests run in the background, with that signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # an ignored signal is inherited, a handler isn't
    try:
        return subprocess.Popen(
            [str(command()), *words],
            env={**os.environ, "OMP_NUM_THREADS": "1", **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


def command() -> Path:
    found = Path(sys.executable).parent / "colligate"
    if not found.exists():
        pytest.skip("the colligate command is not installed beside this interpreter")
    return found


def write_labels(path: Path, scenes: Scenes = SCENES, **columns: list[str]) -> Path:
    import csv

    lines = list(csv.reader(io.StringIO(labels_bytes(World("small", scenes, CaptionTemplate())).decode())))
    for name, cells in columns.items():
        lines = [[*line, cell] for line, cell in zip(lines, [name, *cells], strict=True)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    return path


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    return write_labels(tmp_path / "labels.csv")


def vectors_of(scenes: Scenes = SCENES) -> torch.Tensor:
    return object_table(scenes.space, scenes.slots, 24, 0)(scenes.values).float()


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    np.save(tmp_path / "vectors.npy", vectors_of().numpy())
    return tmp_path / "vectors.npy"


# -------------------------------------------------------------------------------------------------- help and calls


def test_help_names_every_verb(call: Call):
    done = call("--help")
    assert (done.code, done.err) == (0, "")
    assert all(re.search(rf"^  {re.escape(verb)} +\S", done.out, re.MULTILINE) for verb in VERBS)
    assert call("-h").out == done.out
    bare = call()
    assert (bare.code, bare.out) == (2, done.out)


def test_version(call: Call):
    from colligate import __version__

    assert call("--version") == Done(0, f"{__version__}\n", "")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_its_options(call: Call, verb: str):
    done = call(verb, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"usage: colligate {verb}" in done.out
    assert len(done.out.splitlines()) > 5


@pytest.mark.parametrize(
    ("verb", "there", "absent"),
    [
        ("probe", ["--fit", "--control", "--layer"], ["--edits", "--edit-budget", "--depth", "--families", "--out"]),
        ("edit", ["--edits", "--edit-budget"], ["--depth", "--families", "--coverages"]),
        ("complexity", ["--families", "--coverages", "--seed"], ["--edits", "--fit ", "--validation", "--control"]),
        ("embed", ["--out", "--layer"], ["--seed", "--force", "--runs", "--fit "]),
        ("study", ["--edits", "--depth", "--families", "--control", "--out"], []),
    ],
)
def test_help_shows_the_options_that_act(call: Call, verb: str, there: list[str], absent: list[str]):
    said = call(verb, "--help").out
    assert [option for option in there if option not in said] == []
    assert [option for option in absent if option in said] == []


def test_an_unknown_verb_is_answered_with_the_known(call: Call):
    said = call("analyse", "x").refused()
    assert "'analyse'" in said
    assert all(verb in said for verb in VERBS)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["study", ORACLE, "--bogus"], "--bogus"),
        (["study"], "embedder's name"),
        (["probe", ORACLE, "--seed", "soon"], "--seed"),
        (["probe", ORACLE, "--protocol", "lax"], "'strict', 'paper'"),
        (["embed", ORACLE, "somewhere"], "somewhere"),
        (["study", ORACLE, "--normalize", "False"], "False"),
    ],
)
def test_a_wrong_option_is_named(call: Call, words: list[str], named: str):
    said = call(*words).refused()
    assert named in said
    assert f"See colligate {words[0]} --help." in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["probe", ORACLE, "--scenes", "mars"], "No world is called 'mars'"),
        (["probe", "oracle:guess", "--scenes", "clevr"], "No oracle is called 'guess'"),
        (["probe", "gpt", "--scenes", "clevr"], "'gpt' names no embedder"),
        (["probe", "no_such_module:make", "--scenes", "clevr"], "no module 'no_such_module'"),
        (["probe", ORACLE, "--scenes", "absent.csv"], "absent.csv can't be read"),
        (["probe", "absent.npy", "--labels", "absent.csv"], "absent.csv can't be read"),
        (["probe", ORACLE, "--scenes", "clevr", "--tower", "text"], "--tower text is not in both"),
        (["probe", ORACLE, "--scenes", "clevr", "--caption", "{size}"], "size"),
        (["probe", ORACLE, "--scenes", "clevr", "--layer", "3"], "has no layers"),
        (["edit", ORACLE, "--scenes", "clevr", "--edits", "x.csv"], "--protocol paper"),
        (["hub", "x"], "no verb 'hub'"),
        (["worlds", "clevr"], "clevr"),
        (["runs", "nowhere"], "There is no folder nowhere"),
        (["report", "nowhere"], "no record.json"),
        (["reproduce", "nowhere"], "no record.json"),
        (["render", "--out", "p", "--scenes", "text8x8"], "draws no pictures"),
        (["check-data", "absent.csv"], "absent.csv can't be read"),
        (["check-model", "hf:someone/model-that-is-not-here"], "not on this machine"),
    ],
)
def test_a_call_that_can_not_be_carried_out_says_why(call: Call, words: list[str], said: str):
    assert said in call(*words).refused()


# ------------------------------------------------------------------------------------------------------ every verb


def test_a_study_says_its_verdict_and_leaves_a_page(call: Call, labels: Path, tmp_path: Path):
    words = ("study", ORACLE, "--scenes", labels, "--families", "additive", "--coverages", "0.5")
    done = call(*words, "--out", "page.html")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("No verdict: with 8 objects and ")
    folder, page = re.findall(r"^(?:Record|Page): +(.+)$", done.out, re.MULTILINE)
    assert page == "page.html"
    assert {"record.json", "table.csv", "arrays.safetensors", "figures.json"} <= {
        p.name for p in Path(folder).iterdir()
    }
    text = Path(page).read_text()
    assert SCRIPT not in text
    assert SCRIPT.replace("/", "\\/") not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text

    again = call(*words)
    assert "finished before; --force" in again.out
    assert f"Record: {folder}\n" in again.out
    rows = json.loads(call(*words, "--json").out)
    assert len(rows) == len((Path(folder) / "table.csv").read_text().splitlines()) - 1

    written = call("report", folder, "--out", "again.html")
    assert written == Done(0, "again.html\n", "")
    assert Path("again.html").read_text() == text


@pytest.mark.parametrize("verb", MEASUREMENTS)
def test_every_measurement_prints_a_table_or_json(call: Call, verb: str, labels: Path):
    words = (verb, ORACLE, "--scenes", labels)
    words += ("--families", "additive", "--coverages", "0.5") if verb == "complexity" else ()
    rows = json.loads(call(*words, "--json").out)
    assert rows
    assert list(rows[0]) == list(COLUMNS)
    done = call(*words, "--all")
    assert (done.code, done.err) == (0, "")
    assert any(line.startswith("measurement") for line in done.out.splitlines()[:3])
    for row in [row for row in rows if row["coverage"] is None][:20]:  # curves are for the page
        name = [row["id"], *([f"({row['family']})"] if row["family"] else []), row["on"]]
        line = next(line.split() for line in done.out.splitlines() if line.split()[: len(name)] == name)
        assert line[len(name)] == ("none" if row["value"] is None else f"{row['value']:.3f}")
        assert row["value"] is not None or f"none: {row['reason'].rstrip('.')} (" in done.out
    assert re.search(r"^Record: runs/", done.out, re.MULTILINE)


def test_a_long_table_shows_its_main_rows_and_where_the_others_are(call: Call, labels: Path):
    words = ("edit", ORACLE, "--scenes", labels)
    rows = json.loads(call(*words, "--json").out)
    done = call(*words)
    told = re.search(r"^(\d+) of (\d+) rows are shown; --all shows the others", done.out, re.MULTILINE)
    assert told, done.out
    printed = [line.split()[0] for line in done.out.splitlines() if re.match(r"\S+ +(all|fit|test) ", line)]
    assert len(printed) == int(told[1]) <= 40 < int(told[2]) == len(rows)
    assert "edit.retrieval.avg" in printed


def test_a_row_without_a_value_says_why(capsys: pytest.CaptureFixture[str]):
    blank = [Row(id="crossmodal.bias.scene.larger", reason="the world has no concept of size")]
    show([*blank, Row(id="crossmodal.object", value=0.5)], as_json=False)
    out = capsys.readouterr().out
    assert re.search(r"^crossmodal\.bias\.scene\.larger +all +none", out, re.MULTILINE)
    assert "none: the world has no concept of size (crossmodal.bias.scene.larger)." in out


def test_a_table_is_readable_through_a_narrow_pipe(call: Call, labels: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "20")
    out = call("probe", ORACLE, "--scenes", labels).out
    assert re.search(r"^probe\.concept\.joint +test +1\.000 ", out, re.MULTILINE)
    assert "…" not in out


def test_embedded_vectors_can_be_studied_without_the_model(call: Call, labels: Path):
    done = call("embed", ORACLE, "--out", "e", "--scenes", labels)
    note = "Note: Rows of labels.csv whose last slots are empty are scenes of fewer objects.\n"
    ties = "Note: The vectors of 90 different scenes are only 54 different ones: scenes with the same vector tie "
    assert done == Done(0, f"{ties}in every score.\n{note}" + "90 vectors of 24 dimensions: e\n", "")
    assert {path.name for path in Path("e").iterdir()} == {"vectors.safetensors", "labels.csv"}
    of_file = json.loads(call("probe", "e/vectors.safetensors", "--labels", "e/labels.csv", "--json").out)
    of_model = json.loads(call("probe", ORACLE, "--scenes", labels, "--json").out)
    assert [row["value"] for row in of_file] == [row["value"] for row in of_model]


def test_rendered_pictures_are_checked(call: Call):
    assert call("render", "--out", "pictures", "--limit", 30) == Done(0, "pictures/labels.csv\n", "")
    assert len(list(Path("pictures").glob("*.png"))) == 30
    done = call("check-data", "pictures/labels.csv")
    assert (done.code, done.err) == (0, "")
    assert "30 scenes: 30 of 2 objects; all different." in done.out
    assert "All pictures open." in done.out
    assert "Concept shape has 3 values" in done.out


def test_a_model_is_checked(call: Call):
    done = call("check-model", ORACLE)
    assert (done.code, done.err) == (0, "")
    assert "scene" in done.out
    assert "verdict" in done.out.splitlines()[0]


def test_a_bad_model_is_told_by_the_exit_code(call: Call, tmp_path: Path):
    (tmp_path / "noisy.py").write_text(
        "import torch\n"
        "class Tower:\n"
        "    kind = 'text'\n"
        "    fingerprint = None\n"
        "    def embed(self, items):\n"
        "        return torch.rand(len(items), 4)\n"
        "def make():\n"
        "    return Tower()\n"
    )
    done = call("check-model", "noisy:make")
    assert done.code == 1
    assert "bad" in done.out


def test_worlds_are_listed(call: Call):
    done = call("worlds")
    assert (done.code, done.err) == (0, "")
    names = [line.split()[0] for line in done.out.splitlines()]
    built_in = ["text20x20", "text8x8", "clevr", "clevr3", "clevr-occluded", "clevr2d", "pug_spare"]
    assert names == [*built_in, "grid:20x20", "sprites:16x9", "scenes.csv"]
    assert "160,400 scenes, 20 attribute x 20 noun" in done.out


def test_embedders_are_listed_and_what_can_be_loaded_here_loads(call: Call):
    done = call("embedders")
    assert (done.code, done.err) == (0, "")
    names = [line.split()[0] for line in done.out.splitlines() if ":" in line.partition(" ")[0]]
    assert {name.partition(":")[0] for name in names} == {*EMBEDDERS, "package.module"}
    listed = [name.removeprefix("oracle:") for name in names if name.startswith("oracle:") and name != "oracle:NAME"]
    assert listed == list(ORACLES)
    for name in listed:
        assert load_model(f"oracle:{name}:32").towers
        assert load_model(f"oracle:{name}?dim=32&seed=3").towers
    with pytest.raises(ValueError, match="No oracle is called") as told:
        load_model("oracle:none")
    assert all(name in str(told.value) for name in ORACLES)
    with pytest.raises(ValueError, match="colligate embedders lists them"):
        load_model("gpt")
    for name in ("reference:binds", "reference:bag"):
        assert load_model(name).towers


def test_runs_are_listed(call: Call, labels: Path):
    assert "holds no runs" in call("runs", Path.cwd()).out
    done = call("probe", ORACLE, "--scenes", labels)
    folder = Path(re.findall(r"Record: (.+)", done.out)[0])
    (Path("runs") / "train-0123456789").mkdir()
    (Path("runs") / "notes").mkdir()
    spoiled = Path("runs") / "study-9876543210"
    shutil.copytree(folder, spoiled)
    (spoiled / "record.json").write_text("{")
    listed = call("runs").out.splitlines()
    assert len(listed) == 5
    verdict = listed[listed.index(next(line for line in listed if line.startswith(folder.name))) + 1]
    assert verdict.strip() == done.out.splitlines()[0]
    (finished,) = (line for line in listed if line.startswith(folder.name))
    assert ORACLE in finished
    assert "on labels.csv" in finished
    assert read_record(folder)["created"][:10] in finished
    assert not finished.rstrip().endswith("finished")
    assert any(line.startswith(spoiled.name) and line.rstrip().endswith("damaged") for line in listed)
    assert listed[-1].startswith("train-0123456789")
    assert listed[-1].rstrip().endswith("unfinished")
    assert call("runs", "runs").out == call("runs", "--runs", "runs").out
    as_json = json.loads(call("runs", "runs", "--json").out)
    assert {run["state"]: bool(run["verdict"]) for run in as_json} == {
        "finished": True, "unfinished": False, "damaged": False
    }  # fmt: skip


def test_a_record_is_reproduced(call: Call, labels: Path, rewrite: Callable[..., None]):
    folder = Path(re.findall(r"Record: (.+)", call("probe", ORACLE, "--scenes", labels).out)[0])
    done = call("reproduce", folder / "record.json")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^(\d+) of \1 numbers agree to 1e-06\.$", done.out, re.MULTILINE)
    rows = read_table(folder / "table.csv")
    rewrite(folder, rows=[replace(row, value=0.5) if row.id == "probe.concept" else row for row in rows])
    done = call("reproduce", folder)
    assert done.code == 1
    assert "probe.concept on test: 0.5 then" in done.out


def test_notes_about_the_labels_are_told(call: Call, tmp_path: Path):
    table = write_labels(tmp_path / "labels.csv", mood=["fine"] * len(SCENES))
    assert "Note: Ignored columns of labels.csv: 'mood'." in call("check-data", table).out


def test_the_installed_command_speaks_plainly_off_a_terminal(labels: Path):
    done = shell("information", ORACLE, "--scenes", str(labels))
    out, err = done.communicate(timeout=120)
    assert (done.returncode, err) == (0, "")
    assert "information.linear.bits" in out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", out)


# ------------------------------------------------------------------------------------------------ things go wrong


SLOW = """
import os, time
from pathlib import Path
import torch

class Tower:
    kind = "scene"
    fingerprint = {"mine": 1}
    calls = 0

    def embed(self, items):
        Tower.calls += 1
        with Path("calls").open("a") as file:
            file.write(f"{len(items)}\\n")
        if Tower.calls > 2 and os.environ.get("SLOW"):
            time.sleep(60)
        return torch.nn.functional.one_hot(items.values + 1, 9).float().flatten(1)

def make():
    return Tower()
"""


def test_ctrl_c_keeps_finished_shards_and_says_one_line(tmp_path: Path):
    (tmp_path / "slow.py").write_text(SLOW)
    store = tmp_path / "store"
    words = ("embed", "slow:make", "--out", "e", "--scenes", "text8x8")
    going = shell(*words, SLOW="1", COLLIGATE_STORE=str(store))
    deadline = time.monotonic() + 120
    while not list(store.rglob("shard-00000.safetensors")) or len(Path("calls").read_text().split()) < 3:
        assert time.monotonic() < deadline
        assert going.poll() is None, going.communicate()
        time.sleep(0.05)
    going.send_signal(signal.SIGINT)
    out, err = going.communicate(timeout=60)
    assert (going.returncode, out) == (130, "")
    assert err == f"colligate: {stopped(words)}\n"
    assert "Embedded vectors and saved states of training are kept: the same command goes on from there." in err
    assert [path.name for path in store.rglob("shard-*.safetensors")] == ["shard-00000.safetensors"]
    assert not Path("e").exists()

    Path("calls").unlink()
    assert call_here(words, store) == 0
    assert sum(map(int, Path("calls").read_text().split())) == 4160 - 2048
    assert {path.name for path in Path("e").iterdir()} == {"vectors.safetensors", "labels.csv"}


def call_here(words: tuple[str, ...], store: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLLIGATE_STORE", str(store))
        try:
            return main(words)
        finally:
            sys.modules.pop("slow", None)


@pytest.mark.parametrize("writes", [0, 1, 2, 4, 5])
def test_a_full_disk_is_said_in_one_sentence_and_nothing_is_half_written(
    call: Call, labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
):
    """The disk fills up after so many files: the store's description and shard, then the run's table and so on."""
    monkeypatch.setenv("COLLIGATE_STORE", str(tmp_path / "store"))
    written = list[int]()
    fsync = os.fsync

    def full(handle: int) -> None:
        if len(written) >= writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(handle)
        fsync(handle)

    words = ("probe", ORACLE, "--scenes", labels)
    monkeypatch.setattr("os.fsync", full)
    said = call(*words).refused(code=1)
    assert "full" in said
    assert "free some space" in said
    monkeypatch.setattr("os.fsync", fsync)
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.name.startswith(".")]
    assert left == []
    assert not list(tmp_path.rglob("record.json"))
    done = call(*words)
    assert done.code == 0
    assert "finished before" not in done.out


def test_a_page_can_not_be_a_folder(call: Call, labels: Path, tmp_path: Path):
    (tmp_path / "pages").mkdir()
    assert "pages is a folder" in call("study", ORACLE, "--scenes", labels, "--out", "pages").refused()
    assert not list(tmp_path.rglob("record.json"))


def test_a_folder_that_can_not_be_made_is_named(call: Call, labels: Path, tmp_path: Path):
    (tmp_path / "taken").write_text("a file")
    said = call("probe", ORACLE, "--scenes", labels, "--runs", "taken").refused()
    assert "taken" in said


FAILING = """
import torch

class Tower:
    kind = "scene"
    fingerprint = None

    def embed(self, items):
        {fault}

def make():
    return Tower()
"""
FAULTS = {
    "raise RuntimeError('expected Half\\nException raised from here')": "make raised RuntimeError: expected Half (",
    "raise RuntimeError('DefaultCPUAllocator: not enough memory: you tried to allocate 9')": "Memory ran out",
    "raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 9 GiB')": "Memory ran out",
    "return torch.full((len(items), 4), torch.nan)": "The Tower tower gave NaN or infinity for rows 1, 2",
    "return torch.zeros(len(items), 2, 2)": "expected one floating vector each",
    "raise MemoryError": "Memory ran out",
    "raise NotImplementedError": "failing:make raised NotImplementedError (",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_work_that_fails_is_one_sentence_and_another_exit_code_than_a_wrong_call(
    call: Call, labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
):
    (tmp_path / "failing.py").write_text(FAILING.format(fault=fault))
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    words = ("probe", "failing:make", "--scenes", labels)
    assert FAULTS[fault] in call(*words).refused(code=1)
    monkeypatch.setenv("COLLIGATE_DEBUG", "1")
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    done = call(*words)
    assert done.code == 1
    assert done.err.startswith("Traceback")
    assert ('failing.py", line' if fault.startswith("raise") else "WorkError: The Tower tower gave") in done.err
    assert FAULTS[fault] in done.err.splitlines()[-1]


def test_a_damaged_run_is_a_failure_of_the_work(call: Call, labels: Path):
    words = ("probe", ORACLE, "--scenes", labels)
    folder = Path(re.findall(r"Record: (.+)", call(*words).out)[0])
    table = folder / "table.csv"
    table.write_text(table.read_text().rsplit(",", 10)[0])
    for verb in (words, ("report", folder), ("reproduce", folder)):
        assert "run it again with --force" in call(*verb).refused(code=1)
    assert call(*words, "--force").code == 0
    table.unlink()
    assert "table.csv is missing" in call("reproduce", folder).refused(code=1)


def test_progress_tells_how_much_at_which_rate_and_how_long(monkeypatch: pytest.MonkeyPatch):
    from io import StringIO

    from rich.console import Console

    screen = Console(file=StringIO(), force_terminal=True, width=120)
    shown, now = bars(screen), [100.0]
    monkeypatch.setattr(shown, "get_time", lambda: now[0])
    task, whole = shown.add_task("embedding", total=4096), shown.add_task("probes", total=1)
    for done in (256, 512, 768):
        now[0] += 2
        shown.update(task, completed=done)
        shown.update(whole, completed=0)
    with screen.capture() as drawn:
        screen.print(shown.make_tasks_table(shown.tasks))
    embedding, probes = (re.sub(r"\x1b\[[0-9;]*m", "", line) for line in drawn.get().splitlines())
    assert re.search(r"embedding .* 768/4096 128/s 0:00:26", embedding)
    assert "/s" not in probes


def comes(log: io.StringIO, text: str) -> bool:
    """Whether a line comes that another thread writes."""
    for _ in range(6000):
        if text in log.getvalue():
            return True
        time.sleep(0.01)
    return False


def test_off_a_terminal_long_work_says_in_plain_lines_where_it_is(monkeypatch: pytest.MonkeyPatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr("colligate.progress.EVERY", 0.01)
    with progress() as report:
        assert report is not None
        report("embedding", 1_000, 4_096)
        assert comes(log, " s: embedding, 1,000 of 4,096 done\n")
        report("probes", 0, 1)
        assert comes(log, " s: probes\n")
    said = log.getvalue()
    assert re.fullmatch(r"(colligate: \d+ s: (starting|embedding, 1,000 of 4,096 done|probes)\n)+", said)
    time.sleep(0.05)
    assert log.getvalue() == said  # nothing after the work's end


def test_off_a_terminal_rows_as_json_come_without_lines_of_progress(
    call: Call, labels: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = list[bool]()
    monkeypatch.setattr("colligate.progress._lines", lambda: asked.append(True) or nullcontext())
    assert json.loads(call("probe", ORACLE, "--scenes", labels, "--json").out)
    assert not asked
    call("probe", ORACLE, "--scenes", labels)
    assert asked


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_a_pipe_early_is_no_error(unbuffered: str):
    with shell("--help", PYTHONUNBUFFERED=unbuffered) as going:
        assert going.stdout is not None
        assert going.stderr is not None
        going.stdout.close()
        assert going.stderr.read() == ""
    assert going.returncode == 0


# -------------------------------------------------------------------------------------------------- bad input


def test_vectors_and_labels_of_different_numbers(call: Call, labels: Path, tmp_path: Path):
    np.save(tmp_path / "v.npy", vectors_of()[:-1].numpy())
    said = call("study", "v.npy", "--labels", labels).refused()
    assert "v.npy holds 89 vectors for the 90 rows" in said


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_vectors_that_are_not_finite_are_named(call: Call, labels: Path, tmp_path: Path, bad: float):
    given = vectors_of()
    given[7, 3] = given[50, 0] = bad
    np.save(tmp_path / "v.npy", given.numpy())
    said = call("study", "v.npy", "--labels", labels).refused()
    assert "v.npy" in said
    assert "rows 8, 51" in said


def test_an_unknown_value(call: Call, tmp_path: Path):
    (tmp_path / "space.json").write_text('{"color": ["red", "blue"]}')
    (tmp_path / "labels.csv").write_text("slot1_color,slot2_color\nred,blue\nred,bleu\n")
    said = call("check-data", "labels.csv", "--space", "space.json").refused()
    assert "line 3" in said
    assert "slot2_color" in said
    assert "Did you mean 'blue'?" in said


def test_a_value_that_the_fit_part_never_shows(call: Call, tmp_path: Path):
    parts = ["test" if "ball" in SCENES.describe(row) else ("fit", "validation")[row % 2] for row in range(len(SCENES))]
    labels = write_labels(tmp_path / "labels.csv", split=parts)
    said = call("probe", ORACLE, "--scenes", labels).refused()
    assert "fit part never" in said
    assert "ball" in said


def test_a_value_that_no_scene_shows(call: Call, vectors: Path, labels: Path, tmp_path: Path):
    words = {"color": list(SPACE.words[0]), "shape": [*SPACE.words[1], "torus"]}
    (tmp_path / "space.json").write_text(json.dumps(words))
    done = call("check-data", labels, "--space", "space.json")
    assert "Note: No scene of labels.csv shows shape torus." in done.out
    with_torus, without = (
        json.loads(call("probe", vectors, "--labels", labels, *space, "--json").out)
        for space in (("--space", "space.json"), ())
    )
    assert with_torus == without  # what never occurs is no alternative


def test_the_same_labels_with_the_same_vector(call: Call, tmp_path: Path):
    scenes = Scenes.join([PAIRS, PAIRS[:3]])
    (tmp_path / "labels.csv").write_bytes(labels_bytes(World("twice", scenes)))
    given = vectors_of(scenes)
    np.save(tmp_path / "v.npy", given.numpy())
    said = call("probe", "v.npy", "--labels", "labels.csv").refused()
    assert "rows 1 and 82" in said
    assert "the same vector" in said
    given[81:] += 0.001
    np.save(tmp_path / "v.npy", given.numpy())
    assert call("probe", "v.npy", "--labels", "labels.csv").code == 0


def test_the_same_labels_with_the_same_picture(call: Call, tmp_path: Path):
    (tmp_path / "labels.csv").write_text(
        "slot1_color,slot2_color,picture\nred,blue,0.png\nblue,red,1.png\nred,blue,0.png"
    )
    said = call("check-data", "labels.csv").refused()
    assert "line 2 and line 4" in said
    assert "same picture" in said


@pytest.mark.parametrize("text", ["", "slot1_color,slot2_color\n"])
def test_an_empty_table(call: Call, tmp_path: Path, text: str):
    (tmp_path / "labels.csv").write_text(text)
    said = call("check-data", "labels.csv").refused()
    assert "labels.csv" in said
    assert "empty" in said or "no " in said
    assert "labels.csv" in call("probe", ORACLE, "--scenes", "labels.csv").refused()


def test_one_object_only(call: Call, tmp_path: Path):
    (tmp_path / "labels.csv").write_text("slot1_color,slot2_color\nred,red\n")
    assert "one object only" in call("check-data", "labels.csv").refused()
    assert "one object only" in call("probe", ORACLE, "--scenes", "labels.csv").refused()


def test_scenes_of_one_object_each(call: Call, tmp_path: Path):
    (tmp_path / "labels.csv").write_bytes(labels_bytes(World("singles", SPACE.all_scenes(1))))
    assert "nothing to bind" in call("probe", ORACLE, "--scenes", "labels.csv").refused()


def test_one_value_of_a_concept_is_studied_with_a_note(call: Call, tmp_path: Path):
    scenes = ConceptSpace(color=["red"], shape=list("abcdefgh")).all_scenes(2)
    (tmp_path / "labels.csv").write_bytes(labels_bytes(World("one", scenes)))
    assert "Note: Concept 'color' has one value only ('red')" in call("check-data", "labels.csv").out
    for verb in ("probe", "decompose", "remove", "information"):
        done = call(verb, "oracle:object-table:16", "--scenes", "labels.csv", "--json")
        assert (done.code, done.err) == (0, "")
        rows = json.loads(done.out)
        assert all(row["value"] is not None or row["reason"] for row in rows)


def png(width: int, height: int) -> bytes:
    """A PNG that says it is so large, without the pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def with_picture(folder: Path, content: bytes | None, name: str = "1.png") -> Path:
    """A table of two pictures, of which the second is as given."""
    from PIL import Image

    Image.new("RGB", (8, 8), "red").save(folder / "0.png")
    if content is not None:
        (folder / name).write_bytes(content)
    (folder / "labels.csv").write_text(f"slot1_color,slot2_color,picture\nred,blue,0.png\nblue,red,{name}\n")
    return folder / "labels.csv"


def noise_png() -> bytes:

    from PIL import Image

    found = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(found, "PNG")
    return found.getvalue()


PICTURES: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "missing"),
    "truncated": (noise_png()[:-3000], "can't be read"),
    "no picture": (b"hello", "can't be read"),
    "bomb": (png(60_000, 60_000), "decompression bomb"),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_that_can_not_be_opened_is_named(call: Call, tmp_path: Path, kind: str):
    content, said = PICTURES[kind]
    told = call("check-data", with_picture(tmp_path, content)).refused
    try:
        sentence = told()
    except AssertionError:  # what could be read of the table stands on stdout already
        done = call("check-data", tmp_path / "labels.csv")
        assert done.code == 2
        assert "scenes" in done.out
        sentence = done.err
    assert "Row 2" in sentence
    assert "1.png" in sentence
    assert said in sentence


@pytest.mark.parametrize("name", ["../1.png", "/etc/1.png", "C:\\1.png", "sub/../../1.png", "link.png"])
def test_a_picture_outside_the_tables_folder(call: Call, tmp_path: Path, name: str):
    inside = tmp_path / "inside"
    inside.mkdir()
    if name == "link.png":
        (tmp_path / "out.png").write_bytes(noise_png())
        (inside / name).symlink_to(tmp_path / "out.png")
    said = call("check-data", with_picture(inside, None, name)).refused()
    assert "leaves the table's folder" in said
    assert "line 3" in said


@pytest.mark.parametrize("name", ["v.npy", "v.safetensors", "v.parquet"])
def test_a_vectors_file_that_is_a_pickle(call: Call, labels: Path, tmp_path: Path, name: str):
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "went off",))

    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    assert "is a pickle" in call("probe", name, "--labels", labels).refused()
    objects = np.array([[Bomb()]], dtype=object)
    with (tmp_path / "o.npy").open("wb") as file:
        np.lib.format.write_array(file, objects, allow_pickle=True)
    assert "is a pickle" in call("probe", "o.npy", "--labels", labels).refused()
    assert not (tmp_path / "went off").exists()


def test_vectors_of_whole_numbers(call: Call, labels: Path, tmp_path: Path):
    save_file({"v": vectors_of().long()}, tmp_path / "v.safetensors")
    assert "vectors are floating" in call("probe", "v.safetensors", "--labels", labels).refused()


def test_a_vectors_file_without_labels(call: Call, vectors: Path):
    assert "needs a labels table" in call("study", vectors).refused()


def test_a_record_of_another_version(call: Call, labels: Path):
    folder = Path(re.findall(r"Record: (.+)", call("probe", ORACLE, "--scenes", labels).out)[0])
    record = folder / "record.json"
    record.write_bytes(sealed_json("record.json", {**read_record(folder), "schema": 99}))
    assert "schema 99" in call("report", folder).refused()


def test_the_list_of_worlds_says_what_they_hold():
    made = {name: load_world(name) for name in WORLDS}
    assert list(BUILT_IN) == list(made)
    for name, world in made.items():
        space = world.scenes.space
        sizes = " x ".join(f"{size} {concept}" for concept, size in zip(space.names, space.sizes, strict=True))
        assert BUILT_IN[name] == f"{len(world.scenes):,} scenes, {sizes}; shows {', '.join(world.kinds)}"


LIGHT = [
    ["--help"], ["worlds"], ["embedders"], ["runs"], *([verb, "--help"] for verb in verbs()),
    ["train", "--preset", "pictures", "--help"], ["sweep", "--preset", "paper", "--help"],
]  # fmt: skip


def test_help_and_lists_load_no_torch(tmp_path: Path):
    """A second or more of waiting, each time."""
    (tmp_path / "runs").mkdir()
    code = (
        "import sys; from colligate.cli import main\n"
        f"for words in {LIGHT!r}:\n"
        "    assert main(words) == 0, words\n"
        "    assert 'torch' not in sys.modules, words\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)


def test_a_config_at_its_defaults_needs_no_check():
    for config in (TrainConfig(), PaperConfig(), PicturesConfig()):
        config._check_parts()
