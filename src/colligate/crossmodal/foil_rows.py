"""Behavioural tests as rows: foils, groups and biases, ties apart."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.crossmodal.biases import first_mentioned, larger_object
from colligate.crossmodal.foils import FOILS, FoilOutcomes, FoilTable, FoilType, judge_foils
from colligate.crossmodal.groups import GROUP_CHANCE, GroupTable, judge_groups, swap_groups
from colligate.crossmodal.measurements import estimate_row
from colligate.crossmodal.queries import QueryVectors
from colligate.embedders.towers import Tower
from colligate.embeddings import Embeddings
from colligate.intervals import Intervals, Over
from colligate.records import Row
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import Scenes


def foil_rows(
    embeddings: Embeddings,
    tower: Tower,
    captions: CaptionTemplate,
    types: tuple[FoilType, ...] = FOILS,
    *,
    over: Over = "values",
    seed: int = 0,
) -> list[Row]:
    """Does each scene lie nearer to its caption than to every kind of foil, and pairs of scenes to each other's?

    Args:
        embeddings: of the scene tower.
        tower: reads texts.
        captions: says scenes and foils.
        types: kinds of foils.
        over: what intervals speak of.
        seed: of foils that are drawn.

    Raises:
        ValueError: a scene and its foil can't be said.

    Example:
        >>> from colligate.embedders import load_model
        >>> from colligate.embedders.embedding import embed
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr"), load_model("oracle:pair-bag:256")
        >>> rows = foil_rows(embed(model.towers["scene"], world), model.towers["text"], world.captions)
        >>> found = {row.id: row.value for row in rows}
        >>> found["crossmodal.foil.swapped"], found["crossmodal.foil.swapped.ties"]
        (0.5, 1.0)
    """
    rows, scenes = list[Row](), embeddings.scenes
    for kind in types:
        try:
            table = kind.table(scenes, captions, seed)
        except ValueError as error:
            rows.append(Row(id=f"crossmodal.foil.{kind.name}", reason=str(error)))
            continue
        rows += table_rows(
            f"crossmodal.foil.{table.name}", embeddings.vectors, tower, table, scenes[table.rows], over=over,
        )  # fmt: skip
    try:
        groups = swap_groups(scenes, captions)
    except ValueError as error:
        return [*rows, Row(id="crossmodal.groups.group", reason=str(error))]
    shown = scenes[groups.rows[:, 0]]
    return rows + group_rows("crossmodal.groups", embeddings.vectors, tower, groups, shown, over=over)


def table_rows(
    id: str,
    pictures: Float[Tensor, "picture dim"],
    tower: Tower,
    table: FoilTable,
    shown: Scenes | None = None,
    *,
    over: Over = "values",
) -> list[Row]:
    """The share of pairs whose caption wins, ties as one half; the share of ties; and both where the words are alike.

    Where foils are of several kinds, each kind by itself too. Where pairs turn relations round, each relation, and the
    mean over relations, in which a rare one weighs as much as a common one (as the authors of ARO report it). Where a
    caption has several foils, the share of captions that beat all of theirs (the benchmarks' precision at 1; a tie with
    n foils counts 1 / (1 + n)).

    Args:
        id: what the rows' ids begin with.
        pictures: vectors of the pictures that `table` points at.
        tower: reads texts.
        table: pairs.
        shown: the scene of each pair; without it, pairs of one picture are alike and all others apart.
        over: what intervals speak of.
    """
    outcomes = judge_foils(pictures, tower, table)
    intervals = _intervals(table.rows[:, None], shown, over)
    note = "both captions are true: one half is no preference" if table.control else None
    rows = _judged(id, outcomes, intervals, torch.ones(len(table.rows), dtype=torch.bool), reason=note)
    alike = table.same_words
    if bool(alike.any()) and not bool(alike.all()):
        rows += _judged(f"{id}.same_words", outcomes, intervals, alike, reason=note)
    for kind in dict.fromkeys(table.kinds):
        where = torch.tensor([one == kind for one in table.kinds])
        rows += _judged(f"{id}.{kind}", outcomes, intervals, where, reason=note)
    if table.relations:
        rows += _by_relation(id, outcomes, intervals, table)
    if table.groups is not None:
        rows.append(_beating_all(f"{id}.all", outcomes, table, table.groups))
    return rows


def _by_relation(id: str, outcomes: FoilOutcomes, intervals: Intervals, table: FoilTable) -> list[Row]:
    """Each relation by itself, and their mean."""
    rows, influences, values = list[Row](), list[Tensor](), list[float]()
    for relation in sorted(set(table.relations)):
        where = torch.tensor([one == relation for one in table.relations])
        rows += _judged(f"{id}.relation.{relation.replace('.', '_')}", outcomes, intervals, where)
        values.append(float(outcomes.hits[where].mean()))
        influences.append(intervals.influence(torch.where(where, outcomes.hits.double(), 0.0), where.double()))
    every = torch.ones(len(table.relations), dtype=torch.bool)
    mean = intervals.around(sum(values) / len(values), torch.stack(influences).mean(0), every)
    return [estimate_row(f"{id}.relations", mean, chance=0.5), *rows]


def _beating_all(id: str, outcomes: FoilOutcomes, table: FoilTable, groups: Int[Tensor, " pair"]) -> Row:
    num = int(groups.max()) + 1
    foils, lost, ties = (torch.zeros(num).index_add_(0, groups, of) for of in (
        torch.ones(len(groups)), (outcomes.hits == 0).float(), outcomes.ties.float()
    ))  # fmt: skip
    pictures = torch.zeros(num, dtype=torch.int64)
    pictures[groups] = table.rows
    hits = torch.where(lost > 0, 0.0, 1 / (1 + ties))
    intervals = Intervals(pictures[:, None])
    return estimate_row(id, intervals.mean(hits), chance=float((1 / (1 + foils)).mean()))


def _judged(id: str, outcomes: FoilOutcomes, intervals: Intervals, where: Tensor, **more: Any) -> list[Row]:
    return [
        estimate_row(id, intervals.mean(outcomes.hits, where), chance=0.5, **more),
        estimate_row(f"{id}.ties", intervals.mean(outcomes.ties.double(), where)),
    ]


def group_rows(
    id: str,
    pictures: Float[Tensor, "picture dim"],
    tower: Tower,
    table: GroupTable,
    shown: Scenes | None = None,
    *,
    over: Over = "values",
) -> list[Row]:
    """Text, image and group score of groups of two pictures and two captions, and the share with a tie."""
    outcomes = judge_groups(pictures, tower, table)
    intervals = _intervals(table.rows[:, :1], shown, over)
    rows = [
        estimate_row(f"{id}.{name}", intervals.mean(getattr(outcomes, name)), chance=chance, bag_of_concepts=chance)
        for name, chance in GROUP_CHANCE.items()
    ]
    return [*rows, estimate_row(f"{id}.ties", intervals.mean(outcomes.ties.double()))]


def bias_rows(embeddings: Embeddings, queries: QueryVectors, *, of: str = "scene", over: Over = "values") -> list[Row]:
    """Does the first object, or the larger one, weigh more than the other? One half is no bias.

    Args:
        embeddings: of pictures (first: the first slot's place) or of captions (first: the one mentioned first).
        queries: of the text tower.
        of: scene or text, for the ids.
        over: what intervals speak of.

    Example:
        >>> from colligate.crossmodal.queries import embed_queries
        >>> from colligate.embedders import load_model
        >>> from colligate.embedders.embedding import embed
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr"), load_model("oracle:pair-aligned:64")
        >>> queries = embed_queries(model.towers["text"], world)
        >>> [row.id for row in bias_rows(embed(model.towers["text"], world), queries, of="text")]
        ['crossmodal.bias.text.first', 'crossmodal.bias.text.larger']
    """
    scenes = embeddings.scenes
    rows = [_bias(f"crossmodal.bias.{of}.first", scenes, *first_mentioned(scenes, embeddings.vectors, queries.objects),
                  over)]  # fmt: skip
    name = next((name for name in scenes.space.names if name == "size"), None)
    if name is None:
        return [*rows, Row(id=f"crossmodal.bias.{of}.larger", reason="the world has no concept of size")]
    found = larger_object(scenes, embeddings.vectors, queries.objects, size=name)
    return [*rows, _bias(f"crossmodal.bias.{of}.larger", scenes, *found, over)]


def _bias(id: str, scenes: Scenes, outcomes: FoilOutcomes, rows: Tensor, over: Over) -> Row:
    if not len(rows):
        return Row(id=id, reason="no scene has two objects that differ")
    intervals = _intervals(rows[:, None], scenes[rows], over)
    return estimate_row(id, intervals.mean(outcomes.hits), chance=0.5)


def _intervals(pictures: Int[Tensor, "row 1"], shown: Scenes | None, over: Over) -> Intervals:
    """Over the values or objects shown, where they are known, else over the pictures."""
    return Intervals(pictures) if shown is None else Intervals(shown.objects, shown.values, over=over)
