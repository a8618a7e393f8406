"""The runs of one arm by task and seed, and arrays made of them. Missing runs stand at an end of what they could have been."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array

Place = tuple[str, int | None]
"""Where arms meet: a task and a shared seed."""
Cells = Mapping[Place, "Cell"]
End = Literal["bad", "good"]
Ends = Mapping[str, float]
"""For each task the value that its missing runs get."""
Handling = Literal["missing", "set aside", "unpaired"]


@dataclass(frozen=True, slots=True)
class Cell:
    """Rollouts of one arm at one place: what is known, and how many are missing."""

    values: tuple[float, ...]
    missing: int = 0
    runs: tuple[str, ...] = ()
    """Ids of the runs, where they have any."""

    @property
    def size(self) -> int:
        return len(self.values) + self.missing

    def filled(self, end: float) -> tuple[float, ...]:
        """Return the values with missing ones at `end`."""
        return (*self.values, *([end] * self.missing))

    def mean(self, end: float) -> float:
        filled = self.filled(end)
        return filled[0] if len(filled) == 1 else float(np.mean(filled))


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Runs on tasks and seeds that the other arm lacks, and what was done about them."""

    control: int
    candidate: int
    example: Place
    handling: Handling

    def sentence(self, control: str, candidate: str) -> str:
        """Return what a reader of the verdict must know about them."""
        task, seed = self.example
        where = (
            f"task {task!r}" if seed is None else f"seed {seed}" if task == "default" else f"task {task!r}, seed {seed}"
        )
        numbers = f"{self.control} of {control}'s runs and {self.candidate} of {candidate}'s"
        alone = f"on tasks and seeds that the other arm lacks, such as {where}"
        match self.handling:
            case "missing":
                return (
                    f"{numbers} are {alone}: the other arm's runs there count as missing and are bounded at both ends "
                    "(--intersect leaves these tasks and seeds out, --unpaired ignores the pairing)"
                )
            case "set aside":
                text = f"{numbers} were set aside by --intersect, being {alone}"
            case "unpaired":
                text = f"{numbers} are {alone}; --unpaired uses them as independent runs"
        if self.control == self.candidate:
            return text
        return f"{text}. The numbers differ between the arms: if an arm lacks the runs that it would have lost, this favours it"


def tasks_of(*arms: Cells) -> set[str]:
    return {task for cells in arms for task, _ in cells}


def seeds_of(*arms: Cells) -> set[int | None]:
    return {seed for cells in arms for _, seed in cells}


def absent_combinations(places: Cells) -> int:
    """Return how many combinations of a task and a seed were not run, if every seed could have been run on every task."""
    return len(tasks_of(places)) * len(seeds_of(places)) - len(places)


def means_by_task(cells: Cells, ends: Ends) -> dict[str, list[float]]:
    """Return for each task the mean of the rollouts at each of its places."""
    means: dict[str, list[float]] = {}
    for (task, _), cell in cells.items():
        means.setdefault(task, []).append(cell.mean(ends[task]))
    return means


def task_means(cells: Cells, ends: Ends) -> Array:
    """Return one value for each task: every place of a task weighs the same."""
    return np.array([v[0] if len(v) == 1 else np.array(v).mean() for v in means_by_task(cells, ends).values()])


def table(cells: Cells, ends: Ends, seeds: Sequence[int | None]) -> Array:
    """Return a (tasks x seeds) table with NaN where not run."""
    means = {place: cell.mean(ends[place[0]]) for place, cell in cells.items()}
    tasks = dict.fromkeys(task for task, _ in cells)
    return np.array([[means.get((task, seed), np.nan) for seed in seeds] for task in tasks])


def seed_means(cells: Cells, ends: Ends, seeds: Sequence[int | None]) -> Array:
    """Return the mean of each seed over all tasks. Raises UsageError where a seed was not run on every task."""
    for task in dict.fromkeys(task for task, _ in cells):
        for seed in seeds:
            if (task, seed) not in cells:
                raise UsageError(
                    f"seeds are crossed, but task {task!r} has no seed {seed}, and this needs the mean of each seed over all "
                    "tasks: run it there, or leave out of the table the tasks or the seeds that are not complete"
                )
    return np.asarray(table(cells, ends, seeds).mean(axis=0)) if cells else np.array([])


def count_blocks(places: Cells) -> int:
    """Return into how many blocks a table falls apart that share neither tasks nor seeds: 1 unless few cells were run."""
    tasks_by_seed: dict[int | None, list[str]] = defaultdict(list)
    seeds_by_task: dict[str, list[int | None]] = defaultdict(list)
    for task, seed in places:
        tasks_by_seed[seed].append(task)
        seeds_by_task[task].append(seed)
    unseen, blocks = set(seeds_by_task), 0
    known: set[int | None] = set()
    while unseen:
        blocks += 1
        reached = [unseen.pop()]
        while reached:
            for seed in seeds_by_task[reached.pop()]:
                if seed not in known:
                    known.add(seed)
                    more = unseen.intersection(tasks_by_seed[seed])
                    unseen -= more
                    reached += more
    return blocks


def runs_by_task(cells: Cells, ends: Ends) -> dict[str, list[float]]:
    """Return every run of each task, missing ones at the end of the task."""
    runs: dict[str, list[float]] = {}
    for (task, _), cell in cells.items():
        runs.setdefault(task, []).extend(cell.filled(ends[task]))
    return runs


def on_shared_tasks(control: Cells, candidate: Cells) -> tuple[Cells, Cells]:
    """Return both arms on the tasks that both have."""
    shared = tasks_of(control) & tasks_of(candidate)
    control, candidate = ({p: cell for p, cell in cells.items() if p[0] in shared} for cells in (control, candidate))
    return control, candidate
