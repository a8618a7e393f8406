"""Better, worse, equivalent or undecided: every arm against the control, over the declared metrics, as one family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from bakeoff.errors import UsageError
from bakeoff.stats.binary import PairedBinary, UnpairedBinary
from bakeoff.stats.decision import CAMPAIGN_WORDS, Decision, Reason, SkewCheck, Word, decide, skew_check
from bakeoff.stats.evidence import Interval, Test
from bakeoff.stats.ttests import seeds_look_crossed
from bakeoff.verdicts import arrays, describe, methods, units
from bakeoff.verdicts.methods import Line
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.units import Design
from bakeoff.verdicts.wording import chosen, format_p, own, sentence

Population = Literal["sample", "fixed"]
LOOKS_CROSSED = 0.01
SEED = 0
"""Everything random in a verdict starts from here, so that the same table gives the same verdict."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One arm against the control on one metric. Effects are in the metric's own unit and direction: B - A."""

    metric: str
    control: str
    candidate: str
    decision: Decision
    """Verdict, p and intervals; turned so that larger is better."""
    sentence: str
    population: str
    units: int
    control_mean: float | None
    candidate_mean: float | None
    effect: float | None
    interval: Interval | None
    decision_interval: Interval | None
    equivalence_interval: Interval | None
    lift: float | None
    cohens_d: float | None
    cohens_dz: float | None
    hedges_g: float | None
    improvement: float | None
    """Chance that a run of B beats one of A on the same task."""
    correlation: float | None
    variance_reduction: float | None
    mde: float | None
    """Smallest effect that this many units find with 80 % power."""
    units_for_margin: int | None
    """Units that would find a difference of the margin with 80 % power."""
    missing: int
    failed: int
    seen_ends: bool
    skew: SkewCheck | None
    other: str
    """The verdict for the other population, in one line."""
    campaign: str
    chosen: str = ""
    """Which test spoke, and why it was this one."""
    p_exact: float | None = None
    """The exact p beside the mid-p, where outcomes are 0 and 1."""
    methods: tuple[Line, ...] = ()
    """Other methods that were asked for, in the metric's own direction; they do not vote."""
    warnings: tuple[str, ...] = ()
    design: Design | None = field(default=None, repr=False, compare=False)
    """The units behind it."""

    @property
    def verdict(self) -> Word:
        return self.decision.verdict

    @property
    def deciding_interval(self) -> Interval | None:
        """The one that the verdict was read from."""
        equivalent = self.equivalence_interval if self.verdict == "equivalent" else None
        return equivalent or self.decision_interval or self.interval

    @property
    def reason(self) -> Reason:
        return self.decision.reason

    @property
    def p(self) -> float | None:
        return self.decision.p

    @property
    def p_adjusted(self) -> float | None:
        return self.decision.p_adjusted


Verdict = Comparison
"""What users of the package call it."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to ask. Everything that decides is fixed here before results are looked at."""

    control: str | None = None
    candidates: Sequence[str] = ()
    tasks: Population | None = None
    unpaired: bool = False
    intersect: bool = False
    simultaneous: bool = False
    methods: Sequence[str] = ()
    """Further methods, by the names that `verdicts.methods` knows."""
    covariate: Observations | None = None
    """Something measured before the arms could act; its CUPED-adjusted t is one more line."""
    resamples: int = 9_999
    """Of every bootstrap; the verdict itself has none."""
    describe: bool = True
    """False asks for the verdict alone, ten times faster: no effect sizes, skew check, MDE, other population or methods."""


@dataclass(frozen=True, slots=True)
class Question:
    """One comparison of the family before it is decided."""

    seen: Observations
    candidate: str
    design: Design
    test: Test | Decision


def compare(metrics: Sequence[Observations], options: Options | None = None) -> list[Comparison]:
    """One family: every candidate on every metric given (the primary ones). Alpha and margin come from the analysis."""
    options = options or Options()
    first = metrics[0]
    control, candidates = choose_arms(first, options)
    alpha = first.analysis.alpha
    asked = [ask(s, control, c, options, len(metrics) * len(candidates)) for s in metrics for c in candidates]
    decisions = decide([question.test for question in asked], alpha, simultaneous=options.simultaneous)
    others = _other_population(metrics, control, candidates, options) if options.describe else [""] * len(asked)
    return [
        _comparison(question, control, decision if question.seen.final else _not_final(decision), options, other, asked)
        for question, decision, other in zip(asked, decisions, others, strict=True)
    ]


def choose_arms(observations: Observations, options: Options) -> tuple[str, list[str]]:
    """The control (declared, or the first arm) and who is compared with it (named, or everybody else)."""
    arms = observations.arms
    if not arms:
        raise UsageError(f"{observations.source or 'the table'}: there are no runs to compare")
    control = options.control or observations.analysis.control or arms[0]
    candidates = list(dict.fromkeys(options.candidates)) or [arm for arm in arms if arm != control]
    for name in (control, *candidates):
        if name not in arms:
            raise UsageError(f"no arm called {name!r}; there are {', '.join(arms)}")
    if not candidates or control in candidates:
        raise UsageError(f"there is nothing to compare {control!r} with; arms: {', '.join(arms)}")
    return control, candidates


def population(observations: Observations, options: Options) -> Population:
    """As declared; swept parameters are fixed tasks, listed tasks are a sample."""
    return options.tasks or observations.analysis.tasks or ("fixed" if observations.fixed_tasks else "sample")


def build(seen: Observations, control: str, candidate: str, options: Options) -> Design:
    """The design of one comparison."""
    return units.build(
        seen,
        control,
        candidate,
        tasks=population(seen, options),
        unpaired=options.unpaired,
        intersect=options.intersect,
    )


def ask(seen: Observations, control: str, candidate: str, options: Options, comparisons: int) -> Question:
    analysis = seen.analysis
    design = build(seen, control, candidate, options)
    try:
        test = arrays.test(
            design,
            alpha=analysis.alpha,
            comparisons=comparisons,
            margin=analysis.margin,
            relative=analysis.relative_margin,
        )
    except ValueError as error:
        raise UsageError(f"{seen.metric}, {candidate} against {control}: {error}") from error
    return Question(seen, candidate, design, test)


def _not_final(decision: Decision) -> Decision:
    """Before the planned end there are effects and no verdict: looking early is for the sequential test."""
    return Decision("undecided", "not_final", effect=decision.effect, n=decision.n)


def _comparison(
    question: Question, control: str, decision: Decision, options: Options, other: str, family: Sequence[Question]
) -> Comparison:
    seen, design = question.seen, question.design
    test = question.test if isinstance(question.test, Test) else None
    alpha, sign = seen.analysis.alpha, 1.0 if seen.larger_is_better else -1.0
    told = describe.describe(design) if options.describe else describe.Description()
    spread = describe.spread(design, test) if options.describe else None
    mde = describe.smallest_effect(spread, alpha)
    skew = _skew(seen, design, decision, options) if options.describe else None
    return Comparison(
        metric=seen.metric,
        control=control,
        candidate=question.candidate,
        decision=decision,
        sentence=sentence(seen, control, question.candidate, design, decision, mde),
        population=design.population,
        units=arrays.count(design),
        control_mean=told.control_mean,
        candidate_mean=told.candidate_mean,
        effect=told.effect if decision.effect is None else sign * decision.effect,
        interval=own(decision.interval, seen),
        decision_interval=own(decision.decision_interval, seen),
        equivalence_interval=own(decision.equivalence_interval, seen),
        lift=told.lift,
        cohens_d=told.cohens_d,
        cohens_dz=told.cohens_dz,
        hedges_g=told.hedges_g,
        improvement=told.improvement,
        correlation=told.correlation,
        variance_reduction=told.variance_reduction,
        mde=mde,
        units_for_margin=describe.units_for(seen.analysis.margin, spread, alpha),
        missing=design.missing,
        failed=design.failed,
        seen_ends=design.seen_ends and design.missing > 0,
        skew=skew,
        other=other,
        campaign=CAMPAIGN_WORDS[decision.verdict],
        chosen=chosen(design, decision, alpha, len(family)),
        p_exact=_exact(test) if decision.p is not None else None,
        methods=tuple(_beside(question, control, options)) if seen.final and options.describe else (),
        warnings=tuple(_warnings(seen, design, decision, skew)),
        design=design,
    )


def _exact(test: Test | None) -> float | None:
    """The largest exact p over what missing runs could have been."""
    corners = [corner.evidence for corner in test.corners or (test,)] if test is not None else []
    found = [one.p_exact for one in corners if isinstance(one, PairedBinary | UnpairedBinary)]
    return max(found) if found else None


def _skew(seen: Observations, design: Design, decision: Decision, options: Options) -> SkewCheck | None:
    """The studentized bootstrap at the deciding level, in the metric's own direction; it warns and does not vote."""
    deciding = decision.decision_interval
    one_unit = design.kind in ("seeds", "tasks", "seeds over tasks") and not design.binary
    if not one_unit or deciding is None or not deciding.is_bounded:
        return None
    known = describe.without_missing(design)
    if not known.control:
        return None
    a, b = arrays.sides(known)
    found = skew_check(b[0] - a[0], deciding, options.resamples, SEED)
    return None if found is None else replace(found, interval=own(found.interval, seen) or found.interval)


def _beside(question: Question, control: str, options: Options) -> list[Line]:
    """Lines of the other methods, in the metric's own direction."""
    seen, design = question.seen, question.design
    analysis = seen.analysis
    lines = methods.ask(
        options.methods, design, alpha=analysis.alpha, margin=analysis.margin, resamples=options.resamples
    )
    if options.covariate is not None:
        explains = build(options.covariate, control, question.candidate, options)
        lines.append(methods.adjusted(design, explains, analysis.alpha))
    return [replace(line, interval=own(line.interval, seen)) for line in lines]


def _other_population(
    metrics: Sequence[Observations], control: str, candidates: Sequence[str], options: Options
) -> list[str]:
    """What each verdict would be for these tasks only, or for tasks like these: the same family asked again."""
    questions = [(seen, candidate) for seen in metrics for candidate in candidates]
    if len(metrics[0].tasks) < 2:
        return [""] * len(questions)
    swapped = replace(options, tasks="sample" if population(metrics[0], options) == "fixed" else "fixed")
    try:
        asked = [ask(seen, control, candidate, swapped, len(questions)) for seen, candidate in questions]
    except UsageError:
        who = "for tasks like these" if swapped.tasks == "sample" else "on these tasks only"
        return [f"{who}: cannot be told"] * len(questions)
    decisions = decide([question.test for question in asked], metrics[0].analysis.alpha)
    return [_line_of(question, decision) for question, decision in zip(asked, decisions, strict=True)]


def _line_of(question: Question, decision: Decision) -> str:
    told = decision if question.seen.final else _not_final(decision)
    p = f", p = {format_p(told.p_adjusted)}" if told.p_adjusted is not None else ""
    reason = f" ({told.reason.replace('_', ' ')})" if told.reason not in ("", "inconclusive") else ""
    return f"{question.design.population}: {told.verdict}{reason}{p}"


def _warnings(seen: Observations, design: Design, decision: Decision, skew: SkewCheck | None) -> list[str]:
    found = list(seen.notes)
    if decision.identical:
        found.append("the arms are identical on every unit; was the same thing run twice?")
    if design.missing and design.seen_ends:
        found.append(
            "no range is declared, so missing runs were put at the smallest and largest value seen: declare "
            "analysis.bounds (or --bounds) if the metric can be more extreme"
        )
    if skew is not None and skew.sensitive:
        found.append("sensitive to skew: the studentized bootstrap disagrees about 0")
    if seen.analysis.seeds == "nested" and (p := _crossed_p(design)) is not None and p < LOOKS_CROSSED:
        found.append(
            f"seeds are declared nested but look crossed (a seed does well or badly on every task, p = {format_p(p)}); "
            "if one seed is one trained policy or one world, say seeds = 'crossed'"
        )
    return found


def _crossed_p(design: Design) -> float | None:
    """p of a seed effect in the differences, where every seed was run on every task."""
    known = describe.without_missing(design)
    complete = len(known.control) == len(known.tasks) * len(known.seeds)
    if not known.matched or not complete or len(known.tasks) < 2 or len(known.seeds) < 2 or None in known.seeds:
        return None
    a, b = arrays.sides(replace(known, kind="crossed"))
    return seeds_look_crossed(b[0] - a[0])


def recommendation(found: Sequence[Comparison]) -> str:
    """One campaign word for an arm's metrics: an improvement is one on every metric, a degradation one on any."""
    words = {comparison.verdict for comparison in found}
    word: Word = "worse" if "worse" in words else "better" if words == {"better"} else "undecided"
    return CAMPAIGN_WORDS[word]
