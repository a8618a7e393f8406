"""rm: gone for good, and only what was meant."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from click.testing import Result

from bakeoff.records.edition import Edition
from support.editions import START
from support.processes import LONG

Bakeoff = Callable[..., Result]
MakeEdition = Callable[..., Edition]
HOME = Path("bakeoff-runs/sorting")


def test_rm_without_a_terminal_needs_yes(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    edition = make_edition()
    result = bakeoff("rm", "sorting")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert edition.paths.database.exists()


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_rm_asks_on_a_terminal(make_edition: MakeEdition, answer: bytes, code: int) -> None:
    edition = make_edition()
    edition.close()
    control, terminal = pty.openpty()
    command = [sys.executable, "-m", "bakeoff", "rm", "sorting"]
    process = subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.write(control, answer)
    _, said = process.communicate(timeout=LONG)
    os.close(control)
    os.close(terminal)
    assert process.returncode == code
    assert b"Delete permanently?" in said
    assert edition.paths.database.exists() == (code == 1)


def test_rm_deletes_the_last_edition_with_its_experiment(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    make_edition()
    assert bakeoff("rm", "sorting", "--yes").exit_code == 0
    assert not HOME.exists()


def test_rm_of_the_newest_edition_points_latest_at_the_one_before(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    older = make_edition(stamp=START)
    make_edition(stamp=START + 60)
    assert bakeoff("rm", "latest", "--yes").exit_code == 0
    assert (HOME / "latest").readlink() == Path(older.paths.name)
    assert "6 succeeded" in bakeoff("status").stdout


def test_rm_asks_which_edition_is_meant_when_there_are_several(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    make_edition(stamp=START)
    make_edition(stamp=START + 60)
    result = bakeoff("rm", "sorting", "--yes")
    assert result.exit_code == 2
    assert "has 2 editions" in result.stderr
    assert bakeoff("rm", "sorting", "--all", "--yes").exit_code == 0
    assert not HOME.exists()


def test_rm_refuses_while_the_edition_is_being_run(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    edition = make_edition()
    with open(edition.paths.lease) as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        result = bakeoff("rm", "sorting", "--yes")
    assert result.exit_code == 1
    assert "is being run" in result.stderr
    assert edition.paths.database.exists()


def test_rm_deletes_rows_in_postgresql_and_leaves_other_editions(
    bakeoff: Bakeoff, make_edition: MakeEdition, postgres_url: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_url()
    monkeypatch.setenv("BAKEOFF_DATABASE_URL", url)
    make_edition("sorting").close()
    make_edition("other").close()
    assert bakeoff("rm", "sorting", "--yes").exit_code == 0
    with psycopg.connect(url) as connection:
        for table in ("runs", "attempts", "cells", "sessions", "editions"):
            left = connection.execute(f"SELECT count(DISTINCT edition_id) FROM {table}").fetchone()
            assert left == (1,), table
    assert "6 succeeded" in bakeoff("status", "other").stdout


def test_every_looking_verb_works_on_postgresql(
    bakeoff: Bakeoff, make_edition: MakeEdition, postgres_url: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAKEOFF_DATABASE_URL", postgres_url())
    make_edition("sorting").close()
    for call in (
        ["ls"], ["status"], ["status", "--runs"], ["show", "latest"], ["logs", "latest"], ["reproduce", "latest"],
        ["collect"], ["query", "SELECT count(*) FROM runs"], ["diff", "latest", "latest"],
    ):  # fmt: skip
        result = bakeoff(*call)
        assert result.exit_code == 0, (call, result.stderr)
