"""Question 2 in a study: rules fitted on some objects, scored on others, beside the measurements of question 1."""

from dataclasses import dataclass, field

from colligate.approximation.curves import CurveSettings
from colligate.approximation.families import STRICT_FAMILIES
from colligate.approximation.measurements import ComplexitySettings, complexity_rows
from colligate.engine import Report
from colligate.geometry.subject import Settings, Subject
from colligate.probes import ProbeSettings
from colligate.records import Row
from colligate.verbs.config import StudyConfig

STUDIED = ("additive", "bag_quadratic", "object_product", "mlp64", "mlp256")
"""What a study fits unless told otherwise: the quickest that span the range."""


@dataclass(frozen=True, kw_only=True)
class StudySettings(Settings):
    """How both questions are measured."""

    complexity: ComplexitySettings = field(default_factory=ComplexitySettings)
    """How question 2 is answered."""
    report: Report | None = None
    """Told which rule is being fitted."""


def settings_of(config: StudyConfig, report: Report | None = None) -> StudySettings:
    """How a study of this config measures.

    Example:
        >>> settings_of(StudyConfig(embedder="oracle:no-binding")).complexity.curves.coverages
        (0.2, 0.4, 0.6, 0.8)
    """
    families = tuple(config.families)
    if config.protocol == "paper":
        families = () if families == STRICT_FAMILIES else families  # the authors' own, unless others are asked for
    elif not families:
        families = STUDIED
    curves = CurveSettings(
        families=families, coverages=tuple(config.coverages), protocol=config.protocol, seed=config.seed,
        over=config.intervals,
    )  # fmt: skip
    return StudySettings(
        probes=ProbeSettings(protocol=config.protocol, seed=config.seed), edit_budget=config.edit_budget,
        seed=config.seed, over=config.intervals, complexity=ComplexitySettings(curves=curves), report=report,
    )  # fmt: skip


def rule_rows(subject: Subject) -> list[Row]:
    """How simple a rule from values to vectors is enough, and does it carry over to objects never seen?

    Raises:
        ValueError: too few objects for any of the coverages, or vectors that are all equal.
    """
    settings = subject.settings
    if not isinstance(settings, StudySettings):
        return complexity_rows(subject.embeddings)
    return complexity_rows(subject.embeddings, settings.complexity, report=settings.report)
