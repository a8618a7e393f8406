"""`bakeoff collect`: an edition's table as CSV and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import json_option, root_option
from bakeoff.errors import UsageError

if TYPE_CHECKING:
    import polars as pl


@click.command()
@click.argument("name", metavar="[EXPERIMENT]", required=False)
@click.option("--exp_dir", "--exp-dir", "directory", type=click.Path(path_type=Path), metavar="DIR", help="An experiment's directory instead of its name; a sweep that another tool ran will do.")  # fmt: skip
@click.option("--out_csv", "--out-csv", "csv", type=click.Path(path_type=Path, dir_okay=False), metavar="PATH", help="Where to write; aggregate/runs.csv in the edition's directory when left out.")  # fmt: skip
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, name: str | None, directory: Path | None, csv: Path | None, root: Path, as_json: bool
) -> None:
    """Write the table of runs as CSV, and as Parquet beside it.

    One row for each planned run, whatever became of it. Experiments of the sweep runner keep its columns and their order.
    EXPERIMENT is a name, name/edition, a path, or `latest` (the default).
    """
    from bakeoff.results.frame import default_csv, write

    if name is not None and directory is not None:
        raise UsageError(f"name the experiment ({name}) or its directory (--exp_dir {directory}), not both")
    table, place, problems = _read(str(directory) if directory else name or "latest", directory, root)
    path = csv or default_csv(place)
    write(table, path)
    for problem in problems:
        click.echo(f"cannot be read: {problem}", err=True)
    if as_json:
        parquet = path.with_suffix(".parquet")
        print_json({"csv": path, "parquet": parquet, "rows": table.height, "columns": table.columns})
    else:
        click.echo(f"wrote: {path} rows={table.height}")
    ctx.exit(1 if problems else 0)


def _read(name: str, directory: Path | None, root: Path) -> tuple[pl.DataFrame, Path, list[str]]:
    """The table, the directory it belongs to, and what could not be read."""
    from bakeoff.records.edition import Edition
    from bakeoff.records.layout import editions, find_edition, is_edition
    from bakeoff.results.frame import collected

    if directory is not None and not is_edition(directory) and not editions(directory):
        from bakeoff.spec import registry

        for dialect in registry.dialects():
            foreign = dialect.table_of_directory(directory)
            if foreign is not None:
                return foreign[0], directory, foreign[1]
        raise UsageError(f"{directory}: holds no experiment: neither a database nor a directory runs/")
    edition = Edition.open(find_edition(name, root))
    try:
        return collected(edition), edition.paths.directory, []
    finally:
        edition.close()
