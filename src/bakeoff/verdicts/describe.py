"""What stands beside a verdict: means, effect sizes, what could have been detected, and the sentences. None of it decides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bakeoff.spec.experiment import Analysis
from bakeoff.stats import effects
from bakeoff.stats.decision import GUARDED_UNITS, Decision, flips_suffice
from bakeoff.stats.evidence import Interval, Test, WorstCase
from bakeoff.stats.numerics import average_ranks, difference
from bakeoff.stats.power import Family, Units, decidable, minimum_detectable_effect, units_needed
from bakeoff.stats.ttests import TStatistic
from bakeoff.text import NOTHING
from bakeoff.verdicts.design import ONE_PAIR_A_UNIT, Cell, Design, Place
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.testing import sides

_REASONS = {
    "inconclusive": "the data do not separate them",
    "too_few": "at least 3 independent units are needed",
    "seed_has_no_effect": "every arm gives the same value on every seed, and copies are not replicates",
    "missing": "the missing runs could change the verdict either way",
    "not_final": "not final: planned runs are still open",
    "looked": "runs were added to units whose results had been seen; --fresh starts over, and analysis.final in the "
    "new file allows any number of looks",
}
_WHY_THIS_TEST = {
    "sign-flip": "{n} paired units are enough for it{of}",
    "paired t": "{n} paired units are too few for a sign-flip test{of}",
    "permutation and Welch t": "unpaired arms; the larger p of the two counts",
    "permutation": "unpaired arms without any spread",
    "Welch t": "unpaired arms with too few splits to permute{of}",
    "sign-flip (ties in full)": "{n} paired units, exact tests asked for",
    "exact permutation": "unpaired arms, exact tests asked for",
    **dict.fromkeys(("McNemar (mid-p)", "McNemar (exact)"), "outcomes of 0 and 1, one pair for each unit"),
    **dict.fromkeys(("Fisher (mid-p)", "Fisher (exact)"), "outcomes of 0 and 1, unpaired"),
    "stratified paired t": "these tasks only, seeds nested in tasks",
    "stratified t": "these tasks only, arms unpaired inside each task",
    "e-process over all looks": "results were seen before the plan grew",
    "crossed t": "tasks and seeds are both samples, every seed on every task",
}


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """Chance that a run of B beats one of A on the same task."""
    correlation: float | None = None
    variance_reduction: float | None = None
    mde: float | None = None
    """Smallest effect that this many units detect with 80 % power."""
    units_for_margin: int | None = None
    """Units that would detect a difference of the margin with 80 % power."""


def describe(
    design: Design, analysis: Analysis | None = None, test: Test | Decision | None = None, comparisons: int = 1
) -> Description:
    """Of the units where both arms are known. With an analysis also what could have been detected at its alpha.

    `comparisons` is the size of the family that shares alpha.
    """
    known = design.without_missing()
    if not known.control or not known.candidate:
        return Description()
    a, b = sides(known)
    # Every task weighs the same in a mean, as it does in the test.
    means = [design.sign * float(np.mean([part.mean() for part in side])) for side in (a, b)]
    x, y = (design.sign * np.concatenate([part.ravel() for part in side]) for side in (a, b))
    pairing = effects.pairing(x, y) if design.paired and x.size >= 2 else effects.Pairing(None, None)
    two = min(x.size, y.size) >= 2
    values: dict[str, tuple[list[float], list[float]]] = {task: ([], []) for task in known.tasks}
    for side, cells in enumerate((known.control, known.candidate)):
        for (task, _), cell in cells.items():
            values[task][side].extend(cell.values)
    shares = []
    for of_a, of_b in values.values():
        if of_a and of_b:
            # Mann-Whitney's count of won pairs, from ranks: no table of all pairs at n = 500,000.
            won = float(average_ranks(np.array([*of_b, *of_a]))[: len(of_b)].sum()) - len(of_b) * (len(of_b) + 1) / 2.0
            shares.append(won / (len(of_a) * len(of_b)))
    return Description(
        control_mean=means[0],
        candidate_mean=means[1],
        effect=means[1] - means[0],
        lift=(means[1] - means[0]) / abs(means[0]) if means[0] != 0.0 else None,
        cohens_d=effects.cohens_d(x, y) if two else None,
        cohens_dz=effects.cohens_dz(y - x) if design.paired and two else None,
        hedges_g=effects.hedges_g(x, y) if two else None,
        improvement=float(np.mean(shares)) if shares else None,
        correlation=pairing.correlation,
        variance_reduction=pairing.variance_reduction,
        **({} if analysis is None else _detectable(known, analysis, test, comparisons)),
    )


def _detectable(known: Design, analysis: Analysis, test: Test | Decision | None, comparisons: int) -> Mapping[str, Any]:
    """`mde` and `units_for_margin`, where there is a spread to plan with.

    It comes from the differences, from both arms, or from the test's own standard error where units are of two kinds.
    There is no `mde` where an effect of that size was seen and not detected: the figure is wrong for these data then.
    """
    a, b = sides(known)
    design: Literal["paired", "unpaired"] = "paired"
    units: Units
    if known.kind in ONE_PAIR_A_UNIT:
        d = difference(b[0], a[0])
        if d.size < 2:
            return {}
        spread, units = float(d.std(ddof=1)), d.size
    elif known.kind == "rollouts":
        x, y = a[0], b[0]
        if min(x.size, y.size) < 2:
            return {}
        squares = x.var(ddof=1) * (x.size - 1) + y.var(ddof=1) * (y.size - 1)
        spread, units = math.sqrt(squares / (x.size + y.size - 2)), (x.size, y.size)
        design = "unpaired"
    else:
        evidence = test.evidence if isinstance(test, Test) else None
        corners = evidence.corners if isinstance(evidence, WorstCase) else (evidence,)
        statistics = [corner for corner in corners if isinstance(corner, TStatistic)]
        if not statistics:
            return {}
        widest = max(statistics, key=lambda statistic: statistic.se)
        spread, units = widest.se * math.sqrt(widest.df + 1.0), widest.df + 1.0
    if spread <= 0.0:
        return {}
    detectable: dict[str, Any] = {}
    family = Family(comparisons)
    if decidable(units):
        mde = minimum_detectable_effect(spread, units, analysis.alpha, design=design, family=family)
        effect = float(np.mean([part.mean() for part in b]) - np.mean([part.mean() for part in a]))
        missed = isinstance(test, Test) and test.p > analysis.alpha / comparisons and abs(effect) >= mde
        detectable = {} if missed else {"mde": mde}
    if analysis.margin is not None:
        try:
            detectable["units_for_margin"] = units_needed(
                analysis.margin, spread, analysis.alpha, design=design, family=family
            )
        except ValueError:  # more than can be run
            pass
    return detectable


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


# -- in words: numbers here never claim certainty


def sentence(
    observations: Observations, control: str, candidate: str, design: Design, decision: Decision, mde: float | None
) -> str:
    """The verdict in one plain sentence."""
    about = f"{candidate} against {control} on {observations.metric}, {design.population}"
    if decision.verdict == "undecided":
        why = _REASONS[decision.reason]
        if decision.reason == "too_few" and decision.n >= 3:
            why = "a task with a single run has no spread; run two seeds or more"
        if decision.reason == "inconclusive" and mde is not None:
            why += f"; {decision.n} units can detect effects of {mde:.3g} or more (80 % power)"
        final = observations.analysis.final
        if decision.reason == "not_final" and final is not None and observations.final:
            why = f"not final: the verdict is given at {final} units, and there are {design.units}"
        if decision.reason == "missing":
            why = f"{design.missing} runs are missing, and {why}"
        return f"Undecided: {about}: {why}."
    equivalent = decision.verdict == "equivalent"
    deciding = (decision.equivalence_interval if equivalent else None) or decision.decision_interval
    interval = own_direction(deciding, observations)
    assert interval is not None and decision.effect is not None
    measured = f"{design.sign * decision.effect:+.4g} ({format_interval(interval)})"
    if equivalent:
        analysis = observations.analysis
        size = (
            f"{analysis.margin:g}" if analysis.margin is not None else f"{analysis.relative_margin:.3g} of the control"
        )
        differs = "; the small difference is real" if decision.differs else ""
        few = decision.n < GUARDED_UNITS and observations.bounds is None and not design.binary
        symmetric = " (assumes symmetric differences)" if few else ""
        return f"Equivalent: {about}: {measured}, within a margin of {size}{differs}{symmetric}."
    assumes = f" ({decision.assumes})" if decision.method == "paired t" else ""
    return f"{decision.verdict.capitalize()}: {about}: {measured}, p = {format_p(decision.p_adjusted)}{assumes}."


def choice_of_test(design: Design, decision: Decision, alpha: float, comparisons: int) -> str:
    """Which test decided and why it was this one; the reason is the design, never the values."""
    if not decision.method:
        return "no test"
    of = f" at alpha {alpha:g}" + (f" over {comparisons} comparisons" if comparisons > 1 else "")
    why = _WHY_THIS_TEST.get(decision.method, "").format(n=decision.n, of=of)
    paired = design.kind in ONE_PAIR_A_UNIT
    if decision.method == "sign-flip" and not (paired and flips_suffice(decision.n, alpha, comparisons)):
        why = "there is no spread, so the units are only counted"
    return f"{decision.method}: {why}; {decision.assumes}"


def own_direction(interval: Interval | None, observations: Observations) -> Interval | None:
    """An interval in the metric's own direction: inside the tests larger is better."""
    return interval if interval is None or observations.larger_is_better else interval.negated()


def format_p(p: float | None, floor: float | None = None) -> str:
    """Never 0: a p at the smallest value that this many units can give says so."""
    if p is None:
        return NOTHING
    text = f"{p:.2g}" if p < 0.001 else f"{p:.3f}"
    return f"{text} (the smallest possible)" if floor is not None and p <= floor * (1 + 1e-9) and p < 1 else text


def format_interval(interval: Interval | None, *, in_table: bool = False) -> str:
    """`95 % interval 0.1 to 0.3`, and in a table `0.1 to 0.3 (95 %)`."""
    if interval is None:
        return NOTHING
    # An open end is not part of the interval: `above 0 to 0.3` does not contain 0.
    low, high = (
        f"{word} {end:.4g}" if is_open and math.isfinite(end) else f"{end:.4g}"
        for word, end, is_open in (
            ("above", interval.low, interval.low_open), ("below", interval.high, interval.high_open)
        )
    )  # fmt: skip
    ends, level = f"{low} to {high}", format_level(interval.level)
    return f"{ends} ({level})" if in_table else f"{level} interval {ends}"


def format_level(level: float) -> str:
    return f"{100 * level:.4g} %"


def signed(value: float | None, *, percent: bool = False) -> str:
    """An effect with its sign, in the metric's unit or in per cent of the control."""
    if value is None:
        return NOTHING
    return f"{100 * value:+.3g} %" if percent else f"{value:+.4g}"
