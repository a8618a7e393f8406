"""64-bit hashing: how many pieces of evidence a call finds, and whether a workflow has seen enough.

Both depend on nothing but seed, workflow, iteration, PDF and subquery, so every policy meets the same workload.
"""

from __future__ import annotations

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15
_DECIDE = 0xD1B54A32D192ED03


def mix(x: int) -> int:
    """The finalizer of SplitMix64: every bit of the input moves about half of the output's."""
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def evidence(seed: int, workflow: int, iteration: int, pdf: int, subquery: int) -> int:
    """Pieces of evidence, 0 to 3."""
    return mix((seed ^ workflow << 32 ^ iteration * GOLDEN ^ pdf << 8 ^ subquery) & MASK) % 4


def stops(seed: int, workflow: int, iteration: int, pdfs: int, subqueries: int) -> bool:
    """Whether the evidence of this iteration is enough, or nearly enough and the coin says so."""
    total = covered = 0
    for pdf in range(pdfs):
        found = sum(evidence(seed, workflow, iteration, pdf, subquery) for subquery in range(subqueries))
        total += found
        covered += found > 0
    coverage = covered / max(1, pdfs)
    confidence = min(1.0, total / max(1, pdfs * max(1, subqueries) * 2))
    if coverage >= 0.60 and confidence >= 0.50:
        return True
    coin = (mix((seed ^ workflow << 1 ^ iteration * _DECIDE) & MASK) & 0xFFFF) / 65535
    return coverage >= 0.45 and confidence >= 0.35 and coin > 0.70
