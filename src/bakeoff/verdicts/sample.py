"""One arm on its own: its independent values, and for whom they speak. For planning, never for a verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.verdicts import arrays, units
from bakeoff.verdicts.compare import Options, population
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.units import Array

Unit = Literal["run", "seed", "task"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of one arm, one for each independent unit, in the metric's own unit and direction, ascending."""

    arm: str
    metric: str
    values: Array
    unit: Unit
    population: str
    failed: int
    missing: tuple[str, ...]
    """Runs without a value; they are not in `values`."""


def draw(seen: Observations, arm: str, options: Options | None = None) -> Sample:
    """The arm's values. Ascending, so that the order of runs cannot move even the last digit of what follows."""
    mine = [row for row in seen.rows if row.arm == arm]
    if not mine:
        raise UsageError(f"no arm called {arm!r}; there are {', '.join(seen.arms)}")
    known = replace(seen, rows=[row for row in mine if row.state != "missing"])
    if not known.rows:
        raise UsageError(f"{arm!r}: none of its {len(mine)} runs has a value of {seen.metric}")
    design = units.build(known, arm, arm, tasks=population(seen, options or Options()))
    sign = 1.0 if seen.larger_is_better else -1.0
    values, unit = _values(design)
    return Sample(
        arm=arm,
        metric=seen.metric,
        values=np.sort(sign * values),
        unit=unit,
        population=design.population,
        failed=sum(row.state == "failed" for row in mine),
        missing=tuple(_name(row) for row in mine if row.state == "missing"),
    )


def _values(design: units.Design) -> tuple[Array, Unit]:
    """Seeds over several fixed tasks are averaged across them: one seed is one value of the whole benchmark."""
    (side, _) = arrays.sides(design)
    match design.kind:
        case "tasks":
            return side[0], "task"
        case "rollouts":
            return side[0], "run"
        case "seeds" | "seeds over tasks":
            return side[0], "seed"
        case "crossed":
            return side[0].mean(axis=0), "seed"
        case "fixed seeds" | "fixed rollouts":
            if len({part.size for part in side}) > 1:
                raise UsageError("the tasks have different numbers of runs; plan with tasks of one number")
            return np.mean(side, axis=0), "seed" if design.kind == "fixed seeds" else "run"


def _name(row: Observation) -> str:
    return row.run_id or f"task {row.task}, seed {row.seed}, rollout {row.rollout}"
