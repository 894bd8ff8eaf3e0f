"""Families of rules by name: what a user writes on the command line, and what is fitted by default."""

from collections.abc import Callable, Mapping

from colligate.complexity.approximators import Additive, Approximator
from colligate.complexity.networks import MLP, LowRankBilinear, ProductHead
from colligate.complexity.paper import PaperRecipe
from colligate.complexity.products import CircularConvolution, GlobalProduct, ObjectProducts
from colligate.complexity.stacks import Schedule

STRICT_FAMILIES = ("additive", "object_product", "global_product", "mlp64", "mlp256", "mlp1024")
PAPER_FAMILIES = ("paper.additive", "paper.global_product", "paper.additive+global_product", "paper.mlp256")


def family(name: str, schedule: Schedule | None = None) -> Approximator:
    """The approximator of that name, or `package.module:factory` for one of your own.

    additive, object_product, global_product, convolution (each with .shared), mlp<width>, bilinear<rank>,
    object_product.head, global_product.head, forest, boosted; paper.additive, paper.mlp<width>, paper.global_product,
    paper.additive+global_product.

    Raises:
        ValueError: no family has this name.

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
        "forest": lambda: _trees("Forest"), "boosted": lambda: _trees("Boosted"),
    }  # fmt: skip
    if name not in fixed:
        raise ValueError(
            f"No family is called {name!r}; take additive, object_product, global_product, convolution, mlp<width>, "
            "bilinear<rank>, object_product.head, global_product.head, forest, boosted, or package.module:factory."
        )
    return fixed[name]()


def _trees(name: str) -> Approximator:
    from colligate.complexity import trees

    return getattr(trees, name)()


def _own(name: str) -> Approximator:
    from importlib import import_module

    module, _, factory = name.partition(":")
    try:
        made = getattr(import_module(module), factory)()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name!r} names no approximator: {error}. Write it as package.module:factory.") from error
    if not isinstance(made, Approximator):
        raise ValueError(f"{name!r} gives a {type(made).__name__}, which lacks name, contains or fit.")
    return made
