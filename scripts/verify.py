"""Recompute the decisions of a certificate from its rows, with the standard library and without bakeoff.

    python verify.py v.json     0: everything agrees   1: something differs (named)   2: not a readable certificate
                                3: nothing differs, but a part is of a kind that this file does not know

docs/certificates.md defines the file and each number; [n] is an item of its list. Values are turned so that larger is
better, and effects are candidate (b) - control (a). `up` is the p of 'centre <= x', `down` that of 'centre >= x'.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import combinations, product
from pathlib import Path
from statistics import NormalDist, fmean, median, variance
from typing import Any

DRAWS, RESAMPLES, TIE, ROUNDING, TOLERANCE, TINY = 99_999, 9_999, 1e-9, 1 + 1e-12, 1e-6, sys.float_info.min
WIDER = {3: 1.9, 4: 1.7, 5: 1.6, 6: 1.5, 7: 1.45}
FILLINGS = ((0, 1), (1, 0), (0, 0), (1, 1))  # missing runs of candidate and control at the bad (0) or good (1) end
Pair = tuple[float, float]
Table = dict[tuple[str, Any], float]  # (task, seed) -> value


class Unreadable(Exception):
    """The file is not a certificate of this version."""


class Unknown(Exception):
    """The certificate has something that this file cannot recompute."""


# -- draws and distributions


def words() -> Iterator[int]:
    """The outputs of PCG64 from the start that certificates use [25]."""
    state = 35399562948360463058890781895381311971
    while True:
        state = (state * 0x2360ED051FC65DA44385DF649FCCF645 + 87136372517582989555478159403783844777) & (2**128 - 1)
        mixed, turn = (state >> 64 ^ state) & (2**64 - 1), state >> 122
        yield (mixed >> turn | mixed << (64 - turn)) & (2**64 - 1)


@lru_cache(16)
def resamples(*sizes: int) -> list[list[list[int]]]:
    """The units of each resample of samples of these sizes, one sample after the other [27]."""
    source, drawn = words(), []
    for n in sizes:
        rows = ([next(source) for _ in range((n + 1) // 2)] for _ in range(RESAMPLES))
        halves = ([half for word in row for half in (word & 0xFFFFFFFF, word >> 32)][:n] for row in rows)
        drawn.append([[half * n >> 32 for half in row] for row in halves])
    return drawn


@lru_cache(8)
def random_flips(n: int) -> list[list[int]]:
    """For every 8 of n units the subset of each draw, as bits [25]."""
    source, drawn = words(), []
    for size in (min(8, n - start) for start in range(0, n, 8)):
        pieces = [piece for _ in range(25_000) for word in (next(source),) for piece in unpacked(word)]
        drawn.append([piece >> 16 - size for piece in pieces[:DRAWS]])
    return drawn


def unpacked(word: int) -> tuple[int, int, int, int]:
    return word & 0xFFFF, word >> 16 & 0xFFFF, word >> 32 & 0xFFFF, word >> 48


@lru_cache(4)
def random_subsets(n: int, size: int) -> list[list[int]]:
    """Units of each random split [26]."""
    source, mask = words(), (1 << max(1, (n - 1).bit_length())) - 1
    keys = (sorted(next(source) & ~mask | i for i in range(n)) for _ in range(DRAWS))
    return [[key & mask for key in each[:size]] for each in keys]


def beta_tail(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), by Lentz's continued fraction."""
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_tail(b, a, 1 - x)
    if x <= 0:
        return 0.0
    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for i in range(1, 100_000):
        j = a + 2 * i
        for step in (i * (b - i) * x / ((j - 1) * j), -(a + i) * (a + b + i) * x / (j * (j + 1))):
            d, c = 1 / (1 + step * d), 1 + step / c
            value *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return math.exp(logs) * value / a


@cache
def t_tail(t: float, df: float) -> float:
    """P(T > t) for Student's t."""
    return 1 - t_tail(-t, df) if t < 0 else max(TINY, beta_tail(df / 2, 0.5, df / (df + t * t)) / 2)


@cache
def t_quantile(tail: float, df: float) -> float:
    """The t with P(T > t) = tail, for a tail below 1/2; infinite where it is above 1e150."""
    high = 1.0
    while t_tail(high, df) > tail:
        high *= 2
        if high > 1e150:
            return math.inf
    return zero(lambda t: t_tail(t, df) - tail, 0.0, high)


def zero(f: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a decreasing function between low and high; f is not called at the ends."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    return middle


def satterthwaite(parts: Sequence[Pair]) -> float:
    """Degrees of freedom of a sum of (variance, degrees of freedom)."""
    largest = max(v for v, _ in parts)
    return sum(v / largest for v, _ in parts) ** 2 / sum((v / largest) ** 2 / df for v, df in parts if v > 0)


def is_constant(values: Iterable[float]) -> bool:
    values = list(values)
    return max(values) - min(values) <= 8 * math.ulp(max(map(abs, values)))


# -- tests


@dataclass
class Evidence:
    """What one test says about the centre."""

    name: str
    n: int
    effect: float
    tails: Callable[[float], Pair]  # x -> (up, down)
    raw: Callable[[float], Pair]  # a -> interval of level 1 - a, before it is made to agree with the tails
    monotone: bool = False
    df: float = math.inf
    least: int = 3
    inner: Evidence | None = None  # of a widened one

    def about(self, x: float) -> Pair:
        """The tails at x, monotone against those at 0 [22]."""
        (up, down), (up0, down0) = self.tails(x), self.tails(0.0)
        return (min(up, up0), max(down, down0)) if x < 0 else (max(up, up0), min(down, down0))

    def interval(self, a: float, margin: float | None) -> Pair:
        low, high = self.raw(a)
        for x in (-margin, margin, 0.0) if margin else (0.0,):
            up, down = self.about(x)
            low = max(low, x) if up <= a / 2 * ROUNDING else min(low, x)
            high = max(high, low)
            high = min(high, x) if down <= a / 2 * ROUNDING else max(high, x)
            low = min(low, high)
        return low, high


def counted(
    name: str, n: int, effect: float, critical: list[float], identities: int, tie: float, weight: float
) -> Evidence:
    """A test that counts rearrangements, each by the x above which it exceeds what was observed [12]."""
    critical, total = sorted(critical), len(critical) + identities

    def tails(x: float) -> Pair:
        below, up_to = bisect_left(critical, x - tie), bisect_right(critical, x + tie)
        ties = weight * (up_to - below) + identities
        return (below + ties) / total, (len(critical) - up_to + ties) / total

    def raw(a: float) -> Pair:
        j = min(math.floor(a / 2 * total * ROUNDING - identities), (len(critical) - 1) // 2)
        return (critical[j], critical[-1 - j]) if j >= 0 else (-math.inf, math.inf)

    return Evidence(name, n, effect, tails, raw, monotone=True)


def subset_sums(values: Sequence[float]) -> list[float]:
    """Sums of all subsets; the first is the empty one."""
    sums = [0.0]
    for v in values:
        sums += [s + v for s in sums]
    return sums


def sign_flip(d: Sequence[float], weights: Sequence[float] | None = None, strict: bool = False) -> Evidence:
    """P1 over the (weighted) means of all non-empty subsets, or of random ones above 20 units [12] [25]."""
    w = weights or [1.0] * len(d)
    units, mirror = sorted(zip(d, w, strict=True)), sorted((-v, k) for v, k in zip(d, w, strict=True))
    sign, units = (-1, mirror) if mirror > units else (1, units)
    blocks = [units] if len(d) <= 20 else [units[i : i + 8] for i in range(0, len(d), 8)]
    tables = [(subset_sums([v * k for v, k in block]), subset_sums([k for _, k in block])) for block in blocks]
    if len(d) <= 20:
        pairs = list(zip(*tables[0], strict=True))
    else:
        pairs = [(0.0, 0.0)] * DRAWS
        for (sums, sizes), picks in zip(tables, random_flips(len(d)), strict=True):
            pairs = [(s + sums[i], k + sizes[i]) for (s, k), i in zip(pairs, picks, strict=True)]
        pairs.append((0.0, 0.0))
    critical = [sign * s / k for s, k in pairs if k > 0]
    largest, smallest = max(map(abs, d)), min(map(abs, d))
    full = strict or (largest > 0 and largest - smallest <= TIE * largest)
    effect, name = sum(v * k for v, k in units) * sign / sum(w), "sign-flip (ties in full)" if strict else "sign-flip"
    return counted(name, len(d), effect, critical, len(pairs) - len(critical), TIE * largest, 1.0 if full else 0.5)


def student(name: str, n: int, effect: float, v: float, df: float, least: int = 3) -> Evidence:
    se = math.sqrt(v)

    def raw(a: float) -> Pair:
        return effect - t_quantile(a / 2, df) * se, effect + t_quantile(a / 2, df) * se

    return Evidence(
        name,
        n,
        effect,
        lambda x: (t_tail((effect - x) / se, df), t_tail((x - effect) / se, df)),
        raw,
        df=df,
        least=least,
    )


def flips_suffice(n: int, level: float) -> bool:
    return (2.0**n if n <= 20 else DRAWS + 1) / 2 * level >= 3


def paired(d: Sequence[float], level: float, strict: bool) -> Evidence:
    """P1, or P2 for few units; their choice never depends on the values [11]."""
    if strict or is_constant(d) or flips_suffice(len(d), level):
        return sign_flip(d, strict=strict)
    return student("paired t", len(d), fmean(d), variance(d) / len(d), len(d) - 1)


def b_goes_first(a: Sequence[float], b: Sequence[float]) -> bool:
    """The order of two arms that depends on neither names nor rows [26]."""
    return len(b) < len(a) if len(a) != len(b) else sorted(b) > sorted(a)


def permuted(a: Sequence[float], b: Sequence[float], exact: bool) -> Pair:
    """Permutation p: of the mean difference for equal sizes, else of Welch's t [14]."""
    middle, swapped = median([*a, *b]), b_goes_first(a, b)
    pooled = sorted(v - middle for v in (*a, *b))
    scale = max(map(abs, pooled)) or 1.0
    pooled, first = [v / scale for v in pooled], [(v - middle) / scale for v in (b if swapped else a)]
    n, k, whole, squares = len(first), len(pooled) - len(first), sum(pooled), sum(v * v for v in pooled)

    def statistic(part: Sequence[float]) -> float:
        s, q = sum(part), sum(v * v for v in part)
        v = max(q - s * s / n, 0.0) / (n - 1) / n + max(squares - q - (whole - s) ** 2 / k, 0.0) / (k - 1) / k
        distance = s / n - (whole - s) / k
        if v <= 1e-14:
            return 0.0 if abs(distance) <= 1e-12 else math.copysign(math.inf, distance)
        return distance / math.sqrt(v)

    if n == k and exact:
        high, low = middle_counts(pooled, n, sum(first))
        total = math.comb(n + k, n)
    else:
        function = sum if n == k else statistic
        observed = function(first)
        tie = TIE if n == k else TIE * max(1.0, abs(observed)) if math.isfinite(observed) else 0.0
        chosen = combinations(pooled, n) if exact else ([pooled[i] for i in s] for s in random_subsets(n + k, n))
        values = [function(part) for part in chosen] + [observed] * (not exact)
        high, low, total = (
            sum(v >= observed - tie for v in values),
            sum(v <= observed + tie for v in values),
            len(values),
        )
    return (high / total, low / total) if swapped else (low / total, high / total)


def middle_counts(pooled: list[float], n: int, observed: float) -> Pair:
    """How many sums of n of the values are at least, and at most, the observed one: from two halves."""
    halves: list[dict[float, list[float]]] = []
    for half in (pooled[::2], pooled[1::2]):
        sums: dict[float, list[float]] = defaultdict(list)
        for size, s in sorted(zip(subset_sums([1.0] * len(half)), subset_sums(half), strict=True)):
            sums[size].append(s)
        halves.append(sums)
    high = low = 0
    for size, values in halves[0].items():
        right = halves[1].get(n - size, [])
        low += sum(bisect_right(right, observed - s + TIE) for s in values)
        high += sum(len(right) - bisect_left(right, observed - s - TIE) for s in values)
    return high, low


def two_samples(a: list[float], b: list[float], level: float) -> Evidence:
    """U: the larger of the permutation's and Welch's p [14]."""
    n, effect, splits = min(len(a), len(b)), fmean(b) - fmean(a), math.comb(len(a) + len(b), len(a))
    exact = len(a) + len(b) <= 30 if len(a) == len(b) else splits <= 200_000
    at = cache(lambda x: permuted(a, [v - x for v in b], exact))
    if is_constant(a) and is_constant(b):
        whole = (-math.inf, math.inf)
        return Evidence(
            "permutation", n, effect, at, lambda level: whole if 2 * min(at(0.0)) > level else (effect, effect)
        )
    parts = [(variance(s) / len(s), len(s) - 1.0) for s in (a, b)]
    welch = student("Welch t", n, effect, sum(v for v, _ in parts), satterthwaite(parts))
    if splits * level / 2 < 3:
        return welch
    larger = lambda x: tuple(map(max, at(x), welch.tails(x)))  # noqa: E731
    return Evidence("permutation and Welch t", n, effect, larger, welch.raw, df=math.inf)


def exact_splits(strata: Sequence[tuple[list[float], list[float]]]) -> Evidence:
    """The permutation test with full ties, values changing arms inside their task [21]."""
    if math.prod(math.comb(len(a) + len(b), len(a)) for a, b in strata) > 200_000:
        raise Unknown("exact tests of two samples with more than 200,000 splits")
    moves, largest = [(0.0, 0.0)], 0.0
    for a, b in strata:
        middle, weight, n = median(a + b), 1 / len(a) + 1 / len(b), len(a)
        pooled = [v - middle for v in a + b]
        largest, stay = max(largest, *map(abs, pooled)), sum(pooled[n:])
        chosen = combinations(range(len(pooled)), len(b))
        parts = [(weight * (stay - sum(pooled[i] for i in s)), weight * sum(i < n for i in s)) for s in chosen]
        moves = [(s + t, v + w) for (s, v), (t, w) in product(moves, parts)]
    critical, effect = [s / w for s, w in moves if w > 0], fmean(fmean(b) - fmean(a) for a, b in strata)
    n, tie = min(sum(len(s[i]) for s in strata) for i in (0, 1)), TIE * 2.0 ** math.frexp(largest)[1]
    return counted("exact permutation", n, effect, critical, len(moves) - len(critical), tie, 1.0)


def rates(name: str, n: int, effect: float, at_zero: Pair, score: Callable[[float], float], strict: bool) -> Evidence:
    """B: a mid-p test (strict: exact) at 0, a score at every other centre [15]."""

    def tails(x: float) -> Pair:
        z = score(x) if -1 < x < 1 else math.copysign(math.inf, -x)
        up, down = at_zero if x == 0 else (math.erfc(z / math.sqrt(2)) / 2, math.erfc(-z / math.sqrt(2)) / 2)
        return max(TINY, min(1.0, up)), max(TINY, min(1.0, down))

    def raw(a: float) -> Pair:
        z, edge = NormalDist().inv_cdf(1 - a / 2), 1 - 1e-15
        low = -1.0 if score(-edge) <= z else zero(lambda x: score(x) - z, -1.0, effect)
        return low, 1.0 if score(edge) >= -z else zero(lambda x: score(x) + z, effect, 1.0)

    return Evidence(f"{name} ({'exact' if strict else 'mid-p'})", n, effect, tails, raw, monotone=True)


def standardised(distance: float, v: float) -> float:
    if abs(distance) < 1e-14:
        return 0.0
    return distance / math.sqrt(v) if v > 1e-300 else math.copysign(math.inf, distance)


def mcnemar(a: list[float], b: list[float], strict: bool) -> Evidence:
    """Pairs of outcomes: McNemar, and Tango's score."""
    wins, losses = (sum(x > y for x, y in zip(*arms, strict=True)) for arms in ((b, a), (a, b)))
    n, differ = len(a), wins + losses
    own = (1.0 if strict else 0.5) * math.comb(differ, wins)
    above = [(sum(math.comb(differ, i) for i in range(k + 1, differ + 1)) + own) / 2**differ for k in (wins, losses)]

    def score(x: float) -> float:
        linear, constant = -differ + (2 * n - wins + losses) * x, -losses * x * (1 - x)
        rate = (math.sqrt(max(linear**2 - 8 * n * constant, 0.0)) - linear) / (4 * n)
        return standardised(wins - losses - n * x, n * (2 * rate + x * (1 - x)))

    return rates("McNemar", n, (wins - losses) / n, (above[0], above[1]), score, strict)


def fisher(a: list[float], b: list[float], strict: bool) -> Evidence:
    """Two samples of outcomes: Fisher, and the score of Miettinen and Nurminen."""
    ha, hb, na, nb = round(sum(a)), round(sum(b)), len(a), len(b)
    n, hits, effect = na + nb, ha + hb, hb / nb - ha / na
    ways = {k: math.comb(nb, k) * math.comb(na, hits - k) for k in range(max(0, hits - na), min(hits, nb) + 1)}
    own = (1.0 if strict else 0.5) * ways[hb]
    up, down = (sum(w for k, w in ways.items() if side * (k - hb) > 0) + own for side in (1, -1))

    def score(x: float) -> float:  # p: where the likelihood of the rates p and p + x is flat
        poles = [(k, at) for k, at in ((ha, 0.0), (na - ha, 1.0), (hb, -x), (nb - hb, 1 - x)) if k]
        p = zero(lambda p: sum(k / (p - at) for k, at in poles), max(0.0, -x), min(1.0, 1 - x))
        q = min(max(p + x, 0.0), 1.0)
        return standardised(effect - x, (q * (1 - q) / nb + p * (1 - p) / na) * n / (n - 1))

    total = math.comb(n, hits)
    return rates("Fisher", min(na, nb), effect, (up / total, down / total), score, strict)


# -- several tests as one


def largest(parts: Sequence[Evidence], effect: float | None = None) -> Evidence:
    """Each p is the largest, the interval is the hull: fillings of missing runs, groups, guards against skew."""
    effects, n, name = [part.effect for part in parts], min(part.n for part in parts), parts[0].name
    middle = (min(effects) + max(effects)) / 2 if effect is None else effect

    def tails(x: float) -> Pair:
        up, down = zip(*(part.tails(x) for part in parts), strict=True)
        return max(up), max(down)

    def raw(a: float) -> Pair:
        low, high = zip(*(part.raw(a) for part in parts), strict=True)
        return min(low), max(high)

    return Evidence(name, n, middle, tails, raw, monotone=all(part.monotone for part in parts))


def widened(inner: Evidence, factor: float) -> Evidence:
    """Distances from the estimate are divided by a factor."""
    centre = inner.effect

    def raw(a: float) -> Pair:
        low, high = inner.raw(a)
        return centre + factor * (low - centre), centre + factor * (high - centre)

    tails = lambda x: inner.tails(centre + (x - centre) / factor)  # noqa: E731
    return Evidence(inner.name, inner.n, centre, tails, raw, inner=inner)


def careful(test: Evidence, guard: Evidence | None, level: float, most: int = 8) -> Evidence:
    """What equivalence asks [23]."""
    halvings = max(0.0, math.log2(0.05 / level))
    units, asked = min(test.n, most, math.floor(min(test.df, 99) + 1 + 1e-9)), test
    if units < 8:
        asked = widened(test, WIDER[max(units, 3)] * (1 + 0.15 * halvings))
    if guard is None:
        return asked
    asked = largest([asked, guard], test.effect)
    return widened(asked, 1 + 2 / asked.n * halvings) if halvings else asked


def studentized(strata: Sequence[Sequence[Sequence[float]]]) -> Evidence:
    """The bootstrap of one sample of differences, or of both arms, in each task [24] [27]."""
    tasks = [[sorted(sample) for sample in stratum] for stratum in strata]
    low = min(stratum[-1][0] - (stratum[0][-1] if len(stratum) > 1 else 0) for stratum in tasks)
    high = max(stratum[-1][-1] - (stratum[0][0] if len(stratum) > 1 else 0) for stratum in tasks)
    if len(tasks[0]) == 1:
        mirror = [[sorted(-v for v in sample)] for (sample,) in tasks]
        both = [sorted(each, key=lambda stratum: (len(stratum[0]), stratum)) for each in (tasks, mirror)]
        flat = [[v for (sample,) in each for v in sample] for each in both]
        mirrored, n, signs = flat[0] < flat[1], sum(map(len, (s[0] for s in tasks))), (1.0,)
        tasks = both[mirrored]
    else:
        arms = [[v for stratum in tasks for v in stratum[i]] for i in (0, 1)]
        mirrored, n, signs = b_goes_first(*arms), min(map(len, arms)), (-1.0, 1.0)
        tasks = sorted((s[::-1] if mirrored else s for s in tasks), key=lambda s: [(len(x), x) for x in s])
    distances, squares, effect, v = [0.0] * RESAMPLES, [0.0] * RESAMPLES, 0.0, 0.0
    samples = [(sign, sample) for stratum in tasks for sign, sample in zip(signs, stratum, strict=True)]
    draws = resamples(*(len(sample) for _, sample in samples))
    for (sign, sample), rows in zip(samples, draws, strict=True):
        centre, size = fmean(sample), len(sample)
        effect, v = effect + sign * centre, v + variance(sample) / size
        centred = [x - centre for x in sample]
        for r, row in enumerate(rows):
            drawn = [centred[i] for i in row]
            mean = sum(drawn) / size
            distances[r] += sign * mean
            squares[r] += sum((x - mean) ** 2 for x in drawn) / (size - 1) / size
    turn, floor = -1 if mirrored else 1, 1e-12 * max(map(abs, distances))
    ts = []
    for distance, error in zip(distances, map(math.sqrt, squares), strict=True):
        infinite = 0.0 if abs(distance) <= floor else math.copysign(math.inf, distance)
        ts.append(turn * (distance / error if error > floor else infinite))
    return bootstrapped(turn * effect / len(tasks), math.sqrt(v) / len(tasks), sorted(ts), n, (low, high))


def bootstrapped(effect: float, se: float, ts: list[float], n: int, ends: Pair) -> Evidence:
    """The test that the t of resamples make, with the bound for centres beyond all units [24]."""
    beyond, total = max(1 / (len(ts) + 1), 0.8**n), len(ts) + 1

    def tails(x: float) -> Pair:
        t = (effect - x) / se
        slack = TIE * max(1.0, abs(t))
        up, down = (total - bisect_left(ts, t - slack)) / total, (1 + bisect_right(ts, t + slack)) / total
        return min(up, beyond) if x < ends[0] else up, min(down, beyond) if x > ends[1] else down

    def raw(a: float) -> Pair:
        k = min(math.floor(a / 2 * total * ROUNDING) - 1, (len(ts) - 1) // 2)
        if k < 0:
            return -math.inf, math.inf
        low, high = effect - ts[-1 - k] * se, effect - ts[k] * se
        inside = beyond <= a / 2 * ROUNDING
        return (max(low, ends[0]), min(high, ends[1])) if inside else (low, high)

    return Evidence("", n, effect, tails, raw)


# -- tables of tasks and seeds


def by(cells: dict[Any, Any], side: int, combine: Callable[[list[Any]], Any] = fmean) -> dict[Any, Any]:
    """Combine the cells of each task (side 0) or seed (side 1)."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for key, value in cells.items():
        groups[key[side]].append(value)
    return {key: combine(values) for key, values in groups.items()}


def weights(table: Table) -> Table:
    sizes = by(table, 0, len)
    return {k: 1 / (len(sizes) * sizes[k[0]]) for k in table}


def blocks(table: Table) -> dict[str, str]:
    """The block of each task: tasks that share a seed are in one."""
    block = {task: task for task, _ in table}
    for tasks in by({k: k[0] for k in table}, 1, list).values():
        joined = {block[task] for task in tasks}
        block = {task: min(joined) if name in joined else name for task, name in block.items()}
    return block


def interaction(table: Table) -> float:
    """V_cell: the mean square of what task and seed effects leave, times the squared weights [17]."""
    rest, size = dict(table), max(map(abs, table.values()))
    for _ in range(20_000):  # taking out task and seed means in turn converges to the least-squares fit
        moved = 0.0
        for side in (0, 1):
            means = by(rest, side)
            moved, rest = max(moved, *map(abs, means.values())), {k: v - means[k[side]] for k, v in rest.items()}
        if moved <= 1e-14 * size:
            break
    df = len(table) - len(by(table, 0)) - len(by(table, 1)) + len(set(blocks(table).values()))
    squares = sum(w * w for w in weights(table).values())
    return sum(v * v for v in rest.values()) / df * squares if df > 0 else 0.0


def two_way_df(parts: Sequence[Pair], counted: Sequence[int]) -> float:
    """Satterthwaite's within its limits; `parts` are (variance, effective groups) [17] [18]."""
    if min(counted) == 2:
        return 1.0
    least = min(groups for _, groups in parts) - 1
    df = min(max(satterthwaite([(v, groups - 1) for v, groups in parts]), least), sum(counted) - len(counted))
    return math.sqrt(df * least) if least <= 4 else df


def crossed(table: Table) -> Evidence:
    """Tasks and seeds are both samples, and one block [17]."""
    w = weights(table)
    centre = sum(w[k] * v for k, v in table.items())
    u, of_seed = {k: w[k] * (v - centre) for k, v in table.items()}, by(w, 1, sum)
    (by_task, by_seed), t, s = (by(u, side, sum) for side in (0, 1)), len(by(table, 0)), len(of_seed)
    q, c = (sum(x**power for x in of_seed.values()) for power in (2, 3))
    v_task = t / (t - 1) * sum(x * x for x in by_task.values())
    v_seed = max(s / (s - 1), q / (q - 2 * c + q * q)) * sum(x * x for x in by_seed.values())
    v, df = max(v_task, v_seed, v_task + v_seed - interaction(table)), 0.0
    ulp = 8 * math.ulp(max(map(abs, table.values())))
    if max(map(abs, by_task.values())) * t <= ulp and max(abs(x / of_seed[k]) for k, x in by_seed.items()) <= ulp:
        v, df = interaction(table), min(t, s) - 1
    df = df or two_way_df([(v_task, t), (v_seed, 1 / q)], (t, s))
    return student("crossed t", min(t, s), centre, v, df, least=2 if max(t, s) >= 3 else 3)


def seed_values(table: Table) -> tuple[dict[Any, float], float]:
    """One value for each seed [24], and the variance of the mean over fixed tasks [18]."""
    means, sizes, w = by(table, 0), by(table, 0, len), weights(table)
    inside = {k: w[k] * (v - means[k[0]]) for k, v in table.items()}
    scaled = {k: v * math.sqrt(sizes[k[0]] / (sizes[k[0]] - 1)) for k, v in inside.items()}
    values = {seed: fmean(means.values()) + len(by(table, 1)) * x for seed, x in by(inside, 1, sum).items()}
    return values, sum(x * x for x in by(scaled, 1, sum).values())


def effective(table: Table) -> float:
    return 1 / sum(x * x for x in by(weights(table), 1, sum).values())


def over_runs(a: Table, b: Table) -> Evidence:
    """Tasks and the runs of each arm are samples [18]."""
    means = [by(a, 0), by(b, 0)]
    differences, t = [means[1][task] - means[0][task] for task in means[0]], len(means[0])
    counts, v_runs = (t, len(by(a, 1)), len(by(b, 1))), [seed_values(arm)[1] for arm in (a, b)]
    v_task = variance(differences) / t
    v = max(v_task, sum(v_runs), v_task + sum(v_runs) - interaction(a) - interaction(b))
    df = two_way_df([(v_task, t), (v_runs[0], effective(a)), (v_runs[1], effective(b))], counts)
    least = 2 if max(counts) >= 3 else 3
    return student("t over tasks and runs", min(counts), fmean(differences), v, df, least)


def over_seeds(table: Table) -> Evidence:
    """Fixed tasks, crossed seeds, absent cells [20]."""
    sizes, seeds, df = by(table, 0, len).values(), len(by(table, 1)), effective(table) - 1
    if min(sizes) <= 3 and len(sizes) <= 10:
        df = math.sqrt(df * (min(sizes) - 1))
    df = df / 2 if effective(table) < seeds / 2 else df
    return student("crossed t over seeds", seeds, fmean(by(table, 0).values()), seed_values(table)[1], df)


def stratified(strata: Sequence[Sequence[Sequence[float]]]) -> Evidence:
    """Fixed tasks: differences of pairs, or the runs of both arms, in each [16]."""
    samples, tasks, two = [s for stratum in strata for s in stratum], len(strata), len(strata[0]) == 2
    n = min(sum(len(stratum[i]) for stratum in strata) for i in range(len(strata[0])))
    effect = fmean(fmean(stratum[-1]) - (fmean(stratum[0]) if two else 0) for stratum in strata)
    parts = [(variance(s) / len(s) / tasks**2, len(s) - 1) for s in samples]
    df, order = satterthwaite(parts), [stratum[i] for i in range(len(strata[0])) for stratum in strata]
    if min(map(len, samples)) == 2 and tasks <= 5:
        df = math.sqrt(df * (len(max(order, key=lambda s: variance(s) / len(s))) - 1))
    return student("stratified t" if two else "stratified paired t", n, effect, sum(v for v, _ in parts), df)


# -- one comparison


@dataclass
class Test:
    """Evidence about 0, what equivalence asks below and above, and single tests that have to agree (fillings, groups)."""

    evidence: Evidence
    lower: tuple[Evidence, float] | None = None
    upper: tuple[Evidence, float] | None = None
    singles: list[Test] = field(default_factory=list)
    grouped: bool = False

    @property
    def too_few(self) -> bool:
        return any(test.too_few for test in self.singles) if self.singles else self.evidence.n < self.evidence.least

    @property
    def p(self) -> float:
        return min(1.0, 2 * min(self.evidence.tails(0.0)))

    @property
    def p_eq(self) -> float | None:
        if self.lower is None or self.upper is None:
            return None
        return max(self.lower[0].about(self.lower[1])[0], self.upper[0].about(self.upper[1])[1])

    @property
    def monotone(self) -> bool:
        return all(each.monotone for each in (self.evidence, *(side[0] for side in (self.lower, self.upper) if side)))

    def word(self, level: float, level_eq: float | None) -> str:
        if level_eq is not None and self.p_eq is not None and self.p_eq <= level_eq:
            return "equivalent"
        up, down = self.evidence.tails(0.0)
        return "undecided" if self.p > level else "better" if up <= down else "worse"

    def only_too_few(self, level: float) -> bool:
        """Whether it would be equivalent without the widening for few units [29]."""
        for each in self.singles or [self]:
            for side, (asked, x) in enumerate(filter(None, (each.lower, each.upper))):
                if asked.inner is None or asked.n >= 8 or asked.inner.about(x)[side] > level:
                    return False
        return self.lower is not None


def together(tests: list[Test], grouped: bool) -> Test:
    """Several tests as one; of groups, the effect is that of the units."""
    if len(tests) == 1:
        return tests[0]
    effect = tests[0].evidence.effect if grouped else None
    whole = Test(largest([test.evidence for test in tests], effect), singles=tests, grouped=grouped)
    if tests[0].lower and tests[0].upper:
        whole.lower, whole.upper = (
            (largest([getattr(test, side)[0] for test in tests], effect), getattr(tests[0], side)[1])
            for side in ("lower", "upper")
        )
    return whole


class Comparison:
    """A candidate and the control on one metric, and the design that their places make [1] to [8]."""

    def __init__(self, certificate: dict[str, Any], metric: str, candidate: str, m: int) -> None:
        asked = certificate["question"]
        self.q, self.groups = asked["metrics"][metric], certificate["groups"]
        self.sign, self.strict = 1 if self.q["direction"] == "maximize" else -1, self.q["ties"] == "full"
        self.level = self.q["alpha"] / 4 ** self.q["changes"] / m
        arms: dict[str, dict[Any, list[Any]]] = {asked["control"]: defaultdict(list), candidate: defaultdict(list)}
        self.seen: dict[str, list[float]] = defaultdict(list)
        for arm, task, seed, _, outcome, value in certificate["rows"][metric]:
            value = self.q["failure_score"] if outcome == "failed" else value
            value = None if outcome == "missing" else self.sign * float(value)
            self.seen[task] += [] if value is None else [value]
            if arm in arms:
                arms[arm][task, seed].append(value)
        self.a, self.b = (dict(sorted(arm.items(), key=str)) for arm in arms.values())
        if not asked["unpaired"] and asked["intersect"]:
            self.a, self.b = ({k: v for k, v in arm.items() if k in self.a and k in self.b} for arm in (self.a, self.b))
        elif not asked["unpaired"]:
            places = sorted({*self.a, *self.b}, key=str)
            a, b = self.a, self.b
            self.a, self.b = ({k: x[k] if k in x else [None] * len(y[k]) for k in places} for x, y in ((a, b), (b, a)))
        self.cells = [*self.a.values(), *self.b.values()]
        self.missing = sum(values.count(None) for values in self.cells)
        self.tasks = sorted({task for arm in (self.a, self.b) for task, _ in arm})
        self.kind, self.unit = self.choose_unpaired() if asked["unpaired"] else self.choose()
        self.columns = self.group_columns()
        self.binary, self.ends = self.is_binary(), {}
        self.set_ends()

    def seeds(self, arm: dict[Any, list[Any]]) -> set[Any]:
        return {seed for _, seed in arm} - {None}

    def choose(self) -> tuple[str, str]:
        """The design of paired arms [4]."""
        shared, crossed = len(self.seeds(self.a)) > 1, self.q["seeds"] == "crossed"
        if len(self.tasks) == 1:
            return ("seeds", "seed") if shared else ("samples", "rollout")
        if self.q["tasks"] == "sample":
            return ("crossed", "task and seed") if shared and crossed else ("tasks", "task")
        if not shared or not crossed:
            return ("strata", "seed" if shared else "rollout")
        complete = len(self.a) == len(self.tasks) * len(self.seeds(self.a))
        return ("seeds" if complete else "holes"), "seed"

    def choose_unpaired(self) -> tuple[str, str]:
        """The design of unpaired arms [5]."""
        unit = "seed" if max(len(self.seeds(arm)) for arm in (self.a, self.b)) > 1 else "rollout"
        crossed = unit == "seed" and self.q["seeds"] == "crossed"
        if len(self.tasks) == 1:
            return "samples", unit
        if self.q["tasks"] == "sample":
            same = {task for task, _ in self.a} == {task for task, _ in self.b}
            return ("runs", "task and run") if crossed else ("tasks" if same else "samples", "task")
        return ("samples" if crossed else "two strata"), unit

    def group_columns(self) -> dict[str, list[str]]:
        """Groups of the tasks that are the units, or that the verdict has to hold by [19]."""
        declared = self.q["cluster"]
        if declared == "none" or not (self.kind == "tasks" or (self.kind == "crossed" and self.blocks() == 1)):
            return {}
        columns = {name: [of.get(task, task) for task in self.tasks] for name, of in self.groups.items()}
        fewest = 6 if declared is None else 1
        return {
            name: of
            for name, of in columns.items()
            if declared in (None, name) and fewest <= len(set(of)) < len(self.tasks)
        }

    def blocks(self) -> int:
        return len(set(blocks(dict.fromkeys(self.a, 0.0)).values()))

    def is_binary(self) -> bool:
        """Whether every unit is one outcome of 0 or 1 [6]."""
        single = all(len(values) == 1 for values in self.cells)
        one = all(len(arm) == len({task for task, _ in arm}) for arm in (self.a, self.b))
        fits = {"seed": single and len(self.tasks) == 1, "task": single and one, "rollout": self.kind == "samples"}
        known = (v for values in self.cells for v in values if v is not None)
        kinds = self.kind in ("seeds", "samples", "tasks") and self.q["bounds"] in (None, [0, 1])
        return kinds and fits[self.unit] and all(self.sign * v in (0, 1) for v in known)

    def set_ends(self) -> None:
        """What a missing run could have been [3]."""
        bounds = self.q["bounds"] or ([0, 1] if self.binary else None)
        everywhere = [v for task in self.tasks for v in self.seen[task]] or [math.nan]
        for task in self.tasks:
            values = self.seen[task] if len(self.seen[task]) >= 3 else everywhere
            low, high = sorted(self.sign * end for end in bounds) if bounds else (min(values), max(values))
            self.ends[task] = low, high

    @property
    def units(self) -> int:
        sides, t = (self.a, self.b), len(self.tasks)
        seeds, runs = [len(self.seeds(arm)) for arm in sides], [sum(map(len, arm.values())) for arm in sides]
        match self.kind:
            case "tasks":
                return len(set(next(iter(self.columns.values())))) if self.columns and self.q["cluster"] else t
            case "crossed":
                return self.blocks() if self.blocks() > 1 else min(t, seeds[0])
            case "runs":
                return min(t, *seeds)
            case "samples" if self.unit == "task":
                return min(len({task for task, _ in arm}) for arm in sides)
            case "strata" | "two strata" if self.unit == "seed":
                return min(map(len, sides))
        return min(runs) if self.unit == "rollout" else min(seeds)

    def refusal(self) -> str:
        """Why there is no test [9]."""
        seeds = [len(self.seeds(arm)) for arm in (self.a, self.b)]
        most = {"crossed": max(len(self.tasks), seeds[0]), "runs": max(len(self.tasks), *seeds)}.get(self.kind, 0)
        if self.kind == "crossed" and self.blocks() == 2:
            return "unconnected"
        if self.units < 2 or (self.units == 2 and most < 3):
            return "too_few"
        rollouts = self.unit == "rollout"
        sizes = [by({k: len(v) if rollouts else 1 for k, v in arm.items()}, 0, sum) for arm in (self.a, self.b)]
        inside = "strata" in self.kind or self.kind in ("holes", "runs")
        if inside and min(size for each in sizes for size in each.values()) < 2:
            return "too_few"
        known = [
            by(arm, 0, lambda cells: [v for cell in cells for v in cell if v is not None]) for arm in (self.a, self.b)
        ]
        values = [task for each in known for task in each.values() if task]
        if self.unit != "task" and not self.binary and values and all(len(v) > 1 and is_constant(v) for v in values):
            return "seed_has_no_effect"
        return (
            "missing" if self.missing and any(map(math.isnan, (e for both in self.ends.values() for e in both))) else ""
        )

    def fill(self, arm: dict[Any, list[Any]], end: int) -> Any:
        """One arm as its test takes it: a list, a list for each task, or a table."""
        cells = {k: [self.ends[k[0]][end] if v is None else v for v in values] for k, values in arm.items()}
        means = {k: fmean(values) for k, values in cells.items()}
        every = by(cells, 0, lambda parts: [v for part in parts for v in part])
        if self.kind in ("crossed", "runs", "holes"):
            return means
        if "strata" in self.kind:
            return list((every if self.unit == "rollout" else by(means, 0, list)).values())
        if self.unit == "rollout":
            return [v for values in every.values() for v in values]
        return list(by(means, 1 if self.unit == "seed" else 0).values())

    def test(self) -> Test:
        """The test, with missing runs at the ends that could be the worst [29]."""
        fillings = [self.at(*ends) for ends in (FILLINGS[:2] if self.missing else FILLINGS[:1])]
        if self.missing and not all(test.monotone for test in fillings):
            fillings += [self.at(*ends) for ends in FILLINGS[2:]]
        return together(fillings, grouped=False)

    def at(self, end_b: int, end_a: int) -> Test:
        """The test with missing runs at these ends."""
        a, b, margin, share = (
            self.fill(self.a, end_a),
            self.fill(self.b, end_b),
            self.q["margin"],
            self.q["relative_margin"],
        )
        pairs = self.evidence(a, b, self.binary)
        if margin is not None:
            asked = [(test, ask()) for test, ask in pairs]
            return together([Test(test, (each, -margin), (each, margin)) for test, each in asked], grouped=True)
        whole = together([Test(test) for test, _ in pairs], grouped=True)
        if share is None:
            return whole
        sides = []
        for s in (-share, share):
            target = scaled(a, 1 + math.copysign(s, s * centre_of(a)))
            asked_by = [ask() for _, ask in self.evidence(target, b, False)]
            sides.append((largest(asked_by, asked_by[0].effect) if len(asked_by) > 1 else asked_by[0], 0.0))
        return Test(whole.evidence, *sides)

    def evidence(self, a: Any, b: Any, binary: bool) -> list[tuple[Evidence, Callable[[], Evidence]]]:
        """The test of filled arms and those by group, each with what equivalence asks instead."""
        level, strict, kind = self.level, self.strict, self.kind
        if kind == "runs":
            test = over_runs(a, b)
            return [(test, lambda: careful(test, None, level, 7))]
        if kind in ("crossed", "holes"):
            return self.table_tests(dict(zip(a, differences(list(a.values()), list(b.values())), strict=True)))
        if kind == "samples" and binary:
            test = fisher(self.outcomes(a), self.outcomes(b), strict)
            return [(test, lambda: test)]
        if kind == "samples":
            return [guarded(exact_splits([(a, b)]) if strict else two_samples(a, b, level), [[a, b]], level)]
        if "strata" in kind:
            both = [[x, y] for x, y in zip(a, b, strict=True)]
            strata = both if kind == "two strata" or self.unit == "rollout" else [[differences(x, y)] for x, y in both]
            return [guarded(fixed_tasks(strata, strict), strata, level)]
        d = differences(a, b)
        by_group = [self.groups_test(d, of) for of in self.columns.values()]
        if self.columns and self.q["cluster"]:
            return by_group
        test = mcnemar(self.outcomes(a), self.outcomes(b), strict) if binary else paired(d, level, strict)
        return [(test, lambda: test) if binary else guarded(test, [[d]], level), *by_group]

    def outcomes(self, values: list[float]) -> list[float]:
        return values if self.sign > 0 else [v + 1 for v in values]

    def table_tests(self, d: Table) -> list[tuple[Evidence, Callable[[], Evidence]]]:
        """Tests of a table of differences by task and seed [17] [19] [20]."""
        t, s, level, means = len(by(d, 0)), len(by(d, 1)), self.level, list(by(d, 0).values())
        if self.kind == "holes":
            inside = by(d, 0, lambda values: [v - fmean(values) + fmean(means) for v in values])
            if is_constant(v for values in inside.values() for v in values):
                test = sign_flip([fmean(means)] * s)
                return [(test, lambda: test)]
            return [guarded(over_seeds(d), [[list(seed_values(d)[0].values())]], level)]
        if self.blocks() > 1:
            block = blocks(d)
            return [self.groups_test(means, [block[task] for task in by(d, 0)])]
        by_group = [self.groups_test(means, of) for of in self.columns.values()]
        if is_constant(d.values()):
            flat = sign_flip([next(iter(d.values()))] * min(t, s))
            return [(flat, lambda: flat), *by_group]
        if min(t, s) >= 8 and (self.q["margin"] or self.q["relative_margin"]):
            raise Unknown("equivalence where there are 8 or more tasks and 8 or more crossed seeds")
        test = crossed(d)
        return [(test, lambda: careful(test, None, level)), *by_group]

    def groups_test(self, d: list[float], of: list[str]) -> tuple[Evidence, Callable[[], Evidence]]:
        """Groups of tasks as units; every task keeps its weight [19]."""
        groups: dict[str, list[float]] = defaultdict(list)
        for value, name in sorted(zip(d, of, strict=True), key=lambda pair: pair[1]):
            groups[name].append(value)
        means, sizes = [fmean(g) for g in groups.values()], [float(len(g)) for g in groups.values()]
        centre, count, total = fmean(d), len(groups), len(d)
        if self.strict or is_constant(means) or flips_suffice(count, self.level):
            test = sign_flip(means, None if len(set(sizes)) == 1 else sizes, self.strict)
        else:
            v = count / (count - 1) * sum((n * (x - centre)) ** 2 for n, x in zip(sizes, means, strict=True)) / total**2
            test = student("t over blocks", count, centre, v, total**2 / sum(n * n for n in sizes) - 1)
        values = [centre + count / total * sum(x - centre for x in g) for g in groups.values()]
        return guarded(test, [[values]], self.level, flat=is_constant(means))


def differences(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """b - a, made equal where they differ by rounding alone [7]."""
    d = [y - x for x, y in zip(a, b, strict=True)]
    return [median(d)] * len(d) if max(d) - min(d) <= 8 * math.ulp(max(map(abs, (*a, *b)))) else d


def centre_of(arm: Any) -> float:
    """The mean of a filled arm; every task weighs the same."""
    if isinstance(arm, dict):
        return fmean(by(arm, 0).values())
    return fmean(fmean(part) for part in arm) if isinstance(arm[0], list) else fmean(arm)


def scaled(arm: Any, factor: float) -> Any:
    if isinstance(arm, dict):
        return {k: factor * v for k, v in arm.items()}
    return [scaled(part, factor) for part in arm] if isinstance(arm, list) else factor * arm


def guarded(
    test: Evidence, strata: Sequence[Sequence[Sequence[float]]], level: float, flat: bool | None = None
) -> tuple[Evidence, Callable[[], Evidence]]:
    """A test, and what equivalence asks: the bootstrap too, from 8 units on [23]."""
    if flat is None:
        flat = all(is_constant(sample) for stratum in strata for sample in stratum)
    bootstraps = test.n >= 8 and len(strata) <= 200 and not flat
    return test, lambda: careful(test, studentized(strata) if bootstraps else None, level)


def fixed_tasks(strata: Sequence[Sequence[list[float]]], strict: bool) -> Evidence:
    """Fixed tasks by t, or by counting where there is no spread or exact tests are asked for [16] [21]."""
    two = len(strata[0]) == 2
    if two and strict:
        return exact_splits([(stratum[0], stratum[1]) for stratum in strata])
    if not strict and not all(is_constant(sample) for stratum in strata for sample in stratum):
        return stratified(strata)
    pairs = [[fmean(s[1]) - fmean(s[0])] * min(map(len, s)) if two else s[0] for s in strata]
    weights = [1 / len(d) for d in pairs for _ in d]
    return sign_flip([v for d in pairs for v in d], None if len(set(weights)) == 1 else weights, strict)


# -- the family


def holm(ps: Sequence[float], m: int, alpha: float) -> list[Pair]:
    """(adjusted p, level) of every p; comparisons of the family that are not here rank last [28]."""
    result, running, failed, level, before = [(1.0, alpha)] * len(ps), 0.0, 0.0, alpha, -1.0
    for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        level = level if ps[i] == before else alpha / (m - rank)
        before, running = ps[i], max(running, min(1.0, (m - rank) * ps[i]))
        failed = failed or (level if ps[i] > level else 0.0)
        result[i] = (max(running, math.nextafter(alpha, 1)) if failed else min(running, alpha)), failed or level
    return result


def decide(certificate: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Recompute the decision of every comparison of the family."""
    q, planned = certificate["question"], certificate["question"]["planned"]
    k = len(planned["arms"])
    m = (len(planned["candidates"]) if q["control"] == planned["control"] else k * (k - 1) // 2) * len(q["primary"])
    alpha, compared = min(each["alpha"] for each in q["metrics"].values()), []
    for metric, rows in certificate["rows"].items():
        arms = {row[0] for row in rows}
        compared += [
            (metric, arm, Comparison(certificate, metric, arm, m)) for arm in planned["candidates"] if arm in arms
        ]
    shares = [4.0 ** each.q["changes"] for _, _, each in compared]
    reasons = [each.refusal() for _, _, each in compared]
    tests = [None if reason else each.test() for (_, _, each), reason in zip(compared, reasons, strict=True)]
    reasons = ["too_few" if test and test.too_few else why for test, why in zip(tests, reasons, strict=True)]
    tests = [None if reason else test for test, reason in zip(tests, reasons, strict=True)]
    ps = [min(1.0, share * test.p) if test else 1.0 for test, share in zip(tests, shares, strict=True)]
    margins = {i: test.p_eq if test else 1.0 for i, test in enumerate(tests)}
    family = [i for i, p in margins.items() if p is not None]
    over_p = holm(ps, m, alpha)
    over_eq = dict(zip(family, holm([min(1.0, shares[i] * (margins[i] or 0)) for i in family], m, alpha), strict=True))
    for i, ((metric, candidate, each), test, share) in enumerate(zip(compared, tests, shares, strict=True)):
        facts = {"metric": metric, "control": q["control"], "candidate": candidate, "family": m, "differs": False}
        facts |= {"unit": each.unit, "units": each.units, "missing": each.missing, "method": ""}
        facts |= {"verdict": "undecided", "reason": reasons[i], **dict.fromkeys((*NUMBERS, *INTERVALS))}
        if test is not None:
            widest = alpha / m if q["simultaneous"] else over_p[i][1]
            levels = alpha / share, widest / share, over_p[i][1] / share
            facts |= decided(each, test, levels, over_eq.get(i), share)
            facts["p_adjusted"] = over_p[i][0]
        if not each.q["final"]:
            facts |= {"verdict": "undecided", "reason": "not_final", "method": "", "differs": False}
            facts |= dict.fromkeys((*NUMBERS[1:], *INTERVALS))
        yield facts


def decided(
    each: Comparison, test: Test, levels: Sequence[float], over_eq: Pair | None, share: float
) -> dict[str, Any]:
    """The decision of one comparison at its levels: of the interval, of the decision interval, and of Holm."""
    level, level_eq = levels[2], over_eq[1] / share if over_eq else None
    word = test.word(level, level_eq)
    reason = "" if word != "undecided" else "inconclusive"
    if word == "undecided" and level_eq is not None and test.only_too_few(level_eq):
        reason = "too_few_for_equivalence"
    if {single.word(level, level_eq) for single in test.singles} - {word}:
        word, reason = "undecided", "cluster" if test.grouped else "missing"
    facts = {
        "verdict": word,
        "reason": reason,
        "method": test.evidence.name,
        "effect": each.sign * test.evidence.effect,
    }
    facts |= {"p": test.p, "p_eq": test.p_eq, "p_eq_adjusted": over_eq[0] if over_eq else None}
    facts["differs"] = word == "equivalent" and test.p <= level
    margin, wanted = each.q["margin"], [(test.evidence, levels[0]), (test.evidence, levels[1])]
    if margin and test.upper and level_eq is not None and level_eq < 0.5:
        wanted.append((test.upper[0], 2 * level_eq))
    for name, (evidence, a) in zip(INTERVALS, wanted, strict=False):
        low, high = evidence.interval(a, margin)
        low, high = (low, high) if each.sign > 0 else (-high, -low)
        facts[name] = {"low": low, "high": high, "level": 1 - a}
    return facts


# -- the certificate


NUMBERS, INTERVALS = (
    ("effect", "p", "p_adjusted", "p_eq", "p_eq_adjusted"),
    ("interval", "decision_interval", "equivalence_interval"),
)
COLUMNS = ["arm", "task", "seed", "rollout", "outcome", "value"]
METRIC = {
    "direction",
    "alpha",
    "margin",
    "relative_margin",
    "bounds",
    "failure_score",
    "tasks",
    "seeds",
    "cluster",
    "ties",
}
METRIC |= {"statistic", "registered_units", "final", "changes", "looks"}
QUESTION = {"control", "planned", "primary", "unpaired", "intersect", "simultaneous", "metrics"}


def read(path: str) -> dict[str, Any]:
    """Read a certificate; raise Unreadable for another file, Unknown for a question that this file does not know."""
    try:
        certificate: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        if certificate["certificate"] != 1 or certificate["columns"] != COLUMNS:
            raise Unreadable("not a certificate of version 1")
        q, rows = certificate["question"], certificate["rows"]
        unknown = (set(q) - QUESTION) | {key for each in q["metrics"].values() for key in set(each) - METRIC}
        runs = [(metric, *row[:4]) for metric in rows for row in rows[metric]]
        if len(set(runs)) < len(runs) or set(rows) != set(q["metrics"]):
            raise Unreadable("a run occurs twice, or a metric has no rows")
        if not set(rows) <= set(q["primary"]) or not {row[0] for each in rows.values() for row in each} <= set(
            q["planned"]["arms"]
        ):
            raise Unreadable("rows of a metric or an arm that was not planned")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error
    asked = q["metrics"].values()
    if any(each["statistic"] != "mean" for each in asked):
        raise Unknown("a statistic other than the mean")
    if unknown or any(each["looks"] or each["registered_units"] is not None for each in asked):
        raise Unknown(", ".join(sorted(unknown)) or "a plan that grew after a look, or a registered number of units")
    return certificate


def digest(certificate: dict[str, Any]) -> str:
    body = {name: value for name, value in certificate.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def agrees(said: Any, found: Any, scale: float) -> bool:
    """Whether two facts are equal, numbers up to rounding; infinite ends are null in the file."""
    if isinstance(found, dict) and isinstance(said, dict):
        return set(said) == set(found) and all(agrees(said[k], found[k], 1.0 if k == "level" else scale) for k in found)
    if isinstance(found, float) and math.isinf(found):
        return said is None
    if isinstance(found, float) and isinstance(said, int | float) and not isinstance(said, bool):
        return abs(said - found) <= TOLERANCE * max(abs(found), scale) + TINY
    return type(said) is type(found) and said == found


def check(certificate: dict[str, Any]) -> Iterator[str]:
    """Print every decision and yield what differs."""
    if digest(certificate) != certificate.get("sha256"):
        yield f"sha256 {certificate.get('sha256')}, recomputed {digest(certificate)}"
    said = {(each["metric"], each["candidate"]): each for each in certificate["decisions"]}
    found = {(each["metric"], each["candidate"]): each for each in decide(certificate)}
    if set(said) != set(found) or len(said) < len(certificate["decisions"]):
        yield f"comparisons {sorted(said)}, recomputed {sorted(found)}"
    for key in (key for key in said if key in found):
        name = " on ".join(reversed(key))
        print(f"{name}: {found[key]['verdict']} {found[key]['reason']}".rstrip(), f"p {found[key]['p']}")
        if set(said[key]) != set(found[key]):
            yield f"{name}: has {sorted(set(said[key]) ^ set(found[key]))}"
        values = [row[5] for row in certificate["rows"][key[0]] if row[5] is not None]
        scale = max(values, default=0.0) - min(values, default=0.0)
        for fact, value in found[key].items():
            if not agrees(said[key].get(fact), value, 0.0 if fact.startswith("p") else 1e-3 * scale):
                yield f"{name}: {fact} {said[key].get(fact)!r}, recomputed {value!r}"


def main(arguments: list[str]) -> int:
    try:
        if len(arguments) != 1:
            raise Unreadable("usage: verify.py v.json")
        problems = list(check(read(arguments[0])))
    except Unreadable as error:
        print(f"not a certificate: {error}")
        return 2
    except Unknown as error:
        print(f"not verified: {error}")
        return 3
    except (ArithmeticError, ValueError, KeyError, TypeError, IndexError) as error:
        print(f"cannot be recomputed: {type(error).__name__}: {error}")
        return 2
    for problem in problems:
        print(f"differs: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
