"""What stands beside a verdict: means, effect sizes, what could have been detected, and the sentences. None of it decides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bakeoff.spec.experiment import Analysis
from bakeoff.stats import effects
from bakeoff.stats.decision import GUARDED_UNITS, Decision
from bakeoff.stats.evidence import Interval, Test
from bakeoff.stats.numerics import average_ranks
from bakeoff.stats.power import Family, decidable, minimum_detectable_effect, units_needed
from bakeoff.text import format_ends, format_interval, format_level, format_p, number, percent
from bakeoff.verdicts.designs import Cell, Design, Place
from bakeoff.verdicts.designs.testing import arm_mean
from bakeoff.verdicts.observations import Observations

REASONS = {
    "too_few": "at least 3 independent units are needed",
    "too_few_for_equivalence": "the differences lie within the margin only if they are not skewed, and fewer than 8 units "
    "cannot tell; 8 units would decide",
    "unconnected": "the table falls apart into 2 blocks that share neither tasks nor seeds, so there are only 2 independent "
    "units; run some seeds of each block on tasks of the other",
    "seed_has_no_effect": "every arm gives the same value on every seed, and copies are not replicates",
    "missing": "the missing runs could change the verdict either way",
    "cluster": "by task the arms differ, and by groups of tasks it is open: --cluster COLUMN takes the groups as units, "
    "--cluster none says that tasks of one group are independent",
    "not_final": "not final: planned runs are still open",
    "exploratory": "exploratory: it was not declared before results were shown, so there is no verdict; --fresh with it "
    "in [analysis] gives one",
    "looked": "runs were added to units whose results had been seen; --fresh starts over, and analysis.final in the "
    "new file allows any number of looks",
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
    a, b = known.arrays()
    # Every task weighs the same in a mean, as it does in the test.
    means = [design.sign * arm_mean(side) for side in (a, b)]
    x, y = (design.sign * np.concatenate([part[~np.isnan(part)] for part in side]) for side in (a, b))
    pairing = effects.pairing(x, y) if design.paired and x.size >= 2 else effects.Pairing(None, None)
    two = min(x.size, y.size) >= 2
    values: dict[str, tuple[list[float], list[float]]] = {task: ([], []) for task in known.tasks}
    for side, cells in enumerate((known.control, known.candidate)):
        for (task, _), cell in cells.items():
            values[task][side].extend(cell.values)
    shares = []
    for of_a, of_b in values.values():
        if len(of_a) == 1 == len(of_b):  # tens of thousands of tasks with one run each need no ranks
            shares.append(0.5 if of_b == of_a else float(of_b > of_a))
        elif of_a and of_b:
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
    """Return `mde` and `units_for_margin`, where there is a spread to plan with.

    There is no `mde` where an effect of that size was seen and not detected: the figure is wrong for these data then.
    """
    spread = known.spread_to_detect(test)
    if spread is None or spread.sd <= 0.0:
        return {}
    detectable: dict[str, Any] = {}
    family = Family(comparisons)
    if decidable(spread.units):
        mde = minimum_detectable_effect(spread.sd, spread.units, analysis.alpha, design=spread.design, family=family)
        a, b = known.arrays()
        effect = arm_mean(b) - arm_mean(a)
        missed = isinstance(test, Test) and test.p > analysis.alpha / comparisons and abs(effect) >= mde
        detectable = {} if missed else {"mde": mde}
    if analysis.margin is not None:
        try:
            detectable["units_for_margin"] = units_needed(
                analysis.margin, spread.sd, analysis.alpha, design=spread.design, family=family
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
        if decision.reason == "inconclusive":
            why = _inconclusive(observations, design, decision, mde)
        elif decision.reason == "too_few" and decision.n >= 3:
            why = "a task with a single run has no spread; run two seeds or more"
        elif decision.reason == "missing":
            why = f"{design.missing} runs are missing, and {REASONS['missing']}"
        elif decision.reason == "not_final" and observations.analysis.final is not None and observations.final:
            why = (
                f"not final: the verdict is given at {observations.analysis.final} units, and there are {design.units}"
            )
        else:
            why = REASONS[decision.reason]
        return f"Undecided: {about}: {why}."
    equivalent = decision.verdict == "equivalent"
    deciding = (decision.equivalence_interval if equivalent else None) or decision.decision_interval
    interval = own_direction(deciding, observations)
    assert interval is not None and decision.effect is not None
    measured = f"{number(design.sign * decision.effect, sign=True)} ({format_interval(interval)})"
    if equivalent:
        analysis = observations.analysis
        size = (
            number(analysis.margin)
            if analysis.margin is not None
            else f"{percent(analysis.relative_margin)} of the control"
        )
        differs = "; the small difference is real" if decision.differs else ""
        few = decision.n < GUARDED_UNITS and not design.binary
        skew = " (the interval is widened because fewer than 8 units cannot show skew)" if few else ""
        return f"Equivalent: {about}: {measured}, within a margin of {size}{differs}{skew}."
    assumes = f" ({decision.assumes})" if decision.method == "paired t" else ""
    return f"{decision.verdict.capitalize()}: {about}: {measured}, p = {format_p(decision.p_adjusted)}{assumes}."


def _inconclusive(observations: Observations, design: Design, decision: Decision, mde: float | None) -> str:
    """Why there is no verdict, in words that nobody takes for 'there is no difference'."""
    interval = own_direction(decision.decision_interval, observations)
    assert interval is not None and decision.effect is not None
    alpha = 1.0 - interval.level
    if decision.identical:
        return (
            "no unit differs; only with a margin (--margin) can that become equivalent, and not with fewer than 5 units"
        )
    if decision.floor is not None and decision.floor > alpha * (1.0 + 1e-9):
        # Each pair more halves the smallest p that pairs can give.
        needed = decision.n + math.ceil(math.log2(decision.floor / alpha))
        enough = f"; {needed} could" if design.paired else ""
        return (
            f"{decision.n} units cannot decide at alpha {number(alpha)}, whatever they show: the smallest p that they "
            f"can give is {format_p(decision.floor)}{enough}"
        )
    why = f"it is open which is better: any difference in {format_ends(interval)} ({format_level(interval.level)}) fits"
    # An effect below the one that was seen and not decided must not be promised.
    if mde is not None and mde > abs(decision.effect):
        why += f"; {decision.n} units can detect effects of {number(mde)} or more (80 % power)"
    return why


def choice_of_test(design: Design, decision: Decision, alpha: float, comparisons: int) -> str:
    """Which test decided and why it was this one; the reason is the design, never the values."""
    if not decision.method:
        return "no test"
    why = design.why_this_test(decision, alpha, comparisons)
    return f"{decision.method}: {why}; {decision.assumes}"


def own_direction(interval: Interval | None, observations: Observations) -> Interval | None:
    """An interval in the metric's own direction: inside the tests larger is better."""
    return interval if interval is None or observations.larger_is_better else interval.negated()
