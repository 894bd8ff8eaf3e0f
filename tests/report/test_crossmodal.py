"""Pages of two-tower models: what may be said, and one page of each kind."""

from dataclasses import replace
from typing import Any

import pytest

from colligate.records import Row
from colligate.report.crossmodal import judge_foils, judge_recognition
from colligate.report.page import Run, render_page
from colligate.report.repair import judge_repair


def scored(id: str, value: float, half: float = 0.02, **more: Any) -> Row:
    given: dict[str, Any] = {"n": 400, "objects": 24, "chance": 0.1, "bag_of_concepts": 0.5} | more
    return Row(id=id, value=value, low=value - half, high=value + half, **given)


def recognition(values: float, objects: float, half: float = 0.02) -> list[Row]:
    return [
        scored("crossmodal.concept", values, bag_of_concepts=1.0), scored("crossmodal.object", objects, half),
        scored("crossmodal.object.swap", objects),
        scored("crossmodal.text.object", 0.97), scored("crossmodal.interaction.scene", 0.3),
        scored("crossmodal.alignment.object.cosine", 0.6), scored("crossmodal.without.scene.concept.object", 0.1),
        scored("crossmodal.without.scene.concept.permuted.object", 0.4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (recognition(0.99, 0.9), "finds which values belong together (90 % of scenes, where a bag of concepts"),
        (recognition(0.99, 0.4), "finds the values of a scene (99 %), but not which belong together (40 %"),
        (recognition(0.99, 0.5), "bag of concepts reaches 50 %; whether it beats one is undecided"),
        (recognition(0.05, 0.1), "does not find the values of a scene, nor which belong together"),
        ([], "No verdict"),
    ],
)
def test_recognition_claims_what_clears_its_level(rows: list[Row], said: str):
    assert said in judge_recognition(rows, "It").sentence


def test_foils_are_judged_by_the_swapped_caption():
    assert "tells a scene's caption" in judge_foils([scored("crossmodal.foil.swapped", 0.8)], "It").sentence
    assert "does not clearly tell" in judge_foils([scored("crossmodal.foil.swapped", 0.51)], "It").sentence
    assert "prefers the wrong one" in judge_foils([scored("crossmodal.foil.swapped", 0.3)], "It").sentence
    assert judge_foils([]).sentence.startswith("No verdict")


def lift(family: str, value: float) -> list[Row]:
    of: dict[str, Any] = {"family": family, "coverage": 0.5, "on": "test"}
    return [
        scored("crossmodal.repair.before.object.swap", 0.2, **of),
        scored("crossmodal.repair.after.object.swap", 0.2 + value, **of),
        scored("crossmodal.repair.lift.object.swap", value, **of),
        scored("crossmodal.repair.cost.caption.before", 0.5, **of),
    ]


def test_a_repair_counts_when_its_lift_clears_zero():
    best = judge_repair([*lift("linear", 0.3), *lift("product", 0.6)], "It").sentence
    assert best.startswith("A product repair of It, fitted on 50 % of objects, tells")
    assert "60 % more of unseen scenes" in best
    assert "No repair that was tried lifts It" in judge_repair(lift("linear", 0.01), "It").sentence
    assert judge_repair([]).sentence.startswith("No verdict")


def test_a_lift_of_few_swaps_is_told_and_not_claimed():
    few = [replace(row, n=40, objects=10) for row in lift("linear", 0.3)]
    verdict = judge_repair(few, "It")
    assert verdict.sentence.startswith("No verdict on repairs of It")
    assert "only 40 such scenes of 10 objects" in verdict.sentence
    assert [tile.answer for tile in verdict.tiles] == ["undecided"]
    nothing = [replace(row, n=12, objects=6, low=None, high=None) for row in lift("linear", 0.3)]
    assert "only 12 unseen scenes have a swap" in judge_repair(nothing, "It").sentence
    for rows in (few, nothing, []):  # what would do
        assert "60 such scenes of 12 objects" in judge_repair(rows, "It").sentence
        assert "--scenes sprites:16x9" in judge_repair(rows, "It").sentence
    assert "A product repair" in judge_repair([*few, *lift("product", 0.1)], "It").sentence


def test_a_lift_stands_beside_its_ceiling():
    of: dict[str, Any] = {"coverage": 0.5, "on": "test"}
    rows = [
        *lift("linear", 0.3), scored("crossmodal.repair.ceiling.probe.object.swap", 0.96, **of),
        scored("crossmodal.repair.ceiling.rule.object.swap", 0.21, family="additive", **of),
        scored("crossmodal.repair.ceiling.rule.object.swap", 0.72, family="object_product", **of),
    ]  # fmt: skip
    assert "50 % in all; probes that learned these objects reach 96 %" in judge_repair(rows, "It").sentence
    nothing = judge_repair([*lift("linear", 0.01), *rows[4:]], "It").sentence
    assert "reach" not in nothing
    assert (
        "learned these objects tell 96 % of the scenes from their swap, and the best rule from values 72 %" in nothing
    )
    page = render_page({"kind": "repair", "name": "it"}, rows, {})
    for word in ("rule: object_product, 50 %", "ceiling: best rule", "0.720", "0.210", "ceiling: probes"):
        assert word in page


@pytest.mark.parametrize(
    ("kind", "rows", "words"),
    [
        ("recognize", recognition(0.99, 0.4),
         ("Does the text find what the scene shows?", "against the swap", "in the scene tower")),
        ("foils", [scored("crossmodal.foil.swapped", 0.8), scored("crossmodal.foil.swapped.ties", 0.1)],
         ("nearer to its caption", "swapped", "0.800", "0.100")),
        ("repair", lift("linear", 0.3), ("What does a repair bring", "linear, 50 %", "0.300")),
    ],
)  # fmt: skip
def test_each_kind_has_its_page(kind: str, rows: list[Row], words: tuple[str, ...]):
    page = render_page({"kind": kind, "name": "<b>it</b>"}, rows, {})
    assert "<b>it</b>" not in page
    for word in words:
        assert word in page


def test_several_runs_share_a_page():
    parts = [
        Run({"kind": "recognize"}, recognition(0.99, 0.4), {}, "First <i>"),
        Run({"kind": "repair"}, lift("linear", 0.3), {}, "Second"),
    ]
    page = render_page({"kind": "paper", "name": "All", "question": "How?"}, [], {}, parts)
    assert "</span> How?</p>" in page
    assert "First &lt;i&gt;: Does the text find what the scene shows?" in page
    assert "Second: What does a repair bring" in page
    assert "First &lt;i&gt;, across its two towers, finds the values" in page
    assert 'id="part0-recognition"' in page
    assert 'href="#part1-repair"' in page
