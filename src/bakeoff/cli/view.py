"""`bakeoff view`: experiments in a browser, while they run and after."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.options import root_option
from bakeoff.cli.questions import column_options, columns
from bakeoff.errors import StorageError, UsageError

if TYPE_CHECKING:
    from bakeoff.web.live.places import Catalogue

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")


@click.command()
@click.argument("names", nargs=-1, metavar="[ROOT | SOURCE]...")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port to listen on; 0 takes a free one.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on. Any but this machine's own loopback needs --token.")  # fmt: skip
@click.option("--token", metavar="TEXT", help="Secret that is part of every address: 16 or more letters, digits, - and _; `new` makes one.")  # fmt: skip
@click.option("--open", "opens", is_flag=True, help="Open the pages in the browser.")
@column_options
@root_option
def command(
    names: tuple[str, ...], port: int, host: str, token: str | None, opens: bool, root: Path, **options: Any
) -> None:
    """Show experiments in a browser: progress, failures, runs and verdicts, as they change.

    Without an argument, or with a root, every experiment below it; with an experiment, its newest edition; with anything
    else that `bakeoff compare` reads, those results. Nothing is changed, except that verdicts which are shown are recorded
    as looks, as with `compare`. Ctrl-C ends it.
    """
    from bakeoff.web.live.guard import is_loopback
    from bakeoff.web.live.server import Viewer, serve

    if token == "new":
        token = secrets.token_urlsafe(18)
    if token is not None and not _TOKEN.fullmatch(token):
        raise UsageError("--token: write 16 or more letters, digits, - and _, or `--token new`")
    if token is None and not is_loopback(host):
        raise UsageError(f"--host {host} lets others read the results: add --token new, which makes addresses secret")
    catalogue = _catalogue(names, root, columns(options))
    page = "" if catalogue.only is None else f"{catalogue.only.address}/index.html"

    def started(port: int) -> None:
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{port}/{token + '/' if token else ''}{page}"
        click.echo(f"serving: {address}")
        if opens:
            click.launch(address)

    if hasattr(os, "nice"):  # not on Windows
        os.nice(5)  # the runs on this machine come first
    viewer = Viewer(catalogue)
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(serve(viewer, host, port, token or "", started))
    except OSError as error:
        raise StorageError(
            f"{host}:{port}: cannot be listened on: {error.strerror or error}; --port 0 takes a free port"
        ) from error
    finally:
        viewer.close()


def _catalogue(names: tuple[str, ...], root: Path, table_columns: dict[str, Any]) -> Catalogue:
    """What the arguments name. Raises UsageError."""
    from bakeoff.records.layout import EditionPaths, editions_named, experiments, find_edition, is_edition
    from bakeoff.web.live.places import Catalogue, EditionPlace, ResultsPlace

    if not names:
        return Catalogue(root)
    if len(names) == 1 and not any(table_columns.values()):
        place = Path(names[0])
        if editions_named(names[0], root) or names[0] == "latest":
            return Catalogue(root, EditionPlace(EditionPaths(find_edition(names[0], root).directory.resolve())))
        if place.is_dir() and is_edition(place):
            return Catalogue(place.parent.parent, EditionPlace(EditionPaths(place.resolve())))
        if place.is_dir() and experiments(place):
            return Catalogue(place)
    from bakeoff.results.sources import expand, read_names

    expanded = expand(names)
    results = read_names(expanded, root, table_columns)
    if results.edition is not None:
        return Catalogue(root, EditionPlace(results.edition.paths))
    if not results.rows:
        raise UsageError(
            f"{results.label}: no run in it could be read{f': {results.problems[0]}' if results.problems else ''}"
        )
    return Catalogue(root, ResultsPlace(expanded, results, table_columns))
