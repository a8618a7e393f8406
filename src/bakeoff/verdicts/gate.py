"""May this go out: each metric against the regression it may have and the improvement it must show.

A rule holds when the lower end of the one-sided 1 - alpha interval lies above what it allows; all rules must hold, so
none is corrected for the others. A rule is broken when a Holm-adjusted upper end lies below it. Between the two there
is not enough evidence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from bakeoff.errors import SpecError
from bakeoff.spec.experiment import Section, Summary
from bakeoff.spec.load import parse, read_text
from bakeoff.spec.locate import find_line
from bakeoff.spec.problems import problems
from bakeoff.stats.decision import Decision, Holm, holm
from bakeoff.stats.evidence import Interval, Test, monotone_tails
from bakeoff.verdicts import arrays, describe
from bakeoff.verdicts.compare import Options, build, choose_arms
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.units import Design

Outcome = Literal["pass", "fail", "undecided"]
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class Amount:
    """So much of the metric, in its own unit or as a share of the control's mean."""

    size: float
    relative: bool = False

    def __str__(self) -> str:
        return f"{100 * self.size:g} %" if self.relative else f"{self.size:g}"


def amount(value: Any) -> Amount:
    """A number in the metric's unit, or text such as `5%`."""
    if isinstance(value, Amount):
        return value
    if isinstance(value, str) and (share := _PERCENT.fullmatch(value)):
        return Amount(float(share[1]) / 100.0, relative=True)
    try:
        size = float(value)
    except (TypeError, ValueError):
        size = math.nan
    if isinstance(value, bool) or not (math.isfinite(size) and size >= 0.0):
        raise ValueError(f"{value!r} is no amount: write a number such as 0.02, or a share such as '5%'")
    return Amount(size)


def _improvement(value: Any) -> Amount | None:
    """`true` asks for any improvement, an amount for more than that."""
    if isinstance(value, bool) or value is None:
        return Amount(0.0) if value else None
    return amount(value)


class MetricRule(Section):
    """What one metric may and must do."""

    max_regression: Annotated[Amount | None, BeforeValidator(lambda v: None if v is None else amount(v))] = None
    """It may get worse by less than this: a number in its own unit, or a share of the control such as `"5%"`."""
    must_improve: Annotated[Amount | None, BeforeValidator(_improvement)] = None
    """`true`, or by how much at least."""
    direction: Literal["maximize", "minimize"] | None = None
    bounds: tuple[float, float] | None = None
    failure_score: float | None = None
    summary: Summary | None = None

    @model_validator(mode="after")
    def _says_something(self) -> MetricRule:
        if self.max_regression is None and self.must_improve is None:
            raise ValueError("give max_regression, must_improve or both")
        return self


class Policy(Section):
    """What has to hold before something goes out."""

    metrics: Annotated[dict[str, MetricRule], Field(min_length=1)]
    alpha: Annotated[float, Field(gt=0, lt=0.5)] | None = None
    control: str | None = None
    candidate: str | None = None
    """The arm that wants to go out; every arm but the control when left out."""
    tasks: Literal["sample", "fixed"] | None = None
    seeds: Literal["nested", "crossed"] | None = None


def read_policy(path: Path) -> Policy:
    """From TOML, YAML or JSON; errors name the file, the line, the key and the fix."""
    text = read_text(path)
    tree = parse(text, path)
    try:
        return policy(tree)
    except SpecError as error:
        suffix = path.suffix.lower()
        lines = [find_line(text, suffix, tuple(problem.key.split("."))) for problem in error.problems]
        found = [replace(problem, line=line) for problem, line in zip(error.problems, lines, strict=True)]
        raise SpecError(found, path) from error


def policy(tree: Mapping[str, Any]) -> Policy:
    """From nested tables, as a file or flags give them."""
    try:
        return Policy.model_validate(dict(tree))
    except ValidationError as error:
        raise SpecError(problems(error, Policy, given=dict(tree))) from error


@dataclass(frozen=True, slots=True)
class Check:
    """One rule for one arm. Numbers are turned so that larger is better."""

    metric: str
    control: str
    candidate: str
    rule: str
    outcome: Outcome
    reason: str
    effect: float | None
    """B - A, in the metric's own direction."""
    holds_above: float
    """What the lower end has to lie above: of B - A, or of B minus the share of A that is allowed."""
    interval: Interval | None
    """Its lower end is the one-sided 1 - alpha one, its upper end the Holm-adjusted one."""
    p_holds: float | None
    p_broken: float | None
    """Holm-adjusted."""
    population: str
    method: str


@dataclass(frozen=True, slots=True)
class _Asked:
    seen: Observations
    candidate: str
    design: Design
    rule: str
    test: Test | Decision
    above: float


def check(
    observed: Sequence[Observations], policy: Policy, options: Options | None = None, alpha: float | None = None
) -> list[Check]:
    """Every rule of the policy for every candidate, on metrics observed in the policy's order."""
    options = options or Options()
    level = alpha or policy.alpha or observed[0].analysis.alpha
    control, candidates = choose_arms(observed[0], options)
    rules = [
        (seen, candidate, *rule)
        for seen in observed
        for rule in _rules(policy.metrics[seen.metric])
        for candidate in candidates
    ]
    asked = [_ask(seen, control, arm, text, size, options, level, len(rules)) for seen, arm, text, size in rules]
    broken = holm([_broken(one) for one in asked], level)
    return [_check(one, control, level, broken, i) for i, one in enumerate(asked)]


def _rules(rule: MetricRule) -> list[tuple[str, Amount]]:
    """(what it says, how far below 0 the effect may lie): an improvement that is asked for lies above 0."""
    found = []
    if rule.max_regression is not None:
        allowed = rule.max_regression
        found.append((f"may not regress by {allowed}", Amount(allowed.size, allowed.relative)))
    if rule.must_improve is not None:
        wanted = rule.must_improve
        text = f"must improve by more than {wanted}" if wanted.size else "must improve"
        found.append((text, Amount(-wanted.size, wanted.relative)))
    return found


def _ask(
    seen: Observations, control: str, candidate: str, rule: str, allowed: Amount, options: Options, alpha: float, m: int
) -> _Asked:
    design = build(seen, control, candidate, options)
    if allowed.relative:
        # Turned values of a metric to be minimised are negative, and a share of |A| is taken either way.
        return _Asked(
            seen, candidate, design, rule, arrays.test_share(design, -allowed.size, alpha=alpha, comparisons=m), 0.0
        )
    test = arrays.test(design, alpha=alpha, comparisons=m, margin=None, relative=None)
    return _Asked(seen, candidate, design, rule, test, 0.0 - allowed.size)


def _broken(one: _Asked) -> float:
    """p of 'not worse than the rule allows'."""
    return monotone_tails(one.test.evidence, one.above).less if isinstance(one.test, Test) and one.seen.final else 1.0


def _check(one: _Asked, control: str, alpha: float, broken: Holm, place: int) -> Check:
    effect = describe.describe(one.design).effect
    test = one.test
    if isinstance(test, Decision) or not one.seen.final:
        why = test.reason if isinstance(test, Decision) and one.seen.final else "not_final"
        return Check(
            one.seen.metric, control, one.candidate, one.rule, "undecided", why.replace("_", " "), effect, one.above,
            None, None, None, one.design.population, "",
        )  # fmt: skip
    holds = monotone_tails(test.evidence, one.above).greater
    outcome: Outcome = "pass" if holds <= alpha else "fail" if broken.rejected[place] else "undecided"
    low = test.interval(1.0 - 2.0 * alpha, at=(one.above,))
    high = test.interval(1.0 - 2.0 * broken.levels[place], at=(one.above,))
    interval = Interval(low.low, max(low.low, high.high), low.level, low.low_open, high.high_open)
    reason = "" if outcome != "undecided" else "not enough evidence"
    return Check(
        one.seen.metric, control, one.candidate, one.rule, outcome, reason, effect, one.above, interval, holds,
        broken.adjusted[place], one.design.population, test.evidence.method,
    )  # fmt: skip


def outcome(checks: Sequence[Check]) -> Outcome:
    """Fails when one rule is broken, passes when all hold."""
    found = {one.outcome for one in checks}
    return "fail" if "fail" in found else "pass" if found == {"pass"} else "undecided"
