"""Confirmed, failed or inconclusive: rules about a candidate and its baseline, judged only on enough evidence.

A threshold is held against the one-sided interval of what it is about, and a verdict is the one of `compare`, over the
same family of arms and with the same looks. So a rule holds wrongly with at most alpha. Too little evidence is `INCONCLUSIVE`, whatever the figures say. A metric that no run ever logged is neither: more runs
would not bring it, so the rule stops the check or is left out with a note, as the file says.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.results.table import Results, Row
from bakeoff.spec.experiment import Analysis, Section, Summary
from bakeoff.spec.load import read_model
from bakeoff.stats.evidence import LEAST_UNITS, Interval, Test, monotone_tails
from bakeoff.text import format_ends, number
from bakeoff.verdicts.answer import (
    NOT_ENOUGH_EVIDENCE,
    Answer,
    Block,
    Notes,
    Table,
    Text,
    check_direction,
    refuse_dependent,
    refuse_sequential,
)
from bakeoff.verdicts.comparison import Comparison, compare
from bakeoff.verdicts.describe import REASONS
from bakeoff.verdicts.designs import build_design
from bakeoff.verdicts.designs.testing import comparison_test
from bakeoff.verdicts.family import changed_analysis, late_changes, planned_family, settings_of
from bakeoff.verdicts.observations import Observations, caveats_of, observe
from bakeoff.verdicts.question import Compare, Litmus
from bakeoff.verdicts.questions.variance import draw_sample
from bakeoff.verdicts.sequential import looks
from bakeoff.version import __version__

Absent = Literal["error", "skip"]


class NeededEvidence(Section):
    """What there must be before a threshold means anything."""

    min_runs: Annotated[int, Field(ge=1)] = 1
    """Runs of each arm."""
    min_steps: Annotated[int, Field(ge=0)] = 0
    """Steps that every run has logged."""
    min_completions: Annotated[int, Field(ge=0)] = 0
    """Completions of every run: the sum of what `completions` names."""
    completions: str = "total_count"
    """The series (added up) or number of a run that counts its completions."""
    when_absent: Absent = "error"
    """What to do when no run has logged that: stop, or say so and go on without it."""


class Rule(Section):
    """One thing that has to hold. Everything it names must hold."""

    metric: str
    name: str | None = None
    """What the rule is called (default: the metric)."""
    summary: Summary | None = None
    """How a series becomes a run's number (default: its mean). Not for metrics that are one number a run."""
    direction: Literal["maximize", "minimize"] = "maximize"
    min_lift: float | None = None
    """The candidate's mean is better than the baseline's by at least this much: the interval lies above it."""
    at_least: float | None = None
    """The candidate's mean is at least this: its interval lies above it."""
    at_most: float | None = None
    """The candidate's mean is at most this: its interval lies below it."""
    verdict: Literal["better", "equivalent"] | None = None
    """The verdict of `compare` on this metric."""
    margin: Annotated[float, Field(gt=0)] | None = None
    """For `verdict = "equivalent"`: differences below this do not matter."""
    failure_score: float | None = None
    """What a run that failed counts."""
    when_absent: Absent = "error"
    """What to do when no run has logged the metric: stop, or say so and judge the other rules."""

    @model_validator(mode="after")
    def _asks_for_something(self) -> Rule:
        if all(value is None for value in (self.min_lift, self.at_least, self.at_most, self.verdict)):
            raise ValueError("the rule asks for nothing; give min_lift, at_least, at_most or verdict")
        if self.verdict == "equivalent" and self.margin is None:
            raise ValueError("verdict = 'equivalent' needs margin: what is too small to matter?")
        if self.verdict != "equivalent" and self.margin is not None:
            raise ValueError("margin goes with verdict = 'equivalent'")
        return self

    @property
    def title(self) -> str:
        return self.name or self.metric


class Rules(Section):
    """The whole file. The candidate is confirmed when every rule holds and the evidence is there."""

    name: str = "litmus"
    description: str = ""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Of the verdicts. All rules must hold, so each has the whole alpha."""
    evidence: NeededEvidence = NeededEvidence()
    rules: Annotated[list[Rule], Field(min_length=1)]


PROFILE = """\
name = "training"
description = "A quick check of a training campaign before more seeds are paid for"

[evidence]
min_runs = 1
min_steps = 8
min_completions = 32
completions = "total_count"
when_absent = "skip"

[[rules]]
metric = "mean_reward"
min_lift = 0.01

[[rules]]
metric = "correct_rate"
min_lift = 0.005
when_absent = "skip"

[[rules]]
metric = "gram_entropy_delta"
min_lift = 0.005
when_absent = "skip"
"""
"""Used when no file is given: thresholds and evidence of the training campaigns."""


def built_in() -> Rules:
    return Rules.model_validate(tomllib.loads(PROFILE))


def load_rules(path: Path) -> Rules:
    """Rules from a TOML, YAML or JSON file. Raises SpecError with the line and the fix of every problem."""
    return read_model(path, Rules, name=path.stem)


# -- judging

Status = Literal["CONFIRMED", "FAILED", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True)
class Check:
    """One rule. `passed` is None while the evidence for it is missing; `evidence` says what is missing."""

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

    @property
    def holds(self) -> str:
        return {True: "yes", False: "no", None: "open"}[self.passed]


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """How much one run logged."""

    run: str
    status: str
    steps: int
    completions: float | None


@dataclass(frozen=True, slots=True)
class ArmEvidence:
    """How much the runs of one arm logged."""

    name: str
    runs: tuple[RunEvidence, ...]

    @property
    def steps(self) -> int:
        return sum(run.steps for run in self.runs)

    @property
    def completions(self) -> float | None:
        known = [run.completions for run in self.runs if run.completions is not None]
        return sum(known) if known else None

    def __str__(self) -> str:
        completions = "" if self.completions is None else f", {number(self.completions)} completions"
        return f"{self.name}: {len(self.runs)} runs, {self.steps} steps{completions}"


def arm_evidence(name: str, rows: Sequence[Row], completions: str) -> ArmEvidence:
    """`completions` names the series (added up) or number that counts a run's completions."""
    runs = []
    for row in rows:
        steps = [steps for steps, _ in row.series.values()]
        total: float | None = None
        if completions in row.series:
            # A resumed run repeats steps; the last value of each counts.
            total = float(sum(dict(zip(*row.series[completions], strict=True)).values()))
        elif isinstance(value := row.metrics.get(completions), int | float):
            total = float(value)
        count = int(np.unique(np.concatenate(steps)).size) if steps else 0
        runs.append(RunEvidence(row.name, row.status, count, total))
    return ArmEvidence(name, tuple(runs))


def missing_evidence(
    arms: Sequence[ArmEvidence], needs: NeededEvidence, rows: Sequence[Row], notes: list[str]
) -> list[str]:
    """One sentence for everything that `needs` asks for and the runs do not have. What cannot be counted is a note."""
    count_completions = needs.min_completions > 0
    if count_completions and not any(row.has(needs.completions) for row in rows):
        sentence = f"no run logs {needs.completions!r}, so completions cannot be counted"
        if needs.when_absent == "error":
            raise UsageError(f"{sentence}; name what counts them in evidence.completions, or drop min_completions")
        notes.append(f"{sentence}; the required {needs.min_completions} of each run were not checked")
        count_completions = False
    sentences = []
    for arm in arms:
        # A table without a status column leaves it empty: its rows are runs that ended.
        ended = [run for run in arm.runs if run.status in ("succeeded", "failed", "timeout", "")]
        lost = [run for run in arm.runs if run.status in ("infra_error", "cancelled")]
        if lost:
            sentences.append(f"{arm.name}: {len(lost)} of {len(arm.runs)} runs are missing, such as {lost[0].run}")
        if len(ended) < needs.min_runs:
            sentences.append(f"{arm.name}: {_count(len(ended), 'run')}, {needs.min_runs} needed")
        for run in ended:
            if run.steps < needs.min_steps:
                sentences.append(f"{run.run}: {_count(run.steps, 'step')}, {needs.min_steps} needed")
            if count_completions and (run.completions or 0) < needs.min_completions:
                sentences.append(
                    f"{run.run}: {number(run.completions or 0)} completions, {needs.min_completions} needed"
                )
    return sentences


def _count(amount: int, noun: str) -> str:
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def rule_observations(rule: Rule, rules: Rules, results: Results, question: Litmus) -> Observations:
    """The rule's metric, judged by the rule's own words; what the experiment declares about the design stays."""
    declared = results.analysis
    own = declared if declared.metric == rule.metric else Analysis()
    changes: dict[str, Any] = {
        "metric": rule.metric,
        "primary": [],
        "summary": (rule.summary or Summary(type="mean")) if rule.metric in results.logged else None,
        "direction": rule.direction if "direction" in rule.model_fields_set else declared.about(rule.metric).direction,
        "tasks": question.tasks or declared.tasks,
        "margin": rule.margin,
        "relative_margin": None,
        "alpha": rules.alpha,
        "failure_score": own.failure_score if rule.failure_score is None else rule.failure_score,
        "bounds": own.bounds,
    }
    changes |= {name: getattr(question, name) for name in ("seeds", "cluster") if name in question.model_fields_set}
    changes |= {"ties": "full"} if question.strict else {}
    analysis = declared.model_copy(update=changes)
    if rule.min_lift is not None or rule.verdict is not None:
        # Thresholds of the candidate's own mean mean the same either way.
        check_direction(rule.metric, analysis, declared, label=f"rule {rule.title!r}")
    observations = observe(results, rule.metric, analysis)
    refuse_dependent(observations, question)
    return observations


def rule_settings(rule: Rule) -> dict[str, Any]:
    """What a rule asks for, as a look records it."""
    return rule.model_dump(include={"min_lift", "at_least", "at_most", "verdict"}, exclude_none=True)


@dataclass(frozen=True, slots=True)
class _Part:
    """One condition of a rule: whether it holds (None: not enough evidence), and what the evidence is."""

    wanted: str
    holds: bool | None
    evidence: str


def check_rule(rule: Rule, rules: Rules, results: Results, baseline: str, candidate: str, question: Litmus) -> Check:
    """One rule on the two arms, which at least one run has logged the metric for."""
    parts = (("lift >=", rule.min_lift), ("candidate >=", rule.at_least), ("candidate <=", rule.at_most))
    wanted = " and ".join(
        [f"{text} {number(value)}" for text, value in parts if value is not None]
        + ([f"verdict {rule.verdict}"] if rule.verdict is not None else [])
    )

    def open_check(sentence: str) -> Check:
        return Check(rule.title, rule.metric, None, None, None, wanted, None, sentence, evidence=(sentence,))

    two = (baseline, candidate)
    silent = [
        row.name for row in results.rows if row.arm in two and row.status == "succeeded" and not row.has(rule.metric)
    ]
    if silent:
        return open_check(f"{rule.title}: {_count(len(silent), 'run')} without {rule.metric!r}, such as {silent[0]}")
    observations = rule_observations(rule, rules, results, question)
    for arm in two:
        if all(row.state == "missing" for row in observations.rows if row.arm == arm):
            return open_check(f"{rule.title}: {arm} has no finished run")
    a, b = (float(np.mean(draw_sample(observations, arm).values)) for arm in two)
    judged = _Judge(observations, baseline, candidate, question, rule)
    found = [
        *([judged.lift(rule.min_lift)] if rule.min_lift is not None else []),
        *([judged.alone(rule.at_least, "maximize")] if rule.at_least is not None else []),
        *([judged.alone(rule.at_most, "minimize")] if rule.at_most is not None else []),
    ]
    word: str | None = None
    if rule.verdict is not None:
        comparison = judged.comparison()
        word = comparison.verdict
        as_wanted = None if word == "undecided" else word == rule.verdict
        found.append(_Part(f"verdict {rule.verdict}", as_wanted, comparison.sentence.removesuffix(".")))
    holds = {part.holds for part in found}
    # Arms that cannot be told apart fail no rule either.
    passed = True if holds == {True} else False if False in holds and word != "undecided" else None
    missing = tuple(f"{rule.title}: {part.wanted}: {part.evidence}" for part in found if part.holds is None)
    how = {True: "holds", False: "does not hold", None: "is open"}[passed]
    verdict = f", verdict {word}" if word is not None else ""
    why = "; ".join(part.evidence for part in found if part.wanted != f"verdict {rule.verdict}")
    sentence = (
        f"{rule.title}: baseline {number(a)}, candidate {number(b)} ({number(b - a, sign=True)}{verdict}); {wanted} {how}"
        + (f" ({why})" if why else "")
    )
    return Check(rule.title, rule.metric, a, b, b - a, wanted, passed, sentence, word, missing)


@dataclass(frozen=True, slots=True)
class _Judge:
    """The conditions of one rule, each on the evidence that `compare` and `gate` would ask for."""

    observations: Observations
    baseline: str
    candidate: str
    question: Litmus
    rule: Rule

    @property
    def _asked(self) -> Compare:
        return Compare(
            control=self.baseline, arms=(self.candidate,), unpaired=self.question.unpaired, intersect=self.question.intersect
        )  # fmt: skip

    @property
    def _changes(self) -> int:
        return changed_analysis(self.observations, self._asked, "litmus", **rule_settings(self.rule)).number

    def comparison(self) -> Comparison:
        """The verdict of `compare` on the rule's metric, by the rule's own words."""
        return compare([self.observations], self._asked, changes=self._changes)[0]

    def lift(self, threshold: float) -> _Part:
        """Whether the candidate is better than the baseline by the threshold."""
        return self._one_sided(self.observations, self.baseline, threshold, f"lift >= {number(threshold)}", "lift")

    def alone(self, threshold: float, direction: Literal["maximize", "minimize"]) -> _Part:
        """Whether the candidate's own mean is on the good side: its runs against the threshold in the place of each."""
        sign = ">=" if direction == "maximize" else "<="
        wanted = f"candidate {sign} {number(threshold)}"
        rows = [row for row in self.observations.rows if row.arm == self.candidate]
        values = {row.value for row in rows if row.state == "scored"}
        if len(rows) >= LEAST_UNITS and len(values) == 1 and all(row.state == "scored" for row in rows):
            (value,) = values
            holds = value >= threshold if direction == "maximize" else value <= threshold
            return _Part(wanted, holds, f"every run gives {number(value)}")
        limit = [row._replace(arm="the threshold", state="scored", value=threshold, run_id="") for row in rows]
        analysis = self.observations.analysis.model_copy(update={"direction": direction, "summary": None})
        against = replace(self.observations, rows=[*limit, *rows], analysis=analysis)
        return self._one_sided(against, "the threshold", 0.0, wanted, "candidate", threshold)

    def _one_sided(
        self, observations: Observations, control: str, above: float, wanted: str, what: str, shift: float = 0.0
    ) -> _Part:
        """Whether candidate minus control, turned so that larger is better, lies above a point; None if nobody knows."""
        asked, analysis = self._asked, observations.analysis
        try:
            design = build_design(
                observations, control, self.candidate, unpaired=asked.unpaired, intersect=asked.intersect
            )
        except UsageError as error:
            return _Part(wanted, None, str(error))
        standing = looks.standing(
            observations, control, self.candidate, design, one_sided=True, changes=self._changes
        )  # fmt: skip
        level = standing.alpha / planned_family(self.observations, asked).arms
        test = comparison_test(
            standing.design, alpha=level, comparisons=1, guarded=True, strict=analysis.ties == "full"
        )
        if not observations.final or standing.reason or not isinstance(test, Test):
            reason = "not_final" if not observations.final else standing.reason or getattr(test, "reason", "")
            return _Part(wanted, None, REASONS.get(reason, reason.replace("_", " ")))
        tails = monotone_tails(test.evidence, above)
        interval = test.interval(1.0 - 2.0 * level, at=(above,))
        ends = (interval.low, interval.high) if design.sign > 0 or what == "lift" else (-interval.high, -interval.low)
        shown = Interval(ends[0] + shift, ends[1] + shift, interval.level, interval.low_open, interval.high_open)
        holds = True if tails.greater <= level else False if tails.less <= level else None
        return _Part(wanted, holds, f"{what} {format_ends(shown)}, one-sided alpha {number(level)}")


# -- the answer

EXITS: Mapping[Status, int] = {"CONFIRMED": 0, "FAILED": 1, "INCONCLUSIVE": NOT_ENOUGH_EVIDENCE}
COLOURS: Mapping[Status, str] = {"CONFIRMED": "green", "FAILED": "red", "INCONCLUSIVE": "yellow"}


@dataclass(frozen=True)
class LitmusAnswer(Answer):
    """The status, every check, and every piece of evidence that is missing, as sentences."""

    status: Status
    rules: Rules
    baseline: ArmEvidence
    candidate: ArmEvidence
    checks: Sequence[Check]
    evidence_failures: Sequence[str]
    notes: Sequence[str]
    judged: Mapping[str, dict[str, Any]]
    """How each metric was judged."""

    @property
    def title(self) -> str:
        return f"Litmus `{self.rules.name}`: {self.status}"

    @property
    def exit_code(self) -> int:
        return EXITS[self.status]

    def verdicts(self) -> dict[str, str]:
        return {self.candidate.name: self.status}

    def asked(self) -> dict[str, dict[str, Any]]:
        return dict(self.judged)

    def facts(self) -> dict[str, Any]:
        checks = [asdict(check) for check in self.checks]
        for check in checks:
            del check["evidence"]  # all of it is in `evidence_failures`
        arms: dict[str, Any] = {}
        for side, arm in (("baseline", self.baseline), ("candidate", self.candidate)):
            arms[side] = {
                "arm": arm.name, "run_count": len(arm.runs), "total_steps": arm.steps, "total_completions": arm.completions,
            }  # fmt: skip
            arms[f"{side}_runs"] = [asdict(run) for run in arm.runs]
        return {
            "version": __version__,
            "status": self.status,
            "source": self.source or None,
            "settings": self.all_settings,
            "rules": self.rules.model_dump(),
            "checks": checks,
            "evidence_ok": not self.evidence_failures,
            "evidence_failures": list(self.evidence_failures),
            "notes": list(self.notes),
            **arms,
        }

    def blocks(self) -> list[Block]:
        source = f", {self.source}" if self.source else ""
        blocks: list[Block] = [Text(f"{self.status}  {self.rules.name}{source}", True, COLOURS[self.status])]
        if self.rules.description:
            blocks.append(Text(self.rules.description))
        blocks += [Text(f"{self.baseline}; {self.candidate}"), self.records()]
        blocks += [Text(check.sentence) for check in self.checks]
        notes = (Notes("Missing evidence", self.evidence_failures), Notes("Notes", self.notes))
        blocks += [each for each in notes if each.lines]
        blocks.append(Text(f"alpha {number(self.rules.alpha)}; bakeoff {__version__}"))
        return blocks

    def records(self) -> Table:
        headers = ["rule", "baseline", "candidate", "change", "wanted", "holds"]
        rows = [
            [check.name, *(number(value) for value in (check.baseline, check.candidate, check.delta)), check.wanted, check.holds]
            for check in self.checks
        ]  # fmt: skip
        return Table(headers, rows, right=headers[1:4])


def answer(results: Results, question: Litmus) -> LitmusAnswer:
    """The rules of `question.rules` (default: the built-in profile) on the arms that it names, or on the only two."""
    rules: Rules = question.rules or built_in()
    baseline, candidate = _arms(results, question)
    refuse_sequential(results, "litmus")
    question = question.model_copy(update={"unpaired": question.unpaired or results.unpaired})
    rows = [row for row in results.rows if row.arm in (baseline, candidate)]
    arms = [
        arm_evidence(name, [row for row in rows if row.arm == name], rules.evidence.completions)
        for name in (baseline, candidate)
    ]
    notes = list(results.notes)
    failures = [] if results.final else ["planned runs are still open, so this is not final"]
    failures += missing_evidence(arms, rules.evidence, rows, notes)
    checks = []
    judged: dict[str, dict[str, Any]] = {}
    changes = []
    asked = Compare(control=baseline, arms=(candidate,), unpaired=question.unpaired, intersect=question.intersect)
    for rule in rules.rules:
        if any(row.has(rule.metric) for row in rows):
            checks.append(check_rule(rule, rules, results, baseline, candidate, question))
            observations = rule_observations(rule, rules, results, question)
            changes.append(changed_analysis(observations, asked, "litmus", **rule_settings(rule)))
            judged[rule.metric] = settings_of(observations, asked, **rule_settings(rule))
            notes += [line for line in caveats_of(rows, rule.metric).sentences(rule.metric) if line not in notes]
            continue
        sentence = f"{rule.title}: no run of either arm logs {rule.metric!r}"
        if rule.when_absent == "error":
            names = list(dict.fromkeys(name for row in rows for name in (*row.series, *row.metrics)))
            known = did_you_mean(rule.metric, names, f"they log {', '.join(names[:15]) or 'nothing'}")
            raise UsageError(
                f"{sentence}, and no number of runs would change that; {known} "
                "(when_absent = 'skip' judges the other rules without it)"
            )
        notes.append(f"{sentence}, so the rule was not judged")
    if not checks:
        raise UsageError(f"none of the rules can be judged: {'; '.join(notes)}")
    status: Status = "CONFIRMED"
    if failures or any(check.passed is None for check in checks):
        status = "INCONCLUSIVE"
    if not failures and any(check.passed is False for check in checks):
        status = "FAILED"
    every = [*failures, *(sentence for check in checks for sentence in check.evidence)]
    settings = {"rules": rules.name, "alpha": rules.alpha, "version": __version__}
    verdict = LitmusAnswer(results.label, settings, status, rules, arms[0], arms[1], checks, every, notes, judged)
    return verdict.remarked(changed=late_changes(changes, "rule"))


def _arms(results: Results, question: Litmus) -> tuple[str, str]:
    """The baseline (named, declared as control, or the first arm) and the candidate (named, or the only other arm)."""
    baseline = question.baseline or results.analysis.control or results.arms[0]
    others = [arm for arm in results.arms if arm != baseline]
    if question.candidate is None and len(others) != 1:
        raise UsageError(f"which arm is the candidate? --candidate takes one of {', '.join(others) or 'none'}")
    candidate = question.candidate or others[0]
    for name in (baseline, candidate):
        if name not in results.arms:
            raise UsageError(f"no arm called {name!r}; there are {', '.join(results.arms)}")
    if baseline == candidate:
        raise UsageError(f"{baseline!r} cannot be baseline and candidate at once")
    return baseline, candidate
