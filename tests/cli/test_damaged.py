"""Damaged editions: every verb that reads says in one line what is wrong, and the other editions are still shown."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bakeoff.cli import main
from bakeoff.records.claims import Claims
from bakeoff.records.layout import EditionPaths
from support.editions import FILE, add_trajectories, make_edition, succeeds_with_series

RUNS = 6
READERS: list[list[str]] = [
    ["ls"],
    ["ls", "hurt"],
    ["ls", "--json"],
    ["status", "hurt"],
    ["status", "hurt", "--runs"],
    ["status", "hurt", "--json"],
    ["show", "hurt/latest"],
    ["logs", "hurt/latest"],
    ["reproduce", "hurt/latest"],
    ["diff", "hurt", "whole"],
    ["collect", "hurt"],
    ["summarize", "hurt"],
    ["query", "SELECT * FROM runs", "hurt"],
    ["compare", "hurt"],
    ["gate", "hurt", "--rule", "score:10%"],
    ["variance", "hurt"],
    ["power", "hurt"],
    ["rank", "hurt"],
    ["export", "hurt", "--format", "jsonl"],
    ["run", "hurt.toml", "--dry-run"],
    ["eval", "hurt"],
]
SLOW_READERS = [["report", "hurt"], ["plot", "hurt"], ["import", "hurt-moved", "--name", "again"]]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the editions `hurt` and `whole`, as they were before anything happened to them."""
    place = tmp_path_factory.mktemp("originals")
    for name in ("hurt", "whole"):
        edition = make_edition(place, name, succeeds_with_series, text=FILE.format(name=name) + 'control = "small"\n')
        add_trajectories(edition)
        Claims(edition, "local", 1).see_this_machine("a kind")
        edition.close()
        connection = sqlite3.connect(edition.paths.database)
        with connection:
            connection.execute("UPDATE attempts SET node = 'local-1'")
        connection.execute("PRAGMA journal_mode=DELETE")  # one file holds all
        connection.close()
    return place


@pytest.fixture
def hurt(originals: Path, tmp_path: Path) -> EditionPaths:
    """A fresh copy of both editions in the working directory; the paths of the one to hurt."""
    shutil.copytree(originals, tmp_path, dirs_exist_ok=True, symlinks=True)
    (directory,) = (entry for entry in (tmp_path / "bakeoff-runs" / "hurt").iterdir() if not entry.is_symlink())
    return EditionPaths(directory)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="bakeoff")


def checked(arguments: list[str]) -> Result:
    """The verb's result, which must be an answer or a line of error, and never a traceback."""
    result = call(*arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        trace = "".join(traceback.format_exception(result.exception))
        pytest.fail(f"bakeoff {' '.join(arguments)}\n{trace}", pytrace=False)
    assert result.exit_code in (0, 1, 2, 3), result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) <= 1, result.stderr
    assert "Traceback" not in result.output + result.stderr
    return result


def statement(paths: EditionPaths, sql: str, *values: Any) -> None:
    connection = sqlite3.connect(paths.database)
    with connection:
        connection.execute(sql, values)
    connection.close()


# -- one kind of damage at a time

JUNK: list[Any] = [
    None,
    "",
    "x",
    "{",
    "[]",
    "{}",
    '{"a": 1}',
    "NaN",
    -1,
    2**62,
    1.5,
    float("inf"),
    b"\xff\x00",
    "\ud7ff" * 3,
]


def corrupt_value(paths: EditionPaths, rng: random.Random) -> None:
    """One value of one row is something else; where the table forbids it, the table is rebuilt without its rules."""
    connection = sqlite3.connect(paths.database)
    tables = [
        "meta",
        "editions",
        "sessions",
        "cells",
        "runs",
        "attempts",
        "series",
        "trajectories",
        "nodes",
        "environments",
    ]
    table = rng.choice(tables)
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    with connection:
        connection.execute(f"CREATE TABLE loose AS SELECT * FROM {table}")
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"ALTER TABLE loose RENAME TO {table}")
        number = connection.execute(f"SELECT rowid FROM {table} ORDER BY random() LIMIT 1").fetchone()[0]
        column, junk = rng.choice(columns), rng.choice(JUNK)
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (junk, number))
    connection.close()


def change_json(paths: EditionPaths, rng: random.Random) -> None:
    """A JSON text stays JSON and loses a key, or a key gets a value of another type."""
    table, column = rng.choice(
        [
            ("editions", "spec"),
            ("sessions", "provenance"),
            ("cells", "params"),
            ("runs", "metrics"),
            ("environments", "packages"),
        ]
    )
    connection = sqlite3.connect(paths.database)
    (text,) = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
    tree = here = json.loads(text)
    while True:
        key = rng.choice(list(here))
        if isinstance(here[key], dict) and here[key] and rng.random() < 0.7:
            here = here[key]
            continue
        if rng.random() < 0.5:
            del here[key]
        else:
            here[key] = rng.choice([None, 3, "x", [], {}, [1, {}], {"a": [1]}, -1.5, True])
        break
    with connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", (json.dumps(tree),))
    connection.close()


def drop_something(paths: EditionPaths, rng: random.Random) -> None:
    tables = [
        "meta",
        "editions",
        "sessions",
        "cells",
        "runs",
        "attempts",
        "series",
        "trajectories",
        "nodes",
        "environments",
    ]
    table = rng.choice(tables)
    statement(paths, rng.choice([f"DROP TABLE {table}", f"DELETE FROM {table}"]))


def flip_bits(paths: EditionPaths, rng: random.Random) -> None:
    content = bytearray(paths.database.read_bytes())
    for _ in range(rng.choice([1, 1, 3, 50])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    paths.database.write_bytes(content)


def truncate(paths: EditionPaths, rng: random.Random) -> None:
    os.truncate(paths.database, rng.choice([0, 1, 15, 16, 99, 100, 4096, rng.randrange(paths.database.stat().st_size)]))


def overwrite_page(paths: EditionPaths, rng: random.Random) -> None:
    size = paths.database.stat().st_size
    with paths.database.open("r+b") as file:
        file.seek(rng.randrange(0, size, 4096))
        file.write(rng.choice([b"\0" * 4096, rng.randbytes(4096), rng.randbytes(100)]))


def tear_log(paths: EditionPaths, rng: random.Random) -> None:
    """A write-ahead log that was cut off, damaged, or belongs to another database."""
    connection = sqlite3.connect(paths.database)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("UPDATE runs SET error = 'late'")
    connection.commit()
    log = paths.database.with_name("experiment.db-wal")
    content = bytearray(log.read_bytes())
    kept = paths.database.read_bytes()
    connection.close()
    paths.database.write_bytes(kept)
    how = rng.randrange(4)
    if how == 0:
        content = content[: rng.randrange(len(content))]
    elif how == 1:
        for _ in range(20):
            content[rng.randrange(len(content))] ^= 255
    elif how == 2:
        content = bytearray(rng.randbytes(5000))
    log.write_bytes(content)
    if how == 3:
        paths.database.with_name("experiment.db-shm").write_bytes(rng.randbytes(32768))


def replace_database(paths: EditionPaths, rng: random.Random) -> None:
    paths.database.unlink()
    match rng.randrange(7):
        case 0:
            paths.database.write_text("these are not the results you are looking for\n" * 100)
        case 1:
            paths.database.mkdir()
        case 2:
            os.mkfifo(paths.database)
        case 3:
            paths.database.symlink_to("nowhere")
        case 4:
            sqlite3.connect(paths.database).close()
            statement(paths, "CREATE TABLE notes (text TEXT)")
        case 5:
            paths.database.touch()
        case 6:
            statement(paths, "CREATE TABLE meta (something TEXT)")


def hurt_files(paths: EditionPaths, rng: random.Random) -> None:
    """What lies beside the database is missing, empty, of another kind, or damaged."""
    beside = sorted(path for path in paths.directory.rglob("*") if path.is_file() and path != paths.database)
    victim = rng.choice([*beside, paths.runs, paths.lease, paths.frozen(".toml")])
    match rng.randrange(5):
        case 0:
            shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
        case 1 if victim.is_file():
            content = bytearray(victim.read_bytes() or b"x")
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            victim.write_bytes(content)
        case 2 if victim.is_file():
            victim.unlink()
            victim.mkdir()
        case 3:
            shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
            os.mkfifo(victim)
        case _:
            shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
            victim.write_bytes(rng.randbytes(200))


HURTS: list[Callable[[EditionPaths, random.Random], None]] = [
    corrupt_value, change_json, drop_something, flip_bits, truncate, overwrite_page, tear_log, replace_database, hurt_files,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("hurting", HURTS, ids=lambda function: function.__name__)
def test_no_damage_makes_a_verb_print_a_traceback_or_hide_another_edition(
    hurting: Callable[[EditionPaths, random.Random], None], hurt: EditionPaths, originals: Path, tmp_path: Path
) -> None:
    tries = int(os.environ.get("BAKEOFF_FUZZ_TRIES", "6"))
    seed = int(os.environ.get("BAKEOFF_FUZZ_SEED", "1"))
    for number in range(tries):
        rng = random.Random(f"{hurting.__name__}{seed}{number}")
        shutil.rmtree(hurt.directory)
        shutil.copytree(originals / "bakeoff-runs" / "hurt" / hurt.name, hurt.directory)
        hurting(hurt, rng)
        before = tmp_path / "before"
        shutil.rmtree(before, ignore_errors=True)
        try:
            for arguments in READERS if tries < 50 else rng.sample(READERS, 8):
                result = checked(arguments)
                if arguments == ["ls"]:
                    assert "whole" in result.stdout
        except BaseException:
            print(f"{hurting.__name__}, try {number}")
            raise


def test_a_trajectory_that_was_cut_off_is_not_exported(hurt: EditionPaths) -> None:
    path = next(hurt.runs.glob("*/trajectory.jsonl.zst"))
    os.truncate(path, path.stat().st_size - 8)
    result = checked(["export", "hurt", "--format", "jsonl"])
    assert result.exit_code == 1 and path.parent.name in result.stderr, result.stderr


def test_a_flipped_bit_in_a_metric_stops_every_verdict_and_names_the_run(hurt: EditionPaths) -> None:
    statement(hurt, "UPDATE runs SET metrics = replace(metrics, '5.1', '9.1')")
    for verb in ("status", "compare", "collect", "summarize", "report", "rank"):
        result = checked([verb, "hurt"])
        assert result.exit_code == 1 and "the record of run" in result.stderr and "backup" in result.stderr, verb
