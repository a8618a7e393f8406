"""`bakeoff ls`: experiments and editions, newest first."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from bakeoff.cli.display import TALLY, ago, edition_facts, print_json, print_table
from bakeoff.cli.options import find_edition, json_option, root_option
from bakeoff.records.damage import explained
from bakeoff.records.layout import EditionPaths, all_editions, editions
from bakeoff.records.recorded import Recorded
from bakeoff.text import printable


@click.command()
@click.argument("experiment", required=False)
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, experiment: str | None, root: Path, as_json: bool) -> None:
    """List experiments with their newest edition, or every edition of EXPERIMENT.

    Newest first. Missing runs have no outcome: not run yet, cancelled, or lost to an infrastructure failure.
    Exits with 1 when an edition cannot be read.
    """
    if experiment:
        listed = editions(find_edition(experiment, root).directory.parent)[::-1]
    else:
        newest: dict[str, EditionPaths] = {}
        for paths in all_editions(root.absolute()):
            newest.setdefault(paths.experiment, paths)
        listed = list(newest.values())
    lines, broken = [], []
    for paths in listed:
        try:
            with closing(Recorded.open(paths)) as edition:
                lines.append(edition_facts(edition))
        except Exception as error:  # the others are listed all the same
            broken.append(str(explained(error, [paths])))
    if as_json:
        print_json(lines)
    elif lines:
        headers = ["experiment", "edition", "state", "age", "runs", "ok", "failed", "missing"]
        rows = []
        for line in lines:
            names = [line["experiment"], line["edition"], line["state"], ago(line["created_at"]).removesuffix(" ago")]
            rows.append([*names, *(str(line[count]) for count in TALLY)])
        print_table(headers, rows, right=headers[4:])
    elif not broken:
        click.echo(f"no experiment has been run under {root.absolute()}", err=True)
    for message in broken:
        click.echo(f"error: {printable(message)}", err=True)
    ctx.exit(1 if broken else 0)
