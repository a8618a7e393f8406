"""What an importer yields, and how it becomes `Results`.

`Importer.read` is a generator. It yields a `ForeignRun` for each run and, before, between or after them, a `Reading`
with what it knows about the source as a whole. Several readings are merged: none is needed, and a reader of many logs
may yield one for each. Arms are named here and not by importers, because only all runs together show what differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from bakeoff.errors import UsageError
from bakeoff.results.table import NOTHING, Results, Row, Series, is_number, number_repeats
from bakeoff.spec.experiment import Analysis, Summary
from bakeoff.spec.workload import Scalar

Outcome = Literal["scored", "failed", "missing", "running"]
STATUSES: Mapping[Outcome | None, str] = {
    None: "", "scored": "succeeded", "failed": "failed", "missing": "infra_error", "running": "running",
}  # fmt: skip
"""Outcomes as statuses of a `Row`."""
DIRECTORY = "directory"
"""The label that names an arm only where no other label tells runs apart."""
TRAINED = Analysis(seeds="crossed")
"""How runs from elsewhere are judged: one seed is one trained policy, whatever it is scored on."""
TRAINING_METRICS = (("mean_reward", "correct_rate"), ("overview/reward",))
"""What training runs are compared on when nobody names a metric: those of a campaign, or of a benchmark."""
MEAN_TOLERANCE = 5e-4
"""Share by which a tool's own mean may differ from ours: tools print three or four digits."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a run was read from."""

    path: Path
    """A file, or a run's directory, whose files `bakeoff import` copies."""
    member: str | None = None
    """The entry, line or sample inside the file, where it holds several runs."""
    digest: str | None = None
    """SHA-256 of the content; None: `bakeoff import` computes it."""

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member is not None else str(self.path)


class Message(NamedTuple):
    """One message of a transcript."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """One run of another tool."""

    labels: Mapping[str, Any]
    """What could be the arm, the most telling first: header fields such as the model and its settings, a group, and
    `directory`. Never an id or a time, which would make each run an arm of its own."""
    source: Source
    task: str = "default"
    group: str | None = None
    """A level above the task, such as the repository that tasks come from."""
    seed: int | None = None
    run: str | None = None
    """The tool's own id of the run."""
    repeat: int | None = None
    """Number of the repeat of one arm, task and seed (default: counted in the order of runs without a seed)."""
    outcome: Outcome | None = None
    """`failed`: because of the arm. `missing`: lost, cancelled, never started. None where the source does not say: then
    a metric with a value is scored, and one without a value is missing."""
    error: str | None = None
    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=lambda: NOTHING)
    """Metrics that were logged by step, as (steps, values)."""
    started_at: float | None = None
    ended_at: float | None = None
    """Seconds since the epoch."""
    transcript: Callable[[], Sequence[Message]] | None = None
    """Called when somebody opens the run, and not before."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a source knows about one metric."""

    direction: Literal["maximize", "minimize"] | None = None
    bounds: tuple[float, float] | None = None
    """Lowest and highest possible value."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean that the tool itself reports, over the runs that have these labels."""

    metric: str
    value: float
    labels: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source says beside its runs."""

    tool: str = ""
    version: str = ""
    metrics: Mapping[str, Measure] = field(default_factory=dict)
    """The metrics that the tool scores by. The first that runs report is the one that gets a verdict."""
    means: Sequence[Mean] = ()
    """The tool's own means: a note says where the runs that were read have another one."""
    notes: Sequence[str] = ()
    """What a reader of a verdict should know about where the values come from."""
    problems: Sequence[str] = ()
    """Runs that could not be read, one line each. `compare` refuses such a source, `import` lists and leaves them out."""
    analysis: Analysis | None = None
    """How results of the tool are judged, where that is known."""


Item = ForeignRun | Row | Reading


class Importer(Protocol):
    """Reads one format."""

    name: str

    def claims(self, path: Path) -> Iterable[Path]:
        """Return what at or below `path`, a file or a directory, has this format; nothing when none of it has.

        Look at names and first bytes only: `claims` is called for every path that a user names.
        """

    def read(self, paths: Sequence[Path]) -> Iterable[Item] | Results:
        """Yield the runs in all `paths` together, lazily.

        Importers of ours yield a `Row` where they know more about a run than a `ForeignRun` holds, and give `Results` whole
        where they know how all of them are to be judged.
        """


def as_results(items: Iterable[Item], label: str) -> Results:
    """Make one table of what importers yielded: arms get names, and readings become notes and settings."""
    runs: list[ForeignRun | Row] = []
    readings: list[Reading] = []
    for item in items:
        if isinstance(item, Reading):
            readings.append(item)
        else:
            runs.append(item)
    foreign = [run for run in runs if isinstance(run, ForeignRun)]
    arms, told_apart = name_arms([run.labels for run in foreign])
    notes = [note for reading in readings for note in reading.notes]
    if len(told_apart) > 1:
        notes.append(f"arms are told apart by {', '.join(told_apart)}")
    notes += _other_means(foreign, readings)
    groups = _groups(foreign)
    del foreign
    rows = _rows(runs, arms)
    return Results(
        rows=number_repeats(rows),
        label=label,
        analysis=_analysis(rows, readings),
        series_summary=Summary(type="auc"),
        usual=training_metrics,
        groups=groups,
        notes=tuple(dict.fromkeys(notes)),
        problems=tuple(problem for reading in readings for problem in reading.problems),
        tools=tuple(dict.fromkeys((reading.tool, reading.version) for reading in readings if reading.tool)),
    )


def checked(item: object) -> Item:
    """Return what an importer of another package yielded. Raises TypeError where it would mislead a verdict."""
    if isinstance(item, Row | Reading):
        return item
    if not isinstance(item, ForeignRun):
        raise TypeError(f"yielded {type(item).__name__}, not a ForeignRun or a Reading")
    if item.outcome not in STATUSES:
        raise TypeError(f"outcome {item.outcome!r} is not one of scored, failed, missing, running")
    for name in ("seed", "repeat"):
        value = getattr(item, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{name} {value!r} is not a whole number")
    if not isinstance(item.task, str):
        raise TypeError(f"task {item.task!r} is not text")
    return item


def training_metrics(known: Sequence[str]) -> Sequence[str]:
    return next((names for names in TRAINING_METRICS if set(names) <= set(known)), ())


def name_arms(labels: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Name the arm of each run by the labels that differ between runs, and return the names of those labels, too.

    The first label that differs gives its value alone, and each further one that tells more runs apart is added as
    `temperature=0.5`. `directory` counts only where nothing else differs. Where nothing differs at all there is one arm,
    called by the first label.
    """
    keys = list(dict.fromkeys(key for each in labels for key in each if key != DIRECTORY))
    differing: list[str] = []
    groups = 1
    for key in (*keys, DIRECTORY):
        if key == DIRECTORY and differing:
            break
        finer = len({tuple(_text(each.get(other)) for other in (*differing, key)) for each in labels})
        if finer > groups:
            differing.append(key)
            groups = finer
    if not differing:
        first = next((_text(value) for each in labels[:1] for value in each.values() if value is not None), "runs")
        return [first] * len(labels), []
    arms = []
    for each in labels:
        head, *rest = differing
        parts = [_text(each[head]) if each.get(head) is not None else f"no {head}"]
        parts += [f"{key}={_text(each[key])}" if each.get(key) is not None else f"no {key}" for key in rest]
        arms.append(", ".join(parts))
    return arms, differing


def _text(value: Any) -> str:
    return str(value).strip()


def _rows(runs: list[ForeignRun | Row], arms: Sequence[str]) -> list[Row]:
    """Return a row for each run, and empty `runs` on the way: a million runs are not in memory twice.

    `arms` has the name for each foreign one. Raises UsageError where a run was read twice, such as through a link.
    """
    resolve, is_directory = cache(Path.resolve), cache(Path.is_dir)
    names, rows = iter(arms), []
    runs.reverse()
    members: dict[Path, set[str | None]] = {}
    repeats: dict[tuple[str, str], int] = {}
    while runs:
        run = runs.pop()
        if isinstance(run, Row):
            rows.append(run)
            continue
        source, arm = run.source, next(names)
        own_directory = is_directory(source.path)
        if own_directory or source.member is not None:  # else several runs of one file that nothing tells apart
            known = members.setdefault(resolve(source.path), set())
            if source.member in known:
                raise UsageError(f"{source} is read twice; the same run cannot count twice")
            known.add(source.member)
        repeat = run.repeat or 0
        if run.seed is None:
            repeat = repeats.get((arm, run.task), 0)
            repeats[arm, run.task] = repeat + 1
        rows.append(
            Row(
                arm=arm,
                task=run.task,
                seed=run.seed,
                rollout=repeat,
                status=STATUSES[run.outcome],
                metrics=run.metrics,
                series=run.series,
                run_id=run.run or "",
                directory=source.path if own_directory else None,
                started_at=run.started_at,
                ended_at=run.ended_at,
                error=run.error,
                group=run.group,
                source=source,
                transcript=run.transcript,
            )
        )
    return rows


def _analysis(rows: Sequence[Row], readings: Sequence[Reading]) -> Analysis:
    """How the runs are judged: as the tool says, with the metric that it scores by, and which way is better.

    Raises UsageError where two sources give one metric another direction or range.
    """
    analysis = next((reading.analysis for reading in readings if reading.analysis is not None), TRAINED)
    measures: dict[str, Measure] = {}
    for reading in readings:
        for name, measure in reading.metrics.items():
            if measures.setdefault(name, measure) != measure:
                raise UsageError(
                    f"sources disagree about {name!r}: {measures[name]} and {measure}; read them one by one, or make them agree"
                )
    reported = {name for row in rows for name in (*row.metrics, *row.series)}
    measures = {name: measure for name, measure in measures.items() if name in reported}
    if not measures or analysis.metric is not None:
        return analysis
    metric, first = next(iter(measures.items()))
    directions = {name: measure.direction for name, measure in measures.items() if measure.direction is not None}
    return analysis.model_copy(
        update={"metric": metric, "direction": first.direction, "bounds": first.bounds, "directions": directions}
    )


def _groups(runs: Sequence[ForeignRun]) -> dict[str, dict[str, str]]:
    """Tasks by group, where every task has one and groups are not other names of the tasks."""
    pairs = {(run.task, run.group) for run in runs}
    tasks, groups = {task for task, _ in pairs}, {group for _, group in pairs}
    if len(pairs) > len(tasks) or None in groups or not 1 < len(groups) < len(tasks):
        return {}
    return {"group": {task: str(group) for task, group in sorted(pairs, key=str)}}


def _other_means(runs: Sequence[ForeignRun], readings: Sequence[Reading]) -> list[str]:
    """Notes about means that the tool reports and that the runs which were read do not have."""
    notes = []
    for reading in readings:
        for mean in reading.means:
            values = [
                float(value)  # type: ignore[arg-type]
                for run in runs
                if all(run.labels.get(key) == label for key, label in mean.labels.items())
                and is_number(value := run.metrics.get(mean.metric))
                and math.isfinite(value)  # type: ignore[arg-type]
            ]
            ours = math.fsum(values) / len(values) if values else math.nan
            if not abs(ours - mean.value) <= MEAN_TOLERANCE * max(1.0, abs(mean.value)):
                where = (
                    " with " + ", ".join(f"{key} {label}" for key, label in mean.labels.items()) if mean.labels else ""
                )
                found = (
                    f"the mean of the {len(values)} runs that were read is {ours:.4g}" if values else "no run has it"
                )
                notes.append(
                    f"{reading.tool or 'the tool'} reports a mean {mean.metric} of {mean.value:.4g}{where}, and {found}"
                )
    return notes
