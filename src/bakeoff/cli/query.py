"""`bakeoff query`: SQL over the table of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bakeoff.cli import display
from bakeoff.cli.options import edition_argument, json_option, root_option
from bakeoff.errors import UsageError

if TYPE_CHECKING:
    import polars as pl


@click.command()
@click.argument("sql")
@edition_argument
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@root_option
@json_option
def command(sql: str, name: str, as_csv: bool, root: Path, as_json: bool) -> None:
    """Ask the table of runs a question in SQL. The table is called `runs`.

    For example: bakeoff query "SELECT arm, avg(score), count(*) FROM runs WHERE status = 'succeeded' GROUP BY arm"
    """
    from bakeoff.records.edition import Edition
    from bakeoff.records.layout import find_edition
    from bakeoff.results.frame import read_table

    edition = Edition.open(find_edition(name, root))
    try:
        runs = read_table(edition).frame
    finally:
        edition.close()
    answer = ask(runs, sql)
    if as_json:
        display.print_json(answer.to_dicts())
    elif as_csv:
        click.echo(answer.write_csv(), nl=False)
    else:
        _show(answer)


def ask(runs: pl.DataFrame, sql: str) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.SQLContext(runs=runs).execute(sql, eager=True)
    except pl.exceptions.PolarsError as error:
        columns = ", ".join(runs.columns)
        raise UsageError(f"{error}\nThe table is called runs; its columns are {columns}") from error


def _show(answer: pl.DataFrame) -> None:
    numeric = [name for name, kind in answer.schema.items() if kind.is_numeric()]
    rows = [[display.number(value) for value in row] for row in answer.rows()]
    display.print_table(answer.columns, rows, right=numeric)
