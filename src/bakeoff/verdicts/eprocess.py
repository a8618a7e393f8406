"""The e-process of one comparison: differences in the order of planning, evidence after each, and a confidence sequence.

Lost runs are put at both ends of what they could have been, and evidence counts at the worse of the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats.evidence import Interval, unbounded
from bakeoff.stats.sequential import SequentialRule, confidence_sequence
from bakeoff.verdicts.design import Design
from bakeoff.verdicts.testing import sides


@dataclass(frozen=True, slots=True)
class Paths:
    """log e after each pair: for better, for worse and, with a margin, for 'above -margin' and 'below +margin'."""

    better: Array
    worse: Array
    above: Array | None = None
    below: Array | None = None


def has_pairs(design: Design) -> bool:
    """Whether there is one difference for each seed or task: what an e-process needs."""
    if design.kind == "fixed seeds":
        return len(design.control) == len(design.tasks) * len(design.seeds)
    return design.kind in ("seeds", "seeds over tasks", "tasks")


def ends(design: Design, order: tuple[int | None, ...]) -> tuple[Array, Array]:
    """The control's value of each seed in this order, with lost runs at the bad end, and with them at the good end."""
    table = replace(design, kind="seeds over tasks", seeds=order)
    return sides(table, "bad", "bad")[0][0], sides(table, "good", "good")[0][0]


def differences(design: Design, order: tuple[Any, ...]) -> tuple[Array, Array]:
    """B - A of each unit in this order of seeds or tasks, with lost runs adverse to B, and with them adverse to A."""
    if design.unit == "seed":
        # One seed on every task is one pair, whether or not seeds are crossed: each is run once on all of them.
        design, places = replace(design, kind="seeds over tasks", seeds=order), list(range(len(order)))
    else:
        known = list(dict.fromkeys(task for task, _ in design.control))
        places = [known.index(task) for task in order]
    (a_good,), (b_bad,) = sides(design, "good", "bad")
    (a_bad,), (b_good,) = sides(design, "bad", "good")
    return (b_bad - a_good)[places], (b_good - a_bad)[places]


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
