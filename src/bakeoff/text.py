"""Numbers, durations and tables as people read them, and text from outside made safe to print.

Everything that shows something to people uses this module: answers, reports and the command line. It imports nothing heavy.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

NOTHING = "-"
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b[\]PX^_].*?(?:\x1b\\|\x07|$)"  # OSC, DCS and the like: titles, clipboard, links
    r"|\x1b[ -/]*[0-~]?"  # any other escape
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]",  # control characters but tab and newline
    re.DOTALL,
)


_SURROGATES = re.compile("[\ud800-\udfff]")
"""What Python puts for bytes of a file name that are not UTF-8. No output can be encoded with one."""


def printable(text: str) -> str:
    """Text from outside without terminal escapes and control characters: a run's output must not drive a terminal."""
    return _SURROGATES.sub("\ufffd", _ESCAPES.sub("", text))


FORMULA = r"^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""A cell that starts like this is a formula to a spreadsheet (https://owasp.org/www-community/attacks/CSV_Injection)."""
NOT_A_FORMULA = r"^([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|--[a-z_\-]+( --[a-z_\-]+)*)$"
"""Numbers, and the flags of a command line (the sweep runner's table has a column of them)."""


def csv_text(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV. Text that a spreadsheet would run as a formula gets an apostrophe; None is an empty cell."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in (headers, *rows):
        formulas = [
            isinstance(cell, str) and re.match(FORMULA, cell) and not re.match(NOT_A_FORMULA, cell) for cell in row
        ]
        writer.writerow([f"'{cell}" if formula else cell for cell, formula in zip(row, formulas, strict=True)])
    return out.getvalue()


def one_line(text: str | None, limit: int = 100) -> str:
    """The last line that says something (where Python puts the error), shortened."""
    lines = [line.strip() for line in printable(text or "").splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1] if len(lines[-1]) <= limit else lines[-1][: limit - 3] + "..."


def flat(text: str | None, limit: int = 100) -> str:
    """All of the text on one line, shortened: for an error whose first line says what it is."""
    words = " ".join(printable(text or "").split())
    return words if len(words) <= limit else words[: limit - 3] + "..."


def number(value: Any) -> str:
    """A metric for people: four significant digits or a whole number."""
    if value is None:
        return NOTHING
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e6):
        return str(int(value))
    return f"{value:.4g}"


def figure(value: float | None, *, signed: bool = False) -> str:
    """An effect or a mean in a table: four digits, and no powers of ten where a reader would count zeros."""
    if value is None:
        return NOTHING
    value += 0.0  # turns -0.0 into 0.0
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞" if value < 0 else "nan"
    sign = "+" if signed and value else ""
    return f"{value:{sign},.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:{sign}.4g}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def utc(stamp: float | None) -> str:
    """The same on every machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(stamp)) if stamp is not None else NOTHING


def standard(value: Any) -> Any:
    """The value as standard JSON can hold it: NaN and infinities become null, paths become text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): standard(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [standard(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


# -- tables

_COLOURS = {
    "succeeded": "green",
    "complete": "green",
    "failed": "red",
    "timeout": "red",
    "infra_error": "yellow",
    "cancelled": "yellow",
    "running": "cyan",
}
_FOLDED = 20
"""A column narrower than this is not folded."""
_GAP = 2


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Aligned columns, cut nowhere: what goes into a pipe or a file. `right` names the right-aligned columns."""
    clean = [[printable(cell).replace("\n", " ") for cell in row] for row in (headers, *rows)]
    widths = [max(len(row[column]) for row in clean) for column in range(len(headers))]
    lines = []
    for row in clean:
        cells = [
            cell.rjust(width) if header in right else cell.ljust(width)
            for cell, width, header in zip(row, widths, headers, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def drawn_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str], title: str, width: int
) -> str:
    """A table for a terminal of this width, in colour. Columns that do not fit beside each other go into another block."""
    import io

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    clean = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    console = Console(file=io.StringIO(), width=width, force_terminal=True, highlight=False)
    for columns in _blocks(headers, clean, width):
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        if title:
            table.title, table.title_justify, title = Text(title, "bold"), "left", ""
        for column in columns:
            table.add_column(
                Text(printable(headers[column])),
                justify="right" if headers[column] in right else "left",
                no_wrap=0 < column < len(headers) - 1 and len(columns) > 2,
                overflow="fold",
            )
        for row in clean:
            table.add_row(*(Text(row[column], _COLOURS.get(row[column], "")) for column in columns))
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n")


def _blocks(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Columns that fit beside each other; the first one, which names the lines, is in every block.

    The first and the last column can be folded, so they need less than what is in them.
    """
    from rich.cells import cell_len

    needs = [max(map(cell_len, (header, *(row[column] for row in rows)))) for column, header in enumerate(headers)]
    needs[0], needs[-1] = min(needs[0], _FOLDED), min(needs[-1], _FOLDED)
    blocks: list[list[int]] = [[0]]
    for column in range(1, len(headers)):
        used = sum(needs[each] + _GAP for each in (*blocks[-1], column))
        if used > width and len(blocks[-1]) > 1:
            blocks.append([0])
        blocks[-1].append(column)
    return blocks


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    cells = [[printable(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in (headers, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], f"|{'---|' * len(headers)}", *lines[1:]]
