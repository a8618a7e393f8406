"""Fixed tasks, each of which is a stratum with units of its own: seeds that pair, or independent runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array
from bakeoff.stats.decision import MOST_GUARDED_TASKS, stratified_paired_test, stratified_test
from bakeoff.stats.evidence import Test
from bakeoff.stats.numerics import difference
from bakeoff.stats.plans import Stratified
from bakeoff.stats.ttests import TStatistic, satterthwaite, stratified_paired_t, stratified_t
from bakeoff.text import number
from bakeoff.verdicts.designs.base import Design, Rule, Sides
from bakeoff.verdicts.designs.cells import Cells, Ends, means_by_task, on_shared_tasks, runs_by_task
from bakeoff.verdicts.observations import Observation

if TYPE_CHECKING:
    from bakeoff.verdicts.designs.replicates import Block, Pairs


class FixedTasks(Design):
    """Units inside each of these tasks; every task weighs the same."""

    spread_inside_tasks = True

    def one_value_a_unit(self, values: list[Array]) -> Array:
        if len({part.size for part in values}) > 1:
            raise UsageError("the tasks have different numbers of runs; a plan needs one number on every task")
        return np.asarray(np.mean(values, axis=0))

    def noise(self) -> tuple[Array, ...]:
        a, b = self.arrays()
        self.one_value_a_unit([*a, *b])  # the arms have to have one number, too
        return super().noise()

    def plan_noise(self) -> Stratified | None:
        """Return the mean variance of a unit over tasks: of pairs, or of runs in both arms."""
        a, b = self.arrays()
        cells = [difference(y, x) for x, y in zip(a, b, strict=True)] if self.paired else [*a, *b]
        if min(cell.size for cell in cells) < 2:
            return None
        variances = np.array([float(cell.var(ddof=1)) for cell in cells])
        dfs = np.array([cell.size - 1.0 for cell in cells])
        if not variances.any():
            return None
        df = satterthwaite(variances, dfs)
        return Stratified(len(self.tasks), 1 if self.paired else 2, float(variances.mean()), df, df / float(dfs.sum()))

    def knows(self, block: Block) -> bool:
        return block == "run"

    def more(self, units: int) -> str:
        each = math.ceil(units / max(1, len(self.tasks)))
        return f"{number(each)} more {self.unit}{'s' if each > 1 else ''} on each task"


class FixedSeeds(FixedTasks):
    """Nested seeds: one pair for each seed on each task."""

    shape = "stratified by task"
    why: ClassVar[Mapping[str, str]] = {"stratified paired t": "these tasks only, seeds nested in tasks"}

    @property
    def units(self) -> int:
        return len(self.control)

    def arm(self, cells: Cells, ends: Ends) -> list[Array]:
        return [np.array(means) for means in means_by_task(cells, ends).values()]

    def test(self, values: Sides, how: Rule, margin: float | None = None) -> Test:
        return stratified_paired_test(_pairs(values), margin, guarded=how.guarded, strict=how.strict, level=how.level)

    def t_test(self, values: Sides) -> TStatistic | None:
        return stratified_paired_t(_pairs(values))

    def planned_test(self, alpha: float, comparisons: int) -> str:
        return "stratified paired t"

    @property
    def has_pairs(self) -> bool:
        """Whether every seed was run on every task, so that one seed is one pair."""
        return len(self.control) == len(self.tasks) * len(self.seeds)

    def unit_of(self, row: Observation, in_order: bool) -> object:
        return row.seed if in_order else (row.task, row.seed)

    def exchangeable(self, tasks: list[Block], seeds: list[Block]) -> list[Block]:
        return [*tasks, *seeds, "run"]

    def arrange(self, pairs: Pairs) -> Sequence[list[Array]]:
        return pairs.strata()

    def population_line(self) -> str:
        return self._on_tasks(str(len(self.control)), "seed within task")


def _pairs(values: Sides) -> list[Array]:
    return [difference(b, a) for a, b in zip(*values, strict=True)]


class FixedRollouts(FixedTasks):
    """Independent runs of each arm on each task: rollouts, or seeds that the arms do not share."""

    paired = False
    plan_unit = "run"
    shape = "stratified by task and unpaired"
    why: ClassVar[Mapping[str, str]] = {"stratified t": "these tasks only, arms unpaired inside each task"}

    @property
    def units(self) -> int:
        return min(sum(self.stratum_sizes(cells)) for cells in (self.control, self.candidate))

    def arm(self, cells: Cells, ends: Ends) -> list[Array]:
        runs = runs_by_task(cells, ends) if self.unit == "rollout" else means_by_task(cells, ends)
        return [np.array(values) for values in runs.values()]

    def usable(self, control: Cells, candidate: Cells) -> tuple[Cells, Cells]:
        return on_shared_tasks(control, candidate)

    def test(self, values: Sides, how: Rule, margin: float | None = None) -> Test:
        return stratified_test(*values, margin, guarded=how.guarded, strict=how.strict, level=how.level)

    def exact_test_is_quick(self, comparisons: int) -> bool:
        return len(self.tasks) <= MOST_GUARDED_TASKS and super().exact_test_is_quick(comparisons)

    def t_test(self, values: Sides) -> TStatistic | None:
        return stratified_t(*values)

    def planned_test(self, alpha: float, comparisons: int) -> str:
        return "stratified t"

    def unit_of(self, row: Observation, in_order: bool) -> object:
        return (row.task, row.seed) if self.unit == "seed" else super().unit_of(row, in_order)

    def exchangeable(self, tasks: list[Block], seeds: list[Block]) -> list[Block]:
        return [*tasks, *seeds, "run"]

    def population_line(self) -> str:
        sizes = [sum(self.stratum_sizes(cells)) for cells in (self.control, self.candidate)]
        return self._on_tasks(self._per_arm(sizes), f"{self.unit} within task")
