"""What stands beside a verdict: means, effect sizes, what could have been detected, and the sentences. None of it decides."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bakeoff.spec.experiment import Analysis
from bakeoff.stats import effects
from bakeoff.stats.decision import GUARDED_UNITS, Decision
from bakeoff.stats.evidence import Interval, Test
from bakeoff.stats.numerics import average_ranks
from bakeoff.stats.plans import Stratified, TwoWay, chance, planning_spread, scaled, sequential_detects
from bakeoff.stats.power import Multiplicity, chance_to_detect, decidable, minimum_detectable_effect
from bakeoff.text import format_ends, format_interval, format_level, format_p, number, percent
from bakeoff.verdicts.designs import Cell, Design, Place, Rule
from bakeoff.verdicts.designs.base import Spread
from bakeoff.verdicts.designs.cells import seeds_of
from bakeoff.verdicts.designs.testing import arm_mean
from bakeoff.verdicts.observations import Observations

POWER = 0.8
"""What `Next:` promises."""
MAX_UNITS = 20_000
"""More units than this are not a plan."""
REASONS = {
    "too_few": "at least 3 independent units are needed",
    "too_few_for_equivalence": "the differences lie within the margin only if they are not skewed, and fewer than 8 units "
    "cannot tell; 8 units would decide",
    "too_few_for_statistic": "ranks and trimmed means need 10 independent units; leave --statistic out, or run more",
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


@dataclass(frozen=True, slots=True)
class Means:
    """The means of the runs at hand, missing ones left out, in the metric's own unit and direction. Effects are B - A."""

    control: float | None = None
    candidate: float | None = None
    effect: float | None = None
    lift: float | None = None
    """The effect as a share of the control; None where that means nothing."""


def means_of(design: Design) -> Means:
    """Return the means over units where both arms are known: every task weighs the same, as it does in the test.

    With another statistic than the mean the effect is that statistic's, and no share of a mean.
    """
    known = design.without_missing()
    if not known.control or not known.candidate:
        return Means()
    a, b = (design.sign * arm_mean(side) for side in known.arrays())
    if design.statistic != "mean":
        enough = known.refusal() is None
        return Means(a, b, design.sign * known.test(known.arrays(), Rule()).evidence.effect if enough else None)
    return Means(a, b, b - a, (b - a) / abs(a) if a != 0.0 else None)


@dataclass(frozen=True, slots=True)
class EffectSizes:
    """How large a difference is beside the spread of the runs at hand, and what pairing them saves."""

    cohens_d: float | None = None
    cohens_dz: float | None = None
    hedges_g: float | None = None
    improvement: float | None = None
    """Chance that a run of B beats one of A on the same task."""
    correlation: float | None = None
    variance_reduction: float | None = None


def effect_sizes(design: Design) -> EffectSizes:
    """Return the effect sizes over units where both arms are known."""
    known = design.without_missing()
    if not known.control or not known.candidate:
        return EffectSizes()
    x, y = (design.sign * np.concatenate([part[~np.isnan(part)] for part in side]) for side in known.arrays())
    two = min(x.size, y.size) >= 2
    pairing = effects.pairing(x, y) if design.paired and x.size >= 2 else effects.Pairing(None, None)
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
    return EffectSizes(
        cohens_d=effects.cohens_d(x, y) if two else None,
        cohens_dz=effects.cohens_dz(y - x) if design.paired and two else None,
        hedges_g=effects.hedges_g(x, y) if two else None,
        improvement=float(np.mean(shares)) if shares else None,
        correlation=pairing.correlation,
        variance_reduction=pairing.variance_reduction,
    )


@dataclass(frozen=True, slots=True)
class Detectable:
    """What tests of such units can detect with 80 % power."""

    mde: float | None = None
    """Smallest effect that this many units detect, with the spread as seen."""
    units_for_margin: int | None = None
    """Units that would decide a difference of the margin, for those who add them to these (`Outlook`)."""
    mde_at_four_times: float | None = None
    """Smallest effect that four times as many units would decide, for those who add them to these."""


def detectable(
    design: Design, analysis: Analysis, test: Test | Decision, comparisons: int, looked: bool = False
) -> Detectable:
    """Return what could have been detected at the analysis' alpha, which a family of so many `comparisons` shares.

    There is no `mde` where an effect of that size was seen and not detected: the figure is wrong for these data then.
    `looked`: these are runs of ours, so verdicts after more of them are those after a look.
    """
    known = design.without_missing()
    testable = known.control and known.candidate and known.units > 1 and not known.has_single_units
    spread = known.spread_to_detect(test) if testable else None
    if spread is None or spread.sd <= 0.0:
        return Detectable()
    mde = needed = four_times = None
    outlook = Outlook.of(known, spread, analysis.alpha, comparisons, looked)
    if decidable(spread.units):
        mde = minimum_detectable_effect(
            spread.sd, spread.units, analysis.alpha, design=spread.design, family=Multiplicity(comparisons)
        )
        a, b = known.arrays()
        effect = arm_mean(b) - arm_mean(a)
        if isinstance(test, Test) and test.p > analysis.alpha / comparisons and abs(effect) >= mde:
            mde = None
        four_times = outlook.detects(4)
    if analysis.margin is not None:
        needed = outlook.units_for(analysis.margin)
    return Detectable(mde, needed, four_times)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What these units and more of the same would decide, for those who found them undecided and add to them.

    The spread is an estimate, so it counts as `stats.plans` says. Those who go on were undecided, so the first units were
    not kind to them, and show more spread than there is: the two roughly cancel. After a look at runs of ours the e-process
    decides, or alpha / 4 where a design has none.
    """

    spread: Spread
    units: int
    df: float
    noise: TwoWay | Stratified | None
    tasks: int
    seeds: int
    alpha: float
    comparisons: int
    sequential: bool

    @classmethod
    def of(cls, design: Design, spread: Spread, alpha: float, comparisons: int, looked: bool) -> Outlook:
        sizes = spread.units if isinstance(spread.units, tuple) else (spread.units,)
        df = float(sum(sizes) - len(sizes))
        sequential = looked and design.has_pairs and design.paired
        level = alpha / 4.0 if looked and not sequential else alpha
        seeds = max(len(seeds_of(cells)) for cells in (design.control, design.candidate))
        noise = design.plan_noise()
        return cls(spread, design.units, df, noise, len(design.tasks), seeds, level, comparisons, sequential)

    @property
    def _level(self) -> float:
        return self.alpha / self.comparisons

    def _chance(self, effect: float, units: int) -> float:
        """How often so many units detect the effect, on average over what the noise may be."""
        match self.noise:
            case TwoWay():
                criticals = self.noise.criticals(*self._sizes(units), self._level, POWER)
            case Stratified():
                criticals = self.noise.criticals(max(2, units // self.tasks), self._level, POWER)
            case _:
                sd = planning_spread(self.spread.sd, self.df, self._level, POWER)
                if self.sequential:
                    return sequential_detects(abs(effect) / sd, units, self.alpha, self.comparisons)
                n = (units, units) if isinstance(self.spread.units, tuple) else units
                return chance_to_detect(effect, sd, n, self.alpha, self.spread.design, Multiplicity(self.comparisons))
        return chance(criticals, effect)

    def _sizes(self, units: int) -> tuple[int, int]:
        """Tasks and seeds of so many units, in the proportion that there is."""
        factor = units / min(self.tasks, self.seeds)
        return scaled(self.tasks, factor), scaled(self.seeds, factor)

    def _enough(self, effect: float, units: int) -> bool:
        return units > self.units and self._chance(effect, units) >= POWER

    def units_for(self, effect: float) -> int | None:
        """Return how many units, these included, would decide this effect; None for more than can be run."""
        low, high = self.units, 2 * self.units
        while not self._enough(effect, high):
            if high > MAX_UNITS:
                return None
            low, high = high, 2 * high
        while high - low > max(1, high // 50):
            middle = (low + high) // 2
            low, high = (low, middle) if self._enough(effect, middle) else (middle, high)
        return high

    def detects(self, times: int) -> float | None:
        """Return the smallest effect that so many times the units would decide."""
        units, high = times * self.units, 4.0 * self.spread.sd / math.sqrt(self.units)
        for _ in range(20):
            if self._enough(high, units):
                break
            high *= 1.5
        else:
            return None
        low = 0.0
        while high - low > 0.01 * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self._enough(middle, units) else (middle, high)
        return high


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
    named = "" if design.statistic == "mean" else f"{design.estimand} "
    measured = f"{named}{number(design.sign * decision.effect, sign=True)} ({format_interval(interval)})"
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
    why = f"it is open which is better: any {design.estimand} in {format_ends(interval)} ({format_level(interval.level)}) fits"
    # An effect below the one that was seen and not decided must not be promised.
    if mde is not None and mde > abs(decision.effect):
        why += f"; {decision.n} units can detect effects of {number(mde)} or more (80 % power)"
    return why


def own_direction(interval: Interval | None, observations: Observations) -> Interval | None:
    """An interval in the metric's own direction: inside the tests larger is better."""
    return interval if interval is None or observations.larger_is_better else interval.negated()
