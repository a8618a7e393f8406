"""Success counts: paired (McNemar, Tango) and independent (Fisher, Miettinen-Nurminen), and Wilson's interval.

The tests count the observed table half (mid-p), which keeps their size near alpha where the exact versions waste it;
the exact p is there too. The intervals invert score tests. All are fast at n = 500,000.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.interval import Interval
from bakeoff.stats.special import TINY, binomial_half_tail, log_binomial_half, normal_cdf, normal_quantile
from bakeoff.stats.vectors import Array, pair, probability, vector

MID_P = "assumes independent tasks; mid-p test, score interval"


def _whole(count: float, name: str) -> int:
    if count != int(count) or count < 0:
        raise ValueError(f"{name} must be a whole number >= 0, got {count}")
    return int(count)


@dataclass(frozen=True)
class PairedBinary:
    """n pairs of outcomes: `b_only` where only arm B succeeded, `a_only` where only A did. Effect: difference of rates."""

    b_only: int
    a_only: int
    pairs: int

    method = "McNemar (mid-p)"
    assumes = MID_P
    monotone = True

    def __post_init__(self) -> None:
        for name in ("b_only", "a_only", "pairs"):
            _whole(getattr(self, name), name)
        if self.pairs < max(1, self.b_only + self.a_only):
            raise ValueError(f"{self.b_only} + {self.a_only} discordant pairs do not fit into {self.pairs}")

    @property
    def n(self) -> int:
        """Number of pairs, concordant ones included."""
        return self.pairs

    @property
    def effect(self) -> float:
        """Success rate of B minus that of A."""
        return (self.b_only - self.a_only) / self.pairs

    @property
    def floor(self) -> float:
        """Smallest two-sided mid-p if every pair were discordant."""
        return max(2.0 * TINY, 2.0 ** -min(self.pairs, 1021))

    @property
    def p_exact(self) -> float:
        """Exact two-sided McNemar p (binomial on the discordant pairs, doubled)."""
        discordant = self.b_only + self.a_only
        return max(TINY, min(1.0, 2.0 * binomial_half_tail(max(self.b_only, self.a_only), discordant)))

    @cached_property
    def _mid(self) -> tuple[float, float]:
        """Mid-p of (b_only too large, a_only too large)."""
        discordant = self.b_only + self.a_only
        if discordant == 0:
            return 0.5, 0.5
        half = 0.5 * math.exp(log_binomial_half(self.b_only, discordant))
        up = binomial_half_tail(self.b_only + 1, discordant) + half
        down = binomial_half_tail(self.a_only + 1, discordant) + half
        return max(TINY, up), max(TINY, down)

    def score(self, x: float) -> float:
        """Tango's z of 'difference of rates = x', with the nuisance rate at its constrained maximum."""
        n, b, c = float(self.pairs), float(self.b_only), float(self.a_only)
        linear = -b - c + (2.0 * n - b + c) * x
        constant = -c * x * (1.0 - x)
        root = max(0.0, linear * linear - 8.0 * n * constant)
        nuisance = (math.sqrt(root) - linear) / (4.0 * n)
        variance = n * (2.0 * nuisance + x * (1.0 - x))
        return _ratio(b - c - n * x, variance)

    def greater(self, x: float) -> float:
        """One-sided p of 'difference <= x': mid-p McNemar at 0, Tango's score elsewhere."""
        return self._mid[0] if x == 0.0 else max(TINY, normal_cdf(-self.score(x)) if x > -1.0 else TINY)

    def less(self, x: float) -> float:
        """One-sided p of 'difference >= x'."""
        return self._mid[1] if x == 0.0 else max(TINY, normal_cdf(self.score(x)) if x < 1.0 else TINY)

    def raw_interval(self, level: float) -> Interval:
        """Tango's score interval for the difference of rates."""
        return _invert_score(self.score, self.effect, level)


def paired_binary(a: ArrayLike, b: ArrayLike) -> PairedBinary:
    """From outcomes 0/1 of both arms on the same units."""
    x, y = pair(a, b)
    _require_binary(x, y)
    return PairedBinary(int(((y == 1) & (x == 0)).sum()), int(((x == 1) & (y == 0)).sum()), x.size)


@dataclass(frozen=True)
class UnpairedBinary:
    """Independent successes: `wins_a` of `n_a`, `wins_b` of `n_b`. Effect: rate of B minus rate of A."""

    wins_a: int
    n_a: int
    wins_b: int
    n_b: int

    method = "Fisher (mid-p)"
    assumes = MID_P
    monotone = True

    def __post_init__(self) -> None:
        for name in ("wins_a", "n_a", "wins_b", "n_b"):
            _whole(getattr(self, name), name)
        if not (self.wins_a <= self.n_a >= 1 and self.wins_b <= self.n_b >= 1):
            raise ValueError("each arm needs at least one run and no more successes than runs")

    @property
    def n(self) -> int:
        """Size of the smaller arm."""
        return min(self.n_a, self.n_b)

    @property
    def effect(self) -> float:
        """Success rate of B minus that of A."""
        return self.wins_b / self.n_b - self.wins_a / self.n_a

    @property
    def floor(self) -> float:
        """Smallest two-sided mid-p with these margins."""
        probabilities = self._null[1]
        return max(2.0 * TINY, float(min(probabilities[0], probabilities[-1])))

    @cached_property
    def _null(self) -> tuple[int, Array]:
        """Smallest possible wins_b and the hypergeometric probabilities from there up, given the margins."""
        wins, total = self.wins_a + self.wins_b, self.n_a + self.n_b
        low, high = max(0, wins - self.n_a), min(wins, self.n_b)
        k = np.arange(low, high, dtype=np.float64)
        ratios = np.log((wins - k) * (self.n_b - k)) - np.log((k + 1.0) * (self.n_a - wins + k + 1.0))
        # Cumulate outwards from the mode: logs stay small where the mass is, so no digits are lost at n = 500,000.
        mode = min(max(int((wins + 1) * (self.n_b + 1) / (total + 2)), low), high) - low
        up = np.cumsum(ratios[mode:])
        down = -np.cumsum(ratios[:mode][::-1])[::-1]
        weights = np.exp(np.concatenate((down, [0.0], up)))
        return low, weights / weights.sum()

    @cached_property
    def _mid(self) -> tuple[float, float]:
        low, probabilities = self._null
        i = self.wins_b - low
        half = 0.5 * float(probabilities[i])
        # Ascending magnitudes are summed first on each side.
        up = float(probabilities[i + 1 :][::-1].sum()) + half
        down = float(probabilities[:i].sum()) + half
        return max(TINY, up), max(TINY, down)

    @property
    def p_exact(self) -> float:
        """Fisher's exact two-sided p: all tables no likelier than the one seen (R's and scipy's convention)."""
        low, probabilities = self._null
        seen = probabilities[self.wins_b - low]
        return max(TINY, min(1.0, float(probabilities[probabilities <= seen * (1.0 + 1e-7)].sum())))

    def score(self, x: float) -> float:
        """Miettinen-Nurminen z of 'difference = x', nuisance rate at its constrained maximum, factor N/(N-1)."""
        total = self.n_a + self.n_b
        rate_a = _constrained_rate(self.wins_a, self.n_a, self.wins_b, self.n_b, x)
        rate_b = min(1.0, max(0.0, rate_a + x))
        variance = rate_b * (1.0 - rate_b) / self.n_b + rate_a * (1.0 - rate_a) / self.n_a
        return _ratio(self.effect - x, variance * total / max(1.0, total - 1.0))

    def greater(self, x: float) -> float:
        """One-sided p of 'difference <= x': mid-p Fisher at 0, the score elsewhere."""
        return self._mid[0] if x == 0.0 else max(TINY, normal_cdf(-self.score(x)) if x > -1.0 else TINY)

    def less(self, x: float) -> float:
        """One-sided p of 'difference >= x'."""
        return self._mid[1] if x == 0.0 else max(TINY, normal_cdf(self.score(x)) if x < 1.0 else TINY)

    def raw_interval(self, level: float) -> Interval:
        """Miettinen-Nurminen interval for the difference of rates."""
        return _invert_score(self.score, self.effect, level)


def unpaired_binary(a: ArrayLike, b: ArrayLike) -> UnpairedBinary:
    """From outcomes 0/1 of two independent arms."""
    x, y = vector(a, "a"), vector(b, "b")
    _require_binary(x, y)
    return UnpairedBinary(int(x.sum()), x.size, int(y.sum()), y.size)


def _require_binary(*samples: Array) -> None:
    for x in samples:
        if not np.isin(x, (0.0, 1.0)).all():
            raise ValueError("binary outcomes must be 0 or 1")


def _ratio(distance: float, variance: float) -> float:
    """distance / sqrt(variance), with the sign at infinity where the constrained model has no spread left."""
    if abs(distance) < 1e-14:
        return 0.0
    return distance / math.sqrt(variance) if variance > 1e-300 else math.copysign(math.inf, distance)


def _constrained_rate(wins_a: int, n_a: int, wins_b: int, n_b: int, x: float) -> float:
    """Maximum-likelihood rate of A when B's rate is exactly x higher: the feasible root of a cubic, in closed form."""
    total = n_a + n_b
    c2 = (n_b + 2.0 * n_a) * x - total - (wins_a + wins_b)
    c1 = (n_a * x - total - 2.0 * wins_a) * x + (wins_a + wins_b)
    c0 = wins_a * x * (1.0 - x)
    third = c2 / (3.0 * total)
    q = third**3 - c1 * c2 / (6.0 * total**2) + c0 / (2.0 * total)
    p = math.copysign(math.sqrt(max(0.0, third**2 - c1 / (3.0 * total))), q)
    if p == 0.0:
        return min(1.0, max(0.0, -third))
    angle = (math.pi + math.acos(min(1.0, max(-1.0, q / p**3)))) / 3.0
    return min(1.0, max(0.0, 2.0 * p * math.cos(angle) - third))


def _invert_score(score: Callable[[float], float], effect: float, level: float) -> Interval:
    """The x whose score stays within the normal quantile; the score falls in x, so each end is a bisection."""
    z = -normal_quantile((1.0 - probability(level, "level")) / 2.0)
    low = _bisect(lambda x: score(x) > z, -1.0, effect)
    high = _bisect(lambda x: score(x) < -z, 1.0, effect)
    return Interval(low, high, level)


def _bisect(rejected: Callable[[float], bool], outside: float, inside: float) -> float:
    """The boundary between rejected (towards `outside`) and kept (towards `inside`), to the last bit or so."""
    if not rejected(outside + math.copysign(1e-15, inside - outside)):
        return outside
    for _ in range(80):
        middle = 0.5 * (outside + inside)
        if middle in (outside, inside):
            break
        if rejected(middle):
            outside = middle
        else:
            inside = middle
    return 0.5 * (outside + inside)


def wilson(wins: int, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval for one success rate."""
    if not 0 <= wins <= n or n < 1:
        raise ValueError(f"need 0 <= wins <= n and n >= 1, got {wins} of {n}")
    z = -normal_quantile((1.0 - probability(level, "level")) / 2.0)
    rate, square = wins / n, z * z
    centre = (rate + square / (2.0 * n)) / (1.0 + square / n)
    half = z / (1.0 + square / n) * math.sqrt(rate * (1.0 - rate) / n + square / (4.0 * n * n))
    low = 0.0 if wins == 0 else centre - half
    high = 1.0 if wins == n else centre + half
    return Interval(low, high, level)
