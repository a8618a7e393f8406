"""Which values are independent, and for whom they speak: the table of runs becomes the arrays that a test takes.

A run is (arm, task, seed, rollout). Rollouts are averaged first; the unit is then the seed, the task, or both, as
declared and never as guessed from results. Larger is better from here on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from bakeoff.errors import UsageError
from bakeoff.verdicts.observations import Observation, Observations

Array = npt.NDArray[np.float64]
Kind = Literal["seeds", "rollouts", "tasks", "fixed rollouts", "fixed seeds", "crossed", "seeds over tasks"]
"""`rollouts` and `fixed rollouts` compare two independent samples, the others pair the arms."""
Unit = Literal["seed", "rollout", "task", "task and seed"]
Place = tuple[str, int | None]
"""Where arms meet: a task and a shared seed."""
Cells = Mapping[Place, "Cell"]
FEWEST_SEEN = 3
"""A task with fewer values than this does not tell what a missing run could have been; all tasks together do."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Rollouts of one arm at one place: what is known, and how many are missing."""

    values: tuple[float, ...]
    missing: int = 0
    runs: tuple[str, ...] = ()
    """Ids of the runs, where they have any."""

    def filled(self, end: float) -> tuple[float, ...]:
        return (*self.values, *([end] * self.missing))

    def mean(self, end: float) -> float:
        filled = self.filled(end)
        return filled[0] if len(filled) == 1 else float(np.mean(filled))


@dataclass(frozen=True, slots=True)
class Design:
    """Two arms side by side. `control` and `candidate` have the same places, unless the design is unpaired."""

    kind: Kind
    unit: Unit
    control: Cells
    candidate: Cells
    tasks: tuple[str, ...]
    seeds: tuple[int | None, ...]
    ends: Mapping[str, tuple[float, float]]
    """(bad, good) end of the metric for each task: what a missing run could have been."""
    seen_ends: bool
    """No range was declared, so the ends are the smallest and largest value seen."""
    binary: bool
    """Every unit is one pair of raw 0/1 outcomes."""
    turned: bool
    """The metric is to be minimised, so values were negated."""
    missing: int
    failed: int
    population: str
    """For whom the verdict speaks."""

    @property
    def paired(self) -> bool:
        return self.kind not in ("rollouts", "fixed rollouts")

    @property
    def matched(self) -> bool:
        """Single runs pair too, and not only the means of tasks: both arms have the same tasks and seeds."""
        return self.paired and set(self.control) == set(self.candidate)


def build(
    observations: Observations,
    control: str,
    candidate: str,
    *,
    tasks: Literal["sample", "fixed"],
    unpaired: bool = False,
    intersect: bool = False,
) -> Design:
    """The design that the declarations ask for. Sets of tasks or seeds that differ are an error unless allowed."""
    a, b = (_cells(observations, arm) for arm in (control, candidate))
    if unpaired:
        kind, unit = _unpaired_kind(observations, a, b, tasks)
        return _design(observations, kind, unit, a, b, (control, candidate))
    if set(a) != set(b):
        if not intersect:
            raise UsageError(_difference(control, a, candidate, b))
        common = [place for place in a if place in b]
        if not common:
            raise UsageError(
                f"{control!r} and {candidate!r} have no task and seed in common; --unpaired compares them so"
            )
        a, b = {place: a[place] for place in common}, {place: b[place] for place in common}
    kind, unit = _kind(observations, a, tasks)
    return _design(observations, kind, unit, a, b, (control, candidate))


def _kind(observations: Observations, places: Cells, tasks: Literal["sample", "fixed"]) -> tuple[Kind, Unit]:
    """The table of section 2 of the decision specification."""
    many_tasks = len({task for task, _ in places}) > 1
    shared_seeds = _seeds(places) > 1
    crossed = observations.analysis.seeds == "crossed"
    if not many_tasks:
        return ("seeds", "seed") if shared_seeds else ("rollouts", "rollout")
    if tasks == "sample":
        return ("crossed", "task and seed") if shared_seeds and crossed else ("tasks", "task")
    if not shared_seeds:
        return "fixed rollouts", "rollout"
    return ("seeds over tasks", "seed") if crossed else ("fixed seeds", "seed")


def _unpaired_kind(
    observations: Observations, a: Cells, b: Cells, tasks: Literal["sample", "fixed"]
) -> tuple[Kind, Unit]:
    """Without pairing the units stay what they are: rollouts of one seed, or of one task, never become units."""
    unit: Unit = "seed" if max(_seeds(a), _seeds(b)) > 1 else "rollout"
    mine, others = ({task for task, _ in cells} for cells in (a, b))
    if len(mine | others) == 1:
        return "rollouts", unit
    if tasks == "sample":
        if unit == "seed" and observations.analysis.seeds == "crossed":
            raise UsageError(
                "crossed seeds on tasks that are a sample need pairs: leave --unpaired out, or say --tasks fixed"
            )
        return ("tasks" if mine == others else "rollouts"), "task"
    if mine != others:
        raise UsageError("on these tasks only, both arms need the same tasks; --intersect keeps those that both have")
    crossed = unit == "seed" and observations.analysis.seeds == "crossed"
    return ("rollouts" if crossed else "fixed rollouts"), unit


def _seeds(places: Iterable[Place]) -> int:
    return len({seed for _, seed in places if seed is not None})


def _design(
    observations: Observations, kind: Kind, unit: Unit, control: Cells, candidate: Cells, arms: tuple[str, str]
) -> Design:
    names = tuple(sorted({task for task, _ in (*control, *candidate)}))
    cells = [*control.values(), *candidate.values()]
    binary = _is_raw(kind, unit, control, candidate) and _is_binary(observations, cells)
    ends, seen = _ends(observations, names, binary)
    return Design(
        kind=kind,
        unit=unit,
        control=control,
        candidate=candidate,
        tasks=names,
        seeds=tuple(dict.fromkeys(sorted((seed for _, seed in control), key=_order))),
        ends=ends,
        seen_ends=seen,
        binary=binary,
        turned=not observations.larger_is_better,
        missing=sum(cell.missing for cell in cells),
        failed=sum(row.state == "failed" for row in observations.rows if row.arm in arms),
        population=_population(kind, unit, names, control, candidate),
    )


def _is_raw(kind: Kind, unit: Unit, control: Cells, candidate: Cells) -> bool:
    """Every unit is one run, so that an outcome of 0 or 1 is still one when the test sees it."""
    if kind == "rollouts" and unit == "rollout":
        return True
    single = all(len(cell.values) + cell.missing == 1 for cell in (*control.values(), *candidate.values()))
    if kind == "seeds" or (kind == "rollouts" and unit == "seed"):
        return single and len({task for task, _ in control}) == 1
    one_each = all(len(cells) == len({task for task, _ in cells}) for cells in (control, candidate))
    return single and unit == "task" and one_each


def _is_binary(observations: Observations, cells: Sequence[Cell]) -> bool:
    outcomes = {0.0, 1.0} if observations.larger_is_better else {0.0, -1.0}
    declared = observations.bounds is None or tuple(observations.bounds) == (0.0, 1.0)
    return declared and all(value in outcomes for cell in cells for value in cell.values)


def _cells(observations: Observations, arm: str) -> dict[Place, Cell]:
    """Rollouts of an arm by place, failures scored, missing ones counted. A run that stands twice is an error.

    Sorted throughout, so that the order of rows cannot move even the last digit.
    """
    sign = 1.0 if observations.larger_is_better else -1.0
    score, bounds = failure_score(observations), observations.bounds
    values: dict[Place, list[float]] = defaultdict(list)
    missing: dict[Place, int] = defaultdict(int)
    runs: dict[Place, list[str]] = defaultdict(list)
    known: set[tuple[str, int | None, int]] = set()
    for row in observations.rows:
        if row.arm != arm:
            continue
        if (row.task, row.seed, row.rollout) in known:
            raise UsageError(f"{arm!r} has two values for task {row.task!r}, seed {row.seed}, rollout {row.rollout}")
        known.add((row.task, row.seed, row.rollout))
        place = (row.task, row.seed)
        runs[place].append(row.run_id)
        if row.state == "missing":
            missing[place] += 1
            continue
        value = row.value if row.state == "scored" else score
        if value is None:
            raise UsageError(_no_failure_score(row))
        if not np.isfinite(value):
            raise UsageError(f"{_where(row)}: {observations.metric} is {value}, which no mean survives")
        if row.state == "scored" and bounds is not None and not bounds[0] <= value <= bounds[1]:
            raise UsageError(
                f"{_where(row)}: {observations.metric} is {value:g}, outside the declared bounds "
                f"{bounds[0]:g} to {bounds[1]:g}; correct analysis.bounds (or --bounds)"
            )
        values[place].append(sign * value)
    places = sorted(runs, key=lambda place: (place[0], _order(place[1])))
    return {place: Cell(tuple(sorted(values[place])), missing[place], tuple(runs[place])) for place in places}


def _order(seed: int | None) -> tuple[bool, int]:
    return (seed is not None, seed or 0)


def _where(row: Observation) -> str:
    return row.run_id or f"{row.arm!r}, task {row.task!r}, seed {row.seed}"


def failure_score(observations: Observations) -> float | None:
    """What a run that failed by its arm's own doing counts: the declared score, else the bad end of the range."""
    if observations.analysis.failure_score is not None:
        return observations.analysis.failure_score
    if observations.bounds is not None:
        return observations.bounds[0] if observations.larger_is_better else observations.bounds[1]
    return None


def _no_failure_score(row: Observation) -> str:
    return (
        f"run {_where(row)} failed, and nothing says what a failure counts: set analysis.failure_score or "
        "analysis.bounds (or --failure-score). A mean over the survivors would answer another question"
    )


def _ends(
    observations: Observations, tasks: Sequence[str], binary: bool
) -> tuple[dict[str, tuple[float, float]], bool]:
    """What a missing run could have been: the declared range, or the smallest and largest value of any arm."""
    sign = 1.0 if observations.larger_is_better else -1.0
    bounds = observations.bounds or ((0.0, 1.0) if binary else None)
    if bounds is not None:
        bad, good = sorted(sign * end for end in bounds)
        return dict.fromkeys(tasks, (bad, good)), False
    score = failure_score(observations)
    by_task: dict[str, list[float]] = {task: [] for task in tasks}
    for row in observations.rows:
        value = row.value if row.state == "scored" else score if row.state == "failed" else None
        if value is not None and row.task in by_task:
            by_task[row.task].append(sign * value)
    everywhere = [value for seen in by_task.values() for value in seen]
    found = {}
    for task, seen in by_task.items():
        told = seen if len(seen) >= FEWEST_SEEN else everywhere
        found[task] = (min(told), max(told)) if told else (float("nan"), float("nan"))
    return found, True


def _difference(control: str, a: Cells, candidate: str, b: Cells) -> str:
    alone = [f"{control!r} alone has {len(set(a) - set(b))}", f"{candidate!r} alone has {len(set(b) - set(a))}"]
    example = next(place for place in (*a, *b) if (place in a) != (place in b))
    return (
        f"the arms do not meet on the same tasks and seeds: {', '.join(alone)}, such as task {example[0]!r}, "
        f"seed {example[1]}. --intersect compares where both are, --unpaired ignores the pairing"
    )


def _population(kind: Kind, unit: Unit, tasks: Sequence[str], control: Cells, candidate: Cells) -> str:
    """For whom the verdict speaks, by which unit, and how many of them there are."""
    number = _number(kind, unit, control, candidate)
    if kind == "crossed":
        return f"for tasks like these {len(tasks)} and seeds like these {_seeds(control)} (units: both)"
    if unit == "task":
        return f"for tasks like these {len(tasks)} (unit: task, N = {number})"
    if len(tasks) > 1:
        on = f"on these {len(tasks)} tasks only"
    else:
        on = f"for {unit}s like these" if tasks[0] == "default" else f"on {tasks[0]!r} only"
    within = " within task" if kind in ("fixed seeds", "fixed rollouts") else ""
    return f"{on} (unit: {unit}{within}, N = {number})"


def _number(kind: Kind, unit: Unit, control: Cells, candidate: Cells) -> str:
    """How many units: one number, or `8 and 24` where the arms differ."""
    if kind in ("seeds", "seeds over tasks", "tasks", "fixed seeds"):
        return str(len(control) if kind == "fixed seeds" else len({p[unit == "seed"] for p in control}))
    sizes = [_size(unit, cells, inside=kind == "fixed rollouts") for cells in (control, candidate)]
    return f"{sizes[0]} an arm" if sizes[0] == sizes[1] else f"{sizes[0]} and {sizes[1]}"


def _size(unit: Unit, cells: Cells, inside: bool) -> int:
    if unit == "rollout":
        return sum(len(cell.values) + cell.missing for cell in cells.values())
    if unit == "task":
        return len({task for task, _ in cells})
    return len(cells) if inside else len({seed for _, seed in cells})
