"""Experiments without an effect, made from the runs at hand: labels of arms are exchanged for whole blocks of runs.

A block is a task, a seed, or a run where runs share neither. Inside a block every run keeps its value and only the names
of the arms are exchanged, so what runs of one block have in common stays together. A test whose unit is finer than that
takes it for evidence and says `better` or `worse` too often; a test is not put to the proof by exchanging its own units.
Arms are centred first, so that a real effect does not widen the spread.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bakeoff.results.table import Array
from bakeoff.verdicts.designs import Design, Place
from bakeoff.verdicts.designs.replicates import Block, Integers, Pairs, Samples, World, group_means

NUMBERS_AT_ONCE = 2**21


@dataclass(frozen=True, slots=True)
class Labels:
    """Who is called what: for every replicate and block, the arm whose values each arm gets."""

    block: Block
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


def exchange(block: Block, names: Sequence[Hashable], arms: int, replicates: int, rng: np.random.Generator) -> Labels:
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
        block,
        {name: number for number, name in enumerate(names)},
        labels,
        ways / math.factorial(arms),
        every,
    )


@dataclass(frozen=True, slots=True)
class Family:
    """A control and its candidates on one metric: a design for each candidate, all of one kind, nothing missing."""

    designs: Sequence[Design]
    swept: bool
    """Tasks are points of a swept parameter: they are meant to differ, and are not exchanged."""

    def blocks(self) -> list[Block]:
        """What runs could have in common, coarsest first."""
        first = self.designs[0]
        # Whether a seed is good or bad on every task shows where seeds recur over tasks, whatever is absent.
        recur = all(
            design.matched and len(design.control) > len({seed for _, seed in design.control})
            for design in self.designs
        )
        seeds: list[Block] = (
            ["seed"] if recur and first.seeds_are != "fixed" and len(set(first.seeds) - {None}) > 1 else []
        )
        tasks: list[Block] = [] if self.swept else ["task"]
        return first.exchangeable(tasks, seeds)

    def p_common(self, labels: Labels) -> float:
        """The smallest p of `World.p_common` over the candidates, times their number."""
        worlds = self._as_they_are(labels)
        return min(1.0, len(worlds) * min(world.p_common(labels.block) for world in worlds))

    def hidden_rate(self, labels: Labels, alpha: float) -> float:
        """The largest `World.hidden_rate` of the candidates."""
        return max(world.hidden_rate(labels.block, alpha) for world in self._as_they_are(labels))

    def _as_they_are(self, labels: Labels) -> list[World]:
        """One replicate in which nothing is exchanged."""
        arms = np.broadcast_to(np.arange(len(self.designs) + 1), (1, *labels.arms.shape[1:]))
        (worlds,) = self.worlds(replace(labels, arms=arms), np.random.default_rng(0))
        return worlds

    def labels(self, block: Block, replicates: int, rng: np.random.Generator) -> Labels:
        """Labels of that many replicates; all ways of exchanging two arms' labels where those are fewer."""
        arms = len(self.designs) + 1
        if self.splits and block == "run":
            sizes = [[part.size for part in parts] for parts in zip(*self._samples(), strict=True)]
            ways = [math.lgamma(sum(each) + 1) - sum(math.lgamma(n + 1) for n in each) for each in sizes]
            number: dict[Hashable, int] = {run: run for run in range(sum(map(sum, sizes)))}
            return Labels(block, number, np.zeros((replicates, 0, arms), np.intp), math.exp(min(sum(ways), 700)), False)
        names = list(dict.fromkeys(_name(block, place) for place in self._places()))
        return exchange(block, names, arms, replicates, rng)

    @property
    def splits(self) -> bool:
        """Arms share no places, so runs are divided anew instead of exchanged."""
        return not self.designs[0].paired

    def worlds(self, labels: Labels, rng: np.random.Generator) -> Iterator[list[World]]:
        """Every comparison relabelled, for one group of replicates after the other."""
        whole = labels.block == "task" or self.designs[0].sample_of_tasks
        if self.splits and labels.block == "run":
            yield self._split(len(labels), rng)
        elif self.splits:
            yield from self._exchange_tasks(labels)
        else:
            places = self._places()
            values = self._centred(self._means(places), places, whole)
            block = np.array([labels.number[_name(labels.block, place)] for place in places])
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
        """For each arm its runs, by task."""
        both = [design.arrays() for design in self.designs]
        return [both[0][0], *(b for _, b in both)]

    def _split(self, replicates: int, rng: np.random.Generator) -> list[World]:
        """Runs of a task (of all, where tasks do not matter) are divided anew among the arms."""
        strata: list[list[Array]] = []
        for parts in zip(*self._samples(), strict=True):
            pooled = np.concatenate([part if self.designs[0].binary else part - part.mean() for part in parts])
            order = np.argsort(rng.random((replicates, pooled.size)), axis=1)
            strata.append(np.split(pooled[order], np.cumsum([part.size for part in parts])[:-1], axis=1))
        return [
            Samples(design, [parts[0] for parts in strata], [parts[arm] for parts in strata])
            for arm, design in enumerate(self.designs, 1)
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


def _name(block: Block, place: Place) -> Hashable:
    return place if block == "run" else place[block == "seed"]


def _numbers(names: Sequence[Hashable]) -> Integers:
    """0, 1, 2 ... for equal names, in order of appearance."""
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([known[name] for name in names], dtype=np.intp)
