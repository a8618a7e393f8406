"""The task is the unit: a sample of tasks, in groups or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array
from bakeoff.stats.decision import Decision, group_values, groups_test
from bakeoff.stats.evidence import Test, grouped
from bakeoff.stats.many import Many
from bakeoff.stats.numerics import difference, is_constant
from bakeoff.stats.ttests import TStatistic, one_sample_t
from bakeoff.text import format_p, number
from bakeoff.verdicts.designs.base import Caution, Design, OnePairDesign, Rule, Sides, Spread
from bakeoff.verdicts.designs.cells import Cells, Ends, on_shared_tasks, task_means, tasks_of
from bakeoff.verdicts.observations import Observations

if TYPE_CHECKING:
    from bakeoff.verdicts.designs.replicates import Block, Pairs

MIN_GROUPS = 6
"""Groups of tasks from which on a column that nobody declared is asked whether the verdict holds by it too."""


@dataclass(frozen=True, kw_only=True)
class Tasks(OnePairDesign):
    """One pair for each task: the mean of its runs. With a declared column the groups of tasks are the units."""

    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups that tasks may depend on each other in: column to the group of each task, in the order of `tasks`."""
    cluster: str | None = None
    """The column whose groups are the units because it was declared, or None."""

    sample_of_tasks = True
    plan_unit = "task"

    @property
    def units(self) -> int:
        return len(set(self.groups[self.cluster])) if self.cluster is not None else len(self.tasks)

    @property
    def group_columns(self) -> tuple[str, ...]:
        return tuple(self.groups)

    def with_groups(self, observations: Observations) -> Self:
        cluster, known = declared_cluster(observations), observations.groups
        if cluster == "none":
            return self
        columns = [cluster] if cluster is not None else list(known)
        groups = {name: tuple(known[name].get(task, task) for task in self.tasks) for name in columns}
        fewest = 1 if cluster is not None else MIN_GROUPS
        groups = {name: labels for name, labels in groups.items() if fewest <= len(set(labels)) < len(self.tasks)}
        return replace(self, groups=groups, cluster=cluster if cluster in groups else None)

    @property
    def one_outcome_a_unit(self) -> bool:
        one_each = all(len(cells) == len(tasks_of(cells)) for cells in (self.control, self.candidate))
        return self.single_runs and one_each

    def arm(self, cells: Cells, ends: Ends) -> list[Array]:
        return [task_means(cells, ends)]

    def usable(self, control: Cells, candidate: Cells) -> tuple[Cells, Cells]:
        return on_shared_tasks(control, candidate)

    def only(self, control: Cells, candidate: Cells) -> Self:
        kept = tasks_of(control, candidate)
        places = [place for place, task in enumerate(self.tasks) if task in kept]
        groups = {name: tuple(labels[place] for place in places) for name, labels in self.groups.items()}
        return replace(super().only(control, candidate), groups=groups)

    def test(self, values: Sides, how: Rule, margin: float | None = None) -> Test:
        """Return the test by task, which has to hold for groups of tasks too where there are any."""
        by_group = list(self.group_tests(values, how, margin).values())
        if self.cluster is not None:
            return by_group[0]
        by_task = super().test(values, how, margin)
        return grouped([by_task, *by_group]) if by_group else by_task

    def group_tests(self, values: Sides, how: Rule, margin: float | None = None) -> dict[str, Test]:
        d = difference(values[1][0], values[0][0])
        return {
            name: groups_test(d, labels, how.alpha, how.comparisons, margin, guarded=how.guarded, strict=how.strict)
            for name, labels in self.groups.items()
        }

    @property
    def has_exact_test(self) -> bool:
        return not self.groups and super().has_exact_test

    def why_this_test(self, decision: Decision, alpha: float, comparisons: int) -> str:
        if self.cluster is not None:
            return f"{decision.n} groups of tasks by {self.cluster!r} are the units"
        if self.groups:
            return f"by task, and by groups of tasks ({', '.join(self.groups)}); the larger p counts"
        return super().why_this_test(decision, alpha, comparisons)

    @property
    def pair_names(self) -> tuple[Any, ...]:
        return self.tasks

    def differences_in_order(self, order: Sequence[Any]) -> tuple[Array, Array]:
        known = list(dict.fromkeys(task for task, _ in self.control))
        places = [known.index(task) for task in order]
        (a_good,), (b_bad,) = self.arrays("good", "bad")
        (a_bad,), (b_good,) = self.arrays("bad", "good")
        return (b_bad - a_good)[places], (b_good - a_bad)[places]

    def spread_to_detect(self, test: Test | Decision | None) -> Spread | None:
        # What can be detected depends on whether tasks or groups of them are the units.
        return None if self.groups and self.cluster is None else super().spread_to_detect(test)

    def detectable_differences(self) -> Array:
        d = super().detectable_differences()
        return d if self.cluster is None else group_values(d, self.groups[self.cluster])

    def noise(self) -> tuple[Array, ...]:
        return (self.detectable_differences(),)

    def more(self, units: int) -> str:
        if self.cluster is None:
            return super().more(units)
        return f"{number(units)} more group{'s' if units > 1 else ''} of tasks by {self.cluster!r}"

    def exchangeable(self, tasks: list[Block], seeds: list[Block]) -> list[Block]:
        return ["task", *seeds]

    def knows(self, block: Block) -> bool:
        return block == "task"

    def unit_differences(self, pairs: Pairs) -> Array:
        return pairs.of_tasks()

    def arrange(self, pairs: Pairs) -> Sequence[list[Array]]:
        return [[row] for row in pairs.of_tasks()]

    def judge_pairs(self, pairs: Pairs, how: Rule) -> Many:
        # Tests by group are made one by one.
        return Design.judge_pairs(self, pairs, how) if self.groups else super().judge_pairs(pairs, how)

    def t_of_strata(self, strata: Sequence[Array]) -> TStatistic | None:
        means = np.array([float(stratum.mean()) for stratum in strata])
        return None if is_constant(means) else one_sample_t(means)

    def population_line(self) -> str:
        if self.cluster is None:
            return self._like_tasks(str(len(tasks_of(self.control))))
        return self._like_tasks(str(self.units), f" in {self.units} groups", self.cluster)

    def cautions(self, observations: Observations) -> Iterator[Caution]:
        if observations.analysis.cluster is not None:
            return
        if self.groups and not self.missing and observations.final:
            tests = self.group_tests(self.arrays(), Rule())
            name, test = max(tests.items(), key=lambda item: item[1].p)
            yield Caution(
                ("groups", name),
                f"tasks fall into {test.evidence.n} groups by {name!r}, and nothing says that they are independent inside one: "
                f"p = {format_p(test.p)} by group. The larger p counts; --cluster {name} takes groups as units, --cluster none "
                "tasks",
            )
        few = [name for name, groups in observations.groups.items() if len(set(groups.values())) < MIN_GROUPS]
        if few:
            yield Caution(
                ("few groups",),
                f"tasks fall into fewer than {MIN_GROUPS} groups by {', '.join(map(repr, few))}, which is too few to test by "
                "group: if tasks of one group are alike, false verdicts are more frequent than alpha. --cluster none removes "
                "this line",
            )

    def named_pairs(self) -> tuple[str, tuple[str, ...]]:
        return "task", self.tasks


def declared_cluster(observations: Observations) -> str | None:
    """Return the declared column of groups, or `none`. Raises UsageError for a column that groups no tasks."""
    cluster, known = observations.analysis.cluster, observations.groups
    if cluster is not None and cluster != "none" and cluster not in known:
        there = ", ".join(known) or "none"
        raise UsageError(f"--cluster {cluster}: no such column groups the tasks; those that do: {there}")
    return cluster
