"""Every line of the calibration table: what is simulated, what is counted, and the bound it must meet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from bakeoff.spec.experiment import Analysis
from bakeoff.stats.decision import crossed_test, decide, runs_test, seeds_over_tasks_test
from bakeoff.stats.power import minimum_detectable_effect
from bakeoff.stats.robust import Statistic
from calibrate import followers, habits, looking, peers, pooled
from calibrate.laws import (
    BINARY,
    HEAVY,
    LAWS,
    LOGNORMAL,
    NORMAL,
    QUARTERS,
    SKEWED,
    TENTHS,
    TO_THE_RIGHT,
    Array,
    Law,
    Rng,
)
from calibrate.table import ALPHA, Batch, Counts, Draw, Judge, two_arms

Part = Literal[
    "no effect", "several at once", "tasks differ", "few units", "coverage and power", "at the margin",
    "price of the margin", "gate", "robust", "without a bar", "sequential", "plans", "pooled", "reference",
]  # fmt: skip
Peers = Mapping[str, Callable[[Batch], Array]]


@dataclass(frozen=True, slots=True)
class Bar:
    """The share of replicates with `outcome`, compared with fixed limits or with another analysis of the same data."""

    outcome: str
    at_most: float = 1.0
    at_least: float = 0.0
    noise: bool = False
    """Whether the limit is at least alpha + 3 standard errors, to allow for the noise of the simulation."""
    near: str = ""
    """Another outcome; our share may be lower than its share by `points`."""
    points: float = 0.0
    promised: float | None = None
    """The share lies so near to this that the 95 % interval of the simulation contains it, or above it up to `at_most`."""
    statistic: Literal["mean", "median"] = "mean"

    def limits(self, counts: Counts, replicates: int) -> tuple[float, float]:
        high = self.at_most
        if self.noise:
            high = max(high, ALPHA + 3.0 * math.sqrt(ALPHA * (1.0 - ALPHA) / replicates))
        low = float(counts[self.near].mean()) - self.points / 100.0 if self.near else self.at_least
        if self.promised is not None:
            error = 1.96 * math.sqrt(self.promised * (1.0 - self.promised) / replicates)
            low, high = self.promised - error, self.at_most if self.at_most < 1.0 else self.promised + error
        return low, high

    def value(self, counts: Counts) -> float:
        return float(np.median(counts[self.outcome]) if self.statistic == "median" else counts[self.outcome].mean())

    def holds(self, counts: Counts) -> bool:
        low, high = self.limits(counts, counts[self.outcome].size)
        return low - 1e-12 <= self.value(counts) <= high + 1e-12


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of the table. `count` simulates replicates and returns one number per replicate for every outcome."""

    key: str
    part: Part
    row: str
    column: str
    count: Callable[[Rng, int], Counts]
    bars: tuple[Bar, ...] = ()
    most: int | None = None
    """Replicates that are enough where each is slow."""


def _through_compare(draw: Draw, judge: Judge, others: Peers | None = None) -> Callable[[Rng, int], Counts]:
    def count(rng: Rng, replicates: int) -> Counts:
        batch = draw(rng, replicates)
        return judge.count(batch) | {name: peer(batch) for name, peer in (others or {}).items()}

    return count


def false_positives(stated: float = ALPHA) -> Bar:
    """better + worse, if there is no difference."""
    return Bar("decided", at_most=stated, noise=True)


PAIRED, UNPAIRED = Judge(), Judge(seeds_shared=False)
SEEDS, SIZES = (5, 8, 15, 30), ((8, 8), (15, 15), (8, 24))
COVERS = Bar("covered", at_least=0.93, at_most=0.97)


def same_law(rng: Rng, replicates: int, law: Law, seeds: int, effect: float = 0.0) -> Batch:
    shape = (replicates, 1, seeds, 1)
    a, b = law.arms(rng, shape, shape, shape)
    return two_arms(a, b + effect, effect)


def _same_law_unpaired(rng: Rng, replicates: int, law: Law, sizes: tuple[int, int]) -> Batch:
    shapes = [(replicates, 1, 1, n) for n in sizes]
    a, b = law.arms(rng, (replicates, 1, 1, 1), *shapes)
    return two_arms(a, b)


def no_effect() -> Iterator[Cell]:
    for law in LAWS:
        for n in SEEDS:
            stated = 0.06 if n < 7 and not law.normal else ALPHA
            count = _through_compare(partial(same_law, law=law, seeds=n), PAIRED)
            yield Cell(
                f"aa-paired-{n}-{law.name}", "no effect", law.name, f"{n} pairs", count, (false_positives(stated),)
            )
        for a, b in SIZES:
            count = _through_compare(partial(_same_law_unpaired, law=law, sizes=(a, b)), UNPAIRED)
            yield Cell(
                f"aa-unpaired-{a}+{b}-{law.name}", "no effect", law.name, f"{a}+{b}", count, (false_positives(),)
            )


def three_metrics(rng: Rng, replicates: int, seeds: int) -> Batch:
    """Metrics of one run with a correlation of 0.6."""
    shape = (replicates, 1, seeds, 1)
    metrics: dict[str, dict[str, Array]] = {name: {} for name in ("score", "second", "third")}
    for arm in "AB":
        common = rng.normal(size=shape)
        for arms in metrics.values():
            arms[arm] = math.sqrt(0.6) * common + math.sqrt(0.4) * rng.normal(size=shape)
    return Batch(metrics)


def _many_arms(rng: Rng, replicates: int, arms: int, seeds: int) -> Batch:
    shape = (replicates, 1, seeds, 1)
    values = NORMAL.arms(rng, shape, *[shape] * (arms + 1))
    return Batch({"score": dict(zip("ABCDEF", values, strict=False))})


def several_at_once() -> Iterator[Cell]:
    for n in SEEDS:
        count = _through_compare(partial(three_metrics, seeds=n), PAIRED)
        yield Cell(
            f"family-metrics-{n}",
            "several at once",
            "three correlated metrics",
            f"{n} pairs",
            count,
            (false_positives(),),
        )
    for arms in (3, 5):
        count = _through_compare(partial(_many_arms, arms=arms, seeds=15), PAIRED)
        yield Cell(
            f"family-arms-{arms}",
            "several at once",
            f"{arms} arms against a control",
            "15 pairs",
            count,
            (false_positives(),),
        )
    for n in (15, 30):
        margin = Judge(Analysis(margin=0.8))
        count = _through_compare(partial(_shifted, seeds=n, effect=0.8), margin)
        bars = (Bar("equivalent", at_most=ALPHA, noise=True),)
        yield Cell(f"equivalence-{n}", "several at once", "differ by exactly the margin", f"{n} pairs", count, bars)


SHOWN = 0.065
"""What all looks at one edition may reach together."""


def after_a_look() -> Iterator[Cell]:
    """What people do with results that they have seen."""
    part: Part = "several at once"
    column = f"{habits.PAIRS} pairs"
    for key, row, count, bar in (
        ("look-arms", "the best of 4 arms alone, after a look", habits.chosen_arm, false_positives()),
        ("look-metrics", "49 more metrics, after a look", habits.best_metric, false_positives()),
        ("look-analysis", "3 changes of the analysis, after a look", habits.changed_analysis, false_positives(SHOWN)),
    ):
        yield Cell(key, part, row, column, count, (bar,))
    count, seeds = looking.crossed, " / ".join(map(str, looking.CROSSED[1]))
    row = f"{looking.CROSSED[0]} tasks and crossed seeds, both samples, 3 looks"
    yield Cell("look-crossed", part, row, f"{seeds} seeds", count, (false_positives(SHOWN),))
    row = f"{looking.EACH} nested seeds, until decided"
    column = f"at most {looking.TASKS} tasks"
    yield Cell("looking-tasks", part, row, column, looking.tasks, (Bar("decided", at_most=ALPHA),))
    for n in (5, 15):
        count = partial(habits.litmus_rule, pairs=n)
        yield Cell(f"litmus-{n}", part, "a litmus rule that asks for a lift", f"{n} pairs", count, (false_positives(),))


def tables_of_others() -> Iterator[Cell]:
    """Structure that nobody declared."""
    part: Part = "tasks differ"
    sizes = {"equal": (5,) * 8, "unequal": (12, 8, 6, 4, 4, 2, 2, 1, 1), "few": (10, 6, 4, 3, 2, 1)}
    for name, groups in sizes.items():
        for declared in (True, False):
            count = partial(habits.grouped_tasks, sizes=groups, declared=declared)
            how = "declared" if declared else "not declared"
            row = f"{sum(groups)} tasks, a sample, in {len(groups)} groups of {'equal' if name == 'equal' else 'unequal'} size"
            bars = (false_positives(ABSENT if name != "equal" else ALPHA),)
            yield Cell(f"groups-{name}-{how.replace(' ', '-')}", part, row, f"groups {how}", count, bars)
    yield Cell(
        "epochs", part, "8 seeds, an epoch column", "10 epochs", habits.epochs, (false_positives(),)
    )  # fmt: skip
    yield Cell(
        "runs", part, "20 tasks, 3 runs of each arm in a column: refused", "3 runs", habits.named_runs, (Bar("decided", at_most=0.0),)
    )  # fmt: skip
    for step, kept in ((1e-4, 0.03), (1e-6, 0.001)):
        count = partial(habits.copied_runs, step=step)
        bars = (Bar("kept", at_most=kept), Bar("refused", at_most=0.001))
        row = f"6 seeds, scores in steps of {step:g}; 3 are copies in half of the tables"
        yield Cell(f"copies-{step:g}", "several at once", row, "6 pairs", count, bars)


def _shifted(rng: Rng, replicates: int, seeds: int, effect: float) -> Batch:
    """`effect` in standard deviations of the differences."""
    shape = (replicates, 1, seeds, 1)
    a, b = NORMAL.arms(rng, shape, shape, shape)
    return two_arms(a / math.sqrt(2.0), b / math.sqrt(2.0) + effect, effect)


def _shifted_unpaired(rng: Rng, replicates: int, sizes: tuple[int, int], effect: float) -> Batch:
    a, b = (rng.normal(size=(replicates, 1, 1, n)) for n in sizes)
    return two_arms(a, b + effect, effect)


@dataclass(frozen=True, slots=True)
class Grid:
    """Effects that differ by task, by seed and by both; standard deviations relative to that of a rollout."""

    tasks: int
    seeds: int
    rollouts: int
    by_task: float = 1.0
    by_seed: float = 0.0
    centred: bool = False
    """Whether the effects of these tasks sum to exactly 0, which is the null hypothesis if tasks are fixed."""
    effect: float = 0.0

    def draw(self, rng: Rng, replicates: int) -> Batch:
        shape = (replicates, self.tasks, self.seeds, self.rollouts)
        base = 2.0 * rng.normal(size=(replicates, self.tasks, 1, 1))
        by_task = self.by_task * rng.normal(size=(replicates, self.tasks, 1, 1))
        if self.centred:
            by_task -= by_task.mean(axis=1, keepdims=True)
        by_seed = self.by_seed * rng.normal(size=(replicates, 1, self.seeds, 1))
        control = base + rng.normal(size=shape)
        return two_arms(control, base + self.effect + by_task + by_seed + rng.normal(size=shape), self.effect)


OVER_TASKS: Peers = {
    "z": peers.z_over_tasks,
    "z, no small-sample factor": peers.z_over_tasks_plain,
    "t on tasks": peers.t_test,
}
CROSSED = Judge(Analysis(seeds="crossed"))


def tasks_differ() -> Iterator[Cell]:
    for tasks in (5, 10, 20):
        for rollouts in (4, 10):
            count = _through_compare(Grid(tasks, 1, rollouts).draw, UNPAIRED, OVER_TASKS)
            row, column = f"{tasks} tasks, a sample", f"{rollouts} rollouts"
            yield Cell(f"tasks-{tasks}x{rollouts}", "tasks differ", row, column, count, (false_positives(),))
    grid = Grid(10, 4, 1)
    yield _grid("tasks-nested-10x4", "10 tasks, a sample", "4 nested seeds", grid, Judge())
    for tasks in (5, 10, 20):
        for seeds in (5, 10):
            grid = Grid(tasks, seeds, 1, by_seed=1.0)
            row, column = f"{tasks} tasks, a sample", f"{seeds} crossed seeds"
            yield _grid(f"crossed-{tasks}x{seeds}", row, column, grid, CROSSED, 0.07)
    for name, grid in (
        ("tasks", Grid(10, 5, 1)),
        ("seeds", Grid(10, 5, 1, by_task=0.0, by_seed=1.0)),
        ("neither", Grid(10, 5, 1, by_task=0.0)),
    ):
        row, column = f"10 tasks, a sample; only {name} matter", "5 crossed seeds"
        row = row.replace("only neither matter", "neither matters")
        yield _grid(f"crossed-only-{name}", row, column, grid, CROSSED, 0.07)
    fixed = Analysis(tasks="fixed")
    grid = Grid(5, 1, 4, centred=True)
    yield _grid("fixed-rollouts-5x4", "5 tasks, fixed", "4 rollouts", grid, Judge(fixed, seeds_shared=False))
    yield _grid("fixed-nested-5x4", "5 tasks, fixed", "4 nested seeds", Grid(5, 4, 1, centred=True), Judge(fixed))
    grid = Grid(5, 8, 1, by_seed=1.0, centred=True)
    both = Judge(Analysis(tasks="fixed", seeds="crossed"))
    yield _grid("fixed-crossed-5x8", "5 tasks, fixed", "8 crossed seeds", grid, both)


def _grid(key: str, row: str, column: str, grid: Grid, judge: Judge, stated: float = ALPHA) -> Cell:
    return Cell(key, "tasks differ", row, column, _through_compare(grid.draw, judge), (false_positives(stated),))


ABSENT, UNEQUAL = 0.075, 0.095
"""What crossed tables with absent cells may reach, and those of 3 seeds of very unequal size."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Which cells of a crossed table were not run, in both arms alike."""

    name: str
    share: float = 0.0
    """Of cells that are absent at random; every seed keeps one, and tasks without any vanish."""
    thin_seed: bool = False
    """The last seed was run on a fifth of the tasks only."""
    thin_task: bool = False
    """The last task was run with one seed only."""
    corner: bool = False
    """The later half of the seeds was not run on the later half of the tasks."""

    def run(self, rng: Rng, tasks: int, seeds: int) -> npt.NDArray[np.bool_]:
        run = rng.random((tasks, seeds)) >= self.share
        while not run.any(axis=0).all():
            run = rng.random((tasks, seeds)) >= self.share
        if self.corner:
            run[tasks // 2 :, seeds // 2 :] = False
        if self.thin_seed:
            run[max(1, tasks // 5) :, -1] = False
        if self.thin_task:
            run[-1, 1:] = False
        if self.name == "one cell absent":
            run[0, 0] = False
        return run


def _count_absent(rng: Rng, replicates: int, grid: Grid, absent: Absent, fixed: bool = False) -> Counts:
    """better + worse of tables with absent cells; each is drawn anew. On fixed tasks every task keeps two."""
    batch = grid.draw(rng, replicates)
    d = (batch.arm("B") - batch.arm("A")).mean(axis=3)
    decided = np.zeros(replicates)
    for r in range(replicates):
        run = absent.run(rng, grid.tasks, grid.seeds)
        while fixed and run.sum(axis=1).min() < 2:
            run = absent.run(rng, grid.tasks, grid.seeds)
        table = np.where(run, d[r], np.nan)[run.any(axis=1)]
        (decision,) = decide([seeds_over_tasks_test(table) if fixed else crossed_test(table)], ALPHA)
        decided[r] = decision.verdict in ("better", "worse")
    return {"decided": decided}


def _count_runs(rng: Rng, replicates: int, tasks: int, runs: tuple[int, int], by_run: float, absent: float) -> Counts:
    """better + worse of arms that do not differ on average, each with runs of its own; effects differ by task."""
    decided = np.zeros(replicates)
    for r in range(replicates):
        arms = []
        for count in runs:
            values = (
                rng.normal(size=(tasks, 1)) + by_run * rng.normal(size=(1, count)) + rng.normal(size=(tasks, count))
            )
            run = rng.random(values.shape) >= absent
            while run.sum(axis=1).min() < 2 or not run.any(axis=0).all():
                run = rng.random(values.shape) >= absent
            arms.append(np.where(run, values, np.nan))
        (decision,) = decide([runs_test(*arms)], ALPHA)
        decided[r] = decision.verdict in ("better", "worse")
    return {"decided": decided}


def runs_as_units() -> Iterator[Cell]:
    """Runs that belong to one arm each, such as trained models, on tasks that are a sample."""
    for tasks, runs, by_run, absent in (
        (20, (5, 5), 1.0, 0.0), (20, (5, 5), 0.0, 0.0), (10, (3, 3), 1.0, 0.0), (50, (2, 2), 1.0, 0.0),
        (3, (10, 10), 1.0, 0.0), (20, (3, 10), 1.0, 0.0), (10, (8, 8), 1.0, 0.2),
    ):  # fmt: skip
        count = partial(_count_runs, tasks=tasks, runs=runs, by_run=by_run, absent=absent)
        row = f"{tasks} tasks, a sample; runs {'matter' if by_run else 'do not matter'}{'; 20 % absent' if absent else ''}"
        column = f"{runs[0]} and {runs[1]} runs"
        key = f"runs-{tasks}x{runs[0]}+{runs[1]}-{by_run:g}-{absent:g}"
        yield Cell(key, "tasks differ", row, column, count, (Bar("decided", at_most=ABSENT),))


def absent_cells() -> Iterator[Cell]:
    one, fifth, two_fifths = Absent("one cell absent"), Absent("20 % absent", 0.2), Absent("40 % absent", 0.4)
    seed, task = (
        Absent("a seed on a fifth of the tasks", thin_seed=True),
        Absent("a task with one seed", thin_task=True),
    )
    corner = Absent("a quarter absent, in a corner", corner=True)
    for tasks, seeds, absent, bar in (
        (30, 8, one, ABSENT), (30, 8, fifth, ABSENT), (30, 8, task, ABSENT), (10, 5, two_fifths, ABSENT),
        (100, 3, seed, UNEQUAL), (8, 8, two_fifths, ABSENT), (8, 8, seed, ABSENT), (5, 20, fifth, ABSENT),
        (3, 12, one, ABSENT), (2, 8, one, ABSENT), (8, 2, one, ABSENT), (30, 8, corner, ABSENT), (10, 5, corner, ABSENT),
        (100, 3, two_fifths, UNEQUAL),
    ):  # fmt: skip
        count = partial(_count_absent, grid=Grid(tasks, seeds, 1, by_seed=1.0), absent=absent)
        key = f"absent-{tasks}x{seeds}-{absent.name.replace(' ', '-')}"
        row, column = f"{tasks} tasks, a sample; {absent.name}", f"{seeds} crossed seeds"
        yield Cell(key, "tasks differ", row, column, count, (Bar("decided", at_most=bar),))
    for tasks, seeds, absent in ((5, 8, fifth), (10, 5, two_fifths)):
        grid = Grid(tasks, seeds, 1, by_seed=1.0, centred=True)
        count = partial(_count_absent, grid=grid, absent=absent, fixed=True)
        row, column = f"{tasks} tasks, fixed; {absent.name}", f"{seeds} crossed seeds"
        key = f"absent-fixed-{tasks}x{seeds}"
        yield Cell(key, "tasks differ", row, column, count, (Bar("decided", at_most=ABSENT),))


def coverage_and_power() -> Iterator[Cell]:
    part: Part = "coverage and power"
    for n in (8, 15, 30):
        effect = minimum_detectable_effect(1.0, n)
        count = _through_compare(partial(_shifted, seeds=n, effect=effect), PAIRED, {"t-test": peers.t_test})
        bars = (COVERS, Bar("decided", near="t-test", points=3.0))
        yield Cell(f"power-paired-{n}", part, "pairs", f"{n} pairs", count, bars)
    for sizes in SIZES:
        draw = partial(_shifted_unpaired, sizes=sizes, effect=_found_by_welch(*sizes))
        count = _through_compare(draw, UNPAIRED, {"t-test": peers.welch_test})
        bars = (COVERS, Bar("decided", near="t-test", points=3.0))
        name = f"{sizes[0]}+{sizes[1]}"
        yield Cell(f"power-unpaired-{name}", part, "unpaired", name, count, bars)
    effect = minimum_detectable_effect(math.sqrt(1.0 + 2.0 / 4.0), 10)
    count = _through_compare(Grid(10, 1, 4, effect=effect).draw, UNPAIRED, {"t-test": peers.t_test})
    bars = (COVERS, Bar("decided", near="t-test", points=3.0))
    yield Cell("power-tasks-10x4", part, "tasks that differ", "10 tasks x 4 rollouts", count, bars)
    count = _through_compare(Grid(10, 10, 1, by_seed=1.0, effect=1.0).draw, CROSSED)
    yield Cell("coverage-crossed-10x10", part, "crossed", "10 tasks x 10 seeds", count, (COVERS,))


def _found_by_welch(a: int, b: int) -> float:
    """The difference of means that Welch's test detects with 80 % power if both arms have standard deviation 1."""
    va, vb = 1.0 / a, 1.0 / b
    df = (va + vb) ** 2 / (va**2 / (a - 1) + vb**2 / (b - 1))
    # Welch's degrees of freedom with equal spreads; the paired formula with df + 1 units has the same t.
    return minimum_detectable_effect(math.sqrt((va + vb) * (df + 1.0)), df + 1.0)


UNDER_SKEW = {8: 0.09, 10: 0.09, 15: 0.08, 30: 0.07}
"""What exponential and mildly lognormal differences may reach at the margin, by the number of pairs."""
PRICE = {8: 14.0, 10: 10.0, 15: 5.0, 30: 3.0}
"""Points of power that the guard against skew may cost on normal data."""
FAR_MARGIN = 2.0
"""In sd of the differences: far enough that only one side of the margin matters."""


def _skew_bars(outcome: str, name: str, n: int) -> tuple[Bar, ...]:
    if name == "normal":
        return (Bar(outcome, at_most=ALPHA, noise=True),)
    return () if name == "lognormal, sigma 1" else (Bar(outcome, at_most=UNDER_SKEW[n]),)


def at_the_margin() -> Iterator[Cell]:
    """The true effect is the margin itself, and the long tail points away from 0, so that most values look closer."""
    for name, noise in TO_THE_RIGHT.items():
        for n in UNDER_SKEW:
            judge = Judge(Analysis(margin=FAR_MARGIN))
            count = _through_compare(partial(_skewed, noise=noise, seeds=n, effect=FAR_MARGIN), judge)
            bars = _skew_bars("equivalent", name, n)
            yield Cell(f"margin-{name}-{n}", "at the margin", f"differences {name}", f"{n} pairs", count, bars)
    for name in ("exponential", "lognormal, sigma 0.5"):
        for n in (3, 4, 5, 6, 7):
            judge = Judge(Analysis(margin=FAR_MARGIN))
            count = _through_compare(partial(_skewed, noise=TO_THE_RIGHT[name], seeds=n, effect=FAR_MARGIN), judge)
            bars = (Bar("equivalent", at_most=0.09),)
            yield Cell(f"margin-{name}-{n}", "at the margin", f"differences {name}", f"{n} pairs", count, bars)
    for law, margin in ((QUARTERS, 0.5), (TENTHS, 0.3)):
        for n in UNDER_SKEW:
            judge = Judge(Analysis(margin=margin))
            count = _through_compare(partial(same_law, law=law, seeds=n, effect=margin), judge)
            bars = (Bar("equivalent", at_most=ALPHA, noise=True),)
            yield Cell(f"margin-{law.name}-{n}", "at the margin", law.name, f"{n} pairs", count, bars)


def price_of_the_margin() -> Iterator[Cell]:
    for n in UNDER_SKEW:
        # The margin at which two one-sided t-tests have about 80 % power.
        margin = float((peers.one_sided_t(n - 1.0, 0.95) + peers.one_sided_t(n - 1.0, 0.9)) / math.sqrt(n))
        unguarded = {"without the guard": partial(peers.equivalent_by_flips, margin=margin)}
        count = _through_compare(partial(_shifted, seeds=n, effect=0.0), Judge(Analysis(margin=margin)), unguarded)
        bars = (Bar("equivalent", near="without the guard", points=PRICE[n]),)
        yield Cell(f"margin-power-{n}", "price of the margin", "no effect, normal", f"{n} pairs", count, bars)


def gates() -> Iterator[Cell]:
    """The true regression is the allowed one, and the long tail points to losses."""
    for name, noise in TO_THE_RIGHT.items():
        for n in UNDER_SKEW:
            draw = partial(_skewed, noise=noise, seeds=n, effect=-FAR_MARGIN, sign=-1.0)
            count = _through_compare(draw, Judge(may_regress=FAR_MARGIN))
            yield Cell(
                f"gate-{name}-{n}", "gate", f"differences {name}", f"{n} pairs", count, _skew_bars("passed", name, n)
            )
    for name in ("exponential", "lognormal, sigma 0.5"):
        for n in (3, 5, 7):
            draw = partial(_skewed, noise=TO_THE_RIGHT[name], seeds=n, effect=-FAR_MARGIN, sign=-1.0)
            count = _through_compare(draw, Judge(may_regress=FAR_MARGIN))
            bars = (Bar("passed", at_most=0.09),)
            yield Cell(f"gate-{name}-{n}", "gate", f"differences {name}", f"{n} pairs", count, bars)


ROBUST: dict[Statistic, tuple[str, float]] = {
    "rank": ("ranks", 0.5 * float(sp.gammaincinv(2.0, 0.5)) - 1.0),
    "trimmed": ("trimmed means", (0.6 - 0.8 * math.log(0.8) + 0.2 * math.log(0.2)) / 0.6 - 1.0),
}
"""In words, and the centre of exponential differences of mean 0: the median of a mean of two, and the trimmed mean."""


def robust() -> Iterator[Cell]:
    """Other centres than the mean: error rates, power under heavy tails, and skewed differences at the margin."""
    part: Part = "robust"
    for statistic, (words, centre) in ROBUST.items():
        paired, unpaired = (Judge(Analysis(statistic=statistic), seeds_shared=shared) for shared in (True, False))
        for law, n in ((NORMAL, 10), (QUARTERS, 30), (TENTHS, 15), (HEAVY, 30)):
            count = _through_compare(partial(same_law, law=law, seeds=n), paired)
            row = f"{words}: no effect, {law.name}"
            yield Cell(f"{statistic}-aa-{n}-{law.name}", part, row, f"{n} pairs", count, (false_positives(),))
        for law, a, b in ((QUARTERS, 15, 15), (NORMAL, 10, 30), (HEAVY, 10, 30)):
            count = _through_compare(partial(_same_law_unpaired, law=law, sizes=(a, b)), unpaired)
            row = f"{words}: no effect, {law.name}"
            yield Cell(f"{statistic}-aa-{a}+{b}-{law.name}", part, row, f"{a}+{b}", count, (false_positives(),))
        for n in (15, 30):
            count = _through_compare(partial(_heavy, seeds=n), paired, {"Wilcoxon": peers.wilcoxon_test})
            # Yuen's t is guarded by signed ranks, so it cannot have more power than they.
            bars = (Bar("decided", near="Wilcoxon", points=2.0 if statistic == "rank" or n == 30 else 5.0),)
            row = f"{words}: an effect under heavy tails (t with 2 df)"
            yield Cell(f"{statistic}-heavy-{n}", part, row, f"{n} pairs", count, bars)
        for n in (10, 30):
            noise = partial(_about, centre=centre)
            judge = Judge(Analysis(statistic=statistic, margin=FAR_MARGIN))
            count = _through_compare(partial(_skewed, noise=noise, seeds=n, effect=FAR_MARGIN), judge)
            row, bars = f"{words}: exponential, exactly the margin", (Bar("equivalent", at_most=UNDER_SKEW[n]),)
            yield Cell(f"{statistic}-margin-{n}", part, row, f"{n} pairs", count, bars)
        count = _through_compare(partial(_unequal, spreads=(3.0, 1.0), sizes=(10, 30)), unpaired)
        row = f"{words}: no effect, standard deviations 3 and 1"
        yield Cell(f"{statistic}-unequal", part, row, "10+30", count, (false_positives(FEW),))


def _about(rng: Rng, shape: tuple[int, ...], centre: float) -> Array:
    """Exponential differences whose own centre is 0."""
    return TO_THE_RIGHT["exponential"](rng, shape) - centre


FEW = 0.065
"""What designs with few strata or few seeds may reach."""


def few_units() -> Iterator[Cell]:
    part: Part = "few units"
    for n in (8, 16):
        count = _through_compare(partial(_wins_and_losses, seeds=n), PAIRED)
        yield Cell(f"wins-{n}", part, "only wins and losses", f"{n} pairs", count, (false_positives(),))
    fixed = Judge(Analysis(tasks="fixed"))
    for tasks, bars in ((3, (false_positives(FEW),)), (10, ())):
        count = _through_compare(partial(_one_wide_task, tasks=tasks), fixed)
        row = f"{tasks} tasks, fixed, one of them 10 times as noisy"
        yield Cell(f"strata-{tasks}x2", part, row, "2 nested seeds", count, bars)
    for tasks, seeds in ((3, 20), (20, 3)):
        count = _through_compare(Grid(tasks, seeds, 1, by_seed=1.0).draw, CROSSED)
        row, column = f"{tasks} tasks, a sample", f"{seeds} crossed seeds"
        yield Cell(f"crossed-{tasks}x{seeds}", part, row, column, count, (false_positives(FEW),))
    for by_seed in (1.0, 0.3, 0.1):
        count = _through_compare(Grid(200, 2, 1, by_seed=by_seed).draw, CROSSED, {"t on tasks": peers.t_test})
        row = f"200 tasks, a sample; seed sd {by_seed:g} of the task sd"
        yield Cell(f"two-seeds-{by_seed:g}", part, row, "2 crossed seeds", count, (false_positives(FEW),))


def _wins_and_losses(rng: Rng, replicates: int, seeds: int) -> Batch:
    """Whoever wins a seed gets 1 point more, on top of what the seed itself gives: 0 or 1."""
    shape = (replicates, 1, seeds, 1)
    control = rng.integers(0, 2, shape).astype(np.float64)
    return two_arms(control, control + rng.choice([-1.0, 1.0], size=shape))


def _one_wide_task(rng: Rng, replicates: int, tasks: int) -> Batch:
    """No effect on any task; the last task has 10 times the spread of the others."""
    shape = (replicates, tasks, 2, 1)
    spread = np.where(np.arange(tasks) == tasks - 1, 10.0, 1.0)[None, :, None, None] / math.sqrt(2.0)
    return two_arms(spread * rng.normal(size=shape), spread * rng.normal(size=shape))


def without_a_bar() -> Iterator[Cell]:
    part: Part = "without a bar"
    for name, skewed in SKEWED.items():
        for n in (8, 15, 30):
            count = _through_compare(partial(_skewed, noise=skewed, seeds=n), PAIRED, {"t-test": peers.t_test})
            yield Cell(f"skew-{name}-{n}", part, f"no average effect, differences {name}", f"{n} pairs", count)
    for spreads in ((3.0, 1.0), (1.0, 3.0)):
        count = _through_compare(partial(_unequal, spreads=spreads), UNPAIRED, {"Welch": peers.welch_test})
        row = f"no effect, standard deviations {spreads[0]:g} and {spreads[1]:g}"
        yield Cell(f"unequal-{spreads[0]:g}-{spreads[1]:g}", part, row, "8+24", count)
    for n in (15, 30):
        count = _through_compare(partial(_heavy, seeds=n), PAIRED, {"Wilcoxon": peers.wilcoxon_test})
        yield Cell(f"heavy-{n}", part, "an effect under heavy tails (t with 2 df)", f"{n} pairs", count)
    for n, rates in ((15, (0.3, 0.8)), (30, (0.3, 0.65))):
        count = _through_compare(partial(_success, runs=n, rates=rates), UNPAIRED, {"Boschloo": peers.boschloo_test})
        row = f"success rates {rates[0]:.0%} and {rates[1]:.0%}".replace("%", " %")
        yield Cell(f"boschloo-{n}", part, row, f"{n}+{n}", count)


def _skewed(
    rng: Rng,
    replicates: int,
    noise: Callable[[Rng, tuple[int, ...]], Array],
    seeds: int,
    effect: float = 0.0,
    sign: float = 1.0,
) -> Batch:
    world = rng.normal(size=(replicates, 1, seeds, 1))
    return two_arms(world, world + effect + sign * noise(rng, world.shape), effect)


def _unequal(rng: Rng, replicates: int, spreads: tuple[float, float], sizes: tuple[int, int] = (8, 24)) -> Batch:
    a, b = (s * rng.normal(size=(replicates, 1, 1, n)) for s, n in zip(spreads, sizes, strict=True))
    return two_arms(a, b)


def _heavy(rng: Rng, replicates: int, seeds: int) -> Batch:
    shape = (replicates, 1, seeds, 1)
    a, b = HEAVY.arms(rng, shape, shape, shape)
    effect = 2.0 * math.sqrt(15.0 / seeds)
    return two_arms(a, b + effect, effect)


def _success(rng: Rng, replicates: int, runs: int, rates: tuple[float, float]) -> Batch:
    a, b = ((rng.random((replicates, 1, 1, runs)) < rate).astype(np.float64) for rate in rates)
    return two_arms(a, b, rates[1] - rates[0])


def sequential() -> Iterator[Cell]:
    for law in (NORMAL, LOGNORMAL, HEAVY, BINARY):
        count = partial(looking.no_effect, law=law)
        # An e-process guarantees alpha, so there is no allowance for the simulation's noise.
        bars = (Bar("decided", at_most=ALPHA),)
        yield Cell(f"looking-{law.name}", "sequential", "no effect", law.name, count, bars)
    for size in looking.EFFECTS:
        goal = (Bar("stop", at_most=9.0, statistic="median"),) if size == 1.5 else ()
        count = partial(looking.effect, size=size)
        yield Cell(f"stop-{size:g}", "sequential", "effect", f"{size:g}", count, goal)


def plans() -> Iterator[Cell]:
    for key, follower in followers.each():
        bars = (Bar("decided", promised=followers.PROMISED, at_most=follower.at_most),) if follower.bounded else ()
        yield Cell(key, "plans", follower.name, f"{follower.effect:g}", follower.count, bars, most=2_000)


def pools() -> Iterator[Cell]:
    for seed_sd in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0):
        count = partial(pooled.no_effect, seed_sd=seed_sd)
        yield Cell(f"pooled-sd-{seed_sd:g}", "pooled", f"{seed_sd:g}", "60", count, (false_positives(),))
    for steps in (15, 30, 120, 240):
        count = partial(pooled.no_effect, seed_sd=1.0, steps=steps)
        yield Cell(f"pooled-steps-{steps}", "pooled", "1", f"{steps}", count, (false_positives(),))


def references() -> Iterator[Cell]:
    for n in (5, 8, 15):
        draw = partial(_shifted, seeds=n, effect=1.0)
        yield Cell(
            f"percentile-{n}", "reference", "percentile", f"{n} pairs", _peer_alone(draw, peers.percentile_covers)
        )
    for tasks in (5, 10, 15):
        grid = Grid(tasks, 5, 4, by_task=0.0, by_seed=1.0)
        count = _through_compare(grid.draw, Judge(Analysis(seeds="nested")))
        yield Cell(f"wrong-unit-{tasks}", "reference", "task as unit", f"{tasks} tasks x 5 crossed seeds", count)


def _peer_alone(draw: Draw, peer: Callable[[Batch], Array]) -> Callable[[Rng, int], Counts]:
    return lambda rng, replicates: {"covered": peer(draw(rng, replicates))}


CELLS: dict[str, Cell] = {
    cell.key: cell
    for part in (
        no_effect,
        several_at_once,
        after_a_look,
        tasks_differ,
        tables_of_others,
        absent_cells,
        runs_as_units,
        few_units,
        coverage_and_power,
        at_the_margin,
        price_of_the_margin,
        gates,
        robust,
        without_a_bar,
        sequential,
        plans,
        pools,
        references,
    )
    for cell in part()
}
"""All lines by key. Keys seed the random numbers, so adding or removing lines does not change the others."""
