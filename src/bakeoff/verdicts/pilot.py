"""What a pilot says about noise, and experiments drawn from it: the power of any statistic by simulation.

A statistic that has no test of its own is tested by re-randomisation: signs of the differences are flipped (paired),
or runs are dealt anew to the arms (unpaired), and the statistic is computed each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.stats import decision
from bakeoff.stats.bootstrap import row_iqms
from bakeoff.stats.detection import Design
from bakeoff.stats.evidence import Interval, with_margin
from bakeoff.stats.numerics import Array, is_constant, sd
from bakeoff.stats.permutation import SignFlip
from bakeoff.stats.power import (
    ONE,
    Components,
    Family,
    from_pilot,
    nested_components,
    simulate,
    spread_bound,
    units_needed,
    variance_components,
)
from bakeoff.stats.ranks import mann_whitney, wilcoxon
from bakeoff.stats.ttests import crossed_variance, one_sample_t, welch_t
from bakeoff.verdicts.design import Design as ArmsDesign
from bakeoff.verdicts.design import build_design
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Question
from bakeoff.verdicts.testing import sides

Unit = Literal["unit", "run", "seed", "task", "pair"]


class NotAnswerable(Exception):
    """The data cannot answer: too few units, or no spread."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What the noise is: sd of the differences (paired) or inside an arm (unpaired), and its upper limit."""

    sd: float
    upper: float
    design: Design
    unit: Unit
    confidence: float | None = None
    """Of the upper limit; None when the sd was given and is taken as it is."""

    @property
    def units(self) -> str:
        return f"{self.unit}s" if self.design == "paired" else f"{self.unit}s per arm"


@dataclass(frozen=True, slots=True)
class Estimate:
    """At the spread as seen, and at its upper limit; None: more than can be run, or undefined."""

    seen: float | None
    upper: float | None


def units_at(
    effect: float, spreads: tuple[float, float], alpha: float, power: float, design: Design, family: Family = ONE
) -> Estimate:
    """Units that detect the effect at each of two spreads."""
    units: list[int | None] = []
    for spread in spreads:
        try:
            units.append(units_needed(effect, spread, alpha, power, design, family))
        except ValueError:  # more than anyone can run
            units.append(None)
    return Estimate(*units)


@dataclass(frozen=True, slots=True)
class Pilot:
    """What an experiment says about noise: its units, its components, and how it is spent now."""

    metric: str
    control: str
    candidate: str
    population: str
    values: tuple[Array, ...]
    """Differences of the units (paired), or the two arms (unpaired); larger is better."""
    spread: Spread
    n: int
    tasks: int
    seeds: int
    rollouts: int
    components: Components | None
    """Of the difference of one run of each arm; None where the table has holes."""
    sample_of_tasks: bool
    notes: tuple[str, ...]


def pilot(
    observations: Observations,
    control: str,
    candidate: str,
    question: Question | None = None,
    confidence: float = 0.8,
) -> Pilot:
    """The noise between two arms of an experiment. Missing runs are left out with a note; failures are scored."""
    question = question if question is not None else Question()
    rows = [row for row in observations.rows if row.state != "missing"]
    lost = sum(row.state == "missing" and row.arm in (control, candidate) for row in observations.rows)
    design = build_design(
        replace(observations, rows=rows), control, candidate,
        unpaired=question.unpaired, intersect=True,
    )  # fmt: skip
    values, unit = _noise(design)
    spread = _spread(values, unit, confidence)
    notes = [f"missing runs that are left out of the pilot: {lost}"] if lost else []
    if design.unmatched is not None and not question.unpaired:
        alone = design.unmatched.control + design.unmatched.candidate
        notes.append(f"runs on tasks and seeds that the other arm lacks, left out of the pilot: {alone}")
    if design.kind == "crossed":
        # Both margins' noise, expressed as the sd of a task: that of the tasks alone would leave out the seeds.
        a, b = sides(design)
        variance = crossed_variance(b[0] - a[0])
        both = math.sqrt(variance.total * len(design.tasks))
        spread = replace(spread, sd=both, upper=spread_bound(both, int(variance.df) + 1, confidence))
        notes.append("tasks and seeds are both samples, so more tasks alone do not shrink the part of the seeds")
    return Pilot(
        metric=observations.metric,
        control=control,
        candidate=candidate,
        population=design.population,
        values=values,
        spread=spread,
        n=min(v.size for v in values),
        tasks=len(design.tasks),
        seeds=len(design.seeds),
        rollouts=max(len(cell.values) for cell in design.control.values()),
        components=_components(design, observations.analysis.seeds == "crossed"),
        sample_of_tasks=design.kind in ("tasks", "crossed"),
        notes=tuple(notes),
    )


def _noise(design: ArmsDesign) -> tuple[tuple[Array, ...], Unit]:
    """The values whose spread counts, and what one of them is: differences, or two arms where they are unpaired."""
    a, b = sides(design)
    unit: Unit = "task" if design.kind in ("tasks", "crossed") else "seed" if design.paired else "run"
    if design.kind in ("fixed seeds", "fixed rollouts"):
        if len({part.size for part in (*a, *b)}) > 1:
            raise UsageError("the tasks have different numbers of runs; a pilot needs one number on every task")
        arms = np.mean(a, axis=0), np.mean(b, axis=0)
    else:
        arms = a[0], b[0]
    if not design.paired:
        return arms, unit
    differences = arms[1] - arms[0]
    return (differences.mean(axis=1) if design.kind == "crossed" else differences,), unit


def _spread(values: tuple[Array, ...], unit: Unit, confidence: float) -> Spread:
    sizes = [v.size for v in values]
    if min(sizes) < 2:
        raise NotAnswerable(f"the pilot has {min(sizes)} {unit}; a spread needs at least 2")
    if all(is_constant(v) for v in values):
        raise NotAnswerable("the pilot shows no spread at all (are its runs copies?), so there is nothing to plan with")
    if len(values) == 1:
        seen, df = sd(values[0]), sizes[0] - 1
    else:
        df = sum(sizes) - 2
        seen = math.sqrt(sum(float(v.var(ddof=1)) * (v.size - 1) for v in values) / df)
    upper = spread_bound(seen, df + 1, confidence)
    return Spread(seen, upper, "paired" if len(values) == 1 else "unpaired", unit, confidence)


def _components(design: ArmsDesign, crossed: bool) -> Components | None:
    """Of B - A in a complete (tasks x seeds x rollouts) table."""
    if design.kind == "rollouts":
        return None
    sizes = {len(cell.values) for cell in (*design.control.values(), *design.candidate.values())}
    complete = all((t, s) in design.control for t in design.tasks for s in design.seeds)
    if len(sizes) != 1 or not complete or len(design.control) * min(sizes) < 2:
        return None
    # Rollouts of two arms share nothing: they are subtracted in any order, and each difference has both noises.
    a, b = (
        np.array([[cells[task, seed].values for seed in design.seeds] for task in design.tasks], dtype=np.float64)
        for cells in (design.control, design.candidate)
    )
    components = variance_components(b - a) if crossed else nested_components(b - a)
    return components if design.kind in ("tasks", "crossed") else replace(components, task=0.0)


# -- simulation

FLIPS = 499
STATISTICS: Mapping[str, Callable[[Array], Array]] = {
    "mean": lambda rows: rows.mean(axis=1),
    "median": lambda rows: np.median(rows, axis=1),
    "iqm": row_iqms,
}
"""Statistics without a test of their own, over rows of values."""
TESTS: Mapping[Design, Mapping[str, Callable[..., float]]] = {
    "paired": {
        "decision": lambda d, alpha: decision.paired_test(d, alpha).p,
        "t": lambda d, alpha: one_sample_t(d).p,
        "sign-flip": lambda d, alpha: with_margin(SignFlip(d), None).p,
        "wilcoxon": lambda d, alpha: wilcoxon(d).p,
    },
    "unpaired": {
        "decision": lambda a, b, alpha: decision.unpaired_test(a, b, alpha).p,
        "t": lambda a, b, alpha: welch_t(a, b).p,
        "mann-whitney": lambda a, b, alpha: mann_whitney(a, b).p,
    },
}
"""p of a test: of differences (paired), or of both arms (unpaired), at an alpha."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated. `residuals` are a pilot's values around their mean; None draws normal values."""

    statistic: str
    effect: float
    sd: float
    design: Design
    alpha: float
    replicates: int
    seed: int
    residuals: tuple[Array, ...] | None = None


@dataclass(frozen=True, slots=True)
class PowerAt:
    """Simulated power at n units."""

    n: int
    power: float
    interval: Interval


def power_at(setting: Setting, n: int) -> PowerAt:
    """Share of simulated experiments with n units (an arm) in which the test rejects."""
    tests = TESTS[setting.design]
    known = [*tests, *STATISTICS]
    if setting.statistic not in known:
        raise UsageError(
            f"no statistic called {setting.statistic!r} for {setting.design} data; there are {', '.join(known)}"
        )
    paired = setting.design == "paired"
    effects = [setting.effect] if paired else [0.0, setting.effect]
    test, statistic = tests.get(setting.statistic), STATISTICS.get(setting.statistic)
    pilots = zip(setting.residuals or (), effects, strict=False)
    resampled = [from_pilot(pilot, n, effect) for pilot, effect in pilots]
    rearrange = np.random.default_rng(setting.seed + 1)

    def draw(rng: np.random.Generator) -> Array:
        """Differences, or the runs of A and then those of B."""
        arms = [arm(rng) for arm in resampled] or [rng.normal(effect, setting.sd, n) for effect in effects]
        return np.concatenate(arms)

    def decide(values: Array) -> bool:
        if test is not None:
            return test(*np.split(values, len(effects)), setting.alpha) <= setting.alpha
        assert statistic is not None
        if paired:
            signs = rearrange.integers(0, 2, (FLIPS, n)) * 2.0 - 1.0
            observed, again = statistic(values[None, :]), statistic(signs * values)
        else:
            dealt = rearrange.permuted(np.broadcast_to(values, (FLIPS, 2 * n)), axis=1)
            observed = statistic(values[None, n:]) - statistic(values[None, :n])
            again = statistic(dealt[:, n:]) - statistic(dealt[:, :n])
        # p of a re-randomisation test, the data as given counted among the draws.
        as_extreme = np.abs(again) >= abs(float(observed[0])) * (1 - 1e-12)
        return float(1 + as_extreme.sum()) / (FLIPS + 1) <= setting.alpha

    result = simulate(draw, decide, setting.replicates, setting.seed)
    return PowerAt(n, result.share, result.interval)


def units_for(setting: Setting, power: float, most: int = 2_000) -> list[PowerAt]:
    """The n that were tried on the way to the smallest one with this power; the last of them is the answer.

    Every n is simulated from the same seed. The answer is as sharp as its interval, which comes with it.
    """
    tried: dict[int, PowerAt] = {}

    def enough(n: int) -> bool:
        tried[n] = power_at(setting, n)
        return tried[n].power >= power

    low, high = 2, 4
    while not enough(high):
        if high >= most:
            raise ValueError(f"more than {most} units would be needed")
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return [*(tried[n] for n in sorted(tried) if n != high), tried[high]]
