"""The trajectories of an edition: their rewards, the groups they form, and which of them to export.

A group is what a group-relative update compares: rollouts of one policy from one prompt in one world. So it is made
of runs with the same task (by content), world and prompt, whose arms have the same parameters and flags and name the
same agent and policy version. The world is what the first step's `info["world"]` says, else the seed. Two arms that
merely share a prompt are two policies: their difference would pass for a difference between actions.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.export.dialogue import NotAConversation, prompt_of
from bakeoff.records.edition import Edition
from bakeoff.records.run import FAILED, CellRecord, TrajectoryIndex
from bakeoff.records.series import read_trajectory
from bakeoff.spec.identity import canonical_json
from bakeoff.spec.workload import Step


@dataclass(frozen=True, slots=True)
class Rollout:
    """One run's trajectory. Its steps stay on disk until `steps` reads them."""

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
    """Sum of the steps' rewards, or the experiment's metric. None means unknown, which is not 0."""
    success: bool
    group: str
    agent: str | None
    policy_version: str | None

    def steps(self) -> Iterator[Step]:
        return read_trajectory(self.path)

    @property
    def label(self) -> dict[str, Any]:
        """The columns that say where a row comes from; every format has them."""
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
        # The run's own metric `success` where it has one, otherwise a reward above zero.
        succeeded = bool(run.metrics.get("success", reward is not None and reward > 0))
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
            success=run.status == "succeeded" and succeeded,
            group=_group(cells[run.cell], run.seed, first),
            agent=first.agent,
            policy_version=first.policy_version,
        )


def _reward(
    status: str, metrics: Mapping[str, Any], index: TrajectoryIndex, analysis: Mapping[str, Any]
) -> float | None:
    """The steps' rewards, else the experiment's metric, turned so that larger is better; None if there is neither.

    A run that failed because of its arm gets `analysis.failure_score`, as in every verdict.
    """
    value: Any = index.reward
    if status in FAILED:
        value = analysis.get("failure_score")
    elif value is None and analysis.get("metric") is not None:
        value = metrics.get(analysis["metric"])
        if isinstance(value, int | float) and analysis.get("direction") == "minimize":
            value = -value
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _group(cell: CellRecord, seed: int, first: Step) -> str:
    """The name of the group that a run belongs to: task, world and a digest over everything that must be equal."""
    policy = [cell.params, cell.flags, first.agent, first.policy_version]
    try:
        prompt: Any = prompt_of(first) or first.observation
    except NotAConversation:  # jsonl and parquet write it all the same
        prompt = first.messages
    world = first.info.get("world", f"s{seed}")
    content = canonical_json([cell.task, cell.task_digest, world, policy, prompt])
    return f"{cell.task}__{world}__{hashlib.sha256(content.encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rollouts to export. The last three follow from the format; `export` sets them."""

    arms: Sequence[str] = ()
    tasks: Sequence[str] = ()
    success: bool = False
    quantile: tuple[float, float] | None = None
    """Rewards between these quantiles of their task's rewards, both ends included."""
    min_group: int = 1
    needs_reward: bool = False
    whole_groups: bool = False
    """`success` and `quantile` judge a group by its best and by its mean reward, and keep or drop all of it.

    A group's baseline is the mean of all its rollouts; without the bad ones the good ones would look ordinary.
    """

    def check_names(self, arms: Iterable[str], tasks: Iterable[str]) -> None:
        """Raise UsageError for a name that the experiment does not have: it would silently select nothing."""
        for kind, wanted, known in (("arm", self.arms, sorted(set(arms))), ("task", self.tasks, sorted(set(tasks)))):
            for name in wanted:
                if name not in known:
                    raise UsageError(f"--{kind}s {name}: there is no such {kind}; there are {', '.join(known)}")


def select(rollouts: Iterable[Rollout], filters: Filters, dropped: Counter[str]) -> list[list[Rollout]]:
    """Groups of the rollouts that pass the filters; `dropped` counts the others by reason.

    Groups are ordered by task, seed and arm, and inside by seed, rollout and arm: the same edition gives the same
    order.
    """
    kept = [rollout for rollout in rollouts if not _count(_unwanted(rollout, filters), 1, dropped)]
    groups = defaultdict(list)
    for rollout in kept:
        groups[rollout.group].append(rollout)
    bounds = _reward_bounds(kept, filters.quantile)
    selected = []
    for group in sorted(
        groups.values(), key=lambda group: (group[0].task, group[0].seed, group[0].arm, group[0].group)
    ):
        group.sort(key=lambda rollout: (rollout.seed, rollout.rollout, rollout.arm))
        low, high = bounds.get(group[0].task, (-math.inf, math.inf))
        if filters.whole_groups:
            reason = ""
            rewards = [rollout.reward for rollout in group if rollout.reward is not None]
            if filters.success and not any(rollout.success for rollout in group):
                reason = "no success in the group"
            elif rewards and not low <= fmean(rewards) <= high:
                reason = "group's mean reward outside the quantiles"
            if _count(reason, len(group), dropped):
                continue
        else:
            good = []
            for rollout in group:
                reason = ""
                if filters.success and not rollout.success:
                    reason = "no success"
                elif rollout.reward is not None and not low <= rollout.reward <= high:
                    reason = "reward outside the quantiles"
                if not _count(reason, 1, dropped):
                    good.append(rollout)
            group = good
        small = f"fewer than {filters.min_group} rollouts in the group" if len(group) < filters.min_group else ""
        if group and not _count(small, len(group), dropped):
            selected.append(group)
    return selected


def _unwanted(rollout: Rollout, filters: Filters) -> str:
    """Why a rollout is left out whatever the others of its group are like; empty if it is not."""
    if filters.arms and rollout.arm not in filters.arms:
        return "another arm"
    if filters.tasks and rollout.task not in filters.tasks:
        return "another task"
    if rollout.reward is None and (filters.needs_reward or filters.quantile):
        return "no reward"
    return ""


def _count(reason: str, runs: int, dropped: Counter[str]) -> bool:
    """Whether there is a reason to drop these runs; if so it is counted."""
    if reason:
        dropped[reason] += runs
    return bool(reason)


def _reward_bounds(rollouts: Sequence[Rollout], quantile: tuple[float, float] | None) -> dict[str, tuple[float, float]]:
    """The lowest and highest wanted reward of each task: rewards of different tasks have different scales."""
    if quantile is None:
        return {}
    rewards = defaultdict(list)
    for rollout in rollouts:
        rewards[rollout.task].append(rollout.reward)
    ends = {task: np.quantile(np.array(values, dtype=np.float64), quantile) for task, values in rewards.items()}
    return {task: (float(low), float(high)) for task, (low, high) in ends.items()}
