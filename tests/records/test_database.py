"""Opening databases: versions, places that cannot be written, and what errors say."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from bakeoff.errors import StorageError, UsageError
from bakeoff.records import layout
from bakeoff.records.claims import arms_by_kind, list_claims, list_nodes
from bakeoff.records.edition import Edition
from bakeoff.records.files import _NETWORK
from bakeoff.records.layout import Lease
from bakeoff.records.schema import VERSION
from bakeoff.records.store import connect
from support.editions import SETTINGS, Begin, make_plan


def as_nobody(function: Callable[[], object]) -> str:
    """Run in a child that is not root, whom no permission stops; what it raised or returned, as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setresuid(65534, 65534, 65534)
            text = f"returned {function()}"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


def open_up(path: Path) -> None:
    """Let everyone pass through the directories above `path`."""
    for parent in path.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)


@pytest.fixture
def sqlite_edition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edition]:
    monkeypatch.delenv("BAKEOFF_DATABASE_URL", raising=False)
    plan = make_plan()
    paths = layout.new_edition(layout.experiment_directory(tmp_path / "root", "toy"))
    edition = Edition.create(plan, paths)
    edition.add_cells(plan.cells, SETTINGS)
    edition.add_runs(plan)
    yield edition
    edition.close()  # Python 3.13 and later warn about connections that are left open


def test_an_edition_can_be_renamed_moved_and_mailed(sqlite_edition: Edition, tmp_path: Path) -> None:
    sqlite_edition.close()
    there = tmp_path / "inbox" / "from anna?#%"
    shutil.move(sqlite_edition.paths.directory, there)
    edition = Edition.open(layout.EditionPaths(there))
    assert edition.planned() == 6 and edition.facts()["experiment"] == "toy"
    edition.close()


def test_a_database_of_a_newer_version_is_refused_and_not_touched(sqlite_edition: Edition) -> None:
    path = sqlite_edition.paths.database
    sqlite_edition.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = ?", (str(VERSION + 1),))
        connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    before = path.read_bytes()
    for readonly in (True, False):
        with pytest.raises(
            StorageError, match=rf"newer bakeoff \(schema {VERSION + 1}; this one knows {VERSION}\).*Upgrade"
        ):
            Edition.open(sqlite_edition.paths, readonly=readonly)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in path.parent.iterdir() if entry.name.startswith("experiment.db")) == [
        "experiment.db"
    ]


def test_a_database_of_the_first_version_can_be_read_and_gains_what_is_new_when_it_is_written_to(
    sqlite_edition: Edition,
) -> None:
    path, paths = sqlite_edition.paths.database, sqlite_edition.paths
    sqlite_edition.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = '1'")
        connection.execute("DROP TABLE superseded")
    connection.close()
    for readonly in (True, False):
        edition = Edition.open(paths, readonly=readonly)
        assert edition.spent("cost_usd") == 0.0
        assert edition.database.version == (1 if readonly else VERSION)
        edition.close()


def test_postgres_of_a_newer_version_is_refused_too(postgres_url: Callable[[], str]) -> None:
    url = postgres_url()
    connect(url).close()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE meta SET value = '99'")
    with pytest.raises(StorageError, match="newer bakeoff"):
        connect(url)


def test_two_first_users_of_a_postgres_do_not_collide(postgres_url: Callable[[], str]) -> None:
    url = postgres_url()
    errors: list[BaseException] = []

    def use() -> None:
        try:
            connect(url).close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_passwords_are_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("postgresql://me:hush@127.0.0.1:1/x", "postgresql://me@127.0.0.1:1/x?password=hush&connect_timeout=1"):
        with pytest.raises(StorageError) as caught:
            connect(url)
        assert "127.0.0.1" in str(caught.value) and "hush" not in str(caught.value)


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "experiment.db").write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(StorageError, match=r"experiment\.db: .*not a database"):
        connect(str(tmp_path / "experiment.db"))


def test_reading_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such database"):
        connect(str(tmp_path / "experiment.db"), readonly=True)
    (tmp_path / "empty.db").touch()
    with pytest.raises(StorageError, match="has no bakeoff tables"):
        connect(str(tmp_path / "empty.db"), readonly=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["empty.db"]


def test_a_transaction_that_fails_leaves_nothing(begin: Begin) -> None:
    database = begin().database
    with pytest.raises(ZeroDivisionError), database.transaction() as transaction:
        transaction.run("UPDATE editions SET complete = 1")
        raise ZeroDivisionError
    assert database.value("SELECT complete FROM editions") == 0
    with pytest.raises(StorageError, match="nothing_like_it"):
        list(database.rows("SELECT * FROM nothing_like_it"))
    assert database.value("SELECT complete FROM editions") == 0


@pytest.mark.root  # becomes another user
def test_a_read_only_root_is_told_clearly(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o555)
    open_up(root)
    told = as_nobody(lambda: layout.new_edition(root / "toy"))
    assert told == f"StorageError: {root}/toy: cannot make a directory for results: Permission denied"


@pytest.mark.root  # becomes another user
def test_a_read_only_edition_can_be_read_and_not_written(sqlite_edition: Edition) -> None:
    directory = sqlite_edition.paths.directory
    sqlite_edition.close()
    sqlite_edition.paths.database.chmod(0o444)
    directory.chmod(0o555)
    open_up(directory / "x")
    paths = sqlite_edition.paths
    assert as_nobody(lambda: Edition.open(paths).counts()) == "returned {'planned': 6}"
    assert as_nobody(lambda: Edition.open(paths, readonly=False).begin_session({}, 0)).startswith("StorageError: ")
    assert as_nobody(lambda: Lease(paths.lease)) == f"StorageError: {directory}: cannot be written: Permission denied"


@pytest.mark.root  # becomes another user
def test_results_that_are_not_yet_in_the_file_itself_are_not_overlooked(sqlite_edition: Edition) -> None:
    paths = sqlite_edition.paths
    script = (
        "import os, sys; from pathlib import Path; from bakeoff.records.edition import Edition; "
        "from bakeoff.records.layout import EditionPaths; "
        "e = Edition.open(EditionPaths(Path(sys.argv[1])), readonly=False); e.begin_session({}, 6); os.kill(os.getpid(), 9)"
    )
    sqlite_edition.close()
    subprocess.run([sys.executable, "-c", script, str(paths.directory)], check=False)
    assert paths.database.with_name("experiment.db-wal").stat().st_size > 0
    for entry in paths.directory.iterdir():
        entry.chmod(0o444)
    paths.directory.chmod(0o555)
    open_up(paths.directory / "x")
    told = as_nobody(lambda: len(Edition.open(paths).sessions()))
    assert told == "returned 1"
    edition = Edition.open(paths)  # as root, who can
    assert len(edition.sessions()) == 1
    edition.close()


def test_a_full_disk_loses_nothing_that_was_reported(sqlite_edition: Edition) -> None:
    """The largest size that the file may have stands for the disk."""
    session = sqlite_edition.begin_session({}, 6)
    pages = sqlite_edition.database.value("PRAGMA page_count") or 0
    sqlite_edition.database.value(f"PRAGMA max_page_count = {pages + 4}")
    runs = list(sqlite_edition.runs())
    reported = []
    with pytest.raises(StorageError, match="full"):
        for run in runs:
            sqlite_edition.finish([run.next_attempt(status="succeeded", series=os.urandom(6000))], session)
            reported.append(run.position)
    sqlite_edition.close()
    edition = Edition.open(sqlite_edition.paths)
    assert [run.position for run in edition.runs() if run.status == "succeeded"] == reported and reported
    edition.close()


def test_on_a_network_file_system_the_database_has_a_rollback_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory that WAL needs is not shared between machines; a file that was moved there changes its mode too."""
    connect(str(tmp_path / "a.db")).close()
    monkeypatch.setattr("bakeoff.records.store.on_network", lambda path: True)
    for name in ("a.db", "b.db"):
        database = connect(str(tmp_path / name))
        assert database.value("PRAGMA journal_mode") == "delete"
        database.close()
        assert not list(tmp_path.glob(f"{name}-*"))


def test_a_database_of_version_4_gains_claims_and_nodes_when_it_is_written(sqlite_edition: Edition) -> None:
    paths = sqlite_edition.paths
    with sqlite_edition.database.transaction() as transaction:
        transaction.run("DROP TABLE claims")
        transaction.run("DROP TABLE nodes")
        transaction.run("ALTER TABLE attempts DROP COLUMN node")
        transaction.run("ALTER TABLE attempts DROP COLUMN lost")
        transaction.run("UPDATE meta SET value = '4' WHERE key = 'schema'")
    with closing(Edition.open(paths)) as old:
        assert old.database.version == 4 and list_claims(old) == [] and list_nodes(old) == []
        assert old.attempts(0) == [] and old.attempts_by_node() == {} and arms_by_kind(old) == {}
    with closing(Edition.open(paths, readonly=False)) as new:
        assert new.database.version == VERSION and list_claims(new) == []
        assert new.losses_alone(0) == 0


def test_a_database_of_version_7_gets_change_numbers_when_it_is_written_to(sqlite_edition: Edition) -> None:
    paths = sqlite_edition.paths
    with sqlite_edition.database.transaction() as transaction:
        transaction.run("DROP INDEX runs_by_change")
        transaction.run("ALTER TABLE runs DROP COLUMN change")
        transaction.run("DROP TABLE changes")
        transaction.run("UPDATE meta SET value = '7' WHERE key = 'schema'")
    with closing(Edition.open(paths)) as old:
        assert old.database.version == 7 and old.changes() == (0, 0)
        runs = list(old.runs())
    with closing(Edition.open(paths, readonly=False)) as new:
        assert new.database.version == VERSION and list(new.runs()) == runs
        new.begin_session({}, new.planned())
        new.beat(1, [new.run(1).next_attempt(started_at=1.0)])
        assert [run.position for run in new.runs(since=1)] == [1]


def test_runs_that_changed_are_found_in_an_index(sqlite_edition: Edition) -> None:
    steps = sqlite_edition.database.rows(
        "EXPLAIN QUERY PLAN SELECT position FROM runs WHERE edition_id = ? AND change > ? ORDER BY change", (1, 1)
    )
    assert "runs_by_change" in " ".join(str(step) for step in steps)


@pytest.mark.parametrize(
    ("shared", "kinds"),
    [
        (True, ("nfs4", "fuse.sshfs", "fuse.gcsfuse", "fuse", "virtiofs", "lustre")),
        (False, ("ext4", "overlay", "tmpfs", "fuseblk", "fuse.fuse-overlayfs")),
    ],
)
def test_file_systems_that_other_machines_may_write_to_are_known_by_their_type(
    shared: bool, kinds: tuple[str, ...]
) -> None:
    assert {bool(_NETWORK.fullmatch(kind)) for kind in kinds} == {shared}
