"""`bakeoff diff`: what differs between two editions."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import find_edition, json_option, root_option
from bakeoff.records.diff import Difference, compare
from bakeoff.records.recorded import Recorded
from bakeoff.text import printable

WIDTH = 100


@click.command()
@click.argument("a")
@click.argument("b")
@click.argument("paths", nargs=-1)
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, a: str, b: str, paths: tuple[str, ...], root: Path, as_json: bool) -> None:
    """Show what differs between editions A and B: configuration, code, packages, environment and machine.

    Code is compared as it was when the runs ran, with uncommitted changes. PATHS after `--` show the changed lines of
    those files instead of a summary. Exits with 0 when nothing differs and with 1 when something does.
    """
    with (
        closing(Recorded.open(find_edition(a, root))) as first,
        closing(Recorded.open(find_edition(b, root))) as second,
    ):
        difference = compare(first, second, paths=paths, stat=not paths)
        names = [f"{edition.paths.experiment}/{edition.paths.name}" for edition in (first, second)]
    if as_json:
        sections = {
            title: {key: {"a": old, "b": new} for key, (old, new) in changes.items()}
            for title, changes in difference.sections.items()
        }
        facts = {"a": names[0], "b": names[1], "same": not difference, **sections}
        print_json({**facts, "patch": difference.patch, "notes": difference.notes})
    else:
        click.echo(f"A  {names[0]}\nB  {names[1]}")
        _show(difference)
    ctx.exit(1 if difference else 0)


def _show(difference: Difference) -> None:
    for note in difference.notes:
        click.echo(note)
    if not difference:
        click.echo("No difference in what is recorded." if difference.notes else "No difference.")
    for title, changes in difference.sections.items():
        if not changes:
            continue
        click.echo()
        click.secho(title.capitalize(), bold=True)
        for key, (old, new) in changes.items():
            click.echo(f"  {printable(key)}: {_short(old)} -> {_short(new)}")
        if title == "code" and difference.patch is None:
            click.echo("  The commits are not in a repository here, so their lines cannot be compared.")
        elif title == "code" and difference.patch:
            click.echo()
            click.echo(printable(difference.patch).rstrip())


def _short(value: Any) -> str:
    """A recorded value on one line."""
    if value is None:
        return "(none)"
    text = printable(value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
