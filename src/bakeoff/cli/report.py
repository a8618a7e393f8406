"""`bakeoff report`: an edition's results as a folder of HTML."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import json_option, root_option
from bakeoff.errors import UsageError
from bakeoff.version import __version__

if TYPE_CHECKING:
    from bakeoff.records.edition import Edition
    from bakeoff.results.table import Results


@click.command()
@click.argument("name", metavar="[EXPERIMENT]", required=False)
@click.option("--exp_dir", "--exp-dir", "directory", type=click.Path(path_type=Path), metavar="DIR", help="An experiment's directory instead of its name; a sweep that another tool ran will do.")  # fmt: skip
@click.option("--runs_csv", "--runs-csv", "csv", type=click.Path(path_type=Path, dir_okay=False), metavar="PATH", help="Take a sweep's runs from this table, as collect writes it, instead of what was recorded.")  # fmt: skip
@click.option("--out_dir", "--out-dir", "output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Where to write; report/ in the edition's directory when left out.")  # fmt: skip
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    name: str | None,
    directory: Path | None,
    csv: Path | None,
    output: Path | None,
    root: Path,
    as_json: bool,
) -> None:
    """Write the report of an experiment: verdicts, pictures, failures, and a page for every run.

    It is a folder that opens from the file system and needs no network. The same results give the same bytes.
    EXPERIMENT is a name, name/edition, a path, or `latest` (the default).
    """
    from bakeoff.web.folder import write

    if name is not None and directory is not None:
        raise UsageError(f"name the experiment ({name}) or its directory (--exp_dir {directory}), not both")
    with _opened(name or "latest", directory, csv, root) as (edition, home, label, problems):
        written = write(edition, output or home / "report", label)
    for problem in (*problems, *written.problems):
        click.echo(f"left out: {problem}", err=True)
    if as_json:
        facts = {"index": written.index, "runs": written.runs, "files": written.files, "bytes": written.bytes}
        print_json({"version": __version__, **facts, "problems": [*problems, *written.problems]})
    else:
        click.echo(f"wrote: {written.index} runs={written.runs} files={written.files} bytes={written.bytes:,}")
    ctx.exit(1 if problems else 0)


_Opened = tuple["Edition", Path, str | None, list[str]]


@contextmanager
def _opened(name: str, directory: Path | None, csv: Path | None, root: Path) -> Iterator[_Opened]:
    """The edition, the directory it belongs to, how to call it, and what of it could not be read."""
    from bakeoff.records.edition import Edition
    from bakeoff.records.layout import editions, find_edition, is_edition

    ours = directory is None or is_edition(directory) or bool(editions(directory))
    paths = find_edition(str(directory or name), root) if ours else None
    home = paths.directory if paths is not None else (directory or Path()).resolve()
    if paths is not None and csv is None:
        with closing(Edition.open(paths)) as edition:
            yield edition, home, None, []
        return
    from bakeoff.results.importing import temporary_edition

    results = _foreign(home, csv)
    title = paths.experiment if paths is not None else home.name
    with (
        tempfile.TemporaryDirectory(prefix="bakeoff-") as scratch,
        closing(temporary_edition(results, title, Path(scratch))) as edition,
    ):
        yield edition, home, title, list(results.problems)


def _foreign(home: Path, csv: Path | None) -> Results:
    """Runs from a table, or from a directory of another tool's."""
    from bakeoff.results.importing import read_directory

    if csv is not None:
        from bakeoff.spec import registry

        tables: list[Results | None] = [dialect.read_table(csv, home) for dialect in registry.dialects()]
        results = next((table for table in tables if table is not None), None)
        if results is None:
            raise UsageError(f"{csv}: not a table of runs that an installed dialect reads")
        return results
    if not (home / "runs").is_dir():
        raise UsageError(f"{home}: holds no experiment: neither a database nor a directory runs/")
    results = read_directory(home)
    if not results.rows:
        raise UsageError(f"{home}: nothing in it could be read: {results.problems[0]}")
    return results
