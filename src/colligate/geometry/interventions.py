"""Edit a vector so that it shows another scene.

An edit adds the difference of two components: z = x(s) + strength (u[new] - u[old]). Its score against every scene is
then a sum of three rows of numbers that are computed once, so thousands of edits of one scene cost no matrix product.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.geometry.components import Decomposition, directions_of
from colligate.measures import SCORES_AT_ONCE, Retrieval, Scratch, joined, retrieve_sums
from colligate.scenes.space import Scenes


@dataclass(frozen=True, eq=False)
class Edits:
    """Which scene is edited, in which slot, and which scene it should become.

    Attributes:
        scenes: all scenes of the set.
        base: row of the scene that is edited.
        slot: slot that is edited.
        target: row of the scene that it should become.
    """

    scenes: Scenes
    base: Int[Tensor, " edit"]
    slot: Int[Tensor, " edit"]
    target: Int[Tensor, " edit"]

    def __len__(self) -> int:
        return len(self.base)

    @cached_property
    def shared(self) -> Bool[Tensor, "edit concept"]:
        """For each concept, whether two objects of the base scene share its value."""
        concepts = range(self.scenes.space.num_concepts)
        return torch.stack([self.scenes.shares(c) for c in concepts], dim=1)[self.base]

    def within(self, rows: Int[Tensor, " row"]) -> "Edits":
        """The edits whose base and target both stand in the given rows."""
        inside = torch.zeros(len(self.scenes), dtype=torch.bool)
        inside[rows] = True
        return self.select((inside[self.base] & inside[self.target]).nonzero()[:, 0])

    def select(self, edits: Int[Tensor, " chosen"]) -> "Edits":
        """Some of the edits."""
        return Edits(self.scenes, self.base[edits], self.slot[edits], self.target[edits])

    def draw(self, budget: int, seed: int) -> "Edits":
        """A seeded choice of at most `budget` edits, every edit as likely as any other."""
        if len(self) <= budget:
            return self
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        return self.select(order[:budget].sort().values)


def concept_edits(scenes: Scenes, concept: int) -> Edits:
    """Every change of one concept's value in one slot whose resulting scene exists.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> len(concept_edits(ConceptSpace(color=3, shape=2).all_scenes(slots=2), concept=0))
        144
    """
    size = scenes.space.sizes[concept]
    return _edits(scenes, [scenes.values.new_tensor([v]) for v in range(size)], [concept])


def object_edits(
    scenes: Scenes, *, budget: int = 20_000, seed: int = 0, rows: Int[Tensor, " row"] | None = None
) -> Edits:
    """Exchange of a whole object, every concept's value changed, whose resulting scene exists; a seeded choice of them.

    Args:
        scenes: what is edited.
        budget: most edits; above it, every edit is as likely to be taken as any other.
        seed: of the choice.
        rows: scenes in which an edit may start and end; all by default.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> len(object_edits(ConceptSpace(color=3, shape=2).all_scenes(slots=2)))
        144
    """
    space = scenes.space
    rows = torch.arange(len(scenes)) if rows is None else rows
    if len(rows) * scenes.slots * space.num_objects <= MOST_LISTED:
        bases = torch.zeros(len(scenes), dtype=torch.bool)
        bases[rows] = True
        values = space.object_values(torch.arange(space.num_objects))
        every = _edits(scenes, list(values), list(range(space.num_concepts)), bases)
        return every.within(rows).draw(budget, seed)
    return _some_object_edits(scenes, rows, budget, torch.Generator().manual_seed(seed))


MOST_LISTED = 10_000_000
"""Most exchanges of objects that are listed before some are chosen; above it they are drawn one by one."""


def _some_object_edits(scenes: Scenes, rows: Int[Tensor, " row"], budget: int, generator: torch.Generator) -> Edits:
    """Draw base, slot and new object until there are enough different edits that lead to a scene among the rows."""
    inside = torch.zeros(len(scenes), dtype=torch.bool)
    inside[rows] = True
    found, slots, objects = torch.zeros(0, 3, dtype=torch.int64), scenes.slots, scenes.space.num_objects
    for _ in range(50):
        size = (8 * budget,)
        base = rows[torch.randint(len(rows), size, generator=generator)]
        slot = torch.randint(slots, size, generator=generator)
        new = scenes.space.object_values(torch.randint(objects, size, generator=generator))
        able = scenes.filled[base, slot] & (scenes.values[base, slot] != new).all(1)
        base, slot, new = base[able], slot[able], new[able]
        values = scenes.values[base].clone()
        values[torch.arange(len(base)), slot] = new
        target = scenes.rows_of(Scenes(scenes.space, values))
        there = (target >= 0) & inside[target.clamp(min=0)]
        found = torch.cat([found, torch.stack([base, slot, target], dim=1)[there]]).unique(dim=0)
        if len(found) >= budget:
            break
    chosen = found[torch.randperm(len(found), generator=generator)[:budget].sort().values]
    return Edits(scenes, *chosen.unbind(1))


def _edits(
    scenes: Scenes, new_values: list[Tensor], concepts: list[int], bases: Bool[Tensor, " scene"] | None = None
) -> Edits:
    """All replacements of the given concepts by each of the given values, where every one of them changes."""
    base, slots, targets = [], [], []
    for slot in range(scenes.slots):
        held = scenes.values[:, slot]
        able = scenes.filled[:, slot] if bases is None else scenes.filled[:, slot] & bases
        for new in new_values:
            rows = (able & (held[:, concepts] != new).all(1)).nonzero()[:, 0]
            changed = held[rows].clone()
            changed[:, concepts] = new
            target = scenes.rows_of(scenes[rows].replace(slot, changed))
            exists = target >= 0
            base.append(rows[exists])
            slots.append(torch.full_like(rows[exists], slot))
            targets.append(target[exists])
    edits = Edits(scenes, torch.cat(base), torch.cat(slots), torch.cat(targets))
    return edits.select(torch.argsort(edits.base, stable=True))


@dataclass(frozen=True, eq=False)
class Editor:
    """How an edit moves a vector: by the difference of two components.

        z = x(s) + strength * d,    d = sum over the parts of the edited slot of u[new] - u[old]

    With `orthogonal`, d loses its part along the components of the other objects, so that it can't change them.

    Attributes:
        decomposition: where the components come from.
        strength: 1 is the paper's.
        orthogonal: whether to spare the other objects.

    Paper: arXiv:2605.31503, Sec. 4 (replacement).
    """

    decomposition: Decomposition
    strength: float = 1.0
    orthogonal: bool = False

    def moves(self, edits: Edits) -> tuple[Int[Tensor, "edit part"], Float[Tensor, "edit part"]]:
        """Components that an edit adds, and how much of each."""
        design, components = self.decomposition.design, self.decomposition.components
        rows = torch.arange(len(edits))
        before = design.columns(edits.scenes[edits.base])
        old, new = before[rows, edits.slot], design.columns(edits.scenes[edits.target])[rows, edits.slot]
        columns, weights = torch.cat([new, old], dim=1), torch.ones(len(edits), 2 * old.shape[1], dtype=torch.float64)
        weights[:, old.shape[1] :] = -1
        if self.orthogonal:
            difference = (components[columns] * weights[..., None]).sum(1)
            others = before.clone()
            others[rows, edits.slot] = -1
            others = others.flatten(1)
            spared = _sum_of(components, others)
            share = (difference * spared).sum(1) / spared.square().sum(1).clamp(min=1e-30)
            nothing = columns[:, :1]  # a component that is known where the edit is, with weight 0
            columns = torch.cat([columns, torch.where(others >= 0, others, nothing)], dim=1)
            weights = torch.cat([weights, -share[:, None] * (others >= 0)], dim=1)
        return columns, self.strength * weights

    def add(
        self, values: Float[Tensor, "scene number"], of_components: Float[Tensor, "component number"], edits: Edits
    ) -> Float[Tensor, "edit number"]:
        """Whatever is linear in the vectors, after the edits: from its values for the scenes and for the components."""
        columns, weights = self.moves(edits)
        total = values[edits.base].double()
        for column, weight in zip(columns.unbind(1), weights.unbind(1), strict=True):
            total.addcmul_(weight[:, None], of_components[column].double())
        return total

    def apply(self, embeddings: Embeddings, edits: Edits) -> Float[Tensor, "edit dim"]:
        """The edited vectors.

        Raises:
            ValueError: an edit needs a component that the fit part never showed.
        """
        moved = self.add(embeddings.vectors, self.decomposition.components, edits)
        if not torch.isfinite(moved).all():
            unknown = ~torch.isfinite(self.decomposition.components).all(1)
            used = self.moves(edits)[0]
            named = self.decomposition.design.describe(int(used[unknown[used]][0]))
            raise ValueError(f"The fit part never shows {named}, so no edit can use it; fit on more scenes.")
        return moved


def _sum_of(components: Float[Tensor, "component dim"], columns: Int[Tensor, "edit part"]) -> Float[Tensor, "edit dim"]:
    """Sum of the components in the given columns; negative ones stand for none."""
    return torch.where((columns >= 0)[..., None], components[columns.clamp(min=0)], 0.0).sum(1)


@dataclass(frozen=True, eq=False)
class EditOutcomes:
    """What came out of each edit.

    Attributes:
        hits: share of the nearest scenes that are the target (1 unless tied).
        hits_up_to_order: the same with the target's objects in any slots.
        nearest: row of the nearest scene.
        ties: how many scenes are tied as nearest.
    """

    hits: Float[Tensor, " edit"]
    hits_up_to_order: Float[Tensor, " edit"]
    nearest: Int[Tensor, " edit"]
    ties: Int[Tensor, " edit"]


def retrieve_edits(embeddings: Embeddings, edits: Edits, editors: Mapping[str, Editor]) -> dict[str, EditOutcomes]:
    """For each way of editing, the scene nearest by cosine to every edited vector, among all scenes of the set.

    Scores are taken in float64: those of x(s) against all scenes once, then plus those of the components.

    Example:
        >>> from colligate.binding import object_table
        >>> from colligate.geometry.components import decompose
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> embeddings = Embeddings(object_table(scenes.space, 2, 32, positions="own")(scenes.values), scenes)
        >>> editor = Editor(decompose(embeddings, parts="object", positions=True))
        >>> out = retrieve_edits(embeddings, concept_edits(scenes, 0), {"avg+pos": editor})
        >>> out["avg+pos"].hits.mean().item()
        1.0
    """
    vectors = embeddings.vectors.double()
    directions = directions_of(embeddings)
    by_parts: dict[int, dict[str, Editor]] = {}
    for name, editor in editors.items():
        by_parts.setdefault(id(editor.decomposition), {})[name] = editor
    numbers = sum(len(next(iter(own.values())).decomposition.components) for own in by_parts.values()) * len(vectors)
    together = [dict(editors)] if numbers <= MOST_KEPT else list(by_parts.values())
    found: dict[str, EditOutcomes] = {}
    for own in together:
        found |= _retrieve_edits(embeddings, edits, own, vectors, directions)
    return {name: found[name] for name in editors}


MOST_KEPT = 100_000_000
"""Most scores of components against scenes that are kept at once; above it, one set of components after the other."""


def _retrieve_edits(
    embeddings: Embeddings,
    edits: Edits,
    editors: Mapping[str, Editor],
    vectors: Float[Tensor, "scene dim"],
    directions: Float[Tensor, "dim scene"],
) -> dict[str, EditOutcomes]:
    keys = torch.stack([embeddings.scenes.ids, embeddings.scenes.unordered_ids], dim=1)
    tables: dict[int, Tensor] = {}
    for editor in editors.values():
        parts = editor.decomposition
        if id(parts) not in tables:
            tables[id(parts)] = parts.components @ directions
    prepared = {name: (*editor.moves(edits), tables[id(editor.decomposition)]) for name, editor in editors.items()}
    found: dict[str, list[Retrieval]] = {name: [] for name in editors}
    step, scratch = max(16, SCORES_AT_ONCE // max(len(vectors), 1)), Scratch()
    bases, of_base = edits.base.unique(return_inverse=True)
    held = slice(0, 0)  # bases whose scores are at hand
    from_bases = vectors[:0] @ directions
    for start in range(0, len(edits), step):
        block = slice(start, start + step)
        place = of_base[block]
        first, last = int(place.min()), int(place.max()) + 1
        if not held.start <= first < last <= held.stop:
            held = slice(first, max(last, first + 32 * max(1, step // 16)))
            from_bases = vectors[bases[held]] @ directions
        for name, (columns, weights, from_parts) in prepared.items():
            base, targets = scratch.rows(from_bases, place - held.start, "total"), keys[edits.target[block]]
            found[name].append(retrieve_sums(base, columns[block], weights[block], from_parts, targets, keys, scratch))
    results = {name: joined(blocks, keys.shape[1]) for name, blocks in found.items()}
    return {name: EditOutcomes(r.hits[:, 0], r.hits[:, 1], r.top, r.tied) for name, r in results.items()}


MISSES = ("base", "twin", "other_object", "both_objects", "elsewhere")
"""Where a missed edit lands: unchanged; the target in another order; changed on another object; on all; elsewhere."""


def classify_misses(edits: Edits, nearest: Int[Tensor, " edit"]) -> Int[Tensor, " edit"]:
    """Index into `MISSES` for every edit that did not reach its target, -1 for those that did."""
    scenes = edits.scenes
    landed, base, target = scenes.ids[nearest], scenes.ids[edits.base], scenes.ids[edits.target]
    rows = torch.arange(len(edits))
    old, new = scenes.values[edits.base], scenes.values[edits.target]
    wanted = new[rows, edits.slot]
    changed = wanted != old[rows, edits.slot]
    kinds = torch.full((len(edits),), MISSES.index("elsewhere"))
    everywhere = torch.where((changed[:, None] & scenes.filled[edits.base][..., None]), wanted[:, None], old)
    kinds[landed == Scenes(scenes.space, everywhere).ids] = MISSES.index("both_objects")
    for slot in range(scenes.slots):
        other = scenes.filled[edits.base, slot] & (edits.slot != slot)
        moved = old.clone()
        moved[:, slot] = torch.where(changed, wanted, old[:, slot])
        moved = torch.where(other[:, None, None], moved, old)
        kinds[other & (landed == Scenes(scenes.space, moved).ids)] = MISSES.index("other_object")
    kinds[scenes.unordered_ids[nearest] == scenes.unordered_ids[edits.target]] = MISSES.index("twin")
    kinds[landed == base] = MISSES.index("base")
    kinds[landed == target] = -1
    return kinds


@dataclass(frozen=True, eq=False)
class Interference:
    """How an edit's error lies along the components involved, one number for each edit.

    With e = z - x(target), d the change that was made and w the component of the other objects:

    Attributes:
        overshoot: (e . d) / |d|^2; positive where the edit goes too far, as when two objects share the value that it
            takes away and the vector holds less than two doses of it.
        other_value: (e . w) / |w|^2; negative where the other objects lost part of what they are.
        explained: share of |e|^2 that lies in the plane of d and w.
    """

    overshoot: Float[Tensor, " edit"]
    other_value: Float[Tensor, " edit"]
    explained: Float[Tensor, " edit"]


def interference(embeddings: Embeddings, edits: Edits, editor: Editor) -> Interference:
    """Say along which component the error of an edit lies.

    Example:
        >>> from colligate.binding import object_table
        >>> from colligate.geometry.components import decompose
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> embeddings = Embeddings(object_table(scenes.space, 2, 32, positions="own")(scenes.values), scenes)
        >>> editor = Editor(decompose(embeddings, parts="object", positions=True))
        >>> interference(embeddings, concept_edits(scenes, 0), editor).overshoot.abs().max().item() < 1e-9
        True
    """
    components, design = editor.decomposition.components, editor.decomposition.design
    edited = editor.apply(embeddings, edits)
    change = edited - embeddings.vectors[edits.base].double()
    error = edited - embeddings.vectors[edits.target].double()
    others = design.columns(edits.scenes[edits.base])
    others[torch.arange(len(edits)), edits.slot] = -1
    others = others.flatten(1)
    kept = _sum_of(components, others)

    def along(direction: Tensor) -> Tensor:
        return (error * direction).sum(1) / direction.square().sum(1).clamp(min=1e-30)

    along_change, total = along(change), error.square().sum(1).clamp(min=1e-30)
    upright = kept - ((kept * change).sum(1) / change.square().sum(1).clamp(min=1e-30))[:, None] * change
    inside = along_change.square() * change.square().sum(1) + along(upright).square() * upright.square().sum(1)
    return Interference(along_change, along(kept), inside / total)
