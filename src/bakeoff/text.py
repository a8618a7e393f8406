"""Numbers, durations and tables as people read them, and text from outside made safe to print.

Everything that shows something to people uses this module: answers, reports and the command line. It imports nothing heavy.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from unicodedata import combining, east_asian_width

NOTHING = "-"
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b[\]PX^_].*?(?:\x1b\\|\x07|$)"  # OSC, DCS and the like: titles, clipboard, links
    r"|\x1b[ -/]*[0-~]?"  # any other escape
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]",  # control characters but tab and newline
    re.DOTALL,
)


_TAGS = re.compile(r"<(?=[A-Za-z/!?])")
_SURROGATES = re.compile("[\ud800-\udfff]")
"""What Python puts for bytes of a file name that are not UTF-8. No output can be encoded with one."""


_DIRECTIONS = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""They change the order in which text is read (CVE-2021-42574). Right-to-left text does not need them."""


def printable(text: str) -> str:
    """Text from outside without terminal escapes and control characters: a run's output must not drive a terminal.

    Characters that would show text in another order stand there by their names, such as `\\u202e`.
    """
    text = _SURROGATES.sub("\ufffd", _ESCAPES.sub("", text))
    return text if text.isascii() else _DIRECTIONS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def paragraph(text: str) -> str:
    """Printable text without its line breaks: a name with some must not begin a line that somebody takes for a verdict."""
    return " ".join(printable(text).splitlines())


_FORMULA = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""A cell that starts with one of these is a formula to a spreadsheet (https://owasp.org/www-community/attacks/CSV_Injection)."""
_NOT_A_FORMULA = re.compile(r"([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|--[a-z_\-]+( --[a-z_\-]+)*)$")
"""Numbers, and the flags of a command line (the sweep runner's table has a column of them)."""


def csv_text(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV. Text that a spreadsheet would run as a formula gets an apostrophe; None is an empty cell."""
    import csv
    import io

    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_csv_cell(cell) for cell in row] for row in (headers, *rows))
    return out.getvalue()


def _csv_cell(cell: Any) -> Any:
    """A cell of CSV as a spreadsheet may read it: text that it would run as a formula gets an apostrophe."""
    is_formula = isinstance(cell, str) and cell[:1] in _FORMULA and not _NOT_A_FORMULA.match(cell)
    return f"'{cell}" if is_formula else cell


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


# -- numbers: every number that people read is written by these functions


def number(value: Any, *, sign: bool = False) -> str:
    """Four significant digits, whole numbers in full, commas from 10,000 on; text and None (`-`) as they are.

    Powers of ten only where a reader would count zeros. `sign` puts a plus before what is above zero.
    """
    if value is None:
        return NOTHING
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    if isinstance(value, float) and not math.isfinite(value):
        return "∞" if value > 0 else "-∞" if value < 0 else "nan"
    plus = "+" if sign and value > 0 else ""
    if isinstance(value, int) or (value == int(value) and abs(value) < _GREAT):
        return f"{plus}{int(value):,}" if abs(value) >= _GROUPED else f"{plus}{int(value)}"
    return f"{plus}{value:,.0f}" if _GROUPED <= abs(value) < _GREAT else f"{plus}{value:.4g}"


_GROUPED, _GREAT = 1e4, 1e9
"""From here on digits are grouped, and from there on only four of them are written."""


def percent(share: float | None, *, sign: bool = False) -> str:
    """`12.5 %` for 0.125: three significant digits."""
    if share is None:
        return NOTHING
    plus = "+" if sign and share > 0 else ""
    return f"{plus}{100 * share + 0.0:.3g} %"


def format_p(p: float | None, floor: float | None = None) -> str:
    """A p-value. Never 0: a p at the smallest value that this many units can give says so."""
    if p is None:
        return NOTHING
    text = f"{p:.2g}" if p < 0.001 else f"{p:.3f}"
    return f"{text} (the smallest possible)" if floor is not None and p <= floor * (1 + 1e-9) and p < 1 else text


class Ends(Protocol):
    """What `stats.evidence.Interval` has."""

    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def level(self) -> float: ...
    @property
    def low_open(self) -> bool: ...
    @property
    def high_open(self) -> bool: ...


def format_ends(interval: Ends | None) -> str:
    """`[0.1 to 0.3]`; a round bracket stands at an end that is not in the interval: `(0 to 0.3]`."""
    if interval is None:
        return NOTHING
    left = "(" if interval.low_open or math.isinf(interval.low) else "["
    right = ")" if interval.high_open or math.isinf(interval.high) else "]"
    return f"{left}{number(interval.low)} to {number(interval.high)}{right}"


def format_interval(interval: Ends | None, *, in_table: bool = False) -> str:
    """`95 % interval [0.1 to 0.3]`, and in a table `[0.1 to 0.3] (95 %)`."""
    if interval is None:
        return NOTHING
    ends, level = format_ends(interval), format_level(interval.level)
    return f"{ends} ({level})" if in_table else f"{level} interval {ends}"


def format_level(level: float) -> str:
    """`99.38 %`: the level of an interval needs one digit more than a share."""
    return f"{100 * level:.4g} %"


def short(name: str, most: int = 30) -> str:
    """A name of at most that many characters, cut in the middle: its end is often what tells names apart."""
    head, tail = (most - 1) // 2, most - 1 - (most - 1) // 2
    return name if len(name) <= most else f"{name[:head]}…{name[-tail:]}"


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
    "better": "green",
    "worse": "red",
    "equivalent": "blue",
    "undecided": "yellow",
}
_FOLDED = 20
"""A column narrower than this is not folded."""
_GAP = 2


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Aligned columns, cut nowhere: what goes into a pipe or a file. `right` names the right-aligned columns."""
    clean = [[paragraph(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(across(row[column]) for row in clean) for column in range(len(headers))]
    lines = []
    for row in clean:
        cells = [
            padded(cell, width, to_the_right=header in right)
            for cell, width, header in zip(row, widths, headers, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def across(text: str) -> int:
    """Columns of a terminal that the text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def padded(text: str, width: int, *, to_the_right: bool = False) -> str:
    """The text with spaces up to that many columns."""
    space = " " * (width - across(text))
    return space + text if to_the_right else text + space


def drawn_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str], title: str, width: int
) -> str:
    """A table for a terminal of this width, in colour. Columns that do not fit beside each other go into another block."""
    import io

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    clean = [[paragraph(cell) for cell in row] for row in rows]
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


@dataclass(frozen=True, slots=True)
class Stroke:
    """One line of a forest plot: a value and its interval, whose ends may be infinite, or NaN where there is none."""

    value: float
    low: float
    high: float


_NARROWEST, _WIDEST, _SHORTEST = 24, 60, 12
"""A forest plot has at least and at most so many columns; a name is not cut below so many characters."""


def fitted_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str],
    width: int,
    optional: Sequence[str] = (),
    strokes: Sequence[Stroke | None] = (),
    span: tuple[float, float] = (0.0, 1.0),
) -> str:
    """One line for each row, for a terminal of this width, in colour.

    Names in the first column are cut where they must be, then `optional` columns are left out, in this order. Where
    there is room, each row has its stroke beside it: a forest plot over `span`.
    """
    import click

    clean = [[paragraph(cell) for cell in row] for row in rows]
    columns = list(range(len(headers)))
    widths = [max(map(across, (header, *(row[column] for row in clean)))) for column, header in enumerate(headers)]

    def room() -> int:
        """What is left beside the columns, with a name as short as it may be."""
        return width - sum(widths[column] + _GAP for column in columns[1:]) - min(widths[0], _SHORTEST)

    for name in optional:
        if room() < 0 and name in headers:
            columns.remove(headers.index(name))
    widths[0] = min(widths[0], max(_SHORTEST, room() + _SHORTEST))
    for row, name in zip(clean, short_names([row[0] for row in clean], widths[0]), strict=True):
        row[0] = name
    beside = min(_WIDEST, width - sum(widths[column] + _GAP for column in columns))
    plot = forest(strokes, span, beside) if strokes and beside >= _NARROWEST else [""] * (len(rows) + 1)
    lines = []
    for row, drawn in zip((list(headers), *clean), plot, strict=True):
        cells = []
        for column in columns:
            text = padded(row[column], widths[column], to_the_right=headers[column] in right)
            if column == columns[-1] and not drawn:
                text = text.rstrip()  # colours would keep spaces at the end of a line
            colour = _COLOURS.get(row[column].partition(" (")[0])
            cells.append(click.style(text, fg=colour) if colour else text)
        lines.append("  ".join([*cells, drawn] if drawn else cells).rstrip())
    lines[0] = click.style(lines[0], bold=True)
    return "\n".join(lines)


def short_names(names: Sequence[str], most: int) -> list[str]:
    """Names of at most that many characters. Those that would become equal show the part in which they differ."""
    cut = [short(name, most) for name in names]
    if len(set(cut)) == len(set(names)):
        return cut
    long = [name for name in names if len(name) > most]
    before = next((at for at, letters in enumerate(zip(*long, strict=False)) if len(set(letters)) > 1), 0)
    backwards = zip(*(reversed(name) for name in long), strict=False)
    after = next((at for at, letters in enumerate(backwards) if len(set(letters)) > 1), 0)
    shown = []
    for name in names:
        if len(name) > most:
            # What stands before the difference is shown as far as there is room.
            start = max(0, min(before, len(name) - after - (most - 2)))
            end = min(len(name), start + most - 2)
            name = f"{'…' if start else ''}{name[start:end]}{'…' if end < len(name) else ''}"
        shown.append(name)
    return shown if len(set(shown)) == len(set(names)) else list(names)


def forest(strokes: Sequence[Stroke | None], span: tuple[float, float], width: int) -> list[str]:
    """A line for the axis and one for each stroke: `├──●──┤` over `span`, with a bar at 0, an arrow at what leaves it."""
    low, high = min(0.0, span[0]), max(0.0, span[1])

    def column(value: float) -> int:
        return round((min(max(value, low), high) - low) / (high - low) * (width - 1))

    zero = column(0.0)
    left, right = number(low), number(high)
    axis = list(left.ljust(width - len(right)) + right)
    if len(left) < zero < width - len(right) - 1:
        axis[zero] = "0"
    lines = ["".join(axis).rstrip()]
    for stroke in strokes:
        drawn = [" "] * width
        drawn[zero] = "│"
        if stroke is not None:
            if not math.isnan(stroke.low):
                first, last = column(stroke.low), column(stroke.high)
                drawn[first : last + 1] = "─" * (last - first + 1)
                if first <= zero <= last:
                    drawn[zero] = "┼"
                drawn[first] = "◀" if stroke.low < low else "├"
                drawn[last] = "▶" if stroke.high > high else "┤"
            outside = "◀" if stroke.value < low else "▶" if stroke.value > high else "●"
            drawn[column(stroke.value)] = outside
        lines.append("".join(drawn).rstrip())
    return lines


def markdown(text: str) -> str:
    """A paragraph of Markdown in which nothing is HTML: a comment in a name would hide what stands after it."""
    return _TAGS.sub(r"\\<", paragraph(text))


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    cells = [[markdown(cell).replace("|", "\\|") for cell in row] for row in (headers, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], f"|{'---|' * len(headers)}", *lines[1:]]
