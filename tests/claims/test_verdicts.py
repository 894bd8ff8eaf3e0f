"""What verdicts say of embedders whose answer is known: the short form of benchmarks/verdicts.py."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from colligate.embeddings import Embeddings
from colligate.geometry.measurements import probe_rows
from colligate.geometry.subject import Settings, Subject
from colligate.probes import ProbeSettings
from colligate.report.verdict import Measured
from colligate.report.verdict.binding import binding, widened
from colligate.scenes.space import ConceptSpace
from colligate.scenes.splits import ByScene


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The benchmark as a module, though its folder is none of the package."""
    path = Path(__file__).parents[2] / "benchmarks" / "verdicts.py"
    spec = importlib.util.spec_from_file_location("known_verdicts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SHORT = ("sum", "random", "counts and their products", "product", "product and outlier axes", "slots side by side")


@pytest.mark.parametrize("name", SHORT)
def test_what_is_said_of_a_known_embedder_is_so(bench: ModuleType, name: str) -> None:
    said = bench.Said.of(bench.measured(name, 24, 2, 0), name)
    assert said.answer == {"blind": "no", "binds": "yes"}[bench.EMBEDDERS[name].truth]
    assert not said.wrong(bench.EMBEDDERS[name])
    if name == "slots side by side":
        assert said.by == "quadratic"


@pytest.mark.long
def test_every_known_embedder_is_told_right_at_two_and_three_slots(bench: ModuleType) -> None:
    wrong = list[str]()
    for job in bench.jobs(1, (24,), (2, 3)):
        said = bench.Said.of(bench.measured(*job), job[0])
        if said.wrong(bench.EMBEDDERS[job[0]]):
            wrong.append(f"{job}: {said.sentence}")
    assert not wrong


def claims_of_sums(seeds: range) -> int:
    """How many sums of value vectors are said to bind by their probes, over worlds of two to four slots."""
    claimed = 0
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        sizes, slots = ((5, 4), (8, 3), (4, 4))[seed % 3], 2 + seed // 3 % 3
        space = ConceptSpace(color=sizes[0], shape=sizes[1])
        scenes = space.sample_scenes(400, slots, generator=generator)
        tables = [torch.randn(size, 24, generator=generator) for size in sizes]
        vectors = torch.stack([table[scenes.values[..., c]].sum(1) for c, table in enumerate(tables)]).sum(0)
        quick = ProbeSettings(strengths=(1e-8, 1e-2), max_steps=50)
        subject = Subject.of(Embeddings(vectors, scenes), ByScene(), Settings(seed=seed, probes=quick))
        claimed += binding(Measured(probe_rows(subject))).answer == "yes"
    return claimed


def test_no_sum_is_said_to_bind() -> None:
    assert claims_of_sums(range(12)) == 0


@pytest.mark.long
def test_of_three_hundred_sums_no_more_than_one_in_forty_is_said_to_bind() -> None:
    assert claims_of_sums(range(300)) <= 7


def test_a_widened_interval_still_holds_its_value(bench: ModuleType) -> None:
    for row in bench.measured("sum", 24, 2, 1):
        if row.low is not None:
            wide = widened(row, 4)
            assert wide.low <= row.low <= row.value <= row.high <= wide.high
