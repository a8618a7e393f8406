"""What earlier runs say about noise, and experiments drawn from them: the power of any statistic by simulation.

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
from bakeoff.stats.detection import Design as Pairing
from bakeoff.stats.evidence import Interval, with_margin
from bakeoff.stats.numerics import Array, is_constant
from bakeoff.stats.permutation import SignFlip
from bakeoff.stats.plans import Stratified, TwoWay, planning_spread
from bakeoff.stats.power import (
    ONE,
    Components,
    Multiplicity,
    resampled_from,
    simulate,
    spread_bound,
    units_needed,
)
from bakeoff.stats.ranks import mann_whitney, wilcoxon
from bakeoff.stats.ttests import one_sample_t, welch_t
from bakeoff.verdicts.designs import Design, build_design
from bakeoff.verdicts.designs.cells import seeds_of
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Question

Unit = Literal["unit", "run", "seed", "task", "pair"]


class NotAnswerable(Exception):
    """The data cannot answer: too few units, or no spread."""


@dataclass(frozen=True, slots=True)
class PlanningSpread:
    """What the noise is: sd of the differences (paired) or inside an arm (unpaired), and its upper limit."""

    sd: float
    upper: float
    design: Pairing
    unit: Unit
    confidence: float | None = None
    """Of the upper limit; None when the sd was given and is taken as it is."""
    df: float = math.inf
    """Degrees of freedom of the sd; infinite when it was given."""

    def planned(self, alpha: float, power: float) -> float:
        """Return the sd to plan with, so that those who follow the plan have this power on average."""
        return self.sd if math.isinf(self.df) else planning_spread(self.sd, self.df, alpha, power)

    @property
    def units(self) -> str:
        return f"{self.unit}s" if self.design == "paired" else f"{self.unit}s per arm"


@dataclass(frozen=True, slots=True)
class Estimate:
    """At the spread as seen, at its upper limit, and on average over both; None: more than can be run, or undefined."""

    seen: float | None
    upper: float | None
    planned: float | None = None
    """The figure to follow: plans for it have the promised power on average over what the noise may really be."""


def units_at(
    effect: float,
    spreads: tuple[float, float] | tuple[float, float, float],
    alpha: float,
    power: float,
    design: Pairing,
    family: Multiplicity = ONE,
) -> Estimate:
    """Units that detect the effect at each of the spreads."""
    units: list[int | None] = []
    for spread in spreads:
        try:
            units.append(units_needed(effect, spread, alpha, power, design, family))
        except ValueError:  # more than anyone can run
            units.append(None)
    return Estimate(*units)


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """What an experiment says about noise: its units, its components, and how it is spent now."""

    metric: str
    control: str
    candidate: str
    population: str
    values: tuple[Array, ...]
    """Differences of the units (paired), or the two arms (unpaired); larger is better."""
    spread: PlanningSpread
    n: int
    tasks: int
    seeds: int
    rollouts: int
    components: Components | None
    """Of the difference of one run of each arm; None where the table has holes."""
    sample_of_tasks: bool
    notes: tuple[str, ...]
    noise: TwoWay | Stratified | None = None
    """Where there is more than one kind of unit, or units on each of several fixed tasks."""


def earlier_runs(
    observations: Observations,
    control: str,
    candidate: str,
    question: Question | None = None,
    confidence: float = 0.8,
) -> EarlierRuns:
    """The noise between two arms of an experiment. Missing runs are left out with a note; failures are scored."""
    question = question if question is not None else Question()
    rows = [row for row in observations.rows if row.state != "missing"]
    lost = sum(row.state == "missing" and row.arm in (control, candidate) for row in observations.rows)
    for arm in (control, candidate):
        if all(row.arm != arm for row in rows):
            raise UsageError(f"{observations.source}: every run of {arm!r} is missing, so nothing says how noisy it is")
    design = build_design(
        replace(observations, rows=rows), control, candidate,
        unpaired=question.unpaired, intersect=True,
    )  # fmt: skip
    values = design.noise()
    spread = _spread(design, values, confidence)
    notes = [*observations.notes]
    if lost:
        notes.append(f"missing runs, left out: {lost}")
    # A missing run leaves the other arm's run alone; more than these have no counterpart in the table at all.
    alone = design.unmatched.control + design.unmatched.candidate - lost if design.unmatched is not None else 0
    if alone > 0 and not question.unpaired:
        notes.append(f"runs on tasks and seeds that the other arm lacks, left out: {alone}")
    notes += design.planning_notes()
    return EarlierRuns(
        metric=observations.metric,
        control=control,
        candidate=candidate,
        population=design.population,
        values=values,
        spread=spread,
        n=min(v.size for v in values),
        tasks=len(design.tasks),
        seeds=max(len(seeds_of(cells)) for cells in (design.control, design.candidate)),
        rollouts=max(len(cell.values) for cell in design.control.values()),
        components=design.components(),
        sample_of_tasks=design.sample_of_tasks,
        notes=tuple(notes),
        noise=design.plan_noise(),
    )


def _spread(design: Design, values: tuple[Array, ...], confidence: float) -> PlanningSpread:
    n = min(v.size for v in values)
    if n < 2:
        raise NotAnswerable(f"there are {n} {design.plan_unit}; a spread needs at least 2")
    if all(is_constant(v) for v in values):
        raise NotAnswerable("the runs show no spread at all (are they copies?), so there is nothing to plan with")
    seen, counted = design.spread_of_noise(values)
    pairing: Pairing = "paired" if design.paired else "unpaired"
    return PlanningSpread(
        seen, spread_bound(seen, counted, confidence), pairing, design.plan_unit, confidence, counted - 1.0
    )


# -- simulation

FLIPS = 499
STATISTICS: Mapping[str, Callable[[Array], Array]] = {
    "mean": lambda rows: rows.mean(axis=1),
    "median": lambda rows: np.median(rows, axis=1),
    "iqm": row_iqms,
}
"""Statistics without a test of their own, over rows of values."""
TESTS: Mapping[Pairing, Mapping[str, Callable[..., float]]] = {
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
    """What is simulated. `residuals` are the values of earlier runs around their mean; None draws normal values."""

    statistic: str
    effect: float
    sd: float
    design: Pairing
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
    resampled = [
        resampled_from(values, n, effect) for values, effect in zip(setting.residuals or (), effects, strict=False)
    ]
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
