"""Run directories, and the campaigns of training runs.

RUN/meta.json                      status, arm, task, seed, metrics: written by us, or by hand
RUN/metrics.jsonl                  one line for each step; `seed` and `condition` in the first line name the run
RUN/metrics.json, out/summary.csv  the run's metrics as a whole
RUN/emergence/steps.jsonl          counts for each step, from which the rate of correct answers follows
RUN/emergence/generations.jsonl    one line for each answer, averaged by step
CAMPAIGN/manifest.json, runs/*     all runs of a campaign, also those that never logged anything
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.records.rundir import META, SERIES
from bakeoff.records.series import read_block, read_jsonl
from bakeoff.results.editions import as_floats
from bakeoff.results.importers.files import number, read_csv, read_json, read_lines
from bakeoff.results.table import Results, Row
from bakeoff.results.table import Series as Column
from bakeoff.spec import registry
from bakeoff.spec.experiment import Analysis, Summary
from bakeoff.spec.identity import flatten, slug
from bakeoff.spec.workload import Scalar, Status

LOGS = (SERIES, "emergence/steps.jsonl")
"""Where a run has its steps; a metric that is in both is taken from the first."""
GENERATIONS = "emergence/generations.jsonl"
METRICS = ("metrics.json", "out/metrics.json", "out/summary.csv", "summary.csv")
MANIFEST = "manifest.json"
CORRECT = 0.99
"""Reward from which on an answer counts as correct where nothing else says so."""
TRAINED = Analysis(seeds="crossed")
"""How runs from elsewhere are judged: one seed is one trained policy, whatever it is scored on."""
TRAINING_METRICS = (("mean_reward", "correct_rate"), ("overview/reward",))
"""What training runs are compared on when nobody names a metric: those of a campaign, or of a benchmark."""
_NAME = re.compile(r"(?P<arm>.+?)[_.\-]+(?:seed|s)[_=\-]?(?P<seed>\d+)", re.IGNORECASE)


class RunDirectories:
    """A run's directory, a directory of run directories, or a campaign."""

    name = "run directories"

    def recognises(self, place: Path) -> bool:
        return place.is_dir()

    def read(self, place: Path) -> Results:
        problems: list[str] = []
        if is_run(place):
            rows = [read_run(place)]
        else:
            rows = read_campaign(place) or read_runs(place, problems)
        return as_results(rows, str(place), problems)


def as_results(rows: Sequence[Row], label: str, problems: Sequence[str] = ()) -> Results:
    """Runs that logged on their own: a series without a summary is its area, and a seed is one trained policy."""
    return Results(
        rows=rows, label=label, analysis=TRAINED, series_summary=Summary(type="auc"), usual=training_metrics,
        problems=tuple(problems),
    )  # fmt: skip


def training_metrics(known: Sequence[str]) -> Sequence[str]:
    return next((names for names in TRAINING_METRICS if set(names) <= set(known)), ())


def is_run(directory: Path) -> bool:
    return any((directory / name).is_file() for name in (*LOGS, GENERATIONS, META, *METRICS))


def read_runs(directory: Path, problems: list[str]) -> list[Row]:
    """Every run directory in `directory/runs`, or in `directory` itself; what cannot be read goes to `problems`."""
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory")
    home = directory / "runs" if (directory / "runs").is_dir() else directory
    rows: list[Row] = []
    known: dict[str, Path] = {}
    for entry in sorted(entry for entry in home.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        try:
            row = read_run(entry)
        except (OSError, ValueError, TypeError, KeyError, UsageError) as error:
            problems.append(str(error) if isinstance(error, UsageError) else f"{entry}: {error}")
            continue
        if row.run_id in known:
            problems.append(f"{entry}: has the run id of {known[row.run_id]}")
            continue
        known[row.run_id] = entry
        rows.append(row)
    if not rows and not problems:
        raise UsageError(f"{home}: there is no run directory in it; a run's directory has {', '.join((META, *LOGS))}")
    return rows


def read_campaign(campaign: Path) -> list[Row]:
    """Runs of a campaign's manifest; a run that logged nothing failed if it has an exit code, and is missing otherwise."""
    manifest = read_json(str(campaign / MANIFEST)) if campaign.is_dir() else None
    rows = []
    for entry in (manifest or {}).get("runs") or []:
        arm, seed, failed = str(entry["condition"]), int(entry["seed"]), bool(entry.get("returncode"))
        directory = campaign / "runs" / str(entry["run_name"])
        if is_run(directory):
            row = read_run(directory)
        else:
            row = Row(arm, status="infra_error", run_id=str(directory), directory=directory)
        rows.append(replace(row, arm=arm, seed=seed, status="failed" if failed else row.status))
    return rows


def read_run(directory: Path) -> Row:
    """One run, with everything that its files say. Raises UsageError when they say nothing, ValueError when torn."""
    meta = read_json(str(directory / META)) or {}
    for dialect in registry.dialects() if meta else ():
        row: Row | None = dialect.read_run(directory, meta)
        if row is not None:
            return row
    columns = read_columns(directory)
    if {"arm", "workload"} <= set(meta):
        return read_own_run(directory, meta, columns)
    metrics = read_metrics(directory)
    if not columns and metrics is None and "status" not in meta:
        if meta:
            raise UsageError(
                f"{directory}: {META} has neither `arm` nor `status`, so it is not a run that bakeoff knows"
            )
        names = " or ".join((*LOGS, *METRICS))
        raise UsageError(f"{directory}: no run can be read there; a run's directory has {names}")
    first = next((line for log in LOGS for line in read_lines(directory / log)), {})
    labels = {key: first[key] for key in ("condition", "seed", "task") if first.get(key) is not None} | meta
    arm, seed = name_and_seed(directory.resolve().name)
    return Row(
        arm=str(labels.get("condition") or labels.get("arm") or arm),
        task=str(labels.get("task", "default")),
        seed=int(labels["seed"]) if labels.get("seed") is not None else seed,
        status=str(labels.get("status", "succeeded")),
        metrics={name: value for name, value in (metrics or {}).items() if name not in columns},
        series=columns,
        run_id=str(directory),
        directory=directory,
    )


def read_own_run(directory: Path, meta: Mapping[str, Any], columns: Mapping[str, Column]) -> Row:
    """A run of ours, which says everything about itself."""
    if meta.get("status") not in get_args(Status):
        raise UsageError(f"{directory}: {META} has no status, so the run had not ended")
    arm, ablation, command = str(meta["arm"]), str(meta.get("ablation_name") or ""), meta.get("cmd")
    return Row(
        arm=arm,
        task=str(meta.get("task", "default")),
        seed=int(meta["seed"]),
        rollout=int(meta.get("rollout", 0)),
        status=str(meta["status"]),
        metrics=dict(meta.get("metrics") or {}),
        series=columns,
        run_id=checked_run_id(str(meta.get("run_id") or directory.name), directory),
        params=dict(meta.get("params") or {}),
        base=arm.removesuffix(f"+{ablation}"),
        ablation="" if ablation == "baseline" else ablation,
        flags=tuple(meta.get("ablation_flags") or ()),
        workload=str(meta["workload"]),
        command=shlex.join(map(str, command)) if isinstance(command, list) else None,
        directory=directory,
        started_at=meta.get("start_time_unix_s"),
        ended_at=meta.get("end_time_unix_s"),
        exit_code=meta.get("exit_code"),
        error=meta.get("error"),
    )


def checked_run_id(name: str, directory: Path) -> str:
    """A run id becomes a directory's name, so it may not hold anything that is special there."""
    if slug(name, 255) != name:
        raise UsageError(f"{directory}: {name!r} cannot be a run id")
    return name


def name_and_seed(name: str) -> tuple[str, int | None]:
    """(`full`, 3) of `full_s3`, `full.seed3` and the like: the arm, and the seed that a run's name ends in."""
    if match := _NAME.fullmatch(name):
        return match["arm"], int(match["seed"])
    if match := re.fullmatch(r"s(?:eed)?_?(\d+)", name):
        return name, int(match[1])
    return name, None


def read_metrics(directory: Path) -> dict[str, Scalar] | None:
    """Scalars of the whole run from the usual files; None when none of them is there."""
    metrics: dict[str, Scalar] | None = None
    for name in METRICS:
        if name.endswith(".json"):
            table = read_json(str(directory / name))
            values = None if table is None else scalars(table)
        else:
            rows = read_csv(str(directory / name))
            values = {key: number(value) for key, value in rows[-1].items()} if rows else None
        if values is not None:
            metrics = {**(metrics or {}), **values}
    return metrics


def scalars(table: Mapping[str, Any]) -> dict[str, Scalar]:
    """Nested objects as `a.b`, lists left out."""
    flat = flatten(dict(table))
    return {key: value for key, value in flat.items() if value is None or isinstance(value, bool | int | float | str)}


def read_columns(directory: Path) -> dict[str, Column]:
    """Every metric that the run logged by step, and the rates that follow from counts and answers."""
    columns: dict[str, Column] = {}
    for log in LOGS:
        path = directory / log
        if path.is_file():
            series, _ = read_jsonl(path)
            columns = as_floats(read_block(series.block())) | columns
    if {"correct_count", "total_count"} <= set(columns):
        (steps, correct), (other_steps, total) = columns["correct_count"], columns["total_count"]
        if steps.shape == other_steps.shape and (steps == other_steps).all() and (total > 0).all():
            columns = {"correct_rate": (steps, correct / total)} | columns
    return _answers(directory / GENERATIONS) | columns


def _answers(path: Path) -> dict[str, Column]:
    """`gen_reward` and `gen_correct_rate`: means over the answers of each step."""
    rewards: dict[float, list[float]] = {}
    correct: dict[float, list[float]] = {}
    for line in read_lines(path):
        if isinstance(line.get("reward"), int | float):
            step, reward = float(line.get("step", 0)), float(line["reward"])
            mark = (line.get("metadata") or {}).get("correctness")
            rewards.setdefault(step, []).append(reward)
            correct.setdefault(step, []).append(float(mark if mark is not None else reward >= CORRECT))
    if not rewards:
        return {}
    steps = sorted(rewards)
    return {
        name: (np.array(steps), np.array([float(np.mean(values[step])) for step in steps]))
        for name, values in (("gen_reward", rewards), ("gen_correct_rate", correct))
    }
