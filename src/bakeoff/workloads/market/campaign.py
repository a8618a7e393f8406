"""Several runs of agents on one world: the files of each run, and a summary of each agent's runs.

`bakeoff market run` makes one `Run` for each rollout, writes it, and puts the summaries into comparison.json.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from bakeoff.spec.identity import canonical_json
from bakeoff.stats.ttests import one_sample_t
from bakeoff.workloads.market import outputs
from bakeoff.workloads.market.journal import action_json
from bakeoff.workloads.market.rollout import Rollout

LEVEL = 0.95
CLOCKED = frozenset({"think_ms_mean", "think_ms_max"})
"""Metrics of the machine's clock: they differ between runs that are otherwise the same."""


@dataclass(frozen=True, slots=True)
class Run:
    """One agent's run, with the seed of its own randomness."""

    number: int
    seed: int
    agent: str
    benchmark: str
    """The world's id."""
    rollout: Rollout

    @property
    def id(self) -> str:
        """A digest of what was played, not when."""
        return hashlib.sha256(canonical_json([self.benchmark, self.agent, self.seed]).encode()).hexdigest()[:16]


# -- files


def write_run(run: Run, directory: Path, *, trajectory: bool) -> list[Path]:
    """Write result.json, metrics.json, actions.csv and the other tables; with `trajectory` also trajectory.json."""
    files = outputs.write(run.rollout, directory)
    files.append(outputs.write_json(directory / "result.json", result_json(run)))
    if trajectory:
        steps = [msgspec.to_builtins(msgspec.structs.replace(step, truth=None)) for step in run.rollout.steps()]
        content = {"id": run.id, "agentId": run.agent, "benchmarkId": run.benchmark, "seed": run.seed, "steps": steps}
        files.append(outputs.write_json(directory / "trajectory.json", content))
    return files


def result_json(run: Run) -> dict[str, Any]:
    """What was played, every action, profit by tick, and errors."""
    rollout = run.rollout
    start, turns = rollout.result.equity[0], rollout.player.turns
    actions = []
    for turn in turns:
        for call in turn.actions:
            action = action_json(call)
            actions.append({"tick": turn.tick, "timestamp": turn.timestamp, "data": action.pop("params"), **action})
    return {
        "id": run.id,
        "agentId": run.agent,
        "benchmarkId": run.benchmark,
        "seed": run.seed,
        "startTime": turns[0].timestamp,
        "endTime": rollout.world.time,
        "ticksProcessed": len(turns),
        "scenario": rollout.scenario.model_dump(mode="json"),
        "metrics": rollout.metrics,
        "actions": actions,
        "pnlHistory": [{"tick": tick, "pnl": value - start} for tick, value in enumerate(rollout.result.equity)],
        "errors": rollout.player.errors,
    }


def write_comparison(comparison: Mapping[str, Any], files: Sequence[Path], directory: Path) -> None:
    """Write comparison.json, with the names of the runs' files so that a later campaign can remove them."""
    names = [file.relative_to(directory).as_posix() for file in files]
    outputs.write_json(directory / "comparison.json", {**comparison, "files": names})


def remove_earlier(directory: Path) -> None:
    """Remove the files of an earlier campaign, so that none of them is taken for one of this campaign's."""
    try:
        names = json.loads((directory / "comparison.json").read_bytes())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in map(PurePosixPath, names):
        # The file may have been edited: never delete outside the directory.
        if name.is_absolute() or ".." in name.parts:
            continue
        (directory / name).unlink(missing_ok=True)
        for parent in list(name.parents)[:-1]:
            with contextlib.suppress(OSError):  # it holds something else
                (directory / parent).rmdir()


# -- summaries


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """An agent's runs: mean, standard deviation and interval of every metric, and which runs were best and worst."""
    # Runs with the same metrics are one run, however many there are. The clock's own are left out.
    steady = [{name: run.rollout.metrics[name] for name in run.rollout.metrics.keys() - CLOCKED} for run in runs]
    same = len(runs) > 1 and all(metrics == steady[0] for metrics in steady)
    by_pnl = sorted(runs, key=lambda run: (run.rollout.metrics["total_pnl"] or 0.0, -run.number))
    idle = [run.rollout for run in runs if run.rollout.never_acted]
    if idle:
        note = f"it never acted in {len(idle)} of {len(runs)} runs: {idle[0].trouble}"
    elif same:
        note = f"{len(runs)} identical runs: the agent is deterministic, so they count as one and show no spread"
    elif len(runs) == 1:
        note = "one run has no spread; give --runs"
    else:
        note = "runs share one world: the interval is about this agent's own randomness, not about other worlds"
    return {
        "agent": runs[0].agent,
        "runs": len(runs),
        "deterministic": same,
        "neverActed": len(idle),
        "note": note,
        "metrics": {name: _statistics(values(runs, name), same) for name in runs[0].rollout.metrics},
        "bestRun": by_pnl[-1].number,
        "worstRun": by_pnl[0].number,
    }


def values(runs: Sequence[Run], name: str) -> list[float]:
    """A metric's values in the runs that have one."""
    return [float(value) for run in runs if (value := run.rollout.metrics[name]) is not None]


def _statistics(numbers: Sequence[float], same: bool) -> dict[str, Any]:
    """Mean, spread and t-interval. Without spread (one run, or identical ones) there is no interval."""
    if not numbers:
        return {"n": 0, "mean": None, "sd": None, "low": None, "high": None, "min": None, "max": None}
    mean = sum(numbers) / len(numbers)
    facts = {"n": len(numbers), "mean": mean, "min": min(numbers), "max": max(numbers)}
    if len(numbers) < 2 or same:
        return {**facts, "sd": None, "low": None, "high": None}
    if min(numbers) == max(numbers):
        return {**facts, "sd": 0.0, "low": mean, "high": mean}
    estimate = one_sample_t(numbers)
    interval = estimate.interval(LEVEL)
    return {**facts, "sd": estimate.se * len(numbers) ** 0.5, "low": interval.low, "high": interval.high}
