"""`bakeoff variance`: how precise is the mean at N runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.options import FILE, json_option, root_option
from bakeoff.cli.questions import ask, column_options, columns, print_answer, question_options
from bakeoff.records.layout import LATEST
from bakeoff.results import sources
from bakeoff.results.importers import ONLINE
from bakeoff.results.table import Results
from bakeoff.verdicts.question import Variance


@click.command()
@click.argument("runs", nargs=-1, metavar="[SOURCE[:ARM] | RUN...]")
@click.option("--metric", metavar="NAME", help="What to look at (default: the experiment's metric; for single runs overview/reward).")  # fmt: skip
@question_options(Variance, "precision", "window", "power", "alpha", "failure_score", "copies")
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Only this arm of the experiment; can be repeated.")
@click.option("--output", "--plot", "output", type=FILE, metavar="FILE", help="Draw both curves into FILE: .png, .svg or .html.")  # fmt: skip
@column_options
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, runs: tuple[str, ...], output: Path | None, root: Path, as_json: bool, **options: Any
) -> None:
    """Say how precise the mean of a metric is at N runs, and how many runs make it precise enough.

    Takes an experiment (default: the newest), a campaign or a table (one arm after a colon, or all), or single runs: ids,
    directories with metrics.jsonl, or W&B runs. A metric that was logged by step is looked at as its area under the curve
    and as its slope; otherwise as it is. Exits with 3 when nothing can be said as a share of the mean, because the mean may be 0.
    """
    from bakeoff.verdicts.answer import answer

    opened, arm = _open(runs, root, columns(options))
    arms = (*options["arms"], *([arm] if arm else []))
    with closing(opened) as results:
        precision = answer(results, ask(Variance, {**options, "arms": arms}))
    if output is not None:
        from bakeoff.web.comparisons import precision_by_units
        from bakeoff.web.drawing import write

        write(precision_by_units(precision.precisions), output)
    print_answer(precision, as_json, plot=output)
    if output is not None and not as_json:
        click.echo(f"plot: {output}")
    ctx.exit(precision.exit_code)


def _open(names: tuple[str, ...], root: Path, columns: dict[str, Any]) -> tuple[Results, str]:
    """One source, with the arm that is named after a colon; or runs that are named one by one, as one arm."""
    places = sources.expand(names) or [LATEST]
    if len(places) > 1:
        return sources.open_one_arm(places, root), ""
    name, colon, arm = places[0].rpartition(":")
    whole = not colon or Path(places[0]).exists() or places[0].startswith(ONLINE)
    results = sources.open_results([places[0] if whole else name], root, columns)
    if not results.editions() and len(results.rows) == 1:
        results = sources.open_one_arm(places, root)
    return results, "" if whole else arm
