"""Pictures of comparisons: differences of units, bootstrap distributions, e-processes, effects in one forest plot, and
how much the next runs can decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.results.table import Array
from bakeoff.stats.bootstrap import BootstrapInterval
from bakeoff.stats.evidence import Interval
from bakeoff.stats.power import chance_to_detect, minimum_detectable_effect
from bakeoff.text import number, percent, short
from bakeoff.verdicts.comparison import Comparison
from bakeoff.verdicts.questions.planning import Estimate
from bakeoff.verdicts.questions.power import Plan
from bakeoff.verdicts.questions.variance import BANDS, Curve, Precision
from bakeoff.verdicts.sequential.evidence_path import SequentialReport, path_of
from bakeoff.web.arms import height_for
from bakeoff.web.figure import Axis, Band, Bars, Dash, Dots, Figure, Line, Mark, Panel, Rule, Span, dash

MOST_NAMED = 24
"""Up to this many units each has its name on the axis."""
MOST_DOTS = 400
"""More units than this are drawn as a histogram."""


@dataclass(frozen=True, slots=True)
class Differences:
    """B - A of every unit, in the metric's own unit and direction, with the effect and its interval."""

    metric: str
    control: str
    candidate: str
    unit: str
    """`seed`, `task` or `run`."""
    names: tuple[str, ...]
    values: Array
    effect: float
    interval: Interval | None
    kind: str
    """What the interval is, such as `95 % interval, sign-flip`."""
    verdict: str
    margin: float | None = None


def paired_differences(pairs: Sequence[Differences], *, source: str = "") -> Figure:
    """Dots: one for each unit. Line and strip: the mean difference and its interval."""
    first = pairs[0]
    title = f"{first.metric}: {_listed([pair.candidate for pair in pairs])} against {first.control}"
    if len(pairs) == 1:
        title += f", {first.verdict}"
    sizes = sorted({pair.values.size for pair in pairs})
    n = f"N = {sizes[0]}" if len(sizes) == 1 else f"N = {sizes[0]} to {sizes[-1]}"
    margin = f" Dotted: the margin of {number(first.margin)}." if first.margin is not None else ""
    each = "Each dot is one" if sizes[-1] <= MOST_DOTS else "Share of units by their difference, unit:"
    caption = (
        f"{each} {first.unit} ({n}): {first.metric} of the candidate minus that of {first.control}. "
        f"Line: mean difference; strip: {first.kind}.{margin} {source}"
    )
    return Figure(title, caption.strip(), [_difference_panel(pair, len(pairs) > 1) for pair in pairs])


def _difference_panel(pair: Differences, titled: bool) -> Panel:
    """Differences as dots in plan order; as a histogram where they are too many for dots."""
    title = f"{pair.candidate}: {pair.verdict}" if titled else ""
    label = f"difference in {pair.metric}"
    counted = pair.values.size > MOST_DOTS
    axis: Axis = "x" if counted else "y"
    strip: list[Mark] = []
    if pair.interval is not None and pair.interval.is_bounded:
        strip.append(Span(axis, pair.interval.low, pair.interval.high, "interval of the mean", 0))
    mean = Rule(axis, pair.effect, f"mean {number(pair.effect, sign=True)}", 0, "solid")
    if counted:
        heights, edges = np.histogram(pair.values, bins=40)
        bars = Bars(edges, 100.0 * heights / pair.values.size, 1, f"{pair.unit}s")
        return Panel(label, f"share of {pair.unit}s (%)", (bars, *strip, Rule("x", 0.0), mean), title)
    margins = () if pair.margin is None else (-pair.margin, pair.margin)
    x = np.arange(1.0, pair.values.size + 1.0)
    marks = (
        *strip,
        Rule("y", 0.0),
        *(Rule("y", margin, dash="dotted") for margin in margins),
        mean,
        Dots(x, pair.values, 1, f"one {pair.unit}", pair.names),
    )
    if x.size <= MOST_NAMED and max((len(name) for name in pair.names), default=0) <= 6:
        return Panel(pair.unit, label, marks, title, x_ticks=tuple(zip(map(float, x), pair.names, strict=True)))
    return Panel(f"{pair.unit} (in plan order)", label, marks, title)


@dataclass(frozen=True, slots=True)
class Resampled:
    """A bootstrap distribution of the mean difference, and the interval that the method reads from it."""

    pairs: Differences
    samples: Array
    interval: BootstrapInterval


def bootstrap_distribution(resampled: Sequence[Resampled], *, source: str = "") -> Figure:
    """Histograms of resampled mean differences, with their intervals."""
    panels = []
    for one in resampled:
        finite = one.samples[np.isfinite(one.samples)]
        heights, edges = np.histogram(finite, bins=min(60, max(12, int(math.sqrt(finite.size) / 2))))
        marks: list[Mark] = [Bars(edges, 100.0 * heights / finite.size, 0, "resamples")]
        if math.isfinite(one.interval.low) and math.isfinite(one.interval.high):
            marks.append(Span("x", one.interval.low, one.interval.high, "interval", 0))
        mean = Rule("x", one.pairs.effect, f"mean {number(one.pairs.effect, sign=True)}", 1, "solid")
        marks += [Rule("x", 0.0, "no difference"), mean]
        title = one.pairs.candidate if len(resampled) > 1 else ""
        panels.append(Panel(f"mean difference in {one.pairs.metric}", "share of resamples (%)", tuple(marks), title))
    first = resampled[0]
    caption = (
        f"Distribution of the mean difference over {first.samples.size:,} resamples of {first.pairs.values.size} "
        f"{first.pairs.unit}s. Strip: {percent(first.interval.level)} {first.interval.method} bootstrap interval. It describes the data and "
        f"does not vote. {source}"
    )
    names = _listed([one.pairs.candidate for one in resampled])
    title = f"Bootstrap of {first.pairs.metric}: {names} against {first.pairs.control}"
    return Figure(title, caption.strip(), panels)


def _listed(names: Sequence[str]) -> str:
    """Return each of up to three names once; of more, two of them and how many others there are."""
    shown = list(dict.fromkeys(names))
    return " and ".join(shown) if len(shown) <= 3 else f"{shown[0]}, {shown[1]} and {len(shown) - 2} others"


# -- the e-process of a sequential test: how the evidence grew, and where it decides

_LOWEST = -2.0
"""Evidence below 1/100 is drawn there: how little it is does not matter."""


def e_process(report: SequentialReport) -> Figure:
    """One panel for each comparison; the evidence axis is logarithmic."""
    first = report.comparisons[0]
    path = path_of(first)
    panels = [_evidence_panel(one, titled=len(report.comparisons) > 1) for one in report.comparisons]
    names = _listed([one.candidate for one in report.comparisons])
    title = f"{first.metric}: {names} against {first.control}"
    if len(report.comparisons) == 1:
        title += f", {first.verdict} after {path.decided_at or path.pairs} pairs"
    margin = ""
    if path.paths.above is not None:
        margin = f" Green and violet: evidence against a difference of more than {number(report.analysis.margin)} down or up."
    caption = (
        f"{first.decision.method.capitalize()} over pairs in plan order (one pair for each seed, N = {path.pairs} of at most "
        f"{path.planned}). Without an effect the score reaches its threshold, {number(path.threshold)} = 2m/alpha, at any "
        f"time with a chance of at most alpha = {report.analysis.alpha:g}. Assumes that {first.decision.assumes}.{margin} "
        f"{report.source}."
    )
    return Figure(title, caption, panels)


MAX_LOOKS = 32
"""Points at which a confidence sequence is drawn."""


def narrowing(report: SequentialReport) -> Figure:
    """One panel for each comparison: the mean difference and its confidence sequence after more and more pairs."""
    panels = [_narrowing_panel(one, titled=len(report.comparisons) > 1) for one in report.comparisons]
    first = report.comparisons[0]
    names = _listed([one.candidate for one in report.comparisons])
    caption = (
        "Line: mean difference after each pair, in plan order. Band: confidence sequence, which holds at every look at once; it narrows, "
        f"and it leaves 0 when the test decides. {report.source}."
    )
    return Figure(f"{first.metric}: {names} minus {first.control}, pair by pair", caption, panels)


def _narrowing_panel(comparison: Comparison, titled: bool) -> Panel:
    path = path_of(comparison)
    sign = comparison.design.sign
    known = np.isfinite(path.differences)
    means = np.cumsum(np.where(known, path.differences, 0.0)) / np.maximum(1, np.cumsum(known))
    looks = np.unique(np.linspace(1, path.pairs, min(MAX_LOOKS, path.pairs)).round().astype(int))
    intervals = [path.interval_after(int(look)) for look in looks]
    ends = np.array([sorted((sign * each.low, sign * each.high)) for each in intervals])
    bounded = np.isfinite(ends).all(axis=1)
    marks: list[Mark] = [Rule("y", 0.0, dash="solid")]
    if bounded.any():
        marks.append(Band(looks[bounded].astype(float), ends[bounded, 0], ends[bounded, 1], 0, "confidence sequence"))
    marks.append(Line(np.arange(1.0, path.pairs + 1.0), means, 0, "mean difference"))
    # The first intervals are so wide that they would hide how the later ones narrow.
    last = ends[bounded][-max(1, int(bounded.sum()) * 2 // 3) :]
    drawn = np.concatenate((last.ravel(), means[means.size // 3 :], [0.0]))
    room = 0.08 * float(np.ptp(drawn)) or 1.0
    return Panel(
        "pairs (seeds in plan order)", f"{comparison.metric}: difference", tuple(marks), comparison.candidate if titled else "",
        y_range=(float(drawn.min()) - room, float(drawn.max()) + room),
    )  # fmt: skip


def _evidence_panel(comparison: Comparison, titled: bool) -> Panel:
    path = path_of(comparison)
    paths, decided_at = path.paths, path.decided_at
    lines: list[tuple[Array, str, Dash]] = [
        (paths.better, "e for better", "solid"), (paths.worse, "e for worse", "dashed"),
    ]  # fmt: skip
    rules = [
        Rule("y", math.log10(path.threshold), f"decided: {number(path.threshold)}"),
        Rule("y", 0.0, dash="solid"),
    ]
    stop, colour = (paths.worse, 1) if comparison.verdict == "worse" else (paths.better, 0)
    if paths.above is not None and paths.below is not None:
        lines += [(paths.above, "e for above -margin", "dotted"), (paths.below, "e for below +margin", "dotted")]
        both = f"equivalent: both {number(path.margin_threshold)}"
        rules.insert(0, Rule("y", math.log10(path.margin_threshold), both, dash="dotted"))
        if comparison.verdict not in ("better", "worse"):
            stop, colour = np.minimum(paths.above, paths.below), 2
    x = np.arange(0.0, path.pairs + 1.0)
    marks: list[Mark] = []
    top = math.log10(path.threshold)
    for colour, (log_e, label, kind) in enumerate(lines):
        # From 1 before the first pair, in powers of ten.
        y = np.maximum(np.concatenate(([0.0], log_e)) / math.log(10.0), _LOWEST)
        marks.append(Line(x, y, colour, label, kind))
        top = max(top, float(np.nanmax(y)))
    marks += rules
    if decided_at is not None:
        y = np.array([float(stop[decided_at - 1]) / math.log(10.0)])
        name = f"{comparison.verdict} at pair {decided_at}"
        marks.append(Dots(np.array([float(decided_at)]), y, colour, names=(name,)))
    step = 1 if top <= 6 else math.ceil(top / 6)
    exponents = [-2, -1, 0, *range(step, math.ceil(top) + 1, step)]
    ticks = tuple((float(e), f"{10.0**e:g}" if -3 <= e <= 4 else f"1e{e}") for e in exponents)
    title = f"{comparison.candidate} on {comparison.metric}: {comparison.verdict}" if titled else ""
    return Panel(
        "pairs (seeds in plan order)", "evidence e (log scale)", tuple(marks), title, y_ticks=ticks,
        y_range=(_LOWEST - 0.1, top + 0.35),
    )  # fmt: skip


# -- effects with their intervals, one line each


@dataclass(frozen=True, slots=True)
class Effect:
    """`colour` counts through the palette; an effect without an interval is a dot alone."""

    name: str
    value: float
    interval: Interval | None
    colour: int = 0
    note: str = ""


def forest(
    groups: Sequence[tuple[str, Sequence[Effect]]],
    x_label: str,
    title: str,
    caption: str,
    *,
    at: float = 0.0,
    span: tuple[float, float] | None = None,
) -> Figure:
    """One panel for each group, which is its title and its effects; a dashed line at no effect.

    Panels show `span` (default: all that is there). A value outside of it stands at the edge, with its number.
    """
    panels = []
    for name, effects in groups:
        ends = [effect.value for effect in effects] + [at]
        for effect in effects:
            if effect.interval is not None and effect.interval.is_bounded:
                ends += [effect.interval.low, effect.interval.high]
        ends = [*(span or ends), at]
        room = 0.06 * ((max(ends) - min(ends)) or 1.0)
        low, high = min(ends) - room, max(ends) + room
        marks: list[Mark] = [Rule("x", at)]
        ticks = []
        for row, effect in enumerate(effects):
            y = -float(row)
            if effect.interval is not None and any(map(math.isfinite, (effect.interval.low, effect.interval.high))):
                # One end that is infinite leaves the panel; two say nothing.
                line = np.clip([effect.interval.low, effect.interval.high], low, high)
                marks.append(Line(line, np.array([y, y]), effect.colour))
            inside = float(np.clip(effect.value, low, high))
            marks.append(Dots(np.array([inside]), np.array([y]), effect.colour, names=(effect.name,)))
            notes = [note for note in (effect.note, "" if inside == effect.value else number(effect.value)) if note]
            ticks.append((y, short(effect.name) + (f" ({', '.join(notes)})" if notes else "")))
        panels.append(
            Panel(
                x_label, "", tuple(marks), name if len(groups) > 1 else "", y_ticks=tuple(ticks),
                y_range=(-len(effects) + 0.4, 0.6), x_range=(low, high),
            )
        )  # fmt: skip
    rows = max(len(effects) for _, effects in groups)
    return Figure(title, caption, panels, height=height_for(rows), columns=1 if rows > 12 else 2)


# -- before the next runs: how precise a mean is at N units, and the chance that N units detect an effect

_SHARES = tuple((share / 100, f"{share} %") for share in range(0, 101, 20))


def precision_by_units(precisions: Sequence[Precision]) -> Figure:
    """Two panels: relative standard error of the mean, and smallest difference that is found, against N."""
    first = precisions[0]
    arms, statistics = {one.sample.arm for one in precisions}, {one.statistic for one in precisions}
    names = [
        f"{one.sample.arm}, {one.statistic}" if len(arms) > 1 < len(statistics)
        else one.sample.arm if len(arms) > 1 else one.statistic
        for one in precisions
    ]  # fmt: skip
    unit = first.sample.unit
    errors = [(one.relative_error, one.runs_for_error) for one in precisions]
    differences = [(one.mde, one.runs_for_mde) for one in precisions]
    axis = f"number of {unit}s N"
    panels = [
        _share_panel(names, precisions, errors, axis, "relative standard error of the mean (%)"),
        _share_panel(names, precisions, differences, f"{axis} per arm", "detectable difference (% of the mean)"),
    ]
    undefined = [name for name, one in zip(names, precisions, strict=True) if one.undefined]
    note = f" Undefined, because the mean may be 0: {', '.join(undefined)}." if undefined else ""
    caption = (
        f"Right: found with {percent(first.power)} power. Dots: smallest N at the threshold of {percent(first.threshold)}. "
        f"Bands: {BANDS} ({percent(first.level)}). Right of the {unit}s at hand the curves are projected. "
        f"Population: {first.sample.population}.{note}"
    )
    return Figure(f"How precise is {first.sample.metric} at N {unit}s", caption, panels)


def _share_panel(
    names: Sequence[str],
    precisions: Sequence[Precision],
    curves: Sequence[tuple[Curve | None, Estimate]],
    x_label: str,
    y_label: str,
) -> Panel:
    """One curve for each statistic that is defined, with a dot where it meets the threshold."""
    threshold = precisions[0].threshold
    marks: list[Mark] = []
    tops = [1.5 * threshold]
    for colour, (name, one, (curve, needed)) in enumerate(zip(names, precisions, curves, strict=True)):
        if curve is None:
            continue
        marks.append(Band(one.n, 100 * curve.low, 100 * curve.high, colour))
        marks.append(Line(one.n, 100 * curve.value, colour, name, dash(colour)))
        tops.append(float(curve.high[min(2, curve.high.size - 1)]))
        if needed.seen is not None and needed.seen <= one.n[-1]:
            at = float(np.interp(needed.seen, one.n, 100 * curve.value))
            marks.append(Dots(np.array([float(needed.seen)]), np.array([at]), colour, "", (f"N = {needed.seen}",)))
    marks.append(Rule("y", 100 * threshold, f"threshold {percent(threshold)}"))
    for size in sorted({one.at_hand for one in precisions if not one.undefined}):
        marks.append(Rule("x", float(size), f"{size} at hand", dash="dotted"))
    return Panel(x_label, y_label, tuple(marks), y_range=(0.0, 100 * max(tops)))


def power_by_units(plan: Plan) -> Figure:
    """Chance to detect an effect against the number of units: the wanted effect, or the smallest that is found now.

    Curves of half and of twice that effect stand beside it.
    """
    spread, goal = plan.spread, plan.goal
    effect = abs(goal.effect or 0.0)
    if not effect:
        effect = minimum_detectable_effect(spread.sd, goal.n or 10, goal.alpha, goal.power, spread.design, goal.family)
    needed = plan.needed.upper or plan.needed.seen if plan.needed else None
    last = max(12, int(1.5 * (needed or 0)), 2 * (goal.n or 0))
    n = np.unique(np.linspace(2, min(last, 100_000), 120).round()).astype(np.float64)
    marks: list[Mark] = []
    for colour, size in enumerate((effect, effect / 2.0, effect * 2.0)):
        at_spread, at_upper = (
            np.array([chance_to_detect(size, sd, float(units), goal.alpha, spread.design, goal.family) for units in n])
            for sd in (spread.sd, spread.upper)
        )
        if spread.upper > spread.sd:
            marks.append(Band(n, at_upper, at_spread, colour))
        marks.append(Line(n, at_spread, colour, f"effect {number(size)}", dash(colour)))
    marks.append(Rule("y", goal.power, f"{percent(goal.power)} wanted"))
    if goal.n is not None:
        marks.append(Rule("x", float(goal.n), f"{goal.n} at hand", dash="dotted"))
    band = ""
    if spread.upper > spread.sd and spread.confidence is not None:
        band = f" Bands reach down to the spread's {percent(spread.confidence)} upper limit, {number(spread.upper)}."
    family = f" over {goal.family.comparisons} comparisons" if goal.family.comparisons > 1 else ""
    caption = (
        f"The test that decides about {spread.design} normal values at alpha = {goal.alpha:g}{family}, spread "
        f"{number(spread.sd)}.{band} "
        "The effect is what one wants to find, never what earlier runs showed."
    )
    label = f"number of {spread.unit}s N{' per arm' if spread.design == 'unpaired' else ''}"
    panel = Panel(label, "chance to find it (power)", tuple(marks), y_range=(0.0, 1.12), y_ticks=_SHARES)
    return Figure(f"How many {spread.unit}s find an effect", caption, [panel])
