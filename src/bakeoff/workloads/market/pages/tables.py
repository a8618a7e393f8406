"""The tables to download that stand beside the pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from bakeoff.workloads.market.outputs import ACTIONS
from bakeoff.workloads.market.pages.played import Played

WHO = ("arm", "task", "run")
MOST_LINES = 200_000
"""Of one table; `bakeoff collect` and the runs' own directories have everything."""


def metrics_csv(played: Sequence[Played]) -> str:
    """One line for each run, failed ones too."""
    names = list(dict.fromkeys(name for run in played for name in run.metrics))
    rows = ([*_who(run), run.status, *(run.metrics.get(name, "") for name in names)] for run in played)
    return csv_text([*WHO, "status", *names], rows)


def actions_csv(runs: Sequence[Played]) -> tuple[str, int]:
    """Action logs of these runs in one table, and how many runs it has."""
    rows: list[list[object]] = []
    for number, run in enumerate(runs):
        own = run.rows("actions.csv")
        if len(rows) + len(own) > MOST_LINES:
            return csv_text([*WHO, *ACTIONS], rows), number
        rows += ([*_who(run), *(row.get(name) or "" for name in ACTIONS)] for row in own)
    return csv_text([*WHO, *ACTIONS], rows), len(runs)


def equity_csv(curves: Iterable[tuple[Played, Sequence[int], Sequence[float]]]) -> tuple[str, int]:
    """Equity by tick, and how many runs the table has."""
    lines: list[list[object]] = []
    count = 0
    for run, ticks, values in curves:
        if len(lines) + len(ticks) > MOST_LINES:
            break
        count += 1
        lines += ([*_who(run), tick, value] for tick, value in zip(ticks, values, strict=True))
    return csv_text([*WHO, "tick", "equity"], lines), count


def _who(run: Played) -> Iterator[str]:
    yield from (run.arm, run.task, run.label)


def csv_text(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
    return file.getvalue()
