"""Experiments without an effect, made from the runs at hand: labels of arms are exchanged for whole blocks of runs.

A block is a task, a group of tasks, a seed, or a run where runs share none of these. Inside a block every run keeps its value and only the names
of the arms are exchanged, so what runs of one block have in common stays together. A test whose unit is finer than that
takes it for evidence and says `better` or `worse` too often; a test is not put to the proof by exchanging its own units.
Arms are centred first, so that a real effect does not widen the spread.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bakeoff.errors import UsageError
from bakeoff.results.table import Array
from bakeoff.stats.incomplete import mean_over_tasks
from bakeoff.stats.ttests import seeds_look_crossed
from bakeoff.verdicts.designs import Cell, Design, Place
from bakeoff.verdicts.designs.cells import seeds_of, table, tasks_of
from bakeoff.verdicts.designs.replicates import (
    Block,
    Integers,
    Level,
    Pairs,
    Samples,
    World,
    group_means,
    rate_with,
    seeds_in_mean,
)

NUMBERS_AT_ONCE = 2**21
GROUPED = 400
"""Replicates at most where groups of tasks are tested: each of those tests takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Who is called what: for every replicate and block, the arm whose values each arm gets."""

    level: Level
    number: Mapping[Hashable, int]
    """The blocks by name."""
    arms: npt.NDArray[np.integer[Any]]
    """(replicates, blocks, arms)."""
    patterns: float
    """In how many ways the labels can be exchanged; mirrored ones count once."""
    every: bool
    """Every way is among the replicates."""

    def __len__(self) -> int:
        return len(self.arms)


def exchange(level: Level, names: Sequence[Hashable], arms: int, replicates: int, rng: np.random.Generator) -> Labels:
    """Random labels, or every way of exchanging the labels of two arms where those are no more than `replicates`."""
    ways = math.exp(min(700.0, len(names) * math.lgamma(arms + 1)))
    every = arms == 2 and ways <= replicates + 0.5
    if every:
        swapped = np.arange(2 ** len(names))[:, None] >> np.arange(len(names)) & 1
    elif arms == 2:
        swapped = rng.integers(0, 2, (replicates, len(names)), dtype=np.int8)
    else:
        swapped = np.argsort(rng.random((replicates, len(names), arms)), axis=2)
    labels = np.stack((swapped, 1 - swapped), axis=2) if arms == 2 else swapped
    return Labels(
        level,
        {name: number for number, name in enumerate(names)},
        labels,
        ways / math.factorial(arms),
        every,
    )


@dataclass(frozen=True, slots=True)
class DesignFamily:
    """A control and its candidates on one metric: a design for each candidate, all of one kind, nothing missing."""

    designs: Sequence[Design]
    swept: bool
    """Tasks are points of a swept parameter: they are meant to differ, and are not exchanged."""

    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Columns that group the tasks, declared or not, as column to task to group."""
    copies: Mapping[Block, Mapping[Any, Any]] = field(default_factory=dict)
    """Tasks, and seeds, that are copies of others: each with the one that it is a copy of."""

    def levels(self) -> list[Level]:
        """Return what runs could have in common, coarsest first."""
        first = self.designs[0]
        # Whether a seed is good or bad on every task shows where seeds recur over tasks, whatever is absent.
        recur = all(
            len(cells) > len(seeds_of(cells) - {None}) > 1
            for design in self.designs
            for cells in (design.control, design.candidate)
        )
        several = recur and first.seeds_are != "fixed" and len(tasks_of(first.control)) > 1
        seeds: list[Block] = ["seed"] if several and all(self._shares_seeds(each) for each in self.designs) else []
        tasks: list[Block] = [] if self.swept else ["task"]
        blocks = first.exchangeable(tasks, seeds)
        by_column = [
            Level("task", column=name, groups=dict(of))
            for name, of in self.groups.items()
            if "task" in blocks and 1 < len({of.get(task, task) for task in first.tasks}) < len(first.tasks)
        ]
        copied = [Level(block, copies=True, groups=self.copies[block]) for block in blocks if self.copies.get(block)]
        return [*by_column, *copied, *(Level(block) for block in blocks)]

    def _shares_seeds(self, design: Design) -> bool:
        """Return whether whole seeds can be exchanged, or dealt anew where every seed belongs to one arm."""
        if design.matched:
            return True
        apart = not seeds_of(design.control) & seeds_of(design.candidate)
        return apart and min(_complete_table(each).shape[1] for each in (design.control, design.candidate)) > 1

    def _dealt(self, level: Level) -> bool:
        """Whether whole seeds are dealt anew, because the arms share none."""
        return level.block == "seed" and not self.designs[0].matched

    def p_common(self, labels: Labels) -> float:
        """Return the smallest p of `World.p_common` over the candidates, times their number."""
        if self._dealt(labels.level):
            tables = self._tables()
            return min(1.0, len(tables) * min(seeds_look_crossed(each) for each in tables))
        worlds = self._as_they_are(labels)
        return min(1.0, len(worlds) * min(world.p_common(labels.level) for world in worlds))

    def hidden_rate(self, labels: Labels, alpha: float) -> float:
        """Return the largest `World.hidden_rate` of the candidates."""
        if not self._dealt(labels.level):
            return max(world.hidden_rate(labels.level, alpha) for world in self._as_they_are(labels))
        control, *others = map(seeds_in_mean, self._tables())
        rates = []
        for design, candidate in zip(self.designs, others, strict=True):
            own = design.t_test(design.arrays())
            rates.append(0.0 if own is None else rate_with(own, control + candidate, alpha))
        return max(rates)

    def _as_they_are(self, labels: Labels) -> list[World]:
        """Return one replicate in which nothing is exchanged."""
        arms = np.broadcast_to(np.arange(len(self.designs) + 1), (1, *labels.arms.shape[1:]))
        (worlds,) = self.worlds(replace(labels, arms=arms), np.random.default_rng(0))
        return worlds

    def labels(self, level: Level, replicates: int, rng: np.random.Generator) -> Labels:
        """Return labels of that many replicates; all ways of exchanging two arms' labels where those are fewer."""
        arms = len(self.designs) + 1
        if any(design.group_columns for design in self.designs):
            replicates = min(replicates, GROUPED)
        if self._dealt(level):
            sizes = [each.shape[1] for each in self._tables()]
            return _splits(level, [sizes], arms, replicates)
        if self.splits and level.block == "run":
            sizes_by_task = [[part.shape[-1] for part in parts] for parts in zip(*self._samples(), strict=True)]
            return _splits(level, sizes_by_task, arms, replicates)
        names = list(dict.fromkeys(level.of(place) for place in self._places()))
        return exchange(level, names, arms, replicates, rng)

    @property
    def splits(self) -> bool:
        """Arms share no places, so runs are divided anew instead of exchanged."""
        return not self.designs[0].paired

    def worlds(self, labels: Labels, rng: np.random.Generator) -> Iterator[list[World]]:
        """Every comparison relabelled, for one group of replicates after the other."""
        level = labels.level
        whole = level.block == "task" or self.designs[0].sample_of_tasks
        if self._dealt(level):
            yield self._deal_seeds(len(labels), rng)
        elif self.splits and level.block == "run":
            yield self._split(len(labels), rng)
        elif self.splits:
            yield from self._exchange_tasks(labels)
        else:
            places = self._places()
            values = self._centred(self._means(places), places, whole)
            block = np.array([labels.number[level.of(place)] for place in places])
            tasks, seeds = (_numbers([place[role] for place in places]) for role in (0, 1))
            step = max(1, NUMBERS_AT_ONCE // values.size)
            for start in range(0, len(labels), step):
                whose = labels.arms[start : start + step][:, block, :]
                given = values[whose, np.arange(len(places))[None, :, None]]  # (replicates, places, arms)
                yield [
                    Pairs(design, given[:, :, arm] - given[:, :, 0], tasks, seeds)
                    for arm, design in enumerate(self.designs, 1)
                ]

    def _places(self) -> list[Place]:
        """Where all arms are; tasks alone where their seeds differ."""
        first = self.designs[0]
        if self.splits or not all(design.matched for design in self.designs):
            return [(task, None) for task in first.tasks]
        return [place for place in first.control if all(place in design.candidate for design in self.designs)]

    def _means(self, places: Sequence[Place]) -> Array:
        """Of each arm at each place, (arms, places)."""
        if not all(design.matched for design in self.designs):
            both = [design.arrays() for design in self.designs]
            return np.array([both[0][0][0], *(b[0] for _, b in both)])
        arms = [self.designs[0].control, *(design.candidate for design in self.designs)]
        return np.array([[cells[place].mean(np.nan) for place in places] for cells in arms])

    def _centred(self, values: Array, places: Sequence[Place], whole: bool) -> Array:
        """Without the arms' means, every task weighing the same; without each task's own where tasks are fixed.

        Outcomes of 0 and 1 stay what they are: exchanging labels leaves them without an effect anyway.
        """
        if self.designs[0].binary:
            return values
        tasks = _numbers([task for task, _ in places])
        by_task = group_means(values, tasks)
        if whole:
            return np.asarray(values - by_task.mean(axis=1, keepdims=True))
        return np.asarray(values - by_task[:, tasks])

    def _samples(self) -> list[list[Array]]:
        """For each arm its runs, by task, or one (tasks, runs) table where a run is the same on every task."""
        both = [design.arrays() for design in self.designs]
        return [both[0][0], *(b for _, b in both)]

    def _split(self, replicates: int, rng: np.random.Generator) -> list[World]:
        """Runs of a task (of all, where tasks do not matter or each was made on all of them) are dealt anew to the arms."""
        strata: list[list[Array]] = []
        for parts in zip(*self._samples(), strict=True):
            centred = [part if self.designs[0].binary else part - mean_over_tasks(part) for part in parts]
            pooled = np.concatenate(centred, axis=-1)
            ends = np.cumsum([part.shape[-1] for part in parts])[:-1]
            dealt = np.moveaxis(pooled[..., _orders(pooled, ends, replicates, rng)], -2, 0)
            strata.append(np.split(dealt, ends, axis=-1))
        return [
            Samples(design, [parts[0] for parts in strata], [parts[arm] for parts in strata])
            for arm, design in enumerate(self.designs, 1)
        ]

    def _tables(self) -> list[Array]:
        """Return a (tasks, seeds) table of each arm, the control first: the seeds that every task has, rollouts averaged."""
        return [_complete_table(each) for each in (self.designs[0].control, *(d.candidate for d in self.designs))]

    def _deal_seeds(self, replicates: int, rng: np.random.Generator) -> list[World]:
        """Whole seeds are dealt anew to the arms; each keeps its values on every task."""
        whole = self.designs[0].sample_of_tasks
        tables = [each - (each.mean() if whole else each.mean(axis=1, keepdims=True)) for each in self._tables()]
        pooled = np.concatenate(tables, axis=1)
        order = np.argsort(rng.random((replicates, pooled.shape[1])), axis=1)
        dealt = np.moveaxis(pooled[:, order], 1, 0)  # (replicates, tasks, seeds)
        control, *others = np.split(dealt, np.cumsum([each.shape[1] for each in tables])[:-1], axis=2)
        if not self.designs[0].paired:
            by_task = [list(np.moveaxis(arm, 1, 0)) for arm in (control, *others)]
            return [Samples(each, by_task[0], arm) for each, arm in zip(self.designs, by_task[1:], strict=True)]
        tasks = np.arange(pooled.shape[0])
        return [
            Pairs(each, arm.mean(axis=2) - control.mean(axis=2), tasks, np.zeros_like(tasks))
            for each, arm in zip(self.designs, others, strict=True)
        ]

    def _exchange_tasks(self, labels: Labels) -> Iterator[list[World]]:
        """All runs of a task change their arm together. One replicate at a time: arms can differ in size."""
        arms = [[part - np.mean([p.mean() for p in arm]) for part in arm] for arm in self._samples()]
        equal = len({part.size for arm in arms for part in arm}) == 1
        step = max(1, NUMBERS_AT_ONCE // sum(part.size for arm in arms for part in arm)) if equal else 1
        for start in range(0, len(labels), step):
            whose = labels.arms[start : start + step]
            given = [
                [
                    np.stack([arms[whose[r, task, arm]][task] for r in range(len(whose))])
                    for task in range(whose.shape[1])
                ]
                for arm in range(whose.shape[2])
            ]
            yield [Samples(design, given[0], given[arm]) for arm, design in enumerate(self.designs, 1)]


def _splits(level: Level, sizes: Sequence[Sequence[int]], arms: int, replicates: int) -> Labels:
    """Return labels for what is dealt anew, where no block keeps its place; `sizes` of the arms in each stratum."""
    ways = [math.lgamma(sum(each) + 1) - sum(math.lgamma(n + 1) for n in each) for each in sizes]
    number: dict[Hashable, int] = {run: run for run in range(sum(map(sum, sizes)))}
    return Labels(level, number, np.zeros((replicates, 0, arms), np.intp), math.exp(min(sum(ways), 700)), False)


def _orders(pooled: Array, ends: Integers, replicates: int, rng: np.random.Generator) -> Integers:
    """Return random orders of pooled runs, (replicates, runs): of a table with absent cells those that can be tested.

    An arm needs two runs on every task. Arms are split at `ends`.
    """
    order = np.argsort(rng.random((replicates, pooled.shape[-1])), axis=1)
    absent = np.isnan(pooled)
    for _ in range(200 if absent.any() else 0):
        arms = np.split(~absent[:, order], ends, axis=-1)
        wrong = np.any([arm.sum(axis=-1).min(axis=0) < 2 for arm in arms], axis=0)
        if not wrong.any():
            return order
        order[wrong] = np.argsort(rng.random((int(wrong.sum()), pooled.shape[-1])), axis=1)
    if absent.any():
        raise UsageError(
            "some tasks have so few runs that hardly any way of dealing the runs anew leaves two of them in each arm; "
            "leave those tasks out"
        )
    return order


def _complete_table(cells: Mapping[Place, Cell]) -> Array:
    seeds = list(dict.fromkeys(seed for _, seed in cells))
    values = table(cells, dict.fromkeys(tasks_of(cells), math.nan), seeds)
    return values[:, ~np.isnan(values).any(axis=0)]


def _numbers(names: Sequence[Hashable]) -> Integers:
    """0, 1, 2 ... for equal names, in order of appearance."""
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([known[name] for name in names], dtype=np.intp)
