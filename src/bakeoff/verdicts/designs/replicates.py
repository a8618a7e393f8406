"""Many relabelled replicates of one comparison: differences where arms pair, else the runs of both arms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from bakeoff.results.table import Array
from bakeoff.stats.incomplete import additive_fit, cell_weights
from bakeoff.stats.many import Many
from bakeoff.stats.ttests import TStatistic, seeds_look_crossed
from bakeoff.verdicts.designs.base import Design, Rule
from bakeoff.verdicts.designs.cells import Place

Block = Literal["task", "seed", "run"]
Integers = npt.NDArray[np.intp]
SURE = 0.8
"""Confidence of the bound on what runs of one seed could have in common."""


@dataclass(frozen=True, slots=True)
class Level:
    """Blocks of runs that are exchanged together: whole tasks, whole seeds, single runs, or groups of tasks or seeds."""

    block: Block
    column: str = ""
    """The column whose values group the tasks; empty where single tasks are blocks."""
    copies: bool = False
    """Seeds, or tasks, that are copies of each other are one block."""
    groups: Mapping[Any, Any] = field(default_factory=dict)
    """The group of each task or seed; one that is not in it is a block of its own."""

    def of(self, place: Place) -> Hashable:
        """Return the block that a place belongs to."""
        if self.block == "run":
            return place
        name = place[self.block == "seed"]
        group: Hashable = self.groups.get(name, name)
        return group

    @property
    def plural(self) -> str:
        """`tasks`, `groups of tasks by 'repo'`, `distinct seeds`."""
        if self.column:
            return f"groups of tasks by {self.column!r}"
        return f"{'distinct ' if self.copies else ''}{self.block}s"


class World(ABC):
    """Many relabelled replicates of one comparison."""

    @abstractmethod
    def many(self, how: Rule, effect: float = 0.0) -> Many:
        """Return the tests that the design gets, with `effect` given to whoever is called the candidate."""

    @abstractmethod
    def p_common(self, level: Level) -> float:
        """Return p of 'runs of one block have nothing in common', from the first replicate: an F test.

        Few blocks differ by chance, and then exchanging them gives more wrong verdicts than alpha although nothing is
        wrong.
        """

    def hidden_rate(self, level: Level, alpha: float) -> float:
        """Return the rate of false verdicts if blocks had as much in common as these runs cannot rule out.

        An F test that finds nothing in a few seeds says little about them. 0 where nothing is known about it.
        """
        return 0.0


@dataclass(frozen=True, slots=True)
class Pairs(World):
    """Differences of paired arms at every place, (replicates, places)."""

    design: Design
    d: Array
    tasks: Integers
    """The number of each place's task."""
    seeds: Integers

    def many(self, how: Rule, effect: float = 0.0) -> Many:
        return self.design.judge_pairs(replace(self, d=self.d + effect), how)

    def of_tasks(self) -> Array:
        """Return the mean of each task, (replicates, tasks)."""
        return group_means(self.d, self.tasks)

    def of_seeds(self) -> Array:
        """Return the mean of each seed, (replicates, seeds)."""
        return group_means(self.d, self.seeds)

    def tables(self) -> Array:
        """Return (replicates, tasks, seeds), NaN where a combination was not run."""
        tables = np.full((len(self.d), self.tasks.max() + 1, self.seeds.max() + 1), np.nan)
        tables[:, self.tasks, self.seeds] = self.d
        return tables

    def strata(self) -> list[list[Array]]:
        """Return the differences of each task, for every replicate."""
        members = [np.flatnonzero(self.tasks == task) for task in range(self.tasks.max() + 1)]
        return [[row[each] for each in members] for row in self.d]

    def p_common(self, level: Level) -> float:
        first = replace(self, d=self.d[:1])
        if level.column:
            return _groups_differ(first.of_tasks()[0], [level.of((task, None)) for task in self.design.tasks])
        if level.block == "seed":
            return seeds_look_crossed(first.tables()[0])
        (groups,) = first.strata()
        variance = [group.var(ddof=1) / group.size for group in groups]
        df = self.d.shape[1] - len(groups)
        return _between([float(group.mean()) for group in groups], float(np.mean(variance)), df)

    def hidden_rate(self, level: Level, alpha: float) -> float:
        if level.block != "seed":
            return 0.0
        first = replace(self, d=self.d[:1])
        table = first.tables()[0]
        own = self.design.t_of_strata(first.strata()[0])
        return 0.0 if own is None else rate_with(own, seeds_in_mean(table), alpha)


@dataclass(frozen=True, slots=True)
class Samples(World):
    """Independent runs of both arms, for every task an array (replicates, runs); one array when tasks do not matter."""

    design: Design
    control: list[Array]
    candidate: list[Array]

    def many(self, how: Rule, effect: float = 0.0) -> Many:
        return self.design.judge_samples(replace(self, candidate=[part + effect for part in self.candidate]), how)

    def p_common(self, level: Level) -> float:
        both = [(x[0], y[0]) for x, y in zip(self.control, self.candidate, strict=True)]
        variance = [x.var(ddof=1) / x.size + y.var(ddof=1) / y.size for x, y in both]
        df = sum(x.size + y.size - 2 for x, y in both)
        return _between([float(y.mean() - x.mean()) for x, y in both], float(np.mean(variance)), df)


def seeds_in_mean(table: Array) -> float:
    """Return the variance that seeds may give the mean of a (tasks, seeds) table, at most, with confidence SURE.

    It is the upper limit of the seeds' component from the F ratio; 0 where there is nothing to estimate it from.
    """
    fit = additive_fit(table)
    if fit.seeds_df < 1 or fit.rest_df < 1 or fit.mean_square <= 0.0:
        return 0.0
    f = fit.seeds / fit.seeds_df / fit.mean_square
    excess = max(0.0, f / float(sp.fdtri(fit.seeds_df, fit.rest_df, 1.0 - SURE)) - 1.0)
    of_seed = excess * fit.mean_square / (float((~np.isnan(table)).sum()) / table.shape[1])
    return float(of_seed * (cell_weights(table).sum(axis=0) ** 2).sum())


def rate_with(own: TStatistic, hidden: float, alpha: float) -> float:
    """Return how often a t test rejects at alpha if its estimate has `hidden` more variance than it knows of."""
    critical = -float(sp.stdtrit(own.df, alpha / 2.0))
    return 2.0 * float(sp.stdtr(own.df, -critical / math.sqrt(1.0 + hidden / own.se**2)))


def _groups_differ(values: Array, groups: Sequence[Hashable]) -> float:
    """Return p of 'values of one group have nothing in common': one-way analysis of variance, groups of any size."""
    members = [values[[g == group for g in groups]] for group in dict.fromkeys(groups)]
    between, within = len(members) - 1.0, float(values.size - len(members))
    inside = float(sum(((each - each.mean()) ** 2).sum() for each in members))
    if between < 1.0 or within < 1.0 or inside <= 0.0:
        return 1.0
    across = float(sum(each.size * (each.mean() - values.mean()) ** 2 for each in members))
    return float(sp.fdtrc(between, within, (across / between) / (inside / within)))


def _between(effects: Sequence[float], variance: float, df: float) -> float:
    """Return p of an F test that the effects differ by more than their variance (the mean one) explains."""
    if variance <= 0.0:
        return 1.0
    return float(sp.fdtrc(len(effects) - 1.0, df, float(np.var(effects, ddof=1)) / variance))


def group_means(values: Array, groups: Integers) -> Array:
    """Return means of columns with the same number: (rows, places) becomes (rows, groups)."""
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return np.asarray(np.add.reduceat(values[:, order], starts, axis=1) / sizes)
