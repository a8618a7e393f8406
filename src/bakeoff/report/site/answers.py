"""Verdicts of every arm against the control, and what each ablation changes; or, in words, why there are none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bakeoff.errors import BakeoffError, UsageError
from bakeoff.report.site.contents import Contents
from bakeoff.stats.decision import benjamini_hochberg, decide
from bakeoff.stats.evidence import Interval
from bakeoff.verdicts import describe, prereg, sequential
from bakeoff.verdicts.compare import Comparison, Options, ask, compare
from bakeoff.verdicts.explore import Exploratory
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.sequential import SequentialComparison, SequentialReport
from bakeoff.verdicts.wording import own


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One arm against the control on one metric, as the table has it."""

    metric: str
    candidate: str
    verdict: str
    sentence: str
    control_mean: float | None
    mean: float | None
    effect: float | None
    interval: Interval | None
    p: float | None
    units: int
    failed: int
    missing: int
    test: str
    population: str
    other: str = ""
    lift: float | None = None
    improvement: float | None = None
    mde: float | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """`problem` says why there is no verdict."""

    control: str
    lines: Sequence[VerdictLine] = ()
    warnings: Sequence[str] = ()
    registration: Sequence[str] = ()
    problem: str = ""
    seen: Sequence[Observations] = ()
    comparisons: Sequence[Comparison] = ()
    sequential: SequentialReport | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """An ablation against its base arm on one metric; `same` when it changes nothing on any run."""

    ablation: str
    base: str
    found: Exploratory
    base_mean: float | None = None
    same: bool = False

    @property
    def share(self) -> float | None:
        """The effect as a share of the base arm's mean."""
        return self.found.effect / abs(self.base_mean) if self.found.effect is not None and self.base_mean else None


@dataclass(frozen=True, slots=True)
class Ablations:
    metric: str
    deltas: Sequence[Delta] = field(default_factory=tuple)


def answer(contents: Contents) -> Answers:
    """Through the same doors as `bakeoff compare`."""
    try:
        if sequential.applies(contents.edition):
            return _followed(contents)
        return _compared(contents)
    except BakeoffError as error:
        return Answers(contents.control, problem=str(error))


def _compared(contents: Contents) -> Answers:
    seen = [contents.observe(name) for name in contents.declared] or [contents.observe(_only_metric(contents))]
    options = Options()
    found = compare(seen, options)
    return Answers(
        found[0].control,
        [_line(one) for one in sorted(found, key=lambda one: one.candidate in contents.base_of)],
        _warnings(found),
        _registration(contents, options, [one.metric for one in seen]),
        seen=seen,
        comparisons=found,
    )


def _warnings(found: Sequence[Comparison]) -> list[str]:
    """The first of those that differ in their numbers alone, with the arms that they are about unless it is all."""
    kinds: dict[str, tuple[str, list[str]]] = {}
    for one in found:
        for warning in one.warnings:
            kinds.setdefault(re.sub(r"\d", "0", warning), (warning, []))[1].append(one.candidate)
    return [text if len(arms) == len(found) else f"{', '.join(arms)}: {text}" for text, arms in kinds.values()]


def _only_metric(contents: Contents) -> str:
    if len(contents.metrics) == 1:
        return contents.metrics[0]
    known = f"runs report {', '.join(contents.metrics[:20])}" if contents.metrics else "no run reports any metric"
    raise UsageError(f"the experiment declares no metric to be judged by (analysis.metric); {known}")


def _registration(contents: Contents, options: Options, metrics: Sequence[str]) -> list[str]:
    check = prereg.check(contents.edition, contents.analysis, options, metrics)
    return [] if check is None else [check.sentence, *check.deviations]


def _line(one: Comparison) -> VerdictLine:
    return VerdictLine(
        one.metric, one.candidate, one.verdict, one.sentence, one.control_mean, one.candidate_mean, one.effect,
        one.deciding_interval, one.p_adjusted, one.units, one.failed, one.missing, one.chosen,
        one.population, one.other, one.lift, one.improvement, one.mde,
    )  # fmt: skip


def _followed(contents: Contents) -> Answers:
    found = sequential.report(contents.edition)
    lines = [_followed_line(one) for one in found.comparisons]
    return Answers(
        found.comparisons[0].control, lines, (), _registration(contents, Options(), contents.declared), sequential=found
    )


def _followed_line(one: SequentialComparison) -> VerdictLine:
    return VerdictLine(
        one.metric, one.candidate, one.verdict, one.sentence, None, None, one.effect, one.interval, one.p_adjusted,
        one.pairs, one.failed, one.lost, f"{one.test}; assumes that {one.assumes}", one.population,
    )  # fmt: skip


def ablations(contents: Contents) -> list[Ablations]:
    """For each metric that pictures show, every ablation against its base; adjusted over all of them, no verdict."""
    if not contents.base_of or sequential.applies(contents.edition):
        return []
    found = []
    for metric in contents.main:
        try:
            seen = contents.observe(metric)
        except BakeoffError:
            continue
        found.append(Ablations(metric, _adjusted([_delta(seen, contents, arm) for arm in contents.base_of])))
    return found


def _delta(seen: Observations, contents: Contents, arm: str) -> Delta:
    base, ablation = contents.base_of[arm]
    found = _explored(seen, base, arm)
    values = {name: _values(seen, name) for name in (base, arm)}
    known = [value for value in values[base].values() if value is not None]
    mean = sum(known) / len(known) if known else None
    return Delta(ablation, base, found, mean, bool(known) and values[base] == values[arm])


def _explored(seen: Observations, base: str, arm: str) -> Exploratory:
    """What is declared about failures and missing runs holds here too; what cannot be compared says why."""
    try:
        question = ask(seen, base, arm, Options(), 1)
    except UsageError as error:
        return Exploratory(seen.metric, base, arm, note=str(error))
    effect = describe.describe(question.design).effect
    if not seen.final:
        return Exploratory(seen.metric, base, arm, effect, note="not final")
    (decision,) = decide([question.test], seen.analysis.alpha)
    reason = decision.reason.replace("_", " ") if decision.p is None else ""
    return Exploratory(seen.metric, base, arm, effect, own(decision.interval, seen), decision.p, note=reason)


def _values(seen: Observations, arm: str) -> dict[tuple[str, int | None, int], float | None]:
    return {
        (row.task, row.seed, row.rollout): row.value if row.state == "scored" else None
        for row in seen.rows
        if row.arm == arm
    }


def _adjusted(deltas: list[Delta]) -> list[Delta]:
    known = [delta.found.p for delta in deltas if delta.found.p is not None]
    adjusted = iter(benjamini_hochberg(known) if known else ())
    return [
        delta if delta.found.p is None else replace(delta, found=replace(delta.found, p_adjusted=next(adjusted)))
        for delta in deltas
    ]
