"""Two independent samples: the arms share neither seeds nor, where the task is the unit, tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats.binary import UnpairedBinary, unpaired_binary
from bakeoff.stats.decision import Decision, unpaired_test
from bakeoff.stats.evidence import Test, with_margin
from bakeoff.stats.many import Each, Many, ManySamples
from bakeoff.stats.power import Components
from bakeoff.stats.robust import unpaired_robust
from bakeoff.verdicts.designs.base import Design, Rule, Sides, Spread
from bakeoff.verdicts.designs.cells import Cells, Ends, runs_by_task, seed_means, seeds_of, task_means, tasks_of

if TYPE_CHECKING:
    from bakeoff.verdicts.designs.replicates import Block, Samples


class Rollouts(Design):
    """Independent units of each arm: rollouts, seeds (their mean over all tasks), or tasks."""

    paired = False
    two_samples = True
    plan_unit = "run"
    shape = "unpaired"
    why: ClassVar[Mapping[str, str]] = {
        "permutation and Welch t": "unpaired arms; the larger p of the two counts",
        "permutation": "unpaired arms without any spread",
        "Welch t": "unpaired arms with too few splits to permute{of}",
        "exact permutation": "unpaired arms, exact tests asked for",
        **dict.fromkeys(("Fisher (mid-p)", "Fisher (exact)"), "outcomes of 0 and 1, unpaired"),
    }

    @property
    def units(self) -> int:
        return min(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        arms = (self.control, self.candidate)
        match self.unit:
            case "task":
                return [len(tasks_of(cells)) for cells in arms]
            case "seed":
                return [len(seeds_of(cells)) for cells in arms]
            case _:
                return [sum(cell.size for cell in cells.values()) for cells in arms]

    @property
    def one_outcome_a_unit(self) -> bool:
        match self.unit:
            case "task":
                arms = (self.control, self.candidate)
                return self.single_runs and all(len(cells) == len(tasks_of(cells)) for cells in arms)
            case "seed":
                return self.single_runs and len(tasks_of(self.control)) == 1
            case _:
                return True

    def arm(self, cells: Cells, ends: Ends) -> list[Array]:
        match self.unit:
            case "task":
                return [task_means(cells, ends)]
            case "seed":
                return [seed_means(cells, ends, list(dict.fromkeys(seed for _, seed in cells)))]
            case _:
                return [np.array([value for runs in runs_by_task(cells, ends).values() for value in runs])]

    def usable(self, control: Cells, candidate: Cells) -> tuple[Cells, Cells]:
        """Return of each arm the seeds that every task has, where a seed is the unit."""
        if self.unit != "seed":
            return control, candidate
        tasks = tasks_of(control, candidate)
        control, candidate = (
            {place: cell for place, cell in cells.items() if all((task, place[1]) in cells for task in tasks)}
            for cells in (control, candidate)
        )
        return control, candidate

    def test(self, values: Sides, how: Rule, margin: float | None = None) -> Test:
        (a,), (b,) = values
        if self.binary:
            return with_margin(unpaired_binary(*self.outcomes(a, b), how.strict), margin)
        if self.statistic != "mean":
            return with_margin(unpaired_robust(a, b, self.statistic), margin)
        return unpaired_test(a, b, how.alpha, how.comparisons, margin, guarded=how.guarded, strict=how.strict)

    def planned_test(self, alpha: float, comparisons: int) -> str:
        planned = {"rank": "rank sum", "trimmed": "Yuen-Welch t and rank sum"}
        return planned.get(self.statistic, "permutation and Welch")

    def spread_to_detect(self, test: Test | Decision | None) -> Spread | None:
        (x,), (y,) = self.arrays()
        if min(x.size, y.size) < 2 or self.statistic != "mean":
            return None
        squares = x.var(ddof=1) * (x.size - 1) + y.var(ddof=1) * (y.size - 1)
        return Spread(math.sqrt(squares / (x.size + y.size - 2)), (x.size, y.size), "unpaired")

    def components(self) -> Components | None:
        return None

    def exchangeable(self, tasks: list[Block], seeds: list[Block]) -> list[Block]:
        return ["run"]

    def judge_samples(self, samples: Samples, how: Rule) -> Many:
        (a,), (b,) = samples.control, samples.candidate
        if self.binary:
            wins = [part.sum(axis=1).astype(int).tolist() for part in self.outcomes(a, b)]
            pairs = list(zip(*wins, strict=True))
            sizes = a.shape[1], b.shape[1]
            known = {(x, y): Test(UnpairedBinary(x, sizes[0], y, sizes[1], strict=how.strict)) for x, y in set(pairs)}
            return Each([known[pair] for pair in pairs])
        if how.strict or self.statistic != "mean":
            return super().judge_samples(samples, how)
        return ManySamples(a, b, how.alpha, how.comparisons)

    def population_line(self) -> str:
        count = self._per_arm(self._sizes)
        return self._like_tasks(count) if self.unit == "task" else self._on_tasks(count)
