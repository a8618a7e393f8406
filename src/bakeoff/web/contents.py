"""An edition read once: what every part of the report looks at, and what its front page says about it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bakeoff.errors import BakeoffError
from bakeoff.records.edition import Edition
from bakeoff.records.run import FAILED, CellRecord, RunRecord, Tally, by_arm
from bakeoff.results.editions import edition_results
from bakeoff.results.table import Results
from bakeoff.spec.experiment import Analysis, Experiment
from bakeoff.text import duration, figure, one_line, utc
from bakeoff.verdicts.answer import answer
from bakeoff.verdicts.compare_answer import CompareAnswer
from bakeoff.verdicts.observations import Observations, observe
from bakeoff.verdicts.question import Compare
from bakeoff.version import __version__

BASELINE = ("", "baseline")
"""What the base arm's own ablation is called."""


@dataclass(frozen=True)
class Contents:
    edition: Edition
    label: str
    """Experiment and edition, as a reader would type it."""

    @cached_property
    def facts(self) -> dict[str, Any]:
        return self.edition.facts()

    @cached_property
    def results(self) -> Results:
        return edition_results(self.edition)

    @cached_property
    def experiment(self) -> Experiment:
        return Experiment.model_validate(self.facts["spec"])

    @property
    def analysis(self) -> Analysis:
        return self.experiment.analysis

    @cached_property
    def cells(self) -> dict[int, CellRecord]:
        return {cell.number: cell for cell in self.edition.cells()}

    @cached_property
    def runs(self) -> list[RunRecord]:
        return list(self.edition.runs())

    @cached_property
    def tally(self) -> Tally:
        return Tally.of(self.edition.counts())

    @cached_property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(cell.arm for cell in self.cells.values()))

    @cached_property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(cell.task for cell in self.cells.values()))

    @cached_property
    def base_of(self) -> dict[str, tuple[str, str]]:
        """(base arm, ablation) of every arm that is an ablation of another one which was run too."""
        return {
            cell.arm: (cell.base, cell.ablation)
            for cell in self.cells.values()
            if cell.ablation not in BASELINE and cell.base in self.arms and cell.base != cell.arm
        }

    @property
    def base_arms(self) -> list[str]:
        return [arm for arm in self.arms if arm not in self.base_of]

    def colour(self, arm: str) -> int:
        """An arm has one colour in all pictures; an ablation has its base's."""
        return self.base_arms.index(self.base_of[arm][0] if arm in self.base_of else arm)

    @cached_property
    def metrics(self) -> list[str]:
        """Every number that a run reported: declared ones first, then by first appearance."""
        found: dict[str, None] = {}
        for run in self.runs:
            found |= dict.fromkeys(name for name, value in run.metrics.items() if is_number(value))
        return sorted(found, key=lambda name: name not in self.declared)

    @cached_property
    def declared(self) -> list[str]:
        analysis = self.analysis
        return [] if analysis.metric is None else list(dict.fromkeys((analysis.metric, *analysis.primary)))

    @cached_property
    def main(self) -> list[str]:
        """Metrics that pictures show: those declared, or the first two that were reported."""
        return self.declared or self.metrics[:2]

    def observe(self, metric: str) -> Observations:
        """A metric that the analysis does not declare has no range, score or summary from it."""
        if metric in self.declared or not self.declared:
            return observe(self.results, metric)
        plain = {"bounds": None, "failure_score": None, "margin": None, "relative_margin": None, "summary": None}
        return observe(self.results, metric, self.analysis.model_copy(update=plain))

    @cached_property
    def verdict(self) -> CompareAnswer | str:
        """The answer of `bakeoff compare` to the declared question; or why there is none."""
        try:
            return answer(self.results, Compare())
        except BakeoffError as error:
            return str(error)

    @property
    def control(self) -> str:
        return self.analysis.control or self.arms[0]

    @cached_property
    def cost_metric(self) -> str | None:
        """What the budget counts, or a metric with cost in its name; one that is zero everywhere tells nothing."""
        budget = self.experiment.budget.cost_metric
        named = [name for name in self.metrics if "cost" in name.lower()]
        found = [name for name in (budget, *named) if name in self.metrics and name not in self.main]
        return next((name for name in found if any(run.metrics.get(name) for run in self.runs)), None)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# -- what was run, when, by which code and on which machine, and what failed

MOST_GROUPS = 40
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Failures:
    """Runs that ended with the same words."""

    status: str
    error: str
    arms: tuple[str, ...]
    runs: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class ArmLine:
    arm: str
    ablation_of: str
    colour: int
    planned: int
    succeeded: int
    failed: int
    missing: int
    means: tuple[str, ...]


def about(contents: Contents) -> list[tuple[str, str]]:
    """What was run, in a few lines."""
    experiment, tally = contents.experiment, contents.tally
    started = [run.started_at for run in contents.runs if run.started_at is not None]
    ended = [run.ended_at for run in contents.runs if run.ended_at is not None]
    work = sum(run.wall_s or 0.0 for run in contents.runs)
    lines = [
        ("experiment", contents.label),
        ("workload", experiment.workload),
        ("arms", _several(contents.arms)),
        ("tasks", _several(contents.tasks)),
        ("seeds", _seeds(sorted({run.seed for run in contents.runs}))),
        ("rollouts", str(1 + max((run.rollout for run in contents.runs), default=0))),
        ("first run started", utc(min(started, default=None))),
        ("last run ended", utc(max(ended, default=None))),
        ("time in runs", duration(work) if started else "-"),
        ("runs", f"{tally.planned} planned, {tally.succeeded} succeeded, {tally.failed} failed, {tally.missing} missing"),
    ]  # fmt: skip
    return [(name, text) for name, text in lines if (name, text) != ("rollouts", "1")]


def _several(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)}: {', '.join(names[:most])}{more}"


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{len(seeds)}: {seeds[0]} to {seeds[-1]}"
    return _several([str(seed) for seed in seeds], 12)


def provenance(contents: Contents) -> list[list[tuple[str, str]]]:
    """One list of facts for each session that ran anything; empty for results from elsewhere."""
    return [_session(session) for session in contents.edition.sessions()]


def _session(session: dict[str, Any]) -> list[tuple[str, str]]:
    origin = session["provenance"]
    git = origin.get("git") or {}
    code = "not in a repository"
    if git.get("commit"):
        dirty = "with uncommitted changes" if git.get("dirty") else "clean"
        code = f"{git['commit'][:12]} on {git.get('branch') or 'no branch'}, {dirty}"
    return [
        ("started", utc(session["started_at"])),
        ("ended", f"{utc(session['seen_at'])}, {session['ended'] or 'still running or lost'}"),
        ("code", code),
        ("host", f"{origin.get('host', '-')}, {origin.get('cores', '?')} cores, {origin.get('platform', '')}"),
        ("Python", f"{origin.get('python', '-')}, bakeoff {origin.get('packages', {}).get('bakeoff', '-')}"),
        ("command line", shlex.join(origin.get("argv", []))),
        ("directory", str(origin.get("cwd", "-"))),
    ]


def failures(contents: Contents) -> list[Failures]:
    """Runs that failed or were lost, by what they said, the most frequent first."""
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for run in contents.runs:
        if run.status in (*FAILED, "infra_error", "cancelled"):
            said = one_line(run.error, 300) or f"exit code {run.exit_code}"
            groups.setdefault((run.status, _without_digits(said)), []).append(run)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [_group(status, contents, runs) for (status, _), runs in ordered[:MOST_GROUPS]]


def _without_digits(text: str) -> str:
    """Errors that differ in a number alone are one kind of error."""
    return "".join("0" if letter.isdigit() else letter for letter in text)


def _group(status: str, contents: Contents, runs: list[RunRecord]) -> Failures:
    arms = tuple(dict.fromkeys(run.arm for run in runs))
    said = one_line(runs[0].error, 300) or f"exit code {runs[0].exit_code}"
    return Failures(status, said, arms, tuple(run.run_id for run in runs[:_SHOWN]), len(runs))


def arm_lines(contents: Contents) -> tuple[list[str], list[ArmLine]]:
    """Names of a few metrics, and every arm with its counts and plain means."""
    cost = [contents.cost_metric] if contents.cost_metric else []
    found = by_arm(contents.edition, [*contents.main[:4], *cost])
    names = list(dict.fromkeys(name for arm in found.values() for name in arm.means))
    lines = []
    for arm, means in found.items():
        tally = means.tally
        cells = tuple(figure(means.means[name][0]) if name in means.means else "-" for name in names)
        base = contents.base_of.get(arm, ("", ""))[0]
        lines.append(
            ArmLine(arm, base, contents.colour(arm), tally.planned, tally.succeeded, tally.failed, tally.missing, cells)
        )
    return names, lines


def settings(contents: Contents) -> list[tuple[str, str]]:
    """What the analysis rests on; every output carries it."""
    analysis = contents.analysis.model_dump(exclude_none=True, exclude_defaults=False)
    shown = {name: value for name, value in analysis.items() if value not in ([], None)}
    return [*((name, _plain(value)) for name, value in shown.items()), ("seed", "0"), ("bakeoff", __version__)]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list | tuple):
        return " to ".join(map(_plain, value)) if isinstance(value, tuple) else ", ".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def warnings(verdict: CompareAnswer) -> list[str]:
    """The first of those that differ only in their numbers, with the arms that they are about unless it is all."""
    kinds: dict[str, tuple[str, list[str]]] = {}
    for comparison in verdict.comparisons:
        for warning in comparison.warnings:
            kinds.setdefault(re.sub(r"\d", "0", warning), (warning, []))[1].append(comparison.candidate)
    everybody = len(verdict.comparisons)
    return [text if len(arms) == everybody else f"{', '.join(arms)}: {text}" for text, arms in kinds.values()]
