"""What both kinds of local runs have in common: where they write, `meta.json`, and taking in `metrics.jsonl`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from bakeoff.engine.context import Facts
from bakeoff.engine.executors.base import Start
from bakeoff.records.edition import Result
from bakeoff.records.layout import EditionPaths
from bakeoff.records.rundir import SERIES, write_meta
from bakeoff.records.series import read_jsonl
from bakeoff.spec.plan import Cell, Plan
from bakeoff.spec.workload import Command


class Finisher:
    def __init__(self, plan: Plan, paths: EditionPaths, settings: frozenset[str]) -> None:
        self._plan = plan
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
        """The sweep runner's users find `meta.json` from the start; elsewhere it is written with the result."""
        if self._plan.dialect == "sweep":
            write_meta(facts.path, self._meta(run, command, started_at))

    def end(self, run: Start, facts: Facts, result: Result, command: Command | None = None) -> Result:
        """Take in what the run wrote into its directory, and let the directory say what it is."""
        if not facts.path.exists():
            return result
        steps = facts.path / SERIES
        if result.series is None and steps.exists():
            series, _ = read_jsonl(steps)
            result = replace(result, series=series.block() if series else None)
        meta = self._meta(run, command, result.started_at or 0.0)
        started, ended = result.started_at, result.ended_at
        meta |= {
            "end_time_unix_s": ended,
            "wall_time_s": round(ended - started, 6) if ended is not None and started is not None else None,
            "exit_code": result.exit_code,
            "status": result.status,
            "error": result.error,
            "metrics": dict(result.metrics),
        }
        write_meta(facts.path, meta)
        return result

    def _meta(self, run: Start, command: Command | None, started_at: float) -> dict[str, Any]:
        arm = run.cell.arm
        params = {key: value for key, value in run.cell.params.items() if key not in self._settings}
        if self._plan.dialect == "sweep":
            params["seed"] = run.seed
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
            "params": params,
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
