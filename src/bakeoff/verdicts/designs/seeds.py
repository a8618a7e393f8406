"""The seed is the unit: one task, or fixed tasks that share their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, ClassVar

from bakeoff.errors import UsageError
from bakeoff.results.table import Array
from bakeoff.stats.decision import seeds_over_tasks_test
from bakeoff.stats.evidence import Test
from bakeoff.stats.incomplete import seed_values
from bakeoff.stats.numerics import difference
from bakeoff.stats.ttests import TStatistic, seeds_over_tasks_t
from bakeoff.verdicts.designs.base import Design, OnePairDesign, Rule, Sides
from bakeoff.verdicts.designs.cells import Cells, Ends, seed_means, seeds_of, table, tasks_of

if TYPE_CHECKING:
    from bakeoff.verdicts.designs.replicates import Pairs


class Seeds(OnePairDesign):
    """One pair for each seed: its mean over all tasks, each of which it was run on."""

    @property
    def units(self) -> int:
        return len(self.seeds)

    @property
    def one_outcome_a_unit(self) -> bool:
        return self.single_runs and len(tasks_of(self.control)) == 1

    def arm(self, cells: Cells, ends: Ends) -> list[Array]:
        return [seed_means(cells, ends, self.seeds)]

    def usable(self, control: Cells, candidate: Cells) -> tuple[Cells, Cells]:
        """Return the seeds that every task has: a seed is one row of a (tasks x seeds) table."""
        tasks = tasks_of(control)
        whole = {seed for seed in seeds_of(control) if all((task, seed) in control for task in tasks)}
        return (
            {place: cell for place, cell in control.items() if place[1] in whole},
            {place: cell for place, cell in candidate.items() if place[1] in whole},
        )

    def unit_differences(self, pairs: Pairs) -> Array:
        return pairs.of_seeds()

    def population_line(self) -> str:
        return self._on_tasks(str(len(seeds_of(self.control))))

    def named_pairs(self) -> tuple[str, tuple[str, ...]]:
        return "seed", tuple(map(str, self.seeds))


def pair_by_seed(design: Design, order: Sequence[int | None]) -> Seeds:
    """Return the design with one pair for each seed in this order, whatever units it has."""
    common = {each.name: getattr(design, each.name) for each in fields(Design)}
    seeds = Seeds(**{**common, "unit": "seed", "seeds": tuple(order)})
    return replace(seeds, population=seeds.population_line())


class SeedsOverSomeTasks(Design):
    """Crossed seeds on fixed tasks, where not every seed was run on every task: a table with absent cells."""

    spread_inside_tasks = True
    shape = "over seeds that were not all run on every task"
    why: ClassVar[Mapping[str, str]] = {
        "crossed t over seeds": "these tasks only, not every seed was run on every task"
    }

    @property
    def units(self) -> int:
        return len(self.seeds)

    def arm(self, cells: Cells, ends: Ends) -> list[Array]:
        return [table(cells, ends, self.seeds)]

    def test(self, values: Sides, how: Rule, margin: float | None = None) -> Test:
        if how.strict:
            raise UsageError(
                "--strict: there is no exact test where not every seed was run on every task; leave out the tasks or seeds "
                "that are not complete"
            )
        return seeds_over_tasks_test(difference(values[1][0], values[0][0]), margin, how.guarded, how.level)

    @property
    def has_exact_test(self) -> bool:
        return False

    def t_test(self, values: Sides) -> TStatistic | None:
        return seeds_over_tasks_t(difference(values[1][0], values[0][0]))

    def planned_test(self, alpha: float, comparisons: int) -> str:
        return "crossed t over seeds"

    def one_value_a_unit(self, values: list[Array]) -> Array:
        return seed_values(values[0])

    def noise(self) -> tuple[Array, ...]:
        (a,), (b,) = self.arrays()
        return (seed_values(difference(b, a)),)

    def arrange(self, pairs: Pairs) -> Sequence[list[Array]]:
        return [[each] for each in pairs.tables()]

    def population_line(self) -> str:
        return self._on_tasks(f"{len(seeds_of(self.control))}{self.not_run}")
