"""Scores of one arm on many tasks: IQM, mean, optimality gap, profile, chance to beat another arm, pass@k.

Every task has the same weight, whatever its number of runs. Runs are resampled inside their task, so
intervals speak of these tasks only (the stratified bootstrap of Agarwal et al., 'Deep RL at the Edge of the
Statistical Precipice', NeurIPS 2021, whose section 4 defines all aggregates but pass@k). Their percentile intervals
are too short for few runs; ours are widened around the estimate by what a mean of these runs would lack (`_widening`).
A resample is a vector of counts over fixed, sorted values: no resample is ever sorted, and IQM, gap and profile come
from the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import scipy.special as sp
from numpy.typing import ArrayLike, NDArray

from bakeoff.stats.bootstrap import BootstrapInterval
from bakeoff.stats.evidence import Interval
from bakeoff.stats.numerics import Array, Seed, generator, normal_quantile, t_quantile, tail, vector
from bakeoff.stats.resample import clip_weights, draw_counts, trimmed_range

Strata = Sequence[ArrayLike]
"""For each task the scores of its runs, shape (runs of the task,), larger is better."""
Counts = NDArray[np.integer]
"""How often each run was drawn, shape (resamples, runs of all tasks)."""
COUNT_CHUNK = 2**17
"""Counts worked on at once: mostly bytes, so more of them fit into the cache than doubles would."""
PAIR_CHUNK = 2**19
"""Counts of each of two arms worked on at once."""


FOR_SKEW = 2.6
"""Over the number of runs times that of tasks: by how much intervals are wider because few runs do not show skew."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Share of runs above each threshold, with a pointwise band. All tuples have one length."""

    thresholds: tuple[float, ...]
    share: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    level: float


@dataclass(frozen=True, slots=True)
class Improvement:
    """Chance that a run of b beats a run of a on the same task, averaged over tasks (ties half), with an interval."""

    probability: float
    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True)
class Summary:
    """One arm on its tasks; everything comes from the same resamples."""

    mean: BootstrapInterval
    """Mean over tasks of the mean over runs."""
    iqm: BootstrapInterval
    """Mean of the middle half of all scores: of all runs, in whole ranks, where tasks have equal numbers of runs, and
    otherwise weighted so that tasks count the same."""
    optimality_gap: BootstrapInterval | None
    """How far scores fall short of the target on average; scores above it count as the target. Smaller is better."""
    profile: Profile


def summary(
    strata: Strata,
    thresholds: ArrayLike = (),
    target: float | None = None,
    *,
    resamples: int = 2_000,
    level: float = 0.95,
    seed: Seed = 0,
) -> Summary:
    """Summarise one arm: mean, IQM, profile at `thresholds` and, with a `target`, the optimality gap."""
    groups = _groups(strata)
    short = groups if target is None else [np.maximum(0.0, target - group) for group in groups]
    weights, taus = _weights(groups), np.asarray(thresholds, dtype=np.float64)
    sums = np.stack([np.concatenate(groups) * weights, np.concatenate(short) * weights], axis=1)
    values = np.concatenate(groups)
    order = np.argsort(values, kind="stable")
    # With equal numbers every run has the same weight: whole ranks are cut, and integer counts suffice.
    equal = len({g.size for g in groups}) == 1
    low, high = trimmed_range(values.size) if equal else (0.25, 0.75)
    whole = values.size if equal else 1.0
    gaps, first = clip_weights(values[order], low, high)
    # Thresholds between the same two values have the same share.
    places, place_of = np.unique(np.searchsorted(values[order], taus, side="right"), return_inverse=True)

    def statistics(counts: Counts) -> tuple[Array, Array, Array]:
        """Sums, IQM and shares above each place, for each row of counts."""
        # Cumulative counts over the sorted values, clipped to the middle half: a trimmed mean without a sort.
        ranked = counts.take(order, axis=1)
        upper = np.cumsum(ranked, axis=1, dtype=np.int32) if equal else np.cumsum(ranked * weights[order], axis=1)
        middle = np.clip(upper, low, high).astype(np.float64) @ gaps + first
        below = np.where(places > 0, upper[:, np.maximum(places - 1, 0)], 0)
        return counts @ sums, middle, np.where(places < values.size, 1.0 - below / whole, 0.0)

    drawn = [statistics(counts) for counts in _counts([g.size for g in groups], resamples, seed)]
    drawn_sums, drawn_middle, drawn_shares = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    sum_, middle, share = (row[0] for row in statistics(np.ones((1, values.size), dtype=np.uint8)))
    iqm = _interval(groups, float(middle), drawn_middle, level)
    if ends := _rate_ends(groups, level):
        # The middle half of zeros and ones is a function of their share, and so are the ends of its interval.
        iqm = _hull(iqm, [min(1.0, max(0.0, 2.0 * end - 0.5)) for end in ends])
    mean = _mean(groups, float(sum_[0]), drawn_sums[:, 0], level)
    gap = None if target is None else _mean(short, float(sum_[1]), drawn_sums[:, 1], level)
    widened = _widened(share, np.quantile(drawn_shares, [tail(level), 1.0 - tail(level)], axis=0), groups, level)
    band = np.clip(widened, 0.0, 1.0) if widened is not None else _shares_ends(share, groups, level)
    columns = [tuple(map(float, column)) for column in (taus, *(part[place_of] for part in (share, *band)))]
    return Summary(mean, iqm, gap, Profile(columns[0], columns[1], columns[2], columns[3], level))


def improvement(a: Strata, b: Strata, resamples: int = 2_000, level: float = 0.95, seed: Seed = 0) -> Improvement:
    """Chance that a run of b beats a run of a on the same task, averaged over tasks (ties half)."""
    xs, ys = _groups(a), _groups(b)
    if len(xs) != len(ys):
        raise ValueError(f"both arms need the same tasks, got {len(xs)} and {len(ys)}")
    rng = generator(seed)
    total, share = np.zeros(resamples), 0.0
    for x, y in zip(xs, ys, strict=True):
        order = np.argsort(x, kind="stable")
        below, upto = (np.searchsorted(x[order], y, side=side) for side in ("left", "right"))
        pairs = 2.0 * x.size * y.size * len(xs)
        share += float((below + upto).sum()) / pairs
        rows = max(1, PAIR_CHUNK // max(x.size, y.size))
        for start in range(0, resamples, rows):
            count = min(rows, resamples - start)
            of_b, of_a = draw_counts(y.size, count, rng), draw_counts(x.size, count, rng)
            # upper[r, i]: how many of the i smallest runs of a were drawn, with repeats.
            upper = np.zeros((count, x.size + 1), dtype=np.int32)
            np.cumsum(of_a.take(order, axis=1), axis=1, out=upper[:, 1:])
            beaten = upper.take(below, axis=1) + upper.take(upto, axis=1)
            total[start : start + count] += np.einsum("rj,rj->r", of_b, beaten, dtype=np.float64) / pairs
    ends = _widened(share, np.quantile(total, [tail(level), 1.0 - tail(level)]), [*xs, *ys], level)
    low, high = np.clip(ends, 0.0, 1.0) if ends is not None else _shares_ends(np.array([share]), xs, level)[:, 0]
    return Improvement(share, float(low), float(high), level)


def _groups(strata: Strata) -> list[Array]:
    if not strata:
        raise ValueError("at least one task is needed")
    return [vector(values, f"task {i}") for i, values in enumerate(strata)]


def _weights(groups: Sequence[Array]) -> Array:
    """The weight of each run, shape (runs of all tasks,): the runs of a task add up to 1 / tasks."""
    return np.concatenate([np.full(g.size, 1.0 / (g.size * len(groups))) for g in groups])


def _widening(groups: Sequence[Array], level: float) -> float:
    """By how much a percentile interval of the mean of these runs would have to be wider to be a t interval.

    Resamples of n runs have a variance that is too small by (n-1)/n, and their quantiles are those of a normal
    distribution where a t with few degrees of freedom (Satterthwaite's over tasks) is needed: Hesterberg, 'What Teachers
    Should Know About the Bootstrap', American Statistician 2015, section 3.3. 1 where nothing varies. A task with a single
    run is taken to vary as the others do on average; where every task has a single run, the factor is infinite.

    A few runs of one task do not show skew: t intervals of 3 to 10 exponential values cover 88 to 90 %, and 92 to 93 %
    with the last factor, which is 1.04 or less from 5 tasks with 3 runs on.
    """
    several = [g for g in groups if g.size > 1]
    if not several:
        return math.inf
    squares = np.array([float(g.var(ddof=1)) / g.size for g in several])
    if not squares.any():
        return 1.0
    variances = squares * [g.size for g in several]
    single = (len(groups) - len(several)) * float(variances.mean())
    unseen = math.sqrt(1.0 + single / float(squares.sum()))
    squares /= squares.max()
    sizes = np.array([g.size for g in several], dtype=np.float64)
    df = float(squares.sum() ** 2 / (squares**2 / (sizes - 1.0)).sum())
    narrow = float((squares * (sizes - 1.0) / sizes).sum() / squares.sum())
    skew = 1.0 + FOR_SKEW / (float(sizes.sum()) * len(several))
    return unseen * skew * t_quantile(df, tail(level)) / normal_quantile(tail(level)) / math.sqrt(narrow)


def _widened(estimate: Array | float, ends: Array, groups: Sequence[Array], level: float) -> Array | None:
    """Return the ends of a percentile interval moved away from the estimate; None where every task has a single run."""
    factor = _widening(groups, level)
    return None if math.isinf(factor) else np.asarray(estimate + (ends - estimate) * factor)


def _shares_ends(shares: Array, groups: Sequence[Array], level: float) -> Array:
    """Return the ends of Wilson's intervals for shares of single runs, shape (2, shares): each task is one trial."""
    quantile = -normal_quantile(tail(level))
    return np.array([_wilson(share, len(groups), quantile) for share in shares.tolist()]).reshape(-1, 2).T


def _rate_ends(groups: Sequence[Array], level: float) -> list[float] | None:
    """Return the ends of Wilson's interval for the mean of outcomes of 0 and 1, all tasks together; None for other scores.

    A bootstrap of a few outcomes covers 82 %: where all are equal, its interval is a point.
    """
    if not all(np.isin(g, (0.0, 1.0)).all() for g in groups):
        return None
    weights = _weights(groups)
    share, n = float(weights @ np.concatenate(groups)), 1.0 / float((weights**2).sum())
    low, high = _wilson(share, n, -normal_quantile(tail(level)))
    return [low, high]


def _hull(found: BootstrapInterval, ends: Sequence[float]) -> BootstrapInterval:
    if math.isinf(found.low):  # single runs: Wilson's interval alone, with each of them as a trial
        return replace(found, low=ends[0], high=ends[1])
    return replace(found, low=min(found.low, ends[0]), high=max(found.high, ends[1]))


def _wilson(rate: float, n: float, quantile: float) -> tuple[float, float]:
    """Return Wilson's interval (JASA 1927) of a rate in n trials."""
    weight = quantile * quantile / n
    centre = (rate + weight / 2.0) / (1.0 + weight)
    half = quantile / (1.0 + weight) * math.sqrt(rate * (1.0 - rate) / n + weight / (4.0 * n))
    return max(0.0, min(rate, centre - half)), min(1.0, max(rate, centre + half))


def _counts(sizes: Sequence[int], resamples: int, seed: Seed) -> Iterator[Counts]:
    """Blocks of rows; each row is a resample: how often each run was drawn inside its task."""
    rng = generator(seed)
    rows = max(1, COUNT_CHUNK // sum(sizes))
    # Neighbouring tasks with the same number of runs are drawn in one call.
    alike = [(n, len(list(tasks))) for n, tasks in groupby(sizes)]
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        yield np.concatenate([draw_counts(n, count * m, rng).reshape(count, -1) for n, m in alike], axis=1)


def _interval(groups: Sequence[Array], estimate: float, drawn: Array, level: float) -> BootstrapInterval:
    """Percentile interval of a statistic whose values in resamples are `drawn`, widened around the estimate.

    It is infinite where every task has a single run: nothing shows how much runs of a task differ.
    """
    ends = _widened(estimate, np.quantile(drawn, [tail(level), 1.0 - tail(level)]), groups, level)
    low, high = (-math.inf, math.inf) if ends is None else map(float, ends)
    if ends is not None and all(np.isin(g, (0.0, 1.0)).all() for g in groups):  # rates stay rates
        low, high = max(0.0, low), min(1.0, high)
    return BootstrapInterval(estimate, low, high, level, "percentile", drawn.size, float(drawn.std(ddof=1)))


def _mean(groups: Sequence[Array], estimate: float, drawn: Array, level: float) -> BootstrapInterval:
    found = _interval(groups, estimate, drawn, level)
    return _hull(found, ends) if (ends := _rate_ends(groups, level)) else found


def pass_at_k(successes: ArrayLike, attempts: ArrayLike, k: int) -> Array:
    """Unbiased chance, for each task, that at least one of k attempts succeeds: 1 - C(n-c, k) / C(n, k).

    Needs n >= k. `successes` (c) and `attempts` (n) have one entry for each task (Chen et al., 'Evaluating
    Large Language Models Trained on Code' 2021, equation 1).
    """
    n = np.asarray(attempts, dtype=np.float64)
    return np.asarray(1.0 - pass_hat_k(n - np.asarray(successes, dtype=np.float64), n, k), dtype=np.float64)


def pass_hat_k(successes: ArrayLike, attempts: ArrayLike, k: int) -> Array:
    """Unbiased chance, for each task, that all of k attempts succeed (pass^k): C(c, k) / C(n, k).

    Needs n >= k. As in tau-bench (Yao et al. 2024). The quotient is a product of k ratios: no large
    factorials.
    """
    c, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(attempts, dtype=np.float64))
    if k < 1 or not ((n >= k) & (c >= 0) & (c <= n) & (c == np.floor(c)) & (n == np.floor(n))).all():
        raise ValueError(f"need whole numbers 0 <= successes <= attempts and attempts >= k = {k} >= 1 on every task")
    out = np.ones(np.shape(c))
    for i in range(k):
        out = out * np.maximum(c - i, 0.0) / (n - i)
    return np.asarray(out, dtype=np.float64)


def chance_interval(values: ArrayLike, level: float = 0.95) -> Interval | None:
    """Interval for the mean of one chance (0 to 1) for each task; population: tasks like these. None for one task.

    The hull of Wilson's and Clopper and Pearson's, with every task as one trial and, in Wilson's, the quantile of a t. No
    values between 0 and 1 with this mean vary more than successes and failures do, so it covers too much where tasks are
    alike and enough where a few tasks carry the mean: a t interval over pass^k covers 20 to 90 % there, and Wilson's alone
    84 % where one of 12 tasks carries it.
    """
    x = vector(values, "values")
    n = float(x.size)
    if n < 2:
        return None
    low, high = _wilson(float(x.mean()), n, -t_quantile(n - 1.0, tail(level)))
    total = float(x.sum())
    if total > 0.0:
        low = min(low, float(sp.betaincinv(total, n - total + 1.0, tail(level))))
    if total < n:
        high = max(high, float(sp.betaincinv(total + 1.0, n - total, 1.0 - tail(level))))
    return Interval(low, high, level)
