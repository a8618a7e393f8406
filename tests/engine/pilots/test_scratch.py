"""Scratch of a killed pilot does not stay on its node: the next pilot there deletes it, and nothing that is in use."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bakeoff.engine.pilots.scratch import Scratch, sweep

CODE = "import time; from bakeoff.engine.pilots.scratch import Scratch; print(Scratch('1-1').path, flush=True); time.sleep(600)"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_deleted_by_the_next_one_and_what_is_in_use_stays(place: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", CODE], env={"TMPDIR": str(place)}, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    killed, living = (Path(process.stdout.readline().strip()) for process in processes if process.stdout)
    (killed / "runs").mkdir()
    processes[0].kill()
    processes[0].wait()
    mine = Scratch("2-1")
    assert not killed.exists() and living.is_dir() and mine.path.is_dir()
    mine.close()
    assert not mine.path.exists()
    processes[1].kill()
    for process in processes:
        process.communicate()
    sweep()
    assert list(place.iterdir()) == []


def test_a_directory_without_a_lock_may_be_somebodys_and_stays(place: Path) -> None:
    (place / "bakeoff-scratch-1-1-abc").mkdir()
    (place / "bakeoff-scratch-link").symlink_to(place / "bakeoff-scratch-1-1-abc")
    sweep()
    assert len(list(place.iterdir())) == 2
