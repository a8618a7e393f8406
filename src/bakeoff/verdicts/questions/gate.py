"""May this be released: each metric against the regression it may have and the improvement it must show.

A rule holds when the lower end of the one-sided 1 - alpha interval lies above what it allows; all rules must hold, so
none is corrected for the others. A rule is broken when a Holm-adjusted upper end lies below it. Between the two there
is not enough evidence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from bakeoff.errors import SpecError
from bakeoff.results.table import Results
from bakeoff.spec.experiment import Section, Summary
from bakeoff.spec.problems import problems
from bakeoff.stats.decision import GUARDED_UNITS, holm
from bakeoff.stats.evidence import Interval, Test, monotone_tails
from bakeoff.text import NOTHING, number, percent, printable
from bakeoff.verdicts.answer import (
    NOT_ENOUGH_EVIDENCE,
    Answer,
    Block,
    Table,
    Text,
    observe_metric,
    refuse_sequential,
)
from bakeoff.verdicts.comparison import SEED
from bakeoff.verdicts.describe import means_of
from bakeoff.verdicts.designs import build_design
from bakeoff.verdicts.designs.testing import comparison_test
from bakeoff.verdicts.family import changed_analysis, choose_arms, late_changes, planned_family, settings_of
from bakeoff.verdicts.observations import Caveats, Observations
from bakeoff.verdicts.question import Calibrate, Gate, Question
from bakeoff.verdicts.sequential import looks
from bakeoff.version import __version__

Outcome = Literal["pass", "fail", "undecided"]
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


Asked = TypeVar("Asked", bound=Question)


@dataclass(frozen=True, slots=True)
class Amount:
    """So much of the metric, in its own unit or as a share of the control's mean."""

    size: float
    relative: bool = False

    def __str__(self) -> str:
        return percent(self.size) if self.relative else number(self.size)


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
        raise ValueError(f"{value!r} is not an amount: write a number such as 0.02, or a share such as '5%'")
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
    """What has to hold before something is released."""

    metrics: Annotated[dict[str, MetricRule], Field(min_length=1)]
    alpha: Annotated[float, Field(gt=0, lt=0.5)] | None = None
    control: str | None = None
    candidate: str | None = None
    """The arm to be released (default: every arm but the control)."""
    tasks: Literal["sample", "fixed"] | None = None
    seeds: Literal["nested", "crossed"] | None = None


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
    population: str
    level: float
    """The one-sided level: alpha, lowered for earlier looks, and for arms that were planned and not asked for."""
    interval: Interval | None = None
    """Its lower end is the one-sided 1 - alpha one, its upper end the Holm-adjusted one."""
    p_holds: float | None = None
    p_broken: float | None = None
    """Holm-adjusted."""
    method: str = ""
    assumes: str = ""
    """The condition under which a rule at its limit passes with at most about alpha."""
    widened: bool = False
    """The interval is wider than its level asks for, because so few units cannot show skew (`decision.wider_for_skew`)."""

    def needed(self) -> str:
        """What the interval had to show, and what it showed."""
        if self.interval is None:
            return NOTHING
        low, high = number(self.interval.low, sign=True), number(self.interval.high, sign=True)
        found = f"{high} at best" if self.outcome == "fail" else f"{low} at worst"
        wanted = "allowed" if self.holds_above < 0 else "needed"
        return f"at least {number(self.holds_above, sign=True)} {wanted}, {found}"

    @property
    def outcome_in_words(self) -> str:
        word = OUTCOMES[self.outcome]
        return f"{word} ({self.reason})" if self.reason and self.reason != word else word


def check(
    observed: Sequence[Observations], policy: Policy, question: Question | None = None, alpha: float | None = None
) -> list[Check]:
    """Every rule of the policy for every candidate, on metrics observed in the policy's order."""
    question = question if question is not None else Question()
    asked = alpha or policy.alpha or observed[0].analysis.alpha
    control, candidates = choose_arms(observed[0], question)
    family = planned_family(observed[0], question)
    # Every arm must hold, so none is corrected for the others; one that is picked out of several may be the luckiest.
    picked = family.arms if family.arms > len(candidates) else 1
    rules: list[tuple[Observations, str, str, Amount]] = []
    for observations in observed:
        rule = policy.metrics[observations.metric]
        amounts = []
        if rule.max_regression is not None:
            amounts.append((f"may not regress by {rule.max_regression}", rule.max_regression))
        if rule.must_improve is not None:
            wanted = rule.must_improve
            text = f"must improve by more than {wanted}" if wanted.size else "must improve"
            # An improvement that is asked for is a regression of less than nothing.
            amounts.append((text, Amount(-wanted.size, wanted.relative)))
        rules += [(observations, arm, text, amount) for text, amount in amounts for arm in candidates]
    checks: list[Check] = []
    tests: list[Test | None] = []
    shares: list[float] = []
    outcomes_of_0_and_1: list[bool] = []
    for observations, arm, text, allowed in rules:
        design = build_design(observations, control, arm, unpaired=question.unpaired, intersect=question.intersect)
        # Turned values of a metric to be minimised are negative, and a share of |A| is taken either way.
        share = -allowed.size if allowed.relative else None
        rule = policy.metrics[observations.metric]
        change = changed_analysis(observations, question, "gate", **_amounts(rule))
        standing = looks.standing(observations, control, arm, design, one_sided=True, changes=change.number)
        shares.append(standing.share)
        outcomes_of_0_and_1.append(design.binary and share is None)
        level, design = asked / (standing.share * picked), standing.design
        strict = observations.analysis.ties == "full"
        test = comparison_test(design, alpha=level, comparisons=len(rules), share=share, guarded=True, strict=strict)
        reason = "" if isinstance(test, Test) else test.reason.replace("_", " ")
        reason = standing.reason.replace("_", " ") or reason if observations.final else "not final"
        above = 0.0 if allowed.relative else 0.0 - allowed.size
        effect = means_of(design).effect
        checks.append(
            Check(observations.metric, control, arm, text, "undecided", reason, effect, above, design.population, level)
        )
        tests.append(test if isinstance(test, Test) and observations.final and not standing.reason else None)
    # p of "not worse than the rule allows"; what could not be tested counts in the family.
    p_broken = [
        1.0 if test is None else min(1.0, share * monotone_tails(test.evidence, check.holds_above).less)
        for test, check, share in zip(tests, checks, shares, strict=True)
    ]
    unasked = (family.arms - len(candidates)) * len(rules) // len(candidates) if picked > 1 else 0
    broken = holm([*p_broken, *[1.0] * unasked], asked)
    for place, valid in enumerate(tests):
        if valid is None:
            continue
        above, level = checks[place].holds_above, checks[place].level
        p_holds = monotone_tails(valid.evidence, above).greater
        outcome: Outcome = "pass" if p_holds <= level else "fail" if broken.rejected[place] else "undecided"
        low = valid.interval(1.0 - 2.0 * level, at=(above,))
        high = valid.interval(1.0 - 2.0 * broken.levels[place] / shares[place], at=(above,))
        checks[place] = replace(
            checks[place],
            outcome=outcome,
            reason="not enough evidence" if outcome == "undecided" else "",
            interval=Interval(low.low, max(low.low, high.high), low.level, low.low_open, high.high_open),
            p_holds=p_holds,
            p_broken=broken.adjusted[place],
            method=valid.evidence.method,
            assumes=valid.evidence.assumes,
            widened=valid.evidence.n < GUARDED_UNITS and not outcomes_of_0_and_1[place],
        )
    return checks


def _amounts(rule: MetricRule) -> dict[str, str | None]:
    """What a rule asks for, as a look records it."""
    amounts = {"max_regression": rule.max_regression, "must_improve": rule.must_improve}
    return {name: None if amount is None else str(amount) for name, amount in amounts.items()}


def overall(checks: Sequence[Check]) -> Outcome:
    """Fails when one rule is broken, passes when all hold."""
    outcomes = {check.outcome for check in checks}
    return "fail" if "fail" in outcomes else "pass" if outcomes == {"pass"} else "undecided"


# -- the answer

CODES = {"pass": 0, "fail": 1, "undecided": NOT_ENOUGH_EVIDENCE}
OUTCOMES = {"pass": "holds", "fail": "broken", "undecided": "not enough evidence"}
"""What a rule does."""
TITLES = {"pass": "passed", "fail": "failed", "undecided": "not enough evidence"}
_WHOLE = (
    "Only the whole gate counts: it passes wrongly with at most alpha {alpha:g}. Single lines are not corrected for one "
    "another, so one of several that passes may do so by chance; to release one arm, name it before you look."
)


@dataclass(frozen=True, slots=True)
class ArmChoice:
    """The remark that not every planned comparison of arms was asked for."""

    planned: int
    asked: int

    @property
    def sentence(self) -> str:
        return (
            f"{self.asked} of {self.planned} planned comparisons of arms {'was' if self.asked == 1 else 'were'} asked for, so "
            f"each rule is tested at alpha / {self.planned}; analysis.candidates in the experiment file declares fewer before "
            "the first result."
        )

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"planned": self.planned, "asked": self.asked}


@dataclass(frozen=True)
class GateAnswer(Answer):
    """Whether every rule of a policy holds."""

    checks: Sequence[Check]
    settings_by_metric: Mapping[str, dict[str, Any]]
    """How each metric was judged."""
    caveats: Mapping[str, Caveats] = field(default_factory=dict)
    """By metric, who wrote its values, and how much of them is estimated."""
    notes: Sequence[str] = ()
    """Of the source."""

    @property
    def title(self) -> str:
        return f"Gate: {TITLES[overall(self.checks)]}"

    @property
    def exit_code(self) -> int:
        return CODES[overall(self.checks)]

    def verdicts(self) -> dict[str, str]:
        return {f"{check.candidate} on {check.metric}, {check.rule}": check.outcome for check in self.checks}

    def asked(self) -> dict[str, dict[str, Any]]:
        return dict(self.settings_by_metric)

    def facts(self) -> dict[str, Any]:
        checks = []
        for check in self.checks:
            facts = asdict(check)
            ends = facts.pop("interval") or {"low": None, "high": None}
            checks.append({**facts, "lower": ends["low"], "upper": ends["high"]})
        return {
            "outcome": overall(self.checks), "only_the_whole_counts": len(self.checks) > 1, "source": self.source, "settings": self.all_settings, "checks": checks,
            "self_reported": {metric: list(each.self_reported) for metric, each in self.caveats.items()},
            "estimated": {metric: dict(each.estimated) for metric, each in self.caveats.items()},
            "notes": list(self.notes),
        }  # fmt: skip

    def blocks(self) -> list[Block]:
        headers = ["metric", "arm", "rule", "effect", "allowed and found", "outcome"]
        rows = [
            [check.metric, check.candidate, check.rule, number(check.effect, sign=True),
             check.needed(), check.outcome_in_words]
            for check in self.checks
        ]  # fmt: skip
        about = "; ".join(dict.fromkeys(f"{check.metric}: {check.population}" for check in self.checks))
        settings = ", ".join(
            f"{key} {value}" for key, value in self.settings.items() if key not in ("columns", "reading")
        )
        few = [check for check in self.checks if check.widened]
        names = ", ".join(dict.fromkeys(check.metric for check in few))
        return [
            Table(headers, rows),
            *(Text(f"Note: {note}.") for note in self.notes),
            *(Text(f"Note: {line}.") for metric, each in self.caveats.items() for line in each.sentences(metric)),
            *([Text(_WHOLE.format(alpha=self.settings["alpha"]))] if len(self.checks) > 1 else []),
            *(
                [
                    Text(
                        f"Fewer than {GUARDED_UNITS} units ({names}) cannot show skew: their intervals are widened for it."
                    )
                ]
                if few
                else []
            ),
            Text(
                f"Against {self.checks[0].control}, {about}. Intervals are turned so that larger is better; those of a "
                "share are of B minus that share of A."
            ),
            Text(f"{self.source}; {settings}"),
        ]


def observe_rules(results: Results, question: Gate | Calibrate) -> list[Observations]:
    """The metrics of `question.policy`, in its order, each judged as its rule, the question, the policy and the results say."""
    policy: Policy = question.policy
    observed = []
    for name, rule in policy.metrics.items():
        declared = results.analysis.about(name)
        design = policy.model_dump(include={"tasks", "seeds"}, exclude_none=True)
        own = rule.model_dump(include={"direction", "bounds", "failure_score"}, exclude_none=True)
        if name in question.directions:
            own.pop("direction", None)  # said for this metric alone, by whoever asks
        if rule.summary is not None:
            own["summary"] = rule.summary
        judged = question.analysis(declared.model_copy(update=design), name).model_copy(update=own)
        observed.append(observe_metric(results, name, Question(), judged))
    return observed


def with_arms(question: Asked, policy: Policy) -> Asked:
    """The question with the arms that the policy names, where it names none itself."""
    arms = question.arms or ((policy.candidate,) if policy.candidate else ())
    return question.model_copy(update={"control": question.control or policy.control, "arms": arms})


def answer(results: Results, question: Gate) -> GateAnswer:
    """Every rule of `question.policy`. A rule's own words about its metric go before the question's, and those before
    the policy's and the results'."""
    policy: Policy = question.policy
    refuse_sequential(results, "gate")
    observed = observe_rules(results, question)
    asked = with_arms(question, policy).model_copy(update={"unpaired": question.unpaired or results.unpaired})
    alpha = (question.alpha if "alpha" in question.model_fields_set else None) or policy.alpha or results.analysis.alpha
    settings: dict[str, Any] = {
        "policy": question.policy_name, "alpha": alpha, "seeds": observed[0].analysis.seeds, "seed": SEED,
        "version": __version__,
    }  # fmt: skip
    amounts = {each.metric: _amounts(policy.metrics[each.metric]) for each in observed}
    changes = [changed_analysis(each, asked, "gate", **amounts[each.metric]) for each in observed]
    by_metric = {each.metric: settings_of(each, asked, **amounts[each.metric]) for each in observed}
    checks = check(observed, policy, asked, alpha)
    family = planned_family(observed[0], asked)
    picked = len({each.candidate for each in checks})
    caveats = {each.metric: each.caveats for each in observed}
    return GateAnswer(results.label, settings, checks, by_metric, caveats, results.notes).remarked(
        changed=late_changes(changes, "rule"),
        choice=ArmChoice(family.arms, picked) if family.arms > picked else None,
    )


def as_junit(answer: GateAnswer) -> str:
    """JUnit XML: a broken rule is a failure; a lack of evidence is an error, because it must not be taken for a pass."""
    from xml.etree import ElementTree

    failed, unclear = (sum(check.outcome == word for check in answer.checks) for word in ("fail", "undecided"))
    counts = {"tests": str(len(answer.checks)), "failures": str(failed), "errors": str(unclear)}
    suites = ElementTree.Element("testsuites", {"name": "bakeoff gate", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "gate", **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in answer.all_settings.items():
        ElementTree.SubElement(properties, "property", name=name, value=printable(str(value)))
    for check in answer.checks:
        name = printable(f"{check.candidate}: {check.metric} {check.rule}")
        case = ElementTree.SubElement(suite, "testcase", classname=f"gate.{check.metric}", name=name)
        reason = f" ({check.reason})" if check.reason and check.reason != OUTCOMES[check.outcome] else ""
        message = printable(f"effect {number(check.effect, sign=True)}; {check.needed()}; {check.population}{reason}")
        if check.outcome == "fail":
            ElementTree.SubElement(case, "failure", message=message, type="regression")
        elif check.outcome == "undecided":
            ElementTree.SubElement(case, "error", message=message, type="not enough evidence")
        else:
            ElementTree.SubElement(case, "system-out").text = message
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"
