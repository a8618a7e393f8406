"""Data as scripts: a page that was opened from the file system may load scripts, and may not fetch anything else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bakeoff.records.run import RunRecord
from bakeoff.report.interactive import script_json
from bakeoff.report.site.contents import Contents, is_number
from bakeoff.text import printable

RUNS = 5_000
"""Lines of the table of runs in one file."""
COLUMNS = 6
"""Metrics that the table of runs shows."""
STATUSES = ("succeeded", "failed", "timeout", "infra_error", "cancelled", "running", "planned")


def table_metrics(contents: Contents) -> list[str]:
    """The ones pictures show, cost, and then as they came."""
    first = [*contents.main, *([contents.cost_metric] if contents.cost_metric else [])]
    return list(dict.fromkeys((*[name for name in first if name in contents.metrics], *contents.metrics)))[:COLUMNS]


def names(contents: Contents, extra: Mapping[str, Any]) -> str:
    """What is the same for many runs: cells with their parameters, names of metrics."""
    cells = {
        str(number): [
            printable(cell.arm), printable(cell.task), cell.ablation or "", plain(cell.columns), cell.flags,
        ]
        for number, cell in contents.cells.items()
    }  # fmt: skip
    told = {"cells": cells, "statuses": STATUSES, "metrics": table_metrics(contents), **extra}
    return f"bakeoff.names={script_json(told)};\n"


def table(contents: Contents) -> list[str]:
    """The table of runs, column by column."""
    metrics = table_metrics(contents)
    return [
        f"bakeoff.rows({script_json(_columns(contents.runs[start : start + RUNS], metrics))});\n"
        for start in range(0, max(1, len(contents.runs)), RUNS)
    ]


def _columns(runs: Sequence[RunRecord], metrics: Sequence[str]) -> dict[str, Any]:
    return {
        "id": [run.run_id for run in runs],
        "cell": [run.cell for run in runs],
        "seed": [run.seed for run in runs],
        "rollout": 0 if not any(run.rollout for run in runs) else [run.rollout for run in runs],
        "status": [STATUSES.index(run.status) for run in runs],
        "wall": [None if run.wall_s is None else float(f"{run.wall_s:.4g}") for run in runs],
        "metrics": [[shown(run.metrics.get(name)) for run in runs] for name in metrics],
    }


def shown(value: Any) -> Any:
    """A value as the pages have it: six digits; what is no number as text."""
    if is_number(value):
        if isinstance(value, int) and abs(value) < 2**53:
            return value
        short = float(f"{value:.6g}")
        return int(short) if short == int(short) and abs(short) < 2**53 else short
    if isinstance(value, float):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return printable(value) if isinstance(value, str) else value


def plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the pages have them."""
    return {printable(name): shown(value) for name, value in table.items()}
