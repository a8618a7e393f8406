"""Better, worse, equivalent or undecided: every arm against the control, over the primary metrics, as one family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from bakeoff.errors import UsageError
from bakeoff.records.looks import Look
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
from bakeoff.stats.numerics import difference
from bakeoff.stats.ttests import seeds_look_crossed
from bakeoff.text import format_p
from bakeoff.verdicts.describe import (
    Detectable,
    EffectSizes,
    Means,
    detectable,
    effect_sizes,
    means_of,
    own_direction,
    sentence,
)
from bakeoff.verdicts.designs import Design, build_design
from bakeoff.verdicts.designs.base import Caution
from bakeoff.verdicts.designs.testing import Line, adjusted, comparison_test, exact_p, other_methods
from bakeoff.verdicts.family import changed_analysis, choose_arms, planned_family, settings_of
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Compare, Question
from bakeoff.verdicts.sequential import looks

if TYPE_CHECKING:
    from bakeoff.verdicts.sequential.evidence_path import EvidencePath

LOOKS_CROSSED = 0.01
SEED = 0
"""Everything random in a verdict starts from here, so that the same table gives the same verdict."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """The verdict that the same runs would get if something else were declared. It has no exit code."""

    option: Literal["tasks", "seeds"]
    """The option that asks for it, with `value`."""
    value: Literal["sample", "fixed"]
    decision: Decision | None = None
    """None where no verdict is possible."""
    design: Design | None = None

    @property
    def decided(self) -> bool:
        return self.decision is not None and self.decision.verdict != "undecided"

    @property
    def reason(self) -> Reason:
        return "" if self.decision is None else self.decision.reason

    @property
    def verdict_in_words(self) -> str:
        """`undecided (too few)`, without p: the first screen has one p-value."""
        if self.decision is None:
            return "no verdict is possible"
        reason = self.decision.reason
        why = f" ({reason.replace('_', ' ')})" if reason not in ("", "inconclusive") else ""
        return f"{self.decision.verdict}{why}"

    @property
    def line(self) -> str:
        """For whom, the verdict and p."""
        tasks = "for tasks like these" if self.value == "sample" else "on these tasks only"
        p = None if self.decision is None else self.decision.p_adjusted
        return f"{tasks if self.design is None else self.design.population}: {self.verdict_in_words}" + (
            f", p = {format_p(p)}" if p is not None else ""
        )


@dataclass(frozen=True)
class Judged:
    """One comparison of a family with its decision. What is not on the first screen is computed when asked for."""

    observations: Observations
    control: str
    candidate: str
    design: Design
    test: Test | Decision
    decision: Decision
    family: int
    """Comparisons that share alpha with this one, itself included."""
    changes: int = 0

    @cached_property
    def p_exact(self) -> float | None:
        return None if self.decision.p is None else exact_p(self.design, self.test, self.family)

    @property
    def chosen(self) -> str:
        """The reason is the design, never the values."""
        if not self.decision.method:
            return "no test"
        why = self.design.why_this_test(self.decision, self.observations.analysis.alpha, self.family)
        return f"{self.decision.method}: {why}; {self.decision.assumes}"

    @cached_property
    def sizes(self) -> EffectSizes:
        return effect_sizes(self.design)

    @cached_property
    def detectable(self) -> Detectable:
        looked = self.observations.declared is not None
        return detectable(self.design, self.observations.analysis, self.test, self.family, looked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One arm against the control on one metric. Effects are in the metric's own unit and direction: B - A."""

    metric: str
    control: str
    candidate: str
    verdict: Word
    reason: Reason
    p: float | None
    p_adjusted: float | None
    decision: Decision
    """Verdict, p and intervals; turned so that larger is better."""
    sentence: str
    population: str
    units: int
    control_mean: float | None = None
    """Over runs at hand, as are the candidate's mean, the lift and the effect sizes: missing ones are left out."""
    candidate_mean: float | None = None
    effect: float | None
    lift: float | None = None
    """The effect as a share of the control."""
    interval: Interval | None
    decision_interval: Interval | None
    equivalence_interval: Interval | None
    missing: int
    failed: int
    seen_ends: bool
    skew: SkewCheck | None
    other: Alternative | None = None
    """The verdict for the other population, where there are several tasks."""
    these_seeds: Alternative | None = None
    """With two crossed seeds: the verdict for these two only."""
    campaign: str
    family: int = 1
    """Comparisons that share alpha with this one, itself included, whichever were asked for."""
    changes: int = 0
    """How often the analysis of the metric was changed after results were shown; each divides the level by 4."""
    methods: tuple[Line, ...] = ()
    """Other methods that were asked for, in the metric's own direction; they do not decide."""
    cautions: tuple[Caution, ...] = ()
    design: Design = field(repr=False, compare=False)
    """The units behind it."""
    evidence_path: EvidencePath | None = None
    """How a sequential test came to the verdict; None for a test of fixed size."""
    judged: Judged | None = field(default=None, repr=False, compare=False)
    """None for a sequential test, and where only the verdict was asked for: there is nothing beside it then."""

    @property
    def p_exact(self) -> float | None:
        """The p of the exact test with ties in full, where there is one (`testing.exact_p`)."""
        return None if self.judged is None else self.judged.p_exact

    @property
    def chosen(self) -> str:
        """Which test decided, and why it was this one."""
        return "" if self.judged is None else self.judged.chosen

    @property
    def sizes(self) -> EffectSizes:
        return EffectSizes() if self.judged is None else self.judged.sizes

    @property
    def detectable(self) -> Detectable:
        return Detectable() if self.judged is None else self.judged.detectable

    @property
    def warnings(self) -> tuple[str, ...]:
        """The cautions in words."""
        return tuple(caution.text for caution in self.cautions)

    @property
    def deciding_interval(self) -> Interval | None:
        """The one that the verdict was read from."""
        equivalent = self.equivalence_interval if self.verdict == "equivalent" else None
        return equivalent or self.decision_interval or self.interval


Verdict = Comparison
"""What users of the package call it."""


class _Pair(NamedTuple):
    """One comparison of a family. One that is not `shown` counts in the family all the same."""

    observations: Observations
    control: str
    candidate: str
    shown: bool = True
    changes: int = 0
    """How often the analysis of the metric was changed after results were shown."""


def compare(
    metrics: Sequence[Observations],
    question: Question | None = None,
    *,
    hidden: Sequence[Observations] = (),
    absent: int = 0,
    changes: int | None = None,
    covariate: Observations | None = None,
    verdict_only: bool = False,
) -> list[Comparison]:
    """One family: every planned candidate on every primary metric, of which those on `metrics` are returned.

    `hidden` are primary metrics that were not asked for, `absent` counts those that no run has. `question` changes the
    analysis of the observations where it sets fields; `changes` is how often that was done after results were shown
    (default: as recorded). `verdict_only` leaves out everything beside the verdict (effect
    sizes, skew check, MDE, other population, methods), which is ten times faster.
    """
    question = question if question is not None else Compare()
    judged = [_judged_by(each, question) for each in [*metrics, *hidden]]
    metrics = [observations for observations, _ in judged[: len(metrics)]]
    _, asked = choose_arms(metrics[0], question)
    order = {arm: place for place, arm in enumerate(asked)}
    family = planned_family(metrics[0], question, len(judged) + absent)
    # As they are asked for, whatever the order of rows; the others after them.
    candidates = sorted(family.candidates, key=lambda arm: order.get(arm, len(order)))
    pairs = [
        _Pair(
            observations, family.control, candidate, place < len(metrics) and candidate in order,
            recorded if changes is None else changes,
        )
        for place, (observations, recorded) in enumerate(judged)
        for candidate in candidates
        if candidate in observations.by_arm
    ]  # fmt: skip
    untested = family.size - len(pairs)
    chosen = _judge(pairs, question, untested) if any(pair.shown for pair in pairs) else []
    compared = [_comparison(judged, question, covariate, verdict_only) for judged in chosen]
    if compared and not verdict_only:
        others = _other_population(pairs, question, untested)
        compared = [replace(each, other=other) for each, other in zip(compared, others, strict=True)]
        if any(each.design.has_two_crossed_seeds for each in compared):
            seeds = _asked_again(pairs, question, untested, "seeds", "fixed")
            compared = [replace(each, these_seeds=these) for each, these in zip(compared, seeds, strict=True)]
    # Arms that the file does not name as candidates.
    undeclared = [arm for arm in asked if arm not in family.candidates]
    return compared + (compare_exploratory(metrics, question, undeclared, covariate=covariate) if undeclared else [])


def compare_exploratory(
    metrics: Sequence[Observations],
    question: Question,
    candidates: Sequence[str] = (),
    *,
    covariate: Observations | None = None,
) -> list[Comparison]:
    """Comparisons that were not declared: each on its own, p adjusted by Benjamini and Hochberg, and no verdict."""
    metrics = [_judged_by(each, question)[0] for each in metrics]
    control, asked = choose_arms(metrics[0], question)
    judged = [
        _judge([_Pair(observations, control, candidate)], question)[0]
        for observations in metrics
        for candidate in candidates or asked
    ]
    adjusted_p = iter(benjamini_hochberg([each.decision.p for each in judged if each.decision.p is not None] or [1.0]))
    compared = []
    for each in judged:
        decision = each.decision
        if decision.p is not None:
            decision = Decision(
                "undecided", "exploratory", effect=decision.effect, p=decision.p, p_adjusted=next(adjusted_p),
                interval=decision.interval, method=decision.method, assumes=decision.assumes, floor=decision.floor,
                identical=decision.identical, n=decision.n,
            )  # fmt: skip
        compared.append(
            _comparison(replace(each, decision=decision, family=len(judged)), question, covariate, verdict_only=False)
        )
    return compared


def _judged_by(observations: Observations, question: Question) -> tuple[Observations, int]:
    """The observations with the analysis that the question asks for, and the number of that change after a look.

    Alpha cannot be raised after a look.
    """
    judged = replace(observations, analysis=question.analysis(observations.analysis, observations.metric))
    change = changed_analysis(judged, question)
    if not change.number or change.alpha == judged.analysis.alpha:
        return judged, change.number
    capped = judged.analysis.model_copy(update={"alpha": change.alpha})
    return replace(judged, analysis=capped), change.number


def _judge(pairs: Sequence[_Pair], question: Question, untested: int = 0) -> list[Judged]:
    """Decide those comparisons of a family that are shown; `untested` are not here at all. Raises UsageError.

    The level of each depends on the size of the family, on its rank in Holm and on its looks, and on nothing else.
    Before the planned end there are effects and no verdict: looking early is only valid in the sequential test.
    """
    size = len(pairs) + untested
    tested: list[tuple[_Pair, looks.Standing, Test | Decision]] = []
    for pair in pairs:
        try:
            tested.append((pair, *_test(pair, question, size)))
        except UsageError:
            if pair.shown:
                raise
            # What was not asked for must not stop the others; it counts in the family as not significant.
    alpha = min(pair.observations.analysis.alpha for pair in pairs)
    simultaneous = isinstance(question, Compare) and question.simultaneous
    # An e-process spends alpha / m whatever the others show, so it has no rank.
    ranked = [Decision("undecided", "looked") if standing.order else test for _, standing, test in tested]
    shares = [standing.share for _, standing, _ in tested]
    family = []
    decisions = decide(ranked, alpha, simultaneous, shares, size - len(tested))
    for (pair, standing, test), decision in zip(tested, decisions, strict=True):
        if not pair.shown:
            continue
        observations = pair.observations
        if standing.order:
            (decision,) = decide([test], alpha)
        decision = looks.later(standing, decision, observations, size)
        if not observations.final:
            decision = Decision("undecided", "not_final", effect=decision.effect, n=decision.n)
        test = decision if standing.order else test
        family.append(
            Judged(observations, pair.control, pair.candidate, standing.design, test, decision, size, pair.changes)
        )
    return family


def _test(pair: _Pair, question: Question, comparisons: int) -> tuple[looks.Standing, Test | Decision]:
    """What earlier looks leave for one comparison, and its test."""
    observations, control, candidate, _, changes = pair
    analysis = observations.analysis
    design = build_design(observations, control, candidate, unpaired=question.unpaired, intersect=question.intersect)
    standing = looks.standing(observations, control, candidate, design, changes=changes)
    try:
        test = comparison_test(
            standing.design,
            alpha=standing.alpha,
            comparisons=comparisons,
            margin=analysis.margin,
            relative=analysis.relative_margin,
            strict=analysis.ties == "full",
        )
    except ValueError as error:
        raise UsageError(f"{observations.metric}, {candidate} against {control}: {error}") from error
    return standing, test


def _comparison(judged: Judged, question: Question, covariate: Observations | None, verdict_only: bool) -> Comparison:
    """The decision with everything that stands beside it."""
    observations, design, decision = judged.observations, judged.design, judged.decision
    means = Means() if verdict_only else means_of(design)
    mde = judged.detectable.mde if decision.reason == "inconclusive" and not verdict_only else None
    resamples = question.resamples if isinstance(question, Compare) else Compare().resamples
    skew = None if verdict_only else _skew(observations, design, decision, resamples)
    lines: list[Line] = []
    if observations.final and not verdict_only and isinstance(question, Compare):
        lines = _other_methods(judged, question, covariate) if question.methods or covariate is not None else []
    return Comparison(
        metric=observations.metric,
        control=judged.control,
        candidate=judged.candidate,
        verdict=decision.verdict,
        reason=decision.reason,
        p=decision.p,
        p_adjusted=decision.p_adjusted,
        decision=decision,
        sentence=sentence(observations, judged.control, judged.candidate, design, decision, mde),
        population=design.population,
        units=design.units,
        control_mean=means.control,
        candidate_mean=means.candidate,
        effect=means.effect if decision.effect is None else design.sign * decision.effect,
        lift=means.lift,
        interval=own_direction(decision.interval, observations),
        decision_interval=own_direction(decision.decision_interval, observations),
        equivalence_interval=own_direction(decision.equivalence_interval, observations),
        missing=design.missing,
        failed=design.failed,
        seen_ends=design.seen_ends and design.missing > 0,
        skew=skew,
        campaign=CAMPAIGN_WORDS[decision.verdict],
        family=judged.family,
        changes=judged.changes,
        methods=tuple(lines),
        cautions=tuple(_cautions(judged, skew)),
        design=design,
        judged=None if verdict_only else judged,
    )


def _skew(observations: Observations, design: Design, decision: Decision, resamples: int) -> SkewCheck | None:
    """The studentized bootstrap at the deciding level, in the metric's own direction; it warns and does not decide."""
    deciding = decision.decision_interval
    known = design.without_missing()
    of_mean = design.one_pair_a_unit and design.statistic == "mean" and not design.binary
    if not of_mean or design.group_columns or not known.control:
        return None
    if deciding is None or not deciding.is_bounded:
        return None
    (a,), (b,) = known.arrays()
    check = skew_check(difference(b, a), deciding, resamples, SEED)
    if check is None or observations.larger_is_better:
        return check
    return replace(check, interval=check.interval.negated())


def _other_methods(judged: Judged, question: Compare, covariate: Observations | None) -> list[Line]:
    """Lines of the other methods, in the metric's own direction."""
    analysis = judged.observations.analysis
    lines = other_methods(
        question.methods, judged.design, alpha=analysis.alpha, margin=analysis.margin, resamples=question.resamples
    )
    if covariate is not None:
        explains = build_design(
            covariate, judged.control, judged.candidate, unpaired=question.unpaired, intersect=question.intersect
        )
        lines.append(adjusted(judged.design, explains, analysis.alpha))
    return [replace(line, interval=own_direction(line.interval, judged.observations)) for line in lines]


def _other_population(pairs: Sequence[_Pair], question: Question, untested: int) -> Sequence[Alternative | None]:
    """Return what each verdict would be for these tasks only, or for tasks like these: the same family asked again."""
    first, shown = pairs[0].observations, sum(pair.shown for pair in pairs)
    if len(first.tasks) < 2:
        return [None] * shown
    other: Literal["sample", "fixed"] = "sample" if first.population == "fixed" else "fixed"
    try:
        return _asked_again(pairs, question, untested, "tasks", other)
    except UsageError:
        return [Alternative("tasks", other)] * shown


def _asked_again(
    pairs: Sequence[_Pair],
    question: Question,
    untested: int,
    option: Literal["tasks", "seeds"],
    value: Literal["sample", "fixed"],
) -> list[Alternative]:
    """Return the verdicts that are shown when something else is declared; it counts as a change after a look."""
    asked_for: dict[str, tuple[Observations, int]] = {}
    for observations in {pair.observations.metric: pair.observations for pair in pairs}.values():
        # This answer is a look by then.
        asked = {observations.metric: settings_of(observations, question)}
        analysis = observations.analysis.model_copy(update={option: value})
        seen = (*observations.looks, Look(0.0, "compare", "means", 0, 0, "", {}, asked))
        later = replace(observations, analysis=analysis, looks=seen if observations.declared else ())
        number = changed_analysis(later, question).number
        asked_for[observations.metric] = replace(later, looks=observations.looks), number
    again = []
    for pair in pairs:  # comparisons on one metric share its observations, which remember runs by arm
        later, number = asked_for[pair.observations.metric]
        again.append(pair._replace(observations=later, changes=number))
    return [Alternative(option, value, judged.decision, judged.design) for judged in _judge(again, question, untested)]


def _cautions(judged: Judged, skew: SkewCheck | None) -> Iterator[Caution]:
    """What limits this verdict, in the order in which it is shown."""
    observations, design, decision = judged.observations, judged.design, judged.decision
    analysis = observations.analysis
    yield from (Caution(("note", note), note) for note in observations.notes)
    if design.unmatched is not None:
        yield Caution(("unmatched", judged.candidate), design.unmatched.sentence(judged.control, judged.candidate))
    if decision.identical:
        yield Caution(("identical",), "the arms are identical on every unit; was the same thing run twice?")
    if design.missing and design.seen_ends:
        yield Caution(
            ("seen ends",),
            "no range is declared, so missing runs were put at the smallest and largest value seen: declare "
            "analysis.bounds (or --bounds) if the metric can be more extreme",
        )
    yield from design.cautions(observations)
    if skew is not None and skew.sensitive:
        yield Caution(("skew",), "sensitive to skew: the studentized bootstrap disagrees about 0")
    known = design.without_missing()
    cells = (*known.control.values(), *known.candidate.values())
    if design.statistic != "mean" and all(abs(value) in (0.0, 1.0) for cell in cells for value in cell.values):
        yield Caution(
            ("outcomes",),
            f"a {design.estimand} says little about outcomes of 0 and 1: leave statistic out for a verdict about success rates",
        )
    seeds = {seed for _, seed in known.control}
    table = known.matched and min(len(known.tasks), len(seeds)) >= 2
    if analysis.seeds == "nested" and table and None not in seeds:
        p = seeds_look_crossed(known.difference_table())
        if p < LOOKS_CROSSED:
            yield Caution(
                ("look crossed",),
                f"seeds are declared nested but look crossed (a seed does well or badly on every task, p = {format_p(p)}); "
                "if one seed is one trained policy or one world, say seeds = 'crossed'",
            )


def recommendations(comparisons: Sequence[Comparison]) -> dict[str, str]:
    """One campaign word for each candidate: an improvement is one on every metric, a degradation one on any."""
    verdicts: dict[str, set[Word]] = {}
    for comparison in comparisons:
        verdicts.setdefault(comparison.candidate, set()).add(comparison.verdict)
    words: dict[str, Word] = {
        arm: "worse" if "worse" in each else "better" if each == {"better"} else "undecided"
        for arm, each in verdicts.items()
    }
    return {arm: CAMPAIGN_WORDS[word] for arm, word in words.items()}


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
            (judged,) = _judge([_Pair(observations, control, candidate)], question)
        except UsageError as error:
            lines.append(Exploratory(observations.metric, control, candidate, note=str(error)))
            continue
        decision = judged.decision
        line = Exploratory(
            observations.metric,
            control,
            candidate,
            means_of(judged.design).effect,
            own_direction(decision.interval, observations),
            decision.p,
            note=decision.reason.replace("_", " ") if decision.p is None else "",
        )
        lines.append(line)
    known = [line.p for line in lines if line.p is not None]
    adjusted_p = iter(benjamini_hochberg(known) if known else ())
    return [line if line.p is None else replace(line, p_adjusted=next(adjusted_p)) for line in lines]


def explore_metrics(metrics: Sequence[Observations], question: Question | None = None) -> list[Exploratory]:
    """Every candidate on every metric given. What is declared about the primary metrics does not hold for these."""
    question = question if question is not None else Compare()
    pairs = []
    for observations in metrics:
        control, candidates = choose_arms(observations, question)
        plain = observations.analysis.model_copy(update={"margin": None, "relative_margin": None, "bounds": None})
        observations = replace(observations, analysis=plain)
        pairs += [(observations, control, candidate) for candidate in candidates]
    return explore(pairs, question)
