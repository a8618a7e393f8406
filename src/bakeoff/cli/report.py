"""`bakeoff report`: an edition's results as a folder of HTML."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import FILE, experiment_options, find_experiment, json_option, root_option
from bakeoff.errors import UsageError
from bakeoff.version import __version__

if TYPE_CHECKING:
    from bakeoff.results.table import Results


@click.command()
@experiment_options
@click.option("--runs_csv", "--runs-csv", "csv", type=FILE, metavar="PATH", help="Read a sweep's runs from this table, as collect writes it, instead of the recorded ones.")  # fmt: skip
@click.option("--out_dir", "--out-dir", "output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Where to write (default: report/ in the edition's directory).")  # fmt: skip
@click.option(
    "--calibrate", is_flag=True, help="Add a page with the error rates of the declared analysis on these runs."
)
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    name: str | None,
    directory: Path | None,
    csv: Path | None,
    output: Path | None,
    calibrate: bool,
    root: Path,
    as_json: bool,
) -> None:
    """Write the report of an experiment: verdicts, plots, failures, and a page for every run.

    It is a folder that opens from the file system and needs no network. The same results give the same bytes.
    EXPERIMENT is a name, name/edition, a path, or `latest` (the default). Exits with 1 when a run cannot be read.
    """
    from bakeoff.records.edition import Edition
    from bakeoff.results.importing import recordable, temporary_edition
    from bakeoff.web.folder import write

    source = find_experiment(name, directory, root)
    home = source.resolve() if isinstance(source, Path) else source.directory
    unreadable: list[str] = []
    with ExitStack() as stack:
        if csv is None and not isinstance(source, Path):
            edition, title = stack.enter_context(closing(Edition.open(source))), None
        else:  # runs from elsewhere are put into an edition that exists for the report only
            results, _ = recordable(_read_foreign(home, csv))
            unreadable = list(results.problems)
            title = home.name if isinstance(source, Path) else source.experiment
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="bakeoff-"))
            edition = stack.enter_context(closing(temporary_edition(results, title, Path(scratch))))
        written = write(edition, output or home / "report", title, calibrate)
    problems = [*unreadable, *written.problems]
    for problem in problems:
        click.echo(f"left out: {problem}", err=True)
    if as_json:
        facts = {"index": written.index, "runs": written.runs, "files": written.files, "bytes": written.bytes}
        print_json({"version": __version__, **facts, "problems": problems})
    else:
        click.echo(f"wrote: {written.index} runs={written.runs} files={written.files} bytes={written.bytes:,}")
    ctx.exit(1 if unreadable else 0)


def _read_foreign(home: Path, csv: Path | None) -> Results:
    """Runs from the table `csv`, or else from `home`, a directory that another tool wrote."""
    from bakeoff.results.importers import Claim, of_dialects, read
    from bakeoff.results.sources import read_path

    if csv is not None:
        claims = (Claim(importer, tuple(importer.claims(csv))) for importer in of_dialects())
        claim = next((claim for claim in claims if claim.paths), None)
        if claim is None:
            raise UsageError(f"{csv}: not a table of runs that an installed dialect reads")
        return read([claim], str(csv))
    if not (home / "runs").is_dir():
        raise UsageError(f"{home}: holds no experiment: neither a database nor a directory runs/")
    results = read_path(home)
    if results is None or not results.rows:
        reason = f": {results.problems[0]}" if results is not None and results.problems else ""
        raise UsageError(f"{home}: no run in it could be read{reason}")
    return results
