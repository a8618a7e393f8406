"""`bakeoff summarize`: what each arm did on each task, in one table."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.options import edition_options, json_option, root_option
from bakeoff.cli.questions import ask, print_answer, question_options
from bakeoff.verdicts.question import Summarize


@click.command()
@edition_options
@click.option("--metric", metavar="NAME", help="The score (default: the experiment's metric).")
@question_options(Summarize, "summary", "window", "last", "direction", "failure_score", "bounds", "goal")
@root_option
@json_option
def command(name: str, root: Path, as_json: bool, **options: Any) -> None:
    """Show attempts, mean scores with intervals, passes, tokens, cost and time, by task and arm.

    Describes what was seen; `bakeoff compare` decides which arm is better.
    """
    from bakeoff.results.sources import open_results
    from bakeoff.verdicts.answer import answer

    with closing(open_results([name], root)) as results:
        print_answer(answer(results, ask(Summarize, options)), as_json)
