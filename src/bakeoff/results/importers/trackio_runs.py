"""Runs of trackio, from the SQLite database of a project.

The arm is `condition` or `arm` of the configuration, else the run's group, else its name without the seed; projects tell arms apart, too.
NaN and infinities are stored as text.

trackio does not store how a run ended. A run without a value of the metric is missing; one that logged fewer steps than others is noted,
because only its owner knows whether it crashed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.importers.foreign import DIRECTORY, ForeignRun, Item, Reading, Source
from bakeoff.results.importers.identity import Tracked, arm_label

TABLES = ("metrics", "configs", "system_metrics")
SUFFIX = ".db"
NOT_FINITE = ("NaN", "Infinity", "-Infinity")


@dataclass(slots=True)
class Run:
    """One run of a project."""

    path: Path
    id: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    points: dict[str, dict[int, float]] = field(default_factory=dict)
    """Values by metric and step; of a step that was logged twice, the last."""

    @property
    def last_step(self) -> int:
        return max((step for values in self.points.values() for step in values), default=-1)

    @property
    def tracked(self) -> Tracked:
        return Tracked.of(self.config, self.name, self.config.get("_Group"))

    def as_run(self, by_step: frozenset[str]) -> ForeignRun:
        tracked = self.tracked
        curves = {name: sorted(values.items()) for name, values in self.points.items()}
        return ForeignRun(
            labels={
                "arm": tracked.arm,
                "project": self.path.stem,
                DIRECTORY: self.path.parent.name,
            },
            source=Source(self.path, member=self.id),
            header={"name": self.name, "group": self.config.get("_Group"), "config": self.config},
            task=tracked.task,
            seed=tracked.seed,
            run=self.id,
            metrics={name: curve[-1][1] for name, curve in curves.items() if name not in by_step},
            series={
                name: (np.array([step for step, _ in curve], dtype=float), np.array([value for _, value in curve]))
                for name, curve in curves.items()
                if name in by_step
            },
        )


class Trackio:
    """A database of trackio, or a directory of them, as `~/.cache/huggingface/trackio` is."""

    name = "trackio"

    def claims(self, path: Path) -> list[Path]:
        from bakeoff.records.foreign_database import is_database

        files = [path] if path.is_file() else sorted(path.glob(f"*{SUFFIX}"))
        return [file for file in files if file.suffix == SUFFIX and is_database(file, *TABLES)]

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        runs = [run for path in paths for run in _runs(path)]
        by_step = frozenset(name for run in runs for name, values in run.points.items() if len(values) > 1)
        for run in runs:
            yield run.as_run(by_step)
        yield Reading("trackio", notes=_notes(runs), labels=arm_label(run.tracked for run in runs))


def _runs(path: Path) -> list[Run]:
    """Read the runs of a project in the order of their start. Databases of older versions know a run by its name only."""
    from bakeoff.records.foreign_database import ForeignDatabase

    runs: dict[str, Run] = {}
    with ForeignDatabase(path) as database:
        key = "run_id" if "run_id" in database.tables["metrics"] else "run_name"
        for row in database.rows("configs", (key, "run_name", "config"), order="id"):
            runs[row[key]] = Run(path, row[key], row["run_name"], _object(path, "configs", row["config"]))
        for row in database.rows("metrics", (key, "run_name", "step", "metrics"), order="id"):
            run = runs.setdefault(row[key], Run(path, row[key], row["run_name"]))
            for name, value in _object(path, "metrics", row["metrics"]).items():
                if isinstance(value, int | float) or value in NOT_FINITE:
                    run.points.setdefault(name, {})[row["step"]] = float(value)
    if not runs:
        raise UsageError(f"{path}: has no run yet")
    return list(runs.values())


def _object(path: Path, table: str, text: str | bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path}: a row of {table!r} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path}: a row of {table!r} is not a JSON object")
    return content


def _notes(runs: Sequence[Run]) -> list[str]:
    last = max(run.last_step for run in runs)
    short = [run for run in runs if run.last_step < last]
    if not short:
        return []
    return [
        f"{len(short)} of {len(runs)} runs end before step {last}, the last one of the others, such as {short[0].name!r} at step "
        f"{short[0].last_step}: trackio does not store whether a run crashed, so they count as they are"
    ]
