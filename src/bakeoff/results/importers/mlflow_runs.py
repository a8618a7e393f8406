"""Runs of MLflow, in an SQLite database or as files (`mlruns`).

The arm is the parameter `condition` or `arm`, else the run's name without its seed; experiments tell arms apart, too. In a database NaN
is stored as 0.0 with a flag, and an infinity as the largest number there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.importers.files import first_bytes
from bakeoff.results.importers.foreign import DIRECTORY, ForeignRun, Item, Outcome, Reading, Source
from bakeoff.results.importers.identity import Tracked, arm_label
from bakeoff.trees import walk

TABLES = ("runs", "metrics", "params", "experiments")
STATES: Mapping[str, Outcome] = {
    "FINISHED": "scored", "FAILED": "failed", "KILLED": "missing", "RUNNING": "running", "SCHEDULED": "running",
}  # fmt: skip
NUMBERS = ("", "RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
"""States by their number in `meta.yaml`."""
MAX_FLOAT = 1.7976931348623157e308
"""What a database has for infinity."""
META = "meta.yaml"
PARENT = "mlflow.parentRunId"
"""The tag of a nested run."""


@dataclass(slots=True)
class Run:
    """One run of a tracking store."""

    source: Source
    id: str
    name: str
    state: str
    experiment: str
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    """(step, time, value) by metric."""

    @property
    def tracked(self) -> Tracked:
        return Tracked.of(self.params, self.name, prefix="params")

    def as_run(self, by_step: frozenset[str], directory: str) -> ForeignRun:
        tracked = self.tracked
        curves = {}
        for name, points in self.points.items():
            values = {
                step: value for step, _, value in sorted(points, key=lambda point: point[:2])
            }  # the last of a step
            curves[name] = (np.array(list(values), dtype=float), np.array(list(values.values()), dtype=float))
        return ForeignRun(
            labels={
                "arm": tracked.arm,
                "experiment": self.experiment,
                DIRECTORY: directory,
            },
            source=self.source,
            header={"name": self.name, "params": self.params, "tags": self.tags},
            task=tracked.task,
            seed=tracked.seed,
            run=str(self.source),
            outcome=STATES[self.state],
            error=None if self.state == "FINISHED" else self.state.lower(),
            metrics={name: float(values[-1]) for name, (_, values) in curves.items() if name not in by_step},
            series={name: curve for name, curve in curves.items() if name in by_step},
        )


class Mlflow:
    """A database of MLflow, a directory of runs as files or one experiment in it, or a directory that has either."""

    name = "mlflow"

    def claims(self, path: Path) -> list[Path]:
        if path.is_file():
            from bakeoff.records.foreign_database import SUFFIXES, is_database

            return [path] if path.suffix in SUFFIXES and is_database(path, *TABLES) else []
        for place in (path, path / "mlruns"):
            if next(_metas_of_runs(place), None) is not None:
                return [place]
        return self.claims(path / "mlflow.db") if (path / "mlflow.db").is_file() else []

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        runs: list[tuple[Path, Run]] = []
        for path in paths:
            runs += [(path, run) for run in (_files(path) if path.is_dir() else _database(path))]
        parents = _only_parents([run for _, run in runs])
        runs = [(path, run) for path, run in runs if run.id not in parents]
        by_step = frozenset(
            name for _, run in runs for name, points in run.points.items() if len({step for step, _, _ in points}) > 1
        )
        for path, run in runs:
            yield run.as_run(by_step, path.name)
        lost = [run for _, run in runs if STATES[run.state] == "missing"]
        killed = [f"{len(lost)} of {len(runs)} runs were killed and count as missing: {lost[0].source}"] if lost else []
        notes = [*killed, *([_left_out(list(parents.values()))] if parents else [])]
        yield Reading("MLflow", notes=notes, labels=arm_label(run.tracked for _, run in runs))


def _only_parents(runs: Sequence[Run]) -> dict[str, Run]:
    """Return runs, by id, that only hold others together, such as a sweep: none of their metrics is one of a nested run."""
    nested: dict[str, set[str]] = {}
    for run in runs:
        if PARENT in run.tags:
            nested.setdefault(run.tags[PARENT], set()).update(run.points)
    return {run.id: run for run in runs if nested.get(run.id) and not nested[run.id] & run.points.keys()}


def _left_out(parents: Sequence[Run]) -> str:
    more = f" and {len(parents) - 1} more" if len(parents) > 1 else ""
    return f"{parents[0].name!r}{more} hold{'' if more else 's'} nested runs and none of their metrics, and no run is made of that"


def _database(path: Path) -> list[Run]:
    from bakeoff.records.foreign_database import ForeignDatabase

    with ForeignDatabase(path) as database:
        experiments = {
            row["experiment_id"]: row["name"] for row in database.rows("experiments", ("experiment_id", "name"))
        }
        columns = ("run_uuid", "name", "status", "experiment_id", "lifecycle_stage")
        runs = {
            row["run_uuid"]: Run(
                Source(path, member=row["run_uuid"]), row["run_uuid"], row["name"] or row["run_uuid"], row["status"],
                str(experiments[row["experiment_id"]]),
            )
            for row in database.rows("runs", columns, order="start_time")
            if row["lifecycle_stage"] == "active"
        }  # fmt: skip
        for row in database.rows("params", ("run_uuid", "key", "value")):
            if row["run_uuid"] in runs:
                runs[row["run_uuid"]].params[row["key"]] = row["value"]
        for row in database.rows("tags", ("run_uuid", "key", "value")) if "tags" in database.tables else ():
            if row["run_uuid"] in runs:
                runs[row["run_uuid"]].tags[row["key"]] = row["value"]
        for row in database.rows("metrics", ("run_uuid", "key", "value", "timestamp", "step", "is_nan")):
            if row["run_uuid"] in runs:
                value = math.nan if row["is_nan"] else row["value"]
                value = math.copysign(math.inf, value) if abs(value) >= MAX_FLOAT else value
                runs[row["run_uuid"]].points.setdefault(row["key"], []).append((row["step"], row["timestamp"], value))
        return list(runs.values())


def _files(path: Path) -> list[Run]:
    runs = []
    for meta in sorted(_metas_of_runs(path)):
        directory, facts = meta.parent, _meta(meta)
        if facts.get("lifecycle_stage") != "active":
            continue
        experiment = directory.parent / META
        try:
            state = NUMBERS[int(facts["status"])]
        except (KeyError, ValueError, IndexError) as error:
            raise UsageError(f"{meta}: has no status of MLflow's; was it cut off?") from error
        run = Run(
            Source(directory), directory.name, facts.get("run_name") or directory.name, state,
            (_meta(experiment) if experiment.is_file() else {}).get("name", directory.parent.name),
        )  # fmt: skip
        for table, place in ((run.params, "params"), (run.tags, "tags")):
            for name, file in _files_below(directory / place):
                table[name] = file.read_text(encoding="utf-8")
        for name, file in _files_below(directory / "metrics"):
            run.points[name] = _metric(file)
        runs.append(run)
    return runs


def _metas_of_runs(path: Path) -> Iterator[Path]:
    """Yield the settings of runs in a store, or in one experiment of it. Experiments have a file of that name, too."""
    for pattern in (f"*/*/{META}", f"*/{META}"):
        yield from (meta for meta in path.glob(pattern) if b"run_id:" in first_bytes(meta, 1 << 12))


def _files_below(directory: Path) -> list[tuple[str, Path]]:
    """Return the files of a directory by relative name: names of metrics and parameters may have slashes."""
    files = [Path(place, name) for place, _, names in walk(directory) for name in names]
    return sorted((file.relative_to(directory).as_posix(), file) for file in files if file.is_file())


def _meta(path: Path) -> dict[str, str]:
    """Read the flat settings of a `meta.yaml`; quotes around a value are no part of it."""
    lines = (line.partition(": ") for line in path.read_text(encoding="utf-8").splitlines())
    return {key: value.strip().strip("'\"") for key, colon, value in lines if colon}


def _metric(path: Path) -> list[tuple[float, float, float]]:
    """Read lines of time, value and step. A last line without its end is being written, and is left out."""
    text = path.read_text(encoding="utf-8")
    points = []
    for line, fields in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            time, value, step = (float(part) for part in fields.split())
        except ValueError as error:
            raise UsageError(f"{path}, line {line}: is not time, value and step: {fields!r}") from error
        points.append((step, time, value))
    return points
