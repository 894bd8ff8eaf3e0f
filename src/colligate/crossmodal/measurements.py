"""Question 3 as rows: recognition by queries, both ways, and why it stands where it stands."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from colligate.crossmodal.alignment import (
    Removed,
    compare_parts,
    object_parts,
    queries_without,
    query_parts,
    without,
)
from colligate.crossmodal.queries import QueryVectors
from colligate.crossmodal.recognition import (
    CrossRecognition,
    Ranked,
    rank_scenes,
    recognise_both_ways,
    recognise_queries,
)
from colligate.embeddings import Embeddings
from colligate.intervals import Estimate, Intervals, Over
from colligate.measures import COUNTED, UNLISTED, blind_ceiling, chance_level, chance_of_order
from colligate.probes import swap_foils
from colligate.probes.swaps import BothRight
from colligate.records import Row
from colligate.scenes.space import Scenes

MOST_RANKED = 200_000_000
"""Scores that are sorted for the other direction; above it the first scenes are taken, and the rows say so."""


def estimate_row(id: str, estimate: Estimate, **more: Any) -> Row:
    """A row of an estimate."""
    reason = "; ".join(r for r in (more.pop("reason", None), estimate.reason) if r) or None
    return Row(
        id=id, value=estimate.value, low=estimate.low, high=estimate.high, n=estimate.n, objects=estimate.objects,
        reason=reason, **more,
    )  # fmt: skip


def swap_level(scenes: Scenes) -> Float[Tensor, " scene"]:
    """Chance that scores which tie a scene's objects with those of its swaps put the scene's own first.

        1 / binomial(objects held + foils, objects held):   a bag of concepts, ties broken at random

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> round(float(swap_level(ConceptSpace(color=2, shape=2).scenes([[0, 3]]))[0]), 4)
        0.1667
    """
    return chance_of_order(scenes.contains_objects().sum(1), swap_foils(scenes).sum(1))


class CrossScorer:
    """Outcomes of scenes to rows."""

    def __init__(self, scenes: Scenes, *, over: Over = "values") -> None:
        self.scenes = scenes
        self.intervals = Intervals(scenes.objects, scenes.values, over=over)
        self.concept_chance = [chance_level(scenes.contains(c)) for c in range(scenes.space.num_concepts)]
        self.swap_level = swap_level(scenes)

    def rows(self, prefix: str, found: CrossRecognition, **more: Any) -> list[Row]:
        """Rows of recognition: all scenes of two or more objects, then by values shared and by number of objects."""
        several, same = self.scenes.counts > 1, self.scenes.shares_any()
        groups = {"": several, ".same": several & same, ".different": several & ~same}
        counts = self.scenes.counts.unique().tolist()
        if len(counts) > 1:
            groups |= {f".of.{count}": self.scenes.counts == count for count in counts}
        rows = list[Row]()
        for suffix, chosen in groups.items():
            if suffix and not bool(chosen.any()):
                continue
            rows += self._group(prefix, suffix, found, chosen, more)
        return rows

    def _group(
        self, prefix: str, suffix: str, found: CrossRecognition, chosen: Tensor, more: Mapping[str, Any]
    ) -> list[Row]:
        def row(name: str, outcomes: Tensor, levels: Mapping[str, Tensor | float | str], where: Tensor = chosen) -> Row:
            given: dict[str, Any] = dict(more)
            for key, level in levels.items():
                if not isinstance(level, Tensor):
                    given[key] = level
                elif bool(where.any()):
                    given[key] = float(level[where].mean())
            return estimate_row(f"{prefix}.{name}{suffix}", self.intervals.mean(outcomes, where), **given)

        rows = list[Row]()
        if found.concepts.shape[1]:
            sure = {"bag_of_concepts": 1.0, "bag_of_concepts_strict": 1.0}
            chances = torch.stack(self.concept_chance)
            rows.append(row("concept", found.concepts.double().mean(1), {"chance": chances.mean(0), **sure}))
            if not suffix:
                rows.append(row("concept.joint", found.concepts.all(1), {"chance": chances.prod(0), **sure}))
                rows.append(row("concept.across", found.across, sure))
                rows.append(row("ties.concept", found.concept_ties.double().mean(1), {}))
                for c, name in enumerate(self.scenes.space.names):
                    of = {"chance": chances[c], "concept": name, **sure}
                    rows.append(row(f"concept.{name}", found.concepts[:, c], of))
        levels = {"chance": found.chance, "bag_of_concepts": found.bag, "bag_of_concepts_strict": found.bag_strict}
        rows.append(row("object", found.objects, levels))
        if suffix != ".of.1":
            levels = {"chance": self.swap_level, "bag_of_concepts": self.swap_level, "bag_of_concepts_strict": 0.0}
            rows.append(row("object.swap", found.swaps, levels, chosen & found.swappable))
        if not suffix:
            rows.append(row("ties.object", found.object_ties, {}))
        return rows


def recognition_rows(
    embeddings: Embeddings,
    queries: QueryVectors,
    *,
    prefix: str = "crossmodal",
    over: Over = "values",
    on: str = "all",
) -> list[Row]:
    """Does each scene's vector lie nearer to the texts that are true of it than to all others? Definitions 3.3, 3.4.

    Args:
        embeddings: of the scene tower, or of the text tower (captions against object texts).
        queries: of the text tower.
        prefix: what the ids begin with.
        over: what intervals speak of.
        on: which rows these are.

    Example:
        >>> from colligate.crossmodal.queries import embed_queries
        >>> from colligate.embedders import load_model
        >>> from colligate.embedders.embedding import embed
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr"), load_model("oracle:pair-bag:256")
        >>> rows = recognition_rows(embed(model.towers["scene"], world), embed_queries(model.towers["text"], world))
        >>> found = {row.id: row for row in rows}
        >>> round(found["crossmodal.concept"].value, 1), found["crossmodal.object"].value < 0.6
        (1.0, True)
    """
    objects = embeddings.scenes.contains_objects().any(0)
    found = recognise_queries(embeddings.vectors, embeddings.scenes, queries, known=objects)
    scorer = CrossScorer(embeddings.scenes, over=over)
    rows = scorer.rows(prefix, found, on=on)
    if not bool((embeddings.scenes.counts > 1).any()):
        return rows
    both = recognise_both_ways(embeddings.vectors, embeddings.scenes, queries)
    return [*rows, *_blind_to_binding(prefix, scorer, both, objects, on)]


def _blind_to_binding(prefix: str, scorer: CrossScorer, both: BothRight, known: Tensor, on: str) -> Iterator[Row]:
    """What tells binding apart from texts that score high anyway: swaps right both ways, the ceiling of blindness."""
    scenes, counted = scorer.scenes, both.swaps > 0
    levels: dict[str, Any] = {"bag_of_concepts": 0.0, "bag_of_concepts_strict": 0.0}
    if bool(counted.any()):
        levels["chance"] = float(both.chance[counted].mean())
    yield estimate_row(
        f"{prefix}.object.swap.both", scorer.intervals.mean(both.hits, counted), on=on, **levels
    )  # fmt: skip
    several = scenes[scenes.counts > 1]
    strides = torch.tensor([prod(scenes.space.sizes[c + 1 :]) for c in range(scenes.space.num_concepts)])
    blind = blind_ceiling(several.values, known.nonzero()[:, 0], strides)
    reason = COUNTED if blind is not None else UNLISTED
    value = None if blind is None else float(blind.mean())
    yield Row(id=f"{prefix}.object.blind", on=on, value=value, n=len(several), reason=reason)


def reverse_rows(embeddings: Embeddings, queries: QueryVectors) -> list[Row]:
    """The other direction: does each text find the scenes that hold what it asks for?

    Example:
        >>> from colligate.crossmodal.queries import embed_queries
        >>> from colligate.embedders import load_model
        >>> from colligate.embedders.embedding import embed
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr"), load_model("oracle:pair-aligned:256")
        >>> rows = reverse_rows(embed(model.towers["scene"], world), embed_queries(model.towers["text"], world))
        >>> {row.id: round(row.value, 1) for row in rows}["crossmodal.reverse.object.area"]
        1.0
    """
    several = embeddings if bool((embeddings.scenes.counts > 1).all()) else embeddings[embeddings.scenes.counts > 1]
    most = max(1, MOST_RANKED // len(queries.matrix))
    reason = None if len(several) <= most else f"the first {most:,} of {len(several):,} scenes were ranked"
    taken = several[:most]
    rows = list[Row]()
    for kind, ranked in zip(("concept", "object"), rank_scenes(taken.vectors, taken.scenes, queries), strict=True):
        rows += _ranked_rows(kind, ranked, reason)
        if kind == "concept" and len(ranked.area):
            sizes = list(queries.space.sizes)
            for name, *of in zip(queries.space.names, *(part.split(sizes) for part in ranked), strict=True):
                found = _ranked_rows(f"concept.{name}", Ranked(*of), reason)
                rows += [replace(row, concept=name) for row in found]
    return rows


def _ranked_rows(kind: str, ranked: Ranked, reason: str | None) -> list[Row]:
    judged = ~ranked.area.isnan()
    if not bool(judged.any()):
        return []
    intervals = Intervals(torch.arange(len(ranked.area))[:, None])
    chances = {"first": float(ranked.share[judged].mean()), "area": 0.5}
    return [
        estimate_row(
            f"crossmodal.reverse.{kind}.{name}", intervals.mean(values.nan_to_num(), judged), chance=chances[name],
            reason=reason,
        )
        for name, values in (("first", ranked.first), ("area", ranked.area))
    ]  # fmt: skip


def alignment_rows(embeddings: Embeddings, queries: QueryVectors) -> list[Row]:
    """Why: how alike the two towers' objects are, their values' components, and what binds them.

    `chance` is the mean cosine of rows that don't correspond. Vectors are divided by their lengths first.

    Example:
        >>> from colligate.crossmodal.queries import embed_queries
        >>> from colligate.embedders import load_model
        >>> from colligate.embedders.embedding import embed
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr"), load_model("oracle:pair-mismatched:256")
        >>> rows = alignment_rows(embed(model.towers["scene"], world), embed_queries(model.towers["text"], world))
        >>> found = {row.id: row.value for row in rows}
        >>> found["crossmodal.alignment.concept.cosine"] > 0.7, found["crossmodal.alignment.interaction.cosine"] < 0.1
        (True, True)
    """
    several = embeddings if bool((embeddings.scenes.counts > 1).all()) else embeddings[embeddings.scenes.counts > 1]
    seen = object_parts(several.normalized().vectors, several.scenes)
    said = query_parts(queries)
    rows = [
        Row(id=f"crossmodal.interaction.{tower}", value=parts.interaction_share, n=int(parts.known.sum()))
        for tower, parts in (("scene", seen), ("text", said))
    ]
    compared = compare_parts(seen, said)
    for name in ("object", "concept", "interaction"):
        if name not in compared:
            reason = "one tower's objects are the sums of their values' components: there is nothing to compare"
            rows.append(Row(id=f"crossmodal.alignment.{name}.cosine", reason=reason))
            continue
        found = compared[name]
        intervals = Intervals(torch.arange(len(found.cosines))[:, None])
        if bool(found.cosines.isnan().any()):
            reason = "the towers' vectors differ in width"
            rows.append(Row(id=f"crossmodal.alignment.{name}.cosine", reason=reason))
        else:
            row = estimate_row(f"crossmodal.alignment.{name}.cosine", intervals.mean(found.cosines))
            rows.append(replace(row, chance=found.elsewhere))
        rows.append(Row(id=f"crossmodal.alignment.{name}.cka", value=found.cka, n=len(found.cosines)))
        rows.append(Row(id=f"crossmodal.alignment.{name}.residual", value=found.residual, n=len(found.cosines)))
    return rows


def without_rows(embeddings: Embeddings, queries: QueryVectors, *, over: Over = "values", seed: int = 0) -> list[Row]:
    """What recognition is left once components of either tower are taken out; permuted ones as the control.

    Example:
        >>> from colligate.crossmodal.queries import embed_queries
        >>> from colligate.embedders import load_model
        >>> from colligate.embedders.embedding import embed
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr"), load_model("oracle:pair-aligned:256")
        >>> rows = without_rows(embed(model.towers["scene"], world), embed_queries(model.towers["text"], world))
        >>> found = {row.id: row.value for row in rows}
        >>> found["crossmodal.without.scene.interaction.object.swap"] < 0.3
        True
    """
    several = embeddings if bool((embeddings.scenes.counts > 1).all()) else embeddings[embeddings.scenes.counts > 1]
    unit, scenes = several.normalized().vectors, several.scenes
    parts, known = object_parts(unit, scenes), scenes.contains_objects().any(0)
    scorer = CrossScorer(scenes, over=over)
    ids = known.nonzero()[:, 0]
    order = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))]
    names = torch.arange(len(known))
    names[order] = order.roll(1)
    rows = list[Row]()
    for removed in Removed:
        for label, given in (("", None), (".permuted", names)):
            left = without(unit, scenes, parts, removed, given).float()
            for tower, vectors, asked in (
                ("scene", left, queries),
                ("text", unit, queries_without(queries, removed, given)),
            ):
                found = recognise_queries(vectors, scenes, asked, known=known)
                prefix = f"crossmodal.without.{tower}.{removed}{label}"
                wanted = [f"{prefix}.{name}" for name in ("concept", "object", "object.swap")]
                rows += [row for row in scorer.rows(prefix, found) if row.id in wanted]
    return rows
