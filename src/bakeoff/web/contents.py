"""Results read once: what every part of the report looks at, and what its front page says about them."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from bakeoff.errors import BakeoffError, UsageError
from bakeoff.records.run import FAILED, CellRecord, FailureGroup, Tally, failure_groups
from bakeoff.results.importing import identified
from bakeoff.results.table import Results, Row
from bakeoff.spec.experiment import Budget
from bakeoff.spec.registry import NATIVE
from bakeoff.text import duration, flat, number, utc
from bakeoff.verdicts.answer import Block, Notes, answer
from bakeoff.verdicts.comparison import Exploratory, explore
from bakeoff.verdicts.observations import caveats_of, observe
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.questions.compare import CompareAnswer
from bakeoff.verdicts.questions.retries import retry_table, retry_warnings
from bakeoff.version import __version__

BASELINE = ("", "baseline")
"""What the base arm's own ablation is called."""
MOST_LISTED = 12
"""Names in a line."""
COLUMNS = 6
"""Metrics that the table of runs shows."""


class Contents:
    """What the parts of a report share, for example

        contents = Contents(open_results(["scores.csv"], root))
        contents.arms, contents.metrics, contents.verdict

    `verdict` is computed when it is asked for.
    """

    def __init__(self, results: Results, question: Compare | None = None, verb: str = "report") -> None:
        """`question` changes the declared analysis where it sets fields; looks are recorded as those of `verb`.

        Raises UsageError for runs of several editions.
        """
        if results.parts:
            raise UsageError(f"{results.label}: a report is about one edition, or about another tool's results")
        self.results, self.question, self.verb = results, question or Compare(), verb
        self.analysis = results.analysis
        self.runs: Sequence[Row] = identified(results).rows if results.edition is None else results.rows
        experiment, edition = results.experiment, results.edition
        # Experiment and edition as a reader would type them.
        self.label = results.label if edition is None else f"{edition.paths.experiment}/{edition.paths.name}"
        self.title = results.label if experiment is None else experiment.name
        self.description = "" if experiment is None else experiment.description
        self.workload = self.runs[0].workload if experiment is None else experiment.workload
        dialects = {run.dialect for run in self.runs}
        self.dialect = dialects.pop() if len(dialects) == 1 else NATIVE.name
        first_runs: dict[int, Row] = {}
        for run in self.runs:
            first_runs.setdefault(run.cell, run)
        self.cells = {
            number: CellRecord(
                number, run.arm, run.task, run.base, run.ablation, list(run.flags), None, dict(run.settings), dict(run.params),
            )
            for number, run in sorted(first_runs.items())
        }  # fmt: skip
        self.tally = Tally.of(Counter(run.status for run in self.runs))
        self.complete = self.tally.missing == 0 if edition is None else edition.complete
        self.arms = list(dict.fromkeys(cell.arm for cell in self.cells.values()))
        self.tasks = list(dict.fromkeys(cell.task for cell in self.cells.values()))
        # Arms that are an ablation of another arm which was run too, with a cell that names both.
        self.ablated: dict[str, CellRecord] = {
            cell.arm: cell
            for cell in self.cells.values()
            if cell.ablation not in BASELINE and cell.base in self.arms and cell.base != cell.arm
        }
        self.base_arms = [arm for arm in self.arms if arm not in self.ablated]
        self.declared = self.question.metrics or self.analysis.metrics
        # Every number that a run reported: declared ones first, then by first appearance.
        values = (item for run in self.runs for item in run.metrics.items())
        reported = dict.fromkeys(name for name, value in values if is_finite_number(value))
        self.metrics = sorted(reported, key=lambda name: name not in self.declared)
        # Metrics that pictures show: those declared, or the first two that were reported.
        self.main = self.declared or self.metrics[:2]
        # What the budget counts, or a metric with cost in its name, declared ones first; one that is zero everywhere
        # says nothing. The first declared metric is what is bought, so it is not the price.
        budget = Budget() if experiment is None else experiment.budget
        costs = [budget.cost_metric, *(name for name in self.metrics if "cost" in name.lower())]
        known = [name for name in costs if name in self.metrics and name not in self.main[:1]]
        self.cost_metric = next((name for name in known if any(run.metrics.get(name) for run in self.runs)), None)
        # Columns of the table of runs: metrics that pictures show, cost, and then by first appearance.
        first = [*self.main, *([self.cost_metric] if self.cost_metric else [])]
        self.columns = [name for name in dict.fromkeys((*first, *self.metrics)) if name in reported][:COLUMNS]

    def colour(self, arm: str) -> int:
        """An arm has one colour in all pictures; an ablation has its base's."""
        return self.base_arms.index(self.ablated[arm].base if arm in self.ablated else arm)

    @property
    def what(self) -> str:
        """Which arms, ablations and tasks there are, in one line."""
        names = list(dict.fromkeys(cell.ablation for cell in self.ablated.values()))
        kinds = (("arm", self.base_arms), ("ablation", names), ("task", self.tasks))
        parts = []
        for noun, known in kinds:
            if known:
                more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
                parts.append(f"{noun}{'s' if len(known) > 1 else ''} {', '.join(known[:MOST_LISTED])}{more}")
        text = "; ".join(parts)
        return text[:1].upper() + text[1:]

    @cached_property
    def verdict(self) -> CompareAnswer | str:
        """The answer of `bakeoff compare` to the declared question; or why there is none."""
        try:
            return answer(self.results, self.question, verb=self.verb)
        except BakeoffError as error:
            return str(error)

    @property
    def is_open(self) -> bool:
        """Whether this is a design that is judged once, at its end, and has not ended: no verdict, p or interval is shown."""
        results = self.results
        return results.edition is not None and not results.final and not results.is_sequential

    @cached_property
    def caveat(self) -> str:
        """What limits the scores on every page; empty where nothing does."""
        arms = dict.fromkeys(arm for name in self.main for arm in caveats_of(self.results.rows, name).self_reported)
        if not arms:
            return ""
        return f"Scores of {', '.join(arms)} are self-reported: these runs could have written them themselves."

    @cached_property
    def ablations(self) -> list[Ablations]:
        """What each ablation changes against its base arm."""
        return ablations(self)


def is_finite_number(value: object) -> bool:
    """Whether a metric can be drawn: a finite number, and no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# -- what each ablation changes against its own base arm: exploratory, adjusted over all of them, no verdict


@dataclass(frozen=True, slots=True)
class Delta:
    """An ablation against its base arm on one metric; `same` when it changes nothing on any run."""

    ablation: str
    base: str
    line: Exploratory
    share: float | None
    """The effect as a share of the base arm's mean."""
    same: bool


@dataclass(frozen=True, slots=True)
class Ablations:
    """Every ablation on one metric."""

    metric: str
    deltas: Sequence[Delta]


def ablations(contents: Contents) -> list[Ablations]:
    """Every ablation against its base arm, for each metric that pictures show and that can be observed."""
    if not contents.ablated or contents.results.is_sequential:
        return []
    tables = []
    for metric in contents.main:
        try:
            observations = observe(contents.results, metric)
        except BakeoffError:
            continue
        # The value of each run by arm; None where it has none.
        values: dict[str, dict[tuple[str, int | None, int], float | None]] = {arm: {} for arm in contents.arms}
        for row in observations.rows:
            values[row.arm][row.task, row.seed, row.rollout] = row.value if row.state == "scored" else None
        cells = contents.ablated.values()
        deltas = []
        for cell, line in zip(cells, explore([(observations, cell.base, cell.arm) for cell in cells]), strict=True):
            known = [value for value in values[cell.base].values() if value is not None]
            mean = sum(known) / len(known) if known else None
            share = line.effect / abs(mean) if line.effect is not None and mean else None
            same = bool(known) and values[cell.base] == values[cell.arm]
            deltas.append(Delta(cell.ablation, cell.base, line, share, same))
        tables.append(Ablations(metric, deltas))
    return tables


# -- what was run, when, by which code and on which machine, and what failed

MOST_GROUPS = 40


def about(contents: Contents) -> list[tuple[str, str]]:
    """What was run, in a few lines."""
    runs, tally = contents.runs, contents.tally
    started = [run.started_at for run in runs if run.started_at is not None]
    ended = [run.ended_at for run in runs if run.ended_at is not None]
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    rollouts = 1 + max((run.rollout for run in runs), default=0)
    lines = [("experiment", contents.label), ("workload", contents.workload)]
    seed_names = [str(seed) for seed in seeds]
    for noun, names, most in (("arms", contents.arms, 8), ("tasks", contents.tasks, 8), ("seeds", seed_names, 12)):
        text = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
        if noun == "seeds" and len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
            text = f"{seeds[0]} to {seeds[-1]}"
        lines.append((noun, f"{len(names)}: {text}"))
    if rollouts > 1:
        lines.append(("rollouts", str(rollouts)))
    counts = f"{tally.planned} planned, {tally.succeeded} succeeded, {tally.failed} failed, {tally.missing} missing"
    return [
        *lines,
        ("first run started", utc(min(started, default=None))),
        ("last run ended", utc(max(ended, default=None))),
        ("time in runs", duration(sum(run.wall_s or 0.0 for run in runs)) if started else "-"),
        ("runs", counts),
    ]


def provenance(contents: Contents) -> list[list[tuple[str, str]]]:
    """One list of facts for each session that ran anything; empty for results from elsewhere."""
    return [session_facts(session) for edition in contents.results.editions() for session in edition.sessions()]


def session_facts(session: Mapping[str, Any]) -> list[tuple[str, str]]:
    """When, where and with which code a session (`Recorded.sessions`) ran."""
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
        ("order seed", str(origin.get("order_seed", "-"))),
    ]


def failures(contents: Contents) -> list[FailureGroup]:
    """Runs that failed or were lost, by what they said, the most frequent first."""
    lost = (*FAILED, "infra_error", "cancelled")
    runs = (run for run in contents.runs if run.status in lost)
    said = (replace(run, error=flat(run.error, 300) or f"exit code {run.exit_code}") for run in runs)
    return failure_groups(said, lost)[:MOST_GROUPS]


def settings(contents: Contents) -> list[tuple[str, str]]:
    """What the analysis rests on; every output carries it."""
    analysis = contents.analysis.model_dump(exclude_none=True, exclude_defaults=False)
    shown = {name: value for name, value in analysis.items() if value not in ([], {}, None)}
    return [*((name, _plain(value)) for name, value in shown.items()), ("seed", "0"), ("bakeoff", __version__)]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list | tuple):
        return " to ".join(map(_plain, value)) if isinstance(value, tuple) else ", ".join(map(_plain, value))
    return number(value) if isinstance(value, float) else str(value)


def retries(contents: Contents) -> list[Block]:
    """The tries that do not count, by arm, and warnings about them; empty if every try counts."""
    uncounted = contents.results.uncounted
    table, warnings = retry_table(uncounted), retry_warnings(uncounted)
    return [block for block in (table, Notes("Warnings", warnings) if warnings else None) if block is not None]
