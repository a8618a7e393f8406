"""A litmus file: what has to hold between a candidate and its baseline, and how much evidence that takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from bakeoff.errors import Problem, SpecError
from bakeoff.spec.experiment import Section, Summary
from bakeoff.spec.load import parse, read_text
from bakeoff.spec.locate import find_line
from bakeoff.spec.problems import problems

Absent = Literal["error", "skip"]


class Evidence(Section):
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
    """What to do when no run at all has logged that: stop, or say so and go on without."""


class Rule(Section):
    """One thing that has to hold. Everything it names must hold."""

    metric: str
    name: str | None = None
    """What the rule is called; the metric when left out."""
    summary: Summary | None = None
    """How a series becomes a run's number; its mean when left out. Not for metrics that are one number a run."""
    direction: Literal["maximize", "minimize"] = "maximize"
    min_lift: float | None = None
    """The candidate's mean is better than the baseline's by at least this much."""
    at_least: float | None = None
    """The candidate's mean is at least this."""
    at_most: float | None = None
    """The candidate's mean is at most this."""
    verdict: Literal["better", "equivalent"] | None = None
    """The verdict of `compare` on this metric; a difference of means alone can be chance."""
    margin: Annotated[float, Field(gt=0)] | None = None
    """For `verdict = "equivalent"`: differences below this do not matter."""
    failure_score: float | None = None
    """What a run that failed counts."""
    when_absent: Absent = "error"
    """What to do when no run at all has logged the metric: stop, or say so and judge the other rules."""

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
    evidence: Evidence = Evidence()
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
    import tomllib

    return Rules.model_validate(tomllib.loads(PROFILE))


def load(path: Path) -> Rules:
    """Rules from a TOML, YAML or JSON file. Unknown keys and wrong values are told with their line and the fix."""
    text = read_text(path)
    tree = parse(text, path)
    try:
        return Rules.model_validate({"name": path.stem, **tree})
    except ValidationError as error:
        found = [_located(problem, text, path) for problem in problems(error, Rules, given=tree)]
        raise SpecError(found, path) from error


def _located(problem: Problem, text: str, path: Path) -> Problem:
    line = find_line(text, path.suffix.lower(), tuple(problem.key.split("."))) if problem.key else None
    return Problem(problem.key, problem.message, problem.fix, line)
