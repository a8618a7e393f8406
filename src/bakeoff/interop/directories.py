"""Run directories with `metrics.jsonl`, and the campaign logs of training runs.

RUN/metrics.jsonl                  one line for each step; `seed` and `condition` in it name the run
RUN/metrics.json                   the run's metrics as a whole, where they are no series
RUN/emergence/steps.jsonl          counts for each step, from which the rate of correct answers follows
RUN/emergence/generations.jsonl    one line for each answer, averaged by step
RUN/meta.json                      status, arm, task and seed, when somebody wrote them
CAMPAIGN/manifest.json, runs/*     all runs of a campaign, those that never logged anything included
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.records.foreign import read_bytes, read_json
from bakeoff.records.importing import FoundRun, Unreadable, read_run
from bakeoff.records.rundir import META
from bakeoff.verdicts import runlogs
from bakeoff.verdicts.runlogs import LOGS, Column, RunLog

GENERATIONS = "emergence/generations.jsonl"
RESULTS = "metrics.json"
MANIFEST = "manifest.json"
CORRECT = 0.99
"""Reward from which on an answer counts as correct where nothing else says so."""
_MARKS = (*LOGS, GENERATIONS, META, RESULTS)


def is_run(directory: Path) -> bool:
    return any((directory / mark).is_file() for mark in _MARKS)


def read_all(directory: Path) -> list[RunLog]:
    """The run that a directory is, or every run in it: a campaign, or a directory of run directories."""
    if is_run(directory):
        return [read(directory)]
    planned = _planned(directory)
    if planned:
        return planned
    home = directory / "runs" if (directory / "runs").is_dir() else directory
    found = [read(entry) for entry in sorted(home.iterdir()) if entry.is_dir() and is_run(entry)]
    if not found:
        raise UsageError(f"{directory}: no run is in it; a run's directory has {' or '.join(LOGS)}")
    return found


def _planned(campaign: Path) -> list[RunLog]:
    """Runs of a campaign's manifest. One that logged nothing failed if it says so, and is missing otherwise."""
    manifest = read_json(str(campaign / MANIFEST)) if campaign.is_dir() else None
    found = []
    for entry in (manifest or {}).get("runs") or []:
        name, seed = str(entry["run_name"]), int(entry["seed"])
        directory = campaign / "runs" / name
        code = entry.get("returncode")
        if is_run(directory):
            log = read(directory)
        else:
            log = RunLog(
                str(directory), str(entry["condition"]), "default", seed, 0, "failed" if code else "infra_error"
            )
        status = "failed" if code else log.status
        found.append(replace(log, arm=str(entry["condition"]), seed=seed, status=status))
    return found


def read(directory: Path) -> RunLog:
    """One run, with everything that its files say about who it is."""
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory")
    try:
        meta = read_json(str(directory / META)) or {}
        found = _ours(directory, meta)
        labels = {**_labels(directory), **meta}
        results = read_json(str(directory / RESULTS)) or {}
        if any((directory / log).is_file() for log in (*LOGS, GENERATIONS)):
            log = _logged(directory)
        elif found is not None:
            log = RunLog(str(directory), found.arm, found.task, found.seed, found.rollout, found.status)
        else:
            raise UsageError(f"{directory}: no run can be read there; a run's directory has {' or '.join(LOGS)}")
    except (ValueError, OSError, KeyError, TypeError) as error:
        raise UsageError(f"{directory}: {error}") from error
    if found is not None:
        numbers = _numbers(found.metrics)
        log = replace(log, arm=found.arm, task=found.task, seed=found.seed, rollout=found.rollout)
        return replace(log, status=found.status, numbers=numbers)
    seed = labels.get("seed")
    return replace(
        log,
        arm=str(labels.get("condition") or labels.get("arm") or log.arm),
        task=str(labels.get("task", log.task)),
        seed=log.seed if seed is None else int(seed),
        status=str(labels.get("status", log.status)),
        numbers={name: value for name, value in _numbers(results).items() if name not in log.series},
    )


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}


def _ours(directory: Path, meta: Mapping[str, Any]) -> FoundRun | None:
    """A run of ours or of a sweep, which say all about themselves; None for anybody else's."""
    speaks = {"arm", "workload"} <= set(meta) or {"params", "ablation_name"} <= set(meta)
    if not speaks and (meta or any((directory / log).is_file() for log in (*LOGS, GENERATIONS))):
        return None
    try:
        return read_run(directory)
    except Unreadable as error:
        raise UsageError(f"{directory}: {error}") from error


def _labels(directory: Path) -> dict[str, Any]:
    """`condition`, `seed` and `task`, as the first line of a log has them."""
    for log in LOGS:
        for line in _lines(directory / log):
            return {key: line[key] for key in ("condition", "seed", "task") if line.get(key) is not None}
    return {}


def _logged(directory: Path) -> RunLog:
    known = any((directory / log).is_file() for log in LOGS)
    log = (
        runlogs.of_directory(directory)
        if known
        else RunLog(str(directory), directory.name, "default", None, 0, "succeeded")
    )
    series = {**_answers(directory / GENERATIONS), **_rates(log.series), **log.series}
    return replace(log, series=series)


def _rates(series: Mapping[str, Column]) -> dict[str, Column]:
    """Share of correct answers by step, from counts."""
    if not {"correct_count", "total_count"} <= set(series):
        return {}
    (steps, correct), (others, total) = series["correct_count"], series["total_count"]
    if steps.shape != others.shape or not (steps == others).all() or not (total > 0).all():
        return {}
    return {"correct_rate": (steps, correct / total)}


def _answers(path: Path) -> dict[str, Column]:
    """`gen_reward` and `gen_correct_rate`: means over the answers of each step."""
    rewards: dict[float, list[float]] = {}
    correct: dict[float, list[float]] = {}
    for line in _lines(path):
        if not isinstance(line.get("reward"), int | float):
            continue
        step, reward = float(line.get("step", 0)), float(line["reward"])
        marked = (line.get("metadata") or {}).get("correctness")
        rewards.setdefault(step, []).append(reward)
        correct.setdefault(step, []).append(float(marked if marked is not None else reward >= CORRECT))
    if not rewards:
        return {}
    return {"gen_reward": _by_step(rewards), "gen_correct_rate": _by_step(correct)}


def _by_step(values: Mapping[float, list[float]]) -> Column:
    steps = sorted(values)
    return np.array(steps), np.array([float(np.mean(values[step])) for step in steps])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Tables of a JSONL file; what is torn is left out, as the last line often is."""
    for line in (read_bytes(str(path)) or b"").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry
