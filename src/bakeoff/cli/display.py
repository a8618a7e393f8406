"""What verbs print: tables for people and JSON for programs."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from bakeoff.text import NOTHING, drawn_table, duration, number, one_line, plain_table, printable, standard

__all__ = [
    "NOTHING", "ago", "duration", "moment", "number", "one_line", "print_facts", "print_json", "print_table", "printable",
    "standard",
]  # fmt: skip


def print_json(value: Any) -> None:
    """Standard JSON: NaN and infinities are null."""
    click.echo(json.dumps(standard(value), indent=2, ensure_ascii=False, allow_nan=False))


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), title: str = ""
) -> None:
    """Drawn on a terminal; aligned columns in a pipe or file. `right` names the right-aligned columns."""
    if sys.stdout.isatty():
        click.echo(drawn_table(headers, rows, right, title, shutil.get_terminal_size().columns))
        return
    if title:
        click.echo(title)
    click.echo(plain_table(headers, rows, right))


def print_facts(facts: Mapping[str, str]) -> None:
    """`name  value` lines with the values below each other."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        click.echo(f"{name.ljust(width)}  {printable(value)}")


def moment(stamp: float | None) -> str:
    """A time on this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stamp)) if stamp is not None else NOTHING


def ago(stamp: float) -> str:
    seconds = time.time() - stamp
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"
