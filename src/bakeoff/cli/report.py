"""`bakeoff report`: results as a folder of HTML."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import FILE, find_experiment, json_option, note_shadowed, root_option
from bakeoff.cli.questions import JUDGING, ask, column_options, columns, question_options
from bakeoff.errors import UsageError
from bakeoff.verdicts.question import Compare
from bakeoff.version import __version__

if TYPE_CHECKING:
    from bakeoff.results.table import Results


@click.command()
@click.argument("names", nargs=-1, metavar="[SOURCE]...")
@click.option("--exp_dir", "--exp-dir", "directory", type=click.Path(path_type=Path), metavar="DIR", help="An experiment's directory instead of its name. It may be a sweep that another tool ran.")  # fmt: skip
@click.option("--runs_csv", "--runs-csv", "csv", type=FILE, metavar="PATH", help="Read a sweep's runs from this table, as collect writes it, instead of the recorded ones.")  # fmt: skip
@click.option("--out_dir", "--out-dir", "output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Where to write (default: report/ in the directory of the edition or of the runs, NAME-report/ beside a table).")  # fmt: skip
@question_options(Compare, "metric", "control", *JUDGING, "margin", "relative_margin", "alpha")
@click.option(
    "--calibrate", is_flag=True, help="Add a page with the error rates of the declared analysis on these runs."
)
@column_options
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    directory: Path | None,
    csv: Path | None,
    output: Path | None,
    calibrate: bool,
    root: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a report: verdicts, plots, failures, and a page for every run.

    It is a folder that opens from the file system and needs no network. The same results give the same bytes.
    SOURCE is whatever `bakeoff compare` takes: an experiment (default: the newest), a table, directories of runs.
    Exits with 1 when a run cannot be read.
    """
    from bakeoff.results.importing import torn_lines
    from bakeoff.web.folder import write

    results, place = _open(names, directory, csv, root, columns(options))
    with closing(results):
        unreadable = [*results.problems, *torn_lines(results)]
        written = write(results, output or place, ask(Compare, options), calibrate)
    problems = [*unreadable, *written.problems]
    for problem in problems:
        click.echo(f"left out: {problem}", err=True)
    if as_json:
        facts = {"index": written.index, "runs": written.runs, "files": written.files, "bytes": written.bytes}
        print_json({"version": __version__, **facts, "problems": problems})
    else:
        click.echo(f"wrote: {written.index} runs={written.runs} files={written.files} bytes={written.bytes:,}")
    ctx.exit(1 if unreadable else 0)


def _open(
    names: tuple[str, ...], directory: Path | None, csv: Path | None, root: Path, columns: dict[str, Any]
) -> tuple[Results, Path]:
    """Read the results, and say where their report goes when nobody names a place."""
    from bakeoff.results.sources import expand, read_names

    if directory is not None or csv is not None:
        if len(names) > 1:
            raise UsageError("--exp_dir and --runs_csv are about one experiment")
        source = find_experiment(names[0] if names else None, directory, root)
        if isinstance(source, Path) or csv is not None:
            home = source.resolve() if isinstance(source, Path) else source.directory
            title = home.name if isinstance(source, Path) else source.experiment
            return replace(_read_foreign(home, csv), label=title), home / "report"
        names = (str(source.directory),)
    note_shadowed(names, root)
    results = read_names(expand(names) or ["latest"], root, columns)
    if results.edition is not None:
        return results, results.edition.paths.directory / "report"
    if not results.rows:
        raise UsageError(
            f"{results.label}: no run in it could be read{f': {results.problems[0]}' if results.problems else ''}"
        )
    first = Path(names[0])
    return results, first / "report" if first.is_dir() else first.with_name(f"{first.stem}-report")


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
