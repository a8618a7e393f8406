"""`bakeoff ls`: experiments and editions, newest first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import ago, print_json, print_table
from bakeoff.cli.options import json_option, root_option
from bakeoff.errors import BakeoffError
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths, all_editions, editions, find_edition
from bakeoff.records.lease import is_held
from bakeoff.records.overview import Tally

NUMBERS = ("planned", "succeeded", "failed", "missing")


@click.command()
@click.argument("experiment", required=False)
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, experiment: str | None, root: Path, as_json: bool) -> None:
    """List experiments with their newest edition, or every edition of EXPERIMENT.

    Newest first. Missing runs are those without an outcome: not run yet, cancelled, or infrastructure failures.
    """
    listed = _editions_of(experiment, root) if experiment else _newest_of_each(root)
    lines, broken = [], []
    for paths in listed:
        try:
            lines.append(describe(paths))
        except BakeoffError as error:
            broken.append(str(error))
    if as_json:
        print_json(lines)
    elif lines:
        _print(lines)
    elif not broken:
        click.echo(f"no experiment has been run under {root.absolute()}", err=True)
    for message in broken:
        click.echo(f"error: {message}", err=True)
    ctx.exit(1 if broken else 0)


def _editions_of(experiment: str, root: Path) -> list[EditionPaths]:
    directory = find_edition(experiment, root).directory.parent
    return editions(directory)[::-1]


def _newest_of_each(root: Path) -> list[EditionPaths]:
    newest: dict[str, EditionPaths] = {}
    for paths in all_editions(root.absolute()):
        newest.setdefault(paths.experiment, paths)
    return list(newest.values())


def describe(paths: EditionPaths) -> dict[str, Any]:
    """One edition as `ls` shows it."""
    edition = Edition.open(paths)
    try:
        facts, tally = edition.facts(), Tally.of(edition.counts())
    finally:
        edition.close()
    state = "running" if is_held(paths.lease) else "complete" if facts["complete"] else "unfinished"
    return {
        "experiment": paths.experiment,
        "edition": paths.name,
        "state": state,
        "created_at": facts["created_at"],
        **{name: getattr(tally, name) for name in NUMBERS},
        "directory": paths.directory,
    }


def _print(lines: list[dict[str, Any]]) -> None:
    headers = ["experiment", "edition", "state", "age", "runs", "ok", "failed", "missing"]
    rows = [
        [
            line["experiment"],
            line["edition"],
            line["state"],
            ago(line["created_at"]).removesuffix(" ago"),
            *(str(line[n]) for n in NUMBERS),
        ]
        for line in lines
    ]
    print_table(headers, rows, right=headers[4:])
