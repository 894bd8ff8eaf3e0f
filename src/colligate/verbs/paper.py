"""The whole paper on one page: a real embedder, trained models, and matching across towers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from colligate.engine import Clock, Report, peak_memory
from colligate.records import command, content_key, read_record, run_facts, settings, write_record
from colligate.report.page import part_folder, write_page
from colligate.training.config import TrainConfig
from colligate.training.loop import train
from colligate.training.presets import PicturesConfig
from colligate.verbs.battery import study
from colligate.verbs.config import PaperConfig, RecognizeConfig, StructureConfig, StudyConfig
from colligate.verbs.crossmodal import recognize
from colligate.verbs.structure import structure
from colligate.version import __version__

SHIPPED = (
    ("Shipped: a transformer trained on 80 % of objects", "reference:binds"),
    ("Shipped: an encoder that can't bind", "reference:bag"),
    ("Shipped: pictures and captions, trained with swaps", "reference:pictures"),
    ("Shipped: pictures and captions alone", "reference:captions"),
)
"""What stands for trained models where none are trained: title, and record in `colligate/reference`."""


class Part(NamedTuple):
    """One run of the page: what it is called there, its folder, and the name by which the record finds that."""

    title: str
    folder: Path
    named: str

    @classmethod
    def of(cls, title: str, folder: Path) -> "Part":
        """A run that stands beside the page's own."""
        return cls(title, folder, folder.name)


class Paper(NamedTuple):
    """A finished page of several runs."""

    folder: Path
    parts: tuple[Part, ...]
    record: dict[str, object]
    page: Path


def paper(config: PaperConfig, report: Report | None = None) -> Paper:
    """Run every question of the paper, small, and write one page; what is finished already is taken as it is.

    The real embedder's study (tables 2 to 5, figures 2, 4, 8); dual encoders trained on token scenes at a low and a
    high coverage (figures 5, 6) and the rules that fit them (figures 7 to 9); pictures against captions at both
    coverages, each asked across its towers.

    Args:
        config: which embedder, and how long to train.
        report: told about progress.

    Raises:
        ValueError: the embedder or a coverage can't be had.

    Paper: arXiv:2605.31503, all of it.   Differs: small grids and protocol `strict`; intervals everywhere.
    """
    clock, parts = Clock(report), list[Part]()
    for name, part in _parts(config, report):
        with clock.stage(name):
            parts += part()
    facts = {"kind": "paper", "version": __version__, "config": settings(config),
             "parts": [part.named for part in parts]}  # fmt: skip
    folder = config.runs / f"paper-{content_key(facts)}"
    record = run_facts("paper", "The paper, on models at hand", config, seconds=clock.seconds, memory=peak_memory()) | {
        "question": "How can embedding models bind concepts?",
        "command": command("paper", config),
        "parts": [{"title": part.title, "folder": part.named} for part in parts],
    }  # fmt: skip
    write_record(folder, record, [], {}, {})  # numbers stand in the tables of the parts
    return Paper(folder, tuple(parts), read_record(folder), write_page(folder, config.out))


Run = Callable[[], list[Part]]
"""What does a part of the page."""


def _parts(config: PaperConfig, report: Report | None) -> Iterator[tuple[str, Run]]:
    """Every run, lazily: its stage's name and what does it."""
    if config.embedder:
        yield "the embedder", lambda: [_embedder(config, report)]
    if not config.coverages:
        yield "shipped records", lambda: [Part(title, part_folder(config.runs, name), name) for title, name in SHIPPED]
    trained = list[Path]()
    for coverage in config.coverages:

        def tokens(coverage: float = coverage) -> list[Part]:
            done = train(
                TrainConfig(coverage=coverage, steps=config.steps, seed=config.seed,
                            runs=config.runs, force=config.force), report=report,
            )  # fmt: skip
            trained.append(done.place)
            return [Part.of(f"Trained on {100 * coverage:.0f} % of objects", done.place)]

        yield f"training at {100 * coverage:.0f} %", tokens
    if config.coverages:
        yield "rules of trained models", lambda: [_rules(config, trained, report)]
    for coverage in config.coverages if config.pictures else ():
        yield f"pictures at {100 * coverage:.0f} %", lambda coverage=coverage: _pictures(config, coverage, report)


def _embedder(config: PaperConfig, report: Report | None) -> Part:
    done = study(
        StudyConfig(embedder=config.embedder, scenes=config.scenes, seed=config.seed, runs=config.runs,
                    store=config.store, force=config.force), report=report,
    )  # fmt: skip
    return Part.of(config.embedder, done.place)


def _rules(config: PaperConfig, trained: list[Path], report: Report | None) -> Part:
    done = structure(
        StructureConfig(models=tuple(trained), seed=config.seed, runs=config.runs, force=config.force), report=report
    )
    return Part.of("Rules of the trained models", done.place)


def _pictures(config: PaperConfig, coverage: float, report: Report | None) -> list[Part]:
    """Pictures against captions, trained and then asked across their towers."""
    hold_out = "swaps" if coverage >= 0.5 else "objects"
    done = train(
        PicturesConfig(coverage=coverage, hold_out=hold_out, steps=config.pictures, seed=config.seed,
                       runs=config.runs, force=config.force),
        report=report,
    )  # fmt: skip
    asked = recognize(
        RecognizeConfig(embedder=f"run:{done.folder}", seed=config.seed, runs=config.runs, store=config.store,
                        force=config.force), report=report,
    )  # fmt: skip
    title = f"Pictures and captions of {100 * coverage:.0f} % of objects"
    return [Part.of(title, done.place), Part.of(f"{title}, across towers", asked.place)]
