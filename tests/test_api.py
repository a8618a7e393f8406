"""The Python door: what the command line does, in three lines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import bakeoff
from bakeoff.records.run import Attempt
from support.processes import Lab

FILE = 'seeds = 3\nparams = { command = "test {seed} != {bad} && echo hi", bad = 1 }'


def test_three_lines_run_an_experiment_and_give_its_table(lab: Lab) -> None:
    path = lab.experiment(FILE)
    experiment = bakeoff.load(path, root=lab.root)
    summary = experiment.run()
    table = experiment.table()
    assert summary.statuses == {"succeeded": 2, "failed": 1} and summary.complete
    assert table["status"].to_list() == ["succeeded", "failed", "succeeded"]
    assert list(table.to_pandas()["status"]) == table["status"].to_list()
    assert experiment.edition.directory.parent == lab.root / "trial"


def test_overrides_are_as_on_the_command_line(lab: Lab) -> None:
    path = lab.experiment(FILE)
    assert bakeoff.load(path, root=lab.root, overrides=["params.bad=7", "seeds=2"]).run().statuses == {"succeeded": 2}


def test_observers_hear_of_results_only_when_they_are_durable(lab: Lab) -> None:
    heard = []

    class Listener:
        def finished(self, attempt: Attempt) -> None:
            heard.append((attempt.seed, attempt.status, lab.statuses()[attempt.status] > 0))

        def tick(self, running: Sequence[Attempt]) -> None:
            return

        def close(self) -> None:
            heard.append("closed")

    lab.experiment(FILE)
    lab.run(observers=[Listener()], jobs=1)
    assert heard == [(0, "succeeded", True), (1, "failed", True), (2, "succeeded", True), "closed"]


def test_an_observer_that_fails_takes_nothing_with_it(lab: Lab) -> None:
    class Clumsy:
        def finished(self, attempt: Attempt) -> None:
            raise RuntimeError("oh no")

        def tick(self, running: Sequence[Attempt]) -> None:
            return

        def close(self) -> None:
            return

    lab.experiment('seeds = 5\njobs = 2\nparams = { command = "test {seed} = 0 || sleep 600" }')
    with pytest.raises(RuntimeError, match="oh no"):
        lab.run(observers=[Clumsy()])
    assert lab.statuses()["succeeded"] == 1
    assert lab.processes() == [], "what was running is ended"
    assert list((lab.directory() / ".scratch").iterdir()) == []
    lab.experiment('seeds = 5\njobs = 2\nparams = { command = "true" }', name="other")
    lab.run("other")  # and the lease is free, the process as before


def test_the_callers_own_children_and_directory_are_left_alone(lab: Lab) -> None:
    lab.experiment('seeds = 5\nparams = { command = "true" }')
    mine = os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ, setsid=True)
    here = Path.cwd()
    try:
        lab.run()
        assert os.waitpid(mine, os.WNOHANG) == (0, 0)
        assert Path.cwd() == here
    finally:
        os.kill(mine, 9)
        os.waitpid(mine, 0)


def test_a_wrong_file_is_told_by_one_kind_of_error(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("sedes = 3\n")
    with pytest.raises(bakeoff.SpecError, match="seeds"):
        bakeoff.load(tmp_path / "bad.toml")
    with pytest.raises(bakeoff.BakeoffError, match="no such file"):
        bakeoff.load(tmp_path / "missing.toml")


def test_every_name_that_is_offered_exists() -> None:
    assert set(dir(bakeoff)) == set(bakeoff.__all__)
    for name in bakeoff.__all__:
        assert getattr(bakeoff, name) is not None
