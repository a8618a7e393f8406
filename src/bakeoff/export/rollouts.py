"""The trajectories of results: their rewards, the groups they form, and which of them to export.

A group is what a group-relative update compares: rollouts of one policy from one prompt in one world. So it is made
of runs with the same task (by content), world and prompt, whose arms have the same parameters and flags and name the
same agent and policy version. The world is what the first step's `info["world"]` says, else the seed. Two arms that
merely share a prompt are two policies: their difference would pass for a difference between actions.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bakeoff.errors import Damaged, UsageError
from bakeoff.export.dialogue import NotAConversation, prompt_of
from bakeoff.records.run import FAILED
from bakeoff.records.series import read_trajectory
from bakeoff.results.importing import identified
from bakeoff.results.table import Results, Row
from bakeoff.spec.experiment import Analysis
from bakeoff.spec.identity import canonical_json, run_id_in
from bakeoff.spec.workload import Step

ANSWERS = "completions.parquet"
"""What a training run has instead of a trajectory; `completions` reads it."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One run's trajectory. Its steps stay on disk until `steps` reads them."""

    run: Row
    path: Path
    home: Path
    """The run's directory, which has the path in it."""
    recorded: int
    """How many steps the run wrote."""
    reward: float | None
    """Sum of the steps' rewards, or the experiment's metric. None means unknown, which is not 0."""
    success: bool
    group: str
    agent: str | None
    policy_version: str | None

    def steps(self) -> Iterator[Step]:
        """Raises Damaged when the file is not what the run wrote."""
        count = 0
        try:
            for step in read_trajectory(self.path, self.home):
                count += 1
                yield step
        except (ValueError, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise Damaged(self.home, f"the trajectory of run {self.run.run_id!r} cannot be read: {reason}") from error
        if count < self.recorded:
            problem = f"{count} of {self.recorded} steps are left in the trajectory of run {self.run.run_id!r}"
            raise Damaged(self.home, problem)

    @property
    def label(self) -> dict[str, Any]:
        """The columns that say where a row comes from; every format has them."""
        run = self.run
        about = {"run_id": run.run_id, "arm": run.arm, "task": run.task, "seed": run.seed, "rollout": run.rollout}
        return {**about, "group": self.group}


@dataclass(frozen=True, slots=True)
class Transcript(Rollout):
    """What was said in a run of another tool, as one step."""

    def steps(self) -> Iterator[Step]:
        messages = [message.as_recorded() for message in self.run.messages()]
        yield Step(messages=messages, reward=self.reward, done=True)


def read_rollouts(results: Results, dropped: Counter[str]) -> Iterator[Rollout]:
    """Yield every finished trajectory, in the order of the rows; `dropped` counts the others by reason."""
    edition = results.edition
    if edition is None:
        yield from _read_transcripts(results, dropped)
        return
    indexed = edition.trajectories()
    digests = {cell.number: cell.task_digest for cell in edition.cells()}
    for run in results.rows:
        index = indexed.get(run.position)
        home = edition.paths.run(run_id_in(edition.paths.directory, run.run_id))
        if index is None and run.status == "succeeded" and os.path.lexists(home / ANSWERS):
            from bakeoff.export.completions import read_answers

            yield from read_answers(run, home)
            continue
        if index is None:
            dropped["no trajectory"] += 1
            continue
        if run.status != "succeeded" and run.status not in FAILED:
            dropped[f"not finished ({run.status})"] += 1
            continue
        path = home / index.path
        if not path.exists():
            dropped["file is missing"] += 1
            continue
        reward = _reward(run, index.reward, results.analysis, results.analysis.metric)
        rollout = Rollout(run, path, home, index.steps, reward, _succeeded(run, reward), "", None, None)
        first = next(rollout.steps(), None)
        if first is None:
            dropped["no steps"] += 1
            continue
        group = _group(run, digests[run.cell], first)
        yield replace(rollout, group=group, agent=first.agent, policy_version=first.policy_version)


def _read_transcripts(results: Results, dropped: Counter[str]) -> Iterator[Rollout]:
    """Yield what was said in each run of other tools, where the source has it."""
    try:
        metric = results.primary()[0]
    except UsageError:  # several metrics could be the reward, so none is
        metric = None
    for run in identified(results).rows:
        if run.transcript is None:
            dropped["no trajectory"] += 1
        elif run.status != "succeeded" and run.status not in FAILED:
            dropped[f"not finished ({run.status})"] += 1
        else:
            reward = _reward(run, None, results.analysis, metric)
            path = Path() if run.source is None else run.source.path
            rollout = Transcript(run, path, path.parent, 1, reward, _succeeded(run, reward), "", run.arm, None)
            first = next(rollout.steps())
            if first.messages:
                yield replace(rollout, group=_group(run, None, first))
            else:
                dropped["no steps"] += 1


def _succeeded(run: Row, reward: float | None) -> bool:
    """The run's own metric `success` where it has one, otherwise a reward above zero."""
    return run.status == "succeeded" and bool(run.metrics.get("success", reward is not None and reward > 0))


def _reward(run: Row, recorded: float | None, analysis: Analysis, metric: str | None) -> float | None:
    """Return the steps' rewards, else the metric, turned so that larger is better; None if there is neither.

    A run that failed because of its arm gets `analysis.failure_score`, as in every verdict.
    """
    value: Any = recorded
    if run.status in FAILED:
        value = analysis.failure_score
    elif value is None and metric is not None:
        value = run.metrics.get(metric)
        if isinstance(value, int | float) and analysis.direction == "minimize":
            value = -value
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _group(run: Row, task_digest: str | None, first: Step) -> str:
    """The name of the group that a run belongs to: task, world and a digest over everything that must be equal."""
    policy = [run.settings, list(run.flags), first.agent, first.policy_version]
    if run.edition is None:  # another tool's arm is its name, whatever its settings are
        policy.append(run.arm)
    try:
        prompt: Any = prompt_of(first) or first.observation
    except NotAConversation:  # jsonl and parquet write it all the same
        prompt = first.messages
    world = first.info.get("world", f"s{run.seed}")
    content = canonical_json([run.task, task_digest, world, policy, prompt])
    return f"{run.task}__{world}__{hashlib.sha256(content.encode()).hexdigest()[:12]}"


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
    groups = defaultdict(list)
    rewards = defaultdict(list)
    for rollout in rollouts:
        if filters.arms and rollout.run.arm not in filters.arms:
            dropped["another arm"] += 1
        elif filters.tasks and rollout.run.task not in filters.tasks:
            dropped["another task"] += 1
        elif rollout.reward is None and (filters.needs_reward or filters.quantile):
            dropped["no reward"] += 1
        else:
            groups[rollout.group].append(rollout)
            rewards[rollout.run.task].append(rollout.reward)
    # The lowest and highest wanted reward of each task: rewards of different tasks have different scales.
    bounds: dict[str, Any] = {}
    if filters.quantile is not None:
        bounds = {task: np.quantile(np.array(of_task), filters.quantile) for task, of_task in rewards.items()}
    first = [(group[0].run.task, group[0].run.seed, group[0].run.arm, name) for name, group in groups.items()]
    selected = []
    for *_, name in sorted(first):
        group = groups[name]
        group.sort(key=lambda rollout: (rollout.run.seed, rollout.run.rollout, rollout.run.arm))
        low, high = bounds.get(group[0].run.task, (-math.inf, math.inf))
        kept: list[Rollout] = []
        # A whole group is judged by its best and by its mean reward, a rollout by its own.
        for part in [group] if filters.whole_groups else [[rollout] for rollout in group]:
            known = [rollout.reward for rollout in part if rollout.reward is not None]
            if filters.success and not any(rollout.success for rollout in part):
                dropped["no success in the group" if filters.whole_groups else "no success"] += len(part)
            elif known and not low <= fmean(known) <= high:
                what = "group's mean reward" if filters.whole_groups else "reward"
                dropped[f"{what} outside the quantiles"] += len(part)
            else:
                kept += part
        if len(kept) >= filters.min_group:
            selected.append(kept)
        elif kept:
            dropped[f"fewer than {filters.min_group} rollouts in the group"] += len(kept)
    return selected
