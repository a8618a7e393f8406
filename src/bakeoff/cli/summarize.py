"""`bakeoff summarize`: what each arm did on each task, in one table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli import display
from bakeoff.cli.options import json_option, root_option
from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from bakeoff.version import __version__

if TYPE_CHECKING:
    from bakeoff.verdicts.summarize import Summary, Tally


@click.command()
@click.argument("name", metavar="[EXPERIMENT]", default="latest")
@click.option("--latest", is_flag=True, help="The newest edition. This is what is taken anyway.")
@click.option("--rollout", metavar="STAMP", help="Another edition, such as 20250824__12-34-56.")
@click.option("--goal", type=float, help="A try passes at this score; else at the best possible one.")
@root_option
@json_option
def command(name: str, latest: bool, rollout: str | None, goal: float | None, root: Path, as_json: bool) -> None:
    """Show tries, mean scores with intervals, passes, tokens, cost and time, by task and arm.

    Says what was seen; `bakeoff compare` says which arm is better.
    """
    from bakeoff.verdicts.summarize import summarize

    if latest and rollout:
        raise click.UsageError("--latest and --rollout name two editions; give one")
    edition = Edition.open(find_edition(edition_name(name, rollout), root))
    try:
        summary = summarize(edition, goal=goal)
    finally:
        edition.close()
    if as_json:
        display.print_json({**asdict(summary), "bakeoff": __version__})
    else:
        _show(summary)


def edition_name(name: str, rollout: str | None) -> str:
    """EXPERIMENT and --rollout as one name; stamps may be written as the task benchmark writes them."""
    if rollout is None:
        return name
    from bakeoff.workloads.tasks.rollouts import edition_of

    return f"{name}/{edition_of(rollout)}"


def _show(summary: Summary) -> None:
    click.echo(f"{summary.source}: {summary.metric}; a try passes at {display.number(summary.goal)}")
    click.echo()
    heads = ["task", "arm", "tries", "mean", "95 % interval", "best", "passed", *_used_heads(summary)]
    rows = [[one.task or "", *_cells(one, summary)] for one in summary.by_task]
    display.print_table(heads, rows, right=heads[2:])
    click.echo()
    rows = [_cells(one, summary) for one in summary.by_arm]
    display.print_table(heads[1:], rows, right=heads[2:], title="all tasks, each with the same weight")
    if any(one.passed for one in summary.by_arm):
        click.echo()
        _show_passing(summary)


def _show_passing(summary: Summary) -> None:
    heads = ["arm", "k", "pass@k", "pass^k", "tasks"]
    rows = [
        [one.arm, str(one.k), display.number(one.at.value), display.number(one.all.value), str(one.tasks)]
        for one in summary.passing
    ]
    display.print_table(heads, rows, right=heads[1:], title="at least one of k tries passes; all k pass")


def _used_heads(summary: Summary) -> list[str]:
    from bakeoff.verdicts.summarize import USED

    return [name for name in USED if any(name in one.used for one in summary.by_arm)]


def _cells(one: Tally, summary: Summary) -> list[str]:
    interval = display.NOTHING if one.low is None else f"{display.number(one.low)} to {display.number(one.high)}"
    lost = [f"{one.failed} failed"] * bool(one.failed) + [f"{one.missing} missing"] * bool(one.missing)
    tries = f"{one.tries} ({', '.join(lost)})" if lost else str(one.tries)
    used: list[str] = [_amount(name, one.used.get(name)) for name in _used_heads(summary)]
    return [one.arm, tries, display.number(one.mean), interval, display.number(one.best), str(one.passed), *used]


def _amount(name: str, value: float | None) -> Any:
    if value is None:
        return display.NOTHING
    return display.duration(value) if name == "seconds" else display.number(value)
