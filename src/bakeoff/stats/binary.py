"""Outcomes that are 0 or 1: McNemar and Tango for pairs, Fisher and Miettinen-Nurminen for independent runs, Wilson.

The tests count the observed table half (mid-p), which keeps their size near alpha where the exact tests
stay far below it (Fagerland, Lydersen and Laake, BMC Med. Res. Methodol. 2013); the exact p is there too, and
`strict` decides by it.
The intervals invert score tests. Everything is fast at n = 500,000.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np
import scipy.special as sp
from numpy.typing import ArrayLike

from bakeoff.stats.evidence import Evidence, Interval, Tails
from bakeoff.stats.numerics import TINY, Array, bisect, normal_cdf, normal_quantile, pair, tail, vector


class RateDifference(Evidence):
    """Evidence about the success rate of B minus that of A: a mid-p test at 0, a score test at every other difference.

    A subclass sets `at_zero`: the mid-p of equal rates, or with `strict` the exact one, which counts the observed table
    in full.
    """

    at_zero: Tails
    strict: bool
    monotone = True

    @property
    def weight(self) -> float:
        """What the observed table counts: half of it in a mid-p, all of it in an exact p."""
        return 1.0 if self.strict else 0.5

    def _set(self, test: str, n: int, effect: float, at_zero: Tails, smallest: float) -> None:
        """Fill in what follows from the counts; `smallest` is the null probability of the most extreme table."""
        how = "exact" if self.strict else "mid-p"
        facts = {
            "method": f"{test} ({how})",
            "assumes": f"assumes independent tasks; {how} test, score interval",
            "n": n,
            "effect": effect,
            "at_zero": Tails(*(max(TINY, min(1.0, p)) for p in (at_zero.greater, at_zero.less))),
            "floor": min(1.0, max(2.0 * TINY, 2.0 * self.weight * smallest)),
        }
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    @abstractmethod
    def score(self, x: float) -> float:
        """z of 'difference of rates = x', decreasing in x, with the nuisance rate at its constrained maximum."""

    def tails(self, x: float) -> Tails:
        if x == 0.0:
            return self.at_zero
        # A difference of rates lies between -1 and 1.
        above = normal_cdf(-self.score(x)) if x > -1.0 else TINY
        below = normal_cdf(self.score(x)) if x < 1.0 else TINY
        return Tails(max(TINY, above), max(TINY, below))

    def interval(self, level: float) -> Interval:
        """The x whose score stays within the normal quantile.

        The score decreases in x, so each end is a bisection.
        """
        z = -normal_quantile(tail(level))
        # Scores at -1 and 1 themselves are 0/0 where everybody succeeded, so the ends are probed just inside.
        low = -1.0 if self.score(-1.0 + 1e-15) <= z else bisect(lambda x: self.score(x) <= z, self.effect, -1.0)
        high = 1.0 if self.score(1.0 - 1e-15) >= -z else bisect(lambda x: self.score(x) >= -z, self.effect, 1.0)
        return Interval(low, high, level)


def _ratio(distance: float, variance: float) -> float:
    """distance / sqrt(variance), infinite with the sign of distance where the constrained model has no spread left."""
    if abs(distance) < 1e-14:
        return 0.0
    return distance / math.sqrt(variance) if variance > 1e-300 else math.copysign(math.inf, distance)


@dataclass(frozen=True)
class PairedBinary(RateDifference):
    """n pairs of outcomes, `b_only` of which only arm B succeeded in and `a_only` only arm A. Units: pairs.

    McNemar's test (Psychometrika 1947) on the discordant pairs; Tango's score (Statistics in Medicine
    1998).
    """

    b_only: int
    a_only: int
    pairs: int
    strict: bool = False
    n: int = field(init=False, compare=False)
    effect: float = field(init=False, compare=False)
    floor: float = field(init=False, compare=False)
    at_zero: Tails = field(init=False, compare=False, repr=False)
    method: str = field(init=False, compare=False, repr=False)
    assumes: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _require_whole(b_only=self.b_only, a_only=self.a_only, pairs=self.pairs)
        discordant = self.b_only + self.a_only
        if self.pairs < max(1, discordant):
            raise ValueError(f"{self.b_only} + {self.a_only} discordant pairs do not fit into {self.pairs}")
        # Under equal rates a discordant pair falls to either arm with chance 1/2.
        half = self.weight * math.exp(_log_binomial_half(self.b_only, discordant))
        up = _binomial_half_tail(self.b_only + 1, discordant) + half
        down = _binomial_half_tail(self.a_only + 1, discordant) + half
        # The smallest p is reached when every pair is discordant. 2^-1022 is the smallest normal double.
        smallest = 2.0 ** -min(self.pairs, 1021)
        self._set("McNemar", self.pairs, (self.b_only - self.a_only) / self.pairs, Tails(up, down), smallest)
        object.__setattr__(self, "identical", discordant == 0)

    @property
    def p_exact(self) -> float:
        """Exact two-sided McNemar p: the binomial tail on the discordant pairs, doubled."""
        larger = _binomial_half_tail(max(self.b_only, self.a_only), self.b_only + self.a_only)
        return max(TINY, min(1.0, 2.0 * larger))

    def score(self, x: float) -> float:
        """Tango's z. The constrained rate of 'only A succeeded' is the root of a quadratic."""
        n, b, c = float(self.pairs), float(self.b_only), float(self.a_only)
        linear = -b - c + (2.0 * n - b + c) * x
        constant = -c * x * (1.0 - x)
        nuisance = (math.sqrt(max(0.0, linear * linear - 8.0 * n * constant)) - linear) / (4.0 * n)
        return _ratio(b - c - n * x, n * (2.0 * nuisance + x * (1.0 - x)))


def paired_binary(a: ArrayLike, b: ArrayLike, strict: bool = False) -> PairedBinary:
    """Count outcomes 0/1 of both arms on the same units, shape (n,) each."""
    x, y = pair(a, b)
    _require_binary(x, y)
    return PairedBinary(int(((y == 1) & (x == 0)).sum()), int(((x == 1) & (y == 0)).sum()), x.size, strict)


def _binomial_half_tail(k: int, n: int) -> float:
    """P(X >= k) for X ~ Binomial(n, 1/2), by the incomplete beta function, which is fast for any n."""
    if k <= 0:
        return 1.0
    return float(sp.betainc(k, n - k + 1, 0.5)) if k <= n else 0.0


def _log_binomial_half(k: int, n: int) -> float:
    """log P(X = k) for X ~ Binomial(n, 1/2), by Loader's saddle-point form (2000, the one in R).

    Differences of gammaln would lose log10(n log n) digits at n = 500,000; deviance plus Stirling errors
    keep them.
    """
    if k in (0, n):
        return -n * math.log(2.0)
    p = k / n
    deviance = k * math.log(2.0 * p) + (n - k) * math.log(2.0 * (1.0 - p))
    correction = _stirling_error(n) - _stirling_error(k) - _stirling_error(n - k)
    return -deviance + correction - 0.5 * math.log(2.0 * math.pi * k * (1.0 - p))


def _stirling_error(n: int) -> float:
    """log n! minus Stirling's n log n - n + log(2 pi n)/2, for n >= 1; an asymptotic series from 16 on."""
    if n < 16:
        return math.lgamma(n + 1.0) - (n * math.log(n) - n + 0.5 * math.log(2.0 * math.pi * n))
    inverse = 1.0 / n
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))))


@dataclass(frozen=True)
class UnpairedBinary(RateDifference):
    """Independent outcomes: `wins_a` of `n_a` and `wins_b` of `n_b` runs succeeded.

    Units: runs; n is the smaller arm's. Fisher's test, conditional on the margins; the score of Miettinen
    and Nurminen (Statistics in Medicine 1985).
    """

    wins_a: int
    n_a: int
    wins_b: int
    n_b: int
    strict: bool = False
    n: int = field(init=False, compare=False)
    effect: float = field(init=False, compare=False)
    floor: float = field(init=False, compare=False)
    at_zero: Tails = field(init=False, compare=False, repr=False)
    method: str = field(init=False, compare=False, repr=False)
    assumes: str = field(init=False, compare=False, repr=False)
    p_exact: float = field(init=False, compare=False, repr=False)
    """Fisher's exact two-sided p: all tables that are at most as likely as the observed one (as in R and scipy)."""

    def __post_init__(self) -> None:
        _require_whole(wins_a=self.wins_a, n_a=self.n_a, wins_b=self.wins_b, n_b=self.n_b)
        if not (self.wins_a <= self.n_a >= 1 and self.wins_b <= self.n_b >= 1):
            raise ValueError("each arm needs at least one run and no more successes than runs")
        smallest, null = _hypergeometric(self.wins_a + self.wins_b, self.n_a, self.n_b)
        i = self.wins_b - smallest
        half = self.weight * float(null[i])
        # Small probabilities are added first, so that they are not lost.
        up = float(null[i + 1 :][::-1].sum()) + half
        down = float(null[:i].sum()) + half
        exact = float(null[null <= null[i] * (1.0 + 1e-7)].sum())
        effect = self.wins_b / self.n_b - self.wins_a / self.n_a
        self._set("Fisher", min(self.n_a, self.n_b), effect, Tails(up, down), float(min(null[0], null[-1])))
        object.__setattr__(self, "p_exact", max(TINY, min(1.0, exact)))

    def score(self, x: float) -> float:
        """Miettinen and Nurminen's z, with their factor N / (N - 1) in the variance."""
        total = self.n_a + self.n_b
        rate_a = self._constrained_rate(x)
        rate_b = min(1.0, max(0.0, rate_a + x))
        variance = rate_b * (1.0 - rate_b) / self.n_b + rate_a * (1.0 - rate_a) / self.n_a
        return _ratio(self.effect - x, variance * total / max(1.0, total - 1.0))

    def _constrained_rate(self, x: float) -> float:
        """Maximum-likelihood rate of A when B's rate is exactly x higher.

        The feasible root of a cubic, in the closed form of Miettinen and Nurminen (1985, appendix).
        """
        total, wins = self.n_a + self.n_b, self.wins_a + self.wins_b
        c2 = (self.n_b + 2.0 * self.n_a) * x - total - wins
        c1 = (self.n_a * x - total - 2.0 * self.wins_a) * x + wins
        c0 = self.wins_a * x * (1.0 - x)
        third = c2 / (3.0 * total)
        q = third**3 - c1 * c2 / (6.0 * total**2) + c0 / (2.0 * total)
        p = math.copysign(math.sqrt(max(0.0, third**2 - c1 / (3.0 * total))), q)
        if p == 0.0:
            return min(1.0, max(0.0, -third))
        # Three real roots; this branch of the arc cosine is the one between 0 and 1.
        angle = (math.pi + math.acos(min(1.0, max(-1.0, q / p**3)))) / 3.0
        return min(1.0, max(0.0, 2.0 * p * math.cos(angle) - third))


def unpaired_binary(a: ArrayLike, b: ArrayLike, strict: bool = False) -> UnpairedBinary:
    """Count outcomes 0/1 of two independent arms, shapes (n_a,) and (n_b,)."""
    x, y = vector(a, "a"), vector(b, "b")
    _require_binary(x, y)
    return UnpairedBinary(int(x.sum()), x.size, int(y.sum()), y.size, strict)


def _hypergeometric(wins: int, n_a: int, n_b: int) -> tuple[int, Array]:
    """Smallest possible number of wins of B given all `wins`, and the null probabilities of that many and more."""
    low, high = max(0, wins - n_a), min(wins, n_b)
    k = np.arange(low, high, dtype=np.float64)
    # log of P(k + 1) / P(k): quotients of neighbouring binomials, so no factorials.
    ratios = np.log((wins - k) * (n_b - k)) - np.log((k + 1.0) * (n_a - wins + k + 1.0))
    # Cumulate outwards from the mode: logs stay small where the mass is, so no digits are lost at n = 500,000.
    mode = min(max(int((wins + 1) * (n_b + 1) / (n_a + n_b + 2)), low), high) - low
    up = np.cumsum(ratios[mode:])
    down = -np.cumsum(ratios[:mode][::-1])[::-1]
    weights = np.exp(np.concatenate((down, [0.0], up)))
    return low, weights / weights.sum()


def _require_whole(**counts: float) -> None:
    """Raise ValueError unless every count is a whole number >= 0."""
    for name, count in counts.items():
        if count != int(count) or count < 0:
            raise ValueError(f"{name} must be a whole number >= 0, got {count}")


def _require_binary(*samples: Array) -> None:
    """Raise ValueError unless every value is 0 or 1."""
    if not all(np.isin(x, (0.0, 1.0)).all() for x in samples):
        raise ValueError("binary outcomes must be 0 or 1")


def wilson(wins: int, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval for the success rate of one arm (JASA 1927).

    Population: runs like these n.
    """
    if not 0 <= wins <= n or n < 1:
        raise ValueError(f"need 0 <= wins <= n and n >= 1, got {wins} of {n}")
    z = -normal_quantile(tail(level))
    rate, square = wins / n, z * z
    centre = (rate + square / (2.0 * n)) / (1.0 + square / n)
    half = z / (1.0 + square / n) * math.sqrt(rate * (1.0 - rate) / n + square / (4.0 * n * n))
    # Without successes the interval begins at 0 exactly; rounding would leave some 1e-17.
    low = 0.0 if wins == 0 else centre - half
    high = 1.0 if wins == n else centre + half
    return Interval(low, high, level)
