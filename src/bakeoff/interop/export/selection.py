"""Which rollouts are wanted, and a count of the others by the reason why they are not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.interop.export.rollouts import Rollout


@dataclass(frozen=True, slots=True)
class Filters:
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


def select(rollouts: Iterable[Rollout], filters: Filters, dropped: Counter[str]) -> list[list[Rollout]]:
    """Groups of rollouts, ordered by task, seed and arm, and inside by rollout: the same edition gives the same order."""
    kept = [rollout for rollout in rollouts if _wanted(rollout, filters, dropped)]
    groups = defaultdict(list)
    for rollout in kept:
        groups[rollout.group].append(rollout)
    ordered = sorted(groups.values(), key=lambda group: (group[0].task, group[0].seed, group[0].arm, group[0].group))
    for group in ordered:
        group.sort(key=lambda rollout: (rollout.seed, rollout.rollout, rollout.arm))
    bounds = _bounds(kept, filters.quantile)
    if filters.whole_groups:
        judged = [group if _good_group(group, filters, bounds, dropped) else [] for group in ordered]
    else:
        judged = [[one for one in group if _good(one, filters, bounds, dropped)] for group in ordered]
    return [group for group in judged if group and _large(group, filters.min_group, dropped)]


def _wanted(rollout: Rollout, filters: Filters, dropped: Counter[str]) -> bool:
    if filters.arms and rollout.arm not in filters.arms:
        dropped["another arm"] += 1
    elif filters.tasks and rollout.task not in filters.tasks:
        dropped["another task"] += 1
    elif rollout.reward is None and (filters.needs_reward or filters.quantile):
        dropped["no reward"] += 1
    else:
        return True
    return False


Bounds = dict[str, tuple[float, float]]


def _bounds(rollouts: Sequence[Rollout], quantile: tuple[float, float] | None) -> Bounds:
    """The lowest and highest wanted reward of each task: tasks pay differently."""
    if quantile is None:
        return {}
    rewards = defaultdict(list)
    for rollout in rollouts:
        rewards[rollout.task].append(rollout.reward)
    found = {task: np.quantile(np.array(values, dtype=np.float64), quantile) for task, values in rewards.items()}
    return {task: (float(low), float(high)) for task, (low, high) in found.items()}


def _inside(task: str, reward: float | None, bounds: Bounds) -> bool:
    low, high = bounds.get(task, (-np.inf, np.inf))
    return reward is None or low <= reward <= high


def _good(rollout: Rollout, filters: Filters, bounds: Bounds, dropped: Counter[str]) -> bool:
    if filters.success and not rollout.success:
        dropped["no success"] += 1
    elif not _inside(rollout.task, rollout.reward, bounds):
        dropped["reward outside the quantiles"] += 1
    else:
        return True
    return False


def _good_group(group: Sequence[Rollout], filters: Filters, bounds: Bounds, dropped: Counter[str]) -> bool:
    rewards = [rollout.reward for rollout in group if rollout.reward is not None]
    if filters.success and not any(rollout.success for rollout in group):
        dropped["no success in the group"] += len(group)
    elif rewards and not _inside(group[0].task, fmean(rewards), bounds):
        dropped["group's mean reward outside the quantiles"] += len(group)
    else:
        return True
    return False


def _large(group: Sequence[Rollout], least: int, dropped: Counter[str]) -> bool:
    if len(group) >= least:
        return True
    dropped[f"fewer than {least} rollouts in the group"] += len(group)
    return False


def check_names(filters: Filters, arms: Iterable[str], tasks: Iterable[str]) -> None:
    """A name that the experiment does not have would select nothing, in silence."""
    for kind, wanted, known in (("arm", filters.arms, sorted(set(arms))), ("task", filters.tasks, sorted(set(tasks)))):
        for name in wanted:
            if name not in known:
                raise UsageError(f"--{kind}s {name}: there is no such {kind}; there are {', '.join(known)}")
