"""The sweep runner's run directories and its table of runs, column for column.

runs/<run_id>/meta.json  params, ablation_name, ablation_flags, cmd, times, exit_code
runs/<run_id>/out/       summary.csv (one row) and tiers.csv (one row for each tier)
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.results.frame import read_table, typed
from bakeoff.results.importers.directories import checked_run_id, read_own_run
from bakeoff.results.importers.files import number, read_csv, read_json
from bakeoff.results.table import Row
from bakeoff.spec.dialects.sweep import PARAMETERS, SWITCH
from bakeoff.spec.experiment import flatten
from bakeoff.spec.workload import Scalar

if TYPE_CHECKING:
    import polars as pl

SWITCHES = ("disable_hedging", "disable_escalation", "disable_dag_priority")
SUMMARY = ("makespan_mean_ms", "makespan_p50_ms", "makespan_p95_ms", "makespan_p99_ms", "cost_mean", "cost_p50")
TIER = ("utilization", "queue_wait_p95_ms", "in_flight_avg")
FIRST = (
    "run_id", *PARAMETERS, SWITCH, "ablation_name", "ablation_flags", *SWITCHES, "exit_code", "wall_time_s",
    "sim_binary_version", *SUMMARY, "run_dir", "start_time_unix_s", "end_time_unix_s",
)  # fmt: skip
"""These columns in this order, then the rest sorted. `sim_binary_version` only where a run has one."""
_COPIED = ("exit_code", "wall_time_s", "start_time_unix_s", "end_time_unix_s", "sim_binary_version")


def read_metrics(directory: str) -> dict[str, Scalar] | None:
    """Metrics of one run; None when it has no `summary.csv`. Files that cannot be read are a ValueError."""
    summary = read_csv(f"{directory}/out/summary.csv")
    if not summary:
        return None
    metrics = {name: number(value) for name, value in summary[-1].items()}
    for row in read_csv(f"{directory}/out/tiers.csv") or ():
        prefix = f"{row.get('provider', '')}_tier{row.get('tier_id', '')}"
        metrics |= {f"{prefix}_{name}": number(row[name]) for name in TIER if name in row}
    return metrics


def read_run(directory: Path, meta: Mapping[str, Any]) -> Row | None:
    """A run directory of the sweep runner, or one that we wrote for a sweep; None for anything else."""
    if {"arm", "workload"} <= set(meta):
        params = dict(meta.get("params") or {})
        if "seed" not in meta or params.get("seed") != int(meta["seed"]) or not set(PARAMETERS) <= set(params):
            return None
        run = read_own_run(directory, meta, {})
        del params["seed"]
        return replace(run, params=params, dialect="sweep", ablation=str(meta.get("ablation_name") or ""))
    if not {"params", "ablation_name"} <= set(meta):
        return None
    params = dict(meta["params"])
    seed = int(params.pop("seed"))
    ablation = str(meta["ablation_name"])
    base = str(params["policy"])
    status, error = ending(meta.get("exit_code"))
    metrics = read_metrics(str(directory))
    if metrics is None and status == "succeeded":
        status, error = "failed", "out/summary.csv: the command wrote no such file"
    command = meta.get("cmd")
    return Row(
        directory=directory,
        run_id=checked_run_id(str(meta.get("run_id") or directory.name), directory),
        arm=base if ablation == "baseline" else f"{base}+{ablation}",
        seed=seed,
        dialect="sweep",
        task=f"workflows={params['workflows']}",
        base=base,
        ablation=ablation,
        flags=tuple(meta.get("ablation_flags") or ()),
        params=params,
        status=status,
        exit_code=meta.get("exit_code"),
        error=error,
        started_at=meta.get("start_time_unix_s"),
        ended_at=meta.get("end_time_unix_s"),
        metrics=metrics or {},
        command=shlex.join(map(str, command)) if isinstance(command, list) else None,
    )


def ending(exit_code: Any) -> tuple[str, str | None]:
    """Status and error that the sweep runner's exit code stands for."""
    if exit_code is None:
        return "cancelled", "had not ended when it was imported"
    if exit_code == 127:
        return "infra_error", "exit code 127: the command could not be started"
    return ("succeeded", None) if exit_code == 0 else ("failed", f"exit code {exit_code}")


def frame_of_directory(directory: Path) -> tuple[pl.DataFrame, list[str]]:
    """The table of a sweep directory that only consists of files, and what of it could not be read."""
    runs = directory / "runs"
    if not runs.is_dir():
        raise UsageError(f"{directory}: holds no experiment: neither a database nor a directory runs/")
    problems: list[str] = []
    rows = [row for name in sorted(os.listdir(runs)) if (row := _row(f"{runs}/{name}", name, problems)) is not None]
    if not rows:
        raise UsageError(f"{runs}: no run with a readable meta.json is in it")
    return _frame({name: typed([row.get(name) for row in rows]) for name in _names(rows)}), problems


def _row(directory: str, name: str, problems: list[str]) -> dict[str, Any] | None:
    metrics: dict[str, Scalar] = {}
    try:
        meta = read_json(f"{directory}/meta.json")
        if meta is None:
            return None
    except ValueError as error:
        problems.append(f"{directory}/meta.json: {error}")
        return None
    try:
        metrics = read_metrics(directory) or {}
    except ValueError as error:
        problems.append(f"{directory}/out: {error}")
    return {
        "run_id": meta.get("run_id", name),
        "run_dir": directory,
        **{key: meta[key] for key in _COPIED if key in meta},
        **_ablation(str(meta.get("ablation_name", "")), meta.get("ablation_flags") or []),
        **flatten(meta.get("params") or {}),
        **metrics,
    }


def _ablation(name: str, flags: list[str]) -> dict[str, Any]:
    switches = {switch: f"--{switch}" in flags for switch in SWITCHES}
    return {"ablation_name": name, "ablation_flags": " ".join(flags) or None, **switches}


def _names(rows: Iterable[Mapping[str, Any]]) -> dict[str, None]:
    return dict.fromkeys(name for row in rows for name in row)


def frame_of_edition(edition: Edition) -> pl.DataFrame:
    """The same table from an edition's database."""
    import polars as pl

    table = read_table(edition)
    frame = table.frame
    flags = {cell.arm: _ablation(cell.ablation, cell.flags) for cell in edition.cells()}
    ablations = [flags[arm] for arm in frame["arm"]]
    columns = {
        "run_id": frame["run_id"],
        "seed": frame["seed"],
        **{name: frame[column] for name, column in (*table.params.items(), *table.metrics.items())},
        **{name: typed([row[name] for row in ablations]) for name in _ablation("", [])},
        "exit_code": frame["exit_code"],
        "wall_time_s": frame["wall_s"].round(6),
        "run_dir": pl.Series([str(edition.paths.run(run_id)) for run_id in frame["run_id"]], dtype=pl.String),
        "start_time_unix_s": frame["started_at"],
        "end_time_unix_s": frame["ended_at"],
    }
    return _frame(columns)


def _frame(columns: Mapping[str, pl.Series]) -> pl.DataFrame:
    import polars as pl

    first = [name for name in FIRST if name in columns or name in SUMMARY]
    rest = sorted(set(columns) - set(FIRST))
    height = len(next(iter(columns.values())))
    empty = pl.Series([None] * height, dtype=pl.Float64)
    return pl.DataFrame({name: columns.get(name, empty) for name in (*first, *rest)})
