"""`bakeoff power`: how many runs an effect needs, and what the runs at hand can detect."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.options import FILE, json_option, root_option
from bakeoff.cli.questions import ask, column_options, columns, print_answer, question_options
from bakeoff.errors import UsageError
from bakeoff.verdicts.question import Power


@click.command()
@click.argument("names", nargs=-1, metavar="[SOURCE]...")
@click.option("--metric", metavar="NAME", help="Metric of the earlier runs (default: the experiment's own).")
@question_options(
    Power, "effect", "n", "sd", "rate", "discordant", "paired", "power", "comparisons", "detect", "alpha", "control", "candidate", "summary",
    "window", "tasks", "seeds", "cluster", "failure_score", "copies", "confidence", "budget", "cost_task", "cost_seed", "cost_rollout", "most_tasks",
    "simulate", "replicates", "seed",
)  # fmt: skip
@click.option("--output", "--plot", "output", type=FILE, metavar="FILE", help="Draw the smallest detectable effect against N into FILE: .png, .svg or .html.")  # fmt: skip
@column_options
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, names: tuple[str, ...], output: Path | None, root: Path, as_json: bool, **options: Any
) -> None:
    """Plan: how many runs a target effect needs, and which effect the runs at hand can detect.

    From earlier runs (two arms of an experiment, by default the newest, of a table or of a campaign), for the power that plans from such runs have on
    average, with the spread as seen and its upper limit beside it; from numbers (--sd, --effect, --n); or for success rates (--rate). The effect that they happened to
    show is never used. Exits with 3 when the data cannot answer.
    """
    from bakeoff.records.layout import all_editions
    from bakeoff.results.sources import open_results
    from bakeoff.verdicts.answer import answer

    paired = options.pop("paired")
    question = ask(Power, options, paired=paired, names=names)
    if output is not None and question.rate is not None:
        raise UsageError("--output does not go with --rate: it needs a spread or earlier runs")
    from_numbers = question.sd is not None or question.rate is not None
    if not names and not from_numbers and not all_editions(root):
        raise UsageError(
            "plan from one of these: a SOURCE of earlier runs, --sd, or --rate; no experiment has been run here"
        )
    earlier = names or not from_numbers
    opened = closing(open_results(names, root, columns(options))) if earlier else nullcontext()
    with opened as results:
        plan = answer(results, question)
    more: dict[str, Any] = {}
    if output is not None and plan.plan is not None:
        from bakeoff.web.comparisons import power_by_units
        from bakeoff.web.drawing import write

        write(power_by_units(plan.plan), output)
        more["plot"] = output
    print_answer(plan, as_json, **more)
    if more and not as_json:
        click.echo(f"plot: {output}")
    ctx.exit(plan.exit_code)
