"""Several runs of agents on one world: the files of each, and what can be said of them together."""

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
from bakeoff.workloads.market.journal import Turn, action_json
from bakeoff.workloads.market.rollout import Rollout

LEVEL = 0.95
CLOCKED = frozenset({"think_ms_mean", "think_ms_max"})
"""Metrics of the machine's clock: they differ between runs that are otherwise the same."""


@dataclass(frozen=True, slots=True)
class Run:
    """One agent's run, with the seed of its own chance."""

    number: int
    seed: int
    agent: str
    benchmark: str
    """The world's id."""
    rollout: Rollout

    @property
    def id(self) -> str:
        """Names what was played, not when."""
        return hashlib.sha256(canonical_json([self.benchmark, self.agent, self.seed]).encode()).hexdigest()[:16]


def write_run(run: Run, directory: Path, *, trajectory: bool) -> list[Path]:
    """result.json, metrics.json, actions.csv and the other tables; trajectory.json when asked for."""
    written = outputs.write(run.rollout, directory)
    written.append(outputs.write_json(directory / "result.json", result_json(run)))
    if trajectory:
        steps = [msgspec.to_builtins(msgspec.structs.replace(step, truth=None)) for step in run.rollout.steps()]
        facts = {"id": run.id, "agentId": run.agent, "benchmarkId": run.benchmark, "seed": run.seed}
        written.append(outputs.write_json(directory / "trajectory.json", {**facts, "steps": steps}))
    return written


def write_comparison(told: Mapping[str, Any], files: Sequence[Path], directory: Path) -> None:
    """comparison.json, with the names of the runs' files: a later campaign in this directory removes them."""
    names = [file.relative_to(directory).as_posix() for file in files]
    outputs.write_json(directory / "comparison.json", {**told, "files": names})


def forget(directory: Path) -> None:
    """Remove the runs of an earlier campaign, so that no file of theirs is taken for one of this campaign's."""
    try:
        names = json.loads((directory / "comparison.json").read_bytes())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in map(PurePosixPath, names):
        if name.is_absolute() or ".." in name.parts:
            continue
        (directory / name).unlink(missing_ok=True)
        for place in list(name.parents)[:-1]:
            with contextlib.suppress(OSError):  # it holds something else
                (directory / place).rmdir()


def result_json(run: Run) -> dict[str, Any]:
    rollout = run.rollout
    start, turns = rollout.result.equity[0], rollout.player.turns
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
        "actions": [_action(turn, call) for turn in turns for call in turn.actions],
        "pnlHistory": [{"tick": tick, "pnl": value - start} for tick, value in enumerate(rollout.result.equity)],
        "errors": rollout.player.errors,
    }


def _action(turn: Turn, call: Any) -> dict[str, Any]:
    told = action_json(call)
    return {"tick": turn.tick, "timestamp": turn.timestamp, "data": told.pop("params"), **told}


def deterministic(runs: Sequence[Run]) -> bool:
    """Whether every run came out the same: then they are one run, however many there are."""
    return len(runs) > 1 and all(_told(run) == _told(runs[0]) for run in runs)


def _told(run: Run) -> dict[str, Any]:
    return {name: value for name, value in run.rollout.metrics.items() if name not in CLOCKED}


def together(runs: Sequence[Run]) -> dict[str, Any]:
    """An agent's runs: mean, standard deviation and interval of every metric, and which runs were best and worst."""
    same = deterministic(runs)
    names = runs[0].rollout.metrics
    by_pnl = sorted(runs, key=lambda run: (run.rollout.metrics["total_pnl"] or 0.0, -run.number))
    return {
        "agent": runs[0].agent,
        "runs": len(runs),
        "deterministic": same,
        "neverActed": sum(run.rollout.never_acted for run in runs),
        "note": _note(runs, same),
        "metrics": {name: _summary(values(runs, name), same) for name in names},
        "bestRun": by_pnl[-1].number,
        "worstRun": by_pnl[0].number,
    }


def _note(runs: Sequence[Run], same: bool) -> str:
    if absent := [run.rollout for run in runs if run.rollout.never_acted]:
        return f"it never acted in {len(absent)} of {len(runs)} runs: {absent[0].trouble}"
    if same:
        return (
            f"{len(runs)} identical runs: the agent draws nothing, so they are one run and say nothing about its spread"
        )
    if len(runs) == 1:
        return "one run has no spread; give --runs"
    return "runs share one world: the interval is about this agent's own chance, not about other worlds"


def values(runs: Sequence[Run], name: str) -> list[float]:
    """Of the runs that have it."""
    return [float(value) for run in runs if (value := run.rollout.metrics[name]) is not None]


def _summary(found: Sequence[float], same: bool) -> dict[str, Any]:
    if not found:
        return {"n": 0, "mean": None, "sd": None, "low": None, "high": None, "min": None, "max": None}
    mean = sum(found) / len(found)
    spread = {"n": len(found), "mean": mean, "min": min(found), "max": max(found)}
    if len(found) < 2 or same:
        return {**spread, "sd": None, "low": None, "high": None}
    if min(found) == max(found):
        return {**spread, "sd": 0.0, "low": mean, "high": mean}
    estimate = one_sample_t(found)
    interval = estimate.interval(LEVEL)
    return {**spread, "sd": estimate.se * len(found) ** 0.5, "low": interval.low, "high": interval.high}
