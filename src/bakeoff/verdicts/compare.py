"""Better, worse, equivalent or undecided: every arm against the control, over the primary metrics, as one family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from bakeoff.errors import UsageError
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
from bakeoff.verdicts import looks
from bakeoff.verdicts.describe import Description, choice_of_test, describe, format_p, own_direction, sentence
from bakeoff.verdicts.design import ONE_PAIR_A_UNIT, Design, build_design
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Compare, Question
from bakeoff.verdicts.testing import Line, adjusted, comparison_test, exact_p, other_methods, sides

LOOKS_CROSSED = 0.01
SEED = 0
"""Everything random in a verdict starts from here, so that the same table gives the same verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Description):
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
    interval: Interval | None
    decision_interval: Interval | None
    equivalence_interval: Interval | None
    missing: int
    failed: int
    seen_ends: bool
    skew: SkewCheck | None
    other: str
    """The verdict for the other population, in one line."""
    these_seeds: str
    """With two crossed seeds: the verdict for these two only, in one line; it has no exit code."""
    campaign: str
    chosen: str = ""
    """Which test decided, and why it was this one."""
    p_exact: float | None = None
    """The p of the exact test with ties in full, where there is one (`testing.exact_p`)."""
    methods: tuple[Line, ...] = ()
    """Other methods that were asked for, in the metric's own direction; they do not decide."""
    warnings: tuple[str, ...] = ()
    design: Design = field(repr=False, compare=False)
    """The units behind it."""

    @property
    def deciding_interval(self) -> Interval | None:
        """The one that the verdict was read from."""
        equivalent = self.equivalence_interval if self.verdict == "equivalent" else None
        return equivalent or self.decision_interval or self.interval


Verdict = Comparison
"""What users of the package call it."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """One comparison of a family with its decision; everything beside the verdict is still to be computed."""

    observations: Observations
    control: str
    candidate: str
    design: Design
    test: Test | Decision
    decision: Decision


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
    pairs = [(observations, control, candidate) for observations in metrics for candidate in candidates]
    family = _judge(pairs, question)
    nothing = [""] * len(family)
    others = nothing if verdict_only else _other_population(pairs, question)
    two_seeds = any(_has_two_crossed_seeds(judged.design) for judged in family)
    seeds = _asked_again(pairs, question, {"seeds": "fixed"}) if two_seeds and not verdict_only else nothing
    return [
        _comparison(judged, question, other, with_seeds, len(family), covariate, verdict_only)
        for judged, other, with_seeds in zip(family, others, seeds, strict=True)
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


def _judge(pairs: Sequence[tuple[Observations, str, str]], question: Question) -> list[_Judged]:
    """Decide a family of comparisons, each of (observations, control, candidate). Raises UsageError.

    Before the planned end there are effects and no verdict: looking early is only valid in the sequential test.
    """
    standings: list[looks.Standing] = []
    tests: list[Test | Decision] = []
    for observations, control, candidate in pairs:
        analysis = observations.analysis
        design = build_design(
            observations, control, candidate, unpaired=question.unpaired, intersect=question.intersect
        )
        standings.append(looks.standing(observations, control, candidate, design))
        try:
            test = comparison_test(
                standings[-1].design,
                alpha=standings[-1].alpha,
                comparisons=len(pairs),
                margin=analysis.margin,
                relative=analysis.relative_margin,
                strict=analysis.ties == "full",
            )
        except ValueError as error:
            raise UsageError(f"{observations.metric}, {candidate} against {control}: {error}") from error
        tests.append(test)
    simultaneous = isinstance(question, Compare) and question.simultaneous
    decisions = decide(tests, standings[0].alpha, simultaneous=simultaneous)
    family = []
    for (observations, control, candidate), standing, test, decision in zip(
        pairs, standings, tests, decisions, strict=True
    ):
        decision = looks.later(standing, decision, observations, len(pairs))
        if not observations.final:
            decision = Decision("undecided", "not_final", effect=decision.effect, n=decision.n)
        test = decision if standing.order else test
        family.append(_Judged(observations, control, candidate, standing.design, test, decision))
    return family


def _comparison(
    judged: _Judged,
    question: Question,
    other: str,
    these_seeds: str,
    comparisons: int,
    covariate: Observations | None,
    verdict_only: bool,
) -> Comparison:
    """The decision with everything that stands beside it."""
    observations, design, decision = judged.observations, judged.design, judged.decision
    analysis = observations.analysis
    description = Description() if verdict_only else describe(design, analysis, judged.test, comparisons)
    effect = description.effect if decision.effect is None else design.sign * decision.effect
    resamples = question.resamples if isinstance(question, Compare) else Compare().resamples
    skew = None if verdict_only else _skew(observations, design, decision, resamples)
    lines: list[Line] = []
    if observations.final and not verdict_only and isinstance(question, Compare):
        lines = _other_methods(judged, question, covariate) if question.methods or covariate is not None else []
    return Comparison(
        **asdict(replace(description, effect=effect)),
        metric=observations.metric,
        control=judged.control,
        candidate=judged.candidate,
        verdict=decision.verdict,
        reason=decision.reason,
        p=decision.p,
        p_adjusted=decision.p_adjusted,
        decision=decision,
        sentence=sentence(observations, judged.control, judged.candidate, design, decision, description.mde),
        population=design.population,
        units=design.units,
        interval=own_direction(decision.interval, observations),
        decision_interval=own_direction(decision.decision_interval, observations),
        equivalence_interval=own_direction(decision.equivalence_interval, observations),
        missing=design.missing,
        failed=design.failed,
        seen_ends=design.seen_ends and design.missing > 0,
        skew=skew,
        other=other,
        these_seeds=these_seeds,
        campaign=CAMPAIGN_WORDS[decision.verdict],
        chosen=choice_of_test(design, decision, analysis.alpha, comparisons),
        p_exact=None if verdict_only or decision.p is None else exact_p(design, judged.test, comparisons),
        methods=tuple(lines),
        warnings=tuple(_warnings(judged, skew)),
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
    check = skew_check(difference(b[0], a[0]), deciding, resamples, SEED)
    if check is None or observations.larger_is_better:
        return check
    return replace(check, interval=check.interval.negated())


def _other_methods(judged: _Judged, question: Compare, covariate: Observations | None) -> list[Line]:
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


def _other_population(pairs: Sequence[tuple[Observations, str, str]], question: Question) -> list[str]:
    """What each verdict would be for these tasks only, or for tasks like these: the same family asked again."""
    first = pairs[0][0]
    if len(first.tasks) < 2:
        return [""] * len(pairs)
    other = "sample" if first.population == "fixed" else "fixed"
    try:
        return _asked_again(pairs, question, {"tasks": other})
    except UsageError:
        who = "for tasks like these" if other == "sample" else "on these tasks only"
        return [f"{who}: no verdict is possible"] * len(pairs)


def _asked_again(
    pairs: Sequence[tuple[Observations, str, str]], question: Question, changes: Mapping[str, str]
) -> list[str]:
    """The verdicts of the same family when something else is declared, one line each."""
    again = [
        (replace(observations, analysis=observations.analysis.model_copy(update=dict(changes))), control, candidate)
        for observations, control, candidate in pairs
    ]
    family = _judge(again, question)
    lines = []
    for judged in family:
        decision = judged.decision
        p = f", p = {format_p(decision.p_adjusted)}" if decision.p_adjusted is not None else ""
        reason = f" ({decision.reason.replace('_', ' ')})" if decision.reason not in ("", "inconclusive") else ""
        lines.append(f"{judged.design.population}: {decision.verdict}{reason}{p}")
    return lines


def _has_two_crossed_seeds(design: Design) -> bool:
    return design.kind == "crossed" and len(design.seeds) == 2


def _warnings(judged: _Judged, skew: SkewCheck | None) -> list[str]:
    observations, design, decision = judged.observations, judged.design, judged.decision
    warnings = list(observations.notes)
    if design.unmatched is not None:
        warnings.append(design.unmatched.sentence(judged.control, judged.candidate))
    if _has_two_crossed_seeds(design):
        warnings.append(
            "2 crossed seeds leave 1 degree of freedom, so only very large effects can be told from luck with the seeds: "
            "5 seeds or more would decide, and --seeds fixed asks about these 2 seeds only"
        )
    if decision.identical:
        warnings.append("the arms are identical on every unit; was the same thing run twice?")
    if design.missing and design.seen_ends:
        warnings.append(
            "no range is declared, so missing runs were put at the smallest and largest value seen: declare "
            "analysis.bounds (or --bounds) if the metric can be more extreme"
        )
    if skew is not None and skew.sensitive:
        warnings.append("sensitive to skew: the studentized bootstrap disagrees about 0")
    known = design.without_missing()
    every_seed_on_every_task = len(known.control) == len(known.tasks) * len(known.seeds)
    table = known.matched and every_seed_on_every_task and min(len(known.tasks), len(known.seeds)) >= 2
    if observations.analysis.seeds == "nested" and table and None not in known.seeds:
        a, b = sides(replace(known, kind="crossed", unit="task and seed"))
        p = seeds_look_crossed(b[0] - a[0])
        if p < LOOKS_CROSSED:
            warnings.append(
                f"seeds are declared nested but look crossed (a seed does well or badly on every task, p = {format_p(p)}); "
                "if one seed is one trained policy or one world, say seeds = 'crossed'"
            )
    return warnings


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
            (judged,) = _judge([(observations, control, candidate)], question)
        except UsageError as error:
            lines.append(Exploratory(observations.metric, control, candidate, note=str(error)))
            continue
        decision = judged.decision
        line = Exploratory(
            observations.metric,
            control,
            candidate,
            describe(judged.design).effect,
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
        pairs += [(replace(observations, analysis=plain), control, candidate) for candidate in candidates]
    return explore(pairs, question)
