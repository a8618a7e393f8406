"""The e-process of one comparison: evidence after each difference in the order of planning, and a confidence sequence.

Lost runs are put at both ends of what they could have been, and evidence counts at the worse of the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats.evidence import Interval, unbounded
from bakeoff.stats.sequential import SequentialRule, confidence_sequence


@dataclass(frozen=True, slots=True)
class Paths:
    """log e after each pair: for better, for worse and, with a margin, for 'above -margin' and 'below +margin'."""

    better: Array
    worse: Array
    above: Array | None = None
    below: Array | None = None


def evidence(low: Array, high: Array, rule: SequentialRule) -> tuple[Paths, Interval, float]:
    """Paths with lost runs at the worse end of the two, the hull of the confidence sequences, the highest log e."""
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
