"""The table of runs, a window at a time: filters and an order from the URL, kept up to date run by run.

    query = Query.parse({"status": "failed", "sort": "-time"})
    view = table.view(query)
    view.window(0, 60)          # the first 60 runs that failed, the longest first

A view is sorted once. A run that changes is moved inside of it, so an update costs the same whatever the number of runs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from bakeoff.records.run import Reported
from bakeoff.text import duration, flat, number, printable, short

FACTS = ("run", "arm", "task", "seed", "rollout", "status", "time", "error")
"""Columns that every run has; metrics follow under their names."""
FILTERS = ("arm", "task", "status", "seed")
METRIC = "metric "
"""In front of the name of a metric that is called like one of the facts."""
MAX_VIEWS = 8
"""Filters with an order that are kept up to date at a time."""
MAX_ROWS = 200
"""Rows in a window."""
SHOWN_METRICS = 5
"""Metrics that the table shows when the URL does not choose its columns."""


class Listed(Reported, Protocol):
    """What the table needs of a run: a `RunRecord`, or a row of a results table."""

    @property
    def task(self) -> str: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def rollout(self) -> int: ...
    @property
    def wall_s(self) -> float | None: ...


R = TypeVar("R", bound=Listed)
Key = tuple[int, Any, int]
"""Kind (numbers before text before nothing), value, and the number of the row in plan order."""


@dataclass(frozen=True, slots=True)
class Query:
    """Which runs, and in which order: what the address of the page says behind its #, as in the folder of a report."""

    text: str = ""
    arm: str = ""
    task: str = ""
    status: str = ""
    seed: str = ""
    sort: str = ""
    """A column, with a minus in front for the largest first; the order of the plan when it is empty."""
    columns: tuple[str, ...] = ()

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> Query:
        """From the fields of a URL; those that are not known are ignored."""
        plain = {name: values.get(name, "") for name in ("sort", *FILTERS)}
        return cls(
            text=values.get("q", ""),
            **plain,
            columns=tuple(name for name in values.get("columns", "").split(",") if name),
        )

    def matches(self, run: Listed) -> bool:
        if any((wanted := getattr(self, name)) and str(getattr(run, name)) != wanted for name in FILTERS):
            return False
        if not self.text:
            return True
        words = f"{run.run_id} {run.arm} {run.task} {run.status} {run.error or ''}".lower()
        return all(needle in words for needle in self.text.lower().split())

    def key(self, run: Listed, row: int) -> Key:
        """Where the run stands in the order."""
        down = self.sort.startswith("-")
        value = value_of(run, self.sort.removeprefix("-")) if self.sort else None
        if value is None or value != value:
            return 2, 0, row
        if isinstance(value, int | float):
            return 0, -value if down else value, row
        text = str(value)
        # Text the other way round: compared by its letters' negatives, and what is longer comes first.
        return 1, (*(-ord(letter) for letter in text), 1) if down else text, row


def value_of(run: Listed, column: str) -> Any:
    """A run's value in a column; None where it has none."""
    match column:
        case "run":
            return run.run_id
        case "time":
            return run.wall_s
        case "error":
            return run.error or None
        case "arm" | "task" | "seed" | "rollout" | "status":
            return getattr(run, column)
    return run.metrics.get(column.removeprefix(METRIC) if column.removeprefix(METRIC) in FACTS else column)


def cell(run: Listed, column: str) -> str:
    """A run's value in a column as people read it."""
    value = value_of(run, column)
    if column == "time":
        return duration(value)
    if column == "run":
        return short(printable(run.run_id), 60)
    return flat(value, 120) if isinstance(value, str) else number(value)


class View(Generic[R]):
    """The runs of a table that match a query, in its order."""

    def __init__(self, table: RunTable[R], query: Query) -> None:
        self._table, self._query = table, query
        self._keys: dict[int, Key] = {
            row: query.key(run, row) for row, run in enumerate(table.rows) if query.matches(run)
        }
        self._order = sorted(self._keys.values())
        self._read = len(table.log)

    def refresh(self) -> None:
        """Move the runs that changed since the last call."""
        for row in self._table.log[self._read :]:
            run = self._table.rows[row]
            old, new = self._keys.get(row), self._query.key(run, row) if self._query.matches(run) else None
            if old == new:
                continue
            if old is not None:
                del self._order[bisect_left(self._order, old)], self._keys[row]
            if new is not None:
                insort(self._order, new)
                self._keys[row] = new
        self._read = len(self._table.log)

    def __len__(self) -> int:
        return len(self._order)

    def window(self, start: int, count: int) -> list[R]:
        """At most `count` runs (and at most MAX_ROWS) from number `start` on."""
        start = max(0, start)
        return [self._table.rows[row] for _, _, row in self._order[start : start + min(max(0, count), MAX_ROWS)]]


class RunTable(Generic[R]):
    """Every run in plan order, a log of the rows that changed, and the views that somebody looks at."""

    def __init__(self, rows: Sequence[R] = ()) -> None:
        self.rows: list[R] = []
        self.log: list[int] = []
        self.by_id: dict[str, int] = {}
        """The row of each run."""
        self.metrics: dict[str, None] = {}
        """Names of metrics, in the order in which runs reported them."""
        self.has_rollouts = False
        self._values: dict[str, dict[str, None]] = {name: {} for name in FILTERS}
        self._views: OrderedDict[Query, View[R]] = OrderedDict()
        for run in rows:
            self.append(run)

    def append(self, run: R) -> int:
        """Add a run at the end. Returns its row."""
        self.rows.append(run)
        self.by_id[run.run_id] = len(self.rows) - 1
        self._note(run, len(self.rows) - 1)
        return len(self.rows) - 1

    def replace(self, row: int, run: R) -> R:
        """Put a run in the place of another one, which is returned."""
        before, self.rows[row] = self.rows[row], run
        self._note(run, row)
        return before

    def _note(self, run: R, row: int) -> None:
        self.log.append(row)
        self.metrics |= dict.fromkeys(run.metrics)
        self.has_rollouts |= run.rollout > 0
        for name, values in self._values.items():
            values[str(getattr(run, name))] = None

    def values(self, name: str) -> list[str]:
        """Every arm, task or status that a run has or had, by first appearance."""
        return list(self._values[name])

    def columns(self, query: Query) -> list[str]:
        """The columns that are shown: those of the query that exist, or the usual ones."""
        known = self.known_columns()
        chosen = [name for name in query.columns if name in known]
        if chosen:
            return ["run", *(name for name in chosen if name != "run")]
        usual = [name for name in known if name in FACTS and (name != "rollout" or self.has_rollouts)]
        usual.remove("error")
        return [*usual, *self._metric_columns()[:SHOWN_METRICS]]

    def known_columns(self) -> list[str]:
        return [*FACTS, *self._metric_columns()]

    def _metric_columns(self) -> list[str]:
        return [METRIC + name if name in FACTS else name for name in self.metrics]

    def view(self, query: Query) -> View[R]:
        """The view of a query, up to date."""
        asked = replace(query, columns=())
        view = self._views.pop(asked, None)
        if view is None:
            view = View(self, asked)
        else:
            view.refresh()
        self._views[asked] = view
        while len(self._views) > MAX_VIEWS:
            self._views.popitem(last=False)
        return view
