"""Our own editions: one with all its arms, or arms of several put side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.observations import Observations, from_edition, metric_names


@dataclass(frozen=True)
class OneEdition:
    """Every arm of one edition."""

    edition: Edition
    unpaired: bool = False

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return self.edition.facts()

    @property
    def label(self) -> str:
        return f"{self._facts['experiment']}/{self._facts['edition']}"

    @cached_property
    def analysis(self) -> Analysis:
        return Analysis.model_validate(self._facts["spec"]["analysis"])

    def close(self) -> None:
        self.edition.close()

    def metrics(self) -> list[str]:
        return metric_names(self.edition)

    def declared(self) -> list[str]:
        if self.analysis.metric is not None:
            return list(dict.fromkeys([self.analysis.metric, *self.analysis.primary]))
        known = self.metrics()
        if len(known) == 1:
            return known
        told = f"runs report {', '.join(known[:20])}" if known else "no run reports any metric"
        raise UsageError(f"{self.label}: which metric? name it with --metric or analysis.metric; {told}")

    def observe(self, metric: str, analysis: Analysis) -> Observations:
        return from_edition(self.edition, metric, analysis)


@dataclass(frozen=True)
class Across:
    """One arm each of several editions, under one roof. Tasks of one name must be the same tasks."""

    parts: Sequence[tuple[OneEdition, str]]
    unpaired: bool = False

    @property
    def label(self) -> str:
        return " against ".join(f"{part.label}:{arm}" for part, arm in self.parts)

    @property
    def analysis(self) -> Analysis:
        """The first one's; what decides must not differ in the others."""
        first = self.parts[0][0].analysis
        for part, _ in self.parts[1:]:
            other = part.analysis
            if (other.direction, other.bounds, other.failure_score) != (
                first.direction,
                first.bounds,
                first.failure_score,
            ):
                raise UsageError(
                    f"{self.parts[0][0].label} and {part.label} declare another direction, range or failure score; "
                    "make the two files agree"
                )
        return first.model_copy(update={"control": None})

    def close(self) -> None:
        for part in {id(part): part for part, _ in self.parts}.values():
            part.close()

    def metrics(self) -> list[str]:
        shared = self.parts[0][0].metrics()
        return [name for name in shared if all(name in part.metrics() for part, _ in self.parts[1:])]

    def declared(self) -> list[str]:
        return self.parts[0][0].declared()

    def observe(self, metric: str, analysis: Analysis) -> Observations:
        seen = [part.observe(metric, analysis) for part, _ in self.parts]
        names = self.arms()
        for one, (part, arm) in zip(seen, self.parts, strict=True):
            if arm not in one.arms:
                raise UsageError(f"{part.label} has no arm called {arm!r}; there are {', '.join(one.arms)}")
            _same_tasks(seen[0], one)
        rows = [
            row._replace(arm=name)
            for one, (_, arm), name in zip(seen, self.parts, names, strict=True)
            for row in one.rows
            if row.arm == arm
        ]
        return replace(
            seen[0],
            rows=rows,
            source=self.label,
            final=all(one.final for one in seen),
            fixed_tasks=any(one.fixed_tasks for one in seen),
        )

    def arms(self) -> list[str]:
        """The arms' own names, with the edition in front where two are called the same."""
        plain = [arm for _, arm in self.parts]
        return [arm if plain.count(arm) == 1 else f"{part.label}:{arm}" for part, arm in self.parts]


def _same_tasks(a: Observations, b: Observations) -> None:
    for task in set(a.tasks) & set(b.tasks):
        if a.digests.get(task) != b.digests.get(task):
            raise UsageError(
                f"task {task!r} is not the same in {a.source} and {b.source}: its content differs, so a difference "
                "between the arms would say nothing; run both on the same task"
            )


def open_edition(name: str, root: Path) -> OneEdition:
    """Any name that `find_edition` understands."""
    return OneEdition(Edition.open(find_edition(name, root)))


def open_arms(names: Sequence[str], root: Path) -> OneEdition | Across:
    """`A`, or `A:arm B:arm ...`: the first is the control."""
    if len(names) == 1 and ":" not in names[0]:
        return open_edition(names[0], root)
    opened: dict[str, OneEdition] = {}
    parts = []
    for name in names:
        edition, colon, arm = name.partition(":")
        if not colon or not arm:
            raise UsageError(f"{name}: say which arm of it, as in {edition}:ARM")
        if edition not in opened:
            opened[edition] = open_edition(edition, root)
        parts.append((opened[edition], arm))
    if len(parts) < 2:
        raise UsageError(f"{names[0]} is one arm; name another one beside it")
    if len(set(names)) < len(names):
        raise UsageError(f"an arm is named twice: {' '.join(names)}")
    return Across(parts)
