"""Which test a comparison gets: a function of the number of units, alpha and the number of comparisons, never of data.

Each function takes plain arrays of one design and returns a `Test`. Zero spread is the one exception to the t tests:
there is no t then, and the sign-flip formula, which only counts units, answers in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.binary import paired_binary, unpaired_binary
from bakeoff.stats.evidence import Bound, Evidence, Test, WorstCase, with_margin
from bakeoff.stats.permutation import unpaired
from bakeoff.stats.signflip import SignFlip
from bakeoff.stats.ttests import crossed_t, one_sample_t, stratified_paired_t, stratified_t
from bakeoff.stats.vectors import Array, is_constant, matrix, mean, probability, vector


def flips_suffice(n: int, alpha: float = 0.05, comparisons: int = 1) -> bool:
    """P1 or P2: whether n units give a sign-flip test three steps below alpha/m (7 units for one comparison at .05)."""
    probability(alpha, "alpha")
    if comparisons < 1:
        raise ValueError(f"comparisons must be at least 1, got {comparisons}")
    return n >= 63 or 2.0 ** (n - 1) * alpha / comparisons >= 3.0


def paired_evidence(d: ArrayLike, alpha: float = 0.05, comparisons: int = 1, seed: int = 0) -> Evidence:
    """Sign-flip (P1) from enough units on, t (P2) below; sign-flip too when the differences are constant."""
    x = vector(d, "d", at_least=2)
    if flips_suffice(x.size, alpha, comparisons) or is_constant(x):
        return SignFlip(x, seed)
    return one_sample_t(x)


def paired_test(
    d: ArrayLike, alpha: float = 0.05, comparisons: int = 1, margin: float | None = None, seed: int = 0
) -> Test:
    """Design P: d holds B - A of each independent unit (turned so that larger is better)."""
    return with_margin(paired_evidence(d, alpha, comparisons, seed), margin)


def unpaired_test(
    a: ArrayLike, b: ArrayLike, alpha: float = 0.05, comparisons: int = 1, margin: float | None = None, seed: int = 0
) -> Test:
    """Design U: two independent samples, larger is better."""
    return with_margin(unpaired(a, b, alpha, comparisons, seed), margin)


def binary_paired_test(a: ArrayLike, b: ArrayLike, margin: float | None = None) -> Test:
    """Design B, one pair of 0/1 outcomes for each task."""
    return with_margin(paired_binary(a, b), margin)


def binary_unpaired_test(a: ArrayLike, b: ArrayLike, margin: float | None = None) -> Test:
    """Design B, two independent samples of 0/1 outcomes."""
    return with_margin(unpaired_binary(a, b), margin)


def stratified_paired_test(strata: Sequence[ArrayLike], margin: float | None = None, seed: int = 0) -> Test:
    """Fixed tasks, nested seeds: one array of pair differences (S_t >= 2) for each task."""
    ds = [vector(s, f"task {i}", at_least=2) for i, s in enumerate(strata)]
    if all(is_constant(d) for d in ds):
        return with_margin(SignFlip(_equal_weight(ds), seed), margin)
    return with_margin(stratified_paired_t(ds), margin)


def stratified_test(a: Sequence[ArrayLike], b: Sequence[ArrayLike], margin: float | None = None, seed: int = 0) -> Test:
    """Fixed tasks, rollouts only: for each task an array of A's and one of B's rollouts (K >= 2 each)."""
    xs = [vector(s, f"a, task {i}", at_least=2) for i, s in enumerate(a)]
    ys = [vector(s, f"b, task {i}", at_least=2) for i, s in enumerate(b)]
    if len(xs) == len(ys) and all(is_constant(x) for x in (*xs, *ys)):
        pairs = [np.full(min(x.size, y.size), mean(y) - mean(x)) for x, y in zip(xs, ys, strict=True)]
        return with_margin(SignFlip(_equal_weight(pairs), seed), margin)
    return with_margin(stratified_t(xs, ys), margin)


def crossed_test(d: ArrayLike, margin: float | None = None, seed: int = 0) -> Test:
    """Tasks and seeds both samples, crossed: a complete (tasks x seeds) table of differences."""
    x = matrix(d, "d", rows=2, columns=2)
    if is_constant(x.ravel()):
        return with_margin(SignFlip(np.full(min(x.shape), x[0, 0]), seed), margin)
    return with_margin(crossed_t(x), margin)


def _equal_weight(strata: Sequence[Array]) -> Array:
    """All pair differences in one vector, scaled so that its mean is the mean of the tasks' means."""
    total = sum(d.size for d in strata)
    return np.concatenate([d * (total / (len(strata) * d.size)) for d in strata])


def worst_case(tests: Sequence[Test]) -> Test:
    """Several fillings of the missing runs as one Test: largest p on each side, hull of the intervals."""
    if not tests:
        raise ValueError("worst_case needs at least one test")
    if len(tests) == 1:
        return tests[0]
    evidence = WorstCase(tuple(t.evidence for t in tests))
    margin = tests[0].margin
    if margin is not None:
        return with_margin(evidence, margin)
    lower, upper = _bounds([t.lower for t in tests]), _bounds([t.upper for t in tests])
    return Test(evidence, lower, upper)


def _bounds(bounds: Sequence[Bound | None]) -> Bound | None:
    known = [b for b in bounds if b is not None]
    if len(known) < len(bounds):
        return None
    return Bound(WorstCase(tuple(b.evidence for b in known)), known[0].at)
