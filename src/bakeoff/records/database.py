"""Connections to SQLite and PostgreSQL behind one small face: plain SQL with `?`, rows as tuples.

SQLite is in WAL mode with full synchronisation: a committed transaction survives a power cut.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from bakeoff.errors import StorageError, UsageError
from bakeoff.records.schema import POSTGRES_WORDS, SQLITE_WORDS, TABLES, VERSION

URL_VARIABLE = "BAKEOFF_DATABASE_URL"
Row = tuple[Any, ...]


class Database:
    """One connection. Use it from one thread at a time; `another()` opens a second one to the same place."""

    def __init__(self, connection: Any, engine: Literal["sqlite", "postgres"], place: str, readonly: bool) -> None:
        self._connection = connection
        self.engine = engine
        self.place = place
        self._readonly = readonly
        self.version = VERSION
        self._errors: tuple[type[Exception], ...] = (sqlite3.Error,)
        self._file = _identity(place) if engine == "sqlite" else None
        if engine == "postgres":
            import psycopg

            self._errors = (psycopg.Error,)

    @property
    def label(self) -> str:
        """`place` as it may be shown: without a password."""
        return _without_password(self.place)

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._telling():
            return list(self._connection.execute(self._sql(sql), values).fetchall())

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        with self._telling():
            row: Row | None = self._connection.execute(self._sql(sql), values).fetchone()
            return row

    def stream(self, sql: str, values: Sequence[Any] = (), size: int = 5000) -> Iterator[Row]:
        """Rows without holding them all."""
        with self._telling():
            cursor = self._connection.cursor()
            cursor.execute(self._sql(sql), values)
            while rows := cursor.fetchmany(size):
                yield from rows

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """All or nothing, and on disk when it ends."""
        with self._telling():
            cursor = self._connection.cursor()
            cursor.execute("BEGIN IMMEDIATE" if self.engine == "sqlite" else "BEGIN")
            try:
                yield Transaction(cursor, self._sql)
                cursor.execute("COMMIT")
                self._check_still_there()
            except BaseException:
                self._rollback(cursor)
                raise

    def _check_still_there(self) -> None:
        """SQLite goes on writing into a file that was deleted under it, where nobody would ever find it."""
        if self.engine == "sqlite":
            try:
                same = _identity(self.place) == self._file
            except OSError:
                same = False
            if not same:
                raise StorageError(f"{self.label}: was deleted or replaced while in use")

    def _rollback(self, cursor: Any) -> None:
        try:
            cursor.execute("ROLLBACK")
        except self._errors:
            pass  # a failed COMMIT may have rolled back already; the first error is the one to tell

    def _sql(self, sql: str) -> str:
        return sql if self.engine == "sqlite" else sql.replace("?", "%s")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise StorageError(f"{self.label}: {str(error).strip()}") from error

    def another(self) -> Database:
        return connect(self.place, readonly=self._readonly)

    def close(self) -> None:
        self._connection.close()


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


class Transaction:
    def __init__(self, cursor: Any, sql: Any) -> None:
        self._cursor = cursor
        self._sql = sql

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Number of rows changed."""
        self._cursor.execute(self._sql(sql), values)
        return int(self._cursor.rowcount)

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        if rows != []:  # nothing to do is no reason to ask a server
            self._cursor.executemany(self._sql(sql), rows)

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        self._cursor.execute(self._sql(sql), values)
        row: Row | None = self._cursor.fetchone()
        return row


def connect(place: str, *, readonly: bool = False) -> Database:
    """`place` is a PostgreSQL URL or the path of a SQLite file; the tables are made when they are not there."""
    database = _postgres(place) if is_url(place) else _sqlite(Path(place), readonly)
    try:
        _check_version(database, readonly)
    except BaseException:
        database.close()
        raise
    return database


def is_url(place: str) -> bool:
    return place.startswith(("postgres://", "postgresql://"))


def _sqlite(path: Path, readonly: bool) -> Database:
    if readonly and not path.exists():
        raise UsageError(f"{path}: no such database")
    try:
        # A reader opens the file for writing too where it may: WAL needs its shared-memory file.
        mode = "ro" if readonly and not _writable(path) else "rw" if readonly else "rwc"
        immutable = "&immutable=1" if mode == "ro" and not _writable(path.parent) and not _unfolded(path) else ""
        connection = sqlite3.connect(
            f"file:{_quoted(path)}?mode={mode}{immutable}", uri=True, isolation_level=None, check_same_thread=False,
            timeout=30,
        )  # fmt: skip
        try:
            if not readonly:
                connection.execute("PRAGMA synchronous=FULL")
            connection.execute("SELECT name FROM sqlite_master LIMIT 1")
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        fix = ". Copy its directory to where it can be written" if readonly and not _writable(path.parent) else ""
        raise StorageError(f"{path}: cannot be opened: {error}{fix}") from error
    return Database(connection, "sqlite", str(path), readonly)


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(os.fsencode(path.absolute()))


def _unfolded(path: Path) -> bool:
    """Whether there are results beside the file that are not in it yet; `immutable` would not see them."""
    beside = path.with_name(f"{path.name}-wal")
    return beside.exists() and beside.stat().st_size > 0


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


def _postgres(url: str) -> Database:
    try:
        import psycopg
    except ImportError as error:
        raise UsageError("a PostgreSQL store needs psycopg: pip install 'bakeoff[postgres]'") from error
    try:
        connection = psycopg.connect(url, autocommit=True)
    except psycopg.Error as error:
        raise StorageError(f"{_without_password(url)}: {str(error).strip()}") from error
    return Database(connection, "postgres", url, False)


def _without_password(url: str) -> str:
    import re

    shown = re.sub(r"(://[^:/@]*):\S*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&][^=&]*passw[^=&]*=)[^&]*", r"\1***", shown)


def _check_version(database: Database, readonly: bool) -> None:
    found = _version(database)
    if not readonly and (found is None or found < VERSION):
        words = SQLITE_WORDS if database.engine == "sqlite" else POSTGRES_WORDS
        if database.engine == "sqlite":  # it stays with the file; a file that is not ours to write is left as it is
            database.one("PRAGMA journal_mode=WAL")
        with database.transaction() as transaction:
            if database.engine == "postgres":  # two first users at once: CREATE IF NOT EXISTS alone can collide
                transaction.run("SELECT pg_advisory_xact_lock(7246112)")
            for statement in TABLES.format(**words).split(";"):
                if statement.strip():
                    transaction.run(statement)
            transaction.run(
                "INSERT INTO meta (key, value) VALUES ('schema', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (str(VERSION),),
            )
    elif found is None:
        raise StorageError(f"{database.label}: holds no bakeoff tables")
    elif found > VERSION:
        raise StorageError(
            f"{database.label}: written by a newer bakeoff (schema {found}; this one knows {VERSION}). "
            "Nothing was changed. Upgrade bakeoff to read it"
        )
    else:
        database.version = found


def _version(database: Database) -> int | None:
    exists = (
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
        if database.engine == "sqlite"
        else "SELECT 1 FROM information_schema.tables WHERE table_name = 'meta' AND table_schema = current_schema()"
    )
    if database.one(exists) is None:
        return None
    row = database.one("SELECT value FROM meta WHERE key = 'schema'")
    return int(row[0]) if row else None
