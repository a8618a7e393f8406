"""Repeats that are numbered and turn out to be runs: the same one stands on every task."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.stats.numerics import Array
from bakeoff.stats.ttests import seeds_look_crossed
from bakeoff.verdicts.observations import Observations

ALPHA = 0.001
Values = Mapping[tuple[str, int | None, int], float]
"""One arm's values by task, seed and number of the repeat."""


def refuse_shared_repeats(observations: Observations) -> None:
    """Raise UsageError where a repeat with one number does well or badly on every task, in one arm and not in another.

    Repeats of a task are averaged, so that the task is the unit. If `trial` 3 is one trained policy on all tasks, the tasks
    share its luck. What all arms have in common, such as better second attempts, cancels in differences and is no reason.
    """
    column, arms = observations.repeats, observations.arms
    if not column or len(arms) < 2 or len(observations.tasks) < 3:
        return
    values = {
        arm: {(row.task, row.seed, row.rollout): row.value for row in rows if row.state == "scored"}
        for arm, rows in observations.by_arm.items()
    }
    tables = [_table(values[arm], values[arms[0]]) for arm in arms[1:]]
    if not any(table.size for table in tables):  # numbers of the whole file, such as those of jobs
        tables = [_table(known) for known in values.values()]
    smallest = min((seeds_look_crossed(table) for table in tables if min(table.shape) >= 2), default=1.0)
    if smallest * len(tables) < ALPHA:
        flag = shlex.quote(column)
        raise UsageError(
            f"{observations.source}: repeats with the same number in column {column!r} do well or badly on all tasks alike (p < "
            f"{ALPHA:g}), as if each were one run or one trained policy. Say --seed-from {flag} if it is, or --ignore {flag} if "
            "rows of one task are independent repeats and their numbers mean nothing"
        )


def _table(values: Values, control: Values | None = None) -> Array:
    """One arm's values, or its differences from the control's, by (task, seed) and number of the repeat; NaN for none."""
    keys = values.keys() if control is None else values.keys() & control.keys()
    places = {place: number for number, place in enumerate(sorted({key[:2] for key in keys}, key=str))}
    numbers = {repeat: number for number, repeat in enumerate(sorted({key[2] for key in keys}))}
    table = np.full((len(places), len(numbers)), np.nan)
    for key in keys:
        table[places[key[:2]], numbers[key[2]]] = values[key] - (0.0 if control is None else control[key])
    return table
