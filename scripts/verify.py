"""Recompute the verdicts of a certificate from its rows, with the standard library and without bakeoff.

    python verify.py v.json     exit 0: everything agrees     1: something differs (named)     2: not a certificate
                                3: nothing differs, but a part (named) agrees only within Monte Carlo error of 5
                                   standard errors, or cannot be recomputed

Certificate, version 1: one JSON object. Numbers are finite; an infinite end of an interval is null.

    certificate  1
    bakeoff      the version that wrote it
    question     metric; direction: higher | lower; control; alpha; margin: number | null; relative: true if the margin is
                 a share of the control; tasks: sample | fixed; seeds: nested | crossed | fixed | null (crossed if a label
                 occurs on two tasks); bounds: [low, high] | null; failure_score: number | null; ties: half | full;
                 cluster: the column in `group` | "none" | null (`group` is a candidate if it has 6 to T - 1 levels);
                 family: {m, comparisons: [[candidate, control], ...]}; level_share: factor on alpha for looks and changes
                 (1: none); optional: resamples of the bootstrap (9999), widening: {"3": f, ... "7": f}
    rows         [{arm, task, seed | null, rollout, state: scored | failed | missing, value | null, group | null}, ...]
    decisions    [{candidate, control, verdict, reason: null | too_few | seed_has_no_effect | missing | cluster |
                 too_few_for_equivalence, effect, p, p_adjusted, p_equivalence, interval: [low, high],
                 decision_interval, level, unit, n, test, optional: differs}, ...]
    sha256       of {question, rows, decisions} as JSON with sorted keys, separators "," and ":", ASCII only

Effects and intervals are in turned values (positive: the candidate is better). `level` is Holm's a_k. p_equivalence is
before Holm, null without a margin. For too_few and seed_has_no_effect: effect, p-values, intervals and level are null.
With missing runs: the larger p, the hull of intervals; effect and level may be any number between those at the ends.
    test P1, P2, McNemar: unit task | seed | cluster, n units       test U, Fisher: unit run, n runs of both arms
    test stratified: unit run, n pairs, or n runs of both arms      test crossed: unit task and seed, n = min(T, S)
    test runs: unit task and run, n runs of both arms
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from operator import mul
from pathlib import Path
from statistics import NormalDist, fmean, variance
from typing import Any

DRAWS = 99_999  # random subsets or splits where all are too many; the identity is added to them
ERRORS = 5  # standard errors of Monte Carlo noise that are accepted
WIDENING = {"3": 1.73, "4": 1.62, "5": 1.52, "6": 1.46, "7": 1.40}  # t intervals: exponential differences below 9 %
ENDS = ((0, 1), (1, 0), (0, 0), (1, 1))  # missing runs of candidate and control: bad (0) or good (1) end; two corners
MONOTONE = {"P1", "McNemar", "Fisher"}  # tests that need no mixed corner
Cell = tuple[str, Any]  # (task, seed)
Cells = dict[Cell, list[Any]]  # values of the rollouts of each cell; None: missing
Interval = tuple[float, float]
Tail = Callable[[float, int, int], float]


class Stop(Exception):
    """(exit code, reason): 2 for a file that is not a certificate, 3 for a number that nothing determines."""


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
    return 1 - t_tail(-t, df) if t < 0 else beta_tail(df / 2, 0.5, df / (df + t * t)) / 2


@cache
def t_quantile(tail: float, df: float) -> float:
    """The t with P(T > t) = tail, for a tail below 1/2."""
    high = 1.0
    while t_tail(high, df) > tail:
        high *= 2
    return zero(lambda t: t_tail(t, df) - tail, 0.0, high)


def zero(f: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a decreasing function between low and high; f is not called at the ends."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    return middle


def noise(p: float, own: float, draws: int = DRAWS) -> float:
    """The accepted Monte Carlo error of p, for the certificate's draws and 1 / draws of this file (0: exact here)."""
    return ERRORS * math.sqrt(max(p * (1 - p), 1 / draws) * (own + 1 / draws)) + 1.5 / draws


def ratio(difference: float, v: float, scale: float = 1.0) -> float:
    """A difference over its standard error."""
    if v > 1e-18 * scale**2:
        return difference / math.sqrt(v)
    return 0.0 if abs(difference) < 1e-12 * scale else math.copysign(math.inf, difference)


def subset_sums(values: Sequence[Any]) -> list[Any]:
    """Sums of all subsets; the first is the empty one."""
    sums = [0]
    for v in values:
        sums += [s + v for s in sums]
    return sums


def satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of (variance, degrees of freedom)."""
    return sum(v for v, _ in parts) ** 2 / (sum(v * v / df for v, df in parts if v > 0 and df > 0) or math.inf)


@dataclass
class Evidence:
    """What one test says about the centre. `shift` (-1, 0, 1) takes p at the low end, middle, high end of its noise."""

    effect: float
    tail: Tail  # (x, side, shift) -> p of centre <= x (side 1) or of centre >= x (side -1)
    span: Callable[[float, int], Interval]  # (a, shift) -> interval of level 1 - a
    noisy: bool = False  # the certificate's numbers rest on random draws
    extended: bool = False  # the interval is extended to 0 when p > a
    vote: Tail | None = None  # of the bootstrap, for equivalence
    plain: Evidence | None = None  # without a candidate cluster

    def p(self, shift: int = 0) -> float:
        return min(1.0, 2 * min(self.tail(0.0, 1, shift), self.tail(0.0, -1, shift)))

    def interval(self, a: float, shift: int = 0) -> Interval:
        low, high = self.span(a, shift)
        return (min(low, 0.0), max(high, 0.0)) if self.extended and self.p(shift) > a else (low, high)


def sign_flip(u: Sequence[float], n: Sequence[int], full: bool) -> Evidence:
    """P1 over the means of all non-empty subsets; for clusters, sums of u over sums of n."""
    size, noisy, rng = len(u), len(u) > 20, random.Random(1)
    singles = [abs(s / k) for s, k in zip(u, n, strict=True)]
    tie = 1e-9 * max(singles)
    pure = min(singles) > 0 and max(singles) - min(singles) <= tie
    weight, count = 1.0 if full or pure else 0.5, DRAWS + 1 if noisy else 2**size
    if noisy:  # random subsets of each block of 8 units, put together
        blocks = [(subset_sums(u[i : i + 8]), subset_sums(n[i : i + 8])) for i in range(0, size, 8)]
        pairs = [list(zip(*block, strict=True)) for block in blocks]
        draws = (zip(*map(rng.choice, pairs), strict=True) for _ in range(DRAWS))
        means = sorted(sum(sums) / max(sum(sizes), 1) for sums, sizes in draws)
    else:
        means = sorted(s / k for s, k in zip(subset_sums(u)[1:], subset_sums(n)[1:], strict=True))

    def tail(x: float, side: int, shift: int) -> float:
        if noisy and size <= 30:  # exact here: subsets whose sum of (u - x n) is below 0, from two halves
            values = [side * (s - x * k) for s, k in zip(u, n, strict=True)]
            left, right = subset_sums(values[::2]), sorted(subset_sums(values[1::2]))
            below = sum(bisect_left(right, -v - tie) for v in left)
            ties = sum(bisect_right(right, -v + tie) for v in left) - below - 1  # without the empty subset
            p = (1 + below + weight * ties) / 2**size
            return max(p + shift * noise(p, 0), 0.0)
        start, stop = bisect_left(means, x - tie), bisect_right(means, x + tie)
        p = (1 + (start if side > 0 else len(means) - stop) + weight * (stop - start)) / count
        return max(p + shift * noise(p, 1 / DRAWS), 0.0) if noisy else p

    def span(a: float, shift: int) -> Interval:
        rank = a / 2 - (shift * noise(a / 2, 1 / DRAWS) if noisy else 0)
        j = math.floor(rank * count - 1 + 1e-9)
        return (means[j], means[-1 - j]) if j >= 0 else (-math.inf, math.inf)

    return Evidence(sum(u) / sum(n), tail, span, noisy)


def student(effect: float, v: float, df: float, zeros: int = 0) -> Evidence:
    """A t-distributed estimate of variance v; without any difference, P1 on that many zeros."""
    if v <= 0 and effect == 0 and zeros:
        return sign_flip([0.0] * zeros, [1] * zeros, False)
    if v <= 0 or df <= 0:
        raise Stop(3, "a t test whose variance or degrees of freedom are 0")
    tail = lambda x, side, _: t_tail(side * (effect - x) / math.sqrt(v), df)  # noqa: E731
    return Evidence(effect, tail, lambda a, _: (effect - (h := t_quantile(a / 2, df) * math.sqrt(v)), effect + h))


def split_tails(b: list[float], a: list[float], full: bool, exact: bool) -> tuple[float, float]:
    """Permutation p of centre <= 0 and of centre >= 0, by Welch's t, which orders equal sizes as the mean does."""
    n, k, centre, rng = len(b), len(a), fmean(a), random.Random(2)
    pooled = [v - centre for v in b + a]
    squares, whole, scale = [v * v for v in pooled], sum(pooled), max(map(abs, pooled))
    above = below = 0

    def welch(first: Sequence[int]) -> float:
        s, q = sum(map(pooled.__getitem__, first)), sum(map(squares.__getitem__, first))
        vb, va = max(q - s * s / n, 0.0), max(sum(squares) - q - (whole - s) ** 2 / k, 0.0)
        return ratio(s / n - (whole - s) / k, vb / (n - 1) / n + va / (k - 1) / k, scale)

    if n == k and exact:  # sums of n of the pooled values, from two halves
        observed, sizes, right = sum(pooled[:n]), subset_sums([1] * n), defaultdict(list)
        for size, s in sorted(zip(sizes, subset_sums(pooled[1::2]), strict=True)):
            right[size].append(s)
        for size, s in zip(sizes, subset_sums(pooled[::2]), strict=True):
            above += len(right[n - size]) - bisect_right(right[n - size], observed - s + 1e-9 * scale)
            below += bisect_left(right[n - size], observed - s - 1e-9 * scale)
    else:
        observed, every = welch(range(n)), range(n + k)
        tie = 1e-9 * max(1.0, abs(observed)) if math.isfinite(observed) else 0.0
        for first in combinations(every, n) if exact else (rng.sample(every, n) for _ in range(DRAWS)):
            value = welch(first)
            above, below = above + (value > observed + tie), below + (value < observed - tie)
    splits = math.comb(n + k, n) if exact else DRAWS + 1
    ties = (1.0 if full else 0.5) * (splits - above - below - 1)
    return (1 + above + ties) / splits, (1 + below + ties) / splits


def two_sample(b: list[float], a: list[float], level: float, full: bool) -> Evidence:
    """U: the larger of the permutation's and Welch's one-sided p; with full ties the permutation's."""
    vb, va, splits = variance(b) / len(b), variance(a) / len(a), math.comb(len(a) + len(b), len(a))
    welch = student(fmean(b) - fmean(a), va + vb, satterthwaite([(va, len(a) - 1), (vb, len(b) - 1)]))
    permuted = full or splits * level / 2 >= 3
    exact = not permuted or (len(a) <= 15 if len(a) == len(b) else splits <= 200_000)
    tails = cache(lambda x: split_tails([v - x for v in b], a, full, exact))

    def tail(x: float, side: int, shift: int) -> float:
        p = tails(x)[0 if side > 0 else 1] if permuted else 0.0
        p = p if exact else max(p + shift * noise(p, 1 / DRAWS), 0.0)
        return p if full else max(p, welch.tail(x, side, 0))

    return Evidence(welch.effect, tail, welch.span, not exact, extended=True)


def binary(effect: float, exact: Callable[[int], float], score: Callable[[float], float]) -> Evidence:
    """B: an exact test of 0, and a score statistic for every other centre and for the interval."""

    def span(a: float, _: int) -> Interval:
        z = NormalDist().inv_cdf(1 - a / 2)
        low = -1.0 if effect <= -1 else zero(lambda x: score(x) - z, -1.0, effect)
        return low, 1.0 if effect >= 1 else zero(lambda x: score(x) + z, effect, 1.0)

    tail = lambda x, side, _: exact(side) if x == 0 else NormalDist().cdf(-side * score(x))  # noqa: E731
    return Evidence(effect, tail, span, extended=True)


def mcnemar(d: list[float], full: bool) -> Evidence:
    """Pairs: McNemar with half ties, and Tango's score."""
    wins, losses, n = d.count(1), d.count(-1), len(d)
    differ, weight = wins + losses, 1.0 if full or wins + losses == n else 0.5

    def exact(side: int) -> float:
        k = wins if side > 0 else losses
        return (sum(math.comb(differ, i) for i in range(k + 1, differ + 1)) + weight * math.comb(differ, k)) / 2**differ

    def score(x: float) -> float:
        linear, constant = -differ + (2 * n - wins + losses) * x, -losses * x * (1 - x)
        rate = (math.sqrt(max(linear**2 - 8 * n * constant, 0.0)) - linear) / (4 * n)
        return ratio(wins - losses - n * x, n * (2 * rate + x * (1 - x)))

    return binary((wins - losses) / n, exact, score)


def fisher(b: list[float], a: list[float], full: bool) -> Evidence:
    """Two samples: Fisher with half ties, and the score of Miettinen and Nurminen."""
    h1, h0, n1, n0 = round(sum(b)), round(sum(a)), len(b), len(a)
    hits, n, effect = h1 + h0, n1 + n0, h1 / n1 - h0 / n0
    ways = {i: math.comb(n1, i) * math.comb(n0, hits - i) for i in range(max(0, hits - n0), min(n1, hits) + 1)}

    def exact(side: int) -> float:
        beyond = sum(w for i, w in ways.items() if (i - h1) * side > 0)
        return (beyond + (1.0 if full else 0.5) * ways[h1]) / math.comb(n, hits)

    def score(x: float) -> float:  # p0: where the likelihood of the rates p0 and p0 + x is flat
        poles = [(k, at) for k, at in ((h0, 0.0), (n0 - h0, 1.0), (h1, -x), (n1 - h1, 1 - x)) if k]
        p0 = zero(lambda p: sum(k / (p - at) for k, at in poles), max(0.0, -x), min(1.0, 1 - x))
        p1 = min(max(p0 + x, 0.0), 1.0)
        return ratio(effect - x, (p1 * (1 - p1) / n1 + p0 * (1 - p0) / n0) * n / (n - 1))

    return binary(effect, exact, score)


def bootstrap(samples: list[list[float]], draws: int) -> Tail:
    """The tail of the studentized bootstrap of one or two samples."""
    effect = fmean(samples[0]) - sum(map(fmean, samples[1:]))
    centred = [[v - fmean(s) for v in s] for s in samples]
    scale, rng = max(abs(v) for s in centred for v in s), random.Random(3)

    def studentized(parts: list[list[float]], shift: float) -> float:
        means = [sum(s) / len(s) for s in parts]
        v = sum((sum(map(mul, s, s)) / len(s) - m * m) / (len(s) - 1) for s, m in zip(parts, means, strict=True))
        return ratio(means[0] - sum(means[1:]) + shift, v, scale)

    drawn = cache(lambda: sorted(studentized([rng.choices(s, k=len(s)) for s in centred], 0.0) for _ in range(draws)))

    def tail(x: float, side: int, shift: int) -> float:
        t = studentized(centred, effect - x)
        p = (1 + (draws - bisect_left(drawn(), t) if side > 0 else bisect_right(drawn(), t))) / (1 + draws)
        return max(p + shift * noise(p, 1 / draws, draws), 0.0)

    return tail


@dataclass
class Test:
    """One comparison with every missing run replaced."""

    name: str
    unit: str
    n: int
    reason: str | None
    size: float = math.inf  # units, as equivalence counts them
    evidence: Evidence | None = None
    limits: list[tuple[Evidence, float]] = field(default_factory=list)  # the margin: centre > x, then centre < x

    def without_cluster(self) -> Test:
        limits = [(e.plain or e, x) for e, x in self.limits]
        return replace(self, evidence=self.evidence and (self.evidence.plain or self.evidence), limits=limits)

    def p_equivalence(self, shift: int) -> float:
        sides = list(zip((1, -1), self.limits, strict=True))
        votes = [e.vote(x, side, shift) for side, (e, x) in sides if e.vote]
        return min(1.0, max([e.tail(x, side, shift) for side, (e, x) in sides] + votes))

    def inside(self, a: float, factor: float, shift: int) -> bool:
        """Whether the interval of level 1 - 2a, widened about the effect, lies inside the margin."""
        (low, x), (high, y) = self.limits
        start, stop = low.interval(2 * a, shift)[0], high.interval(2 * a, shift)[1]
        return low.effect + factor * (start - low.effect) > x and high.effect + factor * (stop - high.effect) < y


def by(cells: dict[Cell, Any], side: int, combine: Callable[[list[Any]], Any] = fmean) -> dict[Any, Any]:
    """Combine the cells of each task (side 0) or seed (side 1)."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for cell in sorted(cells, key=str):
        groups[cell[side]].append(cells[cell])
    return {key: combine(values) for key, values in groups.items()}


def is_constant(arm: dict[Cell, float]) -> bool:
    """Whether an arm has two runs on a task, and all on one task differ by at most 8 units in the last place."""
    runs = by(arm, 0, list).values()
    return max(map(len, runs)) > 1 and all(max(r) - min(r) <= 8 * math.ulp(max(map(abs, r))) for r in runs)


def why(few: bool, constant: bool) -> str | None:
    return "too_few" if few else "seed_has_no_effect" if constant else None


class Table:
    """The rows of a certificate, read under its question."""

    def __init__(self, question: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        self.q, self.sign, self.m = question, 1 if question["direction"] == "higher" else -1, question["family"]["m"]
        self.full, self.alpha = question["ties"] == "full", question["alpha"] * question["level_share"]
        self.clustered, bounds = question["cluster"] not in (None, "none"), question["bounds"]
        self.arms: dict[str, Cells] = defaultdict(lambda: defaultdict(list))
        self.groups: dict[str, Any] = {}
        seen: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            arm, task, seed, value = row["arm"], row["task"], row["seed"], row["value"]
            require(self.groups.setdefault(task, row["group"]) == row["group"], f"{row}: a task in two groups")
            if row["state"] == "failed":
                value = question["failure_score"]
                value = bounds[0 if self.sign > 0 else 1] if value is None and bounds else value
            require(row["state"] == "missing" or fits(value, float), f"{row}: no value")
            value = None if row["state"] == "missing" else self.sign * float(value)
            self.arms[arm][task, (arm, task, row["rollout"]) if seed is None else seed].append(value)
            seen[task] += [] if value is None else [value]
        values = [v for vs in seen.values() for v in vs] or [0.0]
        self.scale = max(values) - min(values) or abs(values[0]) or 1.0
        self.binary = all(self.sign * v in (0, 1) for v in values) and bounds in (None, [0, 1])
        self.ends = {task: (min(vs), max(vs)) for task, vs in seen.items() if vs}
        self.ends |= {task: tuple(sorted(self.sign * v for v in bounds)) for task in seen} if bounds else {}

    def pair(self, candidate: str, control: str) -> tuple[str, list[Cells]]:
        """The design of a comparison, and both arms with absent cells marked as missing."""
        arms = [dict(self.arms[candidate]), dict(self.arms[control])]
        (b, a), both = ({task for task, _ in arm} for arm in arms), {*arms[0], *arms[1]}
        spread = any(len(seeds) > 1 for seeds in by({k: k for k in both}, 1, list).values())
        seeds, fixed = self.q["seeds"] or ("crossed" if spread else "nested"), self.q["tasks"] == "fixed"
        shared = len(both) < len(arms[0]) + len(arms[1])
        runs, crossed = not shared and seeds == "crossed" and spread, shared and seeds == "crossed"
        tasks = a & b if runs else a | b
        if seeds == "fixed" and shared and (fixed or len(tasks) == 1):
            raise Stop(3, "fixed seeds where tasks are not a sample")
        if not tasks:
            raise Stop(3, "runs without a common task")
        for arm, own in zip(arms, (b, a), strict=True):
            absent = {(t, s) for _, s in arm for t in tasks} if runs else {(t, None) for t in tasks - own}
            arm |= {cell: [None] for cell in (both if shared else absent) - set(arm)}
            for cell in [cell for cell in arm if cell[0] not in tasks]:
                del arm[cell]
        if len(tasks) == 1 or (fixed and (runs or crossed)):
            return "seed" if shared else "run means" if runs else "unpaired", arms
        if runs or crossed:
            return "runs" if runs else "crossed", arms
        return "task" if not fixed else "pairs" if shared else "samples", arms

    def test(self, design: str, arms: list[Cells], ends: tuple[int, int]) -> Test:
        """Test a comparison with its missing runs at the bad (0) or good (1) end of their range."""
        if any(None in vs and task not in self.ends for arm in arms for (task, _), vs in arm.items()):
            raise Stop(3, "missing runs of a task that has no value and no bounds")
        filled = []
        for arm, end in zip(arms, ends, strict=True):
            filled.append({k: fmean(self.ends[k[0]][end] if v is None else v for v in vs) for k, vs in arm.items()})
        single = all(len(vs) == 1 for arm in arms for vs in arm.values())
        (b, a), margin = filled, self.q["margin"]
        test = self.analyse(b, a, design, self.binary and single)
        if test.evidence and margin is not None and not self.q["relative"]:
            test.limits = [(test.evidence, -margin), (test.evidence, margin)]
        elif test.evidence and margin is not None:
            r = math.copysign(margin, fmean(a.values()))
            scaled = [self.analyse(b, {k: v * f for k, v in a.items()}, design, False) for f in (1 - r, 1 + r)]
            test.limits = [(part.evidence, 0.0) for part in scaled if part.evidence]
            if len(test.limits) < 2:
                raise Stop(3, "a relative margin that makes the control constant")
        return test

    def analyse(self, b: dict[Cell, float], a: dict[Cell, float], design: str, binary: bool) -> Test:
        """Form the units of a design and test them."""
        constant, side = design != "task" and is_constant(b) and is_constant(a), 1 if design == "seed" else 0
        if self.clustered and design != "task":
            raise Stop(3, f"a declared cluster in the design {design!r}")
        if design in ("unpaired", "run means"):
            return self.unpaired(list(by(b, 1).values()), list(by(a, 1).values()), binary, constant, design)
        if design == "samples":
            x, y = by(b, 0, list), by(a, 0, list)
            return self.stratified([[x[task], y[task]] for task in x], constant)
        if design == "runs":
            return self.runs(b, a, constant)
        floor = 8 * math.ulp(max(abs(v) for v in [*b.values(), *a.values()]))
        binary = binary and len(b) == len(a) == len(by(b, side))
        if design == "task":
            b, a = ({(task, None): v for task, v in by(arm, 0).items()} for arm in (b, a))
        d = {k: 0.0 if abs(b[k] - a[k]) <= floor else b[k] - a[k] for k in b}
        if design == "pairs":
            return self.stratified([[values] for values in by(d, 0, list).values()], constant)
        if design == "crossed":
            return self.crossed(d, constant)
        u = by(d, side)
        if self.clustered:
            return self.clusters(u, self.groups)
        test = self.units(list(u.values()), [1] * len(u), design, binary, constant)
        levels = len({self.groups[t] for t in u}) if design == "task" and self.q["cluster"] is None else 0
        if test.evidence and 6 <= levels < len(u) and (other := self.clusters(u, self.groups).evidence):
            parts = (test.evidence, other)
            test.evidence = Evidence(
                other.effect,
                lambda x, side, shift: max(e.tail(x, side, shift) for e in parts),
                lambda a, shift: tuple(f(e.interval(a, shift)[i] for e in parts) for i, f in enumerate((min, max))),
                noisy=any(e.noisy for e in parts),
                vote=parts[0].vote,
                plain=parts[0],
            )
        return test

    def clusters(self, d: dict[str, float], group: dict[str, Any]) -> Test:
        members = by({(str(group[task]), task): v for task, v in d.items()}, 0, list).values()
        return self.units([sum(v) for v in members], [len(v) for v in members], "cluster", False, False)

    def units(self, u: list[float], n: list[int], unit: str, binary: bool, constant: bool) -> Test:
        """Test one sample of differences, or of sums u over clusters of n tasks: P1, P2 or McNemar."""
        count, flips = len(u), self.full or 2 ** (len(u) - 1) * self.alpha / self.m >= 3
        test = Test("McNemar" if binary else "P1" if flips else "P2", unit, count, why(count < 3, constant), count)
        means, theta = [s / k for s, k in zip(u, n, strict=True)], sum(u) / sum(n)
        flat = max(means) - min(means) <= 1e-9 * max(map(abs, means))
        if test.reason:
            return test
        if binary and any(u):
            test.evidence = mcnemar([float(round(v)) for v in u], self.full)
        elif flips or flat:
            test.evidence = sign_flip(u, n, self.full)
        else:
            v = count / (count - 1) * sum((s - k * theta) ** 2 for s, k in zip(u, n, strict=True)) / sum(n) ** 2
            test.evidence = student(theta, v, sum(n) ** 2 / sum(k * k for k in n) - 1)
        if count >= 8 and unit != "cluster" and not binary and not flat:
            test.evidence.vote = bootstrap([u], self.q.get("resamples", 9999))
        return test

    def unpaired(self, b: list[float], a: list[float], binary: bool, constant: bool, design: str) -> Test:
        """Test two samples: U or Fisher."""
        fewest, lift = min(len(b), len(a)), 0 if self.sign > 0 else 1
        reason = why(fewest < (3 if design == "unpaired" else 2), constant)
        test = Test("Fisher" if binary else "U", "run", len(b) + len(a), reason, fewest)
        if binary and not reason:
            test.evidence = fisher([v + lift for v in b], [v + lift for v in a], self.full)
        elif not reason:
            test.evidence = two_sample(b, a, self.alpha / self.m, self.full)
            test.evidence.vote = bootstrap([b, a], self.q.get("resamples", 9999)) if fewest >= 8 else None
        return test

    def stratified(self, strata: list[list[list[float]]], constant: bool) -> Test:
        """Test fixed tasks: a stratum holds the differences of a task, or the runs of both arms."""
        samples, paired = [sample for stratum in strata for sample in stratum], len(strata[0]) == 1
        few = min(map(len, samples))
        test = Test("stratified", "run", sum(map(len, samples)), why(few < 2, constant))
        if not test.reason:
            parts = [(variance(s) / len(s) / len(strata) ** 2, len(s) - 1) for s in samples]
            df = satterthwaite(parts)
            df = math.sqrt(df * max(parts)[1]) if paired and few == 2 else df
            effect = fmean(fmean(s[0]) - (0 if paired else fmean(s[1])) for s in strata)
            test.evidence = student(effect, sum(v for v, _ in parts), df, test.n if paired else 0)
        return test

    def crossed(self, d: dict[Cell, float], constant: bool) -> Test:
        """Test tasks and seeds that are both samples; cells may be absent."""
        counts, n = by(d, 0, len), len(d)
        block = {task: task for task in counts}
        for tasks in by({k: k[0] for k in d}, 1, list).values():
            joined = {block[task] for task in tasks}
            block = {task: min(joined) if name in joined else name for task, name in block.items()}
        if len(set(block.values())) > 1:  # no seed connects the blocks: each is a cluster
            return self.clusters(by(d, 0), block)
        t, s = len(counts), len(by(d, 1))
        test = Test("crossed", "task and seed", min(t, s), why(min(t, s) < 2, constant))
        if test.reason:
            return test
        w = {k: 1 / (t * counts[k[0]]) for k in d}
        theta = sum(w[k] * d[k] for k in d)
        u = {k: w[k] * (d[k] - theta) for k in d}
        v_task = t / (t - 1) * sum(x * x for x in by(u, 0, sum).values())
        v_seed = s / (s - 1) * sum(x * x for x in by(u, 1, sum).values())
        v_cell = n / (n - 1) * sum(x * x for x in u.values())
        s_star = 1 / sum(x * x for x in by(w, 1, sum).values())
        least = min(t, s_star) - 1
        df = min(max(satterthwaite([(v_task, t - 1), (v_seed, s_star - 1)]), least), t + s - 2)
        df = 1.0 if min(t, s) == 2 else math.sqrt(df * least) if min(t, s) <= 5 else df
        test.evidence = student(theta, max(v_task, v_seed, v_task + v_seed - v_cell), df, test.n)
        return test

    def runs(self, b: dict[Cell, float], a: dict[Cell, float], constant: bool) -> Test:
        """Test unpaired runs, each scored on a sample of tasks."""
        (task_b, task_a), counts = (by(b, 0), by(a, 0)), [len(by(arm, 1)) for arm in (b, a)]
        t = len(task_b)
        test = Test("runs", "task and run", sum(counts), why(min(counts) < 2 or t < 2, constant))
        if test.reason:
            return test
        parts, v_cell = [(variance([task_b[k] - task_a[k] for k in task_b]) / t, t - 1)], 0.0
        for arm, tasks, r in zip((b, a), (task_b, task_a), counts, strict=True):
            runs, centre = by(arm, 1), fmean(arm.values())
            parts.append((variance(runs.values()) / r, r - 1))
            v_cell += (
                sum((v - runs[k[1]] - tasks[k[0]] + centre) ** 2 for k, v in arm.items()) / (r - 1) / (t - 1) / r / t
            )
        v_task, v_run = parts[0][0], parts[1][0] + parts[2][0]
        v = max(v_task, v_run, v_task + v_run - v_cell)
        test.evidence = student(fmean(b.values()) - fmean(a.values()), v, satterthwaite(parts))
        return test


def holm(ps: Sequence[float], m: int, alpha: float) -> list[tuple[float, float]]:
    """(adjusted p, level a_k) of every p; comparisons of the family that are not here rank last."""
    result, largest, failed = [(1.0, alpha)] * len(ps), 0.0, 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        level = alpha / (m - rank)
        failed = failed or (level if ps[i] > level else 0.0)
        largest = min(1.0, max(largest, (m - rank) * ps[i]))
        result[i] = largest, failed or level
    return result


def decide(table: Table, tests: list[Test], shift: int, notes: set[str], plain: bool = False) -> list[dict[str, Any]]:
    """Decide a family at one end of the missing runs; `plain` leaves candidate clusters out."""
    if plain:
        tests = [test.without_cluster() for test in tests]
    evidence = [test.evidence for test in tests]
    ps = [e.p(shift) if e else 1.0 for e in evidence]
    eqs = [test.p_equivalence(shift) if test.limits else 1.0 for test in tests]
    holms = zip(holm(ps, table.m, table.alpha), holm(eqs, table.m, table.alpha), strict=True)
    decisions = []
    for test, e, p, eq, ((adjusted, level), (eq_adjusted, eq_level)) in zip(
        tests, evidence, ps, eqs, holms, strict=True
    ):
        result = {"verdict": "undecided", "reason": test.reason, "unit": test.unit, "n": test.n, "test": test.name}
        decisions.append(result)
        if e is None:
            continue
        equal, narrow, differs = bool(test.limits) and eq_adjusted <= table.alpha, True, adjusted <= table.alpha
        if equal and test.size < 8 and not table.q["bounds"]:
            factors = table.q.get("widening") or WIDENING
            narrow = test.inside(eq_level, factors.get(str(test.size), factors["3"]), shift)
            if not test.inside(eq_level, 3.0, shift):
                notes.add("the factor that widens intervals for equivalence below 8 units: not in the specification")
        if equal and narrow:
            result |= {"verdict": "equivalent", "differs": differs}
        elif differs:
            result["verdict"] = "better" if e.effect > 0 else "worse"
        elif equal:
            result["reason"] = "too_few_for_equivalence"
        result |= {"effect": e.effect, "p": p, "p_adjusted": adjusted, "p_equivalence": eq if test.limits else None}
        result |= {"level": level, "interval": e.interval(table.alpha, shift)}
        result["decision_interval"] = e.interval(level, shift)
    if not plain and any(e and e.plain for e in evidence):
        for result, other in zip(decisions, decide(table, tests, shift, notes, plain=True), strict=True):
            if result["verdict"] != other["verdict"]:
                result |= {"verdict": "undecided", "reason": "cluster", "differs": None}
    return decisions


def combine(ends: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One decision from those at the ends of the missing runs. Numbers become [lowest, highest] accepted."""
    result = ends[0] | {"reason": {end["reason"] for end in ends}}
    if len({end["verdict"] for end in ends}) > 1:
        result |= {"verdict": "undecided", "reason": {"missing"}, "differs": None}
    for name in ("effect", "level", "p", "p_adjusted", "p_equivalence", "interval", "decision_interval"):
        values = [end[name] for end in ends if end.get(name) is not None]
        if values and name.endswith("interval"):
            low, high = min(low for low, _ in values), max(high for _, high in values)
            result |= {f"{name}[0]": [low, low], f"{name}[1]": [high, high]}
        else:
            lowest = min if name in ("effect", "level") else max
            result[name] = [lowest(values), max(values)] if values else None
    return result


def recompute(table: Table, notes: set[str]) -> list[list[dict[str, Any]]]:
    """For each comparison of the family: its decision in the middle and at both ends of the Monte Carlo error."""
    families = []
    for candidate, control in table.q["family"]["comparisons"]:
        design, arms = table.pair(candidate, control)
        tests = [table.test(design, arms, ENDS[0])]
        if any(None in vs for arm in arms for vs in arm.values()):
            tests += [table.test(design, arms, e) for e in ENDS[1 : 2 if tests[0].name in MONOTONE else 4]]
        families.append(tests)
    noisy = any(t.evidence and (t.evidence.noisy or t.evidence.vote) for tests in families for t in tests)
    variants = []
    for shift in (0, -1, 1) if noisy else (0,):
        rounds = [[tests[i % len(tests)] for tests in families] for i in range(max(map(len, families)))]
        ends = [decide(table, tests, shift, notes) for tests in rounds]
        variants.append([combine(decisions) for decisions in zip(*ends, strict=True)])
    return [list(comparison) for comparison in zip(*variants, strict=True)]


def require(condition: Any, problem: str) -> None:
    if not condition:
        raise Stop(2, problem)


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind: a type, a constant, a tuple of alternatives, or [kind] for a list of two."""
    if isinstance(kind, tuple | list):
        if isinstance(kind, tuple):
            return any(fits(value, k) for k in kind)
        return isinstance(value, list) and len(value) == 2 and all(fits(v, kind[0]) for v in value)
    if kind in (float, int):
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole or (kind is float and isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind) if isinstance(kind, type) else value is kind or value == kind


def check_fields(where: str, value: Any, fields: dict[str, Any]) -> None:
    require(isinstance(value, dict), f"{where} is not an object")
    for name, kind in fields.items():
        require(name in value and fits(value[name], kind), f"{where}.{name}: {value.get(name, 'absent')!r}")


NUMBERS, INTERVALS = ("effect", "p", "p_adjusted", "p_equivalence", "level"), ("interval", "decision_interval")
QUESTION = {"metric": str, "direction": ("higher", "lower"), "control": str, "alpha": float, "margin": (float, None)}
QUESTION |= {"relative": bool, "tasks": ("sample", "fixed"), "seeds": ("nested", "crossed", "fixed", None)}
QUESTION |= {"bounds": ([float], None), "failure_score": (float, None), "ties": ("half", "full"), "family": dict}
QUESTION |= {"cluster": (str, None), "level_share": float}
EXTRAS = {"resamples": int, "widening": (dict, None)}
ROW = {"arm": str, "task": str, "seed": (str, float, None), "rollout": (str, float), "group": (str, float, None)}
ROW |= {"state": ("scored", "failed", "missing"), "value": (float, None)}
DECISION = {"candidate": str, "control": str, "verdict": str, "reason": (str, None), "unit": str, "n": int, "test": str}
DECISION |= dict.fromkeys(NUMBERS, (float, None)) | dict.fromkeys(INTERVALS, ([(float, None)], None))
REASONS = (None, "too_few", "seed_has_no_effect", "missing", "cluster", "too_few_for_equivalence")


def digest(certificate: dict[str, Any]) -> str:
    """The sha256 of a certificate's question, rows and decisions."""
    part = {name: certificate[name] for name in ("question", "rows", "decisions")}
    return hashlib.sha256(json.dumps(part, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read(path: str) -> dict[str, Any]:
    """Read a certificate and check its form."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Stop(2, str(error)) from error
    check_fields("certificate", data, {"certificate": int, "bakeoff": str, "sha256": str, "question": dict})
    require(data["certificate"] == 1, "the version is not 1")
    q = data["question"]
    check_fields("question", q, QUESTION | {name: kind for name, kind in EXTRAS.items() if name in q})
    for name, fields in (("rows", ROW), ("decisions", DECISION)):
        require(isinstance(data.get(name), list) and data[name], f"{name} is not a list, or is empty")
        for i, item in enumerate(data[name]):
            check_fields(f"{name}[{i}]", item, fields)
    check_fields("question.family", q["family"], {"m": int, "comparisons": list})
    pairs, factors = q["family"]["comparisons"], q.get("widening") or WIDENING
    require(pairs and all(fits(pair, [str]) for pair in pairs), "question.family.comparisons: not pairs of arms")
    require(0 < q["alpha"] < 0.5 and 0 < q["level_share"] <= 1, "question: alpha or level_share out of range")
    require(q.get("resamples", 1) > 0, "question.resamples is not above 0")
    require(q["margin"] is None or q["margin"] > 0, "question.margin is not above 0")
    require(not q["bounds"] or q["bounds"][0] < q["bounds"][1], "question.bounds are not in order")
    require(set(factors) == set(WIDENING) and all(fits(f, float) for f in factors.values()), "question.widening")
    keys = [(row["arm"], row["task"], row["seed"], row["rollout"]) for row in data["rows"]]
    require(len(set(keys)) == len(keys), "rows: a run occurs twice")
    require(len({row["seed"] is None for row in data["rows"]}) == 1, "rows: only some have a seed")
    require({arm for pair in pairs for arm in pair} <= {key[0] for key in keys}, "rows: an arm of the family has none")
    for d in data["decisions"]:
        require([d["candidate"], d["control"]] in pairs, f"decisions: {d['candidate']!r} is not in the family")
    return data


def check(data: dict[str, Any], notes: set[str]) -> list[str]:
    """Recompute every decision, print it, and return what differs."""
    q, differences = data["question"], []
    pairs = q["family"]["comparisons"]
    open_ = [f"question.{name}" for name in sorted(set(q) - set(QUESTION) - set(EXTRAS))]
    open_ += [f"the reason {d['reason']!r}" for d in data["decisions"] if d["reason"] not in REASONS]
    table = Table(q, data["rows"])
    if digest(data) != data["sha256"]:
        return [f"sha256 {data['sha256']}, recomputed {digest(data)}"]
    if open_:
        raise Stop(3, open_[0])
    every = len(table.arms) * (len(table.arms) - 1) // 2 if any(c != q["control"] for _, c in pairs) else 1
    if table.m < max(every, len(pairs)):
        return [f"question.family.m {table.m}, at least {max(every, len(pairs))}"]
    results = recompute(table, notes)
    for d in data["decisions"]:
        name, variants = f"{d['candidate']} vs {d['control']}", results[pairs.index([d["candidate"], d["control"]])]
        print(f"{name}:", *(f"{k} {show(v)}" for k, v in variants[0].items() if k not in INTERVALS))
        differences += [f"{name}: {problem}" for problem in problems(d, variants, table.scale, name, notes)]
    return differences


def show(value: Any) -> str:
    if isinstance(value, list):
        return "..".join(f"{v:.10g}" for v in dict.fromkeys(value))
    return "|".join(map(str, value)) if isinstance(value, set) else str(value)


def problems(d: dict[str, Any], variants: list[dict[str, Any]], scale: float, name: str, notes: set[str]) -> Any:
    """Yield each field of a decision that is not among, or between, those of the recomputed variants."""
    accepted = {(v["verdict"], reason) for v in variants for reason in v["reason"]}
    if (d["verdict"], d["reason"]) not in accepted:
        yield f"verdict {d['verdict']} ({d['reason']}), recomputed {accepted}"
    for k in ("unit", "n", "test", *(["differs"] if "differs" in d else [])):
        if d[k] not in [v.get(k) for v in variants]:
            yield f"{k} {d[k]}, recomputed {variants[0].get(k)}"
    values = {k: d[k] for k in NUMBERS}
    for k in INTERVALS:
        for i, infinite in enumerate((-math.inf, math.inf)):
            values[f"{k}[{i}]"] = d[k] and (infinite if d[k][i] is None else d[k][i])
    for k, value in values.items():
        ranges = [v[k] for v in variants if v.get(k)]
        low, high = min((r[0] for r in ranges), default=None), max((r[1] for r in ranges), default=None)
        if value is None or low is None:
            if value is not low:
                yield f"{k} {value}, recomputed {show(variants[0].get(k))}"
            continue
        tolerance = 1e-6 * scale if k == "effect" or "interval" in k else max(1e-9, 1e-6 * abs(value))
        if not low - tolerance <= value <= high + tolerance:
            yield f"{k} {value!r}, recomputed {show([low, high])}"
        if any(r != ranges[0] for r in ranges):
            notes.add(f"{k} of {name}: compared within Monte Carlo error, {show([low, high])}")


def main(arguments: list[str]) -> int:
    notes: set[str] = set()
    try:
        require(len(arguments) == 1, "usage: verify.py v.json")
        differences = check(read(arguments[0]), notes)
    except Stop as stop:
        code, reason = stop.args
        print(f"{'not a certificate' if code == 2 else 'cannot be recomputed'}: {reason}")
        return int(code)
    except ArithmeticError as error:
        print(f"cannot be recomputed: {error}")
        return 3
    for line in [f"not recomputed exactly: {n}" for n in sorted(notes)] + [f"differs: {d}" for d in differences]:
        print(line)
    return 1 if differences else 3 if notes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
