"""`bakeoff import`: copy results from elsewhere into a new edition."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from bakeoff.cli.display import TALLY, edition_facts, print_json
from bakeoff.cli.options import json_option, root_option
from bakeoff.errors import BakeoffError
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths, editions, is_edition
from bakeoff.records.rundir import META
from bakeoff.results.importing import copy_edition, import_results, read_directory
from bakeoff.results.table import Results


@click.command("import")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--name", help="The experiment's name (default: the directory's name).")
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, directory: Path, name: str | None, root: Path, as_json: bool) -> None:
    """Copy the results in DIRECTORY into a new edition. The directory itself is only read.

    It may be an edition of bakeoff, a directory of the sweep runner, or hold directories that each have one run's
    metrics.json, metrics.jsonl or out/summary.csv, named after arm and seed such as full_s3. Runs that cannot be read
    are listed and left out; the exit code is then 1.
    """
    directory = directory.resolve()
    paths = EditionPaths(directory) if is_edition(directory) else next(reversed(editions(directory)), None)
    if paths is not None:
        opened, results = Edition.open(copy_edition(paths, name, root)), Results([], "")
    else:
        results = read_directory(directory)
        for problem in results.problems:
            click.echo(f"cannot be read: {problem}", err=True)
        if not results.rows:
            raise BakeoffError(f"{directory}: no run in it could be read, so nothing was imported")
        opened = import_results(results, name or directory.name, root, directory)
    with closing(opened) as edition:
        facts = edition_facts(edition)
    if as_json:
        kept = ("experiment", "edition", "directory", *TALLY)
        print_json({**{key: facts[key] for key in kept}, "problems": list(results.problems)})
    else:
        click.echo(
            f"imported {facts['planned']} runs into {facts['experiment']}/{facts['edition']}: "
            f"{facts['succeeded']} succeeded, {facts['failed']} failed, {facts['missing']} missing"
        )
        if any(row.directory is not None and not (row.directory / META).exists() for row in results.rows):
            click.echo("No exit codes were recorded: runs with metrics count as succeeded.")
        click.echo(str(facts["directory"]))
    ctx.exit(1 if results.problems else 0)
