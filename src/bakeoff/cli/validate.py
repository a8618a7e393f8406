"""`bakeoff validate`: check an experiment file without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bakeoff.cli import display
from bakeoff.cli.options import json_option
from bakeoff.errors import SpecError
from bakeoff.spec.load import load_plan
from bakeoff.spec.plan import Plan

MOST_NAMES = 12


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the file, such as seeds=5; can be repeated.")  # fmt: skip
@json_option
@click.pass_context
def command(ctx: click.Context, file: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check FILE and say what it would run, or everything that is wrong with it.

    Exits 0 when the file can be run and 2 when it cannot.
    """
    try:
        plan = load_plan(file, overrides)
    except SpecError as error:
        if not as_json:
            raise
        display.print_json(
            {"valid": False, "file": file, "problems": [_problem(problem) for problem in error.problems]}
        )
        ctx.exit(2)
    facts = summary(plan)
    display.print_json({"valid": True, "file": file, **facts}) if as_json else _show(file, facts)


def _problem(problem: Any) -> dict[str, Any]:
    return {"key": problem.key, "line": problem.line, "message": problem.message, "fix": problem.fix or None}


def summary(plan: Plan) -> dict[str, Any]:
    experiment = plan.experiment
    return {
        "name": experiment.name,
        "workload": experiment.workload,
        "dialect": plan.dialect,
        "arms": [arm.name for arm in plan.arms],
        "tasks": [task.name for task in plan.tasks],
        "seeds": experiment.seeds,
        "rollouts": experiment.rollouts,
        "runs": len(plan),
        "metric": experiment.analysis.metric,
        "notes": list(plan.notes),
    }


def _show(file: Path, facts: dict[str, Any]) -> None:
    click.echo(f"{file} is valid")
    display.print_facts(
        {
            "name": facts["name"],
            "workload": facts["workload"] + ("" if facts["dialect"] == "native" else f" ({facts['dialect']} dialect)"),
            "arms": _listed(facts["arms"]),
            "tasks": _listed(facts["tasks"]),
            "seeds": _listed(facts["seeds"]),
            "rollouts": str(facts["rollouts"]),
            "runs": str(facts["runs"]),
            **({"metric": facts["metric"]} if facts["metric"] else {}),
        }
    )
    for note in facts["notes"]:
        click.echo(f"note: {note}")


def _listed(names: list[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:MOST_NAMES])
    return f"{len(names)}: {shown}" + (" ..." if len(names) > MOST_NAMES else "")
