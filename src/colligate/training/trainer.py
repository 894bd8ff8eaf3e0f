"""A stack of dual encoders in training: the steps, and the state that a killed run goes on from."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from colligate.engine import processor_flags
from colligate.networks.dual import DualEncoder
from colligate.networks.stacked import Block
from colligate.records import WorkError, tensors_hash, write_atomic
from colligate.training.config import TrainConfig
from colligate.training.data import ObjectPool, scene_draw
from colligate.training.objective import Objective
from colligate.training.optimizers import Average, Optimizers
from colligate.training.penalty import Distance
from colligate.training.queries import query_choice, value_targets
from colligate.training.recognition import PartScenes, part_scenes, quick_look

STATE_SCHEMA = 3
LOOK = 512
"""Scenes of a part that are scored along the way."""
_STACKABLE = {"seed", "coverage", "runs", "force", "device"}


class DivergedError(WorkError):
    """The loss of every member is no longer a number."""


class Best(NamedTuple):
    """The step whose validation recognition was highest, and what it was."""

    step: int
    score: float


class Trainer:
    """Train members of one shape in one pass; each is what it would be alone.

    A member whose loss is no longer a number is stopped where it was best, and the others go on.

    Args:
        configs: one for each member; they may differ in seed and coverage only.
        device: where it runs.

    Attributes:
        diverged: member -> the step at which its loss was no number; nothing of the others.

    Raises:
        ValueError: members that differ in more, or an impossible division of objects.
    """

    def __init__(self, configs: Sequence[TrainConfig], device: torch.device) -> None:
        self.configs, self.config, self.device = list(configs), configs[0], device
        for other in configs:
            same = {name: getattr(self.config, name) for name in _STACKABLE}
            if replace(other, **same) != self.config:
                raise ValueError("Members of a stack may differ in their seed and coverage only; train them apart.")
        seeds = [config.seed for config in configs]
        self.divisions = [config.divide() for config in configs]
        space = self.config.space
        self.pools = [ObjectPool(space, division["fit"].to(device)) for division in self.divisions]
        self.parts = [_look_parts(config, d) for config, d in zip(configs, self.divisions, strict=True)]
        self.model = DualEncoder(space, self.config.slots, self.config.shape, seeds).to(device)
        kind = self.config.penalty
        self.distance = None
        if kind != "none":
            self.distance = Distance(kind, space, self.config.slots, self.config.dim, seeds).to(device)
        self.generators = [torch.Generator(device).manual_seed(2**32 + seed) for seed in seeds]
        self.precision = chosen_precision(self.config.precision, device)
        self.optimizers = Optimizers(
            [self.model] if self.distance is None else [self.model, self.distance],
            self.config.optimizer, rate=self.config.rate, matrix_rate=self.config.matrix_rate, decay=self.config.decay,
            momentum=self.config.momentum, dtype=torch.bfloat16 if self.precision == "bfloat16" else None,
        )  # fmt: skip
        self.average = Average(self.model, self.config.average)
        if self.config.compile:
            for layer in self.model.modules():
                if isinstance(layer, Block):
                    layer.compile()
        self.objective = Objective(self.config.loss)
        self.value_objective = Objective("scene-to-query" if self.config.loss == "both" else self.config.loss)
        self.draw = scene_draw(self.config.scenes)
        self.choice = query_choice(
            self.config.queries, held_out=self.config.held_out_negatives,
            objects=max(len(pool.seen) for pool in self.pools),
        )  # fmt: skip
        self.step = 0
        self.curves: list[list[dict[str, float]]] = [[] for _ in configs]
        self.best = [Best(-1, -1.0) for _ in configs]
        self.kept = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.diverged: dict[int, int] = {}
        self._first_bad = torch.full((len(configs),), -1, device=device)
        self._sum = torch.zeros(len(configs), device=device)
        self._since = 0
        self._advanced = False

    def loss(self) -> Float[Tensor, " member"]:
        """The loss of the next batch, for each member."""
        batch = self.config.plan.draw(self.draw, self.pools, self.generators)
        space, scale = self.config.space, self.model.log_scale.exp().clamp(max=self.config.warmest)
        values = space.object_values(batch.objects)
        targets = self.choice.choose(self.pools, batch.objects, self.generators)
        with self._autocast():
            parts, start = [], 0
            for num, count in batch.groups:
                parts.append(self.model.scene.encode(values[:, start : start + num, :count]))
                start += num
            asked, by_value = self.model.queries(targets.ids)
        scenes, asked = self.model.compared(torch.cat(parts, 1)), self.model.compared(asked)
        loss = self.objective(scenes, asked, targets, scale, self.model.bias)
        if self.config.value_loss:
            true = value_targets(space, values)
            by_value = self.model.compared(by_value)
            of_values = self.value_objective(scenes, by_value, true, scale, self.model.bias)
            loss = loss + self.config.value_loss * of_values
        if self.distance is not None:
            loss = loss + self.config.penalty_weight * self.distance(scenes, values)
        return loss

    def advance(self) -> None:
        """One step.

        Raises:
            DivergedError: no member is left whose loss is a number.
            WorkError: the layers can't be compiled here.
        """
        try:
            loss = self.loss()
            self.optimizers.zero_grad()
            loss.sum().backward()
        except RuntimeError as error:
            if not self.config.compile or self._advanced:
                raise
            said = str(error).strip().split("\n")[0]
            raise WorkError(f"torch.compile can't compile the layers here ({said}); leave --compile out.") from error
        self._advanced = True
        if self.config.clip:
            _clip(self.optimizers.parameters, self.config.clip)
        self._still()
        bad = ~torch.isfinite(loss.detach()) & (self._first_bad < 0)
        self._first_bad = torch.where(bad, self.step + 1, self._first_bad)
        self._sum += loss.detach()
        self._since += 1
        self.optimizers.step(self.config.rate_at(self.step) / self.config.rate)
        self.average.follow(self.step)
        self.step += 1
        if self.step % 50 == 0 or self.step == self.config.steps:
            self._check()

    def _check(self) -> None:
        """Stop members whose loss is no number."""
        found = {m: step for m, step in enumerate(self._first_bad.tolist()) if step >= 0 and m not in self.diverged}
        if found:
            self.diverged |= found
            self._rest(list(found))
        if len(self.diverged) == len(self.configs):
            raise DivergedError(self.why(0))

    def why(self, member: int) -> str:
        """What happened to a member that diverged, and what may help: a sentence or two.

        Raises:
            KeyError: it didn't.
        """
        good = self.best[member].step
        kept = f"the best checkpoint before it is of step {good}" if good >= 0 else "no checkpoint was kept before"
        return (
            f"The loss is no number at step {self.diverged[member]}; {kept}. Lower the rate (now "
            f"{self.config.rate:g}), or clip gradients (clip=1)."
        )

    @torch.no_grad()
    def _rest(self, members: Sequence[int]) -> None:
        """Put members back to where they were best: nothing that is no number is left to be looked at or saved."""
        weights = [*self.model.named_parameters()]
        for m in members:
            for name, weight in weights:
                weight[m] = self.kept[name][m]
            for average, (_, weight) in zip(self.average.held, weights, strict=False):
                average[m] = weight[m]
            for moment in self.optimizers.state().values():
                if moment.ndim and len(moment) == len(self.configs):
                    moment[m] = 0
            if self.distance is not None:
                for weight in self.distance.parameters():
                    weight[m] = torch.nan_to_num(weight[m], nan=0.0, posinf=0.0, neginf=0.0)
            self._sum[m] = 0
        self._still()

    def _still(self) -> None:
        """Take the gradients of stopped members away, so that they stay where they are."""
        for m in self.diverged:
            for parameter in self.optimizers.parameters:
                if parameter.grad is not None:
                    parameter.grad[m] = 0

    def look(self) -> list[dict[str, float]]:
        """Recognition of every member now; the best by validation is kept."""
        self._check()
        with self.average.shown():
            found = quick_look(self.model, self.parts)
            self._keep(found)
        self._sum.zero_()
        self._since = 0
        return found

    def _keep(self, found: Sequence[dict[str, float]]) -> None:
        """Take down what was seen, and the weights where validation was highest."""
        for m, of_member in enumerate(found):
            if m in self.diverged:
                continue
            seen = [of_member[f"validation.{way}"] for way in ("table", "among", "swaps")]
            real = [value for value in seen if value == value]  # no swaps: not a number
            score = sum(real) / len(real)
            if score >= self.best[m].score:
                self.best[m] = Best(self.step, score)
                for name, value in self.model.state_dict().items():
                    self.kept[name][m] = value[m]
            entry = {"step": float(self.step), "loss": float(self._sum[m]) / max(1, self._since), **of_member}
            self.curves[m].append({k: v for k, v in entry.items() if v == v})

    def chosen(self, member: int) -> DualEncoder:
        """The member at its best step."""
        self_state = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.kept)
        alone = self.model.select(member)
        self.model.load_state_dict(self_state)
        return alone

    def save(self, path: Path, key: str) -> None:
        """Write the whole state as one file: weights, moments, generators, curve.

        Raises:
            OSError: the disk is full; the state that was there still is.
            DivergedError: no member is left whose loss is a number.
        """
        from safetensors.torch import save

        self._check()  # a member that is no number is stopped before it is written
        tensors = {f"model.{k}": v for k, v in self._owned().items()}
        tensors |= {f"kept.{k}": v for k, v in self.kept.items() if k in self._owned()}
        if self.distance is not None:
            tensors |= {f"distance.{k}": v for k, v in self.distance.state_dict().items()}
        tensors |= {f"moment.{name}": value for name, value in self.optimizers.state().items()}
        tensors |= {f"average.{i}": value for i, value in enumerate(self.average.held)}
        tensors |= {f"generator.{m}": g.get_state() for m, g in enumerate(self.generators)}
        tensors |= {"sum": self._sum}
        facts = {
            "schema": STATE_SCHEMA, "key": key, "step": self.step, "since": self._since, "curves": self.curves,
            "best": [list(best) for best in self.best], "threads": torch.get_num_threads(),
            "diverged": sorted(self.diverged.items()),
        }  # fmt: skip
        held = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        told = json.dumps(facts)
        write_atomic(path, save(held, {"state": told, "sha256": tensors_hash(held, told)}))

    def resume(self, path: Path, key: str) -> None:
        """Go on from a state.

        Raises:
            ValueError: a state of another layout or of other settings.
            WorkError: it is damaged.
        """
        from safetensors import safe_open

        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                held: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts: dict[str, Any] = json.loads(metadata["state"])
            whole = metadata["sha256"] == tensors_hash(held, metadata["state"])
        except Exception as error:
            raise WorkError(f"{path} is no state of a training run ({error}); delete it to start anew.") from None
        if not whole:
            raise WorkError(f"{path} is damaged (its checksum differs); delete it to start anew.")
        tensors = {name: value.to(self.device) for name, value in held.items()}
        if facts.get("schema") != STATE_SCHEMA or facts.get("key") != key:
            raise ValueError(f"{path} is the state of another run or version; delete it to start anew.")
        take = lambda prefix: {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}  # noqa: E731
        self.model.load_state_dict(take("model."), strict=False)
        self.kept = {**self.kept, **take("kept.")}
        for name in set(self.kept) - set(self._owned()):  # a shared encoder's second name
            self.kept[name] = self.kept["scene." + name.removeprefix("query.")]
        if self.distance is not None:
            self.distance.load_state_dict(take("distance."))
        self.optimizers.load_state(take("moment."))
        self.average.held = [tensors[f"average.{i}"] for i in range(len(take("average.")))]
        for m, generator in enumerate(self.generators):
            generator.set_state(tensors[f"generator.{m}"].cpu())
        self._sum = tensors["sum"]
        torch.set_num_threads(facts["threads"])  # sums are grouped by thread: another number would round otherwise
        self.step, self._since, self.curves = facts["step"], facts["since"], facts["curves"]
        self.best = [Best(int(step), float(score)) for step, score in facts["best"]]
        self.diverged = {int(member): int(step) for member, step in facts["diverged"]}
        self._first_bad = torch.tensor([self.diverged.get(m, -1) for m in range(len(self.configs))], device=self.device)

    def _owned(self) -> dict[str, Tensor]:
        """Weights by name, those of a shared encoder once."""
        shared = self.model.query is self.model.scene
        return {k: v for k, v in self.model.state_dict().items() if not (shared and k.startswith("query."))}

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)


def _look_parts(config: TrainConfig, division: dict[str, Tensor]) -> dict[str, PartScenes]:
    return {
        name: part_scenes(config.space, division[part], slots=config.slots, budget=LOOK, seed=config.seed)
        for name, part in (("seen", "fit"), ("validation", "validation"), ("unseen", "test"))
        if len(division[part])
    }


def _clip(parameters: Sequence[Tensor], longest: float) -> None:
    """Shorten each member's gradient to a length."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    lengths = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients])
    factor = (longest / torch.linalg.vector_norm(lengths, dim=0).clamp(min=1e-12)).clamp(max=1.0)
    for g in gradients:
        g.mul_(factor.reshape(-1, *[1] * (g.ndim - 1)))


def chosen_precision(asked: str, device: torch.device) -> str:
    """float32 or bfloat16: `auto` takes bfloat16 where the hardware has units for it.

    Example:
        >>> chosen_precision("float32", torch.device("cpu"))
        'float32'
    """
    if asked != "auto":
        return asked
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.get_device_capability(device)[0] >= 8 else "float32"
    return "bfloat16" if "amx_bf16" in processor_flags() else "float32"
