"""What both kinds of local runs have in common: where they write, `meta.json`, and taking in `metrics.jsonl`."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

from bakeoff.engine.context import Facts
from bakeoff.engine.executors.base import Start
from bakeoff.errors import UsageError
from bakeoff.records.layout import EditionPaths
from bakeoff.records.results import Result
from bakeoff.records.rundir import SERIES, write_meta
from bakeoff.records.series import read_jsonl
from bakeoff.spec import registry
from bakeoff.spec.plan import Cell, Plan
from bakeoff.spec.workload import Command, Equivalent

_FULL = 16 * 1024
_EXIT_CODES = {"succeeded": 0, "failed": 1}
"""How the command would have ended that an in-process run stands for."""


def _noted(error: str | None, note: str) -> str:
    return f"{error}; {note}" if error else note


def _ending(result: Result) -> dict[str, Any]:
    started, ended = result.started_at, result.ended_at
    return {
        "end_time_unix_s": ended,
        "wall_time_s": round(ended - started, 6) if ended is not None and started is not None else None,
        "exit_code": result.exit_code,
        "status": result.status,
        "error": result.error,
        "metrics": dict(result.metrics),
    }


class Finisher:
    def __init__(self, plan: Plan, paths: EditionPaths, settings: frozenset[str]) -> None:
        self._plan = plan
        self._dialect = registry.dialect(plan.dialect)
        self._paths = paths
        self._settings = settings
        self._runs = paths.runs
        self._json: dict[int, str] = {}

    def facts(self, run: Start) -> Facts:
        cell = run.cell
        return Facts(
            run.run_id,
            cell.arm.name,
            cell.task.name,
            run.seed,
            run.rollout,
            run.attempt,
            cell.arm.flags,
            self._plan.base,
            self._runs / run.run_id,
        )

    def begin(self, run: Start, facts: Facts, command: Command, started_at: float) -> None:
        """Write `meta.json` now where the dialect wants it from the start; elsewhere it is written with the result."""
        if self._dialect.live_files:
            write_meta(facts.path, self._meta(run, command, started_at))

    def end(self, run: Start, facts: Facts, result: Result, command: Command | None = None) -> Result:
        """Take in what the run wrote into its directory, and let the directory say what it is.

        Whatever lies there was written by the run: none of it may end the scheduler.
        """
        if result.status == "failed" and self._disk_is_full():
            result = replace(result, status="infra_error", error=_noted(result.error, "the disk is full"))
        if not facts.path.exists():
            return result
        if command is None and (command := self._equivalent(run, facts)) is not None:
            result = replace(result, exit_code=_EXIT_CODES.get(result.status))
        if result.series is None:
            result = self._take_in_series(facts, result)
        try:
            write_meta(facts.path, {**self._meta(run, command, result.started_at or 0.0), **_ending(result)})
        except (OSError, ValueError) as error:
            result = replace(result, error=_noted(result.error, f"meta.json could not be written: {error}"))
        return result

    def _equivalent(self, run: Start, facts: Facts) -> Command | None:
        """The command that an in-process run stands for, when its workload knows one."""
        workload = registry.workload(self._plan.experiment.workload)
        if not isinstance(workload, Equivalent):
            return None
        try:
            return workload.equivalent(workload.Params.model_validate(dict(run.cell.params)), facts)
        except UsageError:  # why there is none is why the run failed
            return None

    def _take_in_series(self, facts: Facts, result: Result) -> Result:
        steps = facts.path / SERIES
        if not steps.exists():
            return result
        try:
            series, _ = read_jsonl(steps)
            return replace(result, series=series.block() if series else None)
        except Exception as error:
            return replace(result, error=_noted(result.error, f"{SERIES} cannot be read: {error}"))

    def _disk_is_full(self) -> bool:
        """A run that cannot write fails, and it is not the arm's doing."""
        try:
            space = os.statvfs(self._paths.directory)
        except OSError:
            return False
        return space.f_bavail * space.f_frsize < _FULL

    def _meta(self, run: Start, command: Command | None, started_at: float) -> dict[str, Any]:
        arm = run.cell.arm
        params = {key: value for key, value in run.cell.params.items() if key not in self._settings}
        return {
            "run_id": run.run_id,
            "experiment": self._paths.experiment,
            "edition": self._paths.name,
            "workload": self._plan.experiment.workload,
            "arm": arm.name,
            "task": run.cell.task.name,
            "seed": run.seed,
            "rollout": run.rollout,
            "attempt": run.attempt,
            "params": self._dialect.meta(params, run),
            "ablation_name": arm.ablation or "baseline",
            "ablation_flags": list(arm.flags),
            "cmd": list(command.argv) if command else None,
            "cwd": str(command.cwd) if command else None,
            "start_time_unix_s": started_at,
        }

    def params_json(self, cell: Cell) -> str:
        """The user's parameters, without the settings that say how to run."""
        if cell.index not in self._json:
            if len(self._json) > 1000:
                self._json.clear()
            given = {key: value for key, value in cell.params.items() if key not in self._settings}
            self._json[cell.index] = json.dumps(given)
        return self._json[cell.index]
