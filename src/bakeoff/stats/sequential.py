"""Looking after every pair: e-processes, their confidence sequences, and the rule that stops an experiment.

An e-process is the wealth of a gambler who bets against 'no effect'. Under no effect it ever reaches 1/a
with probability at most a (Ville's inequality, 1939), so it may be looked at as often as one likes (Ramdas,
Grunwald, Vovk and Shafer, 'Game-theoretic statistics and safe anytime-valid inference', Statistical Science
2023). Values enter in the order of the plan, never in the order in which runs finish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.special as sp
from numpy.typing import ArrayLike

from bakeoff.stats.evidence import Interval, unbounded
from bakeoff.stats.numerics import Array, Integers, Seed, bisect, generator, probability, sd, vector

BETS = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
"""Stakes that the symmetric e-process averages over: small ones for weak effects, large ones for strong."""
LEAST_PLANNED = 7
"""Each pair can at most double the wealth, so fewer planned pairs could never decide."""

LEAST_EQUIVALENT = 30
"""Away from 0 the symmetric e-process is wrong under skew: with fewer pairs it does not say `equivalent`."""

LogE = Callable[[Array, float], tuple[Array, Array]]
"""Paths of (log e+, log e-) against 'centre <= x' and 'centre >= x' of values shaped (..., n), along the last axis."""
Stop = Literal["better", "worse", "equivalent", "undecided", "continue"]
_WORDS: tuple[Stop, ...] = ("continue", "better", "worse", "equivalent")


def symmetric_log_e(d: ArrayLike, centre: float = 0.0) -> tuple[Array, Array]:
    """log e+ and log e- after each pair, shape (..., n) like d; replicates along the leading axes.

    e+ = mean over k of prod(1 + tanh(k d_i / rms(d_1..d_i))) grows when d lies above `centre`. Valid when
    each difference is symmetric about the centre given the past: the scale may then use the current
    magnitude, because only the sign is random (e-tests of symmetry; Vovk and Wang, 'Efficiency of
    nonparametric e-tests' 2022). Zeros before the first non-zero difference leave the wealth at 1.
    """
    x = np.asarray(d, dtype=np.float64) - centre
    steps = np.arange(1, x.shape[-1] + 1)
    # Running root of the sum of squares, without overflow.
    rms = np.hypot.accumulate(np.abs(x), axis=-1) / np.sqrt(steps)
    scaled = np.divide(x, rms, out=np.zeros_like(x), where=rms > 0.0)
    bets = BETS.reshape(-1, *([1] * x.ndim))
    paths = []
    for sign in (2.0, -2.0):
        # 1 + tanh(y) = 2 / (1 + exp(-2y)): in this form the log of a losing bet keeps its digits.
        logs = np.cumsum(math.log(2.0) + sp.log_expit(sign * bets * scaled), axis=-1)
        # Log of the mean of exp(logs) over bets, without overflow.
        peak = logs.max(axis=0)
        mixed = np.log(np.exp(logs - peak).sum(axis=0)) + peak - math.log(BETS.size)
        paths.append(np.asarray(mixed, dtype=np.float64))
    return paths[0], paths[1]


def betting_log_e(low: float, high: float, cap: float = 0.5) -> LogE:
    """The betting test for values known to lie in [low, high] (binary differences: -1 to 1); no symmetry needed.

    Valid for any law on the range whose conditional mean is the centre tested. Stakes are at most `cap` of
    what keeps the wealth positive (Waudby-Smith and Ramdas, 'Estimating means of bounded random variables
    by betting', JRSS B 2024).
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"betting needs a finite range with low < high, got [{low}, {high}]")

    def paths(values: Array, centre: float) -> tuple[Array, Array]:
        x = (np.asarray(values, dtype=np.float64) - low) / (high - low)
        if not ((x >= 0.0) & (x <= 1.0)).all():
            raise ValueError(f"values outside the declared range [{low}, {high}]")
        m = (centre - low) / (high - low)
        if not 0.0 < m < 1.0:
            # A centre beyond the range is impossible; one at its end is never bet against.
            never, sure = np.zeros_like(x), np.full_like(x, math.inf)
            return (sure if m < 0.0 else never), (sure if m > 1.0 else never)
        stake_up, stake_down = _stakes(x, m, cap)
        return np.cumsum(np.log1p(stake_up * (x - m)), axis=-1), np.cumsum(np.log1p(-stake_down * (x - m)), axis=-1)

    return paths


def _stakes(x: Array, m: float, cap: float) -> tuple[Array, Array]:
    """Stakes on values x in [0, 1] against a mean of m, from the mean and variance of what came before.

    (mean - m) / (variance + (mean - m)^2), approximately growth-rate optimal ('aGRAPA' of Waudby-Smith and
    Ramdas). One pseudo-value of 1/2 starts mean and variance.
    """
    count = np.arange(1, x.shape[-1] + 1)
    means = (0.5 + np.cumsum(x, axis=-1)) / (count + 1)
    variances = (0.25 + np.cumsum((x - means) ** 2, axis=-1)) / (count + 1)
    # Shifted by one: a stake must not depend on the value it is bet on.
    first = np.full_like(x[..., :1], 0.5)
    past_mean = np.concatenate((first, means[..., :-1]), axis=-1)
    past_variance = np.concatenate((0.5 * first, variances[..., :-1]), axis=-1)
    lean = (past_mean - m) / (past_variance + (past_mean - m) ** 2)
    return np.clip(lean, 0.0, cap / m), np.clip(-lean, 0.0, cap / (1.0 - m))


def confidence_sequence(
    d: ArrayLike, alpha: float = 0.05, comparisons: int = 1, log_e: LogE = symmetric_log_e
) -> Interval:
    """All centres that neither e-process has rejected at 2m/alpha at any pair so far: valid at every look at once.

    Invariant: excludes 0 exactly when the sequential test has decided better or worse. Where the kept set
    has gaps the hull is returned.
    """
    x = vector(d, "d")
    level = 1.0 - probability(alpha, "alpha") / comparisons
    bar = math.log(2.0 * comparisons / alpha)
    scale = sd(x) if x.size > 1 and sd(x) > 0.0 else max(float(np.abs(x).max()), 1.0)
    centre = float(np.median(x))

    def outermost_kept(side: int, step: float) -> float:
        """The kept point furthest from the centre towards `step`; infinite if the furthest tried is kept."""
        # Dense near the centre, and some 2e8 standard deviations far out.
        reach = centre + step * np.sinh(np.linspace(0.0, 20.0, 161))
        if log_e is symmetric_log_e:  # all centres at once
            kept = np.flatnonzero(symmetric_log_e(x - reach[:, None])[side].max(axis=-1) < bar)
        else:
            kept = np.flatnonzero([not rejects(side, float(c)) for c in reach])
        if not kept.size:
            return centre
        last = int(kept[-1])
        if last == reach.size - 1:
            return math.copysign(math.inf, step)
        return bisect(lambda c: not rejects(side, c), float(reach[last]), float(reach[last + 1]))

    def rejects(side: int, c: float) -> bool:
        return float(log_e(x, c)[side].max()) >= bar

    low, high = outermost_kept(0, -scale), outermost_kept(1, scale)
    interval = Interval(low, high, level, math.isinf(low), math.isinf(high))
    return interval.agreeing(0.0, rejects(0, 0.0), rejects(1, 0.0))


def shrunken_mean(d: ArrayLike, bar: float) -> float:
    """An estimate with less bias than the mean of differences d, after a test that stops at e >= bar has stopped.

    The mean is too far from 0, because the test stops where it is far. Multiplied by 1 - 3 (1 - n0/n) / t^2, where n0
    pairs are the fewest that can stop it: a stop that came as early as possible selects little. Measured for
    normal differences (docs/sequential.md): the bias is about 0.02 sd where that of the mean is up to 0.11.
    """
    x = vector(d, "d")
    if x.size < 2 or sd(x) == 0.0:
        return float(x.mean())
    fewest = int(_first(symmetric_log_e(np.ones(x.size))[0], math.log(bar)))
    t_squared = x.size * float(x.mean()) ** 2 / sd(x) ** 2
    share = 3.0 * max(0.0, 1.0 - fewest / x.size) / t_squared if t_squared > 0.0 else 1.0
    return float(x.mean()) * max(0.0, 1.0 - share)


@dataclass(frozen=True, slots=True)
class SequentialRule:
    """When to stop: at 2m/alpha for better or worse, m/alpha on both margins for equivalent, at N_max undecided.

    With bets on bounded values each margin may be passed at its own time. The symmetric e-process needs 30 pairs and
    both current values above the bar: at the margin skewed differences are then called equivalent in 6.6 % or less.
    `planned` is N_max in pairs; `comparisons` is m. With `log_e = betting_log_e(low, high)` the same rule
    serves bounded and binary differences.
    """

    planned: int
    alpha: float = 0.05
    comparisons: int = 1
    margin: float | None = None
    log_e: LogE = symmetric_log_e

    def __post_init__(self) -> None:
        probability(self.alpha, "alpha")
        if self.planned < LEAST_PLANNED:
            raise ValueError(f"a sequential run needs at least {LEAST_PLANNED} planned pairs, got {self.planned}")
        if self.margin is not None and not self.margin > 0.0:
            raise ValueError(f"margin must be positive, got {self.margin}")

    def look(self, d: ArrayLike) -> Stop:
        """What the pairs so far, in plan order, shape (n,), say."""
        x = vector(d, "d")
        stops, words = self.stops(x[None, :])
        if stops[0] <= min(x.size, self.planned):
            return _WORDS[int(words[0])]
        return "undecided" if x.size >= self.planned or self._hopeless(x) else "continue"

    def stops(self, d: ArrayLike) -> tuple[Integers, Integers]:
        """Where replicates d of shape (R, n) stop: pairs at the stop, and the verdict, shape (R,) each.

        The stop is n + 1 where there is none. Verdicts: 0 none, 1 better, 2 worse, 3 equivalent.
        """
        x = np.asarray(d, dtype=np.float64)[:, : self.planned]
        bar = math.log(2.0 * self.comparisons / self.alpha)
        up, down = self.log_e(x, 0.0)
        firsts = [_first(up, bar), _first(down, bar)]
        if self.margin is not None:
            each = math.log(self.comparisons / self.alpha)
            above, below = self.log_e(x, -self.margin)[0], self.log_e(x, self.margin)[1]
            if self.log_e is symmetric_log_e:
                both = np.minimum(above, below)
                both[..., : LEAST_EQUIVALENT - 1] = -math.inf
                firsts.append(_first(both, each))
            else:
                firsts.append(np.maximum(_first(above, each), _first(below, each)))
        table = np.stack(firsts)
        stop = table.min(axis=0)
        # Of verdicts reached at the same pair the margin's comes first, as in the fixed-size decision.
        word = table.shape[0] - table[::-1].argmin(axis=0)
        never = stop > x.shape[-1]
        return np.where(never, np.asarray(d).shape[-1] + 1, stop), np.where(never, 0, word)

    def _hopeless(self, x: Array) -> bool:
        """Whether no verdict can be reached by N_max, even if every remaining pair doubled the wealth.

        Stopping then costs nothing.
        """
        if self.log_e is not symmetric_log_e:
            return False  # a bet on a bounded value may more than double
        gain = (self.planned - x.size) * math.log(2.0)
        up, down = self.log_e(x, 0.0)
        reachable = max(float(up[-1]), float(down[-1])) + gain >= math.log(2.0 * self.comparisons / self.alpha)
        if self.margin is not None and not reachable and self.planned >= LEAST_EQUIVALENT:
            each = math.log(self.comparisons / self.alpha)
            above, below = self.log_e(x, -self.margin)[0], self.log_e(x, self.margin)[1]
            reachable = all(float(path[-1]) + gain >= each for path in (above, below))
        return not reachable

    def chance_to_decide(self, d: ArrayLike, replicates: int = 500, seed: Seed = 0) -> float:
        """Share of futures, resampled from the pairs so far, that reach a verdict by N_max: the futility figure.

        Stopping for a small chance never adds false verdicts; it can only miss a true one.
        """
        x = vector(d, "d")
        more = max(0, self.planned - x.size)
        future = generator(seed).choice(x, (replicates, more))
        # The past is fixed, so an e-process continues where it is.
        paths = np.concatenate((np.broadcast_to(x, (replicates, x.size)), future), axis=1)
        return float((self.stops(paths)[1] > 0).mean())


@dataclass(frozen=True, slots=True)
class Race:
    """Which of k arms have left, and when: shape (k,) each."""

    left_at: Integers
    """The pair at which an arm left; 0 while it is in."""
    left_to: Integers
    """The arm that beat it; -1 while it is in."""
    evidence: Array
    """log e of the arm that beat it, or of the one nearest to that, at the arm's last pair; shape (k,)."""
    pairs: int
    """How many pairs all arms that were still in have finished."""

    @property
    def survivors(self) -> list[int]:
        return [int(arm) for arm in np.flatnonzero(self.left_at == 0)]


def race(bad: Array, good: Array, known: Sequence[int], alpha: float = 0.05, log_e: LogE = symmetric_log_e) -> Race:
    """Follow k arms pair by pair; an arm leaves when another one that is still in has beaten it.

    `bad` and `good`, shape (k, n): what each arm scored on each pair, larger is better, with lost runs at either end;
    `known` says how many leading pairs of an arm have ended. An arm leaves at e >= 2m/alpha, m = k - 1, over all common
    pairs from the first. The best arm leaves with probability alpha/2 at most, since m others can beat it, so a last
    arm is the wrong one in at most alpha of all races, also where two are equally good (simulated: 3.6 % of 5).
    """
    k = bad.shape[0]
    bar = math.log(2.0 * (k - 1) / probability(alpha, "alpha"))
    paths = log_e(bad[:, None, :] - good[None, :, :], 0.0)[0]  # of row against column
    left_at, left_to, score = np.zeros(k, dtype=np.int64), np.full(k, -1), np.zeros(k)
    alive = list(range(k))
    pairs = 0
    while len(alive) > 1 and all(known[arm] > pairs for arm in alive):
        pairs += 1
        current = paths[np.ix_(alive, alive)][..., pairs - 1].copy()
        np.fill_diagonal(current, -math.inf)
        strongest = np.nan_to_num(current, nan=-math.inf).argmax(axis=0)
        highest = np.nan_to_num(current, nan=-math.inf).max(axis=0)
        leaving = np.flatnonzero(highest >= bar)
        score[alive] = highest
        if leaving.size < len(alive):  # everybody beaten by somebody would leave nobody
            for place in leaving:
                left_at[alive[place]], left_to[alive[place]] = pairs, alive[int(strongest[place])]
            alive = [arm for place, arm in enumerate(alive) if place not in leaving]
    return Race(left_at, left_to, score, pairs)


def _first(log_e: Array, bar: float) -> Integers:
    """1-based index of the first value at or above the bar along the last axis; n + 1 where there is none."""
    hit = log_e >= bar
    return np.asarray(np.where(hit.any(axis=-1), hit.argmax(axis=-1) + 1, log_e.shape[-1] + 1), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Paths:
    """log e after each pair: for better, for worse and, with a margin, for 'above -margin' and 'below +margin'."""

    better: Array
    worse: Array
    above: Array | None = None
    below: Array | None = None


def evidence(low: Array, high: Array, rule: SequentialRule) -> tuple[Paths, Interval, float]:
    """Return paths, the hull of the confidence sequences and the highest log e of differences in the order of planning.

    Lost runs are put at both ends of what they could have been (`low`, `high`), and evidence counts at the worse of the two.
    """
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        gap = np.full(low.size, np.nan)
        return Paths(gap, gap), unbounded(1.0 - rule.alpha / rule.comparisons), 0.0
    ends = [low] if np.array_equal(low, high) else [low, high]
    scores = [rule.log_e(d, 0.0) for d in ends]
    better, worse = (np.min([score[side] for score in scores], axis=0) for side in (0, 1))
    above = below = None
    if rule.margin is not None:
        above = np.min([rule.log_e(d, -rule.margin)[0] for d in ends], axis=0)
        below = np.min([rule.log_e(d, rule.margin)[1] for d in ends], axis=0)
    sequences = [confidence_sequence(d, rule.alpha, rule.comparisons, rule.log_e) for d in ends]
    hull = sequences[0].hull(sequences[-1])
    return Paths(better, worse, above, below), hull, float(max(better.max(), worse.max()))
