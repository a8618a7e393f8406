"""Power of any statistic by simulation: draw experiments with the wanted effect, test each one, count.

A statistic that has no test of its own is tested by re-randomisation: signs of the differences are flipped (paired),
or runs are dealt anew to the arms (unpaired), and the statistic is computed each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.stats import decision
from bakeoff.stats.bootstrap import row_iqms
from bakeoff.stats.evidence import Interval, with_margin
from bakeoff.stats.numerics import Array
from bakeoff.stats.permutation import SignFlip
from bakeoff.stats.power import Design, Simulated, from_pilot, simulate
from bakeoff.stats.ranks import mann_whitney, wilcoxon
from bakeoff.stats.ttests import one_sample_t, welch_t

FLIPS = 499
RowStatistic = Callable[[Array], Array]


STATISTICS: dict[str, RowStatistic] = {
    "mean": lambda rows: rows.mean(axis=1),
    "median": lambda rows: np.median(rows, axis=1),
    "iqm": row_iqms,
}
"""Statistics without a test of their own, over rows of values."""
PAIRED_TESTS: dict[str, Callable[[Array, float], float]] = {
    "decision": lambda d, alpha: decision.paired_test(d, alpha).p,
    "t": lambda d, alpha: one_sample_t(d).p,
    "sign-flip": lambda d, alpha: with_margin(SignFlip(d), None).p,
    "wilcoxon": lambda d, alpha: wilcoxon(d).p,
}
UNPAIRED_TESTS: dict[str, Callable[[Array, Array, float], float]] = {
    "decision": lambda a, b, alpha: decision.unpaired_test(a, b, alpha).p,
    "t": lambda a, b, alpha: welch_t(a, b).p,
    "mann-whitney": lambda a, b, alpha: mann_whitney(a, b).p,
}


def names(design: Design) -> list[str]:
    """What `--simulate` takes."""
    return [*(PAIRED_TESTS if design == "paired" else UNPAIRED_TESTS), *STATISTICS]


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
    known = names(setting.design)
    if setting.statistic not in known:
        raise UsageError(
            f"no statistic called {setting.statistic!r} for {setting.design} data; there are {', '.join(known)}"
        )
    if setting.design == "paired":
        result = _paired(setting, n)
    else:
        result = _unpaired(setting, n)
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


def _paired(setting: Setting, n: int) -> Simulated:
    draw = _source(setting, 0, n, setting.effect)
    test = PAIRED_TESTS.get(setting.statistic)
    flips = np.random.default_rng(setting.seed + 1)

    def decide(d: Array) -> bool:
        if test is not None:
            return test(d, setting.alpha) <= setting.alpha
        signs = flips.integers(0, 2, (FLIPS, n)) * 2.0 - 1.0
        return _rerandomised(STATISTICS[setting.statistic], d[None, :], signs * d) <= setting.alpha

    return simulate(draw, decide, setting.replicates, setting.seed)


def _unpaired(setting: Setting, n: int) -> Simulated:
    first, second = _source(setting, 0, n, 0.0), _source(setting, 1, n, setting.effect)
    test = UNPAIRED_TESTS.get(setting.statistic)
    deals = np.random.default_rng(setting.seed + 1)

    def draw(rng: np.random.Generator) -> Array:
        return np.concatenate((first(rng), second(rng)))

    def decide(both: Array) -> bool:
        if test is not None:
            return test(both[:n], both[n:], setting.alpha) <= setting.alpha
        dealt = deals.permuted(np.broadcast_to(both, (FLIPS, 2 * n)), axis=1)
        one = STATISTICS[setting.statistic]
        seen = abs(float((one(both[None, n:]) - one(both[None, :n]))[0]))
        again = np.abs(one(dealt[:, n:]) - one(dealt[:, :n]))
        return _share(again, seen) <= setting.alpha

    return simulate(draw, decide, setting.replicates, setting.seed)


def _rerandomised(statistic: RowStatistic, seen: Array, again: Array) -> float:
    return _share(np.abs(statistic(again)), abs(float(statistic(seen)[0])))


def _share(again: Array, seen: float) -> float:
    """p of a re-randomisation test, the data as given counted among the draws."""
    return float(1 + (again >= seen * (1 - 1e-12)).sum()) / (again.size + 1)


def _source(setting: Setting, which: int, n: int, effect: float) -> Callable[[np.random.Generator], Array]:
    if setting.residuals is not None:
        return from_pilot(setting.residuals[which], n, effect)
    return lambda rng: rng.normal(effect, setting.sd, n)
