"""The verbs of two-tower models: recognize, foils and repair."""

from typing import TYPE_CHECKING

from colligate.cli.tables import show_run
from colligate.cli.terminal import take_flag, tell
from colligate.options import parse
from colligate.progress import progress

if TYPE_CHECKING:
    from colligate.records import Row
    from colligate.runs import Findings


def recognize_verb(words: list[str]) -> int:
    """Ask a two-tower model in words and print what it finds."""
    from colligate.verbs.config import RecognizeConfig

    as_json, words = take_flag(words, "--json")
    about = "Ask a two-tower model in words for what its scenes hold. Add --json for rows as JSON."
    config = parse(RecognizeConfig, "recognize", about, words)
    from colligate.verbs.crossmodal import recognize

    with progress(quiet=as_json) as report:
        result = recognize(config, report=report)
    hidden = ("crossmodal.without.", "crossmodal.ties.", "crossmodal.text.ties.")
    return _told(result, as_json, [row for row in result.rows if not row.id.startswith(hidden)])


def foils_verb(words: list[str]) -> int:
    """Test a two-tower model with foils and print what it prefers."""
    from colligate.verbs.config import FoilsConfig

    as_json, words = take_flag(words, "--json")
    about = "Test a two-tower model with foils. Add --json for rows as JSON."
    config = parse(FoilsConfig, "foils", about, words)
    from colligate.verbs.crossmodal import run_foils

    with progress(quiet=as_json) as report:
        result = run_foils(config, report=report)
    return _told(result, as_json, result.rows)


def repair_verb(words: list[str]) -> int:
    """Fit maps of texts, or train both towers on, and print what it brings and costs."""
    from colligate.verbs.config import RepairConfig

    as_json, words = take_flag(words, "--json")
    about = "Repair a two-tower model by maps of texts, or by training it on. Add --json for rows as JSON."
    config = parse(RepairConfig, "repair", about, words)
    from colligate.verbs.repair import repair

    with progress(quiet=as_json) as report:
        result = repair(config, report=report)
    ceiling = "crossmodal.repair.ceiling."
    leading = [row for row in result.rows if not row.id.startswith(ceiling) or row.id.endswith(".object.swap")]
    code = _told(result, as_json, leading)
    if not as_json:
        tell(f"Study it: colligate recognize repaired:{result.folder}")
    return code


def _told(result: "Findings", as_json: bool, rows: "list[Row]") -> int:
    """The finding, rows, notes, and where the record and the page are."""
    show_run(result.place, result.record, result.rows if as_json else rows, as_json=as_json)
    return 0
