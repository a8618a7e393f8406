"""Recompute the decisions of a certificate from its rows, with the standard library and without bakeoff.

    python verify.py v.json [SOURCE...]    0: everything agrees   1: something differs (named)   2: not a certificate
                                           3: nothing differs, but a part is of a kind that this file does not know

The digests of sources that are given are compared, too. docs/certificates.md defines the file and each number; [n] is an
item of its list. Values are turned so that larger is better, and effects are candidate (b) - control (a). `Tails` are two
p-values at a centre x: that of 'centre <= x' and that of 'centre >= x'.
"""
# ruff: noqa: E731

from __future__ import annotations

import hashlib
import json
import math
import operator
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations, islice, product
from pathlib import Path
from statistics import fmean, median, variance
from typing import Any

DRAWS, RESAMPLES, TIE, ROUNDING, TOLERANCE, TINY = 99_999, 9_999, 1e-9, 1 + 1e-12, 1e-6, sys.float_info.min
WIDER = {3: 1.9, 4: 1.7, 5: 1.6, 6: 1.5, 7: 1.45}
FILLINGS = ((0, 1), (1, 0), (0, 0), (1, 1))  # missing runs of candidate and control at the bad (0) or good (1) end
Pair = tuple[float, float]
Tails = Callable[[float], Pair]
Table = dict[tuple[str, Any], float]  # (task, seed) -> value
Strata = list[list[list[float]]]  # for each task the differences of pairs, or the values of control and candidate


class Refused(Exception):
    """No certificate of this version (2), or one with something that this file cannot recompute (3)."""

    def __init__(self, code: int, why: str) -> None:
        self.code, self.why = code, why


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
        rows = (list(islice(source, (n + 1) // 2)) for _ in range(RESAMPLES))
        drawn.append([[h * n >> 32 for word in row for h in (word & 0xFFFFFFFF, word >> 32)][:n] for row in rows])
    return drawn


@lru_cache(8)
def random_flips(n: int) -> list[list[int]]:
    """For every 8 of n units the subset of each draw, as bits [25]."""
    source, drawn = words(), []
    for start in range(0, n, 8):
        pieces = [word >> at & 0xFFFF for word in islice(source, 25_000) for at in (0, 16, 32, 48)]
        drawn.append([piece >> 16 - min(8, n - start) for piece in pieces[:DRAWS]])
    return drawn


@lru_cache(4)
def random_splits(n: int, size: int) -> list[list[int]]:
    """Units of the first group of each random split [26]."""
    source, mask = words(), (1 << max(1, (n - 1).bit_length())) - 1
    keys = (sorted(next(source) & ~mask | i for i in range(n)) for _ in range(DRAWS))
    return [[key & mask for key in each[:size]] for each in keys]


@lru_cache(20_000)
def t_tail(t: float, df: float) -> float:
    """P(T > t) for Student's t: the integral of its density from t on, by double exponential quadrature."""
    if t < 0:
        return 1 - t_tail(-t, df)
    steps, power = (math.pi / 2 * math.sinh(i / 32) for i in range(-150, 151)), -(df + 1)
    points = ((math.exp(x), math.cosh(math.asinh(2 / math.pi * x))) for x in steps)
    scale = max(1.0, t)
    total = sum(math.hypot(1.0, (t + scale * x) / math.sqrt(df)) ** power * x * c for x, c in points)
    density = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    return max(TINY, min(0.5, total * scale * density * math.pi / 64))


def last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The place between low and high where something stops to hold; it is not asked at the ends."""
    middle = low
    while low < (middle := (low + high) / 2) < high and high - low > 1e-300:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return middle


def satterthwaite(parts: Sequence[Pair]) -> float:
    """Degrees of freedom of a sum of (variance, degrees of freedom)."""
    most = max(v for v, _ in parts)
    return sum(v / most for v, _ in parts) ** 2 / sum((v / most) ** 2 / df for v, df in parts if v > 0)


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
    tails: Tails
    shape: Tails | None = None  # what the interval comes from before it is made to agree with the tails [22]
    monotone: bool = False
    df: float = math.inf
    inner: Evidence | None = None  # of a widened one

    def about(self, x: float) -> Pair:
        """The tails at x, monotone against those at 0 [22]."""
        (up, down), (up0, down0) = self.tails(x), self.tails(0.0)
        return (min(up, up0), max(down, down0)) if x < 0 else (max(up, up0), min(down, down0))

    def interval(self, a: float, margin: float | None) -> Pair:
        """The centres that are not rejected at a/2, in agreement with the tails at 0 and at the margin."""
        ends = []
        for side, sign in enumerate((-1, 1)):
            kept = lambda r, side=side, sign=sign: (
                (self.shape or self.tails)(self.effect + sign * r)[side] > a / 2 * ROUNDING
            )
            reach = 1.0
            while reach < 1e150 and kept(reach):
                reach *= 16
            ends.append(self.effect + sign * (last(kept, 0.0, reach) if reach < 1e150 else math.inf))
        low, high = ends
        for x in (-margin, margin, 0.0) if margin else (0.0,):
            up, down = self.about(x)
            low = max(low, x) if up <= a / 2 * ROUNDING else min(low, x)
            high = max(high, low)
            high = min(high, x) if down <= a / 2 * ROUNDING else max(high, x)
            low = min(low, high)
        return low, high


def counted(name: str, n: int, effect: float, values: list[float], same: int, tie: float, weight: float) -> Evidence:
    """A test that counts rearrangements, each by the x above which it exceeds what was observed; `same` always tie [12]."""
    critical, total = sorted(values), len(values) + same

    def tails(x: float, tie: float = tie) -> Pair:
        below, up_to = bisect_left(critical, x - tie), bisect_right(critical, x + tie)
        ties = weight * (up_to - below) + same
        return (below + ties) / total, (len(critical) - up_to + ties) / total

    return Evidence(name, n, effect, tails, lambda x: tails(x, 0.0), monotone=True)


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
    size = 20 if len(d) <= 20 else 8
    blocks = [units[i : i + size] for i in range(0, len(d), size)]
    tables = [(subset_sums([v * k for v, k in block]), subset_sums([k for _, k in block])) for block in blocks]
    pairs = list(zip(*tables[0], strict=True)) if len(d) <= 20 else [(0.0, 0.0)] * DRAWS
    if len(d) > 20:
        for (sums, sizes), picks in zip(tables, random_flips(len(d)), strict=True):
            pairs = [(s + sums[i], k + sizes[i]) for (s, k), i in zip(pairs, picks, strict=True)]
        pairs.append((0.0, 0.0))
    critical, most, least = [sign * s / k for s, k in pairs if k > 0], max(map(abs, d)), min(map(abs, d))
    full = strict or (most > 0 and most - least <= TIE * most)
    effect, name = sum(v * k for v, k in units) * sign / sum(w), "sign-flip (ties in full)" if strict else "sign-flip"
    return counted(name, len(d), effect, critical, len(pairs) - len(critical), TIE * most, 1.0 if full else 0.5)


def student(name: str, n: int, effect: float, v: float, df: float) -> Evidence:
    se = math.sqrt(v)
    return Evidence(name, n, effect, lambda x: (t_tail((effect - x) / se, df), t_tail((x - effect) / se, df)), df=df)


def paired(name: str, d: list[float], sizes: list[int], level: float, strict: bool) -> Evidence:
    """P1, or t for few units; weighted where units are groups of tasks. The choice never depends on values [11] [19]."""
    n, total, centre = len(d), sum(sizes), sum(map(operator.mul, d, sizes)) / sum(sizes)
    if strict or is_constant(d) or (2.0**n if n <= 20 else DRAWS + 1) / 2 * level >= 3:
        return sign_flip(d, None if len(set(sizes)) == 1 else sizes, strict)
    v = n / (n - 1) * sum((k * (x - centre)) ** 2 for k, x in zip(sizes, d, strict=True)) / total**2
    return student(name, n, centre, v, total**2 / sum(k * k for k in sizes) - 1)


def b_goes_first(a: Sequence[float], b: Sequence[float]) -> bool:
    """The order of two arms that depends on neither names nor rows [26]."""
    return len(b) < len(a) if len(a) != len(b) else sorted(b) > sorted(a)


def permuted(a: Sequence[float], b: Sequence[float], exact: bool) -> Pair:
    """Permutation p: of the mean difference for equal sizes, else of Welch's t [14]."""
    middle, swapped = median([*a, *b]), b_goes_first(a, b)
    scale = max(abs(v - middle) for v in (*a, *b)) or 1.0
    pooled, first = (sorted((v - middle) / scale for v in s) for s in ((*a, *b), b if swapped else a))
    n, k, whole, squares = len(first), len(pooled) - len(first), sum(pooled), sum(v * v for v in pooled)

    def welch(part: Sequence[float]) -> float:
        s, q = sum(part), sum(v * v for v in part)
        v = max(q - s * s / n, 0.0) / (n - 1) / n + max(squares - q - (whole - s) ** 2 / k, 0.0) / (k - 1) / k
        distance = s / n - (whole - s) / k
        if v <= 1e-14:
            return 0.0 if abs(distance) <= 1e-12 else math.copysign(math.inf, distance)
        return distance / math.sqrt(v)

    if n == k and exact:
        high, low, total = *middle_counts(pooled, n, sum(first)), math.comb(n + k, n)
    else:
        function = sum if n == k else welch
        observed = function(first)
        tie = TIE if n == k else TIE * max(1.0, abs(observed)) if math.isfinite(observed) else 0.0
        chosen = combinations(pooled, n) if exact else ([pooled[i] for i in s] for s in random_splits(n + k, n))
        values = [function(part) for part in chosen] + [observed] * (not exact)
        high, low = sum(v >= observed - tie for v in values), sum(v <= observed + tie for v in values)
        total = len(values)
    return (high / total, low / total) if swapped else (low / total, high / total)


def middle_counts(pooled: list[float], n: int, observed: float) -> tuple[int, int]:
    """How many sums of n of the values are at least, and at most, the observed one: from two halves."""
    halves: list[dict[float, list[float]]] = [defaultdict(list), defaultdict(list)]
    for sums, half in zip(halves, (pooled[::2], pooled[1::2]), strict=True):
        for size, s in sorted(zip(subset_sums([1.0] * len(half)), subset_sums(half), strict=True)):
            sums[size].append(s)
    pairs = [(s, halves[1].get(n - size, [])) for size, values in halves[0].items() for s in values]
    high = sum(len(right) - bisect_left(right, observed - s - TIE) for s, right in pairs)
    return high, sum(bisect_right(right, observed - s + TIE) for s, right in pairs)


def two_samples(a: list[float], b: list[float], level: float) -> Evidence:
    """U: the larger of the permutation's and Welch's p [14]."""
    n, effect, splits = min(len(a), len(b)), fmean(b) - fmean(a), math.comb(len(a) + len(b), len(a))
    exact = len(a) + len(b) <= 30 if len(a) == len(b) else splits <= 200_000
    at = cache(lambda x: permuted(a, [v - x for v in b], exact))
    if is_constant(a) and is_constant(b):
        least = min(at(0.0)) if effect else 1.0
        return Evidence("permutation", n, effect, at, lambda x: (least, 1.0) if x < effect else (1.0, least))
    parts = [(variance(s) / len(s), len(s) - 1.0) for s in (a, b)]
    welch = student("Welch t", n, effect, sum(v for v, _ in parts), satterthwaite(parts))
    if splits * level / 2 < 3:
        return welch
    both: Tails = lambda x: (max(at(x)[0], welch.tails(x)[0]), max(at(x)[1], welch.tails(x)[1]))
    return Evidence("permutation and Welch t", n, effect, both, welch.tails)


def exact_splits(strata: Strata) -> Evidence:
    """The permutation test with full ties, values changing arms inside their task [21]."""
    if math.prod(math.comb(len(a) + len(b), len(a)) for a, b in strata) > 200_000:
        raise Refused(3, "exact tests of two samples with more than 200,000 splits")
    moves, most = [(0.0, 0.0)], 0.0
    for a, b in strata:
        weight, n, pooled = 1 / len(a) + 1 / len(b), len(a), [v - median(a + b) for v in a + b]
        most, stay = max(most, *map(abs, pooled)), sum(pooled[n:])
        chosen = combinations(range(len(pooled)), len(b))
        parts = [(weight * (stay - sum(pooled[i] for i in s)), weight * sum(i < n for i in s)) for s in chosen]
        moves = [(s + t, v + w) for (s, v), (t, w) in product(moves, parts)]
    critical, n = [s / w for s, w in moves if w > 0], min(sum(map(len, arm)) for arm in zip(*strata, strict=True))
    effect, tie = fmean(fmean(b) - fmean(a) for a, b in strata), TIE * 2.0 ** math.frexp(most)[1]
    return counted("exact permutation", n, effect, critical, len(moves) - len(critical), tie, 1.0)


def rates(name: str, n: int, effect: float, at_zero: list[float], score: Callable[[float], Pair]) -> Evidence:
    """B: a mid-p test (strict: exact) at 0, a score, (distance, its variance), at every other centre [15]."""

    def shape(x: float) -> Pair:
        distance, v = score(x) if -1 < x < 1 else (-x, 0.0)
        infinite = math.copysign(math.inf, distance) if abs(distance) >= 1e-14 else 0.0
        z = distance / math.sqrt(v) if v > 1e-300 and infinite else infinite
        return max(TINY, math.erfc(z / math.sqrt(2)) / 2), max(TINY, math.erfc(-z / math.sqrt(2)) / 2)

    up, down = (max(TINY, min(1.0, p)) for p in at_zero)
    return Evidence(name, n, effect, lambda x: (up, down) if x == 0 else shape(x), shape, monotone=True)


def mcnemar(a: list[float], b: list[float], strict: bool) -> Evidence:
    """Pairs of outcomes: McNemar, and Tango's score."""
    wins, losses = (sum(x > y for x, y in zip(*arms, strict=True)) for arms in ((b, a), (a, b)))
    n, differ = len(a), wins + losses
    own = (1.0 if strict else 0.5) * math.comb(differ, wins)
    above = [(sum(math.comb(differ, i) for i in range(k + 1, differ + 1)) + own) / 2**differ for k in (wins, losses)]

    def score(x: float) -> Pair:
        linear, constant = -differ + (2 * n - wins + losses) * x, -losses * x * (1 - x)
        rate = (math.sqrt(max(linear**2 - 8 * n * constant, 0.0)) - linear) / (4 * n)
        return wins - losses - n * x, n * (2 * rate + x * (1 - x))

    return rates(f"McNemar ({'exact' if strict else 'mid-p'})", n, (wins - losses) / n, above, score)


def fisher(a: list[float], b: list[float], strict: bool) -> Evidence:
    """Two samples of outcomes: Fisher, and the score of Miettinen and Nurminen."""
    ha, hb, na, nb = round(sum(a)), round(sum(b)), len(a), len(b)
    n, hits, effect = na + nb, ha + hb, hb / nb - ha / na
    ways = {k: math.comb(nb, k) * math.comb(na, hits - k) for k in range(max(0, hits - na), min(hits, nb) + 1)}
    own, total = (1.0 if strict else 0.5) * ways[hb], math.comb(n, hits)
    tails = [(sum(w for k, w in ways.items() if side * (k - hb) > 0) + own) / total for side in (1, -1)]

    def score(x: float) -> Pair:  # p: where the likelihood of the rates p and p + x is flat
        poles = [(k, at) for k, at in ((ha, 0.0), (na - ha, 1.0), (hb, -x), (nb - hb, 1 - x)) if k]
        p = last(lambda p: sum(k / (p - at) for k, at in poles) > 0, max(0.0, -x), min(1.0, 1 - x))
        q = min(max(p + x, 0.0), 1.0)
        return effect - x, (q * (1 - q) / nb + p * (1 - p) / na) * n / (n - 1)

    return rates(f"Fisher ({'exact' if strict else 'mid-p'})", min(na, nb), effect, tails, score)


# -- several tests as one

Judged = tuple[Evidence, Callable[[], Evidence]]  # a test, and what equivalence asks instead


def largest(parts: Sequence[Evidence], effect: float | None = None) -> Evidence:
    """Each p is the largest, the interval is the hull: fillings of missing runs, groups, guards against skew."""
    if len(parts) == 1:
        return parts[0]
    effects = [part.effect for part in parts]
    hull: Callable[[list[Tails]], Tails] = lambda each: (
        lambda x: (max(f(x)[0] for f in each), max(f(x)[1] for f in each))
    )
    tails, shape = hull([part.tails for part in parts]), hull([part.shape or part.tails for part in parts])
    middle, monotone = (min(effects) + max(effects)) / 2 if effect is None else effect, all(p.monotone for p in parts)
    return Evidence(parts[0].name, min(part.n for part in parts), middle, tails, shape, monotone)


def widened(inner: Evidence, factor: float) -> Evidence:
    """Distances from the estimate are divided by a factor."""
    centre, shape = inner.effect, inner.shape or inner.tails
    wider: Callable[[Tails], Tails] = lambda f: lambda x: f(centre + (x - centre) / factor)
    return Evidence(inner.name, inner.n, centre, wider(inner.tails), wider(shape), inner=inner)


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


def studentized(strata: Strata) -> Evidence:
    """The bootstrap of one sample of differences, or of both arms, in each task [24] [27]."""
    tasks, two = [[sorted(sample) for sample in stratum] for stratum in strata], len(strata[0]) == 2
    low = min(stratum[-1][0] - (stratum[0][-1] if two else 0) for stratum in tasks)
    high = max(stratum[-1][-1] - (stratum[0][0] if two else 0) for stratum in tasks)
    n = min(sum(map(len, arm)) for arm in zip(*tasks, strict=True))
    by_size: Callable[[list[list[float]]], Any] = lambda stratum: [(len(sample), sample) for sample in stratum]
    if two:
        arms = [[v for sample in arm for v in sample] for arm in zip(*tasks, strict=True)]
        mirrored = b_goes_first(*arms)
        tasks = sorted((stratum[::-1] if mirrored else stratum for stratum in tasks), key=by_size)
    else:
        each = [sorted(s, key=by_size) for s in (tasks, [[sorted(-v for v in sample)] for (sample,) in tasks])]
        mirrored = operator.lt(*([v for (sample,) in s for v in sample] for s in each))
        tasks = each[mirrored]
    distances, squares, effect, v = [0.0] * RESAMPLES, [0.0] * RESAMPLES, 0.0, 0.0
    samples = [(-1 if two and not i else 1, sample) for stratum in tasks for i, sample in enumerate(stratum)]
    for (sign, sample), rows in zip(samples, resamples(*(len(sample) for _, sample in samples)), strict=True):
        centre, size = fmean(sample), len(sample)
        effect, v = effect + sign * centre, v + variance(sample) / size
        centred = [x - centre for x in sample]
        for r, row in enumerate(rows):
            drawn = [centred[i] for i in row]
            mean = sum(drawn) / size
            distances[r] += sign * mean
            squares[r] += sum((x - mean) ** 2 for x in drawn) / (size - 1) / size
    turn, floor, ts = -1 if mirrored else 1, 1e-12 * max(map(abs, distances)), []
    for distance, error in zip(distances, map(math.sqrt, squares), strict=True):
        infinite = 0.0 if abs(distance) <= floor else math.copysign(math.inf, distance)
        ts.append(turn * (distance / error if error > floor else infinite))
    ts.sort()
    centre, se, total, beyond = turn * effect / len(tasks), math.sqrt(v) / len(tasks), RESAMPLES + 1, max(1e-4, 0.8**n)

    def tails(x: float) -> Pair:
        t = (centre - x) / se
        slack = TIE * max(1.0, abs(t))
        up, down = (total - bisect_left(ts, t - slack)) / total, (1 + bisect_right(ts, t + slack)) / total
        return min(up, beyond) if x < low else up, min(down, beyond) if x > high else down

    return Evidence("", n, centre, tails)


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


def blocks(table: dict[Any, Any]) -> dict[str, str]:
    """The block of each task: tasks that share a seed are in one."""
    block = {task: task for task, _ in table}
    for tasks in by({k: k[0] for k in table}, 1, list).values():
        joined = {block[task] for task in tasks}
        block = {task: min(joined) if name in joined else name for task, name in block.items()}
    return block


def interaction(table: Table) -> float:
    """V_cell: the mean square of what task and seed effects leave, times the squared weights [17]."""
    rest, size, moved = dict(table), max(map(abs, table.values())), math.inf
    while moved > 1e-14 * size:  # taking out task and seed means in turn converges to the least-squares fit
        moved = 0.0
        for side in (0, 1):
            means = by(rest, side)
            moved, rest = max(moved, *map(abs, means.values())), {k: v - means[k[side]] for k, v in rest.items()}
    df = len(table) - len(by(table, 0)) - len(by(table, 1)) + len(set(blocks(table).values()))
    squares = sum(w * w for w in weights(table).values())
    return sum(v * v for v in rest.values()) / df * squares if df > 0 else 0.0


def two_way(name: str, effect: float, v: float, parts: Sequence[Pair], counts: Sequence[int]) -> Evidence:
    """Satterthwaite's t within its limits; `parts` are (variance, effective groups) [17] [18]."""
    least = min(groups for _, groups in parts) - 1
    df = min(max(satterthwaite([(x, groups - 1) for x, groups in parts]), least), sum(counts) - len(counts))
    df = 1.0 if min(counts) == 2 else math.sqrt(df * least) if least <= 4 else df
    return student(name, min(counts), effect, v, df)


def crossed(table: Table) -> Evidence:
    """Tasks and seeds are both samples, and one block [17]."""
    w = weights(table)
    centre = sum(w[k] * v for k, v in table.items())
    u, of_seed = {k: w[k] * (v - centre) for k, v in table.items()}, by(w, 1, sum)
    (by_task, by_seed), t, s = (by(u, side, sum) for side in (0, 1)), len(by(table, 0)), len(of_seed)
    q, c = (sum(x**power for x in of_seed.values()) for power in (2, 3))
    v_task = t / (t - 1) * sum(x * x for x in by_task.values())
    v_seed = max(s / (s - 1), q / (q - 2 * c + q * q)) * sum(x * x for x in by_seed.values())
    ulp, v_cell = 8 * math.ulp(max(map(abs, table.values()))), interaction(table)
    if max(map(abs, by_task.values())) * t <= ulp and max(abs(x / of_seed[k]) for k, x in by_seed.items()) <= ulp:
        return student("crossed t", min(t, s), centre, v_cell, min(t, s) - 1)
    v = max(v_task, v_seed, v_task + v_seed - v_cell)
    return two_way("crossed t", centre, v, [(v_task, t), (v_seed, 1 / q)], (t, s))


def seed_values(table: Table) -> tuple[list[float], float, float]:
    """One value for each seed [24], the variance of the mean over fixed tasks [18], and S* of decision.md 6.2."""
    means, sizes, w = by(table, 0), by(table, 0, len), weights(table)
    inside = {k: w[k] * (v - means[k[0]]) for k, v in table.items()}
    scaled = {k: v * math.sqrt(sizes[k[0]] / (sizes[k[0]] - 1)) for k, v in inside.items()}
    values = [fmean(means.values()) + len(by(table, 1)) * x for x in by(inside, 1, sum).values()]
    return values, sum(x * x for x in by(scaled, 1, sum).values()), 1 / sum(x * x for x in by(w, 1, sum).values())


def over_runs(a: Table, b: Table) -> Evidence:
    """Tasks and the runs of each arm are samples [18]."""
    (_, v_a, n_a), (_, v_b, n_b) = seed_values(a), seed_values(b)
    d = [y - x for x, y in zip(by(a, 0).values(), by(b, 0).values(), strict=True)]
    v_task, v_runs = variance(d) / len(d), v_a + v_b
    v = max(v_task, v_runs, v_task + v_runs - interaction(a) - interaction(b))
    parts, counts = [(v_task, float(len(d))), (v_a, n_a), (v_b, n_b)], (len(d), len(by(a, 1)), len(by(b, 1)))
    return two_way("t over tasks and runs", fmean(d), v, parts, counts)


def over_seeds(table: Table) -> Evidence:
    """Fixed tasks, crossed seeds, absent cells [20]."""
    sizes, seeds, (_, v, effective) = by(table, 0, len).values(), len(by(table, 1)), seed_values(table)
    df = math.sqrt((effective - 1) * (min(sizes) - 1)) if min(sizes) <= 3 and len(sizes) <= 10 else effective - 1
    df = df / 2 if effective < seeds / 2 else df
    return student("crossed t over seeds", seeds, fmean(by(table, 0).values()), v, df)


def of_strata(strata: Strata, level: float, strict: bool) -> Evidence:
    """Units of one kind, or in each of several fixed tasks; differences or two samples [13] [14] [16] [21]."""
    two, samples = len(strata[0]) == 2, [s for arm in zip(*strata, strict=True) for s in arm]
    if two and strict:
        return exact_splits(strata)
    if len(strata) == 1:
        return (
            two_samples(*samples, level) if two else paired("paired t", *samples, [1] * len(samples[0]), level, strict)
        )
    if strict or all(map(is_constant, samples)):
        pairs = [[fmean(s[1]) - fmean(s[0])] * min(map(len, s)) if two else s[0] for s in strata]
        w = [1 / len(d) for d in pairs for _ in d]
        return sign_flip([v for d in pairs for v in d], None if len(set(w)) == 1 else w, strict)
    n = min(sum(map(len, arm)) for arm in zip(*strata, strict=True))
    effect = fmean(fmean(stratum[-1]) - (fmean(stratum[0]) if two else 0) for stratum in strata)
    parts = [(variance(s) / len(s) / len(strata) ** 2, len(s) - 1.0) for s in samples]
    df = satterthwaite(parts)
    if min(map(len, samples)) == 2 and len(strata) <= 5:
        df = math.sqrt(df * max(parts, key=lambda part: part[0])[1])
    return student("stratified t" if two else "stratified paired t", n, effect, sum(v for v, _ in parts), df)


def differences(a: list[float], b: list[float]) -> list[float]:
    """b - a, made equal where they differ by rounding alone [7]."""
    d = [y - x for x, y in zip(a, b, strict=True)]
    return [median(d)] * len(d) if max(d) - min(d) <= 8 * math.ulp(max(map(abs, (*a, *b)))) else d


def guarded(test: Evidence, strata: Strata, level: float) -> Judged:
    """A test, and what equivalence asks: the bootstrap too, from 8 units on [23]."""
    flat = all(is_constant(sample) for stratum in strata for sample in stratum)
    bootstraps = test.n >= 8 and len(strata) <= 200 and not flat
    return test, lambda: careful(test, studentized(strata) if bootstraps else None, level)


def over_groups(d: list[float], of: list[str], level: float, strict: bool) -> Judged:
    """Groups of tasks as units; every task keeps its weight [19]."""
    groups: dict[str, list[float]] = defaultdict(list)
    for value, name in sorted(zip(d, of, strict=True), key=lambda pair: pair[1]):
        groups[name].append(value)
    means, centre, scale = [fmean(g) for g in groups.values()], fmean(d), len(groups) / len(d)
    values = [centre + scale * sum(x - centre for x in g) for g in groups.values()]
    test = paired("t over blocks", means, [len(g) for g in groups.values()], level, strict)
    return guarded(test, [] if is_constant(means) else [[values]], level)


# -- one comparison


@dataclass
class Test:
    """Evidence about 0, and what equivalence asks at its two bounds; of several tests, each one as well."""

    evidence: Evidence
    asked: tuple[Evidence, ...] = ()
    bounds: Pair = (0.0, 0.0)
    singles: Sequence[Test] = ()
    grouped: bool = False

    @property
    def p_eq(self) -> float | None:
        return max(
            (each.about(x)[i] for i, (each, x) in enumerate(zip(self.asked, self.bounds, strict=False))), default=None
        )

    def word(self, level: float, level_eq: float | None) -> str:
        if level_eq is not None and self.p_eq is not None and self.p_eq <= level_eq:
            return "equivalent"
        up, down = self.evidence.tails(0.0)
        return "undecided" if min(1.0, 2 * min(up, down)) > level else "better" if up <= down else "worse"

    def only_too_few(self, level: float) -> bool:
        """Whether it would be equivalent without the widening for few units [29]."""
        sides = [
            (i, e, x) for t in self.singles or [self] for i, (e, x) in enumerate(zip(t.asked, t.bounds, strict=False))
        ]
        return bool(sides) and all(e.inner and e.n < 8 and e.inner.about(x)[i] <= level for i, e, x in sides)


def together(tests: Sequence[Test], grouped: bool) -> Test:
    """Several tests as one; of groups, the effect is that of the units."""
    if len(tests) == 1:
        return tests[0]
    effect = tests[0].evidence.effect if grouped else None
    asked = tuple(largest(each, effect) for each in zip(*(test.asked for test in tests), strict=True))
    return Test(largest([test.evidence for test in tests], effect), asked, tests[0].bounds, tests, grouped)


class Comparison:
    """A candidate and the control on one metric, in the design that their places make [1] to [8]."""

    def __init__(self, certificate: dict[str, Any], metric: str, candidate: str, m: int) -> None:
        asked = certificate["question"]
        q = self.q = asked["metrics"][metric]
        self.sign, self.strict = 1 if q["direction"] == "maximize" else -1, q["ties"] == "full"
        self.level = q["alpha"] / 4 ** q["changes"] / m
        arms: dict[str, Any] = {asked["control"]: defaultdict(list), candidate: defaultdict(list)}
        seen: dict[str, list[float]] = defaultdict(list)
        for arm, task, seed, _, outcome, value in certificate["rows"][metric]:
            value = q["failure_score"] if outcome == "failed" else value
            value = None if outcome == "missing" else self.sign * float(value)
            seen[task] += [] if value is None else [value]
            if arm in arms:
                arms[arm][task, seed].append(value)
        (a, b), unpaired = arms.values(), asked["unpaired"]
        places = sorted((k for k in {*a, *b} if not asked["intersect"] or unpaired or (k in a and k in b)), key=str)
        if not unpaired:
            a, b = ({k: x[k] if k in x else [None] * len(y[k]) for k in places} for x, y in ((a, b), (b, a)))
        self.arms = a, b = [{k: x[k] for k in places if k in x} for x in (a, b)]
        cells, self.tasks = [*a.values(), *b.values()], sorted({task for task, _ in places})
        self.missing, several = sum(values.count(None) for values in cells), len(self.tasks) > 1
        # The design: its kind, the unit, whether arms are two samples, and whether each task is a stratum [4] [5].
        self.seeds = [len({seed for _, seed in arm} - {None}) for arm in self.arms]
        seeded = max(self.seeds) > 1
        crossed, sample = seeded and q["seeds"] == "crossed", several and q["tasks"] == "sample"
        self.kind, self.unit, self.two = "strata", "seed" if seeded else "rollout", unpaired or not seeded
        self.by_task = several and not sample and not crossed
        if sample and crossed:
            self.kind, self.unit = ("runs", "task and run") if unpaired else ("crossed", "task and seed")
        elif sample:
            self.unit, self.two = "task", {task for task, _ in a} != {task for task, _ in b}
        elif several and crossed and not unpaired and len(a) < len(self.tasks) * self.seeds[0]:
            self.kind = "holes"
        # Groups of the tasks that are the units, or that the verdict has to hold by [19].
        self.block, declared = blocks(a), q["cluster"]
        self.apart = len(set(self.block.values())) if self.kind == "crossed" else 1
        grouping = (self.unit == "task" and not self.two) or (self.kind == "crossed" and self.apart == 1)
        columns = {name: [of.get(t, t) for t in self.tasks] for name, of in certificate["groups"].items() if grouping}
        fewest = 6 if declared is None else 1
        self.groups = [
            of for name, of in columns.items() if declared in (None, name) and fewest <= len(set(of)) < len(of)
        ]
        # Binary: every unit is one outcome of 0 or 1 [6]. Ends: what a missing run could have been [3].
        single = all(len(arm) == len(by(arm, 0, len)) for arm in (a, b)) if self.unit == "task" else not several
        single = self.unit == "rollout" or (single and all(len(values) == 1 for values in cells))
        known = all(self.sign * v in (0, 1) for values in cells for v in values if v is not None)
        self.binary = self.kind == "strata" and not self.by_task and single and known and q["bounds"] in (None, [0, 1])
        bounds, every = q["bounds"] or [0, 1][: 2 * self.binary], [v for task in self.tasks for v in seen[task]]
        self.ends = {}
        for task in self.tasks:
            values = [self.sign * x for x in bounds] or (seen[task] if len(seen[task]) >= 3 else every or [math.nan])
            self.ends[task] = min(values), max(values)
        sizes = [
            sum(map(len, self.fill(arm, 0))) if self.kind == "strata" else n
            for arm, n in zip(self.arms, self.seeds, strict=True)
        ]
        self.units = min(*sizes, *([] if self.kind in ("strata", "holes") else [len(self.tasks)]))
        self.units = (
            len(set(self.groups[0])) if self.groups and declared else self.apart if self.apart > 1 else self.units
        )

    def refusal(self) -> str:
        """Why there is no test [9]."""
        both = self.kind in ("crossed", "runs")
        if self.apart == 2:
            return "unconnected"
        if self.units < (2 if both and max(len(self.tasks), *self.seeds) > 2 else 3):
            return "too_few"
        if self.by_task or self.kind in ("holes", "runs"):
            count = lambda values: len(values) if self.unit == "rollout" else 1
            sizes = [by({k: count(v) for k, v in arm.items()}, 0, sum).values() for arm in self.arms]
            if min(map(min, sizes)) < 2:
                return "too_few"
        known = [by(arm, 0, lambda cells: [v for cell in cells for v in cell if v is not None]) for arm in self.arms]
        values = [task for each in known for task in each.values() if task]
        if self.unit != "task" and not self.binary and values and all(len(v) > 1 and is_constant(v) for v in values):
            return "seed_has_no_effect"
        return (
            "missing" if self.missing and any(map(math.isnan, (x for ends in self.ends.values() for x in ends))) else ""
        )

    def fill(self, arm: dict[Any, list[Any]], end: int) -> Any:
        """One arm as its test takes it: a table, or its units in each stratum."""
        cells = {k: [self.ends[k[0]][end] if v is None else v for v in values] for k, values in arm.items()}
        means = {k: fmean(values) for k, values in cells.items()}
        if self.kind != "strata":
            return means
        parts = by({k: k for k in cells}, 0, list).values() if self.by_task else [list(cells)]
        if self.unit == "rollout":
            return [[v for k in part for v in cells[k]] for part in parts]
        return [list(by({k: means[k] for k in part}, self.unit == "seed").values()) for part in parts]

    def test(self) -> Test:
        """The test, with missing runs at the ends that could be the worst [29]."""
        tests = [self.at(*ends) for ends in (FILLINGS[:2] if self.missing else FILLINGS[:1])]
        if self.missing and not all(e.monotone for test in tests for e in (test.evidence, *test.asked)):
            tests += [self.at(*ends) for ends in FILLINGS[2:]]
        return together(tests, grouped=False)

    def at(self, end_b: int, end_a: int) -> Test:
        """The test with missing runs at these ends."""
        a, b, margin, share = *map(self.fill, self.arms, (end_a, end_b)), self.q["margin"], self.q["relative_margin"]
        judged = self.tests(a, b, self.binary)
        if share is None:
            bounds = (-margin, margin) if margin else (0.0, 0.0)
            return together([Test(test, (ask(),) * 2 if margin else (), bounds) for test, ask in judged], grouped=True)
        centre = fmean(by(a, 0).values() if isinstance(a, dict) else map(fmean, a))
        asked = []
        for factor in (1 + math.copysign(s, s * centre) for s in (-share, share)):
            target = (
                {k: factor * v for k, v in a.items()} if isinstance(a, dict) else [[factor * v for v in s] for s in a]
            )
            by_test = [ask() for _, ask in self.tests(target, b, False)]
            asked.append(largest(by_test, by_test[0].effect))
        return Test(largest([test for test, _ in judged], judged[0][0].effect), tuple(asked))

    def tests(self, a: Any, b: Any, binary: bool) -> list[Judged]:
        """The test of filled arms and those by group."""
        level, strict = self.level, self.strict
        if self.kind == "runs":
            return [(test := over_runs(a, b), lambda: careful(test, None, level, 7))]
        if self.kind == "strata":
            strata = [[x, y] if self.two else [differences(x, y)] for x, y in zip(a, b, strict=True)]
            by_group = [over_groups(strata[0][0], of, level, strict) for of in self.groups]
            if self.groups and self.q["cluster"]:
                return by_group
            if not binary:
                return [guarded(of_strata(strata, level, strict), strata, level), *by_group]
            outcomes = ([v + (self.sign < 0) for v in arm] for arm in (a[0], b[0]))
            test = (fisher if self.two else mcnemar)(*outcomes, strict)
            return [(test, lambda: test), *by_group]
        d = dict(zip(a, differences(list(a.values()), list(b.values())), strict=True))
        means, least = by(d, 0), min(len(by(d, 0)), len(by(d, 1)))
        if self.kind == "holes":
            values, centre = [v - means[k[0]] for k, v in d.items()], fmean(means.values())
            if is_constant(v + centre for v in values):
                return [(test := sign_flip([centre] * self.seeds[0]), lambda: test)]
            return [guarded(over_seeds(d), [[seed_values(d)[0]]], level)]
        groups = self.groups if self.apart == 1 else [[self.block[task] for task in means]]
        by_group = [over_groups(list(means.values()), of, level, strict) for of in groups]
        if self.apart > 1:
            return by_group
        if is_constant(d.values()):
            return [(test := sign_flip([next(iter(d.values()))] * least), lambda: test), *by_group]
        if least >= 8 and (self.q["margin"] or self.q["relative_margin"]):
            raise Refused(3, "equivalence where there are 8 or more tasks and 8 or more crossed seeds")
        return [(test := crossed(d), lambda: careful(test, None, level)), *by_group]


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
    q, planned, k = (
        certificate["question"],
        certificate["question"]["planned"],
        len(certificate["question"]["planned"]["arms"]),
    )
    m = (len(planned["candidates"]) if q["control"] == planned["control"] else k * (k - 1) // 2) * len(q["primary"])
    alpha, arms = min(each["alpha"] for each in q["metrics"].values()), planned["candidates"]
    names = [(n, a) for n, rows in certificate["rows"].items() for a in arms if a in {row[0] for row in rows}]
    compared = [Comparison(certificate, metric, arm, m) for metric, arm in names]
    shares, reasons = [4.0 ** each.q["changes"] for each in compared], [each.refusal() for each in compared]
    tests = [None if reason else each.test() for each, reason in zip(compared, reasons, strict=True)]
    for i, test in enumerate(tests):  # equal cells are counted, and two of them are too few
        if test and any(t.evidence.name == "sign-flip" and t.evidence.n < 3 for t in (test, *test.singles)):
            tests[i], reasons[i] = None, "too_few"
    over_p = holm([min(1.0, share * p_of(t)) for t, share in zip(tests, shares, strict=True)], m, alpha)
    ps_eq = {i: test.p_eq if test else 1.0 for i, test in enumerate(tests)}
    ps_eq = {i: min(1.0, shares[i] * p) for i, p in ps_eq.items() if p is not None}
    over_eq = dict(zip(ps_eq, holm(list(ps_eq.values()), m, alpha), strict=True))
    for i, (name, each, test) in enumerate(zip(names, compared, tests, strict=True)):
        facts = {"metric": name[0], "control": q["control"], "candidate": name[1], "family": m, "differs": False}
        facts |= {"unit": each.unit, "units": each.units, "missing": each.missing, "method": ""}
        facts |= {"verdict": "undecided", "reason": reasons[i], **dict.fromkeys((*NUMBERS, *INTERVALS))}
        if test is not None:
            levels = [x / shares[i] for x in (alpha, alpha / m if q["simultaneous"] else over_p[i][1], over_p[i][1])]
            adjusted, level_eq = over_eq.get(i, (None, None))
            facts |= decided(each, test, levels, level_eq and level_eq / shares[i])
            facts |= {"p_adjusted": over_p[i][0], "p_eq_adjusted": adjusted}
        if not each.q["final"]:
            facts |= {"verdict": "undecided", "reason": "not_final", "method": "", "differs": False}
            facts |= dict.fromkeys((*NUMBERS[1:], *INTERVALS))
        yield facts


def p_of(test: Test | None) -> float:
    return min(1.0, 2 * min(test.evidence.tails(0.0))) if test else 1.0


def decided(each: Comparison, test: Test, levels: Sequence[float], level_eq: float | None) -> dict[str, Any]:
    """The decision of one comparison at its levels: of the interval, of the decision interval, and of Holm."""
    word = test.word(levels[2], level_eq)
    reason = "inconclusive" if word == "undecided" else ""
    if reason and level_eq is not None and test.only_too_few(level_eq):
        reason = "too_few_for_equivalence"
    if {single.word(levels[2], level_eq) for single in test.singles} - {word}:
        word, reason = "undecided", "cluster" if test.grouped else "missing"
    facts = {
        "verdict": word,
        "reason": reason,
        "method": test.evidence.name,
        "effect": each.sign * test.evidence.effect,
    }
    facts |= {"p": p_of(test), "p_eq": test.p_eq, "differs": word == "equivalent" and p_of(test) <= levels[2]}
    wanted = [(test.evidence, levels[0]), (test.evidence, levels[1])]
    if each.q["margin"] and test.asked and level_eq is not None and level_eq < 0.5:
        wanted.append((test.asked[1], 2 * level_eq))
    for name, (evidence, a) in zip(INTERVALS, wanted, strict=False):
        ends = sorted(each.sign * end for end in evidence.interval(a, each.q["margin"]))
        facts[name] = {"low": ends[0], "high": ends[1], "level": 1 - a}
    return facts


# -- the certificate


NUMBERS = ("effect", "p", "p_adjusted", "p_eq", "p_eq_adjusted")
INTERVALS = ("interval", "decision_interval", "equivalence_interval")
COLUMNS = ["arm", "task", "seed", "rollout", "outcome", "value"]
BODY = {"certificate", "bakeoff", "sources", "question", "groups", "columns", "rows", "decisions", "sha256"}
QUESTION = {"control", "planned", "primary", "unpaired", "intersect", "simultaneous", "metrics"}
METRIC = {"direction", "alpha", "margin", "relative_margin", "bounds", "failure_score", "tasks", "seeds", "cluster"}
METRIC |= {"ties", "statistic", "registered_units", "final", "changes", "looks"}


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no reader can see another value than this one."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def read(path: str) -> dict[str, Any]:
    """Read a certificate; raise Refused for another file, and for a question that this file does not know."""
    try:
        certificate: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=unique)
        q, rows = certificate["question"], certificate["rows"]
        metrics, planned = q["metrics"], q["planned"]
        runs = [(metric, *row[:4]) for metric in rows for row in rows[metric]]
        arms, candidates, primary = (set(x) for x in (planned["arms"], planned["candidates"], q["primary"]))
        counts = [len(planned["arms"]), len(planned["candidates"]), len(q["primary"])]
        every, asked = [row for each in rows.values() for row in each], metrics.values()
        positive = [
            x for e in asked for x in (e["margin"], e["relative_margin"], 0.5 - e["alpha"], e["alpha"]) if x is not None
        ]
        sound = {
            "not a certificate of version 1": certificate["certificate"] == 1 and certificate["columns"] == COLUMNS,
            "a run occurs twice": len(set(runs)) == len(runs),
            "an outcome that is none": {row[4] for row in every} <= {"scored", "failed", "missing"},
            "a value that is none": all((type(row[5]) in (int, float)) == (row[4] == "scored") for row in every),
            "metrics that do not fit": set(rows) == set(metrics) and set(rows) <= primary,
            "an arm that was not planned": {run[1] for run in runs} | candidates | {q["control"], planned["control"]}
            <= arms,
            "a family that is none": [len(arms), len(candidates), len(primary)] == counts
            and q["control"] not in candidates,
            "a level or a margin that is none": min(positive) > 0,
            "a change or a look that is none": all(
                type(e[k]) is int and e[k] >= 0 for e in asked for k in ("changes", "looks")
            ),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise Refused(2, f"{type(error).__name__}: {error}") from error
    for problem in (problem for problem, holds in sound.items() if not holds):
        raise Refused(2, problem)
    unknown = {*certificate} - BODY | {*q} - QUESTION | {key for each in asked for key in {*each} - METRIC}
    rules = {"statistic": "mean", "looks": 0, "registered_units": None}
    if unknown := unknown | {name for name, known in rules.items() for each in asked if each[name] != known}:
        raise Refused(3, ", ".join(sorted(unknown)))
    return certificate


def agrees(said: Any, found: Any, scale: float) -> bool:
    """Whether two facts are equal, numbers up to rounding; infinite ends are null in the file."""
    if isinstance(found, dict) and isinstance(said, dict):
        return set(said) == set(found) and all(agrees(said[k], found[k], 1.0 if k == "level" else scale) for k in found)
    if isinstance(found, float) and math.isinf(found):
        return said is None
    if isinstance(found, float) and type(said) in (int, float):
        return abs(said - found) <= TOLERANCE * max(abs(found), scale) + TINY
    return type(said) is type(found) and said == found


def check(certificate: dict[str, Any], sources: Sequence[str]) -> Iterator[str]:
    """Print every decision and yield what differs."""
    body = json.dumps({k: v for k, v in certificate.items() if k != "sha256"}, sort_keys=True, separators=(",", ":"))
    if hashlib.sha256(body.encode()).hexdigest() != certificate.get("sha256"):
        yield f"sha256 {certificate.get('sha256')}, recomputed {hashlib.sha256(body.encode()).hexdigest()}"
    digests = {source["sha256"] for source in certificate["sources"]}
    yield from (
        f"{s} is not among its sources"
        for s in sources
        if hashlib.sha256(Path(s).read_bytes()).hexdigest() not in digests
    )
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
        if not arguments:
            raise Refused(2, "usage: verify.py v.json [SOURCE...]")
        problems = list(check(read(arguments[0]), arguments[1:]))
    except Refused as error:
        print(f"{'not verified' if error.code == 3 else 'not a certificate'}: {error.why}")
        return error.code
    except (ArithmeticError, ValueError, KeyError, TypeError, IndexError, OSError) as error:
        print(f"cannot be recomputed: {type(error).__name__}: {error}")
        return 2
    for problem in problems:
        print(f"differs: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
