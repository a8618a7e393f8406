"""`bakeoff import`: copy results from elsewhere into a new edition."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import TALLY, edition_facts, print_json
from bakeoff.cli.options import json_option, root_option
from bakeoff.cli.questions import column_options, columns
from bakeoff.errors import BakeoffError, UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths
from bakeoff.records.rundir import META
from bakeoff.results.importers import ONLINE, Editions
from bakeoff.results.importing import copy_edition, import_results, imported_before, recordable
from bakeoff.results.sources import read_path
from bakeoff.results.table import Results


@click.command("import")
@click.argument("source", metavar="PATH")
@click.option("--name", help="The experiment's name (default: the name of the directory or file).")
@column_options
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, source: str, name: str | None, root: Path, as_json: bool, **options: Any) -> None:
    """Copy the results at PATH into a new edition. What is there is only read.

    It may be an edition of bakeoff, a table, a directory of the sweep runner, or hold directories that each have one run's
    metrics.json, metrics.jsonl or out/summary.csv, named after the arm, or after arm and seed such as full_s3. Files of
    other tools (docs/other-tools.md) are read too, and whatever installed importers read. Runs that cannot be read are
    listed and left out; the exit code is then 1. Files that have not changed since they were imported are not imported again.
    """
    path = Path(source) if source.startswith(ONLINE) else Path(source).resolve()
    editions = Editions().claims(path)
    before = imported = None
    if editions:
        opened, results = Edition.open(copy_edition(EditionPaths(editions[0]), name, root)), Results([], "")
    else:
        results, imported = recordable(_read(path, columns(options)))
        for problem in results.problems:
            click.echo(f"cannot be read: {problem}", err=True)
        name = name or (path.name if path.is_dir() else path.stem)
        before = imported_before(imported, name, root)
        opened = Edition.open(before) if before else import_results(results, imported, name, root, str(path))
    with closing(opened) as edition:
        facts = edition_facts(edition)
    if as_json:
        kept = ("experiment", "edition", "directory", *TALLY)
        print_json({**{key: facts[key] for key in kept}, "problems": list(results.problems)})
    else:
        counts = f"{facts['succeeded']} succeeded, {facts['failed']} failed, {facts['missing']} missing"
        edition_name = f"{facts['experiment']}/{facts['edition']}"
        if before is not None:
            click.echo(f"The same {facts['planned']} runs were imported already, as {edition_name}: {counts}")
        else:
            click.echo(f"imported {facts['planned']} runs into {edition_name}: {counts}")
        bare = (row for row in results.rows if row.source is None and row.directory is not None)
        if (imported and imported.unstated) or any(
            not (row.directory / META).exists() for row in bare if row.directory
        ):
            click.echo("No exit codes were recorded: runs with metrics count as succeeded.")
        click.echo(str(facts["directory"]))
    ctx.exit(1 if results.problems else 0)


def _read(path: Path, columns: dict[str, Any]) -> Results:
    """Read what lies at a path. Raises UsageError when there is nothing, BakeoffError when no run in it can be read."""
    if not path.exists() and not str(path).startswith(ONLINE):
        raise UsageError(f"{path}: no such file or directory")
    results = read_path(path, columns)
    if results is None or not results.rows:
        for problem in results.problems if results is not None else ():
            click.echo(f"cannot be read: {problem}", err=True)
        raise BakeoffError(f"{path}: no run in it could be read, so nothing was imported")
    return results
