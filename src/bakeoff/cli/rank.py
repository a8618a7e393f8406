"""`bakeoff rank`: many arms on many tasks, in order, with what that order is worth."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.options import FILE, json_option, root_option
from bakeoff.cli.questions import ask, column_options, columns, print_answer, question_options
from bakeoff.verdicts.question import Rank


@click.command()
@click.argument("names", nargs=-1, metavar="[SOURCE]...")
@click.option("--metric", metavar="NAME", help="What to rank by (default: the experiment's metric).")
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Only these arms; can be repeated.")
@question_options(
    Rank, "summary", "window", "last", "direction", "normalize", "target", "failure_score", "copies", "ks", "success",
    "level", "resamples", "seed",
)  # fmt: skip
@click.option("--output", "--plot", "output", type=FILE, metavar="FILE", help="Draw the performance profiles into FILE: .png, .svg or .html.")  # fmt: skip
@column_options
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, names: tuple[str, ...], output: Path | None, root: Path, as_json: bool, **options: Any
) -> None:
    """Rank all arms over all tasks.

    IQM, mean and optimality gap with stratified bootstrap intervals, the chance that a run of one arm beats one of
    another, average ranks with a critical difference, Bradley-Terry strengths, and pass@k / pass^k for successes.
    SOURCE is an experiment (default: the newest), a table (.csv, .tsv, .parquet, .jsonl), or directories of runs.
    Exits with 3 when runs are missing or still open.
    """
    from bakeoff.results.sources import open_results
    from bakeoff.verdicts.answer import answer

    with closing(open_results(names, root, columns(options))) as results:
        ranking = answer(results, ask(Rank, options))
    if output is not None:
        from bakeoff.web.arms import profiles
        from bakeoff.web.drawing import write

        write(profiles(ranking.ranking), output)
    print_answer(ranking, as_json)
    if output is not None and not as_json:
        click.echo(f"plot: {output}")
    ctx.exit(ranking.exit_code)
