"""Question 3: recognition by queries and behavioural tests of a two-tower model, each as a run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from colligate.crossmodal.foil_files import FoilFile, PictureFile, read_foils
from colligate.crossmodal.foil_rows import bias_rows, foil_rows, group_rows, table_rows
from colligate.crossmodal.foils import FoilTable, too_long
from colligate.crossmodal.groups import GroupTable
from colligate.crossmodal.measurements import alignment_rows, recognition_rows, reverse_rows, without_rows
from colligate.crossmodal.queries import QueryTemplates, embed_queries, query_tower, scene_tower
from colligate.embedders import load_model
from colligate.embedders.controls import NoControl, random_init
from colligate.embedders.embedding import embed, embed_items
from colligate.embedders.towers import Model, Tower
from colligate.embeddings import Embeddings
from colligate.engine import Clock, Report
from colligate.records import Row, command, one_writer, python, with_random_init
from colligate.runs import Findings, Measurements, carry_out
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.tables import shown
from colligate.scenes.worlds import World
from colligate.verbs.config import FoilsConfig, RecognizeConfig, SourceConfig
from colligate.verbs.provenance import describe_inputs, file_hashes
from colligate.verbs.sources import Inputs, Source, open_model, progress_of, store_of, vectors_hash


@dataclass(frozen=True, eq=False)
class TwoTowers:
    """A model and a world, opened: scenes by one tower, texts by the other.

    Attributes:
        model: both towers.
        world: scenes.
        scene_side: the tower that embeds scenes.
        text_side: the tower that reads texts.
        embeddings: of the scenes.
        notes: what a reader should know.
        objects: fields of the config for which an object of the caller's stands.
    """

    model: Model
    world: World
    scene_side: Tower
    text_side: Tower
    embeddings: Embeddings
    notes: tuple[str, ...]
    objects: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, object]:
        """What decides the vectors."""
        towers = {"scene": self.scene_side, "text": self.text_side}
        found: dict[str, object] = {name: tower.fingerprint for name, tower in towers.items()}
        if self.scene_side.fingerprint is None:
            found["scene"] = vectors_hash(self.embeddings)
        return found

    def source(self, name: str) -> Source:
        """As records describe their inputs."""
        return Source(self.embeddings, name, self.world, self.scene_side, self.model, self.notes, self.facts)


def open_two_towers(config: SourceConfig, report: Report | None = None, inputs: Inputs | None = None) -> TwoTowers:
    """Load a two-tower model and embed a world's scenes with it.

    Raises:
        ValueError: the model lacks one of the towers, or the world doesn't show what they read.
    """
    inputs = inputs or Inputs()
    if inputs.embeddings is not None or (config.of_vectors and inputs.model is None):
        raise ValueError(
            "Queries need a model that reads text; give an embedder's name or a model, not a file of vectors."
        )
    model, world, own = open_model(config, inputs)
    text_side, scene_side = query_tower(model), scene_tower(model, world, config.tower)
    embeddings = embed(scene_side, world, store=store_of(config), progress=progress_of(report), report=report)
    notes = (*model.notes, *world.notes, *own)
    return TwoTowers(model, world, scene_side, text_side, embeddings, notes, inputs.objects)


@one_writer
def recognize(
    config: RecognizeConfig, *, inputs: Inputs | None = None, save: bool = True, report: Report | None = None
) -> Findings:
    """Ask one tower in words for what the other shows: recognition both ways, and why it stands where it stands.

    Args:
        config: which model and world, in which words.
        inputs: what is handed over as objects, where the config names the rest.
        save: whether to leave a run's folder.
        report: told about progress.

    Raises:
        ValueError: the model lacks a tower, or a template a place; the message says what to change.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     config = RecognizeConfig(embedder="oracle:pair-mismatched:256", scenes="clevr", store=Path(folder))
        ...     rows = recognize(config, save=False).rows
        >>> found = {row.id: row.value for row in rows}
        >>> round(found["crossmodal.concept"], 1), found["crossmodal.object"] < 0.6
        (1.0, True)
    """
    clock = Clock(report)
    with clock.stage("embedding"):
        towers = open_two_towers(config, report, inputs)

    def measure() -> Measurements:
        rows = _recognition(towers, config, clock)
        fresh = random_init(towers.model, seed=config.seed)
        if isinstance(fresh, NoControl):
            rows = with_random_init(rows, [], f"no random-init level: {fresh.reason}")
        else:
            with clock.stage("control"):
                side = fresh.towers[towers.scene_side.kind]
                vectors = embed(side, towers.world, store=store_of(config))
                control = replace(
                    towers, model=fresh, scene_side=side, text_side=query_tower(fresh), embeddings=vectors
                )
                rows = with_random_init(rows, _recognition(control, config, Clock()))
        return _described("recognize", towers, config, rows)

    return carry_out("recognize", config, facts_of(towers), measure, name=config.embedder, clock=clock, save=save)


def facts_of(towers: TwoTowers) -> dict[str, object]:
    """What decides the numbers of two towers on a world, beside the settings."""
    return {"inputs": towers.facts, "scenes": towers.world.scenes.content_hash}


def _templates(config: RecognizeConfig) -> QueryTemplates:
    """The wording of queries."""
    return QueryTemplates(values=tuple(config.queries), objects=tuple(config.objects), article=config.article)


def _recognition(towers: TwoTowers, config: RecognizeConfig, clock: Clock) -> list[Row]:
    """All rows of recognition, of a model or of its control."""
    world, over = towers.world, config.intervals
    with clock.stage("queries"):
        queries = embed_queries(towers.text_side, world, _templates(config), store=store_of(config))
    with clock.stage("recognition"):
        rows = recognition_rows(towers.embeddings, queries, over=over) + reverse_rows(towers.embeddings, queries)
        rows += bias_rows(towers.embeddings, queries, over=over)
        if "text" in world.kinds:
            said = embed(towers.text_side, world, store=store_of(config))
            rows += recognition_rows(said, queries, prefix="crossmodal.text", over=over)
            rows += bias_rows(said, queries, of="text", over=over)
    with clock.stage("alignment"):
        rows += alignment_rows(towers.embeddings, queries)
        rows += without_rows(towers.embeddings, queries, over=over, seed=config.seed)
    return rows


@one_writer
def run_foils(
    config: FoilsConfig, *, inputs: Inputs | None = None, save: bool = True, report: Report | None = None
) -> Findings:
    """Test a two-tower model with foils.

    Args:
        config: which model and world, or which file of foils.
        inputs: what is handed over as objects, where the config names the rest.
        save: whether to leave a run's folder.
        report: told about progress.

    Raises:
        ValueError: the model lacks a tower, the world says its scenes in no template, or the table can't be read.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     config = FoilsConfig(embedder="oracle:pair-bag:64", scenes="clevr", store=Path(folder))
        ...     rows = run_foils(config, save=False).rows
        >>> {row.id: row.value for row in rows}["crossmodal.foil.swapped"]
        0.5
    """
    clock = Clock(report)
    if config.table is not None:
        return _test_file(config, config.table, clock, inputs or Inputs(), save=save)
    with clock.stage("embedding"):
        towers = open_two_towers(config, report, inputs)
    captions = towers.world.captions
    if not isinstance(captions, CaptionTemplate):
        raise ValueError(f"World {towers.world.name!r} has no caption template; add --caption to say its foils.")

    def measure() -> Measurements:
        with clock.stage("foils"):
            rows = foil_rows(towers.embeddings, towers.text_side, captions, over=config.intervals, seed=config.seed)
            templates = QueryTemplates(article=config.article)
            queries = embed_queries(towers.text_side, towers.world, templates, store=store_of(config))
            rows += bias_rows(towers.embeddings, queries, over=config.intervals)
        return _described("foils", towers, config, rows)

    return carry_out("foils", config, facts_of(towers), measure, name=config.embedder, clock=clock, save=save)


def _test_file(config: FoilsConfig, path: Path, clock: Clock, inputs: Inputs, *, save: bool) -> Findings:
    """The same for a file of pictures, captions and foils."""
    table = read_foils(path, config.pictures or path.parent, config.seed, skip=config.skip)
    model = inputs.model or load_model(
        config.embedder, device=config.device, dtype=config.dtype, layer=config.layer, pooling=config.pooling,
        normalize=config.normalize, offline=not config.online,
    )  # fmt: skip
    text_side = query_tower(model)
    if "picture" not in model.towers:
        raise ValueError(f"{model.name} has no picture tower, so it can't be shown the pictures of {path.name}.")
    foils = table.without(_unreadable(table, text_side), skip=config.skip)
    facts = {
        "files": file_hashes(table=path),
        "pictures": [[str(one.path.name), one.path.stat().st_size, one.box] for one in foils.pictures],
        "inputs": {kind: getattr(tower, "fingerprint", None) for kind, tower in model.towers.items()},
    }  # fmt: skip

    def measure() -> Measurements:
        with clock.stage("embedding"):
            vectors, broken = _shown(model.towers["picture"], foils.pictures, clock.report, skip=config.skip)
        used = foils.without(_of_pictures(foils, broken), skip=config.skip)
        with clock.stage("foils"):
            rows = file_rows(used, vectors, text_side)
        told = {
            "model": {"name": config.embedder}, "world": {"name": path.name, "layout": used.layout},
            "files": facts["files"],
        }  # fmt: skip
        facts_of_run = asked("foils", config, inputs.objects) | {"inputs": told}
        return Measurements(rows, notes=(*model.notes, *used.all_notes), facts=facts_of_run)

    return carry_out("foils", config, facts, measure, name=config.embedder, clock=clock, save=save)


def asked(kind: str, config: SourceConfig, objects: tuple[str, ...]) -> dict[str, object]:
    """The command and the Python that ask for a run; none where it was given objects, which no text names."""
    if objects:
        return {"command": "", "in_memory": list(objects)}
    return {"command": command(kind, config), "python": python(kind, config)}


def file_rows(found: FoilFile, vectors: torch.Tensor, text_side: Tower) -> list[Row]:
    """Rows of a file's pairs or groups; intervals are over pictures."""
    if isinstance(found.table, FoilTable):
        rows = table_rows("crossmodal.foil.table", vectors, text_side, found.table)
    else:
        rows = group_rows("crossmodal.groups.table", vectors, text_side, found.table)
    told = [found.told] if found.told else []
    return [
        replace(row, family=found.layout, reason="; ".join([*told, *([row.reason] if row.reason else [])]) or None)
        for row in rows
    ]


def _unreadable(found: FoilFile, text_side: Tower) -> dict[int, str]:
    """Row of the file -> the text of it that is too long for the tower."""
    table = found.table
    said = table.captions if isinstance(table, GroupTable) else tuple(zip(table.captions, table.foils, strict=True))
    long = too_long(text_side, [text for texts in said for text in texts])
    bad = dict[int, str]()
    for row, texts in zip(found.rows, said, strict=True):
        text = next((text for text in texts if text in long), None)
        if text is not None:
            bad[row] = f"has {shown(text)}, which {long[text]}; shorten it"
    return bad


def _of_pictures(found: FoilFile, broken: dict[int, str]) -> dict[int, str]:
    """Row of the file -> what is wrong with its picture."""
    places = found.table.rows.reshape(len(found.rows), -1).tolist()
    return {
        row: f"has a picture that can't be used ({next(broken[place] for place in of if place in broken)})"
        for row, of in zip(found.rows, places, strict=True) if any(place in broken for place in of)
    }  # fmt: skip


def _shown(
    tower: Tower, pictures: tuple[PictureFile, ...], report: Report | None, *, skip: bool
) -> tuple[torch.Tensor, dict[int, str]]:
    """A vector for each picture, zero for those that can't be opened, and what is wrong with these.

    Unless they may be skipped, nothing is embedded once one is found: the others are opened to name all that are bad.
    """
    parts, broken = list[torch.Tensor](), dict[int, str]()
    for start in range(0, len(pictures), 256):
        opened = dict[int, Any]()
        for place in range(start, min(start + 256, len(pictures))):
            try:
                opened[place] = pictures[place].open()
            except ValueError as error:
                broken[place] = str(error).rstrip(".")
        if opened and (skip or not broken):
            vectors = embed_items(tower, list(opened.values()), torch.tensor(list(opened)))
            block = vectors.new_zeros(min(256, len(pictures) - start), vectors.shape[1])
            block[torch.tensor(list(opened)) - start] = vectors
            parts.append(block)
        elif skip:
            parts.append(torch.zeros(min(256, len(pictures) - start), 0))
        if report is not None:
            report("embedding", min(start + 256, len(pictures)), len(pictures))
    wide = max((part.shape[1] for part in parts), default=0)
    return torch.cat([part if part.shape[1] else part.new_zeros(len(part), wide) for part in parts] or [
        torch.zeros(0, 0)
    ]), broken  # fmt: skip


def _described(kind: str, towers: TwoTowers, config: SourceConfig, rows: list[Row]) -> Measurements:
    """Rows of two towers, with what the record says of their inputs."""
    scenes = towers.world.scenes
    several = scenes[scenes.counts > 1]
    inputs = describe_inputs(
        config, towers.source(config.embedder), several, singles=len(scenes) - len(several), split=None
    )
    return Measurements(rows, notes=towers.notes, facts=asked(kind, config, towers.objects) | {"inputs": inputs})
