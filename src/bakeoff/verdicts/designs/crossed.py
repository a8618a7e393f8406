"""Tasks and seeds are both samples, and one seed is the same on every task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

from bakeoff.errors import UsageError
from bakeoff.results.table import Array
from bakeoff.stats.decision import Decision, crossed_test, groups_test
from bakeoff.stats.evidence import LEAST_UNITS, Test, grouped
from bakeoff.stats.incomplete import effective_seeds, seed_values, task_means
from bakeoff.stats.numerics import difference
from bakeoff.stats.plans import TwoWay, scaled
from bakeoff.stats.ttests import TStatistic, crossed_t, crossed_variance
from bakeoff.text import format_p, number, percent
from bakeoff.verdicts.designs.base import Caution, Design, PlanUnit, Rule, Sides, Spread
from bakeoff.verdicts.designs.cells import Cells, Ends, count_blocks, seeds_of, table
from bakeoff.verdicts.designs.tasks import MIN_GROUPS, declared_cluster
from bakeoff.verdicts.observations import Observations

if TYPE_CHECKING:
    from bakeoff.verdicts.designs.replicates import Block, Pairs


@dataclass(frozen=True, kw_only=True)
class Crossed(Design):
    """A (tasks x seeds) table. Parts of it that share neither tasks nor seeds are blocks, and then these are the units."""

    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Groups that tasks may depend on each other in: column to task to group."""

    sample_of_tasks = True
    both_sampled = True
    plan_unit = "task"
    shape = "over tasks and seeds at once"
    four_times = "4 times as many tasks and seeds"
    why: ClassVar[Mapping[str, str]] = {
        "crossed t": "tasks and seeds are both samples, one seed is the same on every task",
        "t over blocks": "{n} blocks that share nothing are too few for a sign-flip test{of}",
    }

    @cached_property
    def blocks(self) -> int:
        """How many blocks the table falls apart into: 1 unless few cells were run."""
        return count_blocks(self.control)

    @property
    def units(self) -> int:
        return self.blocks if self.blocks > 1 else min(len(self.tasks), len(self.seeds))

    def with_groups(self, observations: Observations) -> Self:
        if (cluster := declared_cluster(observations)) not in (None, "none"):
            raise UsageError(
                f"--cluster {cluster}: groups can be the units where the task is the unit, and here tasks and seeds are both "
                "samples; --seeds fixed asks about these seeds only"
            )
        if cluster == "none" or self.blocks > 1:
            return self
        tasks = self.tasks
        sizes = {name: len({of.get(task, task) for task in tasks}) for name, of in observations.groups.items()}
        enough = {name: observations.groups[name] for name, size in sizes.items() if MIN_GROUPS <= size < len(tasks)}
        return replace(self, groups=enough)

    @property
    def group_columns(self) -> tuple[str, ...]:
        return tuple(self.groups)

    def arm(self, cells: Cells, ends: Ends) -> list[Array]:
        return [table(cells, ends, self.seeds)]

    def refusal(self) -> Decision | None:
        if 1 < self.blocks < LEAST_UNITS:
            return Decision("undecided", "unconnected", n=self.blocks)
        # Two crossed seeds, or tasks, are tested with one degree of freedom.
        if self.units == 2 and max(len(self.tasks), len(self.seeds)) >= LEAST_UNITS:
            return None
        return super().refusal()

    def test(self, values: Sides, how: Rule, margin: float | None = None) -> Test:
        if how.strict:
            raise UsageError(
                "--strict: there is no exact test where tasks and seeds are both samples; say --tasks fixed or --seeds fixed"
            )
        d = difference(values[1][0], values[0][0])
        both = crossed_test(d, margin, 0, how.guarded, how.alpha, how.comparisons)
        by_group = list(self.group_tests(values, how, margin).values())
        return grouped([both, *by_group]) if by_group else both

    def group_tests(self, values: Sides, how: Rule, margin: float | None = None) -> dict[str, Test]:
        """Return the tests of the tasks' means by group, which know nothing of seeds: the larger p has to hold."""
        d = task_means(difference(values[1][0], values[0][0]))
        return {
            name: groups_test(
                d, [of.get(task, task) for task in self.tasks], how.alpha, how.comparisons, margin, guarded=how.guarded
            )
            for name, of in self.groups.items()
        }

    @property
    def has_exact_test(self) -> bool:
        return False

    def t_test(self, values: Sides) -> TStatistic | None:
        return crossed_t(difference(values[1][0], values[0][0]))

    def planned_test(self, alpha: float, comparisons: int) -> str:
        return "crossed t"

    def why_this_test(self, decision: Decision, alpha: float, comparisons: int) -> str:
        if self.groups:
            return f"by task and seed, and by groups of tasks ({', '.join(self.groups)}); the larger p counts"
        if decision.method == "sign-flip" and self.blocks > 1:
            return (
                f"the table falls apart into {decision.n} blocks that share neither tasks nor seeds; they are the units"
            )
        return super().why_this_test(decision, alpha, comparisons)

    def noise(self) -> tuple[Array, ...]:
        (a,), (b,) = self.arrays()
        return (task_means(difference(b, a)),)

    def spread_of_noise(self, values: tuple[Array, ...]) -> tuple[float, int]:
        """Return the noise of both margins as the sd of a task: that of the tasks alone would leave out the seeds."""
        (a,), (b,) = self.arrays()
        variance = crossed_variance(difference(b, a))
        return math.sqrt(variance.total * len(self.tasks)), max(2, int(variance.df) + 1)

    def plan_noise(self) -> TwoWay | None:
        (a,), (b,) = self.arrays()
        if self.groups or self.blocks > 1:
            return None
        d = difference(b, a)
        if min(d.shape) < 2:  # so much is missing that a task or a seed alone is left
            return None
        v = crossed_variance(d)
        return TwoWay(len(self.tasks), (effective_seeds(d),), v.task, (v.seed,), (v.cell,))

    def spread_to_detect(self, test: Test | Decision | None) -> Spread | None:
        # What can be detected depends on whether tasks or groups of them are the units.
        return None if self.groups else super().spread_to_detect(test)

    def planning_notes(self) -> list[str]:
        return ["tasks and seeds are both samples, so more tasks alone do not shrink the part of the seeds"]

    def one_arm(self) -> tuple[Array, PlanUnit]:
        return seed_values(self.arrays()[0][0]), "seed"

    def exchangeable(self, tasks: list[Block], seeds: list[Block]) -> list[Block]:
        return ["task", *seeds]

    def holds_by_construction(self, block: Block) -> bool:
        """Return whether blocks of the table are exchanged whole.

        A crossed design has two units, and exchanging one of them puts to the proof how the test deals with the other.
        """
        return self.blocks > 1

    def arrange(self, pairs: Pairs) -> Sequence[list[Array]]:
        return [[each] for each in pairs.tables()]

    def population_line(self) -> str:
        seeds = len(seeds_of(self.control) - {None})
        units = f"{self.blocks} blocks that share neither tasks nor seeds" if self.blocks > 1 else "both"
        about = f"for tasks like these {len(self.tasks)} and seeds like these {seeds}{self._shared}"
        return f"{about} (units: {units}{self.not_run})"

    def more(self, units: int) -> str:
        """Return how many more of both, in the proportion that the table has."""
        factor = (self.units + units) / self.units
        tasks, seeds = (scaled(len(each), factor) - len(each) for each in (self.tasks, self.seeds))
        return f"{number(tasks)} more task{'s' if tasks > 1 else ''} and {number(seeds)} more seed{'s' if seeds > 1 else ''}"

    @property
    def has_two_crossed_seeds(self) -> bool:
        return len(self.seeds) == 2

    def cautions(self, observations: Observations) -> Iterator[Caution]:
        if self.has_two_crossed_seeds:
            yield Caution(
                ("two seeds",),
                "2 crossed seeds leave 1 degree of freedom, so only very large effects can be told from luck with the seeds: "
                "5 seeds or more would decide, and --seeds fixed asks about these 2 seeds only",
            )
        elif len(self.tasks) == 2:
            yield Caution(
                ("two tasks",),
                "2 tasks leave 1 degree of freedom, so only very large effects can be told from luck with the tasks: 5 tasks or "
                "more would decide, and --tasks fixed asks about these 2 tasks only",
            )
        else:
            seed, weight = self._heaviest_seed()
            if weight > 0.5:
                yield Caution(
                    ("one seed",),
                    f"seed {seed} has {percent(weight)} of the weight, because most tasks were run with it alone, so the verdict "
                    "hangs on luck with that seed: run more seeds on more tasks, or say --seeds fixed to ask about these seeds "
                    "only",
                )
        if self.groups and not self.missing and observations.final:
            tests = self.group_tests(self.arrays(), Rule())
            name, test = max(tests.items(), key=lambda item: item[1].p)
            yield Caution(
                ("groups", name),
                f"tasks fall into {test.evidence.n} groups by {name!r}, and nothing says that they are independent inside one: "
                f"p = {format_p(test.p)} by group. The larger p counts; --cluster none takes tasks as independent, --seeds fixed "
                f"--cluster {name} asks about these seeds only",
            )
        few = [name for name in observations.groups if name not in self.groups]
        if observations.analysis.cluster is None and few:
            columns = ", ".join(map(repr, few))
            yield Caution(
                ("groups of crossed tasks",),
                f"tasks fall into groups ({columns}), and this test takes tasks as independent inside one; --seeds fixed with "
                "--cluster COLUMN takes the groups as units, for these seeds only, and --cluster none removes this line",
            )

    def _heaviest_seed(self) -> tuple[int | None, float]:
        """Return the seed with the largest weight in the mean, and its weight."""
        of_task = Counter(task for task, _ in self.control)
        weights = dict.fromkeys(self.seeds, 0.0)
        for task, seed in self.control:
            weights[seed] += 1.0 / (len(of_task) * of_task[task])
        return max(weights.items(), key=lambda item: item[1])
