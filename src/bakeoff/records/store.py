"""How statements reach the database safely: connections to SQLite and PostgreSQL behind one small interface.

    with closing(connect(place)) as database, database.transaction() as transaction:
        transaction.run("DELETE FROM runs WHERE edition_id = ?", (3,))

SQL is plain, with `?` for values, and rows are tuples; `edition.py` turns them into records. SQLite is in WAL mode (on a
network file system with a rollback journal) with full synchronisation, so a committed transaction survives a power cut
(https://sqlite.org/pragma.html#pragma_synchronous). A lost connection to PostgreSQL is opened again, and locks that were
held through it are taken again.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bakeoff.errors import Damaged, LeaseHeld, StorageError, UsageError, install
from bakeoff.records.files import on_network, refused
from bakeoff.records.layout import STAMP
from bakeoff.records.schema import LOCK, TABLE_NAMES, VERSION, create_tables

URL_VARIABLE = "BAKEOFF_DATABASE_URL"
_RESTART = 10.0
"""Seconds that a server may take to accept connections again."""

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
        self._lock: _Lock | None = None
        self.engine = engine
        self.place = place
        """The path of the SQLite file, or the URL."""
        self.label = _without_password(place) if engine == "postgres" else place
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
        if self._lock is not None:
            try:
                self._lock_again(self._lock)
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

    # -- the right to write, across machines

    def lock(self, key: int, name: str, is_ours: Callable[[], bool], patience: float = 0.0) -> None:
        """Take the advisory lock `key` of PostgreSQL, and hold it until `close`. SQLite has none: the lease file is enough.

        Raises LeaseHeld when another scheduler still has it after `patience` seconds. `name` is the edition's, for people.
        When the connection was lost and is opened again, the lock is taken again if `is_ours` says that no other scheduler
        has worked meanwhile; otherwise the statement raises LeaseHeld.
        """
        if self.engine == "sqlite":
            return
        deadline = time.monotonic() + patience
        while not self.value(f"SELECT pg_try_advisory_lock({LOCK}, ?)", (key,)):
            if time.monotonic() >= deadline:
                raise LeaseHeld(
                    f"{name} is being run from another machine or another root. "
                    "Wait for it (--wait does), stop it, or start a new edition with --fresh"
                )
            time.sleep(0.2)
        self._lock = _Lock(key, name, is_ours, self.value("SELECT pg_backend_pid()"))

    def _lock_again(self, lock: _Lock) -> None:
        """Take the lock that was lost with the connection, unless another scheduler has worked meanwhile.

        The server may not have noticed yet that the old connection is gone, and keep its lock: then it is ended there.
        """
        while not self.value(f"SELECT pg_try_advisory_lock({LOCK}, ?)", (lock.key,)):
            holder = self.value(
                f"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = {LOCK} AND objid = ? AND granted "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                (lock.key,),
            )
            if holder not in (None, lock.backend):
                raise LeaseHeld(f"{lock.name} was taken over by another scheduler while the database was out of reach")
            self.value("SELECT pg_terminate_backend(?)", (lock.backend,))
            time.sleep(0.05)
        if not lock.is_ours():
            raise LeaseHeld(f"{lock.name} was run by another scheduler while the database was out of reach")
        self._lock = lock._replace(backend=self.value("SELECT pg_backend_pid()"))

    def close(self) -> None:
        if self._lock is not None:  # a server notices a closed connection only after a moment
            key, self._lock = self._lock.key, None
            try:
                if not self.lost:  # otherwise the lock is lost as well
                    self.value(f"SELECT pg_advisory_unlock({LOCK}, ?)", (key,))
            except StorageError:
                pass
        self._connection.close()


class _Lock(NamedTuple):
    """An advisory lock that a connection holds."""

    key: int
    name: str
    is_ours: Callable[[], bool]
    backend: int
    """The server's process that holds it."""


@contextmanager
def beginning(experiment: str) -> Iterator[str | None]:
    """Keep other schedulers that use the same PostgreSQL database from beginning an edition of the same experiment.

    Yields the experiment's newest edition in the database; None when it has none, or when PostgreSQL is not used.
    """
    url = os.environ.get(URL_VARIABLE)
    if not url:
        yield None
        return
    with closing(connect(url)) as database:
        key = (LOCK + 1, experiment)  # editions have LOCK itself
        database.value("SELECT pg_advisory_lock(?, hashtext(?))", key)
        try:
            newest = database.value(
                "SELECT edition FROM editions WHERE experiment = ? ORDER BY edition_id DESC LIMIT 1", (experiment,)
            )
            yield newest if newest is not None and STAMP.fullmatch(newest) else None  # it becomes a directory
        finally:
            database.value("SELECT pg_advisory_unlock(?, hashtext(?))", key)


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
        if schema is not None and re.fullmatch(r"[1-9]\d{0,8}", str(schema), re.ASCII) is None:
            raise Damaged(database.label, f"its schema version is {str(schema)[:20]!r}, which is not a version")
        version = None if schema is None else int(schema)
        if not readonly and database.engine == "sqlite":
            # WAL keeps its index in memory that only processes of one machine share (https://sqlite.org/wal.html), so
            # on a network file system a rollback journal is used. The mode stays with the file; a file that is only
            # read is left as it is.
            wanted = "delete" if on_network(Path(place).parent) else "wal"
            if database.value("PRAGMA journal_mode") != wanted:
                database.value(f"PRAGMA journal_mode={wanted}")
        if not readonly and (version is None or version < VERSION):
            create_tables(database)
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
        raise UsageError(f"a PostgreSQL store needs psycopg: {install('postgres')}") from error

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
