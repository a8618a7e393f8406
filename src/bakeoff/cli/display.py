"""What verbs print: tables and facts for people, JSON for programs."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from bakeoff.text import drawn_table, plain_table, printable, standard

if TYPE_CHECKING:
    from bakeoff.records.recorded import Recorded

TALLY = ("planned", "succeeded", "failed", "missing")
"""How runs are counted wherever an edition is described. Missing runs have no outcome: open, cancelled, infra_error."""


def print_json(value: Any) -> None:
    """Print `value` as standard JSON: NaN and infinities become null, paths become text."""
    click.echo(json.dumps(standard(value), indent=2, ensure_ascii=False, allow_nan=False))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table: drawn on a terminal, aligned columns in a pipe or file. `right` names right-aligned columns."""
    if sys.stdout.isatty():
        click.echo(drawn_table(headers, rows, right, "", shutil.get_terminal_size().columns))
    else:
        click.echo(plain_table(headers, rows, right))


def print_facts(facts: Mapping[str, str]) -> None:
    """Print `name  value` lines with aligned values."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        click.echo(f"{name.ljust(width)}  {printable(value)}")


def listed(names: Sequence[Any], most: int) -> str:
    """`3: few, some, many`: how many there are, and the first `most` of them."""
    return f"{len(names)}: {', '.join(str(name) for name in names[:most])}" + (", ..." if len(names) > most else "")


def ago(stamp: float) -> str:
    """`3 h ago` for a time in seconds since the epoch."""
    seconds = time.time() - stamp
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"


def edition_facts(edition: Recorded) -> dict[str, Any]:
    """What `ls`, `status` and `import` say about an edition: names, state, age, run counts and place, as JSON has it."""
    from bakeoff.records.layout import is_held
    from bakeoff.records.run import Tally

    facts, paths, tally = edition.facts(), edition.paths, Tally.of(edition.counts())
    return {
        "experiment": paths.experiment,
        "edition": paths.name,
        "state": "running" if is_held(paths.lease) else "complete" if facts["complete"] else "unfinished",
        "created_at": facts["created_at"],
        **{name: getattr(tally, name) for name in TALLY},
        "directory": paths.directory,
    }
