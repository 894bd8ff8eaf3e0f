"""Pages of trainings and sweeps: verdicts that claim only what intervals carry, and one page each."""

from typing import Any

import pytest

from colligate.records import Row
from colligate.report.emergence import judge_sweep, judge_training
from colligate.report.page import render_page

WAYS = ("table", "among_unseen", "swaps")


def scored(id: str, value: float, *, bag: float = 0.25, half: float = 0.02, **more: Any) -> Row:
    given: dict[str, Any] = {"on": "test", "n": 400, "objects": 40, "seeds": 1, "coverage": 0.8} | more
    return Row(id=id, value=value, low=value - half, high=min(1.0, value + half), bag_of_concepts=bag, **given)


def training(unseen: float, seen: float, swaps: float | None = None) -> list[Row]:
    rows = [scored(f"recognition.object.unseen.{way}", unseen) for way in WAYS[:2]]
    rows.append(scored("recognition.object.unseen.swaps", unseen if swaps is None else swaps, bag=0.17))
    rows += [scored(f"recognition.object.seen.{way}", seen, on="fit") for way in ("table", "among_seen", "swaps")]
    return [*rows, scored("recognition.concept.unseen", 0.99, bag=1.0, chance=0.01)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (training(0.97, 1.0), "binds objects that it never saw (97 % of scenes among all objects, 97 % against"),
        (training(0.10, 0.9), "binds the objects that it saw; on unseen ones it does not clear"),
        (training(0.10, 0.2), "does not clear an ideal bag of concepts, on seen objects or on unseen ones"),
        (training(0.97, 1.0, swaps=0.17), "Whether It binds objects that it never saw is undecided"),
        (training(0.97, 1.0, swaps=0.05), "binds the objects that it saw; on unseen ones it does not clear"),
        ([], "No verdict on unseen objects"),
    ],
)
def test_a_claim_needs_all_three_ways(rows: list[Row], said: str):
    assert said in judge_training(rows, "It").sentence


def test_no_swaps_no_verdict():
    rows = [row for row in training(0.97, 1.0) if row.id != "recognition.object.unseen.swaps"]
    rows.append(Row(id="recognition.object.unseen.swaps", on="test", n=0, reason="No scene has a swap among them"))
    assert judge_training(rows).sentence.startswith("No verdict")


@pytest.mark.parametrize(
    ("steps", "drawn", "said"),
    [((), False, "No curve was kept"), ((200,), False, "one look, at step 200"), ((100, 200), True, "A plateau at")],
)
def test_a_single_look_is_no_curve(steps: tuple[int, ...], drawn: bool, said: str):
    curve = [{"step": step, "loss": 1.5, "unseen.swaps": 0.9} for step in steps]
    page = render_page({"kind": "train", "name": "train-1"}, training(0.97, 1.0), {"curve": curve})
    assert ('data-figure="curve"' in page) == drawn
    assert said in page


@pytest.mark.parametrize(
    ("towers", "said"),
    [("shared", ("One encoder reads",)), ("separate", ("through two encoders",)), (None, ())],
)
def test_the_page_says_what_reads_scenes_and_queries(towers: str | None, said: tuple[str, ...]):
    config = {} if towers is None else {"towers": towers}
    page = render_page({"kind": "train", "name": "train-1", "config": config}, training(0.97, 1.0), {})
    for words in ("One encoder reads", "through two encoders"):
        assert (words in page) == (words in said)


def sweep() -> list[Row]:
    family = "20x20 object-tokens <script>"
    shares = {0.3: (0.05, 0.2), 0.5: (0.6, 0.15), 0.8: (0.95, 0.99)}
    return [
        scored(f"recognition.object.unseen.{way}", value, coverage=coverage, family=family, seeds=seed, bag=0.17)
        for way in WAYS for coverage, of_seeds in shares.items() for seed, value in enumerate(of_seeds)
    ]  # fmt: skip


def test_a_sweep_names_the_coverages_at_which_every_seed_binds():
    assert judge_sweep(sweep()).sentence.endswith("every seed binds unseen objects at coverage 80 %.")
    below = [row for row in sweep() if row.coverage != 0.8]
    assert "at no coverage do all seeds bind" in judge_sweep(below).sentence


def test_pages_of_both_kinds_hold_their_numbers():
    curve = [{"step": 100, "loss": 6.0, "unseen.swaps": 0.2}, {"step": 200, "loss": 1.5, "unseen.swaps": 0.9}]
    page = render_page({"kind": "train", "name": "train-1"}, training(0.97, 1.0), {"curve": curve})
    for words in ("bind objects that it never saw?", "The loss fell from 6.00 to 1.50.", "0.970", "against the swap"):
        assert words in page
    page = render_page({"kind": "sweep", "name": "sweep-1"}, sweep(), {})
    assert "When does binding emerge?" in page
    assert "<script>, 80 %" not in page
    assert "&lt;script&gt;, 80 %" in page
    assert "0.950–0.990" in page
