"""`bakeoff diff`: what differs between two editions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from bakeoff.cli import display
from bakeoff.cli.options import json_option, root_option
from bakeoff.records.diff import Difference, compare
from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition

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

    Code is compared as it was when the runs ran, with uncommitted changes. With PATHS behind `--`, the changed lines in
    them are shown instead of a summary. Exits 0 when nothing differs and 1 when something does.
    """
    first, second = Edition.open(find_edition(a, root)), Edition.open(find_edition(b, root))
    try:
        found = compare(first, second, paths=paths, stat=not paths)
        names = [f"{edition.paths.experiment}/{edition.paths.name}" for edition in (first, second)]
    finally:
        first.close()
        second.close()
    display.print_json(_json(found, names)) if as_json else _show(found, names)
    ctx.exit(1 if found else 0)


def _json(found: Difference, names: list[str]) -> dict[str, Any]:
    sections = {
        title: {key: {"a": old, "b": new} for key, (old, new) in changes.items()}
        for title, changes in found.sections.items()
    }
    return {"a": names[0], "b": names[1], "same": not found, **sections, "patch": found.patch, "notes": found.notes}


def _show(found: Difference, names: list[str]) -> None:
    click.echo(f"A  {names[0]}\nB  {names[1]}")
    for note in found.notes:
        click.echo(note)
    if not found:
        click.echo("No difference in what is recorded." if found.notes else "No difference.")
    for title, changes in found.sections.items():
        if not changes:
            continue
        click.echo()
        click.secho(title.capitalize(), bold=True)
        for key, (old, new) in changes.items():
            click.echo(f"  {key}: {_value(old)} -> {_value(new)}")
        if title == "code":
            _show_patch(found.patch)


def _show_patch(patch: str | None) -> None:
    if patch is None:
        click.echo("  The commits are not in a repository here, so their lines cannot be compared.")
    elif patch:
        click.echo()
        click.echo(display.printable(patch).rstrip())


def _value(value: Any) -> str:
    if value is None:
        return "(none)"
    text = display.printable(value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
