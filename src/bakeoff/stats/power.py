"""Planning: how many units, how small an effect, and how to divide runs among tasks, seeds and rollouts.

Only spreads enter, never an observed effect: an effect that was found in a few runs is too large on average.
Three parts: metrics with a standard deviation (noncentral t, corrected for the test that decides by `detection`),
success rates (normal approximation), and variance components.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.binary import wilson
from bakeoff.stats.detection import FLIPPED_UNITS, Design, Quantiles, as_tested, family_as_tested
from bakeoff.stats.evidence import LEAST_UNITS, Interval
from bakeoff.stats.numerics import (
    Array,
    Seed,
    bisect,
    chi2_quantile,
    generator,
    is_constant,
    mean,
    noncentral_t_cdf,
    normal_cdf,
    normal_quantile,
    probability,
    sd,
    t_quantile,
    vector,
)
from bakeoff.stats.ttests import one_sample_t

MOST_UNITS = 10**9
ONE_BY_ONE = FLIPPED_UNITS + 1


@dataclass(frozen=True, slots=True)
class Multiplicity:
    """The comparisons of one verdict, and which of them have to be detected.

    each: one particular comparison, at alpha / comparisons: the level that the least favoured one must pass under Holm.
    any, all: at least one of them, every one of them, when all have the effect and share one control.
    """

    comparisons: int = 1
    wanted: Literal["each", "any", "all"] = "each"


ONE = Multiplicity()
Units = float | tuple[int, int]
"""Units, or those of two unpaired arms."""


def t_power(effect: float, spread: float, n: Units, alpha: float = 0.05, design: Design = "paired") -> float:
    """Chance that a two-sided t test at alpha rejects when the true difference is `effect`.

    n > 1, spread > 0. By the noncentral t: noncentrality effect / spread * sqrt(n) with n - 1 df (paired),
    or effect / spread * sqrt(n / 2) with 2n - 2 df (unpaired) (Cohen 1988, chapter 12).
    """
    probability(alpha, "alpha")
    n1, n2 = n if isinstance(n, tuple) else (n, n)
    if not (spread > 0.0 and min(n1, n2) > 1.0):
        raise ValueError(f"power needs spread > 0 and n > 1, got spread {spread}, n {n}")
    df, root = (n1 - 1.0, math.sqrt(n1)) if design == "paired" else (n1 + n2 - 2.0, math.sqrt(n1 * n2 / (n1 + n2)))
    shift = abs(effect) / spread * root
    critical = -t_quantile(df, alpha / 2.0)
    rejected = 1.0 - noncentral_t_cdf(df, shift, critical) + noncentral_t_cdf(df, shift, -critical)
    return min(1.0, max(alpha, rejected))


def chance_to_detect(
    effect: float, spread: float, n: Units, alpha: float = 0.05, design: Design = "paired", family: Multiplicity = ONE
) -> float:
    """Power of the test that will decide about n units with normal values; 0 below 3 units, which decide nothing.

    By the noncentral t at alpha / comparisons, corrected by simulation where another test decides: sign flips of few
    pairs, and few units in unpaired arms.
    """
    if not decidable(n):
        return 0.0
    simulated = _simulated(n, alpha, design, family)
    size = abs(effect) / spread
    as_t = size if simulated is None else float(simulated.as_t(size))
    return t_power(max(0.0, as_t), 1.0, n, alpha / family.comparisons, design)


def minimum_detectable_effect(
    spread: float,
    n: Units,
    alpha: float = 0.05,
    power: float = 0.8,
    design: Design = "paired",
    family: Multiplicity = ONE,
) -> float:
    """Smallest true effect that n units detect with this power, in the spread's unit; inf below 3 units."""
    probability(power, "power")
    if power <= alpha:
        raise ValueError(f"power {power} must exceed alpha {alpha}")
    if not decidable(n):
        return math.inf
    level = alpha / family.comparisons

    def enough(effect: float) -> bool:
        return t_power(effect, 1.0, n, level, design) >= power

    # Four standard errors or more: nearly always enough.
    high = 4.0 * math.sqrt(2.0 / (n if isinstance(n, float | int) else min(n)))
    while not enough(high):
        high *= 2.0
    size = bisect(enough, high, 0.0)
    simulated = _simulated(n, alpha, design, family)
    return spread * (size if simulated is None else float(simulated.as_tested(size)))


def decidable(n: Units) -> bool:
    """Whether n units are enough for a verdict at all."""
    return (min(n) if isinstance(n, tuple) else n) >= LEAST_UNITS


def _simulated(n: Units, alpha: float, design: Design, family: Multiplicity) -> Quantiles | None:
    """What the deciding test detects, where it is not a t test; for a fraction of a unit, the whole number below."""
    sizes = n if isinstance(n, tuple) else (int(n), int(n))
    if family.comparisons > 1 and family.wanted != "each":
        return family_as_tested(design, min(sizes), alpha, family.comparisons, family.wanted)
    return as_tested(design, sizes, alpha, family.comparisons)


def units_needed(
    effect: float,
    spread: float,
    alpha: float = 0.05,
    power: float = 0.8,
    design: Design = "paired",
    family: Multiplicity = ONE,
) -> int:
    """Smallest whole number of units (per arm when unpaired) that detects `effect` with this power; at least 3.

    Raises ValueError for an effect of 0, a spread of 0, and when more than a billion units would be needed.
    """
    probability(power, "power")
    if not (effect != 0.0 and spread > 0.0):
        raise ValueError("units_needed needs an effect other than 0 and a positive spread")

    def enough(n: int) -> bool:
        return chance_to_detect(effect, spread, n, alpha, design, family) >= power

    # A few units are tried one by one: where the test changes, power can drop from one number to the next. Those that
    # a t test could hardly do with are passed over.
    m = family.comparisons
    for n in range(LEAST_UNITS, ONE_BY_ONE + 1):
        single = t_power(effect, spread, n, alpha if family.wanted == "all" else alpha / m, design)
        if (m * single if family.wanted == "any" else single) >= power - 0.05 and enough(n):
            return n
    # The normal approximation is a little too small; the search starts there.
    z = normal_quantile(1.0 - alpha / m / 2.0) + normal_quantile(power)
    start = (z * spread / abs(effect)) ** 2 * (1.0 if design == "paired" else 2.0)
    if start > MOST_UNITS:
        raise ValueError(f"more than {MOST_UNITS:,} units would be needed; the effect is too small for this spread")
    low, high = ONE_BY_ONE, max(ONE_BY_ONE + 1, math.ceil(start) + 4)
    while not enough(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def spread_bound(spread: float, n: int, confidence: float = 0.8) -> float:
    """Upper confidence bound of an sd that was estimated from n >= 2 normal values (n = 15, 80 %: times 1.22).

    A plan with the sd itself has too little power in half of all cases (Browne, Statistics in Medicine
    1995).
    """
    return spread * math.sqrt((n - 1) / chi2_quantile(n - 1, 1.0 - probability(confidence, "confidence")))


def relative_error(x: ArrayLike, n: int | None = None, level: float = 0.95) -> float | None:
    """Relative standard error of the mean at n units (default: those of x): sd / sqrt(n) / |mean|.

    None, 'undefined', where the interval of the mean includes 0: a share of something that may be 0 has no
    meaning.
    """
    values = vector(x, "x", at_least=2)
    centre = mean(values)
    if is_constant(values):
        return 0.0 if centre != 0.0 else None
    if one_sample_t(values).interval(level).contains(0.0):
        return None
    return sd(values) / math.sqrt(n or values.size) / abs(centre)


def units_for_relative_error(x: ArrayLike, target: float, level: float = 0.95) -> int | None:
    """Smallest n whose relative standard error is at most `target`; None where that is undefined."""
    of_one = relative_error(x, 1, level)
    return None if of_one is None else max(2, math.ceil((of_one / target) ** 2 - 1e-9))


@dataclass(frozen=True, slots=True)
class Simulated:
    """Share of simulated experiments in which the decision was positive, with its Wilson interval."""

    share: float
    interval: Interval
    replicates: int


def simulate(
    draw: Callable[[np.random.Generator], Array],
    decide: Callable[[Array], bool],
    replicates: int = 1_000,
    seed: Seed = 0,
) -> Simulated:
    """Power (or error rate) of any decision on any data: draw an experiment, decide, count."""
    rng = generator(seed)
    hits = sum(bool(decide(draw(rng))) for _ in range(replicates))
    return Simulated(hits / replicates, wilson(hits, replicates), replicates)


def resampled_from(differences: ArrayLike, n: int, effect: float) -> Callable[[np.random.Generator], Array]:
    """A `draw` for `simulate`: n units resampled from differences (m,) of earlier runs, moved to a mean of `effect`.

    Residuals are widened by sqrt(m / (m-1)): a resample of m values has too little spread by that factor.
    """
    values = vector(differences, "differences", at_least=2)
    residuals = (values - values.mean()) * math.sqrt(values.size / (values.size - 1)) + effect
    return lambda rng: np.asarray(rng.choice(residuals, n), dtype=np.float64)


# Success rates. paired: one pair of 0/1 outcomes a unit, and `discordant` is the share of pairs that differ.
# unpaired: n outcomes in each arm. Outcomes that share a seed or a task are not independent: plan with the spread of
# seeds or tasks. Formulas: Fleiss, Levin and Paik, Statistical Methods for Rates and Proportions 2003, chapter 4
# (unpaired, without continuity correction); Connor, Biometrics 1987 (paired).


def rate_power(
    rate: float,
    effect: float,
    n: float,
    alpha: float = 0.05,
    design: Design = "unpaired",
    discordant: float | None = None,
) -> float:
    """Chance that n outcomes detect the difference between `rate` and `rate + effect`, two-sided at alpha."""
    probability(alpha, "alpha")
    null, alternative = _rate_spreads(rate, effect, design, discordant)
    if not n > 0:
        raise ValueError(f"n must be positive, got {n}")
    z = -normal_quantile(alpha / 2.0)
    shift = abs(effect) * math.sqrt(n)
    if alternative == 0.0:  # the true rates leave nothing to chance
        return 1.0 if shift > z * null else alpha
    return min(1.0, normal_cdf((shift - z * null) / alternative) + normal_cdf((-shift - z * null) / alternative))


def outcomes_needed(
    rate: float,
    effect: float,
    alpha: float = 0.05,
    power: float = 0.8,
    design: Design = "unpaired",
    discordant: float | None = None,
) -> int:
    """Smallest number of pairs, or of outcomes in each arm, that detects the difference with this power."""
    probability(power, "power")
    null, alternative = _rate_spreads(rate, effect, design, discordant)
    reach = -normal_quantile(alpha / 2.0) * null + normal_quantile(power) * alternative
    needed = (max(0.0, reach) / effect) ** 2
    if needed > MOST_UNITS:
        raise ValueError(f"more than {MOST_UNITS:,} outcomes would be needed; the effect is too small")
    return max(2, math.ceil(needed - 1e-9))


def detectable_rate_difference(
    rate: float, n: float, alpha: float = 0.05, power: float = 0.8, design: Design = "unpaired"
) -> float | None:
    """Smallest rise of the rate that n outcomes detect with this power; None when even a rise to 1 is too small."""
    probability(power, "power")

    def enough(effect: float) -> bool:
        return rate_power(rate, effect, n, alpha, design) >= power

    return bisect(enough, 1.0 - rate, 0.0) if enough(1.0 - rate) else None


def _rate_spreads(rate: float, effect: float, design: Design, discordant: float | None) -> tuple[float, float]:
    """Standard deviation of sqrt(n) times the estimated difference: without an effect, and with this one."""
    other = rate + effect
    if effect == 0.0:
        raise ValueError("an effect of 0 cannot be detected, whatever the number of outcomes")
    if not (0.0 <= rate <= 1.0 and 0.0 <= other <= 1.0):
        raise ValueError(f"rates lie between 0 and 1, got {rate:g} and {other:g}")
    if design == "unpaired":
        middle = (rate + other) / 2.0
        return math.sqrt(2.0 * middle * (1.0 - middle)), math.sqrt(rate * (1.0 - rate) + other * (1.0 - other))
    # Without a declared share the two outcomes of a pair are taken as independent: the cautious default.
    share = rate * (1.0 - other) + other * (1.0 - rate) if discordant is None else discordant
    if not abs(effect) <= share <= 1.0:
        raise ValueError(f"the share of pairs that differ lies between |effect| = {abs(effect):g} and 1, got {share:g}")
    return math.sqrt(share), math.sqrt(max(0.0, share - effect * effect))


# Variance components: where the noise comes from, and from that where the next run helps most.


@dataclass(frozen=True, slots=True)
class Components:
    """Variance components of one run's value, squared metric unit, never negative.

    `cell` is the task-seed interaction. With one rollout a cell it cannot be separated from `rollout`, and
    both are in `cell`. Fixed tasks contribute no variance: use `task = 0`.
    """

    task: float
    seed: float
    cell: float
    rollout: float

    def variance(self, tasks: int, seeds: int, rollouts: int) -> float:
        """Variance of the grand mean of a crossed tasks x seeds x rollouts design."""
        runs = tasks * seeds
        return self.task / tasks + self.seed / seeds + self.cell / runs + self.rollout / (runs * rollouts)


def variance_components(values: ArrayLike) -> Components:
    """Components of a complete table of shape (tasks, seeds) or (tasks, seeds, rollouts), seeds crossed with tasks.

    Mean squares are equated with their expectations (Searle, Casella and McCulloch, Variance Components
    1992, chapter 4). Negative estimates are set to 0. A dimension of length 1 has component 0.
    """
    x = _table(values)
    tasks, seeds, rollouts = x.shape
    cells = x.mean(axis=2)
    by_task, by_seed = cells.mean(axis=1), cells.mean(axis=0)
    rest = cells - by_task[:, None] - by_seed[None, :] + cells.mean()

    def mean_square(squares: Array, df: int) -> float:
        return float(squares.sum()) / df if df > 0 else 0.0

    ms_rollout = mean_square((x - cells[:, :, None]) ** 2, tasks * seeds * (rollouts - 1))
    ms_cell = mean_square(rollouts * rest**2, (tasks - 1) * (seeds - 1))
    ms_task = mean_square(seeds * rollouts * (by_task - cells.mean()) ** 2, tasks - 1)
    ms_seed = mean_square(tasks * rollouts * (by_seed - cells.mean()) ** 2, seeds - 1)
    # With a single seed (or task) there is no interaction to subtract, only what lies below it.
    below = ms_cell if min(tasks, seeds) > 1 else ms_rollout
    return Components(
        task=max(0.0, (ms_task - below) / (seeds * rollouts)),
        seed=max(0.0, (ms_seed - below) / (tasks * rollouts)),
        cell=max(0.0, (ms_cell - ms_rollout) / rollouts) if min(tasks, seeds) > 1 else 0.0,
        rollout=ms_rollout,
    )


def nested_components(values: ArrayLike) -> Components:
    """Components where seeds are nested in tasks: `seed` is 0, and `cell` is the seed within its task.

    values: (tasks, seeds) or (tasks, seeds, rollouts). With one rollout each, seeds and rollouts cannot be
    separated.
    """
    x = _table(values)
    tasks, seeds, rollouts = x.shape
    rollout = variance_components(x).rollout
    cells = x.mean(axis=2)
    within = float(cells.var(axis=1, ddof=1).mean()) if seeds > 1 else rollout / rollouts
    between = float(cells.mean(axis=1).var(ddof=1)) if tasks > 1 else 0.0
    return Components(
        task=max(0.0, between - within / seeds),
        seed=0.0,
        cell=max(0.0, within - rollout / rollouts),
        rollout=rollout,
    )


def _table(values: ArrayLike) -> Array:
    """`values` as a finite array of shape (tasks, seeds, rollouts); without rollouts there is one of each."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim == 2:
        x = x[:, :, None]
    if x.ndim != 3 or x.size < 2:
        raise ValueError(f"values must be tasks x seeds (x rollouts), got shape {np.shape(values)}")
    if not np.isfinite(x).all():
        raise ValueError("values have NaN or infinite entries; components need a complete table")
    return x


@dataclass(frozen=True, slots=True)
class Costs:
    """What one more task, one more (task, seed) and one more rollout cost, in any common unit."""

    task: float = 0.0
    seed: float = 0.0
    rollout: float = 1.0

    def total(self, tasks: int, seeds: int, rollouts: int) -> float:
        """Cost of the whole design."""
        return tasks * (self.task + seeds * (self.seed + rollouts * self.rollout))


@dataclass(frozen=True, slots=True)
class Allocation:
    """A design, the standard error of its grand mean, and its cost."""

    tasks: int
    seeds: int
    rollouts: int
    standard_error: float
    cost: float


def allocate(
    components: Components,
    budget: float,
    costs: Costs | None = None,
    tasks: int | None = None,
    most_tasks: int = 1_000,
    least_tasks: int = 1,
) -> Allocation:
    """The crossed design with the smallest standard error within the budget; the cheapest of equal ones.

    `tasks` fixes their number (a benchmark that cannot grow); otherwise `least_tasks` to `most_tasks` are
    considered: a verdict about tasks like these needs 3 of them, whatever the estimate of their variance.
    Raises ValueError when nothing fits.
    """
    price = costs or Costs()
    if not (price.rollout > 0.0 and budget > 0.0):
        raise ValueError("allocation needs a positive budget and a positive price for a rollout")
    best: Allocation | None = None
    smallest = (math.inf, math.inf)
    for t in [tasks] if tasks else range(least_tasks, most_tasks + 1):
        per_task = budget / t - price.task
        for s in range(1, int(max(0.0, per_task) / (price.seed + price.rollout)) + 1):
            # As many rollouts as the budget allows, or one where rollouts add no noise.
            k = int((per_task / s - price.seed) / price.rollout + 1e-9)
            if k < 1:
                break
            k = 1 if components.rollout == 0.0 else k
            variance, cost = components.variance(t, s, k), price.total(t, s, k)
            if (variance, cost) < smallest:
                smallest, best = (variance, cost), Allocation(t, s, k, math.sqrt(variance), cost)
    if best is None:
        raise ValueError(f"no design fits into a budget of {budget}")
    return best
