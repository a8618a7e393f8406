"""What an edition that runs until it is decided says: e-processes, their confidence sequences and the verdicts.

Such an edition has `sequential` in its stored spec. Pairs are looked at in plan order, one for each seed, and the
verdict may be read at any time; a test or an interval of fixed size is not valid on it, before or after the stop. So
`compare` asks here first:

    if sequential.applies(edition):
        found = sequential.report(edition)          # metrics=, control=, candidates= where flags name them
        for one in found.comparisons: ...           # one.sentence, one.verdict, one.effect, one.interval, one.p_adjusted
        code = 0 if found.decided else 3
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
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
from bakeoff.verdicts import arrays, units
from bakeoff.verdicts.compare import Options, choose_arms
from bakeoff.verdicts.observations import Observations, from_edition
from bakeoff.verdicts.units import Array, Design

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
        return all(one.stopped for one in self.comparisons)

    @property
    def decided(self) -> bool:
        return all(one.verdict != "undecided" for one in self.comparisons)

    @property
    def pairs(self) -> int:
        return min(one.pairs for one in self.comparisons)


def applies(edition: Edition) -> bool:
    """Whether the edition runs until it is decided."""
    return edition.facts()["spec"].get("sequential") is not None


def report(
    edition: Edition,
    metrics: Sequence[str] = (),
    control: str | None = None,
    candidates: Sequence[str] = (),
) -> SequentialReport:
    """Where every comparison stands: the declared metrics and all arms against the control, unless named."""
    experiment = Experiment.model_validate(edition.facts()["spec"])
    settings, analysis = experiment.sequential, experiment.analysis
    if settings is None or settings.max_seeds is None:
        raise UsageError(
            f"{edition.paths.experiment}/{edition.paths.name} has a fixed number of runs: nothing to follow"
        )
    names = list(dict.fromkeys(metrics or declared_metrics(analysis)))
    arms = list(dict.fromkeys(cell.arm for cell in edition.cells()))
    # Asking for one comparison of a family does not make its threshold lower.
    family = max(len(declared_metrics(analysis)), len(names)) * (len(arms) - 1)
    seeds = ended_seeds(edition)
    seen = [_first(from_edition(edition, name), seeds) for name in names]
    if not seen[0].rows:
        against, others = control or analysis.control or arms[0], list(candidates)
        others = others or [arm for arm in arms if arm != against]
        found = [_nothing_yet(name, against, other, analysis, settings, family)
                 for name in names for other in others]  # fmt: skip
        return SequentialReport(tuple(found), analysis, settings, _source(edition))
    against, others = choose_arms(seen[0], Options(control=control, candidates=candidates))
    rule = sequential_rule(analysis, settings, family)
    found = [_comparison(one, against, other, seeds, rule, settings) for one in seen for other in others]
    return SequentialReport(tuple(found), analysis, settings, _source(edition))


def declared_metrics(analysis: Analysis) -> list[str]:
    if analysis.metric is None:
        raise UsageError("which metric decides? set analysis.metric before the first run")
    return list(dict.fromkeys([analysis.metric, *analysis.primary]))


def sequential_rule(analysis: Analysis, settings: Sequential, comparisons: int) -> SequentialRule:
    """The rule that the file asks for; ValueError and UsageError say what it cannot be."""
    if settings.max_seeds is None or settings.max_seeds < LEAST_PLANNED:
        raise UsageError(
            f"{settings.max_seeds or 0} seeds can never decide: each pair at most doubles the evidence. "
            f"Set sequential.max_seeds (or --max-seeds) to {LEAST_PLANNED} or more"
        )
    return SequentialRule(
        planned=settings.max_seeds,
        alpha=analysis.alpha,
        comparisons=comparisons,
        margin=analysis.margin,
        log_e=_log_e(analysis, settings),
    )


def _log_e(analysis: Analysis, settings: Sequential) -> LogE:
    if settings.test == "symmetric":
        return symmetric_log_e
    if analysis.bounds is None:
        raise UsageError("the betting test needs analysis.bounds, the lowest and highest possible value of the metric")
    width = analysis.bounds[1] - analysis.bounds[0]
    return betting_log_e(-width, width)


def ended_seeds(edition: Edition) -> list[int]:
    """The leading seeds, in plan order, whose runs have all ended or are lost. Order of finishing plays no part."""
    ended: dict[int, bool] = {}
    for run in edition.runs():
        ended[run.seed] = ended.get(run.seed, True) and run.status not in _OPEN
    leading = []
    for seed, done in ended.items():
        if not done:
            break
        leading.append(seed)
    return leading


def _first(seen: Observations, seeds: Sequence[int]) -> Observations:
    wanted = set(seeds)
    return replace(seen, rows=[row for row in seen.rows if row.seed in wanted])


def _comparison(
    seen: Observations, control: str, candidate: str, seeds: Sequence[int], rule: SequentialRule, settings: Sequential
) -> SequentialComparison:
    built = units.build(seen, control, candidate, tasks="fixed")
    # One seed on every task is one pair, whether or not seeds are crossed: each is run once on all of them.
    design = replace(built, kind="seeds over tasks", seeds=tuple(seeds))
    low, high = _ends(design)
    sign = 1.0 if seen.larger_is_better else -1.0
    known = np.where(low == high, sign * low, np.nan)
    verdict, reason, at = _verdict(design, low, high, rule, settings)
    paths, interval, highest = _evidence(low, high, rule)
    p = min(1.0, 2.0 * math.exp(-highest))
    made = SequentialComparison(
        metric=seen.metric,
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
        interval=interval if sign > 0 else interval.negated(),
        p=p,
        p_adjusted=min(1.0, rule.comparisons * p),
        paths=paths,
        threshold=2.0 * rule.comparisons / rule.alpha,
        margin_threshold=rule.comparisons / rule.alpha,
        lost=design.missing,
        failed=design.failed,
        test=f"{settings.test} e-process",
        assumes=_ASSUMES[settings.test],
        population=_population(design),
        sentence="",
    )
    return replace(made, sentence=_sentence(made, seen.analysis))


def _nothing_yet(
    metric: str, control: str, candidate: str, analysis: Analysis, settings: Sequential, comparisons: int
) -> SequentialComparison:
    rule = sequential_rule(analysis, settings, comparisons)
    none = np.array([])
    made = SequentialComparison(
        metric, control, candidate, "undecided", "continue", 0, rule.planned, None, (), none, None,
        unbounded(1.0 - rule.alpha / comparisons), 1.0, 1.0, Paths(none, none), 2.0 * comparisons / rule.alpha,
        comparisons / rule.alpha, 0, 0, f"{settings.test} e-process", _ASSUMES[settings.test], "no pair yet", "",
    )  # fmt: skip
    return replace(made, sentence=_sentence(made, analysis))


def _ends(design: Design) -> tuple[Array, Array]:
    """Differences with lost runs at the end that is adverse to B, and at the one that is adverse to A."""
    a_good, b_bad = (side[0] for side in arrays.sides(design, "good", "bad"))
    a_bad, b_good = (side[0] for side in arrays.sides(design, "bad", "good"))
    return b_bad - a_good, b_good - a_bad


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
    if copies and n >= LEAST_PLANNED and not _are_outcomes(design):
        return "undecided", "seed_has_no_effect", None
    if n >= rule.planned:
        return "undecided", "seed_has_no_effect" if copies else "missing" if len(words) > 1 else "max_seeds", None
    if words == {"undecided"} or (n >= LEAST_PLANNED and not copies and _is_futile(low, high, rule, settings)):
        return "undecided", "futility", None
    return "undecided", "continue", None


def _is_futile(low: Array, high: Array, rule: SequentialRule, settings: Sequential) -> bool:
    if settings.futility == 0.0:
        return False
    return max(rule.chance_to_decide(d) for d in (low, high)) < settings.futility


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


def _are_outcomes(design: Design) -> bool:
    """Only 0 and 1 so far: equal outcomes on every seed are no proof that the seed is ignored, so it goes on."""
    cells = (*design.control.values(), *design.candidate.values())
    return {abs(value) for cell in cells for value in cell.values} <= {0.0, 1.0}


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


def _population(design: Design) -> str:
    n, tasks = len(design.seeds), design.tasks
    if len(tasks) > 1:
        return f"on these {len(tasks)} tasks only (unit: seed, N = {n})"
    on = "for seeds like these" if tasks[0] == "default" else f"on {tasks[0]!r} only"
    return f"{on} (unit: seed, N = {n})"


def _sentence(one: SequentialComparison, analysis: Analysis) -> str:
    about = f"{one.candidate} against {one.control} on {one.metric}, {one.population}"
    if one.verdict == "undecided":
        return f"Undecided: {about}: {_why(one)}."
    assert one.effect is not None
    interval = f"{one.interval.level:.4g} confidence sequence {one.interval.low:.4g} to {one.interval.high:.4g}"
    measured = f"{one.effect:+.4g} ({interval})"
    if one.verdict == "equivalent":
        return f"Equivalent: {about}: {measured} lies within {analysis.margin:g}, from pair {one.decided_at} on."
    return (
        f"{one.verdict.capitalize()}: {about}: {measured}, reached at pair {one.decided_at} of at most {one.planned}."
    )


def _why(one: SequentialComparison) -> str:
    where = f"e = {show_e(max(_last(one.paths.better), _last(one.paths.worse)))} of {one.threshold:g} needed"
    match one.reason:
        case "continue":
            return f"{where} after {one.pairs} of at most {one.planned} pairs"
        case "max_seeds":
            return f"{where} at the planned end of {one.planned} pairs"
        case "futility":
            return f"{where} after {one.pairs} pairs, and the {one.planned} planned ones would hardly decide it"
        case "seed_has_no_effect":
            return "every arm gives the same value on every seed, and copies are not replicates"
        case _:
            return "what is missing could turn it either way"


def _last(path: Array) -> float:
    return float(path[-1]) if path.size and np.isfinite(path[-1]) else 0.0


def show_e(log_e: float) -> str:
    """A score for people."""
    return f"{math.exp(log_e):.3g}" if log_e < 13.8 else f"10^{log_e / math.log(10):.0f}"


def line(found: SequentialReport) -> str:
    """Where the e-processes are, for a display that is looked at while it runs."""
    if not found.pairs:
        return "no pair yet"
    shown = []
    for one in found.comparisons[:3]:
        name = one.candidate if len({c.metric for c in found.comparisons}) == 1 else f"{one.candidate} on {one.metric}"
        if one.verdict != "undecided":
            shown.append(f"{name} {one.verdict}")
            continue
        up, down = _last(one.paths.better), _last(one.paths.worse)
        shown.append(f"{name} e({'better' if up >= down else 'worse'}) = {show_e(max(up, down))} of {one.threshold:g}")
    more = len(found.comparisons) - len(shown)
    return f"{found.pairs} of at most {found.comparisons[0].planned} pairs: {', '.join(shown)}" + (
        f" and {more} more" if more else ""
    )


def _source(edition: Edition) -> str:
    return f"{edition.paths.experiment}/{edition.paths.name}"
