"""Results, outputs of hidden tests and caches are for the user who made them; causes of failures are listed once."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from bakeoff.errors import UsageError
from bakeoff.records.layout import new_edition
from bakeoff.sandbox import cache
from bakeoff.sandbox.base import BoxSpec
from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.workloads.tasks.causes import CAUSES, Reason
from bakeoff.workloads.tasks.workload import TasksParams
from support.processes import Lab
from workloads.tasks.tasked import DIFF, prepared_task

ROOT = Path(__file__).parents[3]


def mode(place: Path) -> int:
    return stat.S_IMODE(place.stat().st_mode)


def test_an_edition_is_for_its_user_alone(tmp_path: Path) -> None:
    assert mode(new_edition(tmp_path / "runs" / "x").directory) == 0o700


def test_every_directory_of_the_cache_is_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "far" / "cache"))
    place = cache.directory("images", "layers")
    assert [mode(each) for each in (place, place.parent, place.parent.parent)] == [0o700] * 3


@pytest.mark.apt
def test_what_hidden_tests_print_is_for_the_user_alone(lab: Lab) -> None:
    prepared_task(lab.place / "t", {"diff.patch": DIFF})
    lab.cli("task", "oracle", "t", "--logs", "kept", cwd=lab.place)
    assert mode(lab.place / "kept") == 0o700


def test_both_pages_show_the_causes_of_the_code() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts/failure_table.py", "--check"], check=False)
    assert done.returncode == 0, "run scripts/failure_table.py"


def test_every_reason_of_a_failed_run_has_a_cause() -> None:
    assert {cause.reason for cause in CAUSES} - {None} == set(get_args(Reason))


def test_a_runtime_is_refused_where_there_are_none() -> None:
    with pytest.raises(UsageError, match="bubblewrap has no runtimes\n  fix: --sandbox docker or podman"):
        Bubblewrap().open(BoxSpec(runtime="runsc"))
    with pytest.raises(UsageError, match="give a name that docker or podman knows"):
        BoxSpec(runtime="/tmp/runsc")
    assert TasksParams.model_validate({"path": "t", "sandbox": {"runtime": "runsc"}}).sandbox.runtime == "runsc"
