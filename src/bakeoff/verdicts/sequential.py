"""What an edition that runs until it is decided says: e-processes, their confidence sequences and the verdicts.

Such an edition has `sequential` in its stored spec. Pairs are looked at in plan order, one for each seed, and the
verdict may be read at any time; a test or an interval of fixed size is not valid on it, before or after the stop. So
`compare` asks here first:

    if is_sequential(edition):
        report = sequential.report(results)
        for comparison in report.comparisons: ...   # .sentence, .verdict, .effect, .interval, .p_adjusted
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array, Results
from bakeoff.spec.experiment import Analysis, Experiment, Sequential
from bakeoff.stats.decision import Word, seed_has_no_effect
from bakeoff.stats.evidence import Interval, unbounded
from bakeoff.stats.sequential import (
    LEAST_PLANNED,
    LogE,
    SequentialRule,
    betting_log_e,
    confidence_sequence,
    symmetric_log_e,
)
from bakeoff.text import format_ends, format_level, number
from bakeoff.verdicts.answer import Table
from bakeoff.verdicts.compare import choose_arms
from bakeoff.verdicts.design import Design, build_design, population_of
from bakeoff.verdicts.observations import Observations, observe
from bakeoff.verdicts.question import Question
from bakeoff.verdicts.testing import sides

Reason = Literal["", "continue", "max_seeds", "futility", "missing", "seed_has_no_effect", "too_few"]
_OPEN = ("planned", "running", "cancelled")
_ASSUMES = {
    "symmetric": "without an effect a difference is as likely up as down",
    "betting": "values lie within the declared bounds",
}


@dataclass(frozen=True, slots=True)
class Paths:
    """log e after each pair: for better, for worse and, with a margin, for 'above -margin' and 'below +margin'."""

    better: Array
    worse: Array
    above: Array | None = None
    below: Array | None = None


@dataclass(frozen=True, slots=True)
class SequentialComparison:
    """One arm against the control. Effects are in the metric's own unit and direction: B - A."""

    metric: str
    control: str
    candidate: str
    verdict: Word
    reason: Reason
    """Why there is no verdict; `continue` when more pairs may bring one."""
    pairs: int
    planned: int
    decided_at: int | None
    """The pair at which the verdict was reached."""
    seeds: tuple[int, ...]
    differences: Array
    """B - A of each pair in plan order; NaN where a run is lost."""
    effect: float | None
    interval: Interval
    """Confidence sequence: valid at every look at once; excludes 0 exactly when better or worse was reached."""
    p: float
    """Anytime-valid p of this comparison alone: 2 / the highest score so far."""
    p_adjusted: float
    """At most alpha exactly when the threshold 2m/alpha was reached."""
    paths: Paths
    threshold: float
    """e that decides better or worse: 2m/alpha."""
    margin_threshold: float
    lost: int
    failed: int
    test: str
    assumes: str
    population: str
    sentence: str

    @property
    def stopped(self) -> bool:
        return self.reason != "continue"


@dataclass(frozen=True, slots=True)
class SequentialReport:
    """Every comparison of the edition, at this look."""

    comparisons: tuple[SequentialComparison, ...]
    analysis: Analysis
    settings: Sequential
    source: str

    @property
    def stopped(self) -> bool:
        """No comparison asks for more pairs."""
        return all(comparison.stopped for comparison in self.comparisons)

    @property
    def decided(self) -> bool:
        return all(comparison.verdict != "undecided" for comparison in self.comparisons)

    @property
    def pairs(self) -> int:
        return min(comparison.pairs for comparison in self.comparisons)

    def facts(self) -> dict[str, Any]:
        """Everything about it, as JSON shows it."""
        names = (
            "metric", "control", "candidate", "verdict", "pairs", "decided_at", "effect", "p", "p_adjusted", "threshold",
            "lost", "failed", "test", "assumes", "population", "sentence",
        )  # fmt: skip
        return {
            "decided": self.decided,
            "stopped": self.stopped,
            "alpha": self.analysis.alpha,
            "margin": self.analysis.margin,
            **self.settings.model_dump(),
            "comparisons": [
                {
                    **{name: getattr(each, name) for name in names},
                    "reason": each.reason or None,
                    "confidence_sequence": [each.interval.low, each.interval.high],
                    "level": each.interval.level,
                    "e_better": [math.exp(min(value, 700.0)) for value in each.paths.better],
                    "e_worse": [math.exp(min(value, 700.0)) for value in each.paths.worse],
                }
                for each in self.comparisons
            ],
        }

    def table(self) -> Table:
        """A line for each comparison."""
        headers = [
            "candidate", "metric", "verdict", "pairs", "effect", "confidence sequence", "e better", "e worse", "needed",
        ]  # fmt: skip
        rows = []
        for each in self.comparisons:
            scores = [
                format_e(float(path[-1])) if len(path) and math.isfinite(path[-1]) else "-"
                for path in (each.paths.better, each.paths.worse)
            ]
            rows.append([
                each.candidate, each.metric, each.verdict, f"{each.pairs} of {each.planned}", number(each.effect),
                format_ends(each.interval), *scores, number(each.threshold),
            ])  # fmt: skip
        return Table(headers, rows, right=headers[3:])

    def line(self) -> str:
        """Where the e-processes are, for a display that is looked at while the experiment runs."""
        if not self.pairs:
            return "no pair yet"
        several = len({each.metric for each in self.comparisons}) > 1
        shown = []
        for each in self.comparisons[:3]:
            name = f"{each.candidate} on {each.metric}" if several else each.candidate
            if each.verdict != "undecided":
                shown.append(f"{name} {each.verdict}")
                continue
            up, down = _last(each.paths.better), _last(each.paths.worse)
            side = "better" if up >= down else "worse"
            shown.append(f"{name} e({side}) = {format_e(max(up, down))} of {each.threshold:g}")
        more = len(self.comparisons) - len(shown)
        text = f"{self.pairs} of at most {self.comparisons[0].planned} pairs: {', '.join(shown)}"
        return f"{text} and {more} more" if more else text


def report(results: Results, metrics: Sequence[str] = (), question: Question | None = None) -> SequentialReport:
    """Where every comparison of an edition stands: the declared metrics and all arms against the control, unless named."""
    assert results.edition is not None
    question = question if question is not None else Question()
    settings = Experiment.model_validate(results.edition.facts()["spec"]).sequential
    analysis = results.analysis
    if settings is None or settings.max_seeds is None:
        raise UsageError(f"{results.label} has a fixed number of runs, so there is no sequential test to show")
    names = list(dict.fromkeys(metrics or declared_metrics(analysis)))
    # Asking for one comparison of a family does not make its threshold lower.
    family = max(len(declared_metrics(analysis)), len(names)) * (len(results.arms) - 1)
    rule = sequential_rule(analysis, settings, family)
    seeds = ended_seeds(results)
    observed: list[Observations | None] = [None] * len(names)
    if seeds:
        leading = set(seeds)
        first = replace(results, rows=[row for row in results.rows if row.seed in leading])
        known = [observe(first, name) for name in names]
        control, candidates = choose_arms(known[0], question)
        observed = [*known]
    else:
        control = question.control or analysis.control or results.arms[0]
        candidates = list(question.arms) or [arm for arm in results.arms if arm != control]
    comparisons = [
        _compare(each, name, control, candidate, seeds, rule, settings, each.analysis if each else analysis)
        for name, each in zip(names, observed, strict=True)
        for candidate in candidates
    ]
    return SequentialReport(tuple(comparisons), analysis, settings, results.label)


def declared_metrics(analysis: Analysis) -> list[str]:
    """The metrics that decide. Raises UsageError when none is declared: a sequential test cannot choose one later."""
    if analysis.metric is None:
        raise UsageError("which metric decides? set analysis.metric before the first run")
    return list(dict.fromkeys([analysis.metric, *analysis.primary]))


def sequential_rule(analysis: Analysis, settings: Sequential, comparisons: int) -> SequentialRule:
    """The rule that the file asks for. Raises ValueError and UsageError where it is impossible."""
    if settings.max_seeds is None or settings.max_seeds < LEAST_PLANNED:
        raise UsageError(
            f"{settings.max_seeds or 0} seeds can never decide: each pair at most doubles the evidence. "
            f"Set sequential.max_seeds (or --max-seeds) to {LEAST_PLANNED} or more"
        )
    log_e: LogE = symmetric_log_e
    if settings.test == "betting":
        if analysis.bounds is None:
            raise UsageError(
                "the betting test needs analysis.bounds, the lowest and highest possible value of the metric"
            )
        width = analysis.bounds[1] - analysis.bounds[0]
        log_e = betting_log_e(-width, width)
    return SequentialRule(
        planned=settings.max_seeds, alpha=analysis.alpha, comparisons=comparisons, margin=analysis.margin, log_e=log_e
    )  # fmt: skip


def ended_seeds(results: Results) -> list[int]:
    """The leading seeds, in plan order, whose runs have all ended or are lost. Order of finishing plays no part."""
    ended: dict[int, bool] = {}
    for row in results.rows:
        assert row.seed is not None
        ended[row.seed] = ended.get(row.seed, True) and row.status not in _OPEN
    leading = []
    for seed, done in ended.items():
        if not done:
            break
        leading.append(seed)
    return leading


def _compare(
    observations: Observations | None,
    metric: str,
    control: str,
    candidate: str,
    seeds: Sequence[int],
    rule: SequentialRule,
    settings: Sequential,
    analysis: Analysis,
) -> SequentialComparison:
    """One comparison after the pairs of `seeds`; without observations no pair has ended yet."""
    known = np.array([])
    verdict: Word = "undecided"
    reason: Reason = "continue"
    at: int | None = None
    paths, interval, highest = Paths(known, known), unbounded(1.0 - rule.alpha / rule.comparisons), 0.0
    population, lost, failed = "no pair yet", 0, 0
    if observations is not None:
        fixed = observations.analysis.model_copy(update={"tasks": "fixed"})
        built = build_design(replace(observations, analysis=fixed), control, candidate)
        # One seed on every task is one pair, whether or not seeds are crossed: each is run once on all of them.
        design = replace(built, kind="seeds over tasks", seeds=tuple(seeds))
        # Differences with lost runs at the end that is adverse to B, and at the one that is adverse to A.
        (a_good,), (b_bad,) = sides(design, "good", "bad")
        (a_bad,), (b_good,) = sides(design, "bad", "good")
        low, high = b_bad - a_good, b_good - a_bad
        known = np.where(low == high, design.sign * low, np.nan)
        verdict, reason, at = _verdict(design, low, high, rule, settings)
        paths, interval, highest = _evidence(low, high, rule)
        interval = interval.negated() if design.sign < 0 else interval
        population = population_of(design.kind, "seed", design.tasks, design.control, design.candidate)
        lost, failed = design.missing, design.failed
    p = min(1.0, 2.0 * math.exp(-highest))
    comparison = SequentialComparison(
        metric=metric,
        control=control,
        candidate=candidate,
        verdict=verdict,
        reason=reason,
        pairs=len(seeds),
        planned=rule.planned,
        decided_at=at,
        seeds=tuple(seeds),
        differences=known,
        effect=float(np.nanmean(known)) if np.isfinite(known).any() else None,
        interval=interval,
        p=p,
        p_adjusted=min(1.0, rule.comparisons * p),
        paths=paths,
        threshold=2.0 * rule.comparisons / rule.alpha,
        margin_threshold=rule.comparisons / rule.alpha,
        lost=lost,
        failed=failed,
        test=f"{settings.test} e-process",
        assumes=_ASSUMES[settings.test],
        population=population,
        sentence="",
    )
    return replace(comparison, sentence=_sentence(comparison, analysis))


def _verdict(
    design: Design, low: Array, high: Array, rule: SequentialRule, settings: Sequential
) -> tuple[Word, Reason, int | None]:
    """A verdict counts when it is reached with lost runs at either end."""
    n = low.size
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return "undecided", "missing" if n >= rule.planned else "continue", None
    copies = _seeds_are_copies(design)
    words = {rule.look(d) for d in ((low, high) if design.missing else (low,))}
    if not copies and len(words) == 1 and (word := min(words)) in ("better", "worse", "equivalent"):
        stops = [int(rule.stops(d[None, :])[0][0]) for d in (low, high)]
        return word, "", max(stops)
    # Equal outcomes of 0 or 1 on every seed do not prove that the seed is ignored, so such a test goes on.
    cells = (*design.control.values(), *design.candidate.values())
    are_outcomes = {abs(value) for cell in cells for value in cell.values} <= {0.0, 1.0}
    if copies and n >= LEAST_PLANNED and not are_outcomes:
        return "undecided", "seed_has_no_effect", None
    if n >= rule.planned:
        return "undecided", "seed_has_no_effect" if copies else "missing" if len(words) > 1 else "max_seeds", None
    futile = words == {"undecided"}
    if not futile and settings.futility > 0.0 and n >= LEAST_PLANNED and not copies:
        futile = max(rule.chance_to_decide(d) for d in (low, high)) < settings.futility
    return "undecided", "futility" if futile else "continue", None


def _seeds_are_copies(design: Design) -> bool:
    """Every arm gives one value on every seed of a task: copies are not replicates."""
    if design.missing:
        return False
    strata = [
        np.array([cell.mean(np.nan) for place, cell in cells.items() if place[0] == task])
        for cells in (design.control, design.candidate)
        for task in design.tasks
    ]
    return len(design.seeds) > 1 and seed_has_no_effect(*strata)


def _evidence(low: Array, high: Array, rule: SequentialRule) -> tuple[Paths, Interval, float]:
    """Paths with lost runs at the worse end of the two, the hull of the confidence sequences, the highest log e."""
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        gap = np.full(low.size, np.nan)
        return Paths(gap, gap), unbounded(1.0 - rule.alpha / rule.comparisons), 0.0
    scores = [rule.log_e(d, 0.0) for d in (low, high)]
    better, worse = (np.minimum(scores[0][side], scores[1][side]) for side in (0, 1))
    above = below = None
    if rule.margin is not None:
        above = np.minimum(*(rule.log_e(d, -rule.margin)[0] for d in (low, high)))
        below = np.minimum(*(rule.log_e(d, rule.margin)[1] for d in (low, high)))
    first, second = (confidence_sequence(d, rule.alpha, rule.comparisons, rule.log_e) for d in (low, high))
    return Paths(better, worse, above, below), first.hull(second), float(max(better.max(), worse.max()))


def _sentence(comparison: SequentialComparison, analysis: Analysis) -> str:
    about = f"{comparison.candidate} against {comparison.control} on {comparison.metric}, {comparison.population}"
    interval, at = comparison.interval, comparison.decided_at
    if comparison.verdict == "undecided":
        score = format_e(max(_last(comparison.paths.better), _last(comparison.paths.worse)))
        reached = f"e = {score} of {comparison.threshold:g} needed"
        pairs, planned = comparison.pairs, comparison.planned
        why = {
            "continue": f"{reached} after {pairs} of at most {planned} pairs",
            "max_seeds": f"{reached} at the planned end of {planned} pairs",
            "futility": f"{reached} after {pairs} pairs, and the {planned} planned ones would hardly decide it",
            "seed_has_no_effect": "every arm gives the same value on every seed, and copies are not replicates",
        }.get(comparison.reason, "the missing runs could change the verdict either way")
        return f"Undecided: {about}: {why}."
    assert comparison.effect is not None
    sequence = f"{format_level(interval.level)} confidence sequence {format_ends(interval)}"
    measured = f"{number(comparison.effect, sign=True)} ({sequence})"
    if comparison.verdict == "equivalent":
        return f"Equivalent: {about}: {measured} lies within {analysis.margin:g}, from pair {at} on."
    return (
        f"{comparison.verdict.capitalize()}: {about}: {measured}, reached at pair {at} of at most {comparison.planned}."
    )


def _last(path: Array) -> float:
    return float(path[-1]) if path.size and np.isfinite(path[-1]) else 0.0


def format_e(log_e: float) -> str:
    """An e-value for people."""
    return f"{math.exp(log_e):.3g}" if log_e < 13.8 else f"10^{log_e / math.log(10):.0f}"
