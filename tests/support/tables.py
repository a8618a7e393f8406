"""Tables of runs for tests: rows go in, observations come out, without files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bakeoff.results.table import Results
from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.answer import answer
from bakeoff.verdicts.comparison import Comparison, compare
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.question import Compare

Row = dict[str, Any]
"""arm, task, seed, rollout, value; a value of None is a missing run, NaN a failed one."""


def observations(rows: Iterable[Row], metric: str = "score", **how: Any) -> Observations:
    """`how`: fields of Analysis, and `final`, `fixed_tasks`."""
    own = {key: how.pop(key) for key in ("final", "fixed_tasks") if key in how}
    return Observations(metric, [_observation(row) for row in rows], Analysis(**how), "test", **own)


def _observation(row: Row) -> Observation:
    value = row["value"]
    state = "missing" if value is None else "failed" if math.isnan(value) else "scored"
    place = (row.get("task", "default"), row.get("seed"), row.get("rollout", 0))
    return Observation(row["arm"], *place, state, math.nan if value is None else float(value))


def paired(a: Sequence[Any], b: Sequence[Any], unit: str = "seed") -> list[Row]:
    """Two arms that meet on seeds (of one task) or on tasks."""
    names = [{"seed": i} if unit == "seed" else {"task": f"t{i:03}"} for i in range(len(a))]
    return [
        {"arm": arm, "value": value, **names[i]} for arm, side in (("A", a), ("B", b)) for i, value in enumerate(side)
    ]


def rollouts(arms: Mapping[str, Sequence[Any]], task: str = "default") -> list[Row]:
    """Independent runs of each arm on one task."""
    return [{"arm": a, "task": task, "rollout": i, "value": v} for a, side in arms.items() for i, v in enumerate(side)]


def grid(arms: Mapping[str, np.ndarray]) -> list[Row]:
    """(tasks x seeds) tables."""
    return [
        {"arm": arm, "task": f"t{t}", "seed": s, "value": float(values[t, s])}
        for arm, values in arms.items()
        for t in range(values.shape[0])
        for s in range(values.shape[1])
    ]


def verdict(
    rows: Iterable[Row], question: Compare | None = None, covariate: Observations | None = None, **how: Any
) -> Comparison:
    """The one comparison of a table with two arms."""
    (comparison,) = compare([observations(rows, **how)], question, covariate=covariate)
    return comparison


def compared(results: Results, **question: Any) -> dict[str, Any]:
    """The first comparison of an answer, as JSON shows it."""
    first: dict[str, Any] = answer(results, Compare.ask(**question)).facts()["comparisons"][0]
    return first
