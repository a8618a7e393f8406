"""A run as the pages read it, whether an experiment or `bakeoff market run` made it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakeoff.records.edition import Edition

HOW_TO_KEEP = (
    "Runs keep what these pages show when the experiment says <code>outputs = true</code> in <code>[params]</code>, "
    "or with <code>bakeoff run FILE --set params.outputs=true</code>."
)
_LONGEST_FIELD = 10_000_000


@dataclass(frozen=True, slots=True)
class Played:
    """`arm` is the agent's; runs of one `task` share the kind of world, and those of one `unit` the world itself."""

    arm: str
    agent: str
    """As the experiment or the command line names it."""
    task: str
    unit: int
    label: str
    """What tells it from others of its arm and task."""
    status: str
    metrics: Mapping[str, Any]
    files: Path
    """Where it wrote actions.csv and the like, if it did."""

    @property
    def kept(self) -> bool:
        return (self.files / "actions.csv").is_file()

    @property
    def name(self) -> str:
        return " · ".join(part for part in (self.arm, self.task, self.label) if part)

    def rows(self, name: str) -> list[dict[str, str]]:
        """A table that the run wrote; empty when it did not."""
        path = self.files / name
        if not path.is_file():
            return []
        csv.field_size_limit(_LONGEST_FIELD)
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def truth(self) -> dict[str, Any]:
        path = self.files / "truth.json"
        found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        return found

    def number(self, metric: str) -> float | None:
        value = self.metrics.get(metric)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def of_edition(edition: Edition) -> list[Played]:
    """Every run, in the order of the plan."""
    cells = {cell.number: cell for cell in edition.cells()}
    runs = list(edition.runs())
    several = any(run.rollout for run in runs)
    return [
        Played(
            arm=run.arm,
            agent=str(cells[run.cell].params.get("agent", "")),
            task=run.task,
            unit=run.seed,
            label=f"seed {run.seed}, rollout {run.rollout}" if several else f"seed {run.seed}",
            status=run.status,
            metrics=run.metrics,
            files=edition.paths.run(run.run_id) / "out",
        )
        for run in runs
    ]


def arms_of(played: Sequence[Played]) -> list[str]:
    return list(dict.fromkeys(run.arm for run in played))


def tasks_of(played: Sequence[Played]) -> list[str]:
    return list(dict.fromkeys(run.task for run in played))


def chosen(played: Sequence[Played]) -> list[Played]:
    """The runs that are shown one by one: of every arm on every task the first that kept its files."""
    first: dict[tuple[str, str], Played] = {}
    for run in played:
        if (run.task, run.arm) not in first and run.kept:
            first[run.task, run.arm] = run
    return [first[task, arm] for task in tasks_of(played) for arm in arms_of(played) if (task, arm) in first]
