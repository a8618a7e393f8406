"""Which values are independent, and for whom they speak: observations of two arms become a `Design`.

A run is (arm, task, seed, rollout). Rollouts are averaged first; the unit is then the seed, the task, or both, as
declared and never as guessed from results. Values are turned so that larger is better from here on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.verdicts.observations import Observations

Kind = Literal["seeds", "rollouts", "tasks", "fixed rollouts", "fixed seeds", "crossed", "seeds over tasks"]
"""`rollouts` and `fixed rollouts` compare two independent samples; the others pair the arms."""
ONE_PAIR_A_UNIT = ("seeds", "tasks", "seeds over tasks")
"""Kinds in which one unit is one difference of two values."""
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

    @property
    def size(self) -> int:
        return len(self.values) + self.missing

    def filled(self, end: float) -> tuple[float, ...]:
        """The values with missing ones at `end`."""
        return (*self.values, *([end] * self.missing))

    def mean(self, end: float) -> float:
        filled = self.filled(end)
        return filled[0] if len(filled) == 1 else float(np.mean(filled))


Handling = Literal["missing", "set aside", "unpaired"]


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Runs on tasks and seeds that the other arm lacks, and what was done about them."""

    control: int
    candidate: int
    example: Place
    handling: Handling

    def sentence(self, control: str, candidate: str) -> str:
        """What a reader of the verdict must know about them."""
        task, seed = self.example
        where = (
            f"task {task!r}" if seed is None else f"seed {seed}" if task == "default" else f"task {task!r}, seed {seed}"
        )
        numbers = f"{self.control} of {control}'s runs and {self.candidate} of {candidate}'s"
        alone = f"on tasks and seeds that the other arm lacks, such as {where}"
        match self.handling:
            case "missing":
                return (
                    f"{numbers} are {alone}: the other arm's runs there count as missing and are bounded at both ends "
                    "(--intersect leaves these tasks and seeds out, --unpaired ignores the pairing)"
                )
            case "set aside":
                text = f"{numbers} were set aside by --intersect, being {alone}"
            case "unpaired":
                text = f"{numbers} are {alone}; --unpaired uses them as independent runs"
        if self.control == self.candidate:
            return text
        return f"{text}. The numbers differ between the arms: if an arm lacks the runs that it would have lost, this favours it"


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
    sign: float
    """-1 where the metric is to be minimised and values were negated: times this they are in its own direction."""
    missing: int
    failed: int
    population: str
    """For whom the verdict speaks, in words."""
    unmatched: Unmatched | None = None
    given: str = ""
    """What all runs share (`analysis.given`)."""
    """Runs on tasks and seeds that only one of the arms has."""

    @property
    def paired(self) -> bool:
        return self.kind not in ("rollouts", "fixed rollouts")

    @property
    def matched(self) -> bool:
        """Single runs pair too, and not only the means of tasks: both arms have the same tasks and seeds."""
        return self.paired and set(self.control) == set(self.candidate)

    @property
    def units(self) -> int:
        """How many independent units there are: the smaller arm's, where arms differ."""
        match self.kind:
            case "tasks":
                return len(self.tasks)
            case "crossed":
                return min(len(self.tasks), len(self.seeds))
            case "seeds" | "seeds over tasks":
                return len(self.seeds)
            case "fixed seeds":
                return len(self.control)
            case "fixed rollouts":
                return min(sum(self.stratum_sizes(cells)) for cells in (self.control, self.candidate))
            case "rollouts":
                return min(_arm_size(self.unit, cells) for cells in (self.control, self.candidate))

    def stratum_sizes(self, cells: Cells) -> list[int]:
        """Units of an arm in each task."""
        sizes = dict.fromkeys((task for task, _ in cells), 0)
        for (task, _), cell in cells.items():
            sizes[task] += 1 if self.unit == "seed" else cell.size
        return list(sizes.values())

    def without_missing(self) -> Design:
        """The same design where both arms are known: for descriptions, never for the verdict."""
        if not self.missing:
            return self
        control, candidate = (
            {place: Cell(cell.values, 0, cell.runs) for place, cell in cells.items() if cell.values}
            for cells in (self.control, self.candidate)
        )
        if self.matched:
            both = [place for place in control if place in candidate]
            control, candidate = {p: control[p] for p in both}, {p: candidate[p] for p in both}
        elif self.kind in ("fixed rollouts", "tasks"):
            shared = {task for task, _ in control} & {task for task, _ in candidate}
            control, candidate = ({p: c for p, c in cells.items() if p[0] in shared} for cells in (control, candidate))
        tasks = tuple(task for task in self.tasks if any(place[0] == task for place in (*control, *candidate)))
        seeds = self.seeds
        if self.kind in ("crossed", "seeds over tasks") or (self.kind == "rollouts" and len(tasks) > 1):
            # A seed is one row of a (tasks x seeds) table here, so only seeds that every task has can stay.
            seeds = tuple(seed for seed in self.seeds if all((task, seed) in control for task in tasks))
            control, candidate = (
                {p: cell for p, cell in cells.items() if all((task, p[1]) in cells for task in tasks)}
                for cells in (control, candidate)
            )
        return replace(self, control=control, candidate=candidate, tasks=tasks, seeds=seeds, missing=0)


def build_design(
    observations: Observations, control: str, candidate: str, *, unpaired: bool = False, intersect: bool = False
) -> Design:
    """The design that the declarations ask for.

    A task and seed that one arm has and the other lacks is a missing run of the other, unless `intersect` leaves it out
    or `unpaired` ignores the pairing. Raises UsageError where the arms have none in common, a run stands twice, or a
    value is invalid.
    """
    a, b = (_cells(observations, arm) for arm in (control, candidate))
    unmatched = _unmatched(a, b, "unpaired" if unpaired else "set aside" if intersect else "missing")
    if unmatched is not None and not unpaired:
        common = [place for place in a if place in b]
        if not common:
            raise UsageError(f"{control!r} and {candidate!r} share no task and seed; --unpaired compares them anyway")
        if intersect:
            a, b = {place: a[place] for place in common}, {place: b[place] for place in common}
        else:
            places = sorted({*a, *b}, key=_place_order)
            # As many runs are missing as the other arm has there.
            a, b = (
                {p: one[p] if p in one else Cell((), other[p].size) for p in places} for one, other in ((a, b), (b, a))
            )
    kind, unit = _unpaired_kind(observations, a, b) if unpaired else _paired_kind(observations, a)
    tasks = tuple(sorted({task for task, _ in (*a, *b)}))
    binary = _is_binary(observations, kind, unit, a, b)
    ends, seen_ends = _ends(observations, tasks, binary)
    return Design(
        kind=kind,
        unit=unit,
        control=a,
        candidate=b,
        tasks=tasks,
        seeds=tuple(dict.fromkeys(sorted((seed for _, seed in a), key=_seed_order))),
        ends=ends,
        seen_ends=seen_ends,
        binary=binary,
        sign=1.0 if observations.larger_is_better else -1.0,
        missing=sum(cell.missing for cell in (*a.values(), *b.values())),
        failed=sum(row.state == "failed" for arm in {control, candidate} for row in observations.by_arm.get(arm, ())),
        population=population_of(
            kind, unit, tasks, a, b, observations.analysis.seeds == "fixed", observations.analysis.given
        ),
        given=observations.analysis.given,
        unmatched=unmatched,
    )


def _unmatched(a: Cells, b: Cells, handling: Handling) -> Unmatched | None:
    """Which places only one of the arms has; None where there are none, and for independent arms that share none."""
    alone = [[place for place in one if place not in other] for one, other in ((a, b), (b, a))]
    if not alone[0] and not alone[1]:
        return None
    if handling == "unpaired" and len(alone[0]) == len(a):
        return None
    runs = [sum(cells[place].size for place in places) for cells, places in ((a, alone[0]), (b, alone[1]))]
    return Unmatched(runs[0], runs[1], (*alone[0], *alone[1])[0], handling)


def _paired_kind(observations: Observations, places: Cells) -> tuple[Kind, Unit]:
    """The table of units in docs/compare.md."""
    many_tasks = len({task for task, _ in places}) > 1
    shared_seeds = len({seed for _, seed in places} - {None}) > 1
    crossed = observations.analysis.seeds == "crossed"
    if shared_seeds:
        _refuse_nothing_to_vary(observations, many_tasks)
    if not many_tasks:
        return ("seeds", "seed") if shared_seeds else ("rollouts", "rollout")
    if observations.population == "sample":
        return ("crossed", "task and seed") if shared_seeds and crossed else ("tasks", "task")
    if not shared_seeds:
        return "fixed rollouts", "rollout"
    return ("seeds over tasks", "seed") if crossed else ("fixed seeds", "seed")


def _unpaired_kind(observations: Observations, a: Cells, b: Cells) -> tuple[Kind, Unit]:
    """Without pairing the units stay what they are: rollouts of one seed, or of one task, never become units."""
    (tasks_a, seeds_a), (tasks_b, seeds_b) = (
        ({task for task, _ in cells}, {seed for _, seed in cells} - {None}) for cells in (a, b)
    )
    unit: Unit = "seed" if max(len(seeds_a), len(seeds_b)) > 1 else "rollout"
    crossed = unit == "seed" and observations.analysis.seeds == "crossed"
    if unit == "seed":
        _refuse_nothing_to_vary(observations, len(tasks_a | tasks_b) > 1)
    if len(tasks_a | tasks_b) == 1:
        return "rollouts", unit
    if observations.population == "sample":
        if crossed:
            raise UsageError(
                "crossed seeds on tasks that are a sample need pairs: leave --unpaired out, or say --tasks fixed"
            )
        return ("tasks" if tasks_a == tasks_b else "rollouts"), "task"
    if tasks_a != tasks_b:
        raise UsageError("on these tasks only, both arms need the same tasks; --intersect keeps those that both have")
    return ("rollouts" if crossed else "fixed rollouts"), unit


def _refuse_nothing_to_vary(observations: Observations, many_tasks: bool) -> None:
    """With fixed seeds the tasks are the units, so there must be several and they must be a sample."""
    if observations.analysis.seeds == "fixed" and not (many_tasks and observations.population == "sample"):
        raise UsageError(
            "seeds 'fixed' asks about these seeds on tasks like these, so it needs several tasks that are a sample; "
            "leave --seeds fixed (or analysis.seeds) out"
        )


def _is_binary(observations: Observations, kind: Kind, unit: Unit, control: Cells, candidate: Cells) -> bool:
    """Every unit is one run with an outcome of 0 or 1, so that the outcome is still one when the test sees it."""
    cells = [*control.values(), *candidate.values()]
    single = all(cell.size == 1 for cell in cells)
    if kind == "rollouts" and unit == "rollout":
        raw = True
    elif kind == "seeds" or (kind == "rollouts" and unit == "seed"):
        raw = single and len({task for task, _ in control}) == 1
    else:
        one_each = all(len(side) == len({task for task, _ in side}) for side in (control, candidate))
        raw = single and unit == "task" and one_each
    outcomes = {0.0, 1.0} if observations.larger_is_better else {0.0, -1.0}
    allowed = observations.bounds is None or tuple(observations.bounds) == (0.0, 1.0)
    return raw and allowed and all(value in outcomes for cell in cells for value in cell.values)


def _cells(observations: Observations, arm: str) -> dict[Place, Cell]:
    """Rollouts of an arm by place, failures scored, missing ones counted. A run that stands twice is an error.

    Sorted throughout, so that the order of rows cannot change even the last digit of a result.
    """
    sign = 1.0 if observations.larger_is_better else -1.0
    bounds = observations.bounds
    values: dict[Place, list[float]] = defaultdict(list)
    missing: dict[Place, int] = defaultdict(int)
    runs: dict[Place, list[str]] = defaultdict(list)
    known: set[tuple[str, int | None, int]] = set()
    for row in observations.by_arm.get(arm, ()):
        if (row.task, row.seed, row.rollout) in known:
            raise UsageError(f"{arm!r} has two values for task {row.task!r}, seed {row.seed}, rollout {row.rollout}")
        known.add((row.task, row.seed, row.rollout))
        place = (row.task, row.seed)
        runs[place].append(row.run_id)
        if row.state == "missing":
            missing[place] += 1
            continue
        value = observations.score(row)
        if row.state == "scored" and bounds is not None and not bounds[0] <= value <= bounds[1]:
            where = row.run_id or f"{row.arm!r}, task {row.task!r}, seed {row.seed}"
            raise UsageError(
                f"{where}: {observations.metric} is {value:g}, outside the declared bounds "
                f"{bounds[0]:g} to {bounds[1]:g}; correct analysis.bounds (or --bounds)"
            )
        values[place].append(sign * value)
    places = sorted(runs, key=_place_order)
    return {place: Cell(tuple(sorted(values[place])), missing[place], tuple(runs[place])) for place in places}


def _place_order(place: Place) -> tuple[str, tuple[bool, int]]:
    return place[0], _seed_order(place[1])


def _seed_order(seed: int | None) -> tuple[bool, int]:
    return (seed is not None, seed or 0)


def _ends(
    observations: Observations, tasks: Sequence[str], binary: bool
) -> tuple[dict[str, tuple[float, float]], bool]:
    """What a missing run could have been: the declared range, or the smallest and largest value of any arm."""
    sign = 1.0 if observations.larger_is_better else -1.0
    bounds = observations.bounds or ((0.0, 1.0) if binary else None)
    if bounds is not None:
        bad, good = sorted(sign * end for end in bounds)
        return dict.fromkeys(tasks, (bad, good)), False
    known = {task: observations.seen[task] for task in tasks if task in observations.seen}
    lows, highs = [each.low for each in known.values()], [each.high for each in known.values()]
    everywhere = (min(lows), max(highs)) if known else (float("nan"), float("nan"))
    ends = {}
    for task in tasks:
        low, high = known[task][:2] if task in known and known[task].number >= FEWEST_SEEN else everywhere
        ends[task] = (low, high) if sign > 0.0 else (-high, -low)
    return ends, True


def population_of(
    kind: Kind,
    unit: Unit,
    tasks: Sequence[str],
    control: Cells,
    candidate: Cells,
    fixed_seeds: bool = False,
    given: str = "",
) -> str:
    """For whom the verdict speaks, by which unit, and how many of them there are (`8 and 24` where arms differ)."""
    shared = f", {given}" if given else ""
    if kind == "crossed":
        seeds = len({seed for _, seed in control} - {None})
        return f"for tasks like these {len(tasks)} and seeds like these {seeds}{shared} (units: both)"
    if kind in (*ONE_PAIR_A_UNIT, "fixed seeds"):
        number = str(len(control) if kind == "fixed seeds" else len({place[unit == "seed"] for place in control}))
    else:
        within_task = kind == "fixed rollouts" and unit == "seed"
        sizes = [len(cells) if within_task else _arm_size(unit, cells) for cells in (control, candidate)]
        number = f"{sizes[0]} per arm" if sizes[0] == sizes[1] else f"{sizes[0]} and {sizes[1]}"
    if unit == "task":
        only = len({seed for _, seed in (*control, *candidate)} - {None}) if fixed_seeds else 0
        with_seeds = f" with these {only} seeds only" if only > 1 else ""
        return f"for tasks like these {len(tasks)}{with_seeds}{shared} (unit: task, N = {number})"
    if len(tasks) > 1:
        where = f"on these {len(tasks)} tasks only"
    else:
        where = f"for {unit}s like these" if tasks[0] == "default" else f"on {tasks[0]!r} only"
    within = " within task" if kind in ("fixed seeds", "fixed rollouts") else ""
    return f"{where}{shared} (unit: {unit}{within}, N = {number})"


def _arm_size(unit: Unit, cells: Cells) -> int:
    """Units of one unpaired arm."""
    match unit:
        case "task":
            return len({task for task, _ in cells})
        case "seed":
            return len({seed for _, seed in cells})
        case _:
            return sum(cell.size for cell in cells.values())
