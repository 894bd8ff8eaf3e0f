"""The store: what is computed once is found again, whatever happens in between."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate import store as store_module
from colligate.records import WorkError
from colligate.store import Store

FACTS = {"weights": "abc", "dtype": "float32"}


def rule(rows: slice) -> torch.Tensor:
    """Vectors that tell which row they belong to."""
    index = torch.arange(rows.start, rows.stop, dtype=torch.float32)
    return torch.stack([index, index**2, -index], dim=1)


class Counting:
    """A compute function that keeps the slices it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def __call__(self, rows: slice) -> torch.Tensor:
        self.asked.append((rows.start, rows.stop))
        return rule(rows)


def shards(root: Path) -> list[Path]:
    return sorted(root.rglob("shard-*.safetensors"))


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 40), per_shard=st.integers(1, 17))
def test_any_sharding_gives_the_same_vectors(
    rows: int, per_shard: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(tmp_path_factory.mktemp("store"), rows_per_shard=per_shard)
    first, again = Counting(), Counting()
    assert torch.equal(store.get_or_compute(FACTS, rows, first), rule(slice(0, rows)))
    assert torch.equal(store.get_or_compute(FACTS, rows, again), rule(slice(0, rows)))
    assert sum(stop - start for start, stop in first.asked) == rows
    assert again.asked == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_dtype_comes_back_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    store = Store(tmp_path, rows_per_shard=2)
    fresh = store.get_or_compute(FACTS, 5, lambda rows: rule(rows).to(dtype))
    stored = store.get_or_compute(FACTS, 5, Counting())
    assert stored.dtype == dtype
    assert torch.equal(stored, fresh)


def test_any_other_fact_is_another_entry(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folders = {
        store.folder(FACTS, 5),
        store.folder(FACTS, 6),
        store.folder({**FACTS, "pooling": "mean"}, 5),
        Store(tmp_path, rows_per_shard=3).folder(FACTS, 5),
    }
    assert len(folders) == 4
    assert store.folder({"dtype": "float32", "weights": "abc"}, 5) == store.folder(FACTS, 5)


def test_a_fact_that_is_not_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        Store(tmp_path).get_or_compute({"model": object()}, 3, rule)


def test_progress_counts_stored_and_computed_rows(tmp_path: Path) -> None:
    store = Store(tmp_path, rows_per_shard=2)
    for _ in range(2):
        seen: list[tuple[int, int]] = []
        store.get_or_compute(FACTS, 5, rule, progress=lambda done, total, seen=seen: seen.append((done, total)))
        assert seen == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize("place", ["header", "first vector", "last byte", "cut short", "emptied"])
def test_a_broken_shard_is_found_and_computed_again(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path, rows_per_shard=2)
    store.get_or_compute(FACTS, 6, rule)
    path = shards(tmp_path)[1]
    content = bytearray(path.read_bytes())
    data = 8 + int.from_bytes(content[:8], "little")
    if place == "cut short":
        content = content[:-3]
    elif place == "emptied":
        content = bytearray()
    else:
        content[{"header": 0, "first vector": data, "last byte": len(content) - 1}[place]] ^= 0x10
    path.write_bytes(bytes(content))
    counting = Counting()
    assert torch.equal(store.get_or_compute(FACTS, 6, counting), rule(slice(0, 6)))
    assert counting.asked == [(2, 4)]
    said = capsys.readouterr().err
    assert re.fullmatch(r"colligate: Stored vectors .*shard-00001\.safetensors are broken \(.*; computing .*\.\n", said)
    store.get_or_compute(FACTS, 6, Counting())
    assert capsys.readouterr().err == ""


def test_a_shard_in_another_shard_s_place_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path, rows_per_shard=2)
    store.get_or_compute(FACTS, 6, rule)
    first, second, _ = shards(tmp_path)
    second.write_bytes(first.read_bytes())
    assert torch.equal(store.get_or_compute(FACTS, 6, rule), rule(slice(0, 6)))
    assert "broken" in capsys.readouterr().err


def test_a_shard_of_another_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, other = Store(tmp_path, rows_per_shard=2), {**FACTS, "weights": "def"}
    store.get_or_compute(FACTS, 6, rule)
    store.get_or_compute(other, 6, lambda rows: -rule(rows))
    theirs, ours = (store.folder(facts, 6) / "shard-00001.safetensors" for facts in (other, FACTS))
    ours.write_bytes(theirs.read_bytes())
    assert torch.equal(store.get_or_compute(FACTS, 6, rule), rule(slice(0, 6)))
    assert "copied from another folder" in capsys.readouterr().err


def test_a_store_that_holds_all_is_read_without_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, rows_per_shard=2)
    store.get_or_compute(FACTS, 6, rule)

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for module, name in ((os, "mkdir"), (Path, "mkdir"), (store_module, "write_atomic"), (store_module, "FileLock")):
        monkeypatch.setattr(module, name, refused)
    assert torch.equal(store.get_or_compute(FACTS, 6, Counting()), rule(slice(0, 6)))
    with pytest.raises(OSError, match="choose a store you can write to"):
        store.get_or_compute({**FACTS, "weights": "def"}, 6, rule)


def test_what_a_kill_leaves_is_swept_by_the_next_run(tmp_path: Path) -> None:
    store = Store(tmp_path, rows_per_shard=2)
    store.get_or_compute(FACTS, 6, rule)
    folder = store.folder(FACTS, 6)
    whole = sorted(path.name for path in folder.iterdir())
    (folder / "shard-00001.safetensors").unlink()
    for name in (".shard-00001.safetensors.0a1b2c3d.part", "shard-00000.lock", "shard-00001.lock"):
        (folder / name).touch()
    (folder / "meta.json").write_text("{")
    store.get_or_compute(FACTS, 6, rule)
    assert sorted(path.name for path in folder.iterdir()) == whole
    assert (folder / "meta.json").read_text().startswith('{\n "facts"')


def test_a_full_disk_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, rows_per_shard=2)
    writes = []

    def full_at_the_second_shard(handle: int) -> None:
        writes.append(handle)
        if len(writes) == 3:  # meta.json, first shard, second shard
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full_at_the_second_shard)
    with pytest.raises(OSError, match=r"^The disk that holds .* is full; free some space and run again"):
        store.get_or_compute(FACTS, 6, rule)
    monkeypatch.undo()
    left = [path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert sorted(left) == ["meta.json", "shard-00000.safetensors"]
    counting = Counting()
    assert torch.equal(store.get_or_compute(FACTS, 6, counting), rule(slice(0, 6)))
    assert counting.asked == [(2, 4), (4, 6)]


def test_a_root_that_is_a_file_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="choose a store you can write to"):
        Store(tmp_path / "file").get_or_compute(FACTS, 3, rule)


def test_ctrl_c_leaves_the_finished_shards(tmp_path: Path) -> None:
    store = Store(tmp_path, rows_per_shard=2)

    def interrupted(rows: slice) -> torch.Tensor:
        if rows.start == 4:
            raise KeyboardInterrupt
        return rule(rows)

    with pytest.raises(KeyboardInterrupt):
        store.get_or_compute(FACTS, 6, interrupted)
    counting = Counting()
    store.get_or_compute(FACTS, 6, counting)
    assert counting.asked == [(4, 6)]


def test_the_wrong_number_of_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="expected 3 rows"):
        Store(tmp_path).get_or_compute(FACTS, 3, lambda rows: torch.zeros(2, 4))
    with pytest.raises(ValueError, match="no rows"):
        Store(tmp_path).get_or_compute(FACTS, 0, rule)
    with pytest.raises(ValueError, match="at least one row"):
        Store(tmp_path, rows_per_shard=0)


WORKER = """
import sys, time
from pathlib import Path
import torch
from colligate.store import Store
root, log, pause = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
def compute(rows):
    time.sleep(pause)
    with log.open("a") as file:
        file.write(f"{rows.start}\\n")
    index = torch.arange(rows.start, rows.stop, dtype=torch.float32)
    return torch.stack([index, index**2, -index], dim=1)
vectors = Store(root, rows_per_shard=2).get_or_compute({"weights": "abc", "dtype": "float32"}, 20, compute)
assert torch.equal(vectors[:, 0], torch.arange(20.0))
"""


def start(root: Path, log: Path, pause: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WORKER, str(root), str(log), str(pause)])


def computed(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def test_a_run_killed_midway_resumes_with_the_missing_shards(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    process = start(root, log, pause=0.05)
    deadline = time.monotonic() + 60
    while len(shards(root)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = len(shards(root))
    assert 3 <= kept < 10
    counting = Counting()
    assert torch.equal(Store(root, rows_per_shard=2).get_or_compute(FACTS, 20, counting), rule(slice(0, 20)))
    assert [a for a, _ in counting.asked] == list(range(2 * kept, 20, 2))


def test_two_processes_share_the_work(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    processes = [start(root, log, pause=0.05) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert sorted(computed(log)) == list(range(0, 20, 2))
    assert not list(root.rglob("*.lock"))


def test_where_files_can_t_be_locked_it_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoLock:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> None:
            raise NotImplementedError("flock")

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(store_module, "FileLock", NoLock)
    assert torch.equal(Store(tmp_path).get_or_compute(FACTS, 6, rule), rule(slice(0, 6)))


def test_what_is_not_finite_is_neither_written_nor_read(tmp_path: Path) -> None:
    store = Store(tmp_path, rows_per_shard=2)
    with pytest.raises(WorkError, match="Rows 2 to 3 gave NaN or infinity, which is never kept"):
        store.get_or_compute(FACTS, 4, lambda rows: rule(rows) / (2 - rule(rows)))  # at row 2: 2 / 0
    assert [path.name for path in shards(tmp_path)] == ["shard-00000.safetensors"], "what is finite stays"


def test_a_shard_that_an_earlier_version_kept_with_nan_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "isfinite", lambda numbers: torch.ones_like(numbers, dtype=torch.bool))
        store.get_or_compute(FACTS, 3, lambda rows: rule(rows) * float("nan"))
    found = store.get_or_compute(FACTS, 3, rule)
    assert "they hold NaN or infinity" in capsys.readouterr().err
    assert torch.equal(found, rule(slice(0, 3)))


def layers(rows: slice) -> dict[str, torch.Tensor]:
    """Tensors of several shapes and types."""
    found = rule(rows)
    return {
        "layer 0": found,
        "layer 1": found[:, None, :2].double(),
        "mask": found > 4,
        "layer 10": found[:, :1].half(),
    }


def test_tensors_of_the_same_rows_are_kept_together(tmp_path: Path) -> None:
    store, asked = Store(tmp_path, rows_per_shard=3), list[slice]()

    def compute(rows: slice) -> dict[str, torch.Tensor]:
        asked.append(rows)
        if rows.start == 3 and len(asked) == 2:
            raise KeyboardInterrupt
        return layers(rows)

    with pytest.raises(KeyboardInterrupt):
        store.get_or_compute_named(FACTS, 7, compute)
    for _ in range(2):
        found = store.get_or_compute_named(FACTS, 7, compute)
        whole = layers(slice(0, 7))
        assert found.keys() == whole.keys()
        assert all(torch.equal(found[name], kept) and found[name].dtype == kept.dtype for name, kept in whole.items())
    assert [rows.start for rows in asked] == [0, 3, 3, 6], "a finished shard is never computed twice"


def test_tensors_under_each_other_s_name_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path)

    def compute(rows: slice) -> dict[str, torch.Tensor]:
        return {"layer 0": rule(rows), "layer 1": 2 * rule(rows)}

    store.get_or_compute_named(FACTS, 4, compute)
    path = shards(tmp_path)[0]
    content = path.read_bytes()
    path.write_bytes(content.replace(b"layer 0", b"layer x").replace(b"layer 1", b"layer 0").replace(b"r x", b"r 1"))
    assert path.read_bytes() != content
    found = store.get_or_compute_named(FACTS, 4, compute)
    assert "checksum" in capsys.readouterr().err
    assert torch.equal(found["layer 1"], 2 * found["layer 0"])


def test_nothing_to_keep_is_kept_too(tmp_path: Path) -> None:
    asked = list[slice]()
    for _ in range(2):
        assert Store(tmp_path).get_or_compute_named(FACTS, 4, lambda rows: asked.append(rows) or {}) == {}
    assert len(asked) == 1
