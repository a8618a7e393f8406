"""From tests to verdicts: Holm over the family, one interval for each decision, and a reason where there is none.

Everything here is read off `Test` objects, so a verdict, its adjusted p and its decision interval cannot contradict
one another: p_adjusted <= alpha exactly when the decision interval excludes 0, and the same for equivalence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from numpy.typing import ArrayLike

from bakeoff.stats.bootstrap import studentized_mean
from bakeoff.stats.evidence import Test
from bakeoff.stats.interval import Interval
from bakeoff.stats.multiplicity import Holm, holm
from bakeoff.stats.vectors import Seed, is_constant, probability, vector

Word = Literal["better", "worse", "equivalent", "undecided"]
Reason = Literal["", "inconclusive", "too_few", "seed_has_no_effect", "missing", "not_final"]
CAMPAIGN_WORDS: dict[Word, str] = {
    "better": "statistically_significant_improvement",
    "worse": "significant_degradation",
    "equivalent": "insufficient_statistical_evidence",
    "undecided": "insufficient_statistical_evidence",
}
LEAST_UNITS = 3


@dataclass(frozen=True, slots=True)
class Decision:
    """One comparison's verdict inside its family.

    `interval` has level 1 - alpha and ignores the family; `decision_interval` has level 1 - a_k and is the one that
    excludes 0 exactly when p_adjusted <= alpha; `equivalence_interval` has level 1 - 2 a_k of the equivalence family
    and lies inside an absolute margin exactly when p_eq_adjusted <= alpha (None for a relative one). The p fields are None when there was nothing to
    test. `differs` marks an equivalent pair that nevertheless differs significantly.
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


def undecided(reason: Reason, n: int = 0) -> Decision:
    """A comparison that could not be tested, with the reason."""
    return Decision("undecided", reason, n=n)


def decide(tests: Sequence[Test | Decision], alpha: float = 0.05, simultaneous: bool = False) -> tuple[Decision, ...]:
    """Verdicts of a family of comparisons; Holm over p, and separately over p_eq of those that have a margin.

    An entry that is already a Decision (`undecided("seed_has_no_effect")`) keeps its place and counts in m, so an
    arm that could not be tested does not make the others easier. `simultaneous` gives every decision interval the
    level 1 - alpha/m: wider than the verdict needs, but valid for all comparisons at once.
    """
    probability(alpha, "alpha")
    screened = [_screen(t) for t in tests]
    over_p = holm([t.p if isinstance(t, Test) else 1.0 for t in screened], alpha)
    with_margin = [i for i, t in enumerate(screened) if isinstance(t, Decision) or t.p_eq is not None]
    over_eq = holm([_p_eq(screened[i]) for i in with_margin], alpha)
    place = {i: k for k, i in enumerate(with_margin)}
    out: list[Decision] = []
    for i, t in enumerate(screened):
        if isinstance(t, Decision):
            out.append(t)
            continue
        decision = _decide_one(t, over_p, i, over_eq, place.get(i), alpha)
        if simultaneous:
            decision = replace(decision, decision_interval=t.interval(1.0 - alpha / len(screened)))
        out.append(decision)
    return tuple(out)


def _screen(test: Test | Decision) -> Test | Decision:
    """Fewer than three units decide nothing, whatever they show."""
    if isinstance(test, Test) and test.n < LEAST_UNITS:
        return undecided("too_few", test.n)
    return test


def _p_eq(test: Test | Decision) -> float:
    return test.p_eq if isinstance(test, Test) and test.p_eq is not None else 1.0


def _decide_one(test: Test, over_p: Holm, i: int, over_eq: Holm, k: int | None, alpha: float) -> Decision:
    equivalent = k is not None and over_eq.rejected[k]
    word = _word(test, over_p.rejected[i], equivalent)
    level, level_eq = over_p.levels[i], over_eq.levels[k] if k is not None else None
    reason: Reason = "" if word != "undecided" else "inconclusive"
    corners = test.corners
    if len(corners) > 1:
        words = {_word(c, c.p <= level, _equivalent_at(c, level_eq)) for c in corners}
        if words != {word}:
            word, reason = "undecided", "missing"
    return Decision(
        verdict=word,
        reason=reason,
        effect=test.effect,
        p=test.p,
        p_adjusted=over_p.adjusted[i],
        p_eq=test.p_eq,
        p_eq_adjusted=None if k is None else over_eq.adjusted[k],
        interval=test.interval(1.0 - alpha),
        decision_interval=test.interval(1.0 - level),
        equivalence_interval=_equivalence_interval(test, level_eq),
        differs=word == "equivalent" and over_p.rejected[i],
        identical=test.effect == 0.0 and test.p == 1.0 and _is_point(test),
        method=test.method,
        assumes=test.assumes,
        floor=test.floor,
        n=test.n,
    )


def _equivalence_interval(test: Test, level: float | None) -> Interval | None:
    if level is None or test.margin is None or 2.0 * level >= 1.0:
        return None
    return test.interval(1.0 - 2.0 * level)


def _equivalent_at(test: Test, level: float | None) -> bool:
    return level is not None and test.p_eq is not None and test.p_eq <= level


def _word(test: Test, different: bool, equivalent: bool) -> Word:
    """Equivalence first: the margin is the user's word for too small to matter."""
    if equivalent:
        return "equivalent"
    if not different:
        return "undecided"
    # The side that was rejected, not the estimate's sign: with skewed data the two need not be the same.
    return "better" if test.evidence.greater(0.0) <= test.evidence.less(0.0) else "worse"


def _is_point(test: Test) -> bool:
    """All differences zero: the interval at a low level is the single value 0."""
    narrow = test.interval(0.5)
    return narrow.low == narrow.high == 0.0


def seed_has_no_effect(*arms: ArrayLike) -> bool:
    """Whether every arm is constant over its seeds (each a vector of at least 2 values): copies are not replicates."""
    vectors = [vector(arm, "arm") for arm in arms]
    return all(v.size >= 2 and is_constant(v) for v in vectors)


@dataclass(frozen=True, slots=True)
class SkewCheck:
    """The studentized-bootstrap interval beside the decision's own; it warns and does not vote."""

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
