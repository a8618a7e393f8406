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
from bakeoff.stats.evidence import Evidence, Grouped, Guarded, Interval, Test, Widened, monotone_tails, with_margin
from bakeoff.stats.incomplete import connected_blocks, incomplete_table, mean_over_tasks, seed_values, task_means
from bakeoff.stats.numerics import Array, Seed, is_constant, mean, probability, vector
from bakeoff.stats.permutation import DRAWS, EXACT_UNITS, SignFlip, Splits, Unpaired
from bakeoff.stats.ttests import (
    TStatistic,
    blocks_t,
    crossed_t,
    one_sample_t,
    runs_t,
    seeds_over_tasks_t,
    stratified_paired_t,
    stratified_t,
)

Word = Literal["better", "worse", "equivalent", "undecided"]
Reason = Literal[
    "", "inconclusive", "too_few", "too_few_for_equivalence", "too_few_for_statistic", "unconnected", "seed_has_no_effect", "missing", "not_final",
    "looked", "exploratory", "cluster", "continue", "max_seeds", "futility",
]  # fmt: skip
"""Why there is no verdict. The last three are of sequential tests: more pairs may bring one, the planned end was reached,
and the pairs that are left would hardly decide."""
CAMPAIGN_WORDS: dict[Word, str] = {
    "better": "statistically_significant_improvement",
    "worse": "significant_degradation",
    "equivalent": "insufficient_statistical_evidence",
    "undecided": "insufficient_statistical_evidence",
}
GUARDED_UNITS = 8
"""From here on a bootstrap of the units says something about their skew."""
WIDER_FOR_SKEW = {3: 1.9, 4: 1.7, 5: 1.6, 6: 1.5, 7: 1.45}
"""Below 8 units: how many times as wide an interval must be that asks about a point other than 0, at a level of .05.

With these, exponential and lognormal (sigma .5) differences of exactly the margin are called equivalent in fewer than 9 %
(15 to 17 % and 12 % without): `python benchmarks/equivalence_factors.py`."""
WIDER_WHEN_HALVED = 0.15
"""What each halving of the level adds to these factors, as a share: far tails are further off (at .01 the plain interval of
5 units has 7 times its level), and with this no level has more than 1.8 times itself."""
WIDER_AT_LOWER_LEVELS = 2.0
"""From 8 units on: this divided by their number is what each halving of the level adds to the width. The bootstrap keeps
9 % at .05, and not at the levels of a family (exponential, 8 pairs, 5 comparisons: 14 % any, and 8 % with this)."""
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
    `guarded` asks it about everything, for one-sided questions about a point other than 0, each at alpha. `strict` flips signs however
    few units there are, and counts ties in full. The other tests below take the same arguments.
    """
    x = vector(d, "d", at_least=2)
    constant = is_constant(x)
    flips = strict or constant or flips_suffice(x.size, alpha, comparisons)
    evidence: Evidence = SignFlip(x, seed, strict) if flips else one_sample_t(x)
    guard = None if constant or x.size < GUARDED_UNITS else lambda: Studentized([x])
    return _guarded(evidence, guard, margin, guarded, _level(alpha, comparisons, guarded))


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
    return _guarded(evidence, guard, margin, guarded, _level(alpha, comparisons, guarded))


def stratified_paired_test(
    strata: Sequence[ArrayLike],
    margin: float | None = None,
    seed: int = 0,
    guarded: bool = False,
    strict: bool = False,
    level: float = 0.05,
) -> Test:
    """Fixed tasks, nested seeds: for each task an array of S_t >= 2 pair differences.

    `level` is what a question about the margin has to hold at: smaller ones need wider intervals (`wider_for_skew`).
    """
    ds = [vector(s, f"task {i}", at_least=2) for i, s in enumerate(strata)]
    constant = all(is_constant(d) for d in ds)
    if strict or constant:
        # Every task weighs the same, whatever its number of seeds.
        weights = np.concatenate([np.full(d.size, 1.0 / d.size) for d in ds])
        evidence: Evidence = SignFlip(np.concatenate(ds), seed, strict, None if _equal_sizes(ds) else weights)
    else:
        evidence = stratified_paired_t(ds)
    guard = None if constant or not _bootstraps(evidence.n, ds) else lambda: Studentized(ds)
    return _guarded(evidence, guard, margin, guarded, level)


def stratified_test(
    a: Sequence[ArrayLike],
    b: Sequence[ArrayLike],
    margin: float | None = None,
    seed: int = 0,
    guarded: bool = False,
    strict: bool = False,
    level: float = 0.05,
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
    return _guarded(evidence, guard, margin, guarded, level)


def crossed_test(
    d: ArrayLike,
    margin: float | None = None,
    seed: int = 0,
    guarded: bool = False,
    alpha: float = 0.05,
    comparisons: int = 1,
) -> Test:
    """Tasks and seeds both samples, crossed: a (tasks, seeds) table of differences, NaN where not run.

    A table that falls apart into blocks which share neither tasks nor seeds has the blocks as its units: `alpha` and
    `comparisons` choose their test.
    """
    x = incomplete_table(d, "d")
    known = x[~np.isnan(x)]
    block = connected_blocks(x)
    if block.max() > 0:
        return groups_test(task_means(x), block, alpha, comparisons, margin, seed, guarded)
    if is_constant(known):
        # Cells of a crossed table are not independent: the smaller margin counts the units.
        return with_margin(SignFlip(np.full(min(x.shape), known[0]), seed), margin)
    guard = None if min(x.shape) < GUARDED_UNITS else lambda: StudentizedCrossed(x)
    return _guarded(crossed_t(x), guard, margin, guarded, _level(alpha, comparisons, guarded))


def runs_test(
    a: ArrayLike, b: ArrayLike, margin: float | None = None, guarded: bool = False, level: float = 0.05
) -> Test:
    """Tasks and the runs of each arm are samples: (tasks, runs) tables of arms that share tasks only, NaN where not run.

    No bootstrap guards the questions about a margin, so they need the interval of 7 units, however many there are.
    """
    x, y = incomplete_table(a, "a"), incomplete_table(b, "b")
    differences = task_means(y) - task_means(x)
    inside = [(arm - task_means(arm)[:, None])[~np.isnan(arm)] for arm in (x, y)]
    if is_constant(differences) and all(is_constant(each) for each in inside):
        return with_margin(SignFlip(np.full(min(len(x), x.shape[1], y.shape[1]), mean(differences))), margin)
    evidence = runs_t(x, y)
    if margin is None and not guarded:
        return with_margin(evidence, margin)
    careful = wider_for_skew(evidence, level, most=GUARDED_UNITS - 1)
    return with_margin(careful if guarded else evidence, margin, careful)


def groups_test(
    d: ArrayLike,
    groups: ArrayLike,
    alpha: float = 0.05,
    comparisons: int = 1,
    margin: float | None = None,
    seed: int = 0,
    guarded: bool = False,
    strict: bool = False,
) -> Test:
    """Groups of tasks as units: sign flips of whole groups, or t for few of them.

    d: the difference of each task, and `groups` the group of each. Every task weighs the same: the mean of some groups is
    the sum of their differences over the number of their tasks. Population: groups like these.
    """
    x = vector(d, "d", at_least=2)
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    sizes = np.bincount(member).astype(np.float64)
    means = np.bincount(member, weights=x) / sizes
    constant = is_constant(means)
    evidence: Evidence
    if strict or constant or flips_suffice(means.size, alpha, comparisons):
        evidence = SignFlip(means, seed, strict, weights=None if len(set(sizes)) == 1 else sizes)
    else:
        evidence = blocks_t(means, sizes)
    guard = None if constant or means.size < GUARDED_UNITS else lambda: Studentized([group_values(x, groups)])
    return _guarded(evidence, guard, margin, guarded, _level(alpha, comparisons, guarded))


def group_values(d: ArrayLike, groups: ArrayLike) -> Array:
    """One value for each group, whose mean is that of all of d and whose spread is that of the weighted group means."""
    x = vector(d, "d")
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    sums, centre = np.bincount(member, weights=x - mean(x)), mean(x)
    return np.asarray(centre + sums * sums.size / x.size)


def seeds_over_tasks_test(
    d: ArrayLike, margin: float | None = None, guarded: bool = False, level: float = 0.05
) -> Test:
    """Fixed tasks, crossed seeds: a (tasks, seeds) table of differences with NaN where not run, 2 seeds or more a task.

    A complete table has one value for each seed, and gets `paired_test`.
    """
    x = incomplete_table(d, "d")
    inside = x - task_means(x)[:, None]
    if is_constant(inside[~np.isnan(x)] + mean_over_tasks(x)):
        return with_margin(SignFlip(np.full(x.shape[1], mean_over_tasks(x))), margin)
    values = seed_values(x)
    guard = None if x.shape[1] < GUARDED_UNITS or is_constant(values) else lambda: Studentized([values])
    return _guarded(seeds_over_tasks_t(x), guard, margin, guarded, level)


def _guarded(
    evidence: Evidence, guard: Callable[[], Evidence] | None, margin: float | None, guarded: bool, level: float
) -> Test:
    """A test whose questions about the margin, or with `guarded` about everything, ask the guard too.

    Below 8 units there is none, and these questions need a wider interval.
    """
    if margin is None and not guarded:
        return with_margin(evidence, margin)
    careful = wider_for_skew(evidence, level)
    if guard is not None:
        careful = Guarded(careful, guard())
        if level < 0.05:
            careful = Widened(careful, 1.0 + WIDER_AT_LOWER_LEVELS / careful.n * math.log2(0.05 / level))
    return with_margin(careful if guarded else evidence, margin, careful)


def _level(alpha: float, comparisons: int, guarded: bool) -> float:
    """The level that a question about the margin has to hold at: Holm's first one, or alpha for those of a gate."""
    return alpha if guarded else alpha / comparisons


def wider_for_skew(evidence: Evidence, level: float = 0.05, most: int = GUARDED_UNITS) -> Evidence:
    """Return what answers about a point other than 0 below 8 units; from there on `evidence` itself.

    `most` is the number that more units count as: 7 where no bootstrap guards them.

    A t statistic has no more units than its degrees of freedom say: where one task has most of the spread, its runs are
    all there is, and a bootstrap of them sees no skew (3 tasks x 3 seeds, sds 1, 1, 10: 12 to 16 % at the margin).
    """
    units = min(evidence.n, most)
    if isinstance(evidence, TStatistic):
        units = min(units, math.floor(evidence.df + 1.0 + 1e-9))
    if units >= GUARDED_UNITS:
        return evidence
    factor = WIDER_FOR_SKEW[max(units, min(WIDER_FOR_SKEW))]
    return Widened(evidence, factor * (1.0 + WIDER_WHEN_HALVED * max(0.0, math.log2(0.05 / level))))


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
    running, failed, level, before = 0.0, 0.0, alpha, -1.0
    for k, i in enumerate(np.argsort(values, kind="stable")):
        if values[i] != before:  # equal p have one level, whatever their order
            level, before = alpha / (m - k), float(values[i])
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

    `interval` has level 1 - alpha / share and ignores the family. `decision_interval` has level 1 - a_k / share
    and excludes 0 exactly when p_adjusted <= alpha. `equivalence_interval` has level 1 - 2 a_k / share of the
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


def decide(
    tests: Sequence[Test | Decision],
    alpha: float = 0.05,
    simultaneous: bool = False,
    shares: Sequence[float] | None = None,
    untested: int = 0,
) -> tuple[Decision, ...]:
    """Verdicts of a family of comparisons: Holm over p, and separately over p_eq of those that have a margin.

    An entry that is already a Decision (undecided, because it could not be tested) keeps its place and counts in m,
    so an arm that could not be tested does not make the others easier; so do `untested` further comparisons that are
    not here. Each p is multiplied by its share (default: 1) before Holm, so a comparison is tested at the level of its
    rank divided by its share, whatever the order of the tests. `simultaneous` gives every decision interval the level
    1 - alpha / m: wider than the verdict needs, but valid for all comparisons at once.
    """
    probability(alpha, "alpha")
    factors = [1.0] * len(tests) if shares is None else list(shares)
    screened = [
        Decision("undecided", "too_few", n=t.evidence.n)
        if isinstance(t, Test) and t.evidence.n < t.evidence.least
        else t
        for t in tests
    ]
    padding = [1.0] * untested
    p = [min(1.0, s * t.p) if isinstance(t, Test) else 1.0 for t, s in zip(screened, factors, strict=True)]
    over_p = holm([*p, *padding], alpha)
    # The equivalence family: tests with a margin, and entries that could not be tested, which count as p_eq = 1.
    p_eq = {i: 1.0 if isinstance(t, Decision) else t.p_eq for i, t in enumerate(screened)}
    family = [i for i, p in p_eq.items() if p is not None]
    over_eq = holm([*(min(1.0, factors[i] * p) for i, p in p_eq.items() if p is not None), *padding], alpha)
    place = {i: k for k, i in enumerate(family)}
    out: list[Decision] = []
    for i, test in enumerate(screened):
        if isinstance(test, Decision):
            out.append(test)
            continue
        decision = _decide_one(test, over_p, i, over_eq, place.get(i), factors[i])
        if simultaneous:
            level = alpha / ((len(screened) + untested) * factors[i])
            decision = replace(decision, decision_interval=test.interval(1.0 - level))
        out.append(decision)
    return tuple(out)


def _decide_one(test: Test, over_p: Holm, i: int, over_eq: Holm, k: int | None, share: float) -> Decision:
    """The verdict of comparison i, which is number k of the equivalence family (None without a margin)."""
    level, level_eq = over_p.levels[i] / share, None if k is None else over_eq.levels[k] / share
    word = _word(test, over_p.rejected[i], k is not None and over_eq.rejected[k])
    reason: Reason = "" if word != "undecided" else "inconclusive"
    if word == "undecided" and level_eq is not None and _only_too_few(test, level_eq):
        reason = "too_few_for_equivalence"
    # With missing runs every filling must lead to the same word; with groups of units, they and their groups must.
    corner_words = {
        _word(c, c.p <= level, level_eq is not None and c.p_eq is not None and c.p_eq <= level_eq) for c in test.corners
    }
    if corner_words - {word}:
        word, reason = "undecided", "cluster" if isinstance(test.evidence, Grouped) else "missing"
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
        interval=test.interval(1.0 - over_p.alpha / share),
        decision_interval=test.interval(1.0 - level),
        equivalence_interval=equivalence,
        differs=word == "equivalent" and over_p.rejected[i],
        identical=test.evidence.identical or (test.p == 1.0 and narrow.low == narrow.high == 0.0),
        method=test.evidence.method,
        assumes=test.evidence.assumes,
        floor=test.evidence.floor,
        n=test.evidence.n,
    )


def _only_too_few(test: Test, level: float) -> bool:
    """Whether the differences would be equivalent at this level if skew could be ruled out."""
    for each in test.corners or (test,):
        if each.lower is None or each.upper is None:
            return False
        below, above = each.lower.evidence, each.upper.evidence
        if not (isinstance(below, Widened) and isinstance(above, Widened) and below.n < GUARDED_UNITS):
            return False
        tails = (
            monotone_tails(below.evidence, each.lower.at).greater,
            monotone_tails(above.evidence, each.upper.at).less,
        )
        if max(tails) > level:
            return False
    return True


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
