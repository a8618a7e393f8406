"""`bakeoff query`: SQL over the table of runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from bakeoff.cli.display import print_json, print_table
from bakeoff.cli.options import edition_argument, find_edition, json_option, root_option
from bakeoff.errors import UsageError
from bakeoff.text import number


@click.command()
@click.argument("sql")
@edition_argument
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@root_option
@json_option
def command(sql: str, name: str, as_csv: bool, root: Path, as_json: bool) -> None:
    """Query the table of runs in SQL. The table is called `runs`.

    For example: bakeoff query "SELECT arm, avg(score), count(*) FROM runs WHERE status = 'succeeded' GROUP BY arm"
    """
    from bakeoff.records.recorded import Recorded
    from bakeoff.results.columns import Sheet
    from bakeoff.results.frame import read_table

    with closing(Recorded.open(find_edition(name, root))) as edition:
        runs = read_table(edition).frame
    import polars as pl  # after the frame, whose error names the extra

    try:
        result = pl.SQLContext(runs=runs).execute(sql, eager=True)
    except pl.exceptions.PolarsError as error:
        columns = ", ".join(runs.columns)
        # Behind that Polars shows its plan of the query, and the columns that we list in our own words.
        reason = str(error).partition("\n\n")[0].partition("; valid columns")[0].strip()
        raise UsageError(f"{reason}; the table is called runs, and its columns are {columns}") from error
    if as_json:
        print_json(result.to_dicts())
    elif as_csv:
        click.echo(Sheet.of(result).to_csv(), nl=False)
    else:
        rows = [[str(value) if type(value) is int else number(value) for value in row] for row in result.rows()]
        print_table(result.columns, rows, right=[name for name, kind in result.schema.items() if kind.is_numeric()])
