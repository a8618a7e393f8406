"""Many arms on many tasks: aggregates with intervals, profiles, pairwise chances, ranks, strengths.

Intervals resample runs inside tasks, so they speak of these tasks only. Ranks and strengths take the task as the unit
(the shared seed, where there is one task). Failures count their failure score; missing runs are left out, told, and
the arm is flagged: its figures are those of the runs that survived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.stats import aggregates
from bakeoff.stats.aggregates import Improvement, Profile
from bakeoff.stats.bootstrap import BootstrapInterval
from bakeoff.stats.ranks import AverageRanks, BradleyTerry, bradley_terry, friedman
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.units import Array, failure_score

FEW_RUNS = 10
PRIOR = 0.5
References = Mapping[str, tuple[float, float]]
"""For each task the scores that count 0 and 1."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to ask. `target`: the score from which on more earns nothing (optimality gap)."""

    level: float = 0.95
    resamples: int = 2_000
    seed: int = 0
    target: float | None = None
    points: int = 101
    """Thresholds of the performance profile."""


@dataclass(frozen=True, slots=True)
class ArmScore:
    """One arm. Estimates are in the metric's own direction, or normalised."""

    arm: str
    runs: int
    failed: int
    missing: tuple[str, ...]
    mean: BootstrapInterval
    iqm: BootstrapInterval
    optimality_gap: BootstrapInterval | None
    average_rank: float | None
    strength: tuple[float, float, float] | None
    """Bradley-Terry log strength with its interval."""
    profile: Profile

    @property
    def flagged(self) -> bool:
        return bool(self.missing)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Arms, best IQM first; matrices follow this order."""

    metric: str
    normalised: bool
    larger_is_better: bool
    arms: tuple[ArmScore, ...]
    tasks: tuple[str, ...]
    improvement: tuple[tuple[Improvement | None, ...], ...]
    """improvement[i][j]: chance that a run of arm i beats one of arm j on the same task."""
    ranks: AverageRanks | None
    groups: tuple[tuple[str, ...], ...]
    """Largest sets of arms that the average ranks do not tell apart."""
    strengths: BradleyTerry | None
    blocks: str
    """What ranks and strengths are taken over: `12 tasks`."""
    warnings: tuple[str, ...]


def rank(seen: Observations, references: References | None = None, options: Options | None = None) -> Ranking:
    """Every arm of the table on every task. At least two arms."""
    options = options or Options()
    table = _Table(seen, references)
    order = sorted(table.arms, key=lambda arm: -aggregates.iqm(table.strata(arm), resamples=2).estimate)
    scores = [table.strata(arm) for arm in order]
    blocks, unit = table.blocks(order)
    ranks = friedman(blocks, 1.0 - options.level) if blocks.shape[0] >= 2 and len(order) >= 3 else None
    strengths, prior = _strengths(blocks, options.level)
    taus = _thresholds(scores, options.points, normalised=references is not None)
    arms = [_score(table, arm, i, taus, ranks, strengths, options) for i, arm in enumerate(order)]
    least = min(part.size for parts in scores for part in parts)
    return Ranking(
        metric=seen.metric,
        normalised=references is not None,
        larger_is_better=not table.turned,
        arms=tuple(arms),
        tasks=tuple(table.tasks),
        improvement=_improvement(scores, options),
        ranks=ranks,
        groups=_groups(order, ranks),
        strengths=strengths,
        blocks=f"{blocks.shape[0]} {unit}",
        warnings=tuple(_warnings(seen, arms, least, ranks, prior)),
    )


def _score(
    table: _Table,
    arm: str,
    place: int,
    taus: Array,
    ranks: AverageRanks | None,
    strengths: BradleyTerry | None,
    options: Options,
) -> ArmScore:
    scores = table.strata(arm)
    how = (options.resamples, options.level, options.seed)
    target = table.target(options.target)
    sign = -1.0 if table.turned else 1.0
    shown = aggregates.profile(scores, taus, *how)
    return ArmScore(
        arm=arm,
        runs=sum(part.size for part in scores),
        failed=table.failed[arm],
        missing=tuple(table.missing[arm]),
        mean=_turned(aggregates.average(scores, *how), sign),
        iqm=_turned(aggregates.iqm(scores, *how), sign),
        optimality_gap=None if target is None else aggregates.optimality_gap(scores, target, *how),
        average_rank=None if ranks is None else ranks.ranks[place],
        strength=None
        if strengths is None
        else (strengths.strength[place], strengths.low[place], strengths.high[place]),
        profile=replace(shown, thresholds=tuple(sign * tau for tau in shown.thresholds)),
    )


class _Table:
    """Values of every arm on every task, failures scored, larger is better."""

    def __init__(self, seen: Observations, references: References | None) -> None:
        self.arms, self.tasks = seen.arms, seen.tasks
        if len(self.arms) < 2:
            raise UsageError(f"there is nothing to rank: {seen.source or 'the table'} has {len(self.arms)} arm")
        self.turned = not seen.larger_is_better and references is None
        self.failed = dict.fromkeys(self.arms, 0)
        self.missing: dict[str, list[str]] = {arm: [] for arm in self.arms}
        self._seen, self._references = seen, references
        self._runs: dict[tuple[str, str], list[tuple[int | None, float]]] = {}
        for row in seen.rows:
            self._add(row)
        for arm in self.arms:
            without = [task for task in self.tasks if (arm, task) not in self._runs]
            if without:
                raise UsageError(
                    f"{arm!r} has no value on {_some(without)}; every arm needs a run on every task to be ranked with the others"
                )

    def _add(self, row: Observation) -> None:
        if row.state == "missing":
            self.missing[row.arm].append(row.run_id or f"{row.task}, seed {row.seed}, rollout {row.rollout}")
            return
        value = row.value
        if row.state == "failed":
            self.failed[row.arm] += 1
            score = failure_score(self._seen)
            if score is None:
                raise UsageError(
                    f"run {row.run_id or (row.arm, row.task, row.seed)} failed, and nothing says what a failure counts: "
                    "set analysis.failure_score or analysis.bounds (or --failure-score)"
                )
            value = score
        if not np.isfinite(value):
            raise UsageError(f"{row.arm!r}, task {row.task!r}, seed {row.seed}: {self._seen.metric} is {value}")
        self._runs.setdefault((row.arm, row.task), []).append((row.seed, self._scored(row.task, value)))

    def _scored(self, task: str, value: float) -> float:
        if self._references is None:
            return -value if self.turned else value
        if task not in self._references:
            raise UsageError(f"task {task!r} has no reference scores to normalise by")
        low, high = self._references[task]
        if low == high:
            raise UsageError(f"task {task!r}: both reference scores are {low:g}, so nothing can be normalised")
        if (high > low) != self._seen.larger_is_better:
            word = "larger" if self._seen.larger_is_better else "smaller"
            raise UsageError(
                f"task {task!r}: {word} is better, but the reference that counts 1 ({high:g}) is worse than {low:g}"
            )
        return (value - low) / (high - low)

    def strata(self, arm: str) -> list[Array]:
        return [np.array([value for _, value in self._runs[arm, task]]) for task in self.tasks]

    def target(self, asked: float | None) -> float | None:
        """The target asked for, 1 for normalised scores, or the good end of a declared range; None when none is there."""
        if self._references is not None:
            return 1.0 if asked is None else asked
        bounds = self._seen.analysis.bounds
        if asked is None and bounds is not None:
            asked = bounds[0] if self.turned else bounds[1]
        return None if asked is None else (-asked if self.turned else asked)

    def blocks(self, arms: Sequence[str]) -> tuple[Array, str]:
        """(blocks x arms): task means; where there is one task, means of the seeds that all arms share."""
        if len(self.tasks) > 1:
            return np.array([[np.mean([v for _, v in self._runs[a, t]]) for a in arms] for t in self.tasks]), "tasks"
        task = self.tasks[0]
        by_seed = [self._by_seed(arm, task) for arm in arms]
        shared = [seed for seed in by_seed[0] if all(seed in other for other in by_seed[1:])]
        return np.array([[values[seed] for values in by_seed] for seed in shared]).reshape(-1, len(arms)), "seeds"

    def _by_seed(self, arm: str, task: str) -> dict[int, float]:
        seeds = dict.fromkeys(seed for seed, _ in self._runs[arm, task] if seed is not None)
        return {s: float(np.mean([v for seed, v in self._runs[arm, task] if seed == s])) for s in seeds}


def _thresholds(scores: Sequence[list[Array]], points: int, normalised: bool) -> Array:
    every = np.concatenate([part for parts in scores for part in parts])
    low, high = float(every.min()), float(every.max())
    if normalised:
        low, high = min(low, 0.0), max(high, 1.0)
    return np.linspace(low, high, points) if high > low else np.array([low])


def _turned(found: BootstrapInterval, sign: float) -> BootstrapInterval:
    """Back in the metric's own direction."""
    if sign > 0:
        return found
    return BootstrapInterval(
        -found.estimate, -found.high, -found.low, found.level, found.method, found.resamples, found.standard_error
    )


def _improvement(scores: Sequence[list[Array]], options: Options) -> tuple[tuple[Improvement | None, ...], ...]:
    """Upper half computed, lower half its mirror, so that both sides of a pair add up to 1."""
    size = len(scores)
    found: list[list[Improvement | None]] = [[None] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1, size):
            one = aggregates.improvement(scores[j], scores[i], options.resamples, options.level, options.seed)
            found[i][j] = one
            found[j][i] = Improvement(1.0 - one.probability, 1.0 - one.high, 1.0 - one.low, one.level)
    return tuple(tuple(row) for row in found)


def _groups(arms: Sequence[str], ranks: AverageRanks | None) -> tuple[tuple[str, ...], ...]:
    if ranks is None:
        return ()
    ordered = sorted(range(len(arms)), key=lambda i: ranks.ranks[i])
    found: list[tuple[int, ...]] = []
    for start in range(len(ordered)):
        near = [i for i in ordered[start:] if ranks.ranks[i] - ranks.ranks[ordered[start]] <= ranks.critical_difference]
        if not found or not set(near) <= set(found[-1]):
            found.append(tuple(near))
    return tuple(tuple(arms[i] for i in group) for group in found)


def _strengths(blocks: Array, level: float) -> tuple[BradleyTerry | None, bool]:
    """One game of every pair of arms in each block, and whether a prior had to keep strengths finite."""
    if blocks.shape[0] < 2:
        return None, False
    wins = ((np.sign(blocks[:, :, None] - blocks[:, None, :]) + 1.0) / 2.0).sum(axis=0)
    np.fill_diagonal(wins, 0.0)
    try:
        return bradley_terry(wins, level=level), False
    except ValueError:
        return bradley_terry(wins, PRIOR, level), True


def _warnings(
    seen: Observations, arms: Sequence[ArmScore], least: int, ranks: AverageRanks | None, prior: bool
) -> list[str]:
    found = list(seen.notes)
    if not seen.final:
        found.append("planned runs are still open, so this is not final")
    if least < FEW_RUNS:
        cover = "87-90 %" if least <= 3 else "about 92 %" if least <= 5 else "less than 95 %"
        found.append(
            f"the fewest runs on a task are {least}, fewer than {FEW_RUNS}: the intervals are too short (95 % ones cover {cover})"
        )
    flagged = [f"{arm.arm} ({len(arm.missing)})" for arm in arms if arm.flagged]
    if flagged:
        found.append(f"runs are missing, so these arms stand on the runs that survived: {', '.join(flagged)}")
    if ranks is None:
        found.append(
            "average ranks need 3 arms; compare two with `bakeoff compare`"
            if len(arms) < 3
            else "average ranks need 2 tasks or shared seeds"
        )
    if prior:
        found.append(
            f"some arms never lost to others, so strengths were kept finite by {PRIOR:g} games won by halves in each pair"
        )
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
