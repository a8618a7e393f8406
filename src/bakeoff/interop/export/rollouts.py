"""The trajectories of an edition: whose they are, what they earned, and with which others they form a group.

A group is what a group-relative update compares: rollouts of one policy from one prompt in one world. So it is made of
runs with the same task (by content), world and prompt, whose arms have the same parameters and flags and name the same
agent and policy version. The world is what the first step's `info` calls so, else the seed. Two arms that merely share a prompt are two policies: their difference would pass for a
difference between actions.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakeoff.interop.export.dialogue import Unspeakable, opening
from bakeoff.records.edition import Edition
from bakeoff.records.run import FAILED, CellRecord, TrajectoryIndex
from bakeoff.records.series import read_trajectory
from bakeoff.spec.identity import canonical_json
from bakeoff.spec.workload import Step


@dataclass(frozen=True, slots=True)
class Rollout:
    """One run's trajectory. Its steps stay on disk until they are asked for."""

    run_id: str
    arm: str
    task: str
    seed: int
    rollout: int
    status: str
    error: str | None
    started_at: float | None
    ended_at: float | None
    metrics: Mapping[str, Any]
    path: Path
    reward: float | None
    """What the steps earned, or the metric that the experiment is judged by. None: nobody knows, which is not 0."""
    success: bool
    group: str
    agent: str | None
    policy_version: str | None

    def steps(self) -> Iterator[Step]:
        return read_trajectory(self.path)

    @property
    def label(self) -> dict[str, Any]:
        """What every row says about where it is from."""
        return {
            "run_id": self.run_id,
            "arm": self.arm,
            "task": self.task,
            "seed": self.seed,
            "rollout": self.rollout,
            "group": self.group,
        }


def read_rollouts(edition: Edition, dropped: Counter[str]) -> Iterator[Rollout]:
    """Every finished trajectory, in the order of the plan; `dropped` counts the others by reason."""
    cells = {cell.number: cell for cell in edition.cells()}
    analysis = edition.facts()["spec"].get("analysis") or {}
    indexed = edition.trajectories()
    for run in edition.runs():
        index = indexed.get(run.position)
        if index is None:
            dropped["no trajectory"] += 1
            continue
        if run.status != "succeeded" and run.status not in FAILED:
            dropped[f"not finished ({run.status})"] += 1
            continue
        path = edition.paths.run(run.run_id) / index.path
        first = next(read_trajectory(path), None) if path.exists() else None
        if first is None:
            dropped["no steps" if path.exists() else "file is missing"] += 1
            continue
        reward = _reward(run.status, run.metrics, index, analysis)
        yield Rollout(
            run_id=run.run_id,
            arm=run.arm,
            task=run.task,
            seed=run.seed,
            rollout=run.rollout,
            status=run.status,
            error=run.error,
            started_at=run.started_at,
            ended_at=run.ended_at,
            metrics=run.metrics,
            path=path,
            reward=reward,
            success=_success(run.status, run.metrics, reward),
            group=_group(cells[run.cell], run.seed, first),
            agent=first.agent,
            policy_version=first.policy_version,
        )


def _reward(
    status: str, metrics: Mapping[str, Any], index: TrajectoryIndex, analysis: Mapping[str, Any]
) -> float | None:
    """A run that failed by its own doing earns what the experiment says that failing is worth, as in every verdict."""
    value: Any = index.reward
    if status in FAILED:
        value = analysis.get("failure_score")
    elif value is None and analysis.get("metric") is not None:
        value = metrics.get(analysis["metric"])
        if isinstance(value, int | float) and analysis.get("direction") == "minimize":
            value = -value
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _success(status: str, metrics: Mapping[str, Any], reward: float | None) -> bool:
    """The run's own metric `success` where it has one, otherwise a reward above zero."""
    if status != "succeeded":
        return False
    return bool(metrics["success"]) if "success" in metrics else reward is not None and reward > 0


def _group(cell: CellRecord, seed: int, first: Step) -> str:
    policy = [cell.params, cell.flags, first.agent, first.policy_version]
    try:
        prompt: Any = opening(first) or first.observation
    except Unspeakable:  # some formats take it as it is
        prompt = first.messages
    world = first.info.get("world", f"s{seed}")
    what = canonical_json([cell.task, cell.task_digest, world, policy, prompt])
    return f"{cell.task}__{world}__{hashlib.sha256(what.encode()).hexdigest()[:12]}"
