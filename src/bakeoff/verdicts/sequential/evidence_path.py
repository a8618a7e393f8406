"""What an edition that runs until it is decided says: e-processes, their confidence sequences and the verdicts.

Such an edition has `sequential` in its stored spec. Pairs are looked at in plan order, one for each seed, or for each task
where tasks are a sample, and the
verdict may be read at any time; a test or an interval of fixed size is not valid on it, before or after the stop. So
`compare` asks here first:

    if results.is_sequential:
        report = evidence_path.report(results)
        for comparison in report.comparisons: ...   # a `Comparison` with an `evidence_path`
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array, Results, Row
from bakeoff.spec.experiment import Analysis, ExperimentFile, Sequential
from bakeoff.stats.decision import CAMPAIGN_WORDS, Decision, Reason, Word, seed_has_no_effect
from bakeoff.stats.evidence import Interval, unbounded
from bakeoff.stats.sequential import (
    LEAST_PLANNED,
    LogE,
    Paths,
    SequentialRule,
    betting_log_e,
    evidence,
    shrunken_mean,
    symmetric_log_e,
)
from bakeoff.text import format_ends, format_level, number
from bakeoff.verdicts.answer import Table
from bakeoff.verdicts.comparison import Comparison
from bakeoff.verdicts.designs import Design, build_design, pair_by_seed
from bakeoff.verdicts.designs.seeds import Seeds
from bakeoff.verdicts.family import choose_arms, family_of
from bakeoff.verdicts.observations import Observation, Observations, observe
from bakeoff.verdicts.question import Question
from bakeoff.verdicts.sequential.race import RaceReport, follow

_NOT_ENDED = ("planned", "running", "cancelled")
_ASSUMES = {
    "symmetric": "without an effect a difference is as likely up as down",
    "betting": "values lie within the declared bounds",
}


@dataclass(frozen=True, slots=True)
class EvidencePath:
    """How the evidence of one comparison grew, pair by pair in plan order.

    The comparison beside it has the confidence sequence as its interval, valid at every look at once: it excludes 0
    exactly when better or worse was reached. Its p is valid at any time: 2 / the highest score so far, and p_adjusted is
    at most alpha exactly when the threshold was reached. Its effect is the mean difference; after better or worse that
    is selected, because the test stopped when it was large.
    """

    planned: int
    """Pairs at which the test ends."""
    decided_at: int | None
    """The pair at which the verdict was reached."""
    seeds: tuple[int | str, ...]
    """The seeds, or the tasks, that are the pairs."""
    differences: Array
    """B - A of each pair in the metric's own direction; NaN where a run is lost."""
    estimate: float | None
    """After better or worse: the effect with less of that bias (`stats.sequential.shrunken_mean`)."""
    paths: Paths
    threshold: float
    """e that decides better or worse: 2m/alpha."""
    margin_threshold: float
    rule: SequentialRule
    ends: tuple[Array, Array]
    """B - A of each pair with lost runs at the one and the other end of what they could have been; larger is better."""
    race: RaceReport | None = None
    """With `goal = "best"`: which arms of the experiment are still in, and which one is the best."""

    def interval_after(self, pairs: int) -> Interval:
        """The confidence sequence after the first `pairs` pairs; larger is better."""
        low, high = self.ends
        return evidence(low[:pairs], high[:pairs], self.rule)[1]

    @property
    def pairs(self) -> int:
        return len(self.seeds)

    @property
    def score(self) -> float:
        """The larger log e of better and worse after the last pair."""
        return max(_last(self.paths.better), _last(self.paths.worse))


def path_of(comparison: Comparison) -> EvidencePath:
    """Return the evidence path of a comparison by a sequential test."""
    assert comparison.evidence_path is not None
    return comparison.evidence_path


@dataclass(frozen=True, slots=True)
class SequentialReport:
    """Every comparison of the edition, at this look."""

    comparisons: tuple[Comparison, ...]
    analysis: Analysis
    settings: Sequential
    source: str
    race: RaceReport | None = None
    """With `goal = "best"`: which arms are still in. `comparisons` are those of the leader with every other arm then."""
    case: str = ""
    """Over several editions: how they were combined."""

    @property
    def stopped(self) -> bool:
        """Nothing asks for more pairs."""
        if self.race is not None:
            return self.race.stopped
        return all(comparison.reason != "continue" for comparison in self.comparisons)

    @property
    def decided(self) -> bool:
        if self.race is not None:
            return self.race.best is not None
        return all(comparison.verdict != "undecided" for comparison in self.comparisons)

    @property
    def pairs(self) -> int:
        """Of the arms that went on longest."""
        return max(comparison.units for comparison in self.comparisons) if self.race is None else self.race.pairs

    @property
    def running(self) -> set[str]:
        """The arms that get further seeds; the others have left."""
        if self.race is not None:
            return set(self.race.survivors)
        waiting = {each.candidate for each in self.comparisons if each.reason == "continue"}
        return waiting | {each.control for each in self.comparisons} if waiting else set()

    def left_at(self, arm: str) -> int | None:
        """The pair at which an arm left; None while it is in."""
        if self.race is not None:
            return next(runner.left_at for runner in self.race.runners if runner.arm == arm)
        ends = [path_of(each).decided_at for each in self.comparisons if each.candidate == arm]
        return max(end or 0 for end in ends) if ends and None not in ends else None

    @property
    def sentences(self) -> list[str]:
        """What it says, the main thing first."""
        if self.race is None:
            return [*(each.sentence for each in self.comparisons), *([self.case] if self.case else [])]
        return [self.race.sentence, *(each.sentence for each in self.comparisons if each.verdict != "undecided")]

    def facts(self) -> dict[str, Any]:
        """Everything about it, as JSON shows it."""
        return {
            "decided": self.decided,
            "stopped": self.stopped,
            "alpha": self.analysis.alpha,
            "margin": self.analysis.margin,
            **self.settings.model_dump(),
            "sentences": self.sentences,
            "case": self.case or None,
            "race": None if self.race is None else self.race.facts(),
            "comparisons": [_facts(each, path_of(each)) for each in self.comparisons],
        }

    def table(self) -> Table:
        """A line for each comparison, or for each arm of a race."""
        if self.race is not None:
            names = ["arm", "pairs", f"mean {self.race.metric}", "race", "beaten by", "e against it", "needed"]
            return Table(names, self.race.rows(), right=["pairs", names[2], "e against it", "needed"])
        headers = [
            "candidate", "metric", "verdict", "pairs", "effect", "estimate", "confidence sequence", "e better", "e worse", "needed",
        ]  # fmt: skip
        rows = []
        for each in self.comparisons:
            path = path_of(each)
            scores = [
                format_e(float(log_e[-1])) if len(log_e) and math.isfinite(log_e[-1]) else "-"
                for log_e in (path.paths.better, path.paths.worse)
            ]
            rows.append([
                each.candidate, each.metric, each.verdict, f"{path.pairs} of {path.planned}", number(each.effect),
                number(path.estimate), format_ends(each.interval), *scores, number(path.threshold),
            ])  # fmt: skip
        return Table(headers, rows, right=headers[3:])

    def line(self) -> str:
        """Where the e-processes are, for a display that is looked at while the experiment runs."""
        if not self.pairs:
            return "no pair yet"
        if self.race is not None:
            still = self.race.survivors
            arms = f"{len(still)} of {len(self.race.runners)} arms are left, {still[0]} leads"
            return f"{self.pairs} of at most {self.race.planned} pairs: {self.race.best + ' is the best' if self.race.best else arms}"
        several = len({each.metric for each in self.comparisons}) > 1
        shown = []
        for each in self.comparisons[:3]:
            name = f"{each.candidate} on {each.metric}" if several else each.candidate
            if each.verdict != "undecided":
                shown.append(f"{name} {each.verdict}")
                continue
            path = path_of(each)
            side = "better" if _last(path.paths.better) >= _last(path.paths.worse) else "worse"
            shown.append(f"{name} e({side}) = {format_e(path.score)} of {path.threshold:g}")
        more = len(self.comparisons) - len(shown)
        text = f"{self.pairs} of at most {path_of(self.comparisons[0]).planned} pairs: {', '.join(shown)}"
        return f"{text} and {more} more" if more else text


def _facts(comparison: Comparison, path: EvidencePath) -> dict[str, Any]:
    """One comparison as JSON shows it."""
    names = (
        "metric",
        "control",
        "candidate",
        "verdict",
        "effect",
        "p",
        "p_adjusted",
        "failed",
        "population",
        "sentence",
    )
    assert comparison.interval is not None
    return {
        **{name: getattr(comparison, name) for name in names},
        "pairs": path.pairs,
        "decided_at": path.decided_at,
        "estimate": path.estimate,
        "threshold": path.threshold,
        "lost": comparison.missing,
        "test": comparison.decision.method,
        "assumes": comparison.decision.assumes,
        "reason": comparison.reason or None,
        "selected": path.estimate is not None,
        "confidence_sequence": [comparison.interval.low, comparison.interval.high],
        "level": comparison.interval.level,
        "e_better": [math.exp(min(value, 700.0)) for value in path.paths.better],
        "e_worse": [math.exp(min(value, 700.0)) for value in path.paths.worse],
    }


def report(results: Results, metrics: Sequence[str] = (), question: Question | None = None) -> SequentialReport:
    """Where every comparison of an edition stands: the declared metrics and all arms against the control, unless named."""
    question = question if question is not None else Question()
    edition = results.edition
    settings = ExperimentFile.model_validate(edition.facts()["spec"]).sequential if edition is not None else None
    analysis = results.analysis
    if settings is None or (settings.max_seeds is None and settings.max_tasks is None):
        raise UsageError(f"{results.label} has a fixed number of runs, so there is no sequential test to show")
    names = list(dict.fromkeys(metrics or declared_metrics(analysis)))
    # Asking for one comparison of a family does not make its threshold lower.
    arms = results.arms
    planned = max(len(declared_metrics(analysis)), len(names))
    against = family_of(analysis, arms, question.control or analysis.control or arms[0], planned)
    family = against.size
    if settings.goal == "best":
        if question.control or question.arms:
            raise UsageError(f"{results.label} looks for the best of all arms; leave --control and --arms out")
        family = len(arms) * (len(arms) - 1) // 2
    elif undeclared := [arm for arm in question.arms if arm in arms and arm not in against.candidates]:
        raise UsageError(f"{undeclared[0]}: is not among analysis.candidates, so this test does not judge it")
    rule = sequential_rule(analysis, settings, family)
    ended = ended_units(results, unit_of(settings))
    rows = [row for row in results.rows if _name(row, unit_of(settings)) in ended[row.arm]]
    observed: list[Observations | None] = [None] * len(names)
    # While runs are open, runs that failed do not show that the metric's name is wrong: that takes one that succeeded.
    if rows and (results.final or any(row.status == "succeeded" for row in rows)):
        observed = [observe(replace(results, rows=rows), name) for name in names]
    standing = None
    if settings.goal == "best":
        standing = follow(observed[0], names[0], arms, ended, rule.planned, analysis.alpha, rule.log_e)
        control, *candidates = [runner.arm for runner in standing.runners]
    elif observed[0] is not None and set(observed[0].arms) == set(arms):
        control, candidates = choose_arms(observed[0], question)
    else:
        control, candidates = against.control, list(question.arms or against.candidates)
    comparisons = [
        compare_pairs(each, name, control, candidate, ended, rule, settings, each.analysis if each else analysis)
        for name, each in zip(names, observed, strict=True)
        for candidate in candidates
    ]
    if standing is not None:
        comparisons = [replace(each, evidence_path=replace(path_of(each), race=standing)) for each in comparisons]
    return SequentialReport(tuple(comparisons), analysis, settings, results.label, standing)


def declared_metrics(analysis: Analysis) -> list[str]:
    """The metrics that decide. Raises UsageError when none is declared: a sequential test cannot choose one later."""
    if analysis.metric is None:
        raise UsageError("which metric decides? set analysis.metric before the first run")
    return analysis.metrics


def sequential_rule(analysis: Analysis, settings: Sequential, comparisons: int) -> SequentialRule:
    """The rule that the file asks for. Raises ValueError and UsageError where it is impossible."""
    unit = unit_of(settings)
    planned = settings.max_tasks if unit == "task" else settings.max_seeds
    if planned is None or planned < LEAST_PLANNED:
        raise UsageError(
            f"{planned or 0} {unit}s can never decide: each pair at most doubles the evidence. "
            + (
                f"List {LEAST_PLANNED} tasks or more"
                if unit == "task"
                else f"Set sequential.max_seeds (or --max-seeds) to {LEAST_PLANNED} or more"
            )
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
        planned=planned, alpha=analysis.alpha, comparisons=comparisons, margin=analysis.margin, log_e=log_e
    )  # fmt: skip


def unit_of(settings: Sequential) -> Literal["seed", "task"]:
    """Return what one pair is: `max_tasks` is set when a test of tasks begins."""
    return "seed" if settings.max_tasks is None else "task"


def task_order(task: str) -> bytes:
    """Return what tasks are sorted by: a digest, since lists are sorted by kind, and the first of a kind speak for it alone."""
    return hashlib.sha256(task.encode()).digest()


def _name(row: Row | Observation, unit: Literal["seed", "task"]) -> int | str:
    assert row.seed is not None
    return row.seed if unit == "seed" else row.task


def ended_units(results: Results, unit: Literal["seed", "task"]) -> dict[str, dict[int | str, None]]:
    """By arm the leading seeds or tasks, in plan order, whose runs have all ended or are lost. The order of finishing plays
    no part. An arm that has left was planned for fewer of them."""
    ended: dict[str, dict[int | str, bool]] = {arm: {} for arm in results.arms}
    for row in results.rows:
        of_arm, name = ended[row.arm], _name(row, unit)
        of_arm[name] = of_arm.get(name, True) and row.status not in _NOT_ENDED
    if unit == "task":
        ended = {arm: dict(sorted(of.items(), key=lambda each: task_order(str(each[0])))) for arm, of in ended.items()}
    return {arm: dict.fromkeys(takewhile(units.__getitem__, units)) for arm, units in ended.items()}


def compare_pairs(
    observations: Observations | None,
    metric: str,
    control: str,
    candidate: str,
    ended: Mapping[str, Mapping[Any, None]],
    rule: SequentialRule,
    settings: Sequential,
    analysis: Analysis,
) -> Comparison:
    """Compare two arms over the pairs of both. `ended` has each arm's seeds, or tasks, in plan order."""
    unit = unit_of(settings)
    seeds = () if observations is None else tuple(seed for seed in ended[candidate] if seed in ended[control])
    known = np.array([])
    ends = known, known
    verdict: Word = "undecided"
    reason: Reason = "continue"
    at: int | None = None
    paths, interval, highest = Paths(known, known), unbounded(1.0 - rule.alpha / rule.comparisons), 0.0
    design: Design = Seeds(unit="seed", control={}, candidate={}, tasks=(), seeds=(), population="no pair yet")
    if observations is not None and seeds:
        pair = (control, candidate)
        rows = [row for row in observations.rows if row.arm not in pair or _name(row, unit) in seeds]
        declared = {"tasks": "fixed"} if unit == "seed" else {"tasks": "sample", "cluster": "none"}
        judged = observations.analysis.model_copy(update=declared)
        design = build_design(replace(observations, rows=rows, analysis=judged), control, candidate)
        if unit == "seed":
            design = pair_by_seed(design, seeds)
        low, high = ends = design.differences_in_order(seeds)
        known = np.where(low == high, design.sign * low, np.nan)
        verdict, reason, at = _verdict(design, low, high, rule, settings)
        paths, interval, highest = evidence(low, high, rule)
    p = min(1.0, 2.0 * math.exp(-highest))
    values = known[np.isfinite(known)]
    threshold = 2.0 * rule.comparisons / rule.alpha
    path = EvidencePath(
        planned=rule.planned,
        decided_at=at,
        seeds=seeds,
        differences=known,
        estimate=shrunken_mean(values, threshold) if verdict in ("better", "worse") and values.size else None,
        paths=paths,
        threshold=threshold,
        margin_threshold=rule.comparisons / rule.alpha,
        rule=rule,
        ends=ends,
    )
    effect = float(values.mean()) if values.size else None
    decision = Decision(
        verdict, reason, effect=None if effect is None else design.sign * effect, p=p,
        p_adjusted=min(1.0, rule.comparisons * p), interval=interval, decision_interval=interval,
        method=f"{settings.test} e-process", assumes=_ASSUMES[settings.test], n=len(seeds),
    )  # fmt: skip
    return _comparison(metric, control, candidate, design, decision, path, rule.comparisons, analysis)


def _comparison(
    metric: str,
    control: str,
    candidate: str,
    design: Design,
    decision: Decision,
    path: EvidencePath,
    comparisons: int,
    analysis: Analysis,
) -> Comparison:
    """Put a decision and the path to it into a comparison, in the metric's own direction."""
    interval = decision.interval
    own = interval.negated() if interval is not None and design.sign < 0 else interval
    comparison = Comparison(
        metric=metric,
        control=control,
        candidate=candidate,
        verdict=decision.verdict,
        reason=decision.reason,
        p=decision.p,
        p_adjusted=decision.p_adjusted,
        decision=decision,
        sentence="",
        population=design.population,
        units=path.pairs,
        effect=None if decision.effect is None else design.sign * decision.effect,
        interval=own,
        decision_interval=own,
        equivalence_interval=None,
        missing=design.missing,
        failed=design.failed,
        seen_ends=design.seen_ends and design.missing > 0,
        skew=None,
        campaign=CAMPAIGN_WORDS[decision.verdict],
        family=comparisons,
        design=design,
        evidence_path=path,
    )
    return replace(comparison, sentence=_sentence(comparison, path, analysis))


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
    if design.missing or not design.counts_seeds:
        return False
    strata = [
        np.array([cell.mean(np.nan) for place, cell in cells.items() if place[0] == task])
        for cells in (design.control, design.candidate)
        for task in design.tasks
    ]
    return len(design.seeds) > 1 and seed_has_no_effect(*strata)


def _sentence(comparison: Comparison, path: EvidencePath, analysis: Analysis) -> str:
    about = f"{comparison.candidate} against {comparison.control} on {comparison.metric}, {comparison.population}"
    interval, at = comparison.interval, path.decided_at
    if comparison.verdict == "undecided":
        reached = f"e = {format_e(path.score)} of {path.threshold:g} needed"
        why = {
            "continue": f"{reached} after {path.pairs} of at most {path.planned} pairs",
            "max_seeds": f"{reached} at the planned end of {path.planned} pairs",
            "futility": f"{reached} after {path.pairs} pairs, and the {path.planned} planned ones would hardly decide it",
            "seed_has_no_effect": "every arm gives the same value on every seed, and copies are not replicates",
        }.get(comparison.reason, "the missing runs could change the verdict either way")
        return f"Undecided: {about}: {why}."
    assert comparison.effect is not None and interval is not None
    sequence = f"{format_level(interval.level)} confidence sequence {format_ends(interval)}"
    measured = f"{number(comparison.effect, sign=True)} ({sequence})"
    if comparison.verdict == "equivalent":
        return f"Equivalent: {about}: {measured} lies within {analysis.margin:g}, from pair {at} on."
    assert path.estimate is not None
    return (
        f"{comparison.verdict.capitalize()}: {about}: {measured}, reached at pair {at} of at most {path.planned}. "
        f"The test stopped because the effect looked large; {number(path.estimate, sign=True)} is an estimate with less bias."
    )


def _last(path: Array) -> float:
    return float(path[-1]) if path.size and np.isfinite(path[-1]) else 0.0


def format_e(log_e: float) -> str:
    """An e-value for people."""
    return f"{math.exp(log_e):.3g}" if log_e < 13.8 else f"10^{log_e / math.log(10):.0f}"
