"""Members alone and together, resuming, divergence, choosing, rates and the penalty in the loss."""

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
import torch

from colligate.records import WorkError
from colligate.training import trainer as trainer_module
from colligate.training.config import TrainConfig
from colligate.training.presets import PaperConfig, PicturesConfig
from colligate.training.trainer import DivergedError, Trainer, chosen_precision

CPU = torch.device("cpu")
TINY = TrainConfig(
    values=6, coverage=0.5, width=16, heads=2, dim=8, batch=16, steps=8, warmup=4, evaluate_every=4,
    checkpoint_every=4, precision="float32",
)  # fmt: skip


def run(trainer, until=None):
    while trainer.step < (until or trainer.config.steps):
        trainer.advance()
        if trainer.step % trainer.config.evaluate_every == 0:
            trainer.look()
    return trainer


def in_double(configs):
    """A trainer in float64: AdamW turns the rounding of a gradient that should be zero (a key's bias) into a step."""
    trainer = Trainer(configs, CPU)
    for module in (trainer.model, trainer.distance):
        if module is not None:
            module.double()
    return trainer


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"encoder": "grouped-tokens", "loss": "both", "queries": "swaps", "clip": 1.0},
        {"encoder": "product", "loss": "sigmoid", "queries": "random:5", "similarity": "dot", "temperature": 1.0},
        {"encoder": "bag", "penalty": "object-products", "towers": "separate", "scenes": "random"},
        {"penalty": "additive", "towers": "shared", "query_layers": 2, "slots": 3},
    ],
    ids=["default", "grouped", "product", "bag", "shared"],
)
def test_stacked_members_are_single_runs(changes):
    config = replace(TINY, **changes)
    members = [replace(config, seed=seed) for seed in (0, 4)]
    together = run(in_double(members))
    for m, member in enumerate(members):
        alone = run(in_double([member]))
        for name, value in alone.model.state_dict().items():
            assert torch.allclose(value[0], together.model.state_dict()[name][m], atol=1e-9), name
        for one, other in zip(alone.curves[0], together.curves[m], strict=True):
            assert one == pytest.approx(other, abs=1e-5)


def test_coverages_can_be_stacked():
    members = [replace(TINY, coverage=coverage) for coverage in (0.4, 0.6)]
    together = run(Trainer(members, CPU))
    for m, member in enumerate(members):
        alone = run(Trainer([member], CPU))
        assert alone.curves[0][-1]["loss"] == pytest.approx(together.curves[m][-1]["loss"], abs=1e-4)


def test_members_that_differ_in_more_are_refused():
    with pytest.raises(ValueError, match="seed and coverage only"):
        Trainer([TINY, replace(TINY, width=32)], CPU)


@pytest.mark.parametrize("changes", [{}, {"towers": "shared", "query_layers": 2}, {"penalty": "object-products"}])
def test_going_on_from_a_state_is_the_same_to_the_bit(tmp_path, changes):
    configs = [replace(TINY, seed=seed, **changes) for seed in (0, 1)]
    whole = run(Trainer(configs, CPU))
    first = run(Trainer(configs, CPU), until=6)  # between two looks: what was summed so far is kept too
    first.save(tmp_path / "state", "key")
    second = Trainer(configs, CPU)
    second.resume(tmp_path / "state", "key")
    run(second)
    assert second.curves == whole.curves
    assert second.best == whole.best
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name])
        assert torch.equal(whole.kept[name], second.kept[name])


def test_a_state_of_another_run_or_none_is_refused(tmp_path):
    trainer = Trainer([TINY], CPU)
    trainer.save(tmp_path / "state", "key")
    with pytest.raises(ValueError, match="another run or version"):
        trainer.resume(tmp_path / "state", "other")
    content = (tmp_path / "state").read_bytes()
    for place in (len(content) - 1, len(content) // 2):
        (tmp_path / "state").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(WorkError, match=r"state is damaged .*; delete it to start anew"):
            trainer.resume(tmp_path / "state", "key")
    (tmp_path / "state").write_bytes(b"nothing")
    with pytest.raises(WorkError, match="is no state of a training run"):
        trainer.resume(tmp_path / "state", "key")


def test_a_full_disk_leaves_the_state_that_was_there(tmp_path, monkeypatch):
    trainer = run(Trainer([TINY], CPU), until=2)
    trainer.save(tmp_path / "state", "key")
    before = (tmp_path / "state").read_bytes()

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trainer_module, "write_atomic", full)
    with pytest.raises(OSError, match="No space"):
        trainer.save(tmp_path / "state", "key")
    assert (tmp_path / "state").read_bytes() == before


def test_a_loss_that_is_no_number_stops_with_the_step():
    trainer = Trainer([replace(TINY, steps=100, evaluate_every=10)], CPU)
    run(trainer, until=20)
    with torch.no_grad():
        scene: Any = trainer.model.scene
        scene.head.weight[0, 0, 0] = float("nan")
    with pytest.raises(
        DivergedError, match=r"no number at step 21; the best checkpoint before it is of step (10|20)\."
    ):
        run(trainer)
    assert trainer.step == 30  # found at the next look
    for value in trainer.kept.values():
        assert bool(torch.isfinite(value).all())


def test_the_best_step_is_kept():
    trainer = run(Trainer([TINY], CPU), until=4)
    with trainer.average.shown():
        at_four = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.best[0] = trainer.best[0]._replace(score=2.0)  # nothing later can be better
    run(trainer)
    assert trainer.best[0].step == 4
    chosen = trainer.chosen(0)
    for name, value in at_four.items():
        assert torch.equal(chosen.state_dict()[name], value)
    assert any(not torch.equal(trainer.model.state_dict()[name], value) for name, value in at_four.items())


def test_gradients_are_clipped_member_by_member():
    short = replace(TINY, clip=1e-3)
    trainer = Trainer([short, replace(short, seed=1)], CPU)
    trainer.advance()
    gradients = [p.grad for p in trainer.model.parameters() if p.grad is not None]
    squares = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0)
    assert squares.sqrt().tolist() == pytest.approx([1e-3, 1e-3], rel=1e-3)


def test_rates_rise_and_fall():
    config = TrainConfig(rate=1.0, warmup=10, steps=30)
    rates = [config.rate_at(step) for step in range(31)]
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert rates[10:] == pytest.approx([1 - i / 20 for i in range(21)])
    cosine = replace(config, schedule="cosine")
    assert cosine.rate_at(20) == pytest.approx(0.5)
    assert replace(config, schedule="constant").rate_at(29) == 1.0


def test_only_a_warm_up_that_was_asked_for_must_fit():
    short = TrainConfig(rate=1.0, steps=30)
    assert [short.rate_at(step) for step in (0, 6, 7)] == pytest.approx([1 / 7, 1.0, 1.0])
    assert TrainConfig(rate=1.0, steps=800).rate_at(24) == 0.5
    assert PicturesConfig(rate=1.0).rate_at(49) == PicturesConfig(rate=1.0, steps=40).rate_at(4) == 0.5
    assert PaperConfig(rate=1.0).rate_at(2_499) == 0.5
    with pytest.raises(ValueError, match="warm-up of 50 steps must fit into 30 steps"):
        TrainConfig(steps=30, warmup=50)


def test_held_out_objects_are_in_no_batch():
    trainer = Trainer([replace(TINY, queries="random:10")], CPU)
    held = set(torch.cat([trainer.divisions[0]["validation"], trainer.divisions[0]["test"]]).tolist())
    for _ in range(20):
        batch = trainer.config.plan.draw(trainer.draw, trainer.pools, trainer.generators)
        targets = trainer.choice.choose(trainer.pools, batch.objects, trainer.generators)
        assert not held & set(batch.objects.flatten().tolist())
        assert not held & set(targets.ids.flatten().tolist())


@pytest.mark.parametrize("hold_out", ["swaps", "objects"])
def test_a_coverage_that_leaves_a_value_unseen_is_refused(hold_out):
    with pytest.raises(ValueError, match=r"coverage|unseen|never shows"):
        Trainer([replace(TINY, coverage=0.1, hold_out=hold_out)], CPU)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"values": 1}, "at least 2 concepts of 2 values; got 2 of 1"),
        ({"concepts": 1}, "at least 2 concepts"),
        ({"steps": 0}, "start at 1"),
        ({"warmup": 13}, "must fit into 8 steps"),
        ({"slots": 1}, "Swaps need two objects"),
        ({"scenes": "quadruples", "batch": 17, "fewer": 0.0}, "has an odd one"),
        ({"heads": 3}, "multiple"),
        ({"queries": "some"}, "take auto, table"),
        ({"scenes": "some"}, "take random"),
        ({"temperature": 0.0}, "must be positive"),
    ],
)
def test_impossible_settings_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(TINY, **changes)


def test_the_papers_settings_have_the_papers_size():
    from colligate.networks.dual import build_encoder

    shape = PaperConfig().shape
    scene = build_encoder(PaperConfig().space, 2, shape.scene, [0])
    # 7.92M, less the weights of layer norms, which the maps behind them absorb
    assert sum(p.numel() for p in scene.parameters()) == pytest.approx(7.92e6, rel=0.01)


def test_precision_follows_the_hardware_or_the_user():
    assert chosen_precision("bfloat16", CPU) == "bfloat16"
    assert chosen_precision("auto", CPU) in {"float32", "bfloat16"}


def test_bfloat16_keeps_scores_in_float32():
    trainer = run(Trainer([replace(TINY, precision="bfloat16")], CPU), until=4)
    assert trainer.loss().dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())


KILLED = """
import sys, torch
from pathlib import Path
from colligate.training.config import TrainConfig
from colligate.training.loop import train
torch.set_num_threads(1)
config = TrainConfig(values=6, coverage=0.5, width=16, heads=2, dim=8, batch=16, steps=int(sys.argv[2]), warmup=4,
    evaluate_every=10, checkpoint_every=10, precision="float32", budget=100, runs=Path(sys.argv[1]))
train(config, log=lambda step, _: print(step, flush=True))
"""


@pytest.mark.long
def test_a_run_killed_outright_goes_on_to_the_same_curve(tmp_path):
    import json

    def start(runs):
        command = [sys.executable, "-c", KILLED, str(tmp_path / runs), "300"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    whole = start("whole")
    whole.communicate(timeout=300)
    killed = start("killed")
    assert killed.stdout is not None
    for line in killed.stdout:
        if int(line) >= 120:
            break
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    time.sleep(0.1)
    states = list((tmp_path / "killed").glob("train-*/state.safetensors"))
    assert len(states) == 1
    steps = start("killed").communicate(timeout=300)[0].split()
    assert int(steps[0]) > 100  # it went on, it didn't start anew
    curves = [json.loads(next((tmp_path / of).glob("train-*/figures.json")).read_text()) for of in ("whole", "killed")]
    assert curves[0] == curves[1]


def test_the_layers_are_what_is_compiled(monkeypatch):
    compiled = []

    def noted(call: Any, **_: Any) -> Any:  # the type checks of the tests can't be compiled
        compiled.append(call)
        return call

    monkeypatch.setattr(torch, "compile", noted)
    plain = run(Trainer([TINY], CPU), until=3)
    assert not compiled
    layered = run(Trainer([replace(TINY, compile=True)], CPU), until=3)
    assert len(compiled) == TINY.layers
    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(layered.model.state_dict()[name], value)


def test_layers_that_cant_be_compiled_are_one_sentence(monkeypatch):
    def broken(call: Any, **given: Any) -> Any:
        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("no working C++ compiler\nand much more")

        return fail

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(WorkError, match=r"\(no working C\+\+ compiler\); leave --compile out\.$"):
        Trainer([replace(TINY, compile=True)], CPU).advance()
