"""SQLite databases of other tools, read without changing them.

with ForeignDatabase(path) as database:
    for row in database.rows("trials", ("trial_id", "state"), order="trial_id"):
        print(row["state"])
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from bakeoff.errors import UsageError

MAGIC = b"SQLite format 3\0"
SUFFIXES = (".db", ".sqlite", ".sqlite3")


class ForeignDatabase:
    """A database that is opened for reading only. What a writer has committed to its log (`-wal`) is read, too.

    Raises UsageError, with the path, where the file is no database, is damaged, or lacks a table or column.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        try:
            self._connection = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
        except sqlite3.Error as error:
            raise self._error(error) from error
        self._connection.row_factory = sqlite3.Row
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @cached_property
    def tables(self) -> Mapping[str, Sequence[str]]:
        """Columns by table."""
        try:
            names = [name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
            return {name: [column[1] for column in self._connection.execute(f"PRAGMA table_info({_quoted(name)})")]
                    for name in names}  # fmt: skip
        except sqlite3.Error as error:
            raise self._error(error) from error

    def rows(
        self, table: str, columns: Sequence[str], *, order: str | None = None, **equal: Any
    ) -> Iterator[sqlite3.Row]:
        """Yield rows of a table whose columns have the values in `equal`. A column that the table lacks raises UsageError."""
        known = self.tables.get(table)
        absent = [column for column in (*columns, *equal) if column not in (known or ())]
        if known is None or absent:
            lacks = f"column {absent[0]!r} in table {table!r}" if known is not None else f"table {table!r}"
            raise UsageError(f"{self._path}: has no {lacks}")
        query = f"SELECT {', '.join(map(_quoted, columns))} FROM {_quoted(table)}"
        if equal:
            query += " WHERE " + " AND ".join(f"{_quoted(column)} = ?" for column in equal)
        if order is not None:
            query += f" ORDER BY {_quoted(order)}"
        try:
            yield from self._connection.execute(query, tuple(equal.values()))
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _error(self, error: sqlite3.Error) -> UsageError:
        return UsageError(f"{self._path}: cannot be read as an SQLite database: {error}")


def is_database(path: Path, *tables: str) -> bool:
    """Whether a file is an SQLite database that has all these tables."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return False
    try:
        with ForeignDatabase(path) as database:
            return set(tables) <= set(database.tables)
    except UsageError:
        return False


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
