"""Trained models that come with the library, as embedders: `reference:binds`, `reference:bag`."""

from dataclasses import replace

from colligate.embedders import trained
from colligate.embedders.towers import LoadOptions, Model


def load(name: str, options: LoadOptions) -> Model:
    """Load a reference model; nothing is fetched.

    Raises:
        ValueError: no such name, or an option that these models don't have.

    Example:
        >>> load("binds", LoadOptions()).towers["scene"].kind
        'scene'
    """
    folder = trained.reference_folder(name)
    return replace(trained.load(str(folder), options), name=f"reference:{name}")
