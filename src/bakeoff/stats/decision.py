"""From arrays to verdicts: which test a design gets, Holm over the family, and a reason where there is no verdict.

    tests = [paired_test(d, alpha=0.05, comparisons=2, margin=0.1) for d in differences]
    for decision in decide(tests, alpha=0.05):
        decision.verdict, decision.p_adjusted, decision.decision_interval

The choice of test is a function of the number of units, alpha and the number of comparisons, never of the
values; see docs/compare.md. Everything else is read off `Test` objects, so a verdict, its adjusted p and
its decision interval cannot contradict one another: p_adjusted <= alpha exactly when the decision interval
excludes 0, and the same for equivalence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.bootstrap import Studentized, StudentizedCrossed, studentized_mean
from bakeoff.stats.evidence import Evidence, Guarded, Interval, Test, with_margin
from bakeoff.stats.numerics import Array, Seed, is_constant, matrix, mean, probability, vector
from bakeoff.stats.permutation import DRAWS, EXACT_UNITS, SignFlip, Splits, Unpaired
from bakeoff.stats.ttests import crossed_t, one_sample_t, stratified_paired_t, stratified_t

Word = Literal["better", "worse", "equivalent", "undecided"]
Reason = Literal["", "inconclusive", "too_few", "seed_has_no_effect", "missing", "not_final", "looked"]
CAMPAIGN_WORDS: dict[Word, str] = {
    "better": "statistically_significant_improvement",
    "worse": "significant_degradation",
    "equivalent": "insufficient_statistical_evidence",
    "undecided": "insufficient_statistical_evidence",
}
GUARDED_UNITS = 8
"""From here on a bootstrap of the units says something about their skew."""
MOST_GUARDED_TASKS = 200
"""Fixed tasks up to which a bootstrap guards equivalence; 200 tasks have 400 units or more."""


# Which test. A t test needs spread; without any, the sign-flip test, which only counts units, answers in its place.


def flips_suffice(n: int, alpha: float = 0.05, comparisons: int = 1) -> bool:
    """Whether the sign-flip test of n units has three steps below alpha / m: 2^(n-1) alpha / m >= 3.

    7 units for one comparison at .05. Fewer units get a t test, because sign flips could hardly reject; so do families
    of more than 833 comparisons with over 20 units, where 99,999 random patterns have too few steps.
    """
    probability(alpha, "alpha")
    if comparisons < 1:
        raise ValueError(f"comparisons must be at least 1, got {comparisons}")
    # Beyond EXACT_UNITS only so many patterns are drawn, and the smallest p is a share of them.
    patterns = 2.0**n if n <= EXACT_UNITS else DRAWS + 1.0
    return patterns / 2.0 * alpha / comparisons >= 3.0


def paired_test(
    d: ArrayLike,
    alpha: float = 0.05,
    comparisons: int = 1,
    margin: float | None = None,
    seed: int = 0,
    guarded: bool = False,
    strict: bool = False,
) -> Test:
    """Sign flips, or t for few units.

    d, shape (n,): B - A of each independent unit, turned so that larger is better. The question whether they are
    equivalent asks the studentized bootstrap too, from 8 units on: away from 0 a symmetric test is wrong under skew.
    `guarded` asks it about everything, for one-sided questions about a point other than 0. `strict` flips signs however
    few units there are, and counts ties in full. The other tests below take the same arguments.
    """
    x = vector(d, "d", at_least=2)
    constant = is_constant(x)
    flips = strict or constant or flips_suffice(x.size, alpha, comparisons)
    evidence: Evidence = SignFlip(x, seed, strict) if flips else one_sample_t(x)
    guard = None if constant or x.size < GUARDED_UNITS else lambda: Studentized([x])
    return _guarded(evidence, guard, margin, guarded)


def unpaired_test(
    a: ArrayLike,
    b: ArrayLike,
    alpha: float = 0.05,
    comparisons: int = 1,
    margin: float | None = None,
    seed: int = 0,
    guarded: bool = False,
    strict: bool = False,
) -> Test:
    """The larger of permutation and Welch p; `strict` asks the permutation test alone.

    a, b: two independent samples of at least 2, larger is better. The bootstrap needs 8 units in the smaller arm.
    """
    x, y = vector(a, "a", at_least=2), vector(b, "b", at_least=2)
    evidence = Splits([x], [y], seed) if strict else Unpaired(x, y, alpha, comparisons, seed)
    constant = is_constant(x) and is_constant(y)
    guard = None if constant or evidence.n < GUARDED_UNITS else lambda: Studentized([y], [x])
    return _guarded(evidence, guard, margin, guarded)


def stratified_paired_test(
    strata: Sequence[ArrayLike],
    margin: float | None = None,
    seed: int = 0,
    guarded: bool = False,
    strict: bool = False,
) -> Test:
    """Fixed tasks, nested seeds: for each task an array of S_t >= 2 pair differences."""
    ds = [vector(s, f"task {i}", at_least=2) for i, s in enumerate(strata)]
    constant = all(is_constant(d) for d in ds)
    if strict or constant:
        # Every task weighs the same, whatever its number of seeds.
        weights = np.concatenate([np.full(d.size, 1.0 / d.size) for d in ds])
        evidence: Evidence = SignFlip(np.concatenate(ds), seed, strict, None if _equal_sizes(ds) else weights)
    else:
        evidence = stratified_paired_t(ds)
    guard = None if constant or not _bootstraps(evidence.n, ds) else lambda: Studentized(ds)
    return _guarded(evidence, guard, margin, guarded)


def stratified_test(
    a: Sequence[ArrayLike],
    b: Sequence[ArrayLike],
    margin: float | None = None,
    seed: int = 0,
    guarded: bool = False,
    strict: bool = False,
) -> Test:
    """Fixed tasks, rollouts only: for each task an array of A's and one of B's rollouts (at least 2 each)."""
    xs = [vector(s, f"a, task {i}", at_least=2) for i, s in enumerate(a)]
    ys = [vector(s, f"b, task {i}", at_least=2) for i, s in enumerate(b)]
    constant = len(xs) == len(ys) and all(is_constant(x) for x in (*xs, *ys))
    if strict:
        evidence: Evidence = Splits(xs, ys, seed)
    elif constant:
        # As many copies of the constant difference as the smaller arm has rollouts.
        pairs = [np.full(min(x.size, y.size), mean(y) - mean(x)) for x, y in zip(xs, ys, strict=True)]
        weights = np.concatenate([np.full(d.size, 1.0 / d.size) for d in pairs])
        evidence = SignFlip(np.concatenate(pairs), seed, weights=None if _equal_sizes(pairs) else weights)
    else:
        evidence = stratified_t(xs, ys)
    guard = None if constant or not _bootstraps(evidence.n, xs) else lambda: Studentized(ys, xs)
    return _guarded(evidence, guard, margin, guarded)


def crossed_test(d: ArrayLike, margin: float | None = None, seed: int = 0, guarded: bool = False) -> Test:
    """Tasks and seeds both samples, crossed: a complete (tasks, seeds) table of differences."""
    x = matrix(d, "d", rows=2, columns=2)
    if is_constant(x.ravel()):
        # Cells of a crossed table are not independent: the smaller margin counts the units.
        return with_margin(SignFlip(np.full(min(x.shape), x[0, 0]), seed), margin)
    guard = None if min(x.shape) < GUARDED_UNITS else lambda: StudentizedCrossed(x)
    return _guarded(crossed_t(x), guard, margin, guarded)


def _guarded(evidence: Evidence, guard: Callable[[], Evidence] | None, margin: float | None, guarded: bool) -> Test:
    """A test whose questions about the margin, or with `guarded` about everything, ask the guard too."""
    if guard is None or (margin is None and not guarded):
        return with_margin(evidence, margin)
    both = Guarded(evidence, guard())
    return with_margin(both if guarded else evidence, margin, both)


def _bootstraps(units: int, strata: Sequence[Array]) -> bool:
    """From 8 units on, up to so many tasks that their mean is normal whatever the skew."""
    return units >= GUARDED_UNITS and len(strata) <= MOST_GUARDED_TASKS


def _equal_sizes(strata: Sequence[Array]) -> bool:
    return len({d.size for d in strata}) == 1


def seed_has_no_effect(*arms: ArrayLike) -> bool:
    """Whether every arm is constant over its seeds (each a vector of at least 2 values): copies are not replicates."""
    vectors = [vector(arm, "arm") for arm in arms]
    return all(v.size >= 2 and is_constant(v) for v in vectors)


# Several comparisons at once.


@dataclass(frozen=True, slots=True)
class Holm:
    """Holm's step-down procedure over m p-values, in the order given.

    `levels[i]` is a_k = alpha / (m-k+1), the level at which hypothesis i was tested; one that was not
    rejected has the level of the first failure. Invariants: rejected[i] iff p[i] <= levels[i] iff
    adjusted[i] <= alpha.
    """

    adjusted: tuple[float, ...]
    levels: tuple[float, ...]
    rejected: tuple[bool, ...]
    alpha: float


def holm(p: ArrayLike, alpha: float = 0.05) -> Holm:
    """Bound the chance of any false rejection among the hypotheses by alpha, whatever their dependence (Holm 1979)."""
    values = _p_values(p)
    probability(alpha, "alpha")
    m = values.size
    adjusted, levels, rejected = [1.0] * m, [alpha] * m, [False] * m
    running, failed = 0.0, 0.0
    for k, i in enumerate(np.argsort(values, kind="stable")):
        level = alpha / (m - k)
        running = max(running, min(1.0, (m - k) * float(values[i])))
        rejected[i] = failed == 0.0 and float(values[i]) <= level
        if not rejected[i]:
            failed = failed or level
        levels[i] = level if rejected[i] else failed
        # (m - k) p and alpha / (m - k) round differently: the rejection decides, and the adjusted p follows it.
        adjusted[i] = min(running, alpha) if rejected[i] else max(running, math.nextafter(alpha, 1.0))
    return Holm(tuple(adjusted), tuple(levels), tuple(rejected), alpha)


def benjamini_hochberg(p: ArrayLike) -> tuple[float, ...]:
    """Adjusted p that bound the expected share of false discoveries (Benjamini and Hochberg, JRSS B 1995).

    For independent or positively dependent tests.
    """
    values = _p_values(p)
    m = values.size
    order = np.argsort(values, kind="stable")
    scaled = values[order] * m / np.arange(1, m + 1)
    adjusted = np.empty(m)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return tuple(float(v) for v in adjusted)


def _p_values(p: ArrayLike) -> Array:
    values = np.atleast_1d(np.asarray(p, dtype=np.float64))
    if values.ndim != 1 or not ((values >= 0.0) & (values <= 1.0)).all():
        raise ValueError("p-values must be a vector of numbers between 0 and 1")
    return values


@dataclass(frozen=True, slots=True)
class Decision:
    """One comparison's verdict inside its family.

    `interval` has level 1 - alpha and ignores the family. `decision_interval` has level 1 - a_k and
    excludes 0 exactly when p_adjusted <= alpha. `equivalence_interval` has level 1 - 2 a_k of the
    equivalence family and lies inside an absolute margin exactly when p_eq_adjusted <= alpha (None for a
    relative margin). The p fields are None when there was nothing to test. `differs` marks an equivalent
    pair that nevertheless differs significantly; `identical` one that never differs.
    """

    verdict: Word
    reason: Reason
    effect: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    p_eq: float | None = None
    p_eq_adjusted: float | None = None
    interval: Interval | None = None
    decision_interval: Interval | None = None
    equivalence_interval: Interval | None = None
    differs: bool = False
    identical: bool = False
    method: str = ""
    assumes: str = ""
    floor: float | None = None
    n: int = 0


def decide(tests: Sequence[Test | Decision], alpha: float = 0.05, simultaneous: bool = False) -> tuple[Decision, ...]:
    """Verdicts of a family of comparisons: Holm over p, and separately over p_eq of those that have a margin.

    An entry that is already a Decision (undecided, because it could not be tested) keeps its place and counts in m,
    so an arm that could not be tested does not make the others easier. `simultaneous` gives every decision
    interval the level 1 - alpha / m: wider than the verdict needs, but valid for all comparisons at once.
    """
    probability(alpha, "alpha")
    screened = [
        Decision("undecided", "too_few", n=t.evidence.n)
        if isinstance(t, Test) and t.evidence.n < t.evidence.least
        else t
        for t in tests
    ]
    over_p = holm([t.p if isinstance(t, Test) else 1.0 for t in screened], alpha)
    # The equivalence family: tests with a margin, and entries that could not be tested, which count as p_eq = 1.
    p_eq = {i: 1.0 if isinstance(t, Decision) else t.p_eq for i, t in enumerate(screened)}
    family = [i for i, p in p_eq.items() if p is not None]
    over_eq = holm([p for p in p_eq.values() if p is not None], alpha)
    place = {i: k for k, i in enumerate(family)}
    out: list[Decision] = []
    for i, test in enumerate(screened):
        if isinstance(test, Decision):
            out.append(test)
            continue
        decision = _decide_one(test, over_p, i, over_eq, place.get(i), alpha)
        if simultaneous:
            decision = replace(decision, decision_interval=test.interval(1.0 - alpha / len(screened)))
        out.append(decision)
    return tuple(out)


def _decide_one(test: Test, over_p: Holm, i: int, over_eq: Holm, k: int | None, alpha: float) -> Decision:
    """The verdict of comparison i, which is number k of the equivalence family (None without a margin)."""
    level, level_eq = over_p.levels[i], None if k is None else over_eq.levels[k]
    word = _word(test, over_p.rejected[i], k is not None and over_eq.rejected[k])
    reason: Reason = "" if word != "undecided" else "inconclusive"
    # With missing runs every filling must lead to the same word.
    corner_words = {
        _word(c, c.p <= level, level_eq is not None and c.p_eq is not None and c.p_eq <= level_eq) for c in test.corners
    }
    if corner_words - {word}:
        word, reason = "undecided", "missing"
    equivalence = None
    if level_eq is not None and 2.0 * level_eq < 1.0:
        equivalence = test.equivalence_interval(1.0 - 2.0 * level_eq)
    narrow = test.interval(0.5)  # a single point when every difference is the same
    return Decision(
        verdict=word,
        reason=reason,
        effect=test.evidence.effect,
        p=test.p,
        p_adjusted=over_p.adjusted[i],
        p_eq=test.p_eq,
        p_eq_adjusted=None if k is None else over_eq.adjusted[k],
        interval=test.interval(1.0 - alpha),
        decision_interval=test.interval(1.0 - level),
        equivalence_interval=equivalence,
        differs=word == "equivalent" and over_p.rejected[i],
        identical=test.evidence.identical or (test.p == 1.0 and narrow.low == narrow.high == 0.0),
        method=test.evidence.method,
        assumes=test.evidence.assumes,
        floor=test.evidence.floor,
        n=test.evidence.n,
    )


def _word(test: Test, different: bool, equivalent: bool) -> Word:
    """Equivalence comes first: the margin is the user's word for 'too small to matter'."""
    if equivalent:
        return "equivalent"
    if not different:
        return "undecided"
    # The side that was rejected, not the estimate's sign: with skewed data the two can differ.
    zero = test.evidence.tails(0.0)
    return "better" if zero.greater <= zero.less else "worse"


@dataclass(frozen=True, slots=True)
class SkewCheck:
    """The studentized-bootstrap interval beside the decision's own: a warning that does not change the verdict."""

    interval: Interval
    sensitive: bool


def skew_check(d: ArrayLike, decided: Interval, resamples: int = 9_999, seed: Seed = 0) -> SkewCheck | None:
    """Bootstrap interval at `decided`'s level for N >= 8 differences; None below 8 units or without spread.

    `sensitive` when the two intervals disagree about 0.
    """
    x = vector(d, "d")
    if x.size < 8 or is_constant(x):
        return None
    low, high = studentized_mean(x, level=decided.level, resamples=resamples, seed=seed)
    interval = Interval(low, high, decided.level)
    return SkewCheck(interval, interval.contains(0.0) != decided.contains(0.0))
