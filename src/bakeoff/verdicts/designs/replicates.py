"""Many relabelled replicates of one comparison: differences where arms pair, else the runs of both arms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from bakeoff.results.table import Array
from bakeoff.stats.incomplete import additive_fit, cell_weights
from bakeoff.stats.many import Many
from bakeoff.stats.ttests import seeds_look_crossed
from bakeoff.verdicts.designs.base import Design, Rule

Block = Literal["task", "seed", "run"]
Integers = npt.NDArray[np.intp]
SURE = 0.8
"""Confidence of the bound on what runs of one seed could have in common."""


class World(ABC):
    """Many relabelled replicates of one comparison."""

    @abstractmethod
    def many(self, how: Rule, effect: float = 0.0) -> Many:
        """Return the tests that the design gets, with `effect` given to whoever is called the candidate."""

    @abstractmethod
    def p_common(self, block: Block) -> float:
        """Return p of 'runs of one block have nothing in common', from the first replicate: an F test.

        Few blocks differ by chance, and then exchanging them gives more wrong verdicts than alpha although nothing is
        wrong.
        """

    def hidden_rate(self, block: Block, alpha: float) -> float:
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

    def p_common(self, block: Block) -> float:
        first = replace(self, d=self.d[:1])
        if block == "seed":
            return seeds_look_crossed(first.tables()[0])
        (groups,) = first.strata()
        variance = [group.var(ddof=1) / group.size for group in groups]
        df = self.d.shape[1] - len(groups)
        return _between([float(group.mean()) for group in groups], float(np.mean(variance)), df)

    def hidden_rate(self, block: Block, alpha: float) -> float:
        first = replace(self, d=self.d[:1])
        table = first.tables()[0]
        fit = additive_fit(table)
        if block != "seed" or fit.seeds_df < 1 or fit.rest_df < 1 or fit.mean_square <= 0.0:
            return 0.0
        f = fit.seeds / fit.seeds_df / fit.mean_square
        excess = max(0.0, f / float(sp.fdtri(fit.seeds_df, fit.rest_df, 1.0 - SURE)) - 1.0)
        # Of one seed's effect, and what the mean of all runs has of it.
        of_seed = excess * fit.mean_square / (self.d.shape[1] / table.shape[1])
        in_mean = of_seed * float((cell_weights(table).sum(axis=0) ** 2).sum())
        own = self.design.t_of_strata(first.strata()[0])
        if own is None:
            return 0.0
        critical = -float(sp.stdtrit(own.df, alpha / 2.0))
        return 2.0 * float(sp.stdtr(own.df, -critical / math.sqrt(1.0 + in_mean / own.se**2)))


@dataclass(frozen=True, slots=True)
class Samples(World):
    """Independent runs of both arms, for every task an array (replicates, runs); one array when tasks do not matter."""

    design: Design
    control: list[Array]
    candidate: list[Array]

    def many(self, how: Rule, effect: float = 0.0) -> Many:
        return self.design.judge_samples(replace(self, candidate=[part + effect for part in self.candidate]), how)

    def p_common(self, block: Block) -> float:
        both = [(x[0], y[0]) for x, y in zip(self.control, self.candidate, strict=True)]
        variance = [x.var(ddof=1) / x.size + y.var(ddof=1) / y.size for x, y in both]
        df = sum(x.size + y.size - 2 for x, y in both)
        return _between([float(y.mean() - x.mean()) for x, y in both], float(np.mean(variance)), df)


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
