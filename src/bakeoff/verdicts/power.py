"""How many units an effect needs, what the units at hand can find, and where the next runs are best spent.

Only spreads enter, never the effect that a pilot happened to show. A pilot's spread is itself an estimate, so every
answer comes twice: at the spread as seen and at its upper limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.stats.numerics import is_constant, sd
from bakeoff.stats.power import (
    Allocation,
    Components,
    Costs,
    Design,
    allocate,
    minimum_detectable_effect,
    nested_components,
    spread_bound,
    t_power,
    units_needed,
    variance_components,
)
from bakeoff.stats.ttests import crossed_variance
from bakeoff.verdicts import arrays, units
from bakeoff.verdicts.compare import Options, population
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.units import Array

Unit = Literal["unit", "run", "seed", "task", "pair"]


class NotAnswerable(Exception):
    """The data cannot answer: too few units, or no spread."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted: error rate, chance of finding an effect, and the effect in the metric's unit (None: not said)."""

    alpha: float = 0.05
    power: float = 0.8
    effect: float | None = None
    n: int | None = None
    """Units at hand, in each arm when unpaired."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What the noise is: sd of the differences (paired) or inside an arm (unpaired), and its upper limit."""

    sd: float
    upper: float
    design: Design
    unit: Unit
    confidence: float | None = None
    """Of the upper limit; None when the sd was given and is taken as it is."""


@dataclass(frozen=True, slots=True)
class Answer:
    """At the spread as seen, and at its upper limit."""

    seen: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything `power` answers. Fields are None where the question was not asked or has no answer."""

    goal: Goal
    spread: Spread
    mde: Answer | None
    """Smallest effect that the units at hand find."""
    chance: Answer | None
    """Power for the wanted effect at the units at hand."""
    needed: Answer | None
    """Units for the wanted effect."""


def plan(spread: Spread, goal: Goal) -> Plan:
    """Runs needed for the effect, and what n units can find."""
    both = (spread.sd, spread.upper)
    mde = chance = needed = None
    if goal.n is not None and goal.n >= 2:
        n = goal.n
        mde = Answer(*(minimum_detectable_effect(s, n, goal.alpha, goal.power, spread.design) for s in both))
        if goal.effect:
            effect = goal.effect
            chance = Answer(*(t_power(effect, s, n, goal.alpha, spread.design) for s in both))
    if goal.effect:
        needed = Answer(*(_units(goal, s, spread.design) for s in both))
    return Plan(goal, spread, mde, chance, needed)


def _units(goal: Goal, spread: float, design: Design) -> int | None:
    assert goal.effect is not None
    try:
        return units_needed(goal.effect, spread, goal.alpha, goal.power, design)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Pilot:
    """What an experiment says about noise: its units, its components, and how it is spent now."""

    metric: str
    control: str
    candidate: str
    population: str
    values: tuple[Array, ...]
    """Differences of the units (paired), or the two arms (unpaired); larger is better."""
    spread: Spread
    n: int
    tasks: int
    seeds: int
    rollouts: int
    components: Components | None
    """Of the difference of one run of each arm; None where the table has holes."""
    sample_of_tasks: bool
    notes: tuple[str, ...]


def pilot(
    seen: Observations, control: str, candidate: str, options: Options | None = None, confidence: float = 0.8
) -> Pilot:
    """The noise between two arms of an experiment. Missing runs are left out and told; failures are scored."""
    options = options or Options()
    kept = replace(seen, rows=[row for row in seen.rows if row.state != "missing"])
    lost = sum(row.arm in (control, candidate) for row in seen.rows) - sum(
        row.arm in (control, candidate) for row in kept.rows
    )
    design = units.build(
        kept, control, candidate,
        tasks=population(seen, options), unpaired=options.unpaired, intersect=options.intersect or lost > 0,
    )  # fmt: skip
    values, unit = _noise(design)
    spread = _spread(values, unit, confidence)
    notes = [f"missing runs that are left out of the pilot: {lost}"] if lost else []
    if design.kind == "crossed":
        spread = _crossed(spread, design, confidence)
        notes.append("tasks and seeds are both samples, so more tasks alone do not shrink the part of the seeds")
    return Pilot(
        metric=seen.metric,
        control=control,
        candidate=candidate,
        population=design.population,
        values=values,
        spread=spread,
        n=min(v.size for v in values),
        tasks=len(design.tasks),
        seeds=len(design.seeds),
        rollouts=max(len(cell.values) for cell in design.control.values()),
        components=_components(design, seen.analysis.seeds == "crossed"),
        sample_of_tasks=design.kind in ("tasks", "crossed"),
        notes=tuple(notes),
    )


def _noise(design: units.Design) -> tuple[tuple[Array, ...], Unit]:
    a, b = arrays.sides(design)
    match design.kind:
        case "rollouts":
            return (a[0], b[0]), "run"
        case "tasks":
            return (b[0] - a[0],), "task"
        case "seeds" | "seeds over tasks":
            return (b[0] - a[0],), "seed"
        case "crossed":
            return ((b[0] - a[0]).mean(axis=1),), "task"
        case "fixed seeds" | "fixed rollouts":
            sizes = {part.size for part in (*a, *b)}
            if len(sizes) > 1:
                raise UsageError("the tasks have different numbers of runs; a pilot needs one number on every task")
            if design.kind == "fixed seeds":
                return (np.mean(b, axis=0) - np.mean(a, axis=0),), "seed"
            return (np.mean(a, axis=0), np.mean(b, axis=0)), "run"


def _spread(values: tuple[Array, ...], unit: Unit, confidence: float) -> Spread:
    sizes = [v.size for v in values]
    if min(sizes) < 2:
        raise NotAnswerable(f"the pilot has {min(sizes)} {unit}; a spread needs at least 2")
    if all(is_constant(v) for v in values):
        raise NotAnswerable("the pilot shows no spread at all (are its runs copies?), so there is nothing to plan with")
    if len(values) == 1:
        seen, df = sd(values[0]), sizes[0] - 1
    else:
        df = sum(sizes) - 2
        seen = math.sqrt(sum(float(v.var(ddof=1)) * (v.size - 1) for v in values) / df)
    return Spread(
        seen, spread_bound(seen, df + 1, confidence), "paired" if len(values) == 1 else "unpaired", unit, confidence
    )


def _crossed(spread: Spread, design: units.Design, confidence: float) -> Spread:
    """Both margins' noise, expressed as the sd of a task: that of the tasks alone would leave out the seeds."""
    a, b = arrays.sides(design)
    found = crossed_variance(b[0] - a[0])
    both = math.sqrt(found.total * len(design.tasks))
    return replace(spread, sd=both, upper=spread_bound(both, int(found.df) + 1, confidence))


def _components(design: units.Design, crossed: bool) -> Components | None:
    """Of B - A in a complete (tasks x seeds x rollouts) table."""
    if design.kind == "rollouts":
        return None
    sizes = {len(cell.values) for cell in (*design.control.values(), *design.candidate.values())}
    complete = all((t, s) in design.control for t in design.tasks for s in design.seeds)
    if len(sizes) != 1 or not complete or len(design.control) * min(sizes) < 2:
        return None
    table = np.array([[_difference(design, (t, s)) for s in design.seeds] for t in design.tasks])
    found = variance_components(table) if crossed else nested_components(table)
    return found if design.kind in ("tasks", "crossed") else replace(found, task=0.0)


def _difference(design: units.Design, place: units.Place) -> Array:
    """Rollouts of two arms share nothing: they are subtracted in any order, and each difference has both noises."""
    return np.subtract(design.candidate[place].values, design.control[place].values, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class MoreRollouts:
    """What more runs on the same tasks could do at best, when the tasks are the sample."""

    tasks: int
    now: float
    """Smallest effect that this many tasks find with the runs that each has."""
    floor: float | None
    """The same with endlessly many runs on each. None: one run a task does not tell tasks from runs."""
    hopeless: bool
    """The wanted effect lies below the floor."""
    tasks_needed: Answer | None
    """Tasks for the wanted effect, with as many runs on each as now."""


def more_rollouts(found: Pilot, answer: Plan) -> MoreRollouts | None:
    """None when the verdict is not about tasks like these."""
    if not found.sample_of_tasks or answer.mde is None or answer.mde.seen is None:
        return None
    goal, floor = answer.goal, None
    if found.components is not None and found.seeds * found.rollouts > 1:
        left = min(math.sqrt(found.components.task), found.spread.sd)
        floor = minimum_detectable_effect(left, found.tasks, goal.alpha, goal.power)
    hopeless = floor is not None and goal.effect is not None and abs(goal.effect) < floor
    return MoreRollouts(found.tasks, answer.mde.seen, floor, hopeless, answer.needed)


@dataclass(frozen=True, slots=True)
class Spending:
    """A design, its cost, and the smallest effect that it finds."""

    tasks: int
    seeds: int
    rollouts: int
    cost: float
    standard_error: float
    mde: float


def spend(found: Pilot, goal: Goal, budget: float, costs: Costs, tasks: int | None) -> tuple[Spending, Spending]:
    """(as it is, the best that the budget buys), both arms' runs of one kind counted once. NotAnswerable without components."""
    if found.components is None:
        raise NotAnswerable(
            "the pilot's table has holes, so its noise cannot be divided among tasks, seeds and rollouts"
        )
    fixed = tasks if tasks is not None else (None if found.sample_of_tasks else found.tasks)
    try:
        best = allocate(found.components, budget, costs, fixed, least_tasks=3)
    except ValueError as error:
        raise UsageError(str(error)) from error
    now = Allocation(
        found.tasks, found.seeds, found.rollouts,
        math.sqrt(found.components.variance(found.tasks, found.seeds, found.rollouts)),
        costs.total(found.tasks, found.seeds, found.rollouts),
    )  # fmt: skip
    return _spending(now, found, goal), _spending(best, found, goal)


def _spending(design: Allocation, found: Pilot, goal: Goal) -> Spending:
    count = {"task": design.tasks, "seed": design.seeds}.get(found.spread.unit, design.rollouts)
    mde = math.inf
    if count >= 2:
        mde = minimum_detectable_effect(design.standard_error * math.sqrt(count), count, goal.alpha, goal.power)
    return Spending(design.tasks, design.seeds, design.rollouts, design.cost, design.standard_error, mde)


def curve(answer: Plan, points: int = 40) -> Mapping[str, Array]:
    """MDE against the number of units, at the spread as seen and at its upper limit: what a plot shows."""
    wanted = [answer.goal.n, *(() if answer.needed is None else (answer.needed.seen, answer.needed.upper))]
    last = min(10_000, max([20, *(math.ceil(1.3 * w) for w in wanted if w is not None)]))
    n = np.unique(np.geomspace(2, last, points).round())
    unit = np.array([_unit_mde(float(k), answer) for k in n])
    return {"n": n, "mde": unit * answer.spread.sd, "mde_upper": unit * answer.spread.upper}


def _unit_mde(n: float, answer: Plan) -> float:
    return minimum_detectable_effect(1.0, n, answer.goal.alpha, answer.goal.power, answer.spread.design)
