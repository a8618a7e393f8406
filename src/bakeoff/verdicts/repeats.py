"""Repeats that are numbered and turn out to be rows of one curve, and seeds that are ranks."""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.stats.serial import neighbours_alike
from bakeoff.verdicts.observations import Observations

MIN_REPEATS = 10
"""Repeats of one (arm, task, seed) from which on their order is looked at."""
ALPHA = 0.001
MAX_CHANCE = 1e-6
"""Chance that values happen to be sorted along the seeds of every arm and task, above which nothing is said."""
MAX_BEND = 0.03
"""Distance from a straight line, as a share of the range, up to which values are computed from the seed."""


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


def refuse_ranks(observations: Observations) -> None:
    """Raise UsageError where the seeds of a table number the values of every arm from the largest or smallest on.

    Whoever sorts each arm's scores and numbers the rows afterwards pairs the best with the best: the differences are small
    and have one sign, and 40 to 50 % of equal arms get a verdict.
    """
    if observations.declared is not None or len(observations.arms) < 2:
        return
    groups: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in observations.rows:
        if row.state == "scored" and row.seed is not None:
            groups[row.arm, row.task][row.seed] = row.value
    log_chance, directions, computed = 0.0, set(), True
    for values in groups.values():
        first = min(values)
        if first not in (0, 1) or max(values) - first + 1 != len(values):
            return
        ordered = np.array([values[seed] for seed in sorted(values)])
        steps = np.diff(ordered)
        if (steps > 0).any() and (steps < 0).any():
            return
        directions |= set(np.sign(steps).tolist()) - {0.0}
        spread = float(np.ptp(ordered))
        line = np.linspace(ordered[0], ordered[-1], len(ordered))
        computed = computed and float(np.abs(ordered - line).max()) <= MAX_BEND * spread
        ties = sum(math.lgamma(count + 1) for count in Counter(values.values()).values())
        log_chance += min(0.0, math.log(2) + ties - math.lgamma(len(values) + 1))
    if len(directions) == 1 and not computed and log_chance < math.log(MAX_CHANCE):
        raise UsageError(
            f"{observations.source}: {observations.metric!r} is sorted along the seeds in every arm and task, as if rows had been "
            "numbered after they were sorted: such pairs have nothing in common. Give each row the seed that its run had, or "
            "say --unpaired"
        )
