"""Confirmed, failed or inconclusive: rules about a candidate and its baseline, judged only on enough evidence.

Too little evidence is `INCONCLUSIVE`, whatever the figures say. A metric that no run ever logged is neither: no more
runs would bring it, so the rule stops the check or is left out aloud, as the file says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.spec.experiment import Analysis, Summary
from bakeoff.verdicts import compare, runlogs, sample
from bakeoff.verdicts.litmus_rules import Evidence, Rule, Rules
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.runlogs import Logs, RunLog

Status = Literal["CONFIRMED", "FAILED", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True)
class Check:
    """One rule. `passed` is None while the evidence for it is missing; `evidence` says what is."""

    name: str
    metric: str
    baseline: float | None
    candidate: float | None
    delta: float | None
    """Candidate minus baseline, in the metric's own direction."""
    wanted: str
    passed: bool | None
    sentence: str
    verdict: str | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """What one run brought."""

    name: str
    status: str
    steps: int
    completions: float | None


@dataclass(frozen=True, slots=True)
class Arm:
    name: str
    runs: tuple[Run, ...]

    @property
    def steps(self) -> int:
        return sum(run.steps for run in self.runs)

    @property
    def completions(self) -> float | None:
        known = [run.completions for run in self.runs if run.completions is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Litmus:
    """The answer, every check, and every piece of evidence that is missing, as sentences."""

    status: Status
    rules: Rules
    baseline: Arm
    candidate: Arm
    checks: tuple[Check, ...]
    evidence_failures: tuple[str, ...]
    notes: tuple[str, ...]


def judge(logs: Logs, baseline: str, candidate: str, rules: Rules, options: compare.Options | None = None) -> Litmus:
    """The rules on two arms of `logs`."""
    arms = {name: [run for run in logs.runs if run.arm == name] for name in (baseline, candidate)}
    both = [*arms[baseline], *arms[candidate]]
    told = [_arm(name, runs, rules.evidence) for name, runs in arms.items()]
    notes: list[str] = []
    failures = [*_open(logs), *_too_little(told, rules.evidence, both, notes)]
    checks = []
    for rule in rules.rules:
        if any(run.has(rule.metric) for run in both):
            checks.append(_check(rule, rules, logs, arms, options or compare.Options()))
        else:
            notes.append(_never_logged(rule, both))
    if not checks:
        raise UsageError(f"none of the rules can be judged: {'; '.join(notes)}")
    every = (*failures, *(sentence for check in checks for sentence in check.evidence))
    return Litmus(_status(failures, checks), rules, told[0], told[1], tuple(checks), every, tuple(notes))


def _status(failures: Sequence[str], checks: Sequence[Check]) -> Status:
    if failures:
        return "INCONCLUSIVE"
    if any(check.passed is False for check in checks):
        return "FAILED"
    return "INCONCLUSIVE" if any(check.passed is None for check in checks) else "CONFIRMED"


def _arm(name: str, runs: Sequence[RunLog], needs: Evidence) -> Arm:
    return Arm(name, tuple(Run(run.name, run.status, run.steps, run.total(needs.completions)) for run in runs))


def _open(logs: Logs) -> list[str]:
    return [] if logs.final else ["planned runs are still open, so this is not final"]


def _too_little(arms: Sequence[Arm], needs: Evidence, runs: Sequence[RunLog], notes: list[str]) -> list[str]:
    found = []
    count_completions = needs.min_completions > 0
    if count_completions and not any(run.has(needs.completions) for run in runs):
        sentence = f"no run logs {needs.completions!r}, so completions cannot be counted"
        if needs.when_absent == "error":
            raise UsageError(f"{sentence}; name what counts them in evidence.completions, or drop min_completions")
        notes.append(f"{sentence}; the {needs.min_completions} that each run should have were not asked for")
        count_completions = False
    for arm in arms:
        there = [run for run in arm.runs if run.status in ("succeeded", "failed", "timeout")]
        lost = [run for run in arm.runs if run.status in ("infra_error", "cancelled")]
        if lost:
            found.append(f"{arm.name}: {len(lost)} of {len(arm.runs)} runs are missing, such as {lost[0].name}")
        if len(there) < needs.min_runs:
            found.append(f"{arm.name}: {_count(len(there), 'run')}, {needs.min_runs} needed")
        for run in there:
            if run.steps < needs.min_steps:
                found.append(f"{run.name}: {_count(run.steps, 'step')}, {needs.min_steps} needed")
            if count_completions and (run.completions or 0) < needs.min_completions:
                found.append(f"{run.name}: {run.completions or 0:g} completions, {needs.min_completions} needed")
    return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _never_logged(rule: Rule, runs: Sequence[RunLog]) -> str:
    names = runlogs.known_metrics(runs)
    known = did_you_mean(rule.metric, names, f"they log {', '.join(names[:15]) or 'nothing'}")
    sentence = f"{rule.title}: no run of either arm logs {rule.metric!r}"
    if rule.when_absent == "error":
        raise UsageError(
            f"{sentence}, and no number of runs would change that; {known} "
            "(when_absent = 'skip' judges the other rules without it)"
        )
    return f"{sentence}, so the rule was not judged"


def _check(rule: Rule, rules: Rules, logs: Logs, arms: dict[str, list[RunLog]], options: compare.Options) -> Check:
    (baseline, candidate) = arms
    both = [*arms[baseline], *arms[candidate]]
    silent = [run.name for run in both if run.status == "succeeded" and not run.has(rule.metric)]
    if silent:
        sentence = f"{rule.title}: {_count(len(silent), 'run')} without {rule.metric!r}, such as {silent[0]}"
        return Check(rule.title, rule.metric, None, None, None, _wanted(rule), None, sentence, evidence=(sentence,))
    seen = runlogs.observe(both, rule.metric, _analysis(rule, rules, logs), fixed_tasks=logs.fixed_tasks)
    empty = [arm for arm in arms if all(row.state == "missing" for row in seen.rows if row.arm == arm)]
    if empty:
        sentence = f"{rule.title}: {empty[0]} has no finished run"
        return Check(rule.title, rule.metric, None, None, None, _wanted(rule), None, sentence, evidence=(sentence,))
    a, b = (float(np.mean(sample.draw(seen, arm, options).values)) for arm in arms)
    lift = b - a if rule.direction == "maximize" else a - b
    held = [
        *([lift >= rule.min_lift] if rule.min_lift is not None else []),
        *([b >= rule.at_least] if rule.at_least is not None else []),
        *([b <= rule.at_most] if rule.at_most is not None else []),
    ]
    passed: bool | None = all(held)
    word: str | None = None
    open_question: tuple[str, ...] = ()
    if rule.verdict is not None:
        word, told = _verdict(seen, baseline, candidate, options)
        if word == "undecided":
            passed, open_question = (None if passed else False), (f"{rule.title}: {told}",)
        else:
            passed = passed and word == rule.verdict
    sentence = _sentence(rule, a, b, passed, word)
    return Check(rule.title, rule.metric, a, b, b - a, _wanted(rule), passed, sentence, word, open_question)


def _analysis(rule: Rule, rules: Rules, logs: Logs) -> Analysis:
    """The rule's own words; what the experiment declares about design and, for its own metric, about failures stays."""
    own = logs.analysis.metric == rule.metric
    series = runlogs.has_series(logs.runs, rule.metric)
    score = rule.failure_score if rule.failure_score is not None else (logs.analysis.failure_score if own else None)
    return Analysis(
        metric=rule.metric,
        summary=(rule.summary or Summary(type="mean")) if series else None,
        direction=rule.direction,
        seeds=logs.analysis.seeds,
        tasks=logs.analysis.tasks,
        margin=rule.margin,
        alpha=rules.alpha,
        failure_score=score,
        bounds=logs.analysis.bounds if own else None,
    )


def _verdict(seen: Observations, baseline: str, candidate: str, options: compare.Options) -> tuple[str, str]:
    asked = compare.Options(
        control=baseline, candidates=(candidate,), tasks=options.tasks, unpaired=options.unpaired,
        intersect=options.intersect,
    )  # fmt: skip
    (found,) = compare.compare([seen], asked)
    return found.decision.verdict, found.sentence


def _wanted(rule: Rule) -> str:
    """`lift >= 0.01 and verdict better`."""
    parts = [
        f"lift >= {rule.min_lift:g}" if rule.min_lift is not None else "",
        f"candidate >= {rule.at_least:g}" if rule.at_least is not None else "",
        f"candidate <= {rule.at_most:g}" if rule.at_most is not None else "",
        f"verdict {rule.verdict}" if rule.verdict is not None else "",
    ]
    return " and ".join(part for part in parts if part)


def _sentence(rule: Rule, a: float, b: float, passed: bool | None, word: str | None) -> str:
    how = {True: "holds", False: "does not hold", None: "is open"}[passed]
    told = f", verdict {word}" if word is not None else ""
    return f"{rule.title}: baseline {a:.4g}, candidate {b:.4g} ({b - a:+.4g}{told}); {_wanted(rule)} {how}"
