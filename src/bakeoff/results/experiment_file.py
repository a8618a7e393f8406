"""What an experiment file says now about an edition that was run from an earlier version of it.

Until means or a verdict were shown, `[analysis]` may be changed, and `bakeoff compare FILE` uses it. After that it is a
change, which the verdict counts and shows (`verdicts.family`). `bakeoff compare NAME` uses what the edition has on
record, and says so where the file has changed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bakeoff.errors import BakeoffError, UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.layout import editions, experiment_directory
from bakeoff.results.editions import open_edition
from bakeoff.results.table import Declared, Results
from bakeoff.spec import formats
from bakeoff.spec.experiment import Analysis


def open_by_file(path: Path, root: Path) -> Results | None:
    """The newest edition of the experiment that the file describes, judged as the file says now.

    None when it is not an experiment file or nothing was run of it.
    """
    if path.suffix.lower() not in formats.SUFFIXES or not path.is_file() or not isinstance(_read(path), dict):
        return None
    from bakeoff.spec.load import load_plan  # not for `compare NAME`

    try:
        plan = load_plan(path)
    except BakeoffError:
        return None
    if not editions(experiment_directory(root, plan.experiment.name)):
        return None
    results = open_edition(plan.experiment.name, root)
    assert results.declared is not None and results.edition is not None
    before = results.declared.analysis
    now = plan.experiment.analysis.model_copy(update={"final": before.final})
    changes = before.changes(now)
    if not changes:
        return replace(results, notes=())
    what = f"{path}: [analysis] is not that of {results.label} ({'; '.join(changes)})"
    if results.edition.facts()["spec"].get("sequential") is not None:
        results.close()
        raise UsageError(
            f"{what}, and the rule of a sequential test is fixed when it begins; restore the file, or ask for "
            f"{plan.experiment.name!r}"
        )
    if was_shown(results):
        note = f"{what}; results had been shown before, so this is a changed analysis"
        return replace(results, analysis=now, notes=(note,))
    note = f"{what}; no result had been shown, so the file counts"
    return replace(results, analysis=now, declared=Declared(now, results.declared.arms), notes=(note,))


def was_shown(results: Results) -> bool:
    """Whether means or a verdict on enough runs were shown before."""
    return any(look.kind != "too few" for look in results.looks)


def changed_file(edition: Edition) -> str:
    """A sentence about the edition's experiment file, if its `[analysis]` is another one by now; else empty."""
    sessions = edition.sessions()
    source = sessions[-1]["provenance"].get("experiment") if sessions else None
    if not source or not Path(source).is_file():
        return ""
    path = Path(source)
    places = (edition.paths.frozen(path.suffix), path)
    try:
        if places[0].read_bytes() == places[1].read_bytes():
            return ""
    except OSError:
        return ""
    tables = [_read(place) for place in places]
    before, now = (tree.get("analysis") or {} if isinstance(tree, dict) else None for tree in tables)
    if not isinstance(before, dict) or not isinstance(now, dict) or before == now:
        return ""
    try:
        # `run` takes over a change as long as nothing was shown.
        parsed = Analysis.model_validate(now).model_dump(mode="json")
    except ValueError:
        return ""
    recorded = edition.facts()["spec"]["analysis"]
    keys = [
        key
        for key in dict.fromkeys((*before, *now))
        if before.get(key) != now.get(key) and parsed.get(key) != recorded.get(key)
    ]
    if not keys:
        return ""
    said = ", ".join(f"{key} = {now[key]}" if key in now else f"no {key}" for key in keys)
    return (
        f"{path.name} now says {said}; this uses the [analysis] that the edition has on record, and "
        f"`bakeoff compare {path}` uses the file's"
    )


def _read(path: Path) -> Any:
    """The nested tables of a file; None when it cannot be read."""
    try:
        return formats.read(path.read_text(encoding="utf-8"), path.suffix.lower())
    except (OSError, ValueError, BakeoffError):
        return None
