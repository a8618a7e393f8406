"""`bakeoff validate`: check an experiment file without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import listed, print_facts, print_json
from bakeoff.cli.options import json_option, only_experiment_file, set_option
from bakeoff.engine.session import Options, check_plan
from bakeoff.errors import Problem, SpecError, UsageError
from bakeoff.spec.experiment import ExperimentFile
from bakeoff.spec.load import load_plan
from bakeoff.spec.registry import NATIVE

MOST_NAMES = 12


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--schema", is_flag=True, help="Print the JSON Schema of experiment files, for editors, and check nothing."
)
@set_option
@json_option
@click.pass_context
def command(ctx: click.Context, file: Path | None, schema: bool, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check FILE and show what it would run, or everything that is wrong with it.

    In a directory with one experiment file, FILE may be left out. Exits with 0 when the file can be run and with 2 when
    it cannot.
    """
    if schema:
        print_json(ExperimentFile.json_schema())
        return
    file = file or only_experiment_file()
    try:
        plan = load_plan(file, overrides)
        notes = (*plan.notes, *check_plan(plan, Options(Path(), source=file)))
    except UsageError as error:
        if not as_json:
            raise
        found = error.problems if isinstance(error, SpecError) else [Problem("", str(error))]
        problems = [
            {"key": problem.key, "line": problem.line, "message": problem.message, "fix": problem.fix or None}
            for problem in found
        ]
        print_json({"valid": False, "file": file, "problems": problems})
        ctx.exit(2)
    experiment = plan.experiment
    facts: dict[str, Any] = {
        "name": experiment.name,
        "workload": experiment.workload,
        "dialect": plan.dialect,
        "arms": [arm.name for arm in plan.arms],
        "tasks": [task.name for task in plan.tasks],
        "seeds": experiment.seeds,
        "rollouts": experiment.rollouts,
        "runs": len(plan),
        "metric": experiment.analysis.metric,
        "notes": list(notes),
    }
    if as_json:
        print_json({"valid": True, "file": file, **facts})
        return
    click.echo(f"{file} is valid")
    other_tool = "" if plan.dialect == NATIVE.name else f" ({plan.dialect} dialect)"
    shown = {
        "name": experiment.name,
        "workload": experiment.workload + other_tool,
        "arms": listed(facts["arms"], MOST_NAMES),
        "tasks": listed(facts["tasks"], MOST_NAMES),
        "seeds": listed(experiment.seeds, MOST_NAMES),
        "rollouts": str(experiment.rollouts),
        "runs": str(len(plan)),
        "metric": experiment.analysis.metric or "",
    }
    print_facts({key: value for key, value in shown.items() if value})
    for note in notes:
        click.echo(f"note: {note}")
