"""How runs ended, task by task: what the matrix of tasks and arms shows, and where arms disagree.

A run has passed or not where the metric is 0 or 1 (or where there is none: then its status decides); elsewhere it has a
value. Failed because of the arm is an outcome; missing is none, and is counted apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bakeoff.errors import BakeoffError
from bakeoff.records.run import FAILED
from bakeoff.text import number
from bakeoff.verdicts.observations import State, observe
from bakeoff.web.contents import Contents

MAX_BESIDE = 3
"""Runs side by side when the page of disagreements is opened; a reader may choose others."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One run: its number in the results, and how it ended."""

    at: int
    state: State
    value: float
    """NaN where there is none."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The runs of one arm on one task, or on one task and seed."""

    runs: tuple[Ended, ...]
    is_pass_fail: bool
    failure_score: float | None

    @property
    def known(self) -> int:
        return sum(run.state != "missing" for run in self.runs)

    @property
    def missing(self) -> int:
        return len(self.runs) - self.known

    @property
    def failed(self) -> int:
        return sum(run.state == "failed" for run in self.runs)

    @property
    def passes(self) -> int:
        return sum(has_passed(run) for run in self.runs)

    @property
    def is_flaky(self) -> bool:
        """Some runs pass and some fail."""
        return self.is_pass_fail and 0 < self.passes < self.known

    @property
    def score(self) -> float | None:
        """Share of passes, or the mean, failures scored; None where no run has a value."""
        if self.is_pass_fail:
            return self.passes / self.known if self.known else None
        values = [run.value for run in self.runs if run.state == "scored"]
        if self.failure_score is not None:
            values += [self.failure_score] * self.failed
        return float(np.mean(values)) if values else None

    @property
    def text(self) -> str:
        """`3 of 4`, or the mean; failures and missing runs beside it."""
        if not self.known:
            return f"{self.missing} missing" if self.missing else ""
        score = f"{self.passes} of {self.known}" if self.is_pass_fail else number(self.score)
        beside = [f"{self.failed} failed"] if self.failed and not self.is_pass_fail else []
        beside += [f"{self.missing} missing"] if self.missing else []
        return f"{score} ({', '.join(beside)})" if beside else score


def has_passed(run: Ended) -> bool:
    """Whether a run of a pass/fail metric has passed."""
    return run.state == "scored" and run.value >= 1.0


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Every run by task, seed and arm."""

    metric: str
    """Empty where no run reports a metric: then the status counts."""
    is_pass_fail: bool
    larger_is_better: bool
    failure_score: float | None
    by_unit: Mapping[tuple[str, int | None], Mapping[str, Cell]]
    """By task and seed, in plan order; seed is None where runs share none."""

    def by_task(self) -> dict[str, dict[str, Cell]]:
        """By task and arm, over all seeds and rollouts."""
        tasks: dict[str, dict[str, list[Ended]]] = {}
        for (task, _), arms in self.by_unit.items():
            for arm, cell in arms.items():
                tasks.setdefault(task, {}).setdefault(arm, []).extend(cell.runs)
        return {task: {arm: self._cell(runs) for arm, runs in arms.items()} for task, arms in tasks.items()}

    def _cell(self, runs: Iterable[Ended]) -> Cell:
        return Cell(tuple(runs), self.is_pass_fail, self.failure_score)


def outcomes(contents: Contents) -> Outcomes:
    """How every run ended on the first metric that is judged or shown."""
    metric = contents.main[0] if contents.main else ""
    larger, failure_score = True, None
    ended: list[Ended] | None = None
    if metric:
        try:
            observed = observe(contents.results, metric)
            if len(observed.rows) == len(contents.runs):  # rows of other kinds of tasks may be left out
                ended = [Ended(at, row.state, row.value) for at, row in enumerate(observed.rows)]
                larger, failure_score = observed.larger_is_better, observed.failure_score
        except BakeoffError:
            pass
    if ended is None:
        ended = [Ended(at, *_by_status(run.status, run.metrics.get(metric))) for at, run in enumerate(contents.runs)]
    values = {run.value for run in ended if run.state == "scored"}
    is_pass_fail = values <= {0.0, 1.0} and larger
    units: dict[tuple[str, int | None], dict[str, list[Ended]]] = {}
    for run, row in zip(ended, contents.runs, strict=True):
        units.setdefault((row.task, row.seed), {}).setdefault(row.arm, []).append(run)
    cells = {
        unit: {arm: Cell(tuple(runs), is_pass_fail, failure_score) for arm, runs in arms.items()}
        for unit, arms in units.items()
    }
    return Outcomes(metric, is_pass_fail, larger, failure_score, cells)


def _by_status(status: str, value: object) -> tuple[State, float]:
    """A status alone: a run that succeeded has passed."""
    if isinstance(value, int | float) and status in ("succeeded", ""):
        return "scored", float(value)
    if status == "succeeded" and value is None:
        return "scored", 1.0
    return ("failed" if status in FAILED else "missing"), float("nan")


# -- where arms disagree


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One task and seed on which arms came to different results."""

    task: str
    seed: int | None
    arms: Mapping[str, Cell]
    gap: float
    """Difference between the best and the worst arm: in shares of passes, or in the metric."""
    one_failed: bool
    """One arm has no scored run, and another has: listed before differences in a number."""

    def shown(self, most: int) -> list[Ended]:
        """One run of each of at most `most` arms, such that those that are shown disagree: the arms' order is kept."""
        picked = {arm: _typical(cell) for arm, cell in self.arms.items() if cell.known}
        scores = {arm: _score(self.arms[arm]) for arm in picked}
        if len(picked) > most:
            ranked = sorted(picked, key=lambda arm: scores[arm])
            ends = [*ranked[: most // 2], *ranked[-(most - most // 2) :]]
            picked = {arm: run for arm, run in picked.items() if arm in ends}
        return list(picked.values())


def _score(cell: Cell) -> float:
    """Where an arm stands among others; one without a scored run stands last."""
    score = cell.score
    return -np.inf if score is None else score


def _typical(cell: Cell) -> Ended:
    """A run that ended as most of the cell's did: one that passed if half of them did; else the median."""
    known = [run for run in cell.runs if run.state != "missing"]
    if cell.is_pass_fail:
        wanted = 2 * cell.passes >= cell.known
        return next(run for run in known if has_passed(run) == wanted)
    ranked = sorted(known, key=lambda run: (run.state == "scored", run.value if run.state == "scored" else 0.0))
    return ranked[len(ranked) // 2]


def disagreements(found: Outcomes) -> list[Disagreement]:
    """Every task and seed on which arms differ, the largest difference first; plan order among equals."""
    listed: list[Disagreement] = []
    for (task, seed), arms in found.by_unit.items():
        known = {arm: cell for arm, cell in arms.items() if cell.known}
        scored = {arm: cell.score for arm, cell in known.items()}
        values = [score for score in scored.values() if score is not None]
        one_failed = not found.is_pass_fail and bool(values) and any(
            cell.failed == cell.known for cell in known.values()
        ) and any(cell.failed < cell.known for cell in known.values())  # fmt: skip
        gap = max(values) - min(values) if len(values) > 1 else 0.0
        if len(known) > 1 and (gap > 0 or one_failed):
            listed.append(Disagreement(task, seed, arms, gap, one_failed))
    return sorted(listed, key=lambda each: (not each.one_failed, -each.gap))


def by_difficulty(tasks: Mapping[str, Mapping[str, Cell]], larger_is_better: bool) -> Sequence[str]:
    """Tasks from the hardest to the easiest, by the mean over arms; those without any value last."""

    def difficulty(task: str) -> float:
        scores = [cell.score for cell in tasks[task].values() if cell.score is not None]
        mean = float(np.mean(scores)) if scores else np.inf
        return mean if larger_is_better or not scores else -mean

    return sorted(tasks, key=difficulty)


class Tasks:
    """What pages about single tasks show, computed when one of them is opened."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    @cached_property
    def outcomes(self) -> Outcomes:
        return outcomes(self.contents)

    @cached_property
    def disagreements(self) -> list[Disagreement]:
        return disagreements(self.outcomes)
