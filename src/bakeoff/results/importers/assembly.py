"""What importers yield becomes `Results`: runs of arms with names, how they are judged, and how they were read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.importers.foreign import STATUSES, ForeignRun, Item, Mean, Measure, Reading, Transcript
from bakeoff.results.importers.identity import Arms, Overrides, apply, arms_of, settle_reruns
from bakeoff.results.importers.transcripts import FileState, Unchanged
from bakeoff.results.table import Results, Row, is_number, number_repeats
from bakeoff.spec.experiment import Analysis, Summary

TRAINED = Analysis(seeds="crossed")
"""How runs from elsewhere are judged: one seed is one trained policy, whatever it is scored on."""
TRAINING_METRICS = (("mean_reward", "correct_rate"), ("overview/reward",))
"""What training runs are compared on when nobody names a metric: those of a campaign, or of a benchmark."""
MEAN_TOLERANCE = 5e-4
"""Share by which a tool's own mean may differ from ours: tools print three or four digits."""


def as_results(
    items: Iterable[Item],
    label: str,
    overrides: Overrides | None = None,
    states: Mapping[Path, FileState] | None = None,
) -> Results:
    """Make one table of what importers yielded: arms get names, and readings become notes and settings.

    `states` are those of files before they were read; transcripts are read of unchanged ones only.
    """
    overrides = overrides or Overrides()
    rows: list[Row] = []
    runs: list[ForeignRun] = []
    readings: list[Reading] = []
    for item in items:
        if isinstance(item, Reading):
            readings.append(item)
        elif isinstance(item, Row):
            rows.append(item)
        else:
            runs.append(item)
    apply(runs, overrides)
    arms = arms_of(runs, overrides)
    left_out = settle_reruns(runs, arms.names, overrides.reruns)
    notes = [note for reading in readings for note in reading.notes]
    if len(arms.fields) > 1:
        notes.append(f"arms are told apart by {', '.join(arms.fields)}")
    if len(set(arms.names)) == len(runs) > 2 and overrides.arm is None:
        notes.append(
            f"each of the {len(runs)} runs is an arm of its own; where some are seeds of one arm, --arm-from and --seed-from say "
            "which part of a path or which field is what, as in --arm-from 'path:([a-z]+)_[0-9]+' --seed-from 'path:_([0-9]+)'"
        )
    reading = _account(runs, arms, readings, overrides, left_out) if runs else {}
    groups = _groups(runs)
    rows += _rows(runs, arms.names, states or {})
    return Results(
        rows=number_repeats(rows),
        label=label,
        analysis=_analysis(rows, readings),
        series_summary=Summary(type="auc"),
        usual=training_metrics,
        reading=reading,
        groups=groups,
        notes=tuple(dict.fromkeys(notes)),
        problems=tuple(problem for reading in readings for problem in reading.problems),
        tools=tuple(dict.fromkeys((reading.tool, reading.version) for reading in readings if reading.tool)),
    )


def training_metrics(known: Sequence[str]) -> Sequence[str]:
    return next((names for names in TRAINING_METRICS if set(names) <= set(known)), ())


def _rows(runs: list[ForeignRun], arms: Sequence[str], states: Mapping[Path, FileState]) -> list[Row]:
    """Return a row for each run, and empty `runs` on the way: a million runs are not in memory twice.

    `arms` has the name for each. Raises UsageError where a run was read twice, such as through a link.
    """
    resolve, is_directory = cache(Path.resolve), cache(Path.is_dir)
    names, rows = iter(arms), []
    runs.reverse()
    members: dict[Path, set[str | None]] = {}
    repeats: dict[tuple[str, str, int], int] = {}
    unchanged = cache(partial(_unchanged, states))
    while runs:
        run = runs.pop()
        source, arm = run.source, next(names)
        own_directory = is_directory(source.path)
        # Else several runs of one file that nothing tells apart, or samples of a log, which have numbers.
        if own_directory or (run.repeat is None and source.member is not None):
            known = members.setdefault(resolve(source.path), set())
            if source.member in known:
                raise UsageError(f"{source} is read twice; the same run cannot count twice")
            known.add(source.member)
        repeat = run.repeat or 0
        if run.log is not None and run.repeat is None and run.seed is not None:
            repeat = repeats.get((arm, run.task, run.seed), 0)
            repeats[arm, run.task, run.seed] = repeat + 1
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
                transcript=None if run.transcript is None else unchanged(run.transcript, source.path),
            )
        )
    return rows


def _unchanged(states: Mapping[Path, FileState], transcript: Transcript, path: Path) -> Transcript:
    return Unchanged(transcript, path, states[path]) if path in states else transcript


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
    return analysis.model_copy(
        update={
            "metric": metric,
            "direction": first.direction,
            "directions": {name: measure.direction for name, measure in measures.items() if measure.direction},
            "bounds": first.bounds,
            "ranges": {name: measure.bounds for name, measure in measures.items() if measure.bounds is not None},
        }
    )


def _groups(runs: Sequence[ForeignRun]) -> dict[str, dict[str, str]]:
    """Tasks by group, where every task has one and groups are not other names of the tasks."""
    pairs = {(run.task, run.group) for run in runs}
    tasks, groups = {task for task, _ in pairs}, {group for _, group in pairs}
    if len(pairs) > len(tasks) or None in groups or not 1 < len(groups) < len(tasks):
        return {}
    return {"group": {task: str(group) for task, group in sorted(pairs, key=str)}}


# -- how the runs were read


def _account(
    runs: Sequence[ForeignRun],
    arms: Arms,
    readings: Sequence[Reading],
    overrides: Overrides,
    left_out: int,
) -> dict[str, Any]:
    """Count what the reading line says (`results.reading` makes the sentence)."""
    outcomes = Counter((run.outcome, run.error is not None) for run in runs)
    infra = sum(run.error is not None and bool(overrides.is_infrastructure(run.error)) for run in runs)
    sizes = Counter(run.log.path if run.log is not None else run.source.path for run in runs)
    tools: dict[str, list[str]] = {}
    called: dict[str, str] = {}
    for reading in readings:
        if reading.tool:
            tools.setdefault(reading.tool, []).append(reading.version)
        called |= reading.labels
    return {
        "tools": {tool: sorted(set(versions) - {""}) for tool, versions in tools.items()},
        "unit": next((reading.unit for reading in readings), "run"),
        "source": "log" if any(run.log is not None for run in runs) else _source(runs),
        "runs": len(runs),
        "logs": len(sizes),
        "each": next(iter(sizes.values())) if len(set(sizes.values())) == 1 else None,
        "arms": list(dict.fromkeys(arms.names)),
        "arm_from": [called.get(field, field) for field in arms.fields],
        "arm_labels": arms.fields,
        "together": [called.get(field, field) for field in arms.together],
        "failed": sum(number for (outcome, _), number in outcomes.items() if outcome == "failed"),
        "unscored": sum(
            run.outcome == "failed" and run.error is None and not run.metrics and not run.series for run in runs
        ),
        "missing": sum(number for (outcome, _), number in outcomes.items() if outcome == "missing"),
        "infrastructure": infra,
        "scored_with_error": outcomes["scored", True],
        "left_out": left_out,
        "means": _other_means(runs, readings),
        "remarks": list(dict.fromkeys(remark for reading in readings for remark in reading.remarks)),
    }


def _source(runs: Sequence[ForeignRun]) -> str:
    return "directory" if all(path.is_dir() for path in {run.source.path for run in runs}) else "file"


def _other_means(runs: Sequence[ForeignRun], readings: Sequence[Reading]) -> list[dict[str, Any]]:
    """Return means that the tool reports and that ours are not, with ours beside them.

    A failed run counts the bad end of the metric's range in ours, as in a verdict; `without_failed` says that the tool's is
    the mean of the others alone.
    """
    means = [(mean, reading) for reading in readings for mean in reading.means]
    if not means:
        return []
    by_log: dict[Path | None, list[ForeignRun]] = {None: list(runs)}
    for run in runs:
        if run.log is not None:
            by_log.setdefault(run.log.path, []).append(run)
    means = [
        (mean, reading) for mean, reading in means if mean.log in by_log
    ]  # else another log counts (--reruns newest)
    measures = {name: measure for reading in readings for name, measure in reading.metrics.items()}
    differing = []
    for mean, reading in means:
        chosen = [run for run in by_log[mean.log] if _is_part(run, mean)]
        values = [
            float(value)  # type: ignore[arg-type]
            for run in chosen
            if run.outcome not in ("failed", "missing") and is_number(value := run.metrics.get(mean.metric))
        ]
        values = [value for value in values if math.isfinite(value)]
        failure = _failure(measures.get(mean.metric))
        failed = sum(_has_failed(run, mean.metric) for run in chosen)
        known = values + [failure] * failed if failure is not None else values
        ours, scored = _mean(known), _mean(values)
        if not _close(ours, mean.value) or (failed and failure is None):
            differing.append(
                {
                    "tool": reading.tool,
                    "metric": mean.name or mean.metric,
                    "value": mean.value,
                    "ours": None if math.isnan(ours) or (failed and failure is None) else ours,
                    "runs": len(known),
                    "without_failed": bool(failed) and _close(scored, mean.value),
                    "log": None if mean.log is None else str(mean.log),
                    "labels": {key: str(value) for key, value in mean.labels.items()},
                }
            )
    return differing


def _has_failed(run: ForeignRun, metric: str) -> bool:
    """Whether a run counts as failed in a verdict on a metric: one that was scored and has no number for it does, too."""
    value = run.metrics.get(metric)
    has_number = is_number(value) and math.isfinite(value)  # type: ignore[arg-type]
    return run.outcome == "failed" or (run.outcome == "scored" and not has_number)


def _is_part(run: ForeignRun, mean: Mean) -> bool:
    return (mean.group is None or run.group == mean.group) and all(
        run.labels.get(key) == label for key, label in mean.labels.items()
    )


def _failure(measure: Measure | None) -> float | None:
    if measure is None or measure.bounds is None:
        return None
    return measure.bounds[1] if measure.direction == "minimize" else measure.bounds[0]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _close(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) <= MEAN_TOLERANCE * max(1.0, abs(theirs))
