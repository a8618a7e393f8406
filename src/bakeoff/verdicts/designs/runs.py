"""Tasks and runs are both samples, and every run belongs to one arm: trained models, each scored on every task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from bakeoff.errors import UsageError
from bakeoff.results.table import Array
from bakeoff.stats.decision import Decision, runs_test
from bakeoff.stats.evidence import LEAST_UNITS, Test
from bakeoff.stats.incomplete import seed_values
from bakeoff.stats.plans import TwoWay, scaled
from bakeoff.stats.power import Components
from bakeoff.stats.ttests import TStatistic, runs_t, runs_variance
from bakeoff.text import number
from bakeoff.verdicts.designs.base import Caution, Design, PlanUnit, Rule, Sides
from bakeoff.verdicts.designs.cells import Cells, Ends, seeds_of, table
from bakeoff.verdicts.observations import Observations

if TYPE_CHECKING:
    from bakeoff.verdicts.designs.replicates import Block


class Runs(Design):
    """A (tasks x runs) table for each arm. The arms share the tasks and no runs."""

    paired = False
    sample_of_tasks = True
    spread_inside_tasks = True
    plan_unit = "run"
    shape = "over tasks and runs at once"
    four_times = "4 times as many tasks and runs"
    why: ClassVar[Mapping[str, str]] = {
        "t over tasks and runs": "tasks and runs are both samples, every run belongs to one arm"
    }

    @property
    def _runs(self) -> list[int]:
        return [len(seeds_of(cells)) for cells in (self.control, self.candidate)]

    @property
    def units(self) -> int:
        return min(len(self.tasks), *self._runs)

    def arm(self, cells: Cells, ends: Ends) -> list[Array]:
        return [table(cells, ends, list(dict.fromkeys(seed for _, seed in cells)))]

    def stratum_sizes(self, cells: Cells) -> list[int]:
        sizes = dict.fromkeys((task for task, _ in cells), 0)
        for task, _ in cells:
            sizes[task] += 1
        return list(sizes.values())

    def refusal(self) -> Decision | None:
        # Two runs, or two tasks, are tested with one degree of freedom.
        few = self.units < 2 or max(len(self.tasks), *self._runs) < LEAST_UNITS
        return Decision("undecided", "too_few", n=self.units) if few or self.has_single_units else None

    def test(self, values: Sides, how: Rule, margin: float | None = None) -> Test:
        if how.strict:
            raise UsageError(
                "--strict: there is no exact test where tasks and runs are both samples; say --tasks fixed or --seeds fixed"
            )
        return runs_test(values[0][0], values[1][0], margin, how.guarded, how.level)

    @property
    def has_exact_test(self) -> bool:
        return False

    def t_test(self, values: Sides) -> TStatistic | None:
        return runs_t(values[0][0], values[1][0])

    def planned_test(self, alpha: float, comparisons: int) -> str:
        return "t over tasks and runs"

    def one_value_a_unit(self, values: list[Array]) -> Array:
        return seed_values(values[0])

    def one_arm(self) -> tuple[Array, PlanUnit]:
        return seed_values(self.arrays()[0][0]), "run"

    def components(self) -> Components | None:
        """Return the components of B - A: `seed` is a run, of which the difference has one of each arm."""
        noise = self.plan_noise()
        if noise is None:
            return None
        cells = [c * noise.tasks * s for c, s in zip(noise.of_cells, noise.seeds, strict=True)]
        own = [max(0.0, v - c) * s for v, c, s in zip(noise.of_seeds, noise.of_cells, noise.seeds, strict=True)]
        task = max(0.0, noise.of_tasks - sum(noise.of_cells)) * noise.tasks
        return Components(task=task, seed=sum(own), cell=sum(cells), rollout=0.0)

    def plan_noise(self) -> TwoWay | None:
        (a,), (b,) = self.arrays()
        v = runs_variance(a, b)
        return TwoWay(len(self.tasks), v.groups, v.task, v.runs, v.cells)

    def exchangeable(self, tasks: list[Block], seeds: list[Block]) -> list[Block]:
        return ["run"]

    def holds_by_construction(self, block: Block) -> bool:
        """Return False: dealing runs anew puts to the proof how the test deals with tasks."""
        return False

    def population_line(self) -> str:
        runs = self._per_arm(self._runs)
        return (
            f"for tasks like these {len(self.tasks)} and runs like these, {runs}{self._shared} (units: tasks and runs)"
        )

    def more(self, units: int) -> str:
        factor = (self.units + units) / self.units
        tasks, runs = (scaled(size, factor) - size for size in (len(self.tasks), max(self._runs)))
        return f"{number(tasks)} more task{'s' if tasks > 1 else ''} and {number(runs)} more run{'s' if runs > 1 else ''} in each arm"

    def cautions(self, observations: Observations) -> Iterator[Caution]:
        fewest = min(self._runs)
        if fewest == 1:
            yield Caution(
                ("one run",),
                "an arm with one run cannot be told from luck with that run: 5 runs or more of each arm would decide, and "
                "--seeds fixed asks about these runs only",
            )
        elif fewest == 2:
            yield Caution(
                ("two runs",),
                "2 runs of an arm leave 1 degree of freedom, so only very large effects can be told from luck with the runs: 5 "
                "runs or more of each arm would decide, and --seeds fixed asks about these runs only",
            )
