"""`bakeoff summarize`: what each arm did on each task, in one table."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.options import json_option, root_option
from bakeoff.cli.questions import ask, print_answer, question_options
from bakeoff.verdicts.question import Summarize


@click.command()
@click.argument("name", metavar="[EXPERIMENT]", default="latest")
@click.option("--latest", is_flag=True, help="The newest edition (the default).")
@click.option("--rollout", metavar="STAMP", help="Another edition, such as 20250824__12-34-56.")
@question_options(Summarize, "goal")
@root_option
@json_option
def command(name: str, latest: bool, rollout: str | None, root: Path, as_json: bool, **options: Any) -> None:
    """Show attempts, mean scores with intervals, passes, tokens, cost and time, by task and arm.

    Describes what was seen; `bakeoff compare` decides which arm is better.
    """
    from bakeoff.results.sources import open_results
    from bakeoff.verdicts.answer import answer

    if latest and rollout:
        raise click.UsageError("--latest and --rollout name two editions; give one")
    with closing(open_results([edition_name(name, rollout)], root)) as results:
        print_answer(answer(results, ask(Summarize, options)), as_json)


def edition_name(name: str, rollout: str | None) -> str:
    """EXPERIMENT and --rollout as one name; stamps may be written as the task benchmark writes them."""
    if rollout is None:
        return name
    from bakeoff.workloads.tasks.rollouts import edition_of

    return f"{name}/{edition_of(rollout)}"
