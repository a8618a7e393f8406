"""An edition that came by mail with claims and pilots in it: `run` and `status` take no name of theirs for a path."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from bakeoff.engine.pilots.arrivals import Arrivals
from bakeoff.engine.pilots.messages import Report, encode
from bakeoff.engine.pilots.spool import SpoolTransport, Writer
from bakeoff.errors import BakeoffError, Damaged, StorageError
from bakeoff.records.claims import token_from
from bakeoff.records.layout import EditionPaths
from bakeoff.records.run import Attempt
from bakeoff.spec.identity import RunId, run_id_in
from support.process_pilots import install
from support.processes import Lab

PRIVATE = "the private words of whoever reads this"
GOOD = "1.0.1.0123456789abcdef"
TOY = """seeds = 2
params = { command = "echo '{{\\"score\\": {seed}}}'" }
analysis = { metric = "score" }
"""
PILOTS = '[executor]\nkind = "processes"\nexpiry = "2s"\n'


@pytest.fixture
def mail(lab: Lab) -> EditionPaths:
    """An edition with one run that is still to do, and a directory of the reader's beside the root."""
    install(lab)
    lab.experiment(TOY)
    lab.run()
    lab.experiment(TOY + PILOTS)
    (lab.place / "outside").mkdir()
    (lab.place / "outside" / "private.txt").write_text(PRIVATE)
    paths = EditionPaths(lab.directory())
    with closing(sqlite3.connect(paths.database)) as connection, connection:
        connection.execute("UPDATE editions SET complete = 0")
        connection.execute("UPDATE runs SET status = 'planned', attempts = 0, crc = NULL WHERE position = 1")
        connection.execute("DELETE FROM attempts WHERE position = 1")
        connection.execute("UPDATE nodes SET executor = 'processes'")
    return paths


def claim(paths: EditionPaths, token: str, pilot: str, position: int = 1) -> None:
    """Write what a scheduler that was killed leaves, with names of the sender's choice."""
    with closing(sqlite3.connect(paths.database)) as connection, connection:
        connection.execute(
            "INSERT INTO claims SELECT edition_id, ?, ?, 1, 1, ?, 'processes' FROM editions", (token, position, pilot)
        )


def forget_claims(paths: EditionPaths) -> None:
    with closing(sqlite3.connect(paths.database)) as connection, connection:
        connection.execute("DELETE FROM claims")


def report(paths: EditionPaths, token: str, pilot: str) -> None:
    """Write a pilot's place in the spool, with a report that the attempt of this claim ended and left a directory."""
    with closing(sqlite3.connect(paths.database)) as connection:
        (run_id,) = connection.execute("SELECT run_id FROM runs WHERE position = 1").fetchone()
    place = paths.directory / ".spool" / pilot
    place.mkdir(parents=True, exist_ok=True)
    (paths.directory / ".spool" / "pilots.json").write_text(json.dumps([pilot]))
    for name in ("down", "up", "beat"):
        (place / name).touch()
    attempt = Attempt(position=1, run_id=run_id, cell=0, arm="default", task="default", seed=1, rollout=0, status="succeeded")  # fmt: skip
    Writer(place / "up").write([encode(Report(token, attempt, directory=True))])


def up(lab: Lab, paths: EditionPaths, name: str) -> str:
    """The way from the edition's `.incoming` to a directory beside the root."""
    return os.path.relpath(lab.place / name, paths.directory / ".incoming")


def unharmed(lab: Lab) -> bool:
    outside = lab.place / "outside"
    names = sorted(entry.name for entry in outside.iterdir()) if outside.is_dir() else []
    return names == ["private.txt"] and (outside / "private.txt").read_text() == PRIVATE


TOKENS: dict[str, Callable[[Lab, EditionPaths], str]] = {
    "a way up": lambda lab, paths: up(lab, paths, "outside"),
    "an absolute path": lambda lab, paths: str(lab.place / "outside"),
    "a name with a slash": lambda lab, paths: f"{GOOD}/../{up(lab, paths, 'outside')}",
    "nothing": lambda lab, paths: "",
    "a line more": lambda lab, paths: f"{GOOD.replace('.0.', '.1.')}\n",
    "another run's": lambda lab, paths: GOOD,
}


@pytest.mark.slow
def test_a_token_that_we_never_write_moves_no_directory(lab: Lab, mail: EditionPaths) -> None:
    for kind, token_of in TOKENS.items():
        token = token_of(lab, mail)
        forget_claims(mail)
        claim(mail, token, "1-1")
        report(mail, token, "1-1")
        if kind in ("a way up", "an absolute path"):  # `run` reads claims as `status` does
            done = lab.cli("run", "trial.toml", code=1)
            assert unharmed(lab) and "cannot be the token of a claim" in done.stderr and "Traceback" not in done.stderr
        assert "cannot be the token of a claim" in lab.look("status", "trial", code=1).stderr, kind


@pytest.mark.slow
def test_a_pilot_that_we_never_name_is_no_place_in_the_spool(lab: Lab, mail: EditionPaths) -> None:
    spool = mail.directory / ".spool"
    pilots = ["../../../../outside", str(lab.place / "outside"), "..", "1-1/.."]
    for pilot in pilots:
        claim(mail, GOOD.replace(".0.", ".1."), pilot)
        assert "cannot be the name of a pilot" in lab.look("status", "trial", code=1).stderr
        if pilot == pilots[0]:
            assert "cannot be the name of a pilot" in lab.cli("run", "trial.toml", code=1).stderr
        forget_claims(mail)
    spool.mkdir()
    for pilot in pilots:
        (spool / "pilots.json").write_text(json.dumps([pilot]))
        with pytest.raises(Damaged, match="it names what cannot be a pilot"):
            SpoolTransport(mail).known()
    lab.cli("run", "trial.toml")  # a spool that is not from here is not read
    assert unharmed(lab)


@pytest.mark.slow
def test_claims_and_reports_that_were_not_made_here_are_ignored(lab: Lab, mail: EditionPaths) -> None:
    token = GOOD.replace(".0.", ".1.")
    claim(mail, token, "1-1")
    report(mail, token, "1-1")
    (mail.directory / ".place").write_text("0123456789abcdef")  # of the sender's directory
    lab.cli("run", "trial.toml")
    (row,) = (row for row in lab.rows("trial") if row["seed"] == 1)
    assert (row["status"], row["score"]) == ("succeeded", 1.0)  # it was run here: the report has no score


@pytest.mark.slow
def test_a_link_or_a_pipe_in_the_spool_is_not_opened(lab: Lab, mail: EditionPaths) -> None:
    spool = mail.directory / ".spool"
    spool.mkdir()
    (spool / "pilots.json").write_text('["1-1"]')
    (spool / "1-1").symlink_to(lab.place / "outside")
    with pytest.raises(StorageError, match="is a symbolic link"):
        SpoolTransport(mail)
    assert unharmed(lab)
    (spool / "1-1").unlink()
    (spool / "1-1").mkdir()
    for name in ("down", "up", "beat"):
        os.mkfifo(spool / "1-1" / name)

    def look() -> None:
        with suppress(OSError, BakeoffError):
            SpoolTransport(mail).receive()

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(timeout=30)
    assert not looking.is_alive(), "it waits for the pipe"
    lab.cli("run", "trial.toml")
    assert unharmed(lab)


def test_directories_come_home_under_tokens_only_and_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    paths = EditionPaths(tmp_path / "root" / "trial" / "20260101-000000")
    paths.directory.mkdir(parents=True)
    arrivals = Arrivals(paths)
    arrivals.open()
    for token in ("../x", str(tmp_path), "", "1.0.1", f"{GOOD}.saved-1", f"{GOOD}\n"):
        with pytest.raises(OSError, match="is not the token of a claim"):
            token_from(token)
    (tmp_path / "profile").write_text(PRIVATE)
    good, run = token_from(GOOD), run_id_in(tmp_path, "run")
    arrivals.delivered(good).mkdir()
    (arrivals.delivered(good) / ".token").symlink_to(tmp_path / "profile")
    with pytest.raises(Damaged, match="cannot be the id of a run"):
        run_id_in(paths.directory, "../../outside")
    with pytest.raises(Damaged, match="cannot be the id of a run"):
        paths.run(RunId("../../outside"))
    assert arrivals.install(good, run)
    assert (tmp_path / "profile").read_text() == PRIVATE and (paths.runs / "run" / ".token").read_text() == GOOD
