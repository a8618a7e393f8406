"""What was seen: one metric of every run, turned into numbers that the verdicts can use.

Three outcomes are kept apart: scored; failed by the arm's own doing; missing (lost, cancelled, never run).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.run import CellRecord, RunRecord
from bakeoff.records.series import read_block
from bakeoff.spec.experiment import Analysis, Experiment
from bakeoff.spec.identity import canonical_json
from bakeoff.verdicts.fairness import unmatched
from bakeoff.verdicts.reduce import reduce_all

State = Literal["scored", "failed", "missing"]
_FAILED = ("failed", "timeout")
_OWN_UNIT = ("slope", "time_to_threshold")
"""Summaries whose number is not in the metric's unit, so that the metric's range says nothing about it."""


class Observation(NamedTuple):
    """One run's value of the metric. `value` is NaN unless scored; `seed` is None where runs share no seeds."""

    arm: str
    task: str
    seed: int | None
    rollout: int
    state: State
    value: float
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class Observations:
    """One metric over all runs of an experiment, or of files."""

    metric: str
    rows: Sequence[Observation]
    analysis: Analysis
    """How it is to be judged: from the experiment file, changed by flags."""
    source: str = ""
    final: bool = True
    """Every planned run is finished or lost."""
    fixed_tasks: bool = False
    """Tasks are points of a swept parameter, so they are no sample of anything."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Content of each task that has one; editions can only be compared on equal content."""
    notes: tuple[str, ...] = ()
    """What a reader of the verdict should know about where the values come from."""

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(row.arm for row in self.rows))

    @property
    def larger_is_better(self) -> bool:
        """The direction of the number that is compared: less time to a threshold is better, whatever the metric."""
        if self.analysis.summary is not None and self.analysis.summary.type == "time_to_threshold":
            return False
        return self.analysis.direction == "maximize"

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Lowest and highest possible value of the number that is compared; a slope or a time has no declared ones."""
        summary = self.analysis.summary
        return None if summary is not None and summary.type in _OWN_UNIT else self.analysis.bounds

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(row.task for row in self.rows))

    def of(self, arms: Iterable[str]) -> Observations:
        wanted = set(arms)
        return replace(self, rows=[row for row in self.rows if row.arm in wanted])


def state_of(status: str, value: object) -> tuple[State, float]:
    """What a run's status and metric amount to. A metric that is NaN, or absent from a run that succeeded, failed."""
    if status == "succeeded":
        if isinstance(value, int | float) and not math.isnan(value):
            return "scored", float(value)
        return "failed", math.nan
    return ("failed" if status in _FAILED else "missing"), math.nan


def from_edition(edition: Edition, metric: str | None = None, analysis: Analysis | None = None) -> Observations:
    """The metric that the experiment declares, or another one. A summary reduces a series to one number."""
    facts = edition.facts()
    experiment = Experiment.model_validate(facts["spec"])
    judged = analysis or experiment.analysis
    name = metric or judged.metric or _only_metric(edition)
    cells = {cell.number: cell for cell in edition.cells()}
    runs = list(edition.runs())
    values: Mapping[int, object]
    if judged.summary is not None:
        values = _reduced(edition, {run.position for run in runs if run.status == "succeeded"}, name, judged)
    else:
        values = {run.position: run.metrics.get(name) for run in runs}
    rows, seen = [], False
    for run in runs:
        value = values.get(run.position)
        seen = seen or value is not None
        state, number = state_of(run.status, value)
        rows.append(Observation(run.arm, run.task, run.seed, run.rollout, state, number, run.run_id))
    if rows and not seen and any(row.state != "missing" for row in rows):
        raise UsageError(f"no run reports {name!r}{_as_series(judged)}; {_known_metrics(edition)}")
    return Observations(
        metric=name,
        rows=rows,
        analysis=judged,
        source=f"{facts['experiment']}/{facts['edition']}",
        final=not any(run.status in ("planned", "running") for run in runs),
        fixed_tasks=bool(experiment.task_keys) and not experiment.tasks,
        digests=_digests(experiment, cells.values()),
        notes=unmatched(judged.matched, ((run.arm, _facts(cells[run.cell], run)) for run in runs)),
    )


def _digests(experiment: Experiment, cells: Iterable[CellRecord]) -> dict[str, str]:
    """What each task is: the digest of its files and, where the file gives it any, its parameters."""
    params = {task.name: canonical_json(task.params) for task in experiment.tasks if task.params}
    found = {cell.task: f"{cell.task_digest or ''}{params.get(cell.task, '')}" for cell in cells}
    return {task: content for task, content in found.items() if content}


def _facts(cell: CellRecord, run: RunRecord) -> dict[str, Any]:
    """Parameters and metrics of one run, by name."""
    return {**cell.columns, **run.metrics}


def _as_series(analysis: Analysis) -> str:
    return " as a series, which a summary needs" if analysis.summary is not None else ""


def _only_metric(edition: Edition) -> str:
    names = metric_names(edition)
    if len(names) == 1:
        return names[0]
    raise UsageError(f"which metric? name it with --metric or analysis.metric; {_known_metrics(edition)}")


def metric_names(edition: Edition) -> list[str]:
    """Every number that a run reported, in order of first appearance."""
    found: dict[str, None] = {}
    for run in edition.runs():
        found |= dict.fromkeys(name for name, value in run.metrics.items() if isinstance(value, int | float))
    return list(found)


def _known_metrics(edition: Edition) -> str:
    names = metric_names(edition)
    return f"runs report {', '.join(names[:20])}" if names else "no run reports any metric"


def _reduced(edition: Edition, scored: Container[int], name: str, analysis: Analysis) -> dict[int, float]:
    """Each scored run's series as one number, by position in the plan; how far a failed run came is no score."""
    assert analysis.summary is not None
    curves = {}
    for position, block in edition.all_series():
        columns = read_block(block) if position in scored else {}
        if name in columns:
            curves[position] = columns[name]
    return reduce_all(curves, analysis.summary, larger_is_better=analysis.direction == "maximize")
