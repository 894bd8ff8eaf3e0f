"""Families of rules by name: what a user writes on the command line, and what is fitted by default."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from torch import Tensor

from colligate.approximation.approximators import Additive, Approximator, Data, Fitted, Rule
from colligate.approximation.counts import BagQuadratic
from colligate.approximation.networks import MLP, LowRankBilinear, ProductHead
from colligate.approximation.paper import PaperRecipe
from colligate.approximation.products import CircularConvolution, GlobalProduct, ObjectProducts
from colligate.approximation.stacks import Schedule
from colligate.embedders.own import call_factory, told_plainly
from colligate.records import WorkError
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split

STRICT_FAMILIES = ("additive", "bag_quadratic", "object_product", "global_product", "mlp64", "mlp256", "mlp1024")
PAPER_FAMILIES = ("paper.additive", "paper.global_product", "paper.additive+global_product", "paper.mlp256")


def family(name: str, schedule: Schedule | None = None) -> Approximator:
    """The approximator of that name, or `package.module:factory` for one of your own.

    additive, object_product, global_product, convolution (each with .shared), bag_quadratic, mlp<width>,
    bilinear<rank>, object_product.head, global_product.head, forest, boosted; paper.additive, paper.mlp<width>,
    paper.global_product, paper.additive+global_product.

    Raises:
        ValueError: no family has this name, or a factory of yours isn't there or gives something else.
        WorkError: a factory of yours raised.

    Example:
        >>> family("mlp512").name, family("object_product.shared").positions
        ('mlp512', 'shared')
    """
    schedule = schedule or Schedule()
    if ":" in name:
        return _own(name)
    plain, shared = name.removesuffix(".shared"), name.endswith(".shared")
    sums = {"additive": Additive, "object_product": ObjectProducts, "global_product": GlobalProduct,
            "convolution": CircularConvolution}  # fmt: skip
    if plain in sums:
        return sums[plain]("shared" if shared else "own")
    for prefix, make in {
        "paper.mlp": lambda n: PaperRecipe("hidden", n), "mlp": lambda n: MLP(n, schedule),
        "bilinear": lambda n: LowRankBilinear(n, schedule),
    }.items():  # fmt: skip
        if name.startswith(prefix) and name.removeprefix(prefix).isdigit() and int(name.removeprefix(prefix)) > 0:
            return make(int(name.removeprefix(prefix)))
    fixed: Mapping[str, Callable[[], Approximator]] = {
        "object_product.head": lambda: ProductHead(True, schedule=schedule),
        "global_product.head": lambda: ProductHead(False, schedule=schedule),
        "paper.additive": lambda: PaperRecipe("linear"), "paper.global_product": lambda: PaperRecipe("product"),
        "paper.additive+global_product": lambda: PaperRecipe("sum+product"),
        "bag_quadratic": BagQuadratic, "forest": lambda: _trees("Forest"), "boosted": lambda: _trees("Boosted"),
    }  # fmt: skip
    if name not in fixed:
        raise ValueError(
            f"No family is called {name!r}; take additive, bag_quadratic, object_product, global_product, convolution, "
            "mlp<width>, bilinear<rank>, object_product.head, global_product.head, forest, boosted, or "
            "package.module:factory."
        )
    return fixed[name]()


def _trees(name: str) -> Approximator:
    from colligate.approximation import trees

    return getattr(trees, name)()


def _own(name: str) -> Approximator:
    made = call_factory(name)
    if not isinstance(made, Approximator):
        lacking = [part for part in ("name", "contains", "fit") if not hasattr(made, part)]
        raise ValueError(
            f"{name} gave a {type(made).__name__} without {', '.join(f'`{part}`' for part in lacking)}; a family of "
            "rules has a name, contains(other) and fit(data, splits, seed)."
        )
    return made if type(made).__module__.partition(".")[0] == "colligate" else _Own(made, name)


@dataclass(frozen=True)
class _Own:
    """A user's family whose failures name the factory that it came from."""

    made: Approximator
    factory: str

    @property
    def name(self) -> str:
        return self.made.name

    def contains(self, other: Approximator) -> bool:
        with told_plainly(self.factory):
            return self.made.contains(other.made if isinstance(other, _Own) else other)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        with told_plainly(self.factory):
            given = list(cast("Sequence[object]", self.made.fit(data, splits, seed)))
        fits = [one for one in given if isinstance(one, Fitted)]
        if not len(fits) == len(given) == len(splits):
            raise WorkError(
                f"{self.factory}: fit gave no Fitted for each of the {len(splits)} splits; return one each."
            )
        return [replace(one, rule=self._plainly(one.rule)) for one in fits]

    def _plainly(self, rule: Rule) -> Rule:
        def told(scenes: Scenes) -> Tensor:
            with told_plainly(self.factory):
                return rule(scenes)

        return told
