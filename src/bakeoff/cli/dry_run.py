"""`bakeoff run --dry-run`: the plan as it would be executed. Nothing is created."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import print_facts, print_json, print_table
from bakeoff.engine.node.context import Context
from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths, editions, experiment_directory
from bakeoff.records.run import Attempt
from bakeoff.spec import registry
from bakeoff.spec.plan import Plan, Run, facts
from bakeoff.spec.select import Test
from bakeoff.spec.workload import FINISHED, CommandWorkload, Equivalent

_SHOWN = 20


def show_plan(plan: Plan, root: Path, only: Sequence[Test], *, fresh: bool, as_json: bool, verbose: bool) -> int:
    """Exit code 0, or 1 when nothing is planned."""
    edition = _edition(plan, root, fresh)
    try:
        return _show(plan, edition, root, only, as_json=as_json, verbose=verbose)
    finally:
        if edition is not None:
            edition.close()


def _show(
    plan: Plan, edition: Edition | None, root: Path, only: Sequence[Test], *, as_json: bool, verbose: bool
) -> int:
    statuses: dict[str, str] = {run.run_id: run.status for run in edition.runs()} if edition else {}
    directory = edition.paths.directory if edition else experiment_directory(root, plan.experiment.name) / "<edition>"
    rows = _rows(plan, statuses, only, directory)
    if as_json:
        listed = list(rows)
        print_json(
            {
                "experiment": plan.experiment.name,
                "workload": plan.experiment.workload,
                "edition": edition.paths.name if edition else None,
                "arms": [arm.name for arm in plan.arms],
                "tasks": [task.name for task in plan.tasks],
                "seeds": plan.experiment.seeds,
                "planned": len(listed),
                "done": sum(row["state"] == "done" for row in listed),
                "to_run": sum(row["state"] == "will run" for row in listed),
                "runs": listed,
            }
        )
        return 0 if listed else 1
    return _print(plan, edition, rows, verbose)


def _edition(plan: Plan, root: Path, fresh: bool) -> Edition | None:
    """The edition that `run` would resume."""
    known: list[EditionPaths] = editions(experiment_directory(root, plan.experiment.name))
    if fresh or not known:
        return None
    try:
        edition = Edition.open(known[-1])
    except UsageError:
        return None
    if edition.complete and plan.experiment.editions == "repeat":
        edition.close()
        return None
    return edition


def _rows(plan: Plan, statuses: dict[str, str], only: Sequence[Test], directory: Path) -> Iterator[dict[str, Any]]:
    commands = _Commands(plan, directory)
    for run in plan:
        known = {**facts(run.cell, run.seed, run.rollout), "run_id": run.run_id}
        status = statuses.get(run.run_id, "planned")
        chosen = all(test(known) for test in only)
        state = "done" if status in FINISHED else "will run" if chosen else "left out"
        yield {
            "run_id": run.run_id,
            "arm": run.cell.arm.name,
            "task": run.cell.task.name,
            "seed": run.seed,
            "rollout": run.rollout,
            "status": status,
            "state": state,
            "run_dir": str(directory / "runs" / run.run_id),
            "command": commands.of(run),
        }


class _Commands:
    """What each run would execute, as a shell would take it."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        kind = plan.experiment.workload
        self._workload = registry.workload(kind) if kind in registry.kinds() else None
        self._plan = plan
        self._runs = directory / "runs"
        self._params: tuple[int, Any] = (-1, None)

    def of(self, run: Run) -> str | None:
        if not isinstance(self._workload, CommandWorkload | Equivalent):
            return None
        cell = run.cell
        if self._params[0] != cell.index:
            self._params = (cell.index, self._workload.Params.model_validate(dict(cell.params)))
        known = Context(Attempt.of(run), self._plan.base, self._runs / run.run_id)
        if isinstance(self._workload, CommandWorkload):
            return shlex.join(self._workload.command(self._params[1], known).argv)
        return shlex.join(self._workload.equivalent(self._params[1], known).argv)


def _print(plan: Plan, edition: Edition | None, rows: Iterator[dict[str, Any]], verbose: bool) -> int:
    counts = {"done": 0, "will run": 0, "left out": 0}
    shown: list[dict[str, Any]] = []
    for row in rows:
        counts[row["state"]] += 1
        if verbose or len(shown) < _SHOWN:
            shown.append(row)
    seeds = plan.experiment.seeds
    print_facts(
        {
            "experiment": plan.experiment.name,
            "workload": plan.experiment.workload,
            "edition": edition.paths.name if edition else "a new one",
            "arms": _listed([arm.name for arm in plan.arms]),
            "tasks": _listed([task.name for task in plan.tasks]),
            "seeds": _listed([str(seed) for seed in seeds]),
            "runs": f"{sum(counts.values())} planned, {counts['done']} done, {counts['will run']} to run"
            + (f", {counts['left out']} left out" if counts["left out"] else ""),
        }
    )
    click.echo()
    print_table(["run", "state", "command"], [[row["run_id"], row["state"], row["command"] or ""] for row in shown])
    hidden = sum(counts.values()) - len(shown)
    if hidden:
        click.echo(f"... and {hidden} more; -v shows all")
    click.echo("\nnothing was created", err=True)
    return 0 if sum(counts.values()) else 1


def _listed(names: list[str]) -> str:
    return f"{len(names)}: {', '.join(names[:8])}" + (", ..." if len(names) > 8 else "")
