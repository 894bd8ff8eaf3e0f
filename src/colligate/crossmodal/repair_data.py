"""What a repair is fitted on and judged by: both towers' vectors for scenes, their captions, and swapped captions."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from colligate.crossmodal.queries import QueryTemplates, QueryVectors, embed_queries
from colligate.embedders.embedding import embed
from colligate.embedders.towers import Tower
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.worlds import World
from colligate.store import Store


@dataclass(frozen=True, eq=False)
class RepairData:
    """Vectors of both towers for scenes of two or more objects.

    Attributes:
        vectors: of the scene tower.
        captions: of the text tower, for each scene's caption.
        foil_captions: the same for the caption of each scene's foil.
        scenes: what the rows show.
        foils: each scene after a swap; the scene itself where no swap changes which objects there are.
        queries: of the text tower, for single values and objects.

    Raises:
        ValueError: rows that differ in number, or towers of different widths.
    """

    vectors: Float[Tensor, "scene dim"]
    captions: Float[Tensor, "caption text_dim"]
    foil_captions: Float[Tensor, "foil text_dim"]
    scenes: Scenes
    foils: Scenes
    queries: QueryVectors

    def __post_init__(self) -> None:
        for what, given in (("captions", self.captions), ("foil captions", self.foil_captions)):
            if len(given) != len(self.vectors):
                raise ValueError(f"{len(given)} {what} for {len(self.vectors)} scenes; give exactly one for each.")
        if len(self.scenes) != len(self.vectors) or len(self.foils) != len(self.vectors):
            raise ValueError(f"{len(self.vectors)} vectors for {len(self.scenes)} scenes; give one row for each.")
        if self.queries.concepts is None:
            raise ValueError("Repair needs a query for every value; choose a tower that reads text.")
        widths = {given.shape[1] for given in (self.vectors, self.captions, self.queries.objects)}
        if len(widths) > 1:
            raise ValueError(
                f"The towers' vectors are {' and '.join(map(str, sorted(widths)))} wide; a repair maps texts into the "
                "scenes' own space, so read both towers at their shared output."
            )

    @property
    def space(self) -> ConceptSpace:
        """The concepts."""
        return self.scenes.space


def repair_data(
    scene_side: Tower,
    text_side: Tower,
    world: World,
    templates: QueryTemplates | None = None,
    *,
    store: Store | None = None,
    foils: Scenes | None = None,
    seed: int = 0,
) -> RepairData:
    """Embed what a repair needs: scenes of several objects, their captions and those of their swaps, and queries.

    Args:
        scene_side: reads pictures or token scenes.
        text_side: reads texts.
        world: scenes with a caption template, so that foils can be said.
        templates: wording of the queries.
        store: where vectors are kept.
        foils: what each scene's caption is set against; default: a swap of it, drawn.
        seed: of the swaps.

    Raises:
        ValueError: the world has no caption template, or no scene of two objects.
    """
    if not isinstance(world.captions, CaptionTemplate):
        raise ValueError(f"World {world.name!r} has no caption template, so swapped captions can't be said; give one.")
    several = world.scenes.counts > 1
    if not bool(several.any()):
        raise ValueError(f"World {world.name!r} has no scene of two objects, so there is nothing to bind.")
    part = world if bool(several.all()) else world.select(several)
    foils = swap_scenes(part.scenes, seed) if foils is None else foils
    return RepairData(
        embed(scene_side, part, store=store).vectors,
        embed(text_side, part, store=store).vectors,
        embed(text_side, replace(part, name="foils", scenes=foils, pictures=None, parts=None), store=store).vectors,
        part.scenes,
        foils,
        embed_queries(text_side, world, templates, store=store),
    )


def swap_scenes(scenes: Scenes, seed: int = 0) -> Scenes:
    """For each scene one that swaps a value between two of its objects, drawn among those that change its objects.

    Example:
        >>> scenes = ConceptSpace(color=2, shape=2).scenes([[0, 3], [0, 1]])
        >>> swap_scenes(scenes).objects.tolist()
        [[1, 2], [0, 1]]
    """
    generator = torch.Generator().manual_seed(seed)
    ways = [
        _swap_where(scenes, concept, first, second)
        for first in range(scenes.slots)
        for second in range(first + 1, scenes.slots)
        for concept in range(scenes.space.num_concepts)
    ]
    values = torch.stack([way.values for way in ways])
    changes = torch.stack([way.unordered_ids != scenes.unordered_ids for way in ways])
    rank = torch.where(changes, torch.rand(len(ways), 1, generator=generator) + 1, 0.0)
    chosen = values[rank.argmax(0), torch.arange(len(scenes))]
    return Scenes(scenes.space, torch.where(changes.any(0)[:, None, None], chosen, scenes.values))


def _swap_where(scenes: Scenes, concept: int, first: int, second: int) -> Scenes:
    both = scenes.filled[:, first] & scenes.filled[:, second]
    changed = scenes.values.clone()
    changed[:, [first, second], concept] = scenes.values[:, [second, first], concept]
    return Scenes(scenes.space, torch.where(both[:, None, None], changed, scenes.values))
