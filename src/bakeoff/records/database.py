"""The database: tables, and connections to SQLite and PostgreSQL behind one small interface.

SQL is plain, with `?` for values, and rows are tuples; `edition.py` turns them into records. SQLite is in WAL mode (on a
network file system with a rollback journal) with full synchronisation, so a committed transaction survives a power cut (https://sqlite.org/pragma.html#pragma_synchronous).

    meta        schema version
    editions    one row for each execution of an experiment
    sessions    one row for each time a scheduler worked on it, with provenance
    cells       one arm on one task, with parameters
    runs        one row for each run: what it is, its status, and the outcome that counts
    attempts    one row for each attempt that ended, the one that counts among them
    superseded  metrics of attempts that no longer count: what they cost was spent all the same (since version 2)
    series      one compressed columnar block for each run that logged steps
    trajectories  an index of trajectory files
    looks       one row for each verdict that was shown (since version 4)
    growths     one row for each time that the plan became longer (since version 4)
    claims      one row for each attempt that another machine has and that has not come back (since version 5)
    nodes       one row for each machine or pilot that ran attempts (since version 5)

A run costs one row in `runs` and one in `attempts`; a step never costs a row.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from bakeoff.errors import Damaged, StorageError, UsageError
from bakeoff.records.files import on_network, refused

URL_VARIABLE = "BAKEOFF_DATABASE_URL"
LOCK = 7246112
"""The first key of our advisory locks in PostgreSQL; any number that other programs are unlikely to use."""
VERSION = 5
"""A newer version only adds tables and columns: an older database gets them when it is next written to."""

_RESTART = 10.0
"""Seconds that a server may take to accept connections again."""

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS editions (
  edition_id {serial},
  experiment TEXT NOT NULL,
  edition TEXT NOT NULL,
  workload TEXT NOT NULL,
  dialect TEXT NOT NULL,
  spec TEXT NOT NULL,
  created_at {real} NOT NULL,
  complete INTEGER NOT NULL DEFAULT 0,
  UNIQUE (experiment, edition)
);
CREATE TABLE IF NOT EXISTS sessions (
  edition_id INTEGER NOT NULL,
  session INTEGER NOT NULL,
  started_at {real} NOT NULL,
  seen_at {real} NOT NULL,
  ended TEXT,
  planned INTEGER NOT NULL,
  provenance TEXT NOT NULL,
  PRIMARY KEY (edition_id, session)
);
CREATE TABLE IF NOT EXISTS cells (
  edition_id INTEGER NOT NULL,
  cell INTEGER NOT NULL,
  arm TEXT NOT NULL,
  task TEXT NOT NULL,
  base TEXT NOT NULL,
  ablation TEXT NOT NULL,
  flags TEXT NOT NULL,
  task_digest TEXT,
  params TEXT NOT NULL,
  columns TEXT NOT NULL,
  PRIMARY KEY (edition_id, cell)
);
CREATE TABLE IF NOT EXISTS runs (
  edition_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  cell INTEGER NOT NULL,
  seed BIGINT NOT NULL,
  rollout INTEGER NOT NULL,
  status TEXT NOT NULL DEFAULT 'planned',
  attempts INTEGER NOT NULL DEFAULT 0,
  started_at {real},
  ended_at {real},
  exit_code INTEGER,
  error TEXT,
  metrics TEXT,
  command TEXT,
  PRIMARY KEY (edition_id, position)
);
CREATE UNIQUE INDEX IF NOT EXISTS runs_by_id ON runs (edition_id, run_id);
CREATE TABLE IF NOT EXISTS attempts (
  edition_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  session INTEGER NOT NULL,
  status TEXT NOT NULL,
  started_at {real},
  ended_at {real},
  exit_code INTEGER,
  error TEXT,
  PRIMARY KEY (edition_id, position, attempt)
);
CREATE TABLE IF NOT EXISTS superseded (
  edition_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  metrics TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS series (
  edition_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  block {blob} NOT NULL,
  PRIMARY KEY (edition_id, position)
);
CREATE TABLE IF NOT EXISTS trajectories (
  edition_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  path TEXT NOT NULL,
  steps INTEGER NOT NULL,
  reward {real},
  bytes BIGINT NOT NULL,
  PRIMARY KEY (edition_id, position)
);
CREATE TABLE IF NOT EXISTS looks (
  edition_id INTEGER NOT NULL,
  at {real} NOT NULL,
  verb TEXT NOT NULL,
  kind TEXT NOT NULL,
  planned INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  runs TEXT NOT NULL,
  verdicts TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS growths (
  edition_id INTEGER NOT NULL,
  at {real} NOT NULL,
  planned_before INTEGER NOT NULL,
  planned_after INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS claims (
  edition_id INTEGER NOT NULL,
  token TEXT NOT NULL,
  position INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  session INTEGER NOT NULL,
  pilot TEXT NOT NULL,
  executor TEXT NOT NULL,
  PRIMARY KEY (edition_id, position)
);
CREATE TABLE IF NOT EXISTS nodes (
  edition_id INTEGER NOT NULL,
  node TEXT NOT NULL,
  session INTEGER NOT NULL,
  executor TEXT NOT NULL,
  host TEXT NOT NULL,
  kind TEXT NOT NULL,
  code TEXT NOT NULL,
  seen_at {real} NOT NULL,
  lost INTEGER NOT NULL DEFAULT 0,
  late INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (edition_id, node)
);
"""
ADDED = (("runs", "crc", "BIGINT"), ("attempts", "node", "TEXT"), ("attempts", "lost", "TEXT"))
"""(table, column, type) of columns that came after the first version. `crc` is a checksum of a run's row (version 3);
`node` is where an attempt ran, and `lost` how it was lost, if it was (version 5)."""
TABLE_NAMES = (
    "runs", "attempts", "superseded", "series", "trajectories", "looks", "growths", "claims", "nodes", "cells", "sessions", "editions",
)  # fmt: skip
"""Tables with rows of editions, in the order in which an edition's rows can be deleted."""

_WORDS = {
    "sqlite": {"serial": "INTEGER PRIMARY KEY", "real": "REAL", "blob": "BLOB"},
    "postgres": {"serial": "SERIAL PRIMARY KEY", "real": "DOUBLE PRECISION", "blob": "BYTEA"},
}
_HAS_META = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'",
    "postgres": "SELECT 1 FROM information_schema.tables WHERE table_name = 'meta' AND table_schema = current_schema()",
}

_NOT_OURS = (
    "SELECT type || ' ' || name FROM sqlite_master WHERE tbl_name IN ({names}) AND (type IN ('view', 'trigger') "
    "OR (type = 'table' AND (sql LIKE '%VIRTUAL%' OR sql LIKE '%GENERATED%' OR sql LIKE '% AS (%'))) LIMIT 1"
)
"""In place of our tables: views and computed columns, which may take for ever to read, and triggers."""
_DAMAGE = re.compile("malformed|not a database|no such (table|column)|Could not decode")
"""What SQLite says about a file that something else than SQLite has written to."""

Row = tuple[Any, ...]


class Database:
    """One connection. Use it from one thread at a time.

    A connection to a server that is lost is opened again: by the next statement outside a transaction, or the next
    transaction. What was in a transaction then raises StorageError, and `uncertain` says that it may have been committed.
    """

    def __init__(
        self, connection: Any, engine: Literal["sqlite", "postgres"], place: str, again: Callable[[], Any] | None = None
    ) -> None:
        self._connection = connection
        self._again = again
        """Opens another connection, where there is a server."""
        self._in_transaction = False
        self.uncertain = False
        """The connection was lost during the last transaction: nobody knows whether it was committed."""
        self.reopened: Callable[[], None] | None = None
        """Called after the connection was opened again; when it raises, the connection is closed."""
        self.engine = engine
        self.place = place
        """The path of the SQLite file, or the URL."""
        self.label = _without_password(place)
        """`place` as it may be shown."""
        self.version = VERSION
        """The schema's version, which may be an older one when the database is only read."""
        self._errors: tuple[type[Exception], ...] = (sqlite3.Error,)
        self._file = _identity(place) if engine == "sqlite" else None
        self._placeholder = "?"
        if engine == "postgres":
            import psycopg

            self._errors = (psycopg.Error,)
            self._placeholder = "%s"

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The first column of the first row; None when there is no row."""
        with self._storage_errors():
            row = self._execute(sql, values).fetchone()
            return row[0] if row else None

    def rows(self, sql: str, values: Sequence[Any] = (), size: int = 5000) -> Iterator[Row]:
        """Rows in pages of `size`, without holding them all."""
        with self._storage_errors():
            cursor = self._execute(sql, values)
            while rows := cursor.fetchmany(size):
                yield from rows

    @contextmanager
    def transaction(self) -> Iterator[Database]:
        """All or nothing, and on disk when it ends. Raises StorageError when it cannot be recorded.

        with database.transaction() as transaction:
            transaction.run("DELETE FROM runs WHERE edition_id = ?", (3,))
        """
        with self._storage_errors():
            # IMMEDIATE takes the write lock now: a read transaction that writes later may fail with SQLITE_BUSY
            # without waiting (https://sqlite.org/lang_transaction.html).
            self._execute("BEGIN IMMEDIATE" if self.engine == "sqlite" else "BEGIN")
            self._in_transaction = True
            try:
                yield self
                self._execute("COMMIT")
                self.uncertain = False
                if self.engine == "sqlite" and _identity(self.place) != self._file:
                    # SQLite goes on writing into a file that was deleted under it, where nobody would ever find it.
                    raise StorageError(f"{self.label}: was deleted or replaced while in use")
            except BaseException:
                self.uncertain = self.lost
                try:
                    self._execute("ROLLBACK")
                except self._errors:
                    pass  # a failed COMMIT may have rolled back already; the first error is the one to report
                raise
            finally:
                self._in_transaction = False

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Change rows, inside a `transaction`. Returns how many were changed."""
        return int(self._execute(sql, values).rowcount)

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Change rows once for each of `rows`, inside a `transaction`. Returns how many were changed."""
        if rows == []:  # saves a round trip to a server
            return 0
        cursor = self._connection.cursor()
        cursor.executemany(sql.replace("?", self._placeholder), rows)
        return int(cursor.rowcount)

    def _execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """A cursor of the DB-API (PEP 249)."""
        statement = sql.replace("?", self._placeholder)
        try:
            return self._connection.execute(statement, values)
        except self._errors:
            if self._in_transaction or not self.lost:
                raise
        self._open_again()
        return self._connection.execute(statement, values)

    @property
    def lost(self) -> bool:
        """Whether the server closed the connection, or it broke."""
        return self._again is not None and bool(self._connection.closed)

    def _open_again(self) -> None:
        """Another connection in the place of a lost one; a server that restarts gets some seconds."""
        assert self._again is not None
        deadline = time.monotonic() + _RESTART
        while True:
            try:
                self._connection = self._again()
                break
            except self._errors:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.2)
        if self.reopened is not None:
            try:
                self.reopened()
            except BaseException:
                self._connection.close()
                raise

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            reason = str(error).strip()
            if self.engine == "sqlite" and _DAMAGE.search(reason):
                raise Damaged(self.label, reason) from error
            raise StorageError(f"{self.label}: {reason}") from error
        except UnicodeDecodeError as error:  # SQLite quotes what it found in its messages
            raise Damaged(self.label, str(error)) from error
        except OverflowError as error:  # a size or a time that no number of the database's holds
            raise StorageError(f"{self.label}: {error}") from error

    def close(self) -> None:
        self._connection.close()


def connect(place: str, *, readonly: bool = False) -> Database:
    """`place` is a PostgreSQL URL or the path of a SQLite file. Tables are created when they are missing.

    Raises UsageError when there is nothing to read, StorageError when it cannot be opened or is of a newer version.
    """
    is_url = place.startswith(("postgres://", "postgresql://"))
    database = _postgres(place) if is_url else _sqlite(Path(place), readonly)
    with ExitStack() as undo:
        undo.callback(database.close)
        if database.engine == "sqlite":
            names = ", ".join(f"'{name}'" for name in ("meta", *TABLE_NAMES))
            if (odd := database.value(_NOT_OURS.format(names=names))) is not None:
                raise Damaged(database.label, f"it has a {str(odd)[:60]!r}, which bakeoff did not make")
        known = database.value(_HAS_META[database.engine]) is not None
        schema = database.value("SELECT value FROM meta WHERE key = 'schema'") if known else None
        version = None if schema is None else _number(schema, database)
        if not readonly and database.engine == "sqlite":
            # WAL keeps its index in memory that only processes of one machine share (https://sqlite.org/wal.html), so
            # on a network file system a rollback journal is used. The mode stays with the file; a file that is only
            # read is left as it is.
            wanted = "delete" if on_network(Path(place).parent) else "wal"
            if database.value("PRAGMA journal_mode") != wanted:
                database.value(f"PRAGMA journal_mode={wanted}")
        if not readonly and (version is None or version < VERSION):
            _create_tables(database)
        elif version is None:
            raise StorageError(f"{database.label}: has no bakeoff tables")
        elif version > VERSION:
            raise StorageError(
                f"{database.label}: written by a newer bakeoff (schema {version}; this one knows {VERSION}). "
                "Nothing was changed. Upgrade bakeoff to read it"
            )
        else:
            database.version = version
        undo.pop_all()
    return database


def _number(schema: Any, database: Database) -> int:
    """The schema's version. Raises Damaged for anything but a number from 1 on."""
    if re.fullmatch(r"[1-9]\d{0,8}", str(schema), re.ASCII) is None:
        raise Damaged(database.label, f"its schema version is {str(schema)[:20]!r}, which is not a version")
    return int(schema)


def _create_tables(database: Database) -> None:
    """Create the tables, or add those that a newer version has."""
    with database.transaction() as transaction:
        # Two first users at once: CREATE TABLE IF NOT EXISTS alone can fail with a unique violation in PostgreSQL.
        if database.engine == "postgres":
            transaction.run(f"SELECT pg_advisory_xact_lock({LOCK})")
        for statement in TABLES.format(**_WORDS[database.engine]).split(";"):
            if statement.strip():
                transaction.run(statement)
        for table, column, kind in ADDED:
            known = f"SELECT 1 FROM pragma_table_info('{table}') WHERE name = '{column}'"
            if database.engine == "postgres":
                transaction.run(f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column} {kind}")
            elif transaction.value(known) is None:
                transaction.run(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
        transaction.run(
            "INSERT INTO meta (key, value) VALUES ('schema', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (str(VERSION),),
        )


def _sqlite(path: Path, readonly: bool) -> Database:
    from urllib.parse import quote

    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        if readonly:
            raise UsageError(f"{path}: no such database") from None
    except OSError as error:
        raise StorageError(f"{path}: cannot be opened: {error.strerror}") from error
    else:
        # A link could lead out of a mailed edition; SQLite itself follows none for the files beside this one.
        if stat.S_ISLNK(kind):
            raise refused(path)
        if not stat.S_ISREG(kind):
            raise Damaged(path, "it is not a regular file")
    movable = os.access(path.parent, os.W_OK)
    try:
        # A reader opens the file for writing too where it may: WAL needs its shared-memory file. Where the directory
        # cannot be written, `immutable` reads without one (https://sqlite.org/wal.html#read_only_databases), unless
        # there are results in the -wal file, which `immutable` would not see.
        mode = "ro" if readonly and not os.access(path, os.W_OK) else "rw" if readonly else "rwc"
        immutable = ""
        if mode == "ro" and not movable:
            log = path.with_name(f"{path.name}-wal")
            immutable = "" if log.exists() and log.stat().st_size > 0 else "&immutable=1"
        uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}{immutable}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30)
        try:
            if not readonly:
                connection.execute("PRAGMA synchronous=FULL")
            connection.execute("SELECT name FROM sqlite_master LIMIT 1")
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        if _DAMAGE.search(str(error)):
            raise Damaged(path, str(error)) from error
        fix = ". Copy its directory to where it can be written" if readonly and not movable else ""
        raise StorageError(f"{path}: cannot be opened: {error}{fix}") from error
    except UnicodeDecodeError as error:
        raise Damaged(path, str(error)) from error
    return Database(connection, "sqlite", str(path))


def _postgres(url: str) -> Database:
    try:
        import psycopg
    except ImportError as error:
        raise UsageError("a PostgreSQL store needs psycopg: pip install 'bakeoff[postgres]'") from error

    def open_connection() -> Any:
        return psycopg.connect(url, autocommit=True)  # transactions are begun explicitly, as with SQLite

    try:
        connection = open_connection()
    except psycopg.Error as error:
        raise StorageError(f"{_without_password(url)}: {str(error).strip()}") from error
    return Database(connection, "postgres", url, open_connection)


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of a file; None when it is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _without_password(url: str) -> str:
    # Greedy up to the last @: a password may contain one.
    shown = re.sub(r"(://[^:/@]*):\S*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&][^=&]*passw[^=&]*=)[^&]*", r"\1***", shown)
