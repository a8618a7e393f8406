"""All editions of one experiment together: `compare NAME --editions all`.

Editions of the same code and plan with seeds of their own are one sequential test, whose units come edition by edition. If
the code or the plan differs, each edition has its own effect: the final e-values are multiplied, and what is claimed is
an effect in at least one of them. Runs on repeated seeds are not independent and are not combined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.records import provenance
from bakeoff.results.table import UNFINISHED, Results, Row
from bakeoff.spec.experiment import Analysis, ExperimentFile, Sequential
from bakeoff.stats.decision import CAMPAIGN_WORDS, Reason, Word
from bakeoff.stats.evidence import unbounded
from bakeoff.stats.sequential import LEAST_PLANNED, Paths, SequentialRule
from bakeoff.verdicts.answer import observe_metric
from bakeoff.verdicts.comparison import Comparison
from bakeoff.verdicts.family import choose_arms, family_of, primary_metrics
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.sequential.evidence_path import (
    SequentialReport,
    compare_pairs,
    format_e,
    path_of,
    sequential_rule,
)

_JUDGED = ("direction", "bounds", "failure_score", "summary", "alpha", "margin", "tasks", "statistic")
"""What has to be declared alike: otherwise the editions ask different questions."""


def combine(results: Results, question: Compare, metrics: Sequence[str]) -> tuple[SequentialReport, list[Observations]]:
    """The report over all editions, which are `results.parts` in order of time, and the observations behind it."""
    # Only seeds on which anything has ended: the next edition may have run what an aborted one had planned.
    parts = [replace(part, rows=_begun(part.rows)) for part in results.parts]
    if not parts or any(part.edition is None for part in parts):
        raise UsageError("--editions all takes one experiment by its name")
    for part in parts:
        for name in _JUDGED:
            if getattr(part.analysis, name) != getattr(parts[0].analysis, name):
                raise UsageError(
                    f"{parts[0].label} and {part.label} declare another analysis.{name}, so they ask different questions"
                )
    if question.analysis(parts[0].analysis).statistic != "mean":
        raise UsageError("--editions all is one sequential test, which has no other statistic: leave --statistic out")
    _check_seeds(parts)
    begun = replace(results, rows=[row for part in parts for row in part.rows])
    if not begun.rows:
        raise UsageError(f"{results.label}: no run has ended yet")
    observed = [observe_metric(begun, name, question) for name in metrics]
    if len(observed[0].tasks) > 1 and observed[0].population == "sample":
        raise UsageError(
            f"more editions say nothing about tasks beyond these {len(observed[0].tasks)}: the unit is the task. "
            "--tasks fixed asks about these tasks only"
        )
    control, candidates = choose_arms(observed[0], question)
    change = _difference(parts)
    analysis = observed[0].analysis
    primary = max(len(metrics), *(len(primary_metrics(part, metrics)) for part in results.parts))
    settings, rule = _rule(begun, analysis, family_of(parts[0].analysis, results.arms, control, primary).size)
    comparisons = []
    for each in observed:
        for candidate in candidates:
            if change is None:
                comparisons.append(_over_all(each, control, candidate, rule, settings))
                continue
            own = [
                _over_all(observe_metric(part, each.metric, question), control, candidate, rule, settings)
                for part in parts
                if {control, candidate} <= set(part.arms)
            ]
            comparisons.append(_product(own, rule))
    count = len(parts)
    if change is None:
        case = f"{count} editions of the same code and plan with different seeds: one e-process over all their units."
    else:
        case = (
            f"{count} editions that differ ({change}): their final e-values are multiplied, and a verdict means "
            "`in at least one edition`."
        )
    return SequentialReport(tuple(comparisons), analysis, settings, results.label, case=case), observed


def _begun(rows: Sequence[Row]) -> list[Row]:
    """Runs of seeds on which anything has ended. What is open on them counts as missing: it may have been given up
    because of what was seen."""
    begun = {row.seed for row in rows if row.status not in UNFINISHED}
    return [replace(row, status="cancelled") if row.status in UNFINISHED else row for row in rows if row.seed in begun]


def _check_seeds(parts: Sequence[Results]) -> None:
    """Raises UsageError when two editions have run the same seed."""
    owner: dict[int | None, str] = {}
    for part in parts:
        seeds = dict.fromkeys(row.seed for row in part.rows)
        repeated = [seed for seed in seeds if seed in owner]
        if repeated:
            shown = ", ".join(map(str, repeated[:6])) + (" ..." if len(repeated) > 6 else "")
            raise UsageError(
                f"{owner[repeated[0]]} and {part.label} have both run seed {shown}: results on the same seeds are not "
                "independent, so these editions are not combined. Give the next edition seeds of its own, such as "
                "`bakeoff run FILE --fresh --set seeds=20..39`, or compare one edition alone"
            )
        owner |= dict.fromkeys(seeds, part.label)


def _difference(parts: Sequence[Results]) -> str | None:
    """What differs between the editions' code or plans, in a few words; None when nothing does."""
    plans, sessions, running = [], [], []
    for part in parts:
        assert part.edition is not None
        cells = part.edition.cells()
        experiment = ExperimentFile.model_validate(part.edition.facts()["spec"])
        plans.append(
            (
                sorted((cell.arm, cell.task, cell.task_digest or "", str(cell.params)) for cell in cells),
                experiment.rollouts,
            )
        )
        for session in part.edition.sessions():
            sessions.append(session["provenance"])
            running.append((session["started_at"], session["seen_at"]))
    for part, plan in zip(parts, plans, strict=True):
        if plan != plans[0]:
            return f"the plan of {part.label} is another one"
    for later in sessions[1:]:
        if not provenance.code_is_known(sessions[0], later):
            return "the code is not under version control, so nobody knows whether it changed"
        if (change := provenance.code_change(sessions[0], later, running)) is not None:
            return change
    return None


def _rule(results: Results, analysis: Analysis, comparisons: int) -> tuple[Sequential, SequentialRule]:
    """The bar over all arms of all editions; bets on the declared range where every edition was run with them."""
    units = len({row.seed for row in results.rows})
    declared = [part.edition.facts()["spec"].get("sequential") for part in results.parts if part.edition is not None]
    bets = all(settings is not None and settings["test"] == "betting" for settings in declared)
    settings = Sequential(max_seeds=max(units, LEAST_PLANNED), test="betting" if bets else "symmetric")
    return settings, sequential_rule(analysis, settings, comparisons)


def _over_all(
    observations: Observations, control: str, candidate: str, rule: SequentialRule, settings: Sequential
) -> Comparison:
    """One e-process over the units of both arms, in the order of the rows."""
    seeds = {
        arm: dict.fromkeys(row.seed for row in observations.rows if row.arm == arm and row.seed is not None)
        for arm in (control, candidate)
    }
    units = sum(seed in seeds[control] for seed in seeds[candidate])
    short = replace(rule, planned=max(units, LEAST_PLANNED))
    return compare_pairs(
        observations, observations.metric, control, candidate, seeds, short, settings, observations.analysis
    )


def _product(own: Sequence[Comparison], rule: SequentialRule) -> Comparison:
    """The e-values of editions that differ, multiplied. Final ones: the product of maxima has no error rate."""
    first, paths = own[0], [path_of(each) for each in own]
    last = np.array([[_last(path.paths.better), _last(path.paths.worse)] for path in paths])
    better, worse = np.cumsum(last, axis=0).T
    threshold = paths[0].threshold
    bar = math.log(threshold)
    verdict: Word = "better" if better[-1] >= bar else "worse" if worse[-1] >= bar else "undecided"
    reason: Reason = "" if verdict != "undecided" else "max_seeds"
    highest = max(float(better[-1]), float(worse[-1]))
    p = min(1.0, 2.0 * math.exp(-highest))
    p_adjusted = min(1.0, rule.comparisons * p)
    seeds = tuple(seed for path in paths for seed in path.seeds if isinstance(seed, int))
    known = np.concatenate([path.differences for path in paths])
    effect = float(np.nanmean(known)) if np.isfinite(known).any() else None
    interval = unbounded(1.0 - rule.alpha / rule.comparisons)
    design = replace(
        first.design,
        control={place: cell for each in own for place, cell in each.design.control.items()},
        candidate={place: cell for each in own for place, cell in each.design.candidate.items()},
        tasks=tuple(dict.fromkeys(task for each in own for task in each.design.tasks)),
        seeds=seeds,
        missing=sum(each.missing for each in own),
        failed=sum(each.failed for each in own),
    )
    about = f"{first.candidate} against {first.control} on {first.metric}"
    reached = f"over {len(own)} editions and {len(seeds)} pairs: e = {format_e(highest)} of {threshold:g} needed"
    said = f"{verdict.capitalize()} in at least one edition: {about}, {reached}."
    return replace(
        first,
        verdict=verdict,
        reason=reason,
        campaign=CAMPAIGN_WORDS[verdict],
        units=len(seeds),
        effect=effect,
        interval=interval,
        decision_interval=interval,
        p=p,
        p_adjusted=p_adjusted,
        missing=design.missing,
        failed=design.failed,
        sentence=said if verdict != "undecided" else f"Undecided: {about}, {reached}.",
        design=design,
        decision=replace(
            first.decision, verdict=verdict, reason=reason, effect=None if effect is None else design.sign * effect, p=p,
            p_adjusted=p_adjusted, interval=interval, decision_interval=interval, n=len(seeds),
        ),
        evidence_path=replace(
            paths[0],
            planned=len(seeds),
            decided_at=len(seeds) if verdict != "undecided" else None,
            seeds=seeds,
            differences=known,
            estimate=None,
            paths=Paths(better, worse),
        ),
    )  # fmt: skip


def _last(path: np.ndarray) -> float:
    """An edition without evidence counts as 1; one whose lost runs cannot be bounded too."""
    return float(path[-1]) if path.size and np.isfinite(path[-1]) else 0.0
