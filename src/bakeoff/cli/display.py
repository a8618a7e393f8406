"""What verbs print: tables for people, JSON for programs, and nothing that a run's output could smuggle in."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from bakeoff.report.text import NOTHING, duration, number, one_line, printable, standard

__all__ = [
    "NOTHING",
    "ago",
    "duration",
    "moment",
    "number",
    "one_line",
    "print_facts",
    "print_json",
    "print_table",
    "printable",
    "standard",
]

_FOLDED = 20
"""A column narrower than this is not folded."""
_GAP = 2
_COLOURS = {
    "succeeded": "green",
    "complete": "green",
    "failed": "red",
    "timeout": "red",
    "infra_error": "yellow",
    "cancelled": "yellow",
    "running": "cyan",
}


def print_json(value: Any) -> None:
    """Standard JSON: what is no number (NaN, infinities) is null."""
    click.echo(json.dumps(standard(value), indent=2, ensure_ascii=False, allow_nan=False))


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), title: str = ""
) -> None:
    """A drawn table on a terminal; aligned columns, cut nowhere, in a pipe or file."""
    clean = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(headers, clean, right, title)
        return
    if title:
        click.echo(title)
    widths = [max(len(row[i]) for row in [list(headers), *clean]) for i in range(len(headers))]
    for row in [list(headers), *clean]:
        cells = [c.rjust(w) if h in right else c.ljust(w) for c, w, h in zip(row, widths, headers, strict=True)]
        click.echo("  ".join(cells).rstrip())


def _draw(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for columns in _blocks(headers, rows, console.width):
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        if title:
            table.title, table.title_justify, title = Text(title, "bold"), "left", ""
        for index in columns:
            table.add_column(
                Text(headers[index]),
                justify="right" if headers[index] in right else "left",
                no_wrap=0 < index < len(headers) - 1 and len(columns) > 2,
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(Text(row[index], _COLOURS.get(row[index], "")) for index in columns))
        console.print(table)


def _blocks(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Columns that fit beside each other; the first one, which names the lines, is in every block.

    The first and the last column can be folded, so they need less than what is in them.
    """
    from rich.cells import cell_len

    needs = [max(map(cell_len, (header, *(row[index] for row in rows)))) for index, header in enumerate(headers)]
    needs[0], needs[-1] = min(needs[0], _FOLDED), min(needs[-1], _FOLDED)
    blocks: list[list[int]] = [[0]]
    for index in range(1, len(headers)):
        used = sum(needs[column] + _GAP for column in (*blocks[-1], index))
        if used > width and len(blocks[-1]) > 1:
            blocks.append([0])
        blocks[-1].append(index)
    return blocks


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
