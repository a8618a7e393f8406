"""`bakeoff run --dry-run`: the plan as it would be executed. Nothing is created."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import listed, print_facts, print_json, print_table
from bakeoff.engine.node.context import Context
from bakeoff.engine.session import Options, resumed
from bakeoff.records.layout import experiment_directory
from bakeoff.records.run import Attempt
from bakeoff.spec import registry
from bakeoff.spec.plan import Plan
from bakeoff.spec.plan import facts as run_facts
from bakeoff.spec.workload import FINISHED, CommandWorkload, Equivalent, Status

MOST_RUNS, MOST_NAMES = 20, 8


def show_plan(plan: Plan, options: Options, *, as_json: bool, verbose: bool) -> None:
    """Print the plan and what is done of it. Raises what `run` would raise before the first run starts."""
    experiment = plan.experiment
    directory = experiment_directory(options.root, experiment.name) / "<edition>"
    statuses: dict[str, Status] = {}
    edition = resumed(plan, options)
    if edition is not None:
        with closing(edition):
            directory, statuses = edition.paths.directory, {run.run_id: run.status for run in edition.runs()}
    states: Counter[str] = Counter()
    shown: list[dict[str, Any]] = []
    for row in planned_runs(plan, options, statuses, directory):
        states[row["state"]] += 1
        if as_json or verbose or len(shown) < MOST_RUNS:
            shown.append(row)
    planned = states.total()
    facts: dict[str, Any] = {
        "experiment": experiment.name,
        "workload": experiment.workload,
        "edition": edition.paths.name if edition else None,
        "arms": [arm.name for arm in plan.arms],
        "tasks": [task.name for task in plan.tasks],
        "seeds": experiment.seeds,
        "planned": planned,
        "done": states["done"],
        "to_run": states["will run"],
    }
    if as_json:
        print_json({**facts, "runs": shown})
        return
    left_out = f", {states['left out']} left out" if states["left out"] else ""
    print_facts(
        {
            "experiment": experiment.name,
            "workload": experiment.workload,
            "edition": facts["edition"] or "a new one",
            **{axis: listed(facts[axis], MOST_NAMES) for axis in ("arms", "tasks", "seeds")},
            "runs": f"{planned} planned, {facts['done']} done, {facts['to_run']} to run{left_out}",
        }
    )
    click.echo()
    print_table(["run", "state", "command"], [[row["run_id"], row["state"], row["command"] or ""] for row in shown])
    if planned > len(shown):
        click.echo(f"... and {planned - len(shown)} more; -v shows all")
    click.echo("\nnothing was created", err=True)


def planned_runs(
    plan: Plan, options: Options, statuses: Mapping[str, Status], directory: Path
) -> Iterator[dict[str, Any]]:
    """One row for each run, as `--json` prints it. `command` is quoted for a shell, None for runs inside a worker."""
    kind = plan.experiment.workload
    workload = registry.workload(kind) if kind in registry.kinds() else None
    cell, params = -1, None
    for run in plan:
        known = {**run_facts(run.cell, run.seed, run.rollout), "run_id": run.run_id}
        status = statuses.get(run.run_id, "planned")
        chosen = all(test(known) for test in options.only)
        path = directory / "runs" / run.run_id
        command = None
        if isinstance(workload, CommandWorkload | Equivalent):
            if cell != run.cell.index:  # validating once for each cell is what makes large plans fast
                cell, params = run.cell.index, workload.Params.model_validate(dict(run.cell.params))
            context = Context(Attempt.of(run), plan.base, path)
            build = workload.command if isinstance(workload, CommandWorkload) else workload.equivalent
            command = shlex.join(build(params, context).argv)
        yield {
            "run_id": run.run_id,
            "arm": run.cell.arm.name,
            "task": run.cell.task.name,
            "seed": run.seed,
            "rollout": run.rollout,
            "status": status,
            "state": "done" if status in FINISHED else "will run" if chosen else "left out",
            "run_dir": str(path),
            "command": command,
        }
