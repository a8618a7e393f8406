"""Numbers beside a verdict: means, sizes of the effect, what pairing bought, what could have been seen. None votes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bakeoff.stats import effects
from bakeoff.stats.evidence import Evidence, Test, WorstCase
from bakeoff.stats.power import minimum_detectable_effect, units_needed
from bakeoff.stats.ranks import average_ranks
from bakeoff.stats.ttests import TStatistic
from bakeoff.verdicts import arrays
from bakeoff.verdicts.units import Array, Cell, Cells, Design, Place

Spread = tuple[float, float, Literal["paired", "unpaired"]]
"""(sd, units, design) as the power functions take them."""


@dataclass(frozen=True, slots=True)
class Description:
    """What the runs at hand look like, missing ones left out, in the metric's own unit and direction: B - A."""

    control_mean: float | None = None
    candidate_mean: float | None = None
    effect: float | None = None
    lift: float | None = None
    cohens_d: float | None = None
    cohens_dz: float | None = None
    hedges_g: float | None = None
    improvement: float | None = None
    correlation: float | None = None
    variance_reduction: float | None = None


def describe(design: Design) -> Description:
    """Of the units where both arms are known."""
    known = without_missing(design)
    if not known.control or not known.candidate:
        return Description()
    a, b = arrays.sides(known)
    sign = -1.0 if design.turned else 1.0
    # Every task weighs the same in a mean, as it does in the test.
    means = [sign * float(np.mean([part.mean() for part in side])) for side in (a, b)]
    x, y = (sign * np.concatenate([part.ravel() for part in side]) for side in (a, b))
    bond = effects.pairing(x, y) if design.paired and x.size >= 2 else effects.Pairing(None, None)
    two = min(x.size, y.size) >= 2
    return Description(
        control_mean=means[0],
        candidate_mean=means[1],
        effect=means[1] - means[0],
        lift=(means[1] - means[0]) / abs(means[0]) if means[0] != 0.0 else None,
        cohens_d=effects.cohens_d(x, y) if two else None,
        cohens_dz=effects.cohens_dz(y - x) if design.paired and two else None,
        hedges_g=effects.hedges_g(x, y) if two else None,
        improvement=_improvement(known),
        correlation=bond.correlation,
        variance_reduction=bond.variance_reduction,
    )


def without_missing(design: Design) -> Design:
    """The same design where both arms are known: for descriptions, never for the verdict."""
    if not design.missing:
        return design
    control = {p: Cell(c.values, 0, c.runs) for p, c in design.control.items() if c.values}
    candidate = {p: Cell(c.values, 0, c.runs) for p, c in design.candidate.items() if c.values}
    if design.matched:
        both = [place for place in control if place in candidate]
        control, candidate = {p: control[p] for p in both}, {p: candidate[p] for p in both}
    elif design.kind in ("fixed rollouts", "tasks"):
        shared = {task for task, _ in control} & {task for task, _ in candidate}
        control, candidate = ({p: c for p, c in cells.items() if p[0] in shared} for cells in (control, candidate))
    tasks = tuple(task for task in design.tasks if any(p[0] == task for p in (*control, *candidate)))
    seeds = design.seeds
    if design.kind in ("crossed", "seeds over tasks") or (design.kind == "rollouts" and len(tasks) > 1):
        seeds = tuple(s for s in design.seeds if all((task, s) in control for task in tasks))
        control, candidate = _complete(control, tasks), _complete(candidate, tasks)
    return replace(design, control=control, candidate=candidate, tasks=tasks, seeds=seeds, missing=0)


def _complete(cells: Cells, tasks: tuple[str, ...]) -> dict[tuple[str, int | None], Cell]:
    """Only seeds that every task has, where a seed is one row of the table."""
    full = {seed for _, seed in cells if all((task, seed) in cells for task in tasks)}
    return {place: cell for place, cell in cells.items() if place[1] in full}


def _improvement(design: Design) -> float | None:
    """Chance that a run of B is better than one of A on the same task, ties half; averaged over tasks."""
    shares = []
    for task in design.tasks:
        a, b = (
            np.array([v for place, cell in cells.items() if place[0] == task for v in cell.values])
            for cells in (design.control, design.candidate)
        )
        if a.size and b.size:
            # Mann-Whitney's count of won pairs, from ranks: no table of all pairs at n = 500,000.
            ranks = average_ranks(np.concatenate((b, a)))
            shares.append((float(ranks[: b.size].sum()) - b.size * (b.size + 1) / 2.0) / (a.size * b.size))
    return float(np.mean(shares)) if shares else None


def spread(design: Design, test: Test | None) -> Spread | None:
    """The spread that decides how small an effect can be seen; from the test's own error where units are of two kinds."""
    known = without_missing(design)
    if not known.control or not known.candidate:
        return None
    a, b = arrays.sides(known)
    if design.kind in ("seeds", "tasks", "seeds over tasks"):
        d = b[0] - a[0]
        return (float(d.std(ddof=1)), float(d.size), "paired") if d.size >= 2 else None
    if design.kind == "rollouts":
        return _pooled(a[0], b[0])
    statistic = _t_statistic(test.evidence) if test is not None else None
    if statistic is None:
        return None
    units = statistic.df + 1.0
    return statistic.se * math.sqrt(units), units, "paired"


def _pooled(a: Array, b: Array) -> Spread | None:
    if min(a.size, b.size) < 2:
        return None
    squares = a.var(ddof=1) * (a.size - 1) + b.var(ddof=1) * (b.size - 1)
    # Two unequal arms are worth the harmonic mean of their sizes.
    return math.sqrt(squares / (a.size + b.size - 2)), 2.0 / (1.0 / a.size + 1.0 / b.size), "unpaired"


def _t_statistic(evidence: Evidence) -> TStatistic | None:
    """The widest of the t statistics behind the evidence."""
    corners = evidence.corners if isinstance(evidence, WorstCase) else (evidence,)
    found = [corner for corner in corners if isinstance(corner, TStatistic)]
    return max(found, key=lambda one: one.se) if found else None


def smallest_effect(found: Spread | None, alpha: float) -> float | None:
    """The effect that these units find with 80 % power."""
    if found is None or found[0] <= 0.0 or found[1] <= 1.0:
        return None
    return minimum_detectable_effect(found[0], found[1], alpha, design=found[2])


def units_for(effect: float | None, found: Spread | None, alpha: float) -> int | None:
    """Units that find an effect of this size with 80 % power; None where there is no effect or spread to speak of."""
    if found is None or effect is None or found[0] <= 0.0:
        return None
    try:
        return units_needed(effect, found[0], alpha, design=found[2])
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class UnitValue:
    """What the arms did at one place (paired) or what one run did (unpaired: the other side is None)."""

    label: str
    control: float | None
    candidate: float | None


def unit_values(design: Design) -> list[UnitValue]:
    """The values behind a comparison, missing runs left out, in the metric's own direction."""
    sign = -1.0 if design.turned else 1.0
    known = without_missing(design)
    if design.matched:
        return [
            UnitValue(_pair_label(place, cell, known.candidate[place]), sign * cell.mean(0.0), sign * known.candidate[place].mean(0.0))
            for place, cell in known.control.items()
        ]  # fmt: skip
    found = [UnitValue(label, sign * value, None) for label, value in _single_values(known.control)]
    return found + [UnitValue(label, None, sign * value) for label, value in _single_values(known.candidate)]


def _single_values(cells: Cells) -> list[tuple[str, float]]:
    return [(_label(place, cell), value) for place, cell in cells.items() for value in cell.values]


def _pair_label(place: Place, a: Cell, b: Cell) -> str:
    first, second = _label(place, a), _label(place, b)
    return first if first == second else f"{first} vs {second}"


def _label(place: Place, cell: Cell) -> str:
    """The run's own name where there is just one, else the place."""
    if len(cell.runs) == 1 and cell.runs[0]:
        return cell.runs[0]
    task, seed = place
    return task if seed is None else f"{task}, seed {seed}"
