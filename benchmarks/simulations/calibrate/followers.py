"""People who follow a plan: earlier runs, the advice of `power` from them, an experiment of that size, and its verdict.

The advice promises 80 %. Each replicate is one follower with earlier runs of his own, so the share of verdicts counts what
the earlier runs did not know about their noise. Effects are chosen so that plans are of some 20 to 100 units: with fewer,
whole numbers of units give more than they promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bakeoff.spec.experiment import Analysis
from bakeoff.stats import decision
from bakeoff.stats.evidence import Test
from bakeoff.stats.many import ManyPairs, ManySamples
from bakeoff.stats.plans import Stratified, TwoWay
from bakeoff.stats.power import Multiplicity
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.question import Question
from bakeoff.verdicts.questions.planning import EarlierRuns, earlier_runs
from bakeoff.verdicts.questions.power import Goal, Plan, plan, plan_of_both, plan_of_strata
from calibrate.laws import Array, Rng
from calibrate.table import ALPHA, Counts

PROMISED = 0.8
Arms = tuple[Array, Array]
"""Values of A and B, (tasks, seeds or runs)."""


@dataclass(frozen=True, slots=True)
class World:
    """Where runs come from. Differences of the arms vary by task, by seed (or run) and by the run of a seed on a task."""

    tasks: float = 0.0
    seeds: float = 0.0
    noise: float = 1.0
    shared: bool = True
    """Arms share their seeds."""
    group: int = 1
    """Tasks in a group, which share their effect."""

    def draw(self, rng: Rng, tasks: int, seeds: int, effect: float) -> Arms:
        """Tables of both arms; `noise` is the sd of one run in an arm."""
        of_task = np.repeat(rng.normal(0.0, self.tasks, -(-tasks // self.group)), self.group)[:tasks]
        of_seed = [rng.normal(0.0, self.seeds / (1.0 if self.shared else math.sqrt(2.0)), seeds) for _ in "AB"]
        a, b = (rng.normal(0.0, self.noise, (tasks, seeds)) for _ in "AB")
        if not self.shared:
            a += of_seed[0]
        return a, b + effect + of_task[:, None] + of_seed[1]


@dataclass(frozen=True, slots=True)
class Follower:
    """A design, the size of its earlier runs, and the effect that is planned for."""

    name: str
    world: World
    tasks: int
    seeds: int
    effect: float
    analysis: dict[str, Any] = field(default_factory=dict)
    comparisons: int = 1
    follow: Callable[[Plan, Follower], tuple[int, int]] = lambda made, own: (own.tasks, _needed(made))
    """The size of the experiment, (tasks, seeds), that the plan advises."""
    judge: Callable[[Array, Array, float], Test] | None = None
    """The test of the experiment's tables at a level; None for the test of the seeds' means."""
    bounded: bool = True
    at_most: float = 1.0
    """The bound on the share of verdicts where plans are known to keep more than they promise."""

    def count(self, rng: Rng, replicates: int) -> Counts:
        decided = np.zeros(replicates)
        level = ALPHA / self.comparisons
        for r in range(replicates):
            seen = self._observations(*self.world.draw(rng, self.tasks, self.seeds, 0.0))
            made = self._plan(earlier_runs(seen, "A", "B", Question(unpaired=not self.world.shared)))
            tasks, seeds = self.follow(made, self)
            a, b = self.world.draw(rng, tasks, seeds, self.effect)
            decided[r] = self._better(a, b, level)
        return {"decided": decided}

    def _plan(self, noise: EarlierRuns) -> Plan:
        goal = Goal(ALPHA, PROMISED, self.effect, noise.n, Multiplicity(self.comparisons))
        if isinstance(noise.noise, TwoWay):
            return plan_of_both(noise, noise.noise, goal)
        if isinstance(noise.noise, Stratified):
            return plan_of_strata(noise, noise.noise, goal)
        return plan(noise.spread, replace(goal, n=None))

    def _better(self, a: Array, b: Array, level: float) -> bool:
        if self.judge is not None:
            return self.judge(a, b, level).evidence.tails(0.0).greater <= level / 2.0
        m = self.comparisons
        if not self.world.shared:
            return bool(
                ManySamples(a.mean(axis=0)[None], b.mean(axis=0)[None], ALPHA, m).rejects(0.0, level / 2.0)[0][0]
            )
        return bool(ManyPairs((b - a).mean(axis=0)[None], ALPHA, m).rejects(0.0, level / 2.0)[0][0])

    def _observations(self, a: Array, b: Array) -> Observations:
        shared, several = self.world.shared, a.shape[0] > 1
        rows = [
            Observation(
                arm, f"t{t:03}" if several else "default",
                s if shared or arm == "A" else 1_000 + s, 0, "scored", float(values[t, s]),
            )
            for arm, values in (("A", a), ("B", b))
            for t in range(a.shape[0])
            for s in range(a.shape[1])
        ]  # fmt: skip
        groups = (
            {"repo": {f"t{t:03}": str(t // self.world.group) for t in range(a.shape[0])}}
            if self.world.group > 1
            else {}
        )
        return Observations("score", rows, Analysis(**self.analysis), groups=groups)


def _needed(made: Plan) -> int:
    assert made.needed is not None and made.needed.planned is not None
    return min(20_000, int(made.needed.planned))


def _more_tasks(made: Plan, own: Follower) -> tuple[int, int]:
    return _needed(made) * own.world.group, own.seeds


def _both(made: Plan, own: Follower) -> tuple[int, int]:
    assert made.both is not None and made.both.more_of_both is not None
    return made.both.more_of_both


def _more_seeds(made: Plan, own: Follower) -> tuple[int, int]:
    """As many tasks as now; more of both where no number of seeds is enough."""
    assert made.both is not None
    return _both(made, own) if made.both.more_seeds is None else (own.tasks, made.both.more_seeds)


def _by_task(a: Array, b: Array, level: float) -> Test:
    return decision.paired_test((b - a).mean(axis=1), level)


def _crossed(a: Array, b: Array, level: float) -> Test:
    return decision.crossed_test(b - a, alpha=level)


def _strata(a: Array, b: Array, level: float) -> Test:
    return decision.stratified_paired_test(list(b - a), level=level)


def _runs(a: Array, b: Array, level: float) -> Test:
    return decision.runs_test(a, b, level=level)


def _groups(a: Array, b: Array, level: float) -> Test:
    d = (b - a).mean(axis=1)
    return decision.groups_test(d, np.arange(d.size) // 4, level)


NESTED, CROSSED = {"seeds": "nested"}, {"seeds": "crossed"}
FIXED = {"tasks": "fixed"}
FOLLOWERS = (
    Follower("8 paired seeds", World(), 1, 8, 0.7),
    Follower("8 + 8 unpaired runs", World(shared=False), 1, 8, 0.6, CROSSED),
    Follower("one of 4 arms, 8 paired seeds", World(), 1, 8, 0.8, comparisons=4),
    Follower("one of 100 comparisons, 12 paired seeds", World(), 1, 12, 0.9, comparisons=100),
    Follower("10 tasks x 3 nested seeds", World(tasks=1.0), 10, 3, 0.55, NESTED, follow=_more_tasks, judge=_by_task),
    Follower("12 tasks x 6 crossed seeds", World(tasks=1.0, seeds=1.0), 12, 6, 0.8, CROSSED, follow=_both, judge=_crossed, at_most=0.88),
    Follower("20 tasks x 5 crossed seeds, more seeds", World(tasks=0.5, seeds=1.0), 20, 5, 0.9, CROSSED, follow=_more_seeds, judge=_crossed, bounded=False),
    Follower("5 fixed tasks x 8 crossed seeds", World(seeds=1.0), 5, 8, 0.6, CROSSED | FIXED),
    Follower("5 fixed tasks x 4 nested seeds", World(noise=2.0), 5, 4, 0.9, NESTED | FIXED, judge=_strata),
    Follower("8 groups of 4 tasks", World(tasks=1.0, group=4), 32, 1, 0.65, {"cluster": "repo"}, follow=_more_tasks, judge=_groups),
    Follower("10 tasks x 5 runs of each arm", World(tasks=0.7, seeds=1.0, shared=False), 10, 5, 0.8, CROSSED, follow=_both, judge=_runs, at_most=0.88),
)  # fmt: skip


def each() -> Iterator[tuple[str, Follower]]:
    for follower in FOLLOWERS:
        yield "plan-" + "-".join(follower.name.replace(",", "").replace("+", "and").split()), follower
