"""Repair by new weights: both towers of a small image-text model trained on, with swap negatives, on seen objects."""

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import normalize

from colligate.choices import PenaltyKind
from colligate.crossmodal.contrast import Contrast
from colligate.crossmodal.queries import QueryTemplates, QueryVectors, query_worlds
from colligate.crossmodal.repair_data import RepairData, repair_data
from colligate.embedders.embedding import embed
from colligate.embedders.trained_pair import TrainedPairTower, pair_towers
from colligate.embeddings import Embeddings
from colligate.engine import Report
from colligate.networks.checkpoint import load_checkpoint, save_checkpoint
from colligate.networks.dual import DualEncoder
from colligate.networks.pictures import PictureEncoder
from colligate.networks.words import CaptionEncoder
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split, split_by_objects
from colligate.scenes.worlds import World
from colligate.training.optimizers import Optimizers
from colligate.training.penalty import Distance
from colligate.training.trainer import chosen_precision

_BLOCK = 512
Words = tuple[int, ...]
"""A text as numbers of words."""


@dataclass(frozen=True, kw_only=True)
class FineTuneSettings:
    """How both towers are trained on."""

    steps: int = 500
    """Steps; the kept one is chosen on validation objects, the start among them."""
    batch: int = 256
    """Scenes in a step, each with its caption and its swap's."""
    rate: float = 2e-3
    """Learning rate after the warm-up, falling to zero linearly."""
    warmup: int = 50
    """Steps in which it rises."""
    decay: float = 0.1
    """Weight decay of matrices."""
    shift: int = 1
    """Most pixels by which whole pictures are moved, each step anew; edges are repeated."""
    penalty: PenaltyKind = "none"
    """Pull the picture tower towards a simple binding function: object-products, or additive (which can't bind)."""
    penalty_weight: float = 0.1
    """Weight of the penalty."""
    every: int = 50
    """Steps between looks at the validation scenes."""
    least: float = 0.02
    """Least gain on validation scenes for which new weights are kept at all; below it, chance may have chosen."""

    def __post_init__(self) -> None:
        if min(self.steps, self.every, self.warmup) < 1 or self.batch < 2 or self.rate <= 0 or self.shift < 0:
            raise ValueError(
                "Fine-tuning takes at least one step, a batch of at least 2, a rate above 0 and shift >= 0."
            )


@dataclass(frozen=True, eq=False)
class FineTuner:
    """Train both towers on pictures and captions of seen objects; a `Repairer`, beside the maps of frozen towers.

        loss = that of `Contrast` over both towers, and back  +  weight * (1 - R2 of the pictures' nearest simple rule)

    Each step shows drawn scenes of fit objects and, where the world has them, the swaps of half of these.

    Pictures and texts are the world's own, so a model may be tuned to pictures of another kind than it was trained on.
    Unlike a map, new weights may change what the picture tower sees; what predicts that tower as it was is no ceiling.

    Attributes:
        network: where it starts from; it is left as it is.
        world: scenes with pictures and a caption template.
        templates: wording of the queries.
        settings: how.
        seed: of batches, swaps and looks.
        report: told about progress.

    Paper: arXiv:2605.31503 (low complexity as a penalty: named there as future work).
    Source: LABCLIP, arXiv:2502.03566 (swap negatives).
    """

    network: DualEncoder
    world: World
    templates: QueryTemplates = field(default_factory=QueryTemplates)
    settings: FineTuneSettings = field(default_factory=FineTuneSettings)
    seed: int = 0
    report: Report | None = None

    @property
    def kind(self) -> Literal["finetune"]:
        """As in the `family` column."""
        return "finetune"

    def fit(self, data: RepairData, split: Split) -> "FineTuned":
        """Train on fit objects, choose the step on validation objects.

        Raises:
            ValueError: the split holds no objects out, no swap stays within the fit objects, or a word of the world was
                never learned.
        """
        return _Tuning(self, data, split).run()


@dataclass(frozen=True, eq=False)
class FineTuned:
    """A model after fine-tuning.

    Attributes:
        network: with the weights of the chosen step.
        tuner: what made it.
        chosen: the step, in words; "none" for the weights as they were.
        validation: score of the chosen step on validation scenes, and before.
        curve: score of every step that was looked at.
    """

    network: DualEncoder
    tuner: FineTuner
    chosen: str
    validation: tuple[float, float]
    curve: Mapping[int, float]

    @property
    def towers(self) -> dict[str, TrainedPairTower]:
        """Both towers."""
        digest = hashlib.sha256()
        for value in self.network.state_dict().values():
            digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return pair_towers(self.network, digest.hexdigest())

    def applied(self, data: RepairData) -> RepairData:
        """The same scenes and texts, embedded anew by both towers."""
        towers = self.towers
        return repair_data(towers["picture"], towers["text"], self.tuner.world, self.tuner.templates, foils=data.foils)

    def shown(self, scenes: Embeddings) -> Embeddings:
        """The world's scenes of one object, embedded anew."""
        world = self.tuner.world
        part = world.select(world.scenes.counts == 1)
        if not torch.equal(part.scenes.ids, scenes.scenes.ids):
            raise ValueError("Only the world's own scenes of one object can be shown anew; give those.")
        return embed(self.towers["picture"], part)

    def save(self, folder: Path, embedder: str, split: Split, told: Mapping[str, object]) -> None:
        """Write a checkpoint that `run:FOLDER` and `repaired:FOLDER` read.

        Args:
            folder: where to.
            embedder: what it was tuned from.
            split: whose fit objects it was tuned on.
            told: what else the checkpoint should say.
        """
        pair = TrainedPair.of(embedder)
        tuned = {
            **told, "from": embedder, "objects": len((split.objects or {"fit": ()})["fit"]),
            "settings": asdict(self.tuner.settings),
        }  # fmt: skip
        save_checkpoint(folder, self.network, {**pair.facts, "finetuned": tuned})


class _Tuning:
    """A network in training, and its state."""

    def __init__(self, tuner: FineTuner, data: RepairData, split: Split) -> None:
        self.tuner, self.data, self.split = tuner, data, split
        self.contrast = Contrast(data, split, tuner.seed)
        self.network = copy.deepcopy(tuner.network).requires_grad_(True)
        self.reader = cast("PictureEncoder", self.network.scene)
        self.teller = cast("CaptionEncoder", self.network.query)
        several = tuner.world.scenes.counts > 1
        part = tuner.world if bool(several.all()) else tuner.world.select(several)
        self.rows = torch.cat([split.fit, self.contrast.looked_at])  # no other picture or caption is ever read
        self.place = torch.full((len(part),), -1)
        self.place[self.rows] = torch.arange(len(self.rows))
        self.pixels = _pixels(tuner.network, part, self.rows)
        # Only foils of fit objects are ever said; the others are not even put into words.
        foiled = self.contrast.foiled(split.fit)
        self.captions = self._said(part, data.scenes, split.fit)
        self.foils = self._said(part, data.foils, foiled)
        asked = query_worlds(tuner.world, tuner.templates)
        self.queries = [tuple(self.teller.tokenize(text)) for of in asked for wording in of for text in wording.texts()]
        self.wordings = [len(of) for of in asked]
        self.swaps = _rows_of(data.foils, data.scenes, split.fit)
        self.precision = chosen_precision("auto", self.network.log_scale.device)

    def _said(self, world: World, scenes: Scenes, rows: Int[Tensor, " row"]) -> dict[int, tuple[Words, Words]]:
        """For each row, its caption in words' numbers, and the one that mentions the objects the other way round.

        Where captions say who stands where, only one order is true.
        """
        placed = isinstance(world.captions, CaptionTemplate) and "{1." in world.captions.pair
        orders = (scenes, scenes if placed else scenes.twins())
        one, other = (World("said", of[rows], world.captions).texts() for of in orders)
        read = [tuple(tuple(self.teller.tokenize(text)) for text in both) for both in zip(one, other, strict=True)]
        return dict(zip(rows.tolist(), cast("list[tuple[Words, Words]]", read), strict=True))

    def run(self) -> FineTuned:
        """All steps, and the best."""
        settings, network = self.tuner.settings, self.network
        modules: list[torch.nn.Module] = [network]
        distance = None
        if settings.penalty != "none":
            dim = network.shape.scene.dim
            distance = Distance(settings.penalty, self.data.space, self.data.scenes.slots, dim, [self.tuner.seed])
            modules.append(distance.to(network.log_scale.device))
        optimizers = Optimizers(
            modules, "adamw", rate=settings.rate, matrix_rate=1.0, decay=settings.decay, momentum=0.98, dtype=None
        )
        generator = torch.Generator().manual_seed(self.tuner.seed)
        before = self.score()
        curve, best, kept = {0: before}, (0, -1.0), _state(network)
        for step in range(1, settings.steps + 1):
            loss = self.loss(self.draw(generator), generator, distance)
            optimizers.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(optimizers.parameters, 1.0)
            left = (settings.steps + 1 - step) / max(1, settings.steps + 1 - settings.warmup)
            optimizers.step(min(step / settings.warmup, left))
            if step % settings.every == 0 or step == settings.steps:
                curve[step] = self.score()
                if curve[step] >= best[1]:
                    best, kept = (step, curve[step]), _state(network)
            if self.tuner.report is not None:
                self.tuner.report("fine-tuning", step, settings.steps)
        if best[1] <= before + settings.least:
            return FineTuned(copy.deepcopy(self.tuner.network), self.tuner, "none", (before, before), curve)
        network.load_state_dict(kept)
        network.eval().requires_grad_(False)
        return FineTuned(network, self.tuner, f"step {best[0]}", (best[1], before), curve)

    def draw(self, generator: torch.Generator) -> Int[Tensor, " row"]:
        """Fit scenes of a step: two thirds drawn, and the swaps of half of these where the world shows them."""
        fit, third = self.split.fit, max(1, self.tuner.settings.batch // 3)
        drawn = fit[torch.randperm(len(fit), generator=generator)[: 2 * third]]
        swaps = self.swaps[drawn[:third]]
        return torch.cat([drawn, swaps[swaps >= 0]]).unique()

    def loss(
        self, rows: Int[Tensor, " row"], generator: torch.Generator, distance: Distance | None = None
    ) -> Float[Tensor, ""]:
        """The loss of a batch of fit scenes, moved a little and said in one of both orders."""
        foiled, turn = self.contrast.foiled(rows), int(torch.randint(2, (), generator=generator))
        texts = [*(self.captions[i][turn] for i in rows.tolist()), *(self.foils[i][turn] for i in foiled.tolist())]
        once = {text: number for number, text in enumerate(dict.fromkeys(texts))}  # a swap's caption is often there
        network, device = self.network, self.network.log_scale.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            pixels = shifted(self.pixels[self.place[rows]], self.tuner.settings.shift, generator)
            shown = self.reader.encode_pixels(pixels[None].to(device))
            told = self.teller.encode_texts([*once, *self.queries])
        scenes, told = network.compared(shown), network.compared(told)[0]
        said = told[torch.tensor([once[text] for text in texts], device=device)]
        scale = network.log_scale.exp().clamp(max=100.0)[0, 0, 0]
        said = torch.cat([said, *self._asked(told[len(once) :])])
        loss = self.contrast.loss(rows, scenes[0], said, scale)
        loss = loss + self.contrast.back(rows, scenes[0], said[: len(rows)], scale)
        if distance is not None:
            loss = loss + self.tuner.settings.penalty_weight * distance(scenes, self.data.scenes.values[rows][None])[0]
        return loss

    def _asked(self, units: Float[Tensor, "text dim"]) -> list[Float[Tensor, "_ dim"]]:
        """Unit vectors of values, concept by concept, and of objects, from those of all wordings."""
        space, start, found = self.data.space, 0, list[Tensor]()
        for size, wordings in zip((*space.sizes, space.num_objects), self.wordings, strict=True):
            of = units[start : start + size * wordings].unflatten(0, (wordings, size))
            found.append(normalize(of.mean(0), dim=1))
            start += size * wordings
        return found

    @torch.no_grad()
    def score(self) -> float:
        """How well validation objects are recognised now."""
        self.network.eval()
        rows, device = self.contrast.looked_at, self.network.log_scale.device
        pictures = self.pixels[self.place[rows]].to(device)
        found = [self.reader.encode_pixels(some[None])[0].float().cpu() for some in pictures.split(_BLOCK)]
        vectors = torch.zeros(len(self.data.scenes), self.network.shape.scene.dim)
        vectors[rows] = torch.cat(found)
        told = self.network.compared(self.teller.encode_texts(self.queries))[0].cpu()
        *concepts, objects = self._asked(told)
        queries = QueryVectors(self.data.space, tuple(concepts), objects)
        self.network.train()
        return self.contrast.score(replace(self.data, vectors=vectors, queries=queries))


def shifted(
    pixels: UInt8[Tensor, "row 3 high wide"], most: int, generator: torch.Generator
) -> UInt8[Tensor, "row 3 high wide"]:
    """Pictures moved by whole pixels, each by its own draw, their edges repeated.

    Example:
        >>> row = torch.arange(5, dtype=torch.uint8).expand(1, 3, 5, 5)
        >>> {tuple(shifted(row, 1, torch.Generator().manual_seed(seed))[0, 0, 0].tolist()) for seed in range(20)} == {
        ...     (0, 1, 2, 3, 4), (1, 2, 3, 4, 4), (0, 0, 1, 2, 3)}
        True
    """
    num, _, high, wide = pixels.shape
    moves = torch.randint(-most, most + 1, (2, num, 1), generator=generator)
    down = (torch.arange(high) + moves[0]).clamp(0, high - 1)
    right = (torch.arange(wide) + moves[1]).clamp(0, wide - 1)
    rows = torch.arange(num)[:, None, None]
    return pixels.permute(0, 2, 3, 1)[rows, down[:, :, None], right[:, None]].permute(0, 3, 1, 2)


def _state(network: DualEncoder) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def _rows_of(wanted: Scenes, scenes: Scenes, among: Int[Tensor, " row"]) -> Int[Tensor, " scene"]:
    """For each scene wanted, the row among some that shows it, its objects in the same places; -1 if none does."""
    ids, order = scenes.ids[among].sort()
    place = torch.searchsorted(ids, wanted.ids).clamp(max=len(ids) - 1)
    return torch.where(ids[place] == wanted.ids, among[order[place]], -1)


def _pixels(network: DualEncoder, world: World, rows: Int[Tensor, " row"]) -> UInt8[Tensor, "row 3 high wide"]:
    """Pictures of some rows of a world, as the network reads them."""
    tower = pair_towers(copy.deepcopy(network), "read only")["picture"]
    return torch.cat([tower.pixels(world.images(some)) for some in rows.split(_BLOCK)])


@dataclass(frozen=True, eq=False)
class TrainedPair:
    """An image-text model that `colligate train --preset pictures` left, as fine-tuning needs it.

    Attributes:
        network: both encoders.
        facts: of its checkpoint.
    """

    network: DualEncoder
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, embedder: str) -> "TrainedPair":
        """Read the checkpoint of `run:FOLDER`, or of a fine-tuned `repaired:FOLDER`.

        Raises:
            ValueError: the model has no such checkpoint, or reads token scenes.
        """
        prefix, _, folder = embedder.partition(":")
        if prefix in ("run", "repaired") and (Path(folder).expanduser() / "model.json").is_file():
            found = load_checkpoint(Path(folder).expanduser())
            if found.model.shape.scene.kind == "pictures":
                return cls(found.model, found.facts)
        raise ValueError(
            f"{embedder} is no model of `colligate train --preset pictures`, and no other's weights can be trained on; "
            "leave finetune out of --kinds, or name run:FOLDER of such a model."
        )

    def objects(self, scenes: Scenes) -> dict[str, Int[Tensor, " object"]]:
        """Objects of a world, by the part that they had in the model's own training; values are matched by their words.

        Raises:
            ValueError: the checkpoint doesn't say, or the world has words that the model wasn't trained on.
        """
        told = self.facts.get("objects")
        own, space = self.network.space, scenes.space
        if not told:
            raise ValueError("The checkpoint doesn't say which objects its training showed; leave --hold-out drawn.")
        places: list[Tensor] = []
        for name, words in zip(space.names, space.words, strict=True):
            trained = own.words[own.names.index(name)] if name in own.names else ()
            unknown = [word for word in words if word not in trained]
            if unknown or space.names != own.names:
                raise ValueError(
                    f"The model wasn't trained on {name} {', '.join(unknown) or 'alone'}, so its training divided no "
                    "such objects; leave --hold-out drawn."
                )
            places.append(torch.tensor([trained.index(word) for word in words]))
        values = space.object_values(torch.arange(space.num_objects))
        ids = own.object_ids(torch.stack([of[values[:, c]] for c, of in enumerate(places)], 1)[:, None])[:, 0]
        return {part: torch.isin(ids, torch.tensor(list(of))).nonzero()[:, 0] for part, of in told.items()}

    def split(self, scenes: Scenes) -> Split:
        """Divide a world's scenes as the model's own training divided their objects: the test part was never shown.

        Raises:
            ValueError: as `objects`, or a part is empty.
        """
        return split_by_objects(scenes, self.objects(scenes), "as the model's own training divided the objects")
