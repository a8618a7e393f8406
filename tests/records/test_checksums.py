"""Flipped bits are found and told with the run; editions from before checksums are still read."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bakeoff.errors import Damaged
from bakeoff.records.edition import Edition
from bakeoff.records.run import Attempt
from bakeoff.records.series import Series, TrajectoryWriter, read_block, read_trajectory
from bakeoff.spec.workload import Step
from support.editions import Begin, make_edition, make_plan


def change(edition: Edition, sql: str, *values: Any) -> None:
    edition.close()
    connection = sqlite3.connect(edition.paths.database)
    with connection:
        connection.execute(sql, values)
    connection.close()


@pytest.mark.parametrize(
    "what",
    ["metrics = replace(metrics, '5.1', '5.9')", "status = 'failed'", "seed = seed + 1", "run_id = run_id || 'x'", "attempts = 2",
     "ended_at = ended_at + 1", "exit_code = 1", "error = 'x'", "command = 'y'", "rollout = 1", "cell = 1 - cell"],
)  # fmt: skip
def test_a_row_that_is_not_as_it_was_written_is_told_with_its_run(what: str, tmp_path: Path) -> None:
    edition = make_edition(tmp_path)
    position = next(run.position for run in edition.runs() if run.arm == "small" and run.seed == 1)
    change(edition, f"UPDATE runs SET {what} WHERE position = ?", position)
    with pytest.raises(Damaged, match=r"the record of run 'small__s1__\w+' does not match its checksum"):
        list(Edition.open(edition.paths).runs())


def test_another_arm_s_name_is_found_too(tmp_path: Path) -> None:
    edition = make_edition(tmp_path)
    change(edition, "UPDATE cells SET arm = 'other' WHERE arm = 'small'")
    with pytest.raises(Damaged):
        list(Edition.open(edition.paths).runs())


def test_a_run_of_no_cell_is_not_left_out_in_silence(tmp_path: Path) -> None:
    edition = make_edition(tmp_path)
    change(edition, "UPDATE runs SET cell = 77, crc = NULL WHERE position = 0")
    with pytest.raises(Damaged, match="belongs to cell 77"):
        list(Edition.open(edition.paths).runs())


def test_an_edition_from_before_checksums_is_read_and_gets_them_when_it_is_written(tmp_path: Path) -> None:
    edition = make_edition(tmp_path)
    runs = list(edition.runs())
    change(edition, "ALTER TABLE runs DROP COLUMN crc")
    change(edition, "UPDATE meta SET value = '2'")
    old = Edition.open(edition.paths)
    assert list(old.runs()) == runs
    old.close()
    new = Edition.open(edition.paths, readonly=False)
    assert list(new.runs()) == runs and new.database.value("SELECT MAX(crc) FROM runs") is None
    new.close()


def test_odd_values_match_their_checksum_when_they_are_read(begin: Begin) -> None:
    plan = make_plan()
    edition = begin(plan)
    session = edition.begin_session({}, len(plan))
    odd: list[dict[str, Any]] = [
        {"started_at": 1, "ended_at": 2, "metrics": {"a": 1}},
        {"started_at": math.nan, "ended_at": math.inf, "metrics": {"a": math.nan, "b": 2**70}},
        {"error": "half \ud800 and \0 nul", "command": "é 𝄞 \x1b"},
        {"metrics": {"ü\ud800": "\udfff", "n": None, "t": True}, "exit_code": 0},
        {"started_at": 0.1 + 0.2, "ended_at": 1e300},
    ]
    for run, fields in zip(plan, odd, strict=False):
        edition.finish([Attempt.of(run, status="succeeded", **fields)], session)
    assert len(list(edition.runs())) == len(plan)


def test_every_flipped_bit_of_a_series_or_trajectory_is_found_or_harmless(tmp_path: Path) -> None:
    series = Series()
    for step in range(30):
        series.add(step, {"loss": 1.0 / (step + 1)})
    block = series.block()
    sound = {name: (steps.tolist(), values.tolist()) for name, (steps, values) in read_block(block).items()}
    for bit in range(0, len(block) * 8, 3):
        flipped = bytearray(block)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = {
                name: (steps.tolist(), values.tolist()) for name, (steps, values) in read_block(bytes(flipped)).items()
            }
        except ValueError:
            continue
        assert found == sound
    path = tmp_path / "trajectory.jsonl.zst"
    writer = TrajectoryWriter(path)
    for step in range(30):
        writer.add(Step(action=step, reward=0.5))
    writer.close()
    steps, content = list(read_trajectory(path)), path.read_bytes()
    for bit in range(0, len(content) * 8, 5):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found_steps = list(read_trajectory(path))
        except ValueError:
            continue
        assert found_steps == steps[: len(found_steps)]  # it may look cut off; `export` knows how many there were


def test_a_block_that_claims_to_be_enormous_is_not_unpacked() -> None:
    # A frame header (RFC 8878) that promises 2**40 bytes, and nothing behind it.
    with pytest.raises(ValueError, match="damaged"):
        read_block(b"\x28\xb5\x2f\xfd\xe0" + (2**40).to_bytes(8, "little") + b"\x01\x00\x00")


@pytest.mark.parametrize("version", ["x", "", "-1", "0", "1.5", "99999999999999999999", "3; DROP TABLE runs", "٣"])
def test_a_schema_version_that_is_no_number_is_told(version: str, tmp_path: Path) -> None:
    edition = make_edition(tmp_path)
    change(edition, "UPDATE meta SET value = ?", version)
    for readonly in (True, False):
        with pytest.raises(Damaged, match="schema version"):
            Edition.open(edition.paths, readonly=readonly)


@pytest.mark.parametrize("indexes", [True, False])
def test_runs_that_vanish_with_a_damaged_page_are_missed(indexes: bool, tmp_path: Path) -> None:
    """A page whose header says that it holds no rows is valid for SQLite, and the edition looked complete."""
    edition = make_edition(tmp_path)
    edition.begin_session({}, edition.planned())
    edition.close()
    connection = sqlite3.connect(edition.paths.database)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    pages = connection.execute("SELECT type, rootpage FROM sqlite_master WHERE tbl_name = 'runs'").fetchall()
    connection.close()
    with open(edition.paths.database, "r+b") as file:
        for kind, page in pages:
            if indexes or kind == "table":
                file.seek((page - 1) * size + 3)
                file.write(bytes(2))  # the number of rows: https://www.sqlite.org/fileformat2.html#b_tree_pages
    with pytest.raises(Damaged, match="is damaged"):
        Edition.open(edition.paths)
