"""Run directories, and the campaigns of training runs.

RUN/meta.json                      status, arm, task, seed, metrics: written by us, or by hand
RUN/metrics.jsonl                  one line for each step; `seed` and `condition` in the first line name the run
RUN/metrics.json, out/summary.csv  the run's metrics as a whole
RUN/emergence/steps.jsonl          counts for each step, from which the rate of correct answers follows
RUN/emergence/generations.jsonl    one line for each answer, averaged by step
CAMPAIGN/manifest.json, runs/*     all runs of a campaign, also those that never logged anything
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.records.rundir import META, SERIES
from bakeoff.records.series import read_block, read_jsonl
from bakeoff.results.editions import as_floats
from bakeoff.results.importers.files import number, read_csv, read_json, read_lines
from bakeoff.results.importers.foreign import ForeignRun, Item, Outcome, Reading, Source
from bakeoff.results.importers.identity import name_and_seed
from bakeoff.results.importers.table_roles import STATUS_OF, status_word
from bakeoff.results.table import Row
from bakeoff.results.table import Series as Column
from bakeoff.spec.identity import flatten, slug
from bakeoff.spec.workload import Scalar, Status

LOGS = (SERIES, "emergence/steps.jsonl")
"""Where a run has its steps; a metric that is in both is taken from the first."""
GENERATIONS = "emergence/generations.jsonl"
METRICS = ("metrics.json", "out/metrics.json", "out/summary.csv", "summary.csv")
MANIFEST = "manifest.json"
CORRECT = 0.99
"""Reward from which on an answer counts as correct where nothing else says so."""
OUTCOME_OF: Mapping[str, Outcome] = {
    "succeeded": "scored", "failed": "failed", "timeout": "failed", "infra_error": "missing", "cancelled": "missing",
    "running": "running", "planned": "running",
}  # fmt: skip
"""Outcomes of our statuses."""


class RunDirectories:
    """A run's directory, a directory of run directories, or a campaign."""

    name = "run directories"

    def claims(self, path: Path) -> list[Path]:
        if is_run(path) or (path / MANIFEST).is_file():
            return [path]
        entries = run_directories(path)
        return entries if any(is_run(entry) for entry in entries) else []

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        campaigns = [path for path in paths if not is_run(path) and (path / MANIFEST).is_file()]
        for campaign in campaigns:
            yield from read_campaign(campaign) or read_each(run_directories(campaign), read_run)
        yield from read_each([path for path in paths if path not in campaigns], read_run)


def is_run(directory: Path) -> bool:
    return any((directory / name).is_file() for name in (*LOGS, GENERATIONS, META, *METRICS))


def run_directories(directory: Path) -> list[Path]:
    """Return the directories in `directory/runs`, or in `directory` itself, by name."""
    home = directory / "runs" if (directory / "runs").is_dir() else directory
    if not home.is_dir():
        return []
    return sorted(entry for entry in home.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def read_each(directories: Iterable[Path], read: Callable[[Path], Row | ForeignRun]) -> Iterator[Item]:
    """Yield the run of each directory, and a problem for each that cannot be read."""
    known: dict[str | None, Path] = {}
    for directory in directories:
        try:
            run = read(directory)
        except (OSError, ValueError, TypeError, KeyError, UsageError) as error:
            yield Reading(problems=[str(error) if isinstance(error, UsageError) else f"{directory}: {error}"])
            continue
        name = run.run_id if isinstance(run, Row) else run.run
        if name in known:
            yield Reading(problems=[f"{directory}: has the run id of {known[name]}"])
            continue
        known[name] = directory
        yield run


def read_campaign(campaign: Path) -> list[Item]:
    """Runs of a campaign's manifest; a run that logged nothing failed if it has an exit code, and is missing otherwise."""
    manifest = read_json(str(campaign / MANIFEST))
    runs: list[Item] = []
    for entry in (manifest or {}).get("runs") or []:
        arm, seed, failed = str(entry["condition"]), int(entry["seed"]), bool(entry.get("returncode"))
        directory = campaign / "runs" / str(entry["run_name"])
        run = read_run(directory) if is_run(directory) else _lost(directory)
        if isinstance(run, Row):
            runs.append(replace(run, arm=arm, seed=seed, status="failed" if failed else run.status))
        else:
            outcome: Outcome | None = "failed" if failed else run.outcome
            runs.append(replace(run, labels={"arm": arm}, seed=seed, outcome=outcome))
    return runs


def _lost(directory: Path) -> ForeignRun:
    return ForeignRun(labels={}, source=Source(directory), run=str(directory), outcome="missing")


def read_run(directory: Path) -> Row | ForeignRun:
    """One run, with everything that its files say. Raises UsageError when they say nothing, ValueError when torn."""
    meta = read_json(str(directory / META)) or {}
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
    status = str(labels.get("status", "succeeded"))
    if status_word(status) not in STATUS_OF:
        raise UsageError(f"{directory}: {META} has the status {status!r}; write succeeded, failed, timeout or missing")
    return ForeignRun(
        labels={"arm": labels.get("condition") or labels.get("arm") or arm},
        source=Source(directory),
        task=str(labels.get("task", "default")),
        seed=int(labels["seed"]) if labels.get("seed") is not None else seed,
        run=str(directory),
        outcome=OUTCOME_OF[STATUS_OF[status_word(status)]],
        error=status if status_word(status) == "timeout" else None,
        metrics={name: value for name, value in (metrics or {}).items() if name not in columns},
        series=columns,
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
