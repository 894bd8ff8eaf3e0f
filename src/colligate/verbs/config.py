"""What a verb is asked to do: dataclasses whose fields are the command line's flags."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from colligate.choices import EMBEDDERS, PICKLES, VALUE_QUERIES, Over, PenaltyKind

if TYPE_CHECKING:
    from colligate.crossmodal.repair import RepairSettings
    from colligate.verbs.finetune import FineTuneSettings

VECTOR_FILES = (".safetensors", ".npy", ".parquet", *PICKLES)
"""Suffixes of an `embedder` that is a file of vectors; pickles are among them, to be refused as such."""


@dataclass(frozen=True, kw_only=True)
class VectorsConfig:
    """Which vectors of which scenes."""

    embedder: str
    """An embedder's name (sbert:..., hf:..., oracle:..., package.module:factory; `colligate embedders` lists them) or a
    file of vectors (.safetensors, .npy, .parquet) that `labels` describes."""
    scenes: str = ""
    """A built-in world (`colligate worlds` lists them) or a labels table of your own (.csv, .parquet); default: text8x8
    for a model that reads texts only, else clevr2d."""
    labels: Path | None = None
    """Labels of a file of vectors: one row a scene."""
    space: Path | None = None
    """JSON file that names every concept's values, where the table's own are not enough."""
    keep: tuple[str, ...] = ()
    """Rows of the labels table to keep, as column=cell, such as world_name=Desert; all by default."""
    tower: Literal["text", "picture", "scene"] | None = None
    """Which tower to study; by default the first that reads what the world shows."""
    caption: str | None = None
    """Template of one object's words in captions, such as "a {color} {shape}"."""
    words: tuple[str, ...] = ()
    """Other words for values, in captions and queries, such as cube=square for a model that never learned "cube"."""
    layer: int | None = None
    """Layer to read, 0 for the input embeddings, negative from the end; default: the model's own output."""
    pooling: str | None = None
    """How tokens become one vector; default: the model's own way."""
    normalize: bool = False
    """Divide every vector by its length. Raw vectors are the default, and the page says where that matters."""
    device: str = "auto"
    """Where the model runs."""
    dtype: str = "float32"
    """Precision of the model."""
    online: bool = False
    """Let model libraries download what is not on this machine."""
    store: Path | None = None
    """Folder in which embedded vectors are kept; default: ~/.cache/colligate, or $COLLIGATE_STORE."""

    @property
    def of_vectors(self) -> bool:
        """Whether `embedder` is a file of vectors: by its suffix, or as labels stand beside what names no model."""
        prefix, colon, _ = self.embedder.partition(":")
        if colon and prefix in EMBEDDERS:  # a model, even if what follows is a file: open_clip:ViT-B-32/w.safetensors
            return False
        return Path(self.embedder).suffix.lower() in VECTOR_FILES or (self.labels is not None and not colon)


@dataclass(frozen=True, kw_only=True)
class SourceConfig(VectorsConfig):
    """The same, to be measured: what every verb that leaves a run is given."""

    seed: int = 0
    """Of splits and choices."""
    intervals: Over = "values"
    """What 95 % intervals speak of: other values, and the objects made of them, or other objects of the same values
    (narrower; a claim about these values alone)."""
    runs: Path = Path("runs")
    """Folder of run folders."""
    force: bool = False
    """Measure again even if the same run is finished."""


@dataclass(frozen=True, kw_only=True)
class BatteryConfig(SourceConfig):
    """What every battery is asked; `as_study` makes a study of it."""

    protocol: Literal["strict", "paper"] = "strict"
    """strict: choose on validation, report on test. paper: as the authors' code does (slow)."""


@dataclass(frozen=True, kw_only=True)
class MeasureConfig(BatteryConfig):
    """What one measurement is given: fitted on one part of the scenes, chosen on another, reported on the third."""

    fit: float = 0.6
    """Share of scenes to fit on (strict)."""
    validation: float = 0.2
    """Share of scenes to choose on (strict)."""
    control: Path | None = None
    """Vectors of a random model for the same labels, as the random-init level of a file of vectors."""

    def __post_init__(self) -> None:
        if self.control is not None and not self.of_vectors:
            raise ValueError("--control goes with a file of vectors; a model has its own control.")


@dataclass(frozen=True, kw_only=True)
class EditConfig(MeasureConfig):
    """What is edited, and how often."""

    edits: Path | None = None
    """A list of edits to replay (paper)."""
    edit_budget: int = 10_000
    """Most edits of one kind that are scored; above it, a seeded choice."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edits is not None and self.protocol != "paper":
            raise ValueError("An edit list is replayed under protocol paper; add --protocol paper.")


@dataclass(frozen=True, kw_only=True)
class StudyConfig(EditConfig):
    """What to study and how."""

    depth: bool = True
    """Also measure the model's layers, where it shows them."""
    families: tuple[str, ...] = ()
    """Rules that are fitted on some objects and scored on others (`colligate complexity --help` lists them); default:
    additive, object_product, mlp64, mlp256, and under protocol paper the authors' own."""
    coverages: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8)
    """Share of the objects that they are fitted on; an area is over these and comparable over the same alone. Of large
    worlds rules learn from a choice of scenes (`colligate complexity --help`)."""
    out: Path | None = None
    """Where to write the page; default: in the run's folder."""


@dataclass(frozen=True, kw_only=True)
class ComplexityConfig(BatteryConfig):
    """Which rules to fit, at which coverages."""

    families: tuple[str, ...] = ("additive", "object_product", "global_product", "mlp64", "mlp256", "mlp1024")
    """Rules that are fitted on some objects and scored on others (under protocol paper, the authors' own unless
    others are given). Also convolution, mlp<width>, bilinear<rank>, object_product.head, global_product.head, forest,
    boosted, package.module:factory."""
    coverages: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Share of the objects that they are fitted on; an area is over these and comparable over the same alone. In a
    world of over 20,000 scenes, a rule learns from at most 10,000 at each and a set of probes from 20,000 (a seeded
    choice, which the rows name); for the code length, a rule learns from at most 10,000 before each block."""


ASKED: Mapping[str, type[BatteryConfig]] = {"edits": EditConfig, "complexity": ComplexityConfig}
"""Battery -> what the verb that takes it alone is asked; `MeasureConfig` for the others."""


def as_study(config: BatteryConfig) -> StudyConfig:
    """The study that a config asks for: its own settings, and the defaults of all that it doesn't have.

    Example:
        >>> as_study(ComplexityConfig(embedder="oracle:no-binding", coverages=(0.5,))).coverages
        (0.5,)
    """
    if isinstance(config, StudyConfig):
        return config
    return StudyConfig(**{field.name: getattr(config, field.name) for field in fields(config)})


@dataclass(frozen=True, kw_only=True)
class EmbedConfig(VectorsConfig):
    """What to embed, and where the vectors go."""

    out: Path = Path("vectors")
    """Folder for vectors.safetensors and labels.csv."""


@dataclass(frozen=True, kw_only=True)
class RecognizeConfig(SourceConfig):
    """Which two-tower model to ask, about what, in which words."""

    queries: tuple[str, ...] = VALUE_QUERIES
    """Texts that ask for one value; {value} stands for any concept's word, {color} for a color's only. Several are an
    ensemble."""
    objects: tuple[str, ...] = ()
    """Texts that ask for one object, such as "a photo of a {color} {shape}"; default: as captions say it."""
    article: bool = False
    """Say "an" before a vowel."""


@dataclass(frozen=True, kw_only=True)
class FoilsConfig(SourceConfig):
    """Which two-tower model to test with foils, made of a world's scenes or read from a file."""

    table: Path | None = None
    """Pictures, captions and foils (.csv, .parquet, .json, .jsonl): your own, or in the layout of ARO, SugarCrepe or
    Winoground."""
    pictures: Path | None = None
    """Folder of the pictures that `table` names; default: the table's own."""
    skip: bool = False
    """Leave out rows of `table` that can't be used (a foil equal to its caption, no picture, too long a caption);
    every number says how many."""
    article: bool = False
    """Say "an" before a vowel in queries."""


@dataclass(frozen=True, kw_only=True)
class RepairConfig(SourceConfig):
    """Which two-tower model to repair, and by what."""

    kinds: tuple[Literal["linear", "low_rank", "mlp", "product", "finetune"], ...] = ("linear",)
    """Repairs to fit; the first one is kept as an embedder. `linear`: one matrix on the text side (LABCLIP).
    `low_rank`, `mlp`: controls. `product`: values multiplied per object; it takes concepts parsed from captions, not
    the text tower's vectors. `finetune`: new weights for both towers of a model of `colligate train --preset pictures`,
    trained on with swap negatives."""
    coverages: tuple[float, ...] = (0.3, 0.5, 0.7)
    """Shares of the objects to fit on; the repair of the largest one that can be had is kept."""
    hold_out: Literal["drawn", "training"] = "drawn"
    """Which objects are held out: drawn ones, at each coverage, or those that the model's own training held out, so
    that what it is judged on was never shown to it at all (models of `colligate train --preset pictures`)."""
    queries: tuple[str, ...] = VALUE_QUERIES
    """Texts that ask for one value, as for `colligate recognize`."""
    objects: tuple[str, ...] = ()
    """Texts that ask for one object; default: as captions say it."""
    article: bool = False
    """Say "an" before a vowel."""
    steps: int = 150
    """Training steps for each candidate; 0 keeps closed forms."""
    rank: int = 16
    """Rank of `low_rank`, and of mixed products."""
    hidden: int = 256
    """Hidden units of `mlp`."""
    finetune_steps: int = 500
    """Training steps of `finetune`."""
    finetune_rate: float = 2e-3
    """Highest learning rate of `finetune`."""
    penalty: PenaltyKind = "none"
    """Pull the picture tower of `finetune` towards a simple binding function: object-products, or additive (which can't
    bind)."""
    penalty_weight: float = 0.1
    """Weight of the penalty."""
    ceiling: bool = True
    """Also measure how far repairs could go, by what the picture tower alone tells of unseen objects."""

    def __post_init__(self) -> None:
        if not self.kinds or not self.coverages:
            raise ValueError("A repair needs at least one kind of map and one coverage; add --kinds linear.")

        _ = self.maps, self.finetuning  # each checks its own part
        if self.penalty != "none" and "finetune" not in self.kinds:
            raise ValueError("The penalty acts on new weights only; add finetune to --kinds, or leave it out.")

    @property
    def maps(self) -> "dict[str, RepairSettings]":
        """How each kind of map is fitted."""
        from colligate.crossmodal.repair import RepairSettings

        return {
            kind: RepairSettings(kind=kind, steps=self.steps, rank=self.rank, hidden=self.hidden, seed=self.seed)
            for kind in self.kinds if kind != "finetune"
        }  # fmt: skip

    @property
    def finetuning(self) -> "FineTuneSettings":
        """How weights are trained on."""
        from colligate.verbs.finetune import FineTuneSettings

        return FineTuneSettings(
            steps=self.finetune_steps, rate=self.finetune_rate, penalty=self.penalty, penalty_weight=self.penalty_weight
        )


@dataclass(frozen=True, kw_only=True)
class RuleSettings:
    """Which rules are fitted to each tower, and how they are read."""

    families: tuple[str, ...] = ("additive", "object_product", "object_product.head", "mlp64")
    """Rules that are fitted (`colligate complexity --help`)."""
    coverages: tuple[float, ...] = (0.5,)
    """Shares of the objects that the rules are fitted on, at random, whatever training showed."""
    heads: Literal["probes", "queries"] = "probes"
    """What reads the rules' predictions: linear probes, or the model's own query vectors (the paper)."""
    scenes: int = 20_000
    """Most scenes of two objects that a model is asked for; a seeded choice of all ordered pairs."""
    seed: int = 0
    """Of choices and resamplings."""


@dataclass(frozen=True, kw_only=True)
class StructureConfig(RuleSettings):
    """Which models, and which rules are fitted to them."""

    models: tuple[Path, ...]
    """Folders that `train` or `sweep` left; of any other two-tower model, its runs of `study` or `complexity` (one for
    each tower) and of `recognize`, whose rules are taken as they are."""
    runs: Path = Path("runs")
    """Folder of run folders."""
    force: bool = False
    """Fit again even if the same run is finished."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("Name one or more folders that `train` or `sweep` left.")


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """Which runs to compare."""

    first: Path
    """Folder of a finished run: the one that the others are compared with."""
    others: tuple[Path, ...]
    """Folders of one or more other runs."""
    all: bool = False
    """Compare every number, not only the leading ones."""

    def __post_init__(self) -> None:
        if not self.others:
            raise ValueError("Name two or more runs to compare: colligate compare runs/study-A runs/study-B.")


@dataclass(frozen=True, kw_only=True)
class PaperConfig:
    """What stands for the paper's models, and how long ours are trained."""

    embedder: str = "sbert:all-MiniLM-L6-v2"
    """The real embedder of tables 2 to 5 and figures 2, 4 and 8; empty for none."""
    scenes: str = "text8x8"
    """Its world."""
    coverages: tuple[float, ...] = ()
    """Shares of the objects on which models are trained here (figures 6 to 9), some minutes each; none: the records of
    trained models that come with colligate are shown, as such."""
    steps: int = 800
    """Steps of each training of token scenes."""
    pictures: int = 600
    """Steps of each training of pictures against captions; 0 for none."""
    seed: int = 0
    """Of everything."""
    out: Path | None = None
    """Where to write the page; default: in the run's folder."""
    runs: Path = Path("runs")
    """Folder of run folders."""
    store: Path | None = None
    """Folder in which embedded vectors are kept."""
    force: bool = False
    """Run again even what is finished."""

    def __post_init__(self) -> None:
        if not self.embedder and not self.coverages:
            raise ValueError("Name an embedder, a coverage to train at, or both.")
