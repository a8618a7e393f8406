"""Plain tables: a `Sheet` has named columns of one length, and a `Column` has its distinct values and where each stands.

Nearly every question about a table is about distinct values and groups of rows. So a column keeps its distinct values
(`levels`) in order of first appearance and, for each row, the number of its value (`codes`): text is cleaned once for each
level, and groups of rows are whole numbers that numpy counts.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from bakeoff.errors import UsageError, install
from bakeoff.text import csv_text

if TYPE_CHECKING:
    import polars as pl

Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Kind = Literal["text", "whole", "number", "truth", "other"]
"""`other`: lists, objects and dates. They are kept as text, and no check looks at them."""
_DESCRIPTIONS = {"text": "text", "whole": "whole numbers", "number": "numbers", "truth": "truth values", "other": "objects"}  # fmt: skip
_EMPTY = ("NoneType", "NAType", "NaTType")
"""Types of an empty cell: Python's and those of pandas."""


@dataclass(frozen=True, eq=False)
class Column:
    """Cells of one type, some of them empty."""

    kind: Kind
    levels: Sequence[Any]
    """Distinct values in order of first appearance: str, int, float or bool by `kind`. None stands for empty cells."""
    codes: Codes
    """For each row the place of its value in `levels`."""
    written: Column | None = None
    """The cells as a file has them, where that is not the text of the values: `01` and `1`, `1.1` and `1.10` are different names."""

    @classmethod
    def of(cls, cells: Sequence[Any]) -> Column:
        """Make a column of the narrowest kind that holds every cell.

        Whole numbers, other numbers and truth values that stand together are numbers. Beside text, all of them are text,
        and so are whole numbers beyond those that a float can hold.
        """
        types = {*map(type, cells)}
        if any(issubclass(each, np.generic) for each in types):
            return cls.of([cell.item() if isinstance(cell, np.generic) else cell for cell in cells])
        if any(each.__name__ in _EMPTY[1:] for each in types):
            return cls.of([None if type(cell).__name__ in _EMPTY else cell for cell in cells])
        types.discard(NoneType)
        if types <= {str}:
            return cls("text", *_numbered(cells))
        if types in ({int}, {bool}):
            column = cls("whole" if types == {int} else "truth", *_numbered(cells))
            return column if all(map(_is_finite, column.known)) else column.mapped(str, "text")
        if types <= {int, float, bool, Decimal}:
            return cls("number", *_numbered([None if cell is None else as_float(cell) for cell in cells]))
        texts = [_text(cell) for cell in cells]
        return cls("text" if types <= {str, int, float, bool} else "other", *_numbered(texts))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> Any:
        return self.levels[self.codes[row]]

    def to_list(self) -> list[Any]:
        return list(map(self.levels.__getitem__, self.codes.tolist()))

    @property
    def is_numeric(self) -> bool:
        """Whether cells are numbers; truth values are not."""
        return self.kind in ("whole", "number")

    @property
    def is_label(self) -> bool:
        """Whether cells may name something: text or whole numbers."""
        return self.kind in ("text", "whole")

    @property
    def description(self) -> str:
        """What an error says that the column holds."""
        return _DESCRIPTIONS[self.kind]

    @cached_property
    def known(self) -> list[Any]:
        """The levels without the one of empty cells."""
        return [level for level in self.levels if level is not None]

    @cached_property
    def filled(self) -> Mask:
        """The rows whose cell is not empty."""
        return self.where(lambda level: True)

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64]:
        """Each cell as a number; an empty one is NaN here, too."""
        levels = [math.nan if level is None else float(level) for level in self.levels]
        return np.array(levels, dtype=np.float64)[self.codes]

    @property
    def sizes(self) -> Codes:
        """How many rows each level has."""
        return np.bincount(self.codes, minlength=len(self.levels))

    def where(self, holds: Callable[[Any], object]) -> Mask:
        """Return the rows whose cell is not empty and fulfils a condition."""
        return np.array([level is not None and bool(holds(level)) for level in self.levels], dtype=bool)[self.codes]

    def mapped(self, change: Callable[[Any], Any], kind: Kind | None = None) -> Column:
        """Return the column with each value changed that is not empty; values that become equal are one level."""
        changed = [None if level is None else change(level) for level in self.levels]
        if len({*changed}) == len(changed):
            return Column(kind or self.kind, changed, self.codes)
        levels, places = _numbered(changed)
        return Column(kind or self.kind, levels, places[self.codes])

    @property
    def names(self) -> Column:
        """The cells as text, as a file has them."""
        return self.written or self.mapped(str, "text")

    def at(self, rows: Mask | Codes) -> Column:
        """Return the cells of some rows."""
        used, first, codes = np.unique(self.codes[rows], return_index=True, return_inverse=True)
        order = np.argsort(first)
        written = self.written and self.written.at(rows)
        return Column(
            self.kind, [self.levels[code] for code in used[order].tolist()], np.argsort(order)[codes], written
        )


def _numbered(cells: Sequence[Any]) -> tuple[list[Any], Codes]:
    """Return distinct values in order of first appearance, and for each cell the place of its value."""
    places = {level: place for place, level in enumerate(dict.fromkeys(cells))}
    return list(places), np.fromiter(map(places.__getitem__, cells), np.int64, len(cells))


def _end_to_end(columns: Sequence[Column]) -> Column:
    """Return the cells of several columns as one column."""
    column = Column.of([*chain.from_iterable(each.to_list() for each in columns)])
    if all(each.written is None for each in columns):
        return column
    written = _end_to_end([each.names for each in columns])
    return written if column.kind == "text" else replace(column, written=written)


def _csv_cell(level: Any) -> Any:
    if isinstance(level, bool):
        return "true" if level else "false"
    return "NaN" if level != level else level


def in_order(levels: Sequence[Any]) -> list[Any]:
    """Return levels sorted, None first and NaN last."""
    return sorted(levels, key=lambda level: (level is not None, level != level, 0 if level is None else level))


def as_float(cell: Any) -> float:
    """Return a cell as a number for a column's level."""
    number = float(cell) if _is_finite(cell) else math.copysign(math.inf, 1 if cell > 0 else -1)
    return number if number == number else math.nan  # one object, so that all NaN are one level


def _is_finite(cell: Any) -> bool:
    """Whether a whole number is small enough for a float; anything else is."""
    return not isinstance(cell, int) or abs(cell) <= sys.float_info.max


def _text(cell: Any) -> str | None:
    """Return the text of a cell in a column that holds text or objects; NaN is what pandas writes for an empty one."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, float) and cell != cell:
        return None
    try:
        return json.dumps(cell)
    except (TypeError, ValueError):
        return str(cell)


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows by some of their columns: rows with equal cells are one group."""

    codes: Codes
    """For each row the number of its group."""
    count: int

    @cached_property
    def sizes(self) -> Codes:
        """How many rows each group has."""
        return np.bincount(self.codes, minlength=self.count)

    @cached_property
    def firsts(self) -> Codes:
        """The first row of each group."""
        rows = np.arange(len(self.codes) - 1, -1, -1)
        firsts = np.zeros(self.count, dtype=np.int64)
        firsts[self.codes[::-1]] = rows
        return firsts

    def crossed(self, other: Groups) -> Groups:
        """Return the groups of rows that are one group here and there."""
        joint = self.codes * other.count + other.codes
        if self.count * other.count > 4 * len(joint) + 1024:
            found, codes = np.unique(joint, return_inverse=True)
            return Groups(codes, len(found))
        taken = np.bincount(joint, minlength=1) > 0
        return Groups((np.cumsum(taken) - 1)[joint], int(taken.sum()))

    def distinct(self, other: Groups) -> Codes:
        """Return how many groups of another kind the rows of each group belong to."""
        return np.bincount(self.codes[self.crossed(other).firsts], minlength=self.count)


@dataclass(frozen=True, eq=False)
class Sheet:
    """Named columns of one length."""

    columns: Mapping[str, Column]
    _groups: dict[tuple[str, ...], Groups] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, data: Any) -> Sheet:
        """Make a sheet of a frame of Polars, pandas or pyarrow, of columns by name, or of rows that are dicts.

        Raises UsageError for anything else, and for columns of several lengths or one name.
        """
        if isinstance(data, Sheet):
            return data
        if hasattr(data, "to_pydict"):
            data = data.to_pydict()
        elif hasattr(data, "columns") and hasattr(data, "to_dict"):
            index = [name for name in getattr(getattr(data, "index", None), "names", ()) if name is not None]
            refuse_same_names([str(name) for name in (*index, *data.columns)])
            data = data.reset_index(level=index) if index else data
            data = {str(name): data[name].to_list() for name in data.columns}
        if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
            names = dict.fromkeys(chain.from_iterable(data))
            data = {str(name): [row.get(name) for row in data] for name in names}
        if not isinstance(data, Mapping) or any(isinstance(each, str) for each in data.values()):
            raise UsageError(f"a table is a frame, a list of dicts or a dict of columns, not {type(data).__name__}")
        columns = {str(name): list(cells) for name, cells in data.items()}
        if len({len(cells) for cells in columns.values()}) > 1:
            lengths = ", ".join(f"{name!r} has {len(cells)}" for name, cells in columns.items())
            raise UsageError(f"columns of a table have equally many cells; {lengths}")
        return cls({name: Column.of(cells) for name, cells in columns.items()})

    @classmethod
    def stacked(cls, sheets: Sequence[Sheet]) -> Sheet:
        """Put sheets below each other; cells of columns that one of them lacks are empty."""
        if len(sheets) == 1:
            return sheets[0]
        names = dict.fromkeys(name for sheet in sheets for name in sheet.names)
        return cls({
            name: _end_to_end([sheet[name] if name in sheet else Column.of([None] * sheet.height) for sheet in sheets])
            for name in names
        })  # fmt: skip

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def items(self) -> Iterator[tuple[str, Column]]:
        yield from self.columns.items()

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    @property
    def height(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def row(self, number: int) -> dict[str, Any]:
        return {name: column[number] for name, column in self.columns.items()}

    def having(self, columns: Mapping[str, Column]) -> Sheet:
        """Return the sheet with more columns, or with others in place of those of the same name."""
        return Sheet({**self.columns, **columns})

    def without(self, names: Collection[str]) -> Sheet:
        return Sheet({name: column for name, column in self.columns.items() if name not in names}) if names else self

    def at(self, rows: Mask | Codes) -> Sheet:
        """Return the sheet with some of its rows."""
        return Sheet({name: column.at(rows) for name, column in self.columns.items()})

    def groups(self, *names: str) -> Groups:
        """Return the groups of rows with equal cells in these columns; empty cells are equal to each other."""
        if names not in self._groups:
            last = self.columns[names[-1]]
            groups = Groups(last.codes, len(last.levels))
            self._groups[names] = self.groups(*names[:-1]).crossed(groups) if len(names) > 1 else groups
        return self._groups[names]

    def distinct(self, *names: str) -> int:
        """Return how many different rows these columns have."""
        return self.groups(*names).count

    def to_csv(self) -> str:
        """Return the table as CSV: `true` and `false`, `NaN`, and nothing in empty cells."""
        cells = (column.mapped(_csv_cell).to_list() for column in self.columns.values())
        return csv_text(self.names, zip(*cells, strict=True))

    def frame(self) -> pl.DataFrame:
        """Return a Polars frame. Whole numbers beyond 64 bits are text there."""
        require_polars("a frame")
        import polars as pl

        types: dict[str, Any] = {"whole": pl.Int64, "number": pl.Float64, "truth": pl.Boolean}
        series = {}
        for name, column in self.columns.items():
            large = column.kind == "whole" and not all(-(2**63) <= level < 2**63 for level in column.known)
            cells = (column.mapped(str) if large else column).to_list()
            series[name] = pl.Series(cells, dtype=pl.String if large else types.get(column.kind, pl.String))
        return pl.DataFrame(series)


def refuse_same_names(names: Sequence[str], label: str = "") -> None:
    """Raise UsageError where two columns have the same name."""
    for place, name in enumerate(names):
        if name in names[:place]:
            raise UsageError(f"{label}two columns are called {name!r}; rename one of them")


def has_polars() -> bool:
    """Whether the extra `frames` is installed."""
    try:
        import polars  # noqa: F401
    except ImportError:
        return False
    return True


def require_polars(what: str) -> None:
    """Raise UsageError for something that needs Polars where it is not installed."""
    if not has_polars():
        raise UsageError(f"{what} needs Polars: {install('frames')}")
