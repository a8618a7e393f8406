"""`bakeoff rm`: delete editions."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bakeoff.cli.options import find_edition, root_option
from bakeoff.errors import BakeoffError, UsageError
from bakeoff.records.layout import LATEST, editions, editions_named
from bakeoff.records.lookup import remove


@click.command()
@click.argument("name", metavar="EXPERIMENT")
@click.option("--all", "everything", is_flag=True, help="Every edition of the experiment.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@root_option
def command(name: str, everything: bool, yes: bool, root: Path) -> None:
    """Delete an edition: its directory with everything that runs wrote, and its records.

    EXPERIMENT is name/edition, a path, `latest`, or the name of an experiment that has only one edition.
    """
    edition = find_edition(name, root)
    siblings = editions(edition.directory.parent)
    names_one = name == LATEST or "/" in name.rstrip("/") or not editions_named(name, root)
    if len(siblings) > 1 and not everything and not names_one:
        listed = ", ".join(sibling.name for sibling in siblings[-5:])
        raise UsageError(f"{edition.experiment} has {len(siblings)} editions ({listed}); name one, or give --all")
    doomed = siblings if everything else [edition]
    for paths in doomed:
        click.echo(f"{paths.experiment}/{paths.name}  {paths.directory}", err=True)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("without a terminal to confirm on, deleting needs --yes")
        if not click.confirm("Delete permanently?", err=True):
            raise BakeoffError("nothing was deleted")
    for paths in doomed:
        remove(paths)
    click.echo(f"deleted {len(doomed)} edition{'s' if len(doomed) > 1 else ''}", err=True)
