"""Better, worse, equivalent or undecided: every arm against the control, over the primary metrics, as one family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bakeoff.errors import UsageError
from bakeoff.stats.binary import PairedBinary, UnpairedBinary
from bakeoff.stats.decision import (
    CAMPAIGN_WORDS,
    Decision,
    Reason,
    SkewCheck,
    Word,
    benjamini_hochberg,
    decide,
    skew_check,
)
from bakeoff.stats.evidence import Interval, Test
from bakeoff.stats.ttests import seeds_look_crossed
from bakeoff.verdicts import methods
from bakeoff.verdicts.describe import Description, describe, spread
from bakeoff.verdicts.design import ONE_PAIR_A_UNIT, Design, build_design
from bakeoff.verdicts.methods import Line
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Compare, Question
from bakeoff.verdicts.testing import comparison_test, sides
from bakeoff.verdicts.wording import choice_of_test, format_p, own_direction, sentence

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
    """Smallest effect that this many units detect with 80 % power."""
    units_for_margin: int | None
    """Units that would detect a difference of the margin with 80 % power."""
    missing: int
    failed: int
    seen_ends: bool
    skew: SkewCheck | None
    other: str
    """The verdict for the other population, in one line."""
    campaign: str
    chosen: str = ""
    """Which test decided, and why it was this one."""
    p_exact: float | None = None
    """The exact p beside the mid-p, where outcomes are 0 and 1."""
    methods: tuple[Line, ...] = ()
    """Other methods that were asked for, in the metric's own direction; they do not decide."""
    warnings: tuple[str, ...] = ()
    design: Design | None = field(default=None, repr=False, compare=False)
    """The units behind it."""

    @property
    def verdict(self) -> Word:
        return self.decision.verdict

    @property
    def reason(self) -> Reason:
        return self.decision.reason

    @property
    def p(self) -> float | None:
        return self.decision.p

    @property
    def p_adjusted(self) -> float | None:
        return self.decision.p_adjusted

    @property
    def deciding_interval(self) -> Interval | None:
        """The one that the verdict was read from."""
        equivalent = self.equivalence_interval if self.verdict == "equivalent" else None
        return equivalent or self.decision_interval or self.interval


Verdict = Comparison
"""What users of the package call it."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One comparison of the family before it is decided."""

    observations: Observations
    control: str
    candidate: str
    design: Design
    test: Test | Decision


def compare(
    metrics: Sequence[Observations],
    question: Question | None = None,
    *,
    covariate: Observations | None = None,
    verdict_only: bool = False,
) -> list[Comparison]:
    """One family: every candidate on every metric given, which are the primary ones.

    `question` changes the analysis of the observations where it sets fields. `verdict_only` leaves out everything beside
    the verdict (effect sizes, skew check, MDE, other population, methods), which is ten times faster.
    """
    question = question if question is not None else Compare()
    metrics = [replace(each, analysis=question.analysis(each.analysis, each.metric)) for each in metrics]
    control, candidates = choose_arms(metrics[0], question)
    family = [
        _ask(observations, control, candidate, question, len(metrics) * len(candidates))
        for observations in metrics
        for candidate in candidates
    ]
    simultaneous = isinstance(question, Compare) and question.simultaneous
    decisions = decide([asked.test for asked in family], metrics[0].analysis.alpha, simultaneous=simultaneous)
    others = [""] * len(family) if verdict_only else _other_population(family, question)
    return [
        _comparison(asked, _final(asked, decision), question, other, len(family), covariate, verdict_only)
        for asked, decision, other in zip(family, decisions, others, strict=True)
    ]


def choose_arms(observations: Observations, question: Question) -> tuple[str, list[str]]:
    """The control (named, declared, or the first arm) and who is compared with it (named, or everybody else)."""
    arms = observations.arms
    if not arms:
        raise UsageError(f"{observations.source or 'the table'}: there are no runs to compare")
    control = question.control or observations.analysis.control or arms[0]
    candidates = list(dict.fromkeys(question.arms)) or [arm for arm in arms if arm != control]
    for name in (control, *candidates):
        if name not in arms:
            raise UsageError(f"no arm called {name!r}; there are {', '.join(arms)}")
    if not candidates or control in candidates:
        raise UsageError(f"there is nothing to compare {control!r} with; arms: {', '.join(arms)}")
    return control, candidates


def _ask(observations: Observations, control: str, candidate: str, question: Question, comparisons: int) -> _Asked:
    analysis = observations.analysis
    design = build_design(
        observations, control, candidate, unpaired=question.unpaired, intersect=question.intersect
    )  # fmt: skip
    try:
        test = comparison_test(
            design,
            alpha=analysis.alpha,
            comparisons=comparisons,
            margin=analysis.margin,
            relative=analysis.relative_margin,
        )
    except ValueError as error:
        raise UsageError(f"{observations.metric}, {candidate} against {control}: {error}") from error
    return _Asked(observations, control, candidate, design, test)


def _final(asked: _Asked, decision: Decision) -> Decision:
    """Before the planned end there are effects and no verdict: looking early is only valid in the sequential test."""
    if asked.observations.final:
        return decision
    return Decision("undecided", "not_final", effect=decision.effect, n=decision.n)


def _comparison(
    asked: _Asked,
    decision: Decision,
    question: Question,
    other: str,
    comparisons: int,
    covariate: Observations | None,
    verdict_only: bool,
) -> Comparison:
    observations, design = asked.observations, asked.design
    analysis = observations.analysis
    test = asked.test if isinstance(asked.test, Test) else None
    description = Description() if verdict_only else describe(design)
    noise = None if verdict_only else spread(design, test)
    mde = None if noise is None else noise.detectable(analysis.alpha)
    resamples = question.resamples if isinstance(question, Compare) else Compare().resamples
    skew = None if verdict_only else _skew(observations, design, decision, resamples)
    # The largest exact p over what missing runs could have been.
    exact = [
        corner.evidence.p_exact
        for corner in (test.corners or (test,) if test is not None else ())
        if isinstance(corner.evidence, PairedBinary | UnpairedBinary)
    ]
    lines: list[Line] = []
    if observations.final and not verdict_only and isinstance(question, Compare):
        lines = _other_methods(asked, question, covariate)
    return Comparison(
        metric=observations.metric,
        control=asked.control,
        candidate=asked.candidate,
        decision=decision,
        sentence=sentence(observations, asked.control, asked.candidate, design, decision, mde),
        population=design.population,
        units=design.units,
        control_mean=description.control_mean,
        candidate_mean=description.candidate_mean,
        effect=description.effect if decision.effect is None else design.sign * decision.effect,
        interval=own_direction(decision.interval, observations),
        decision_interval=own_direction(decision.decision_interval, observations),
        equivalence_interval=own_direction(decision.equivalence_interval, observations),
        lift=description.lift,
        cohens_d=description.cohens_d,
        cohens_dz=description.cohens_dz,
        hedges_g=description.hedges_g,
        improvement=description.improvement,
        correlation=description.correlation,
        variance_reduction=description.variance_reduction,
        mde=mde,
        units_for_margin=None if noise is None else noise.units_for(analysis.margin, analysis.alpha),
        missing=design.missing,
        failed=design.failed,
        seen_ends=design.seen_ends and design.missing > 0,
        skew=skew,
        other=other,
        campaign=CAMPAIGN_WORDS[decision.verdict],
        chosen=choice_of_test(design, decision, analysis.alpha, comparisons),
        p_exact=max(exact) if exact and decision.p is not None else None,
        methods=tuple(lines),
        warnings=tuple(_warnings(observations, design, decision, skew)),
        design=design,
    )


def _skew(observations: Observations, design: Design, decision: Decision, resamples: int) -> SkewCheck | None:
    """The studentized bootstrap at the deciding level, in the metric's own direction; it warns and does not decide."""
    deciding = decision.decision_interval
    known = design.without_missing()
    if design.kind not in ONE_PAIR_A_UNIT or design.binary or not known.control:
        return None
    if deciding is None or not deciding.is_bounded:
        return None
    a, b = sides(known)
    check = skew_check(b[0] - a[0], deciding, resamples, SEED)
    return (
        None
        if check is None
        else replace(check, interval=own_direction(check.interval, observations) or check.interval)
    )


def _other_methods(asked: _Asked, question: Compare, covariate: Observations | None) -> list[Line]:
    """Lines of the other methods, in the metric's own direction."""
    analysis = asked.observations.analysis
    lines = methods.ask(
        question.methods, asked.design, alpha=analysis.alpha, margin=analysis.margin, resamples=question.resamples
    )
    if covariate is not None:
        explains = build_design(
            covariate, asked.control, asked.candidate, unpaired=question.unpaired, intersect=question.intersect
        )
        lines.append(methods.adjusted(asked.design, explains, analysis.alpha))
    return [replace(line, interval=own_direction(line.interval, asked.observations)) for line in lines]


def _other_population(family: Sequence[_Asked], question: Question) -> list[str]:
    """What each verdict would be for these tasks only, or for tasks like these: the same family asked again."""
    if len(family[0].observations.tasks) < 2:
        return [""] * len(family)
    swapped = "sample" if family[0].observations.population == "fixed" else "fixed"
    again = []
    try:
        for asked in family:
            analysis = asked.observations.analysis.model_copy(update={"tasks": swapped})
            observations = replace(asked.observations, analysis=analysis)
            again.append(_ask(observations, asked.control, asked.candidate, question, len(family)))
    except UsageError:
        who = "for tasks like these" if swapped == "sample" else "on these tasks only"
        return [f"{who}: no verdict is possible"] * len(family)
    lines = []
    for asked, decision in zip(
        again, decide([each.test for each in again], again[0].observations.analysis.alpha), strict=True
    ):
        final = _final(asked, decision)
        p = f", p = {format_p(final.p_adjusted)}" if final.p_adjusted is not None else ""
        reason = f" ({final.reason.replace('_', ' ')})" if final.reason not in ("", "inconclusive") else ""
        lines.append(f"{asked.design.population}: {final.verdict}{reason}{p}")
    return lines


def _warnings(observations: Observations, design: Design, decision: Decision, skew: SkewCheck | None) -> list[str]:
    warnings = list(observations.notes)
    if decision.identical:
        warnings.append("the arms are identical on every unit; was the same thing run twice?")
    if design.missing and design.seen_ends:
        warnings.append(
            "no range is declared, so missing runs were put at the smallest and largest value seen: declare "
            "analysis.bounds (or --bounds) if the metric can be more extreme"
        )
    if skew is not None and skew.sensitive:
        warnings.append("sensitive to skew: the studentized bootstrap disagrees about 0")
    if observations.analysis.seeds == "nested" and (p := _crossed_p(design)) is not None and p < LOOKS_CROSSED:
        warnings.append(
            f"seeds are declared nested but look crossed (a seed does well or badly on every task, p = {format_p(p)}); "
            "if one seed is one trained policy or one world, say seeds = 'crossed'"
        )
    return warnings


def _crossed_p(design: Design) -> float | None:
    """p of a seed effect in the differences, where every seed was run on every task."""
    known = design.without_missing()
    complete = len(known.control) == len(known.tasks) * len(known.seeds)
    if not known.matched or not complete or len(known.tasks) < 2 or len(known.seeds) < 2 or None in known.seeds:
        return None
    a, b = sides(replace(known, kind="crossed"))
    return seeds_look_crossed(b[0] - a[0])


def recommendation(comparisons: Sequence[Comparison]) -> str:
    """One campaign word for an arm's metrics: an improvement is one on every metric, a degradation one on any."""
    words = {comparison.verdict for comparison in comparisons}
    word: Word = "worse" if "worse" in words else "better" if words == {"better"} else "undecided"
    return CAMPAIGN_WORDS[word]


# -- metrics that were not declared


@dataclass(frozen=True, slots=True)
class Exploratory:
    """One arm against another on a metric that gets no verdict, B - A: something to look into."""

    metric: str
    control: str
    candidate: str
    effect: float | None = None
    interval: Interval | None = None
    p: float | None = None
    p_adjusted: float | None = None
    """Benjamini-Hochberg over every exploratory comparison."""
    note: str = ""


def explore(pairs: Sequence[tuple[Observations, str, str]], question: Question | None = None) -> list[Exploratory]:
    """(observations, control, candidate) each on its own, adjusted over all of them.

    A metric that cannot be compared says why in its note; it must not stop the others.
    """
    question = question if question is not None else Compare()
    lines = []
    for observations, control, candidate in pairs:
        try:
            asked = _ask(observations, control, candidate, question, 1)
        except UsageError as error:
            lines.append(Exploratory(observations.metric, control, candidate, note=str(error)))
            continue
        effect = describe(asked.design).effect
        if not observations.final:
            lines.append(Exploratory(observations.metric, control, candidate, effect, note="not final"))
            continue
        (decision,) = decide([asked.test], observations.analysis.alpha)
        reason = decision.reason.replace("_", " ") if decision.p is None else ""
        interval = own_direction(decision.interval, observations)
        lines.append(
            Exploratory(observations.metric, control, candidate, effect, interval, decision.p, note=reason)
        )  # fmt: skip
    known = [line.p for line in lines if line.p is not None]
    adjusted = iter(benjamini_hochberg(known) if known else ())
    return [line if line.p is None else replace(line, p_adjusted=next(adjusted)) for line in lines]


def explore_metrics(metrics: Sequence[Observations], question: Question | None = None) -> list[Exploratory]:
    """Every candidate on every metric given. What is declared about the primary metrics does not hold for these."""
    question = question if question is not None else Compare()
    pairs = []
    for observations in metrics:
        control, candidates = choose_arms(observations, question)
        plain = observations.analysis.model_copy(update={"margin": None, "relative_margin": None, "bounds": None})
        pairs += [(replace(observations, analysis=plain), control, candidate) for candidate in candidates]
    return explore(pairs, question)
