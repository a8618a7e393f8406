"""The sweep runner's run directories and its table of runs, column for column.

runs/<run_id>/meta.json   params, ablation_name, ablation_flags, cmd, times, exit_code
runs/<run_id>/out/        summary.csv (one row) and tiers.csv (one row for each tier)
aggregate/runs.csv        one row for each run: what `collect` writes
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.records.layout import EditionPaths
from bakeoff.records.recorded import Recorded
from bakeoff.records.run import Attempt
from bakeoff.records.rundir import META, STDERR, STDOUT
from bakeoff.results.columns import Column, Sheet
from bakeoff.results.frame import read_table, typed
from bakeoff.results.importers.directories import checked_run_id, read_each, read_own_run, run_directories
from bakeoff.results.importers.directories import read_run as read_other_run
from bakeoff.results.importers.files import number, read_csv, read_json
from bakeoff.results.importers.foreign import ForeignRun, Item, Reading
from bakeoff.results.table import Results, Row
from bakeoff.spec.identity import flatten
from bakeoff.spec.workload import Scalar
from bakeoff.workloads.schedsim.dialect import PARAMETERS, SWEEP, SWITCH, TASK_KEY, arm_name

SWITCHES = ("disable_hedging", "disable_escalation", "disable_dag_priority")
SUMMARY = ("makespan_mean_ms", "makespan_p50_ms", "makespan_p95_ms", "makespan_p99_ms", "cost_mean", "cost_p50")
TIER = ("utilization", "queue_wait_p95_ms", "in_flight_avg")
FIRST = (
    "run_id", *PARAMETERS, SWITCH, "ablation_name", "ablation_flags", *SWITCHES, "exit_code", "wall_time_s",
    "sim_binary_version", *SUMMARY, "run_dir", "start_time_unix_s", "end_time_unix_s",
)  # fmt: skip
"""These columns in this order, then the rest sorted. `sim_binary_version` only where a run has one."""
_COPIED = ("exit_code", "wall_time_s", "start_time_unix_s", "end_time_unix_s", "sim_binary_version")
_NEEDED = ("run_id", "policy", "workflows", "seed", "ablation_name")

# -- runs


class Sweeps:
    """Run directories of the sweep runner, and the table of runs that `collect` writes."""

    name = "sweeps"

    def claims(self, path: Path) -> list[Path]:
        """Look at the first run, or at the table's first line: a directory has runs of one tool."""
        if path.is_file():
            with path.open("rb") as file:
                header = file.readline(1 << 16).decode("utf-8-sig", "replace").strip().split(",")
            return [path] if path.suffix == ".csv" and set(_NEEDED) <= set(header) else []
        own = [path] if (path / META).is_file() else run_directories(path)
        first = next((place for place in own if (place / META).is_file()), None)
        try:
            meta = None if first is None else read_json(str(first / META))
        except ValueError:
            return []
        return own if meta is not None and _is_of_sweep(meta) else []

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        yield Reading(tool="sweep runner", analysis=SWEEP.analysis)
        for path in paths:
            if path.is_file():
                home = path.parent.parent if path.parent.name == "aggregate" else path.parent
                yield from read_runs_csv(path, home).rows
        yield from read_each([path for path in paths if path.is_dir()], read_run)


def _is_of_sweep(meta: Mapping[str, Any]) -> bool:
    """Whether the sweep runner wrote the meta.json of a run, or we did for a sweep."""
    if {"arm", "workload"} <= set(meta):
        params = meta.get("params") or {}
        return "seed" in meta and params.get("seed") == int(meta["seed"]) and set(PARAMETERS) <= set(params)
    return {"params", "ablation_name"} <= set(meta)


def read_run(directory: Path) -> Row | ForeignRun:
    """A run directory of the sweep runner, or one that we wrote for a sweep; anything else as any run directory."""
    meta = read_json(str(directory / META)) or {}
    if not _is_of_sweep(meta):
        return read_other_run(directory)
    if {"arm", "workload"} <= set(meta):
        params = {name: value for name, value in meta["params"].items() if name != "seed"}
        ablation = str(meta.get("ablation_name") or "")
        return replace(read_own_run(directory, meta, {}), params=params, dialect=SWEEP.name, ablation=ablation)
    run_id = checked_run_id(str(meta.get("run_id") or directory.name), directory)
    metrics = read_metrics(str(directory))
    row = _row(run_id, directory, dict(meta["params"]), meta, metrics or {}, measured=metrics is not None)
    cmd = meta.get("cmd")
    flags = tuple(meta.get("ablation_flags") or ())
    return replace(row, flags=flags, command=shlex.join(map(str, cmd)) if isinstance(cmd, list) else None)


def read_runs_csv(path: Path, directory: Path) -> Results:
    """The runs of a table that `collect` wrote. Raises UsageError when it is another table.

    `directory` is the experiment's: a row without `run_dir` means `runs/<run_id>` in it.
    """
    rows = read_csv(str(path))
    if rows is None:
        raise UsageError(f"{path}: no such file")
    missing = [name for name in _NEEDED if rows and name not in rows[0]]
    if missing or not rows:
        raise UsageError(f"{path}: not a table of a sweep: it has no {', '.join(missing) or 'rows'}")
    runs: list[Row] = []
    for texts in rows:
        values: dict[str, Any] = {
            name: {"true": True, "false": False}.get(text.lower(), number(text))
            for name, text in texts.items()
            if text != ""
        }
        params = {name: values[name] for name in (*PARAMETERS, SWITCH) if name in values}
        metrics = {name: value for name, value in values.items() if name in SUMMARY or name not in (*FIRST, *params)}
        run_id = str(values["run_id"])
        place = Path(str(values.get("run_dir") or directory / "runs" / run_id))
        row = _row(run_id, place, params, values, metrics, measured=any(name in metrics for name in SUMMARY))
        runs.append(replace(row, flags=tuple(str(values.get("ablation_flags", "")).split())))
    return Results(runs, str(path))


def _row(
    run_id: str, directory: Path, params: dict[str, Any], facts: Mapping[str, Any], metrics: Mapping[str, Scalar],
    *, measured: bool,
) -> Row:  # fmt: skip
    """A run as the sweep runner describes it.

    `params` include the seed; `facts` are ablation, exit code and times; `measured` says whether there is a summary.
    """
    exit_code = facts.get("exit_code")
    status, error = "succeeded", None
    if exit_code is None:
        status, error = "cancelled", "had not ended when it was imported"
    elif exit_code == 127:
        status, error = "infra_error", "exit code 127: the command could not be started"
    elif exit_code != 0:
        status, error = "failed", f"exit code {exit_code}"
    elif not measured:
        status, error = "failed", "out/summary.csv: the command wrote no such file"
    seed, base, ablation = int(params.pop("seed")), str(params["policy"]), str(facts["ablation_name"])
    return Row(
        arm=arm_name(base, ablation),
        task=f"{TASK_KEY}={params[TASK_KEY]}",
        seed=seed,
        status=status,
        metrics=metrics,
        run_id=run_id,
        params=params,
        base=base,
        ablation=ablation,
        dialect=SWEEP.name,
        directory=directory,
        started_at=facts.get("start_time_unix_s"),
        ended_at=facts.get("end_time_unix_s"),
        exit_code=exit_code,
        error=error,
    )


def read_metrics(directory: str) -> dict[str, Scalar] | None:
    """Metrics of one run; None when it has no `summary.csv`. Raises ValueError for files that cannot be read."""
    summary = read_csv(f"{directory}/out/summary.csv")
    if not summary:
        return None
    metrics = {name: number(value) for name, value in summary[-1].items()}
    for row in read_csv(f"{directory}/out/tiers.csv") or ():
        prefix = f"{row.get('provider', '')}_tier{row.get('tier_id', '')}"
        metrics |= {f"{prefix}_{name}": number(row[name]) for name in TIER if name in row}
    return metrics


# -- tables


def sheet_of_directory(directory: Path) -> tuple[Sheet, list[str]]:
    """The table of a sweep directory that only consists of files, and the problems with files that cannot be read."""
    runs = directory / "runs"
    problems: list[str] = []
    rows: list[dict[str, Any]] = []
    for name in sorted(os.listdir(runs)):
        place = f"{runs}/{name}"
        try:
            meta = read_json(f"{place}/meta.json")
        except ValueError as error:
            problems.append(f"{place}/meta.json: {error}")
            continue
        if meta is None:
            continue
        metrics: dict[str, Scalar] | None = None
        try:
            metrics = read_metrics(place)
        except ValueError as error:
            problems.append(f"{place}/out: {error}")
        rows.append(
            {
                "run_id": meta.get("run_id", name),
                "run_dir": place,
                **{key: meta[key] for key in _COPIED if key in meta},
                **_ablation(str(meta.get("ablation_name", "")), meta.get("ablation_flags") or []),
                **flatten(meta.get("params") or {}),
                **(metrics or {}),
            }
        )
    if not rows:
        raise UsageError(f"{runs}: no run with a readable meta.json is in it")
    names = dict.fromkeys(name for row in rows for name in row)
    return _sheet({name: typed([row.get(name) for row in rows]) for name in names}), problems


def sheet_of_edition(edition: Recorded) -> Sheet:
    """The same table from an edition's database."""
    table = read_table(edition)
    sheet = table.sheet
    by_arm = {cell.arm: _ablation(cell.ablation, cell.flags) for cell in edition.cells()}
    ablations = [by_arm[arm] for arm in sheet["arm"].to_list()]
    columns = {
        "run_id": sheet["run_id"],
        "seed": sheet["seed"],
        **{name: sheet[column] for name, column in (*table.params.items(), *table.metrics.items())},
        **{name: typed([row[name] for row in ablations]) for name in _ablation("", [])},
        "exit_code": sheet["exit_code"],
        "wall_time_s": sheet["wall_s"].mapped(lambda seconds: round(seconds, 6)),
        "run_dir": sheet["run_id"].mapped(lambda run_id: str(edition.paths.run(run_id))),
        "start_time_unix_s": sheet["started_at"],
        "end_time_unix_s": sheet["ended_at"],
    }
    return _sheet(columns)


def _ablation(name: str, flags: Sequence[str]) -> dict[str, Any]:
    """The columns of an ablation: its name, its flags, and for each known flag whether it is there."""
    switches = {switch: f"--{switch}" in flags for switch in SWITCHES}
    return {"ablation_name": name, "ablation_flags": " ".join(flags) or None, **switches}


def _sheet(columns: Mapping[str, Column]) -> Sheet:
    """The columns in the sweep runner's order; a summary column that no run has is empty."""
    first = [name for name in FIRST if name in columns or name in SUMMARY]
    rest = sorted(set(columns) - set(FIRST))
    empty = typed([None] * len(next(iter(columns.values()))))
    return Sheet({name: columns.get(name, empty) for name in (*first, *rest)})


class BothStreams:
    """An observer that adds the empty ones of `stdout.txt` and `stderr.txt` to directories of runs that have ended."""

    def __init__(self, paths: EditionPaths) -> None:
        self._paths = paths

    def finished(self, attempt: Attempt) -> None:
        directory = self._paths.run(attempt.run_id)
        for name in (STDOUT, STDERR) if directory.is_dir() else ():
            with suppress(OSError):  # it is there, with what the run wrote
                (directory / name).touch(exist_ok=False)

    def tick(self, running: Sequence[Attempt]) -> None:
        """Nothing to do: files are added when a run has ended."""

    def close(self) -> None:
        """Nothing to do."""
