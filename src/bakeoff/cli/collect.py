"""`bakeoff collect`: an edition's table as CSV and Parquet."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import FILE, experiment_options, find_experiment, json_option, root_option
from bakeoff.errors import UsageError, install


@click.command()
@experiment_options
@click.option("--out_csv", "--out-csv", "csv", type=FILE, metavar="PATH", help="Where to write (default: aggregate/runs.csv in the edition's directory).")  # fmt: skip
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, name: str | None, directory: Path | None, csv: Path | None, root: Path, as_json: bool
) -> None:
    """Write the table of runs as CSV, and as Parquet beside it where Polars is installed (extra `frames`).

    One row for each planned run, whatever its status. Experiments of the sweep runner keep its columns and their order.
    EXPERIMENT is a name, name/edition, a path, or `latest` (the default). Exits with 1 when a run cannot be read.
    """
    from bakeoff.records.recorded import Recorded
    from bakeoff.results.frame import collected, default_csv, write
    from bakeoff.spec import registry

    source = find_experiment(name, directory, root)
    problems: list[str] = []
    if isinstance(source, Path):
        tables = (dialect.table_of_directory(source) for dialect in registry.dialects())
        foreign = next((each for each in tables if each is not None), None)
        if foreign is None:
            raise UsageError(f"{source}: holds no experiment: neither a database nor a directory runs/")
        table, problems = foreign
        path = csv or default_csv(source)
    else:
        with closing(Recorded.open(source)) as edition:
            table = collected(edition)
        path = csv or default_csv(source.directory)
    parquet = write(table, path)
    if parquet is None:
        click.echo(f"no Parquet file was written: it needs Polars: {install('frames')}", err=True)
    for problem in problems:
        click.echo(f"cannot be read: {problem}", err=True)
    if as_json:
        print_json({"csv": path, "parquet": parquet, "rows": table.height, "columns": table.names})
    else:
        click.echo(f"wrote: {path} rows={table.height}")
    ctx.exit(1 if problems else 0)
