"""`bakeoff import`: a directory from elsewhere becomes an edition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import json_option, root_option
from bakeoff.errors import BakeoffError
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths, editions, is_edition
from bakeoff.records.overview import Tally
from bakeoff.records.rundir import META
from bakeoff.results.importing import copy_edition, import_results, read_directory
from bakeoff.results.table import Results


@click.command("import")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--name", help="The experiment's name; the directory's name when left out.")
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, directory: Path, name: str | None, root: Path, as_json: bool) -> None:
    """Copy the results in DIRECTORY into a new edition. The directory itself is only read.

    Understood are an edition of ours, the sweep runner's directories, and directories that each hold one run's
    metrics.json, metrics.jsonl or out/summary.csv, named after arm and seed such as full_s3. What cannot be read is
    listed and left out, and the exit code is 1.
    """
    directory = directory.resolve()
    ours = EditionPaths(directory) if is_edition(directory) else next(reversed(editions(directory)), None)
    if ours is not None:
        edition, results = Edition.open(copy_edition(ours, name, root)), Results([], "")
    else:
        results = read_directory(directory)
        for problem in results.problems:
            click.echo(f"cannot be read: {problem}", err=True)
        if not results.rows:
            raise BakeoffError(f"{directory}: nothing in it could be read, so nothing was imported")
        edition = import_results(results, name or directory.name, root, directory)
    try:
        _report(edition, results, as_json)
    finally:
        edition.close()
    ctx.exit(1 if results.problems else 0)


def _report(edition: Edition, results: Results, as_json: bool) -> None:
    paths, tally = edition.paths, Tally.of(edition.counts())
    facts: dict[str, Any] = {
        "experiment": paths.experiment,
        "edition": paths.name,
        "directory": paths.directory,
        **{name: getattr(tally, name) for name in ("planned", "succeeded", "failed", "missing")},
        "problems": list(results.problems),
    }
    if as_json:
        print_json(facts)
        return
    click.echo(
        f"imported {tally.planned} runs into {paths.experiment}/{paths.name}: "
        f"{tally.succeeded} succeeded, {tally.failed} failed, {tally.missing} missing"
    )
    if any(row.directory is not None and not (row.directory / META).exists() for row in results.rows):
        click.echo("No exit codes were recorded: runs with metrics count as succeeded.")
    click.echo(f"{paths.directory}")
