"""Before the next runs: how precise a mean is at N units, and the chance that N units find an effect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats.power import minimum_detectable_effect, t_power
from bakeoff.verdicts.pilot import Estimate
from bakeoff.verdicts.power import Plan
from bakeoff.verdicts.variance import BANDS, Curve, Precision
from bakeoff.web.figure import Band, Dots, Figure, Line, Mark, Panel, Rule, dash


def variance(found: Sequence[Precision]) -> Figure:
    """Two panels: relative standard error of the mean, and smallest difference that is found, against N."""
    first = found[0]
    arms, statistics = {one.sample.arm for one in found}, {one.statistic for one in found}
    names = [
        f"{one.sample.arm}, {one.statistic}" if len(arms) > 1 < len(statistics)
        else one.sample.arm if len(arms) > 1 else one.statistic
        for one in found
    ]  # fmt: skip
    known = [
        (number, name, one) for number, (name, one) in enumerate(zip(names, found, strict=True)) if not one.undefined
    ]
    error = [(number, name, one, one.relative_error, one.runs_for_error) for number, name, one in known]
    mde = [(number, name, one, one.mde, one.runs_for_mde) for number, name, one in known]
    unit = first.sample.unit
    panels = [
        _shares(error, "relative standard error of the mean (%)", unit, first),
        _shares(mde, "detectable difference (% of the mean)", unit, first),
    ]
    undefined = [name for name, one in zip(names, found, strict=True) if one.undefined]
    note = f" Undefined, because the mean may be 0: {', '.join(undefined)}." if undefined else ""
    caption = (
        f"Right: found with {first.power:.0%} power. Dots: smallest N at the threshold of {100 * first.threshold:.4g} %. Bands: {BANDS} ({first.level:.0%}). "
        f"Right of the {unit}s at hand the curves are projected. Population: {first.sample.population}.{note}"
    )
    return Figure(f"How precise is {first.sample.metric} at N {unit}s", caption, panels)


_Entry = tuple[int, str, Precision, Curve | None, Estimate]


def _shares(entries: Sequence[_Entry], label: str, unit: str, first: Precision) -> Panel:
    marks: list[Mark] = []
    tops = [1.5 * first.threshold]
    for number, name, one, curve, needed in entries:
        assert curve is not None
        marks.append(Band(one.n, 100 * curve.low, 100 * curve.high, number))
        marks.append(Line(one.n, 100 * curve.value, number, name, dash(number)))
        tops.append(float(curve.high[min(2, curve.high.size - 1)]))
        if needed.seen is not None and needed.seen <= one.n[-1]:
            at = float(np.interp(needed.seen, one.n, 100 * curve.value))
            marks.append(Dots(np.array([float(needed.seen)]), np.array([at]), number, "", (f"N = {needed.seen}",)))
    marks.append(Rule("y", 100 * first.threshold, f"threshold {100 * first.threshold:.4g} %"))
    for size in sorted({one.at_hand for _, _, one, _, _ in entries}):
        marks.append(Rule("x", float(size), f"{size} at hand", dash="dotted"))
    top = 100 * max(tops)
    return Panel(
        f"number of {unit}s N" + (" an arm" if "difference" in label else ""), label, tuple(marks), y_range=(0.0, top)
    )


def power(plan: Plan) -> Figure:
    """Chance of finding an effect against the number of units: the wanted effect, or the smallest that is found now."""
    spread, goal = plan.spread, plan.goal
    effects = _effects(plan)
    n = _units(plan, effects)
    marks: list[Mark] = []
    for number, effect in enumerate(effects):
        seen, upper = (_chances(n, effect, sd, plan) for sd in (spread.sd, spread.upper))
        if spread.upper > spread.sd:
            marks.append(Band(n, upper, seen, number))
        marks.append(Line(n, seen, number, f"effect {effect:.3g}", dash(number)))
    marks.append(Rule("y", goal.power, f"{goal.power:.0%} wanted"))
    if goal.n is not None:
        marks.append(Rule("x", float(goal.n), f"{goal.n} at hand", dash="dotted"))
    arm = " an arm" if spread.design == "unpaired" else ""
    band = (
        f" Bands reach down to the spread's {spread.confidence:.0%} upper limit, {spread.upper:.3g}."
        if spread.upper > spread.sd and spread.confidence is not None
        else ""
    )
    caption = (
        f"Two-sided {spread.design} t test at alpha = {goal.alpha:g}, by the noncentral t, spread {spread.sd:.3g}.{band} "
        "The effect is what one wants to find, never what a pilot showed."
    )
    panel = Panel(
        f"number of {spread.unit}s N{arm}",
        "chance to find it (power)",
        tuple(marks),
        y_range=(0.0, 1.12),
        y_ticks=_SHARES,
    )
    return Figure(f"How many {spread.unit}s find an effect", caption, [panel])


_SHARES = tuple((share / 100, f"{share} %") for share in range(0, 101, 20))


def _effects(plan: Plan) -> list[float]:
    """The wanted effect with half and twice of it, or what the units at hand find."""
    if plan.goal.effect:
        wanted = abs(plan.goal.effect)
        return [wanted, wanted / 2.0, wanted * 2.0]
    n = plan.goal.n or 10
    found = minimum_detectable_effect(plan.spread.sd, n, plan.goal.alpha, plan.goal.power, plan.spread.design)
    return [found, found / 2.0, found * 2.0]


def _units(plan: Plan, effects: Sequence[float]) -> Array:
    needed = plan.needed.upper or plan.needed.seen if plan.needed else None
    last = max(12, int(1.5 * (needed or 0)), 2 * (plan.goal.n or 0))
    return np.unique(np.linspace(2, min(last, 100_000), 120).round()).astype(np.float64)


def _chances(n: Array, effect: float, sd: float, plan: Plan) -> Array:
    return np.array([t_power(effect, sd, float(units), plan.goal.alpha, plan.spread.design) for units in n])
