"""Where a number lies between the bag-of-concepts baseline and what the vectors allow at most."""

CLEAR_CEILING = 0.05
"""How far the probes' ceiling stands above a bag of concepts where the way between the two is a scale at all."""


def rescale(value: float, bag_of_concepts: float, ceiling: float) -> float | None:
    """Place a value between the bag-of-concepts level (0) and the probes' ceiling (1).

    None where the ceiling stands less than `CLEAR_CEILING` above the level: noise over next to nothing says nothing.

    Example:
        >>> rescale(0.5, 0.25, 0.75)
        0.5
    """
    return (
        None if ceiling - bag_of_concepts < CLEAR_CEILING else (value - bag_of_concepts) / (ceiling - bag_of_concepts)
    )
