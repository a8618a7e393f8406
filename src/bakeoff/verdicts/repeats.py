"""Repeats that are numbered and turn out to be rows of one curve."""

from __future__ import annotations

import shlex
from collections import defaultdict

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.stats.serial import neighbours_alike
from bakeoff.verdicts.observations import Observations

MIN_REPEATS = 10
"""Repeats of one (arm, task, seed) from which on their order is looked at."""
ALPHA = 0.001


def refuse_curves(observations: Observations) -> None:
    """Raise UsageError where neighbouring repeats are more alike than independent ones could be.

    Only the order of a column that numbers the repeats counts. The order of rows says nothing: exports are sorted.
    """
    column = observations.repeats
    if not column:
        return
    groups: dict[tuple[str, str, int | None], list[tuple[int, float]]] = defaultdict(list)
    for row in observations.rows:
        if row.state == "scored" and np.isfinite(row.value):
            groups[row.arm, row.task, row.seed].append((row.rollout, row.value))
    curves = [np.array([value for _, value in sorted(group)]) for group in groups.values() if len(group) >= MIN_REPEATS]
    ratio = neighbours_alike(curves, ALPHA)
    if ratio is not None:
        flag = shlex.quote(column)
        raise UsageError(
            f"{observations.source}: repeats that follow each other in column {column!r} have more similar "
            f"{observations.metric!r} than independent ones could have (von Neumann ratio {ratio:.2f}, 2 expected; p < "
            f"{ALPHA:g}). Say --step-from {flag} if rows are steps of one run, or --ignore {flag} if its order means nothing"
        )
