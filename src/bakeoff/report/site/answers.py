"""Verdicts of every arm against the control, and what each ablation changes; or, in words, why there are none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from bakeoff.errors import BakeoffError
from bakeoff.report.site.contents import Contents
from bakeoff.stats.evidence import Interval
from bakeoff.verdicts import sequential
from bakeoff.verdicts.answer import answer as ask
from bakeoff.verdicts.compare import Comparison, Exploratory, explore
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.sequential import SequentialComparison, SequentialReport


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
    """The answer of `bakeoff compare` to the declared question; or why there is none."""
    try:
        verdict = ask(contents.results, Compare())
    except BakeoffError as error:
        return Answers(contents.control, problem=str(error))
    registration = verdict.registration
    lines = [] if registration is None else [registration.sentence, *registration.deviations]
    if verdict.sequential is not None:
        followed = verdict.sequential.comparisons
        return Answers(
            followed[0].control, [_followed_line(each) for each in followed], (), lines, sequential=verdict.sequential
        )
    comparisons = verdict.comparisons
    return Answers(
        comparisons[0].control,
        [_line(each) for each in sorted(comparisons, key=lambda each: each.candidate in contents.base_of)],
        _warnings(comparisons),
        lines,
        seen=verdict.observations,
        comparisons=comparisons,
    )


def _warnings(found: Sequence[Comparison]) -> list[str]:
    """The first of those that differ in their numbers alone, with the arms that they are about unless it is all."""
    kinds: dict[str, tuple[str, list[str]]] = {}
    for one in found:
        for warning in one.warnings:
            kinds.setdefault(re.sub(r"\d", "0", warning), (warning, []))[1].append(one.candidate)
    return [text if len(arms) == len(found) else f"{', '.join(arms)}: {text}" for text, arms in kinds.values()]


def _line(one: Comparison) -> VerdictLine:
    return VerdictLine(
        one.metric, one.candidate, one.verdict, one.sentence, one.control_mean, one.candidate_mean, one.effect,
        one.deciding_interval, one.p_adjusted, one.units, one.failed, one.missing, one.chosen,
        one.population, one.other, one.lift, one.improvement, one.mde,
    )  # fmt: skip


def _followed_line(one: SequentialComparison) -> VerdictLine:
    return VerdictLine(
        one.metric, one.candidate, one.verdict, one.sentence, None, None, one.effect, one.interval, one.p_adjusted,
        one.pairs, one.failed, one.lost, f"{one.test}; assumes that {one.assumes}", one.population,
    )  # fmt: skip


def ablations(contents: Contents) -> list[Ablations]:
    """For each metric that pictures show, every ablation against its base; adjusted over all of them, no verdict."""
    if not contents.base_of or sequential.applies(contents.edition):
        return []
    tables = []
    for metric in contents.main:
        try:
            observations = contents.observe(metric)
        except BakeoffError:
            continue
        arms = list(contents.base_of)
        lines = explore([(observations, contents.base_of[arm][0], arm) for arm in arms])
        deltas = [_delta(observations, contents, arm, line) for arm, line in zip(arms, lines, strict=True)]
        tables.append(Ablations(metric, deltas))
    return tables


def _delta(observations: Observations, contents: Contents, arm: str, line: Exploratory) -> Delta:
    base, ablation = contents.base_of[arm]
    values: dict[str, dict[tuple[str, int | None, int], float | None]] = {base: {}, arm: {}}
    for row in observations.rows:
        if row.arm in values:
            values[row.arm][row.task, row.seed, row.rollout] = row.value if row.state == "scored" else None
    known = [value for value in values[base].values() if value is not None]
    mean = sum(known) / len(known) if known else None
    return Delta(ablation, base, line, mean, bool(known) and values[base] == values[arm])
