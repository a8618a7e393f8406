"""The questions that every design answers, with the answers that most designs share.

A run is (arm, task, seed, rollout). Rollouts are averaged first; the unit is then the seed, the task, or both. Values are
turned so that larger is better. A new design is a subclass in a file of its own: it has to say what its units are, how
one arm becomes arrays, and which test they get. Everything else has a default here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats.binary import PairedBinary, paired_binary
from bakeoff.stats.decision import Decision, flips_suffice, paired_test, seed_has_no_effect
from bakeoff.stats.evidence import LEAST_UNITS, Test, WorstCase, with_margin
from bakeoff.stats.many import Each, Many, ManyPairs
from bakeoff.stats.numerics import difference, is_constant, sd
from bakeoff.stats.permutation import EXACT_UNITS
from bakeoff.stats.plans import Stratified, TwoWay
from bakeoff.stats.power import Components, Units, nested_components, variance_components
from bakeoff.stats.robust import ROBUST_UNITS, Statistic, paired_robust
from bakeoff.stats.ttests import TStatistic, one_sample_t, stratified_paired_t
from bakeoff.text import number
from bakeoff.verdicts.designs.cells import (
    Cell,
    Cells,
    End,
    Ends,
    Unmatched,
    absent_combinations,
    seed_means,
    seeds_of,
    table,
    tasks_of,
)
from bakeoff.verdicts.observations import Observation, Observations

if TYPE_CHECKING:
    from bakeoff.verdicts.designs.replicates import Block, Pairs, Samples

Unit = Literal["seed", "rollout", "task", "task and seed", "task and run"]
PlanUnit = Literal["run", "seed", "task"]
Sides = tuple[list[Array], list[Array]]
"""Control's and candidate's values: one array, one for each task, or one (tasks x seeds) table with NaN where not run."""
MAX_EXACT_COMPARISONS = 100
"""Comparisons up to which an exact p by random rearrangements is added to tests that are not exact."""

_ESTIMANDS: dict[Statistic, str] = {
    "mean": "difference",
    "rank": "typical difference (Hodges-Lehmann)",
    "trimmed": "20 % trimmed mean difference",
}
_OF_LOOKS = {"e-process over all looks": "results were seen before the plan grew"}


@dataclass(frozen=True, slots=True)
class Rule:
    """How a comparison is tested: alpha and the size of the family choose the test, the flags make it more careful."""

    alpha: float = 0.05
    comparisons: int = 1
    guarded: bool = False
    strict: bool = False

    @property
    def level(self) -> float:
        """What the least favoured comparison of the family is tested at; guarded questions are each asked at alpha."""
        return self.alpha if self.guarded else self.alpha / self.comparisons


@dataclass(frozen=True, slots=True)
class Caution:
    """Something that a reader of one verdict should know. Cautions of one kind differ in their numbers only."""

    kind: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Spread:
    """A standard deviation to plan with: of differences, or inside an arm where the arms are unpaired."""

    sd: float
    units: Units
    design: Literal["paired", "unpaired"] = "paired"


@dataclass(frozen=True, kw_only=True)
class Design(ABC):
    """Two arms side by side. `control` and `candidate` have the same places, unless the design is unpaired."""

    unit: Unit
    control: Cells
    candidate: Cells
    tasks: tuple[str, ...]
    seeds: tuple[int | None, ...]
    seeds_are: Literal["nested", "crossed", "fixed"] = "nested"
    """As declared (`analysis.seeds`)."""
    sign: float = 1.0
    """-1 where the metric is to be minimised and values were negated: times this they are in its own direction."""
    missing: int = 0
    failed: int = 0
    given: str = ""
    """What all runs share (`analysis.given`)."""
    unmatched: Unmatched | None = None
    """Runs on tasks and seeds that only one of the arms has."""
    ends: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """(bad, good) end of the metric for each task: what a missing run could have been."""
    seen_ends: bool = False
    """No range was declared, so the ends are the smallest and largest value seen."""
    binary: bool = False
    """Every unit is one pair of raw 0/1 outcomes."""
    statistic: Statistic = "mean"
    """As declared (`analysis.statistic`): another one than the mean needs one pair a unit, or two samples."""
    population: str = ""
    """`population_line` of the design as built, missing runs included."""

    paired: ClassVar[bool] = True
    """Units of the two arms belong together; otherwise the arms are independent samples."""
    one_pair_a_unit: ClassVar[bool] = False
    """One unit is one difference of two values."""
    two_samples: ClassVar[bool] = False
    """The arms are two independent samples of one kind of unit."""
    sample_of_tasks: ClassVar[bool] = False
    """The verdict is about tasks like these."""
    both_sampled: ClassVar[bool] = False
    """Tasks and seeds are both samples, and both are units."""
    plan_unit: ClassVar[PlanUnit] = "seed"
    """What a plan counts."""
    shape: ClassVar[str] = "paired"
    """The design in words: `this comparison is ...`."""
    spread_inside_tasks: ClassVar[bool] = False
    """The test takes spread from inside each task, so a task needs two units of each arm."""
    four_times: ClassVar[str] = ""
    """What four times as many are, where a design has more than one kind of unit."""
    why: ClassVar[Mapping[str, str]] = {}
    """Why a test was chosen, by its name; `{n}` units, `{of}` the level."""

    # -- units and values

    @property
    @abstractmethod
    def units(self) -> int:
        """How many independent units there are: the smaller arm's, where arms differ."""

    @abstractmethod
    def arm(self, cells: Cells, ends: Ends) -> list[Array]:
        """Return one arm's values in the order of its places, missing runs of a task at its end."""

    def arrays(self, control: End = "bad", candidate: End = "bad") -> Sides:
        """Return both arms' values with missing runs at the given ends."""
        return self.arm(self.control, self._ends_at(control)), self.arm(self.candidate, self._ends_at(candidate))

    def _ends_at(self, end: End) -> dict[str, float]:
        return {task: good if end == "good" else bad for task, (bad, good) in self.ends.items()}

    @property
    def matched(self) -> bool:
        """Single runs pair too, and not only the means of tasks: both arms have the same tasks and seeds."""
        return self.paired and set(self.control) == set(self.candidate)

    @property
    def one_outcome_a_unit(self) -> bool:
        """Whether an outcome of 0 or 1 is still one when the test sees it."""
        return False

    @property
    def single_runs(self) -> bool:
        return all(cell.size == 1 for cell in (*self.control.values(), *self.candidate.values()))

    @property
    def group_columns(self) -> tuple[str, ...]:
        """Columns by which tasks may depend on each other."""
        return ()

    def stratum_sizes(self, cells: Cells) -> list[int]:
        """Return the number of an arm's units in each task."""
        sizes = dict.fromkeys((task for task, _ in cells), 0)
        for (task, _), cell in cells.items():
            sizes[task] += 1 if self.unit == "seed" else cell.size
        return list(sizes.values())

    def with_groups(self, observations: Observations) -> Self:
        """Return the design with what it has to know about groups of tasks. Raises UsageError for groups it cannot use."""
        return self

    def without_missing(self) -> Self:
        """Return the design where both arms are known: for descriptions, never for the verdict."""
        if not self.missing:
            return self
        control, candidate = (
            {place: Cell(cell.values, 0, cell.runs) for place, cell in cells.items() if cell.values}
            for cells in (self.control, self.candidate)
        )
        if self.matched:
            both = [place for place in control if place in candidate]
            control, candidate = {p: control[p] for p in both}, {p: candidate[p] for p in both}
        return self.only(*self.usable(control, candidate))

    def usable(self, control: Cells, candidate: Cells) -> tuple[Cells, Cells]:
        """Return the places that the test can use after runs were left out."""
        return control, candidate

    def only(self, control: Cells, candidate: Cells) -> Self:
        """Return the design on some of its places."""
        tasks, seeds = tasks_of(control, candidate), seeds_of(control)
        return replace(
            self,
            control=control,
            candidate=candidate,
            tasks=tuple(task for task in self.tasks if task in tasks),
            seeds=tuple(seed for seed in self.seeds if seed in seeds),
            missing=sum(cell.missing for cell in (*control.values(), *candidate.values())),
        )

    def difference_table(self) -> Array:
        """Return B - A at every place as a (tasks x seeds) table with NaN where not run."""
        seeds = list(dict.fromkeys(seed for _, seed in self.control))
        a, b = (table(cells, self._ends_at("bad"), seeds) for cells in (self.control, self.candidate))
        return np.asarray(b - a)

    def outcomes(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return outcomes as 0 and 1: those of a metric to be minimised were turned into 0 and -1."""
        shift = 1.0 if self.sign < 0 else 0.0
        return a + shift, b + shift

    # -- the test

    def refusal(self) -> Decision | None:
        """Return why these units cannot be tested; None where they can."""
        if self.units < LEAST_UNITS or self.has_single_units:
            return Decision("undecided", "too_few", n=self.units)
        if self.statistic != "mean" and self.units < ROBUST_UNITS:
            return Decision("undecided", "too_few_for_statistic", n=self.units)
        return None

    @property
    def has_single_units(self) -> bool:
        """Whether a task has a single unit of an arm, and so no spread, where the test takes its spread from there."""
        sides = (self.control, self.candidate) if self.spread_inside_tasks else ()
        return any(size < 2 for cells in sides for size in self.stratum_sizes(cells))

    @property
    def counts_seeds(self) -> bool:
        """Whether seeds or runs of one task count as units, so that copies of them would count as evidence."""
        return self.unit != "task"

    @property
    def seeds_are_copies(self) -> bool:
        """Every arm gives the same value on every replicate of every task: copies are not replicates.

        Outcomes of 0 and 1 are left alone: a run that always succeeds does not show that the same run was counted twice.
        """
        if not self.counts_seeds or self.binary:
            return False
        strata = []
        for cells in (self.control, self.candidate):
            by_task: dict[str, list[float]] = {}
            for (task, _), cell in cells.items():
                by_task.setdefault(task, []).extend(cell.values)
            strata += [np.array(values) for values in by_task.values() if values]
        return bool(strata) and seed_has_no_effect(*strata)

    @abstractmethod
    def test(self, values: Sides, how: Rule, margin: float | None = None) -> Test:
        """Return the test of these values. The choice looks at the design and never at the values."""

    def group_tests(self, values: Sides, how: Rule, margin: float | None = None) -> dict[str, Test]:
        """Return a test for each column that groups the tasks, with groups as units."""
        return {}

    @property
    def has_exact_test(self) -> bool:
        """Whether there is an exact test of the mean to stand beside the verdict's own."""
        return self.statistic == "mean"

    def exact_test_is_quick(self, comparisons: int) -> bool:
        """Return whether an exact p by random rearrangements takes little time beside the verdict's own test."""
        return self.units <= EXACT_UNITS or comparisons <= MAX_EXACT_COMPARISONS

    def t_test(self, values: Sides) -> TStatistic | None:
        """Return the t test that fits the design, if there is one."""
        return None

    def planned_test(self, alpha: float, comparisons: int) -> str:
        """Return the name of the test that this many units get: known before any value is."""
        return "sign-flip" if flips_suffice(self.units, alpha, comparisons) else "paired t"

    def why_this_test(self, decision: Decision, alpha: float, comparisons: int) -> str:
        """Return the reason for the test that decided: the design, never the values."""
        if self.statistic != "mean" and decision.method not in _OF_LOOKS:
            return f"statistic = {self.statistic!r} is declared"
        if decision.method == "sign-flip" and not (
            self.one_pair_a_unit and flips_suffice(decision.n, alpha, comparisons)
        ):
            return "there is no spread, so the units are only counted"
        of = f" at alpha {number(alpha)}" + (f" over {comparisons} comparisons" if comparisons > 1 else "")
        reasons = {**_OF_LOOKS, **self.why}
        return reasons.get(decision.method, "").format(n=decision.n, of=of)

    # -- looking more than once: one difference after the other

    @property
    def has_pairs(self) -> bool:
        """Whether there is one difference for each seed or task: what an e-process needs."""
        return self.one_pair_a_unit

    @property
    def pair_names(self) -> tuple[Any, ...]:
        """The seeds, or the tasks, each of which is one pair."""
        return self.seeds

    def unit_of(self, row: Observation, in_order: bool) -> Any:
        """Return what a run belongs to: more runs of the same unit and arm change what was seen, others add to it.

        `in_order`: units are looked at one after the other, each of them a pair.
        """
        match self.unit:
            case "seed":
                return row.seed
            case "task":
                return row.task
            case "rollout":
                return row.task, row.seed, row.rollout
            case "task and seed" | "task and run":
                return row.task, row.seed

    def first_units(self, kept: set[Any]) -> Self:
        """Return the design of these seeds or tasks alone."""
        control, candidate = (
            {place: cell for place, cell in cells.items() if place[self.unit == "seed"] in kept}
            for cells in (self.control, self.candidate)
        )
        first = self.only(control, candidate)
        return replace(first, population=first.population_line())

    def seed_ends(self, order: Sequence[int | None]) -> tuple[Array, Array]:
        """Return the control's value of each seed in this order: lost runs at the bad end, and at the good end."""
        bad, good = self._ends_at("bad"), self._ends_at("good")
        return seed_means(self.control, bad, order), seed_means(self.control, good, order)

    def differences_in_order(self, order: Sequence[Any]) -> tuple[Array, Array]:
        """Return B - A of each unit in this order: with lost runs adverse to B, and with them adverse to A.

        One seed on every task is one pair, whether or not seeds are crossed: each is run once on all of them.
        """
        bad, good = self._ends_at("bad"), self._ends_at("good")
        low = seed_means(self.candidate, bad, order) - seed_means(self.control, good, order)
        high = seed_means(self.candidate, good, order) - seed_means(self.control, bad, order)
        return low, high

    # -- planning: how many more

    def spread_to_detect(self, test: Test | Decision | None) -> Spread | None:
        """Return the spread that says what could have been detected; None where there is none to plan with.

        It comes from the differences, from both arms, or from the test's own standard error where units are of two kinds.
        """
        evidence = test.evidence if isinstance(test, Test) else None
        corners = evidence.corners if isinstance(evidence, WorstCase) else (evidence,)
        statistics = [corner for corner in corners if isinstance(corner, TStatistic)]
        if not statistics:
            return None
        widest = max(statistics, key=lambda statistic: statistic.se)
        return Spread(widest.se * math.sqrt(widest.df + 1.0), widest.df + 1.0)

    def one_value_a_unit(self, values: list[Array]) -> Array:
        """Return an arm's values (or differences), one for each unit that a plan counts."""
        return values[0]

    def noise(self) -> tuple[Array, ...]:
        """Return the values whose spread counts in a plan: differences, or both arms where they are unpaired."""
        a, b = (self.one_value_a_unit(side) for side in self.arrays())
        return (difference(b, a),) if self.paired else (a, b)

    def spread_of_noise(self, values: tuple[Array, ...]) -> tuple[float, int]:
        """Return the sd of `noise`, and the number of values that an upper limit of it may count."""
        if len(values) == 1:
            return sd(values[0]), values[0].size
        df = sum(v.size for v in values) - 2
        return math.sqrt(sum(float(v.var(ddof=1)) * (v.size - 1) for v in values) / df), df + 1

    def plan_noise(self) -> TwoWay | Stratified | None:
        """Return the noise to plan with where there is more than one kind of unit; None where one spread says it all."""
        return None

    def planning_notes(self) -> list[str]:
        """Return what a reader of a plan has to know about the design."""
        if self.statistic == "mean":
            return []
        return [f"planned for the mean, and the verdict will be about the {self.estimand}"]

    def one_arm(self) -> tuple[Array, PlanUnit]:
        """Return the control's values alone, one for each unit, and what one unit is."""
        return self.one_value_a_unit(self.arrays()[0]), self.plan_unit

    def components(self) -> Components | None:
        """Return the variance components of B - A; None unless the (tasks x seeds x rollouts) table is complete."""
        sizes = {len(cell.values) for cell in (*self.control.values(), *self.candidate.values())}
        complete = all((t, s) in self.control for t in self.tasks for s in self.seeds)
        if len(sizes) != 1 or not complete or len(self.control) * min(sizes) < 2:
            return None
        # Rollouts of two arms share nothing: they are subtracted in any order, and each difference has both noises.
        a, b = (
            np.array([[cells[task, seed].values for seed in self.seeds] for task in self.tasks], dtype=np.float64)
            for cells in (self.control, self.candidate)
        )
        components = variance_components(b - a) if self.seeds_are == "crossed" else nested_components(b - a)
        return components if self.sample_of_tasks else replace(components, task=0.0)

    # -- calibration: relabelled replicates

    def exchangeable(self, tasks: list[Block], seeds: list[Block]) -> list[Block]:
        """Return what runs could have in common, coarsest first.

        `tasks` has `task` unless tasks are swept, and `seeds` has `seed` where seeds recur over tasks.
        """
        return ["seed"]

    def knows(self, block: Block) -> bool:
        """Return whether the test knows what runs of such a block have in common."""
        return True

    def holds_by_construction(self, block: Block) -> bool:
        """Return whether such a block is the test's own unit, or finer: exchanging it puts nothing to the proof."""
        return self.knows(block)

    def arrange(self, pairs: Pairs) -> Sequence[list[Array]]:
        """Return the differences of every replicate as the test takes them."""
        return [[row] for row in pairs.d]

    def judge_pairs(self, pairs: Pairs, how: Rule) -> Many:
        """Return the tests of relabelled differences."""
        return self._each([([np.zeros_like(part) for part in parts], parts) for parts in self.arrange(pairs)], how)

    def judge_samples(self, samples: Samples, how: Rule) -> Many:
        """Return the tests of relabelled independent runs."""
        return self._each(
            [
                ([part[r] for part in samples.control], [part[r] for part in samples.candidate])
                for r in range(len(samples.control[0]))
            ],
            how,
        )

    def _each(self, replicates: Sequence[Sides], how: Rule) -> Many:
        careful = Rule(how.level, guarded=True, strict=how.strict)
        return Each([self.test(values, how) for values in replicates], lambda r: self.test(replicates[r], careful))

    def t_of_strata(self, strata: Sequence[Array]) -> TStatistic | None:
        """Return the t test of differences that are given by task; None where they have no spread."""
        return None if all(is_constant(stratum) for stratum in strata) else stratified_paired_t(strata)

    # -- in words

    @property
    def estimand(self) -> str:
        """The centre of B - A that the verdict is about."""
        return _ESTIMANDS[self.statistic]

    @abstractmethod
    def population_line(self) -> str:
        """Return for whom the verdict speaks, by which unit, and how many of them there are."""

    def _on_tasks(self, count: str, unit: str | None = None) -> str:
        """`on these 5 tasks only (unit: seed, N = 8)`."""
        if len(self.tasks) > 1:
            where = f"on these {len(self.tasks)} tasks only"
        else:
            where = f"for {self.unit}s like these" if self.tasks[0] == "default" else f"on {self.tasks[0]!r} only"
        return f"{where}{self._shared} (unit: {unit or self.unit}, N = {count})"

    @property
    def _shared(self) -> str:
        return f", {self.given}" if self.given else ""

    def _like_tasks(self, count: str, groups: str = "", unit: str = "task") -> str:
        """`for tasks like these 5 with these 2 seeds only (unit: task, N = 5)`."""
        only = len(seeds_of(self.control, self.candidate) - {None}) if self.seeds_are == "fixed" else 0
        seeds = f" with these {only} seeds only" if only > 1 else ""
        return f"for tasks like these {len(self.tasks)}{groups}{seeds}{self._shared} (unit: {unit}, N = {count})"

    @property
    def not_run(self) -> str:
        """`; 3 of 240 task-seed combinations were not run`, or nothing."""
        absent = absent_combinations(self.control)
        return f"; {absent} of {absent + len(self.control)} task-seed combinations were not run" if absent else ""

    def _per_arm(self, sizes: Sequence[int]) -> str:
        return f"{sizes[0]} per arm" if sizes[0] == sizes[1] else f"{sizes[0]} and {sizes[1]}"

    def cautions(self, observations: Observations) -> Iterator[Caution]:
        """Return what a reader of the verdict has to know because of the design."""
        return iter(())

    @property
    def has_two_crossed_seeds(self) -> bool:
        """Tasks and seeds are both samples, and there are two seeds: a verdict for these seeds stands beside it."""
        return False

    def more(self, units: int) -> str:
        """Return `14 more seeds`, in the units that the design can have more of."""
        return f"{number(units)} more {self.unit}{'s' if units > 1 else ''}" + ("" if self.paired else " in each arm")

    def named_pairs(self) -> tuple[str, tuple[str, ...]]:
        """Return what one pair is, and the name of each, in the order of `arrays`."""
        places = [place for place in product(self.tasks, self.seeds) if place in self.control]
        return "seed on a task", tuple(f"{task}, seed {seed}" for task, seed in places)


class OnePairDesign(Design):
    """One pair of the two arms for each unit."""

    one_pair_a_unit = True
    why: ClassVar[Mapping[str, str]] = {
        "sign-flip": "{n} paired units are enough for it{of}",
        "paired t": "{n} paired units are too few for a sign-flip test{of}",
        "sign-flip (ties in full)": "{n} paired units, exact tests asked for",
        **dict.fromkeys(("McNemar (mid-p)", "McNemar (exact)"), "outcomes of 0 and 1, one pair for each unit"),
    }

    def test(self, values: Sides, how: Rule, margin: float | None = None) -> Test:
        (a,), (b,) = values
        if self.binary:
            return with_margin(paired_binary(*self.outcomes(a, b), how.strict), margin)
        if self.statistic != "mean":
            return with_margin(paired_robust(difference(b, a), self.statistic), margin)
        return paired_test(difference(b, a), how.alpha, how.comparisons, margin, guarded=how.guarded, strict=how.strict)

    def t_test(self, values: Sides) -> TStatistic | None:
        return one_sample_t(difference(values[1][0], values[0][0]))

    def planned_test(self, alpha: float, comparisons: int) -> str:
        planned: dict[Statistic, str] = {"rank": "signed ranks", "trimmed": "Yuen t and signed ranks"}
        return planned.get(self.statistic) or super().planned_test(alpha, comparisons)

    def spread_to_detect(self, test: Test | Decision | None) -> Spread | None:
        d = self.detectable_differences()
        return Spread(float(d.std(ddof=1)), d.size) if d.size >= 2 and self.statistic == "mean" else None

    def detectable_differences(self) -> Array:
        """Return the difference of each independent unit."""
        (a,), (b,) = self.arrays()
        return difference(b, a)

    def judge_pairs(self, pairs: Pairs, how: Rule) -> Many:
        d = self.unit_differences(pairs)
        if self.statistic != "mean":
            return Each([Test(paired_robust(row, self.statistic)) for row in d])
        if not self.binary:
            return ManyPairs(d, how.alpha, how.comparisons, how.strict)
        counts = list(zip((d > 0).sum(axis=1).tolist(), (d < 0).sum(axis=1).tolist(), strict=True))
        known = {each: Test(PairedBinary(*each, d.shape[1], strict=how.strict)) for each in set(counts)}
        return Each([known[each] for each in counts])

    @abstractmethod
    def unit_differences(self, pairs: Pairs) -> Array:
        """Return one relabelled difference for each unit, (replicates, units)."""
