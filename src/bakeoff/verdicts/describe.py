"""Numbers beside a verdict: means, effect sizes, what pairing saved, what could have been detected. None of them decides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats import effects
from bakeoff.stats.evidence import Test, WorstCase
from bakeoff.stats.power import minimum_detectable_effect, units_needed
from bakeoff.stats.ranks import average_ranks
from bakeoff.stats.ttests import TStatistic
from bakeoff.verdicts.design import ONE_PAIR_A_UNIT, Cell, Design, Place
from bakeoff.verdicts.testing import sides


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
    known = design.without_missing()
    if not known.control or not known.candidate:
        return Description()
    a, b = sides(known)
    # Every task weighs the same in a mean, as it does in the test.
    means = [design.sign * float(np.mean([part.mean() for part in side])) for side in (a, b)]
    x, y = (design.sign * np.concatenate([part.ravel() for part in side]) for side in (a, b))
    pairing = effects.pairing(x, y) if design.paired and x.size >= 2 else effects.Pairing(None, None)
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
        correlation=pairing.correlation,
        variance_reduction=pairing.variance_reduction,
    )


def _improvement(design: Design) -> float | None:
    """Chance that a run of B is better than one of A on the same task, ties half; averaged over tasks."""
    values: dict[str, tuple[list[float], list[float]]] = {task: ([], []) for task in design.tasks}
    for side, cells in enumerate((design.control, design.candidate)):
        for (task, _), cell in cells.items():
            values[task][side].extend(cell.values)
    shares = []
    for a, b in values.values():
        if a and b:
            # Mann-Whitney's count of won pairs, from ranks: no table of all pairs at n = 500,000.
            ranks = average_ranks(np.array([*b, *a]))
            shares.append((float(ranks[: len(b)].sum()) - len(b) * (len(b) + 1) / 2.0) / (len(a) * len(b)))
    return float(np.mean(shares)) if shares else None


@dataclass(frozen=True, slots=True)
class Spread:
    """The noise that decides how small an effect can be detected, as the power functions take it."""

    sd: float
    units: float
    design: Literal["paired", "unpaired"]

    def detectable(self, alpha: float) -> float | None:
        """The effect that these units detect with 80 % power."""
        if self.sd <= 0.0 or self.units <= 1.0:
            return None
        return minimum_detectable_effect(self.sd, self.units, alpha, design=self.design)

    def units_for(self, effect: float | None, alpha: float) -> int | None:
        """Units that detect an effect of this size with 80 % power; None where there is no effect or spread."""
        if effect is None or self.sd <= 0.0:
            return None
        try:
            return units_needed(effect, self.sd, alpha, design=self.design)
        except ValueError:
            return None


def spread(design: Design, test: Test | None) -> Spread | None:
    """From the differences, from both arms, or from the test's own standard error where units are of two kinds."""
    known = design.without_missing()
    if not known.control or not known.candidate:
        return None
    a, b = sides(known)
    if design.kind in ONE_PAIR_A_UNIT:
        d = b[0] - a[0]
        return Spread(float(d.std(ddof=1)), float(d.size), "paired") if d.size >= 2 else None
    if design.kind == "rollouts":
        return _pooled(a[0], b[0])
    evidence = test.evidence if test is not None else None
    corners = evidence.corners if isinstance(evidence, WorstCase) else (evidence,)
    statistics = [corner for corner in corners if isinstance(corner, TStatistic)]
    if not statistics:
        return None
    widest = max(statistics, key=lambda statistic: statistic.se)
    return Spread(widest.se * math.sqrt(widest.df + 1.0), widest.df + 1.0, "paired")


def _pooled(a: Array, b: Array) -> Spread | None:
    if min(a.size, b.size) < 2:
        return None
    squares = a.var(ddof=1) * (a.size - 1) + b.var(ddof=1) * (b.size - 1)
    # Two unequal arms are worth the harmonic mean of their sizes.
    return Spread(
        math.sqrt(squares / (a.size + b.size - 2)), 2.0 / (1.0 / a.size + 1.0 / b.size), "unpaired"
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class UnitValue:
    """What the arms did at one place (paired), or what one run did (unpaired: the other side is None)."""

    label: str
    control: float | None
    candidate: float | None


def unit_values(design: Design) -> list[UnitValue]:
    """The values behind a comparison, missing runs left out, in the metric's own direction."""
    sign, known = design.sign, design.without_missing()
    if design.matched:
        units = []
        for place, cell in known.control.items():
            other = known.candidate[place]
            labels = dict.fromkeys((_label(place, cell), _label(place, other)))
            units.append(UnitValue(" vs ".join(labels), sign * cell.mean(0.0), sign * other.mean(0.0)))
        return units
    control = [UnitValue(_label(p, cell), sign * v, None) for p, cell in known.control.items() for v in cell.values]
    candidate = [UnitValue(_label(p, cell), None, sign * v) for p, cell in known.candidate.items() for v in cell.values]
    return control + candidate


def _label(place: Place, cell: Cell) -> str:
    """The run's own name where there is just one, else the place."""
    if len(cell.runs) == 1 and cell.runs[0]:
        return cell.runs[0]
    task, seed = place
    return task if seed is None else f"{task}, seed {seed}"
