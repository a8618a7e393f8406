"""The scheduler knows executors by their interface alone, and experiment files name them."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from bakeoff.engine.executors import Executor, NodeSetup
from bakeoff.engine.queue import Queue
from bakeoff.engine.scheduler import Scheduler, Summary, Switch
from bakeoff.engine.session import Options, Session, open_session
from bakeoff.errors import SpecError, UsageError
from bakeoff.records.run import Attempt
from bakeoff.spec import registry
from bakeoff.spec.load import load_plan
from lab import Lab

FILE = 'workload = "python"\nseeds = 6\nretries = { backoff = 0 }\nparams = { function = "anywhere:run" }\n'


class Scripted:
    """An executor without processes: it holds up to three attempts and does one of them at each `wait`."""

    def __init__(self, *, give_back: int = 0, lose: int = 0) -> None:
        self.held: list[Attempt] = []
        self.done: list[tuple[int, int]] = []
        self.stopped: list[bool] = []
        self._give_back, self._lose = give_back, lose

    def capacity(self) -> int:
        return 3 - len(self.held)

    def start(self, attempt: Attempt) -> None:
        assert self.capacity() > 0
        self.held.append(attempt)

    def wait(self, timeout: float) -> list[Attempt]:
        if not self.held:
            return []
        attempt = self.held.pop(0)
        if self._give_back > 0:
            self._give_back -= 1
            return [attempt]
        attempt.started_at = attempt.ended_at = time.time()
        attempt.status, self._lose = ("infra_error", self._lose - 1) if self._lose > 0 else ("succeeded", 0)
        attempt.metrics = {"score": attempt.seed * 2}
        self.done.append((attempt.seed, attempt.number))
        return [attempt]

    def stop(self, *, running: bool) -> None:
        self.stopped.append(running)

    def close(self) -> None:
        self.held.clear()


def scheduled(lab: Lab, executor: Executor, switch: Switch | None = None) -> tuple[Summary, Session]:
    lab.experiment(FILE, anywhere="def run(): ...")
    session = open_session(load_plan(lab.place / "trial.toml"), Options(lab.root))
    with closing(session):
        queue = Queue(session.plan, session.edition)
        scheduler = Scheduler(
            session.plan, session.edition, session.number, executor, queue, switch=switch or Switch()
        )  # fmt: skip
        return scheduler.run(), session


def test_any_executor_of_the_interface_runs_a_plan(lab: Lab) -> None:
    executor = Scripted()
    summary, _ = scheduled(lab, executor)
    assert summary.statuses == {"succeeded": 6} and summary.attempts == 6
    assert executor.done == [(seed, 1) for seed in range(6)]
    assert [row["score"] for row in lab.rows()] == [0, 2, 4, 6, 8, 10]


def test_an_attempt_that_comes_back_planned_has_not_begun_and_is_started_again(lab: Lab) -> None:
    executor = Scripted(give_back=4)
    summary, _ = scheduled(lab, executor)
    assert summary.statuses == {"succeeded": 6} and summary.attempts == 6, "giving back is not an attempt"
    assert sorted(executor.done) == [(seed, 1) for seed in range(6)]


def test_an_attempt_that_was_lost_is_ordered_again_with_the_next_number(lab: Lab) -> None:
    executor = Scripted(lose=1)
    summary, _ = scheduled(lab, executor)
    assert summary.statuses == {"succeeded": 6} and summary.attempts == 7
    assert executor.done[0] == (0, 1) and (0, 2) in executor.done


def test_a_stopped_scheduler_asks_the_executor_to_give_back_what_has_not_begun(lab: Lab) -> None:
    class Patient(Scripted):
        def wait(self, timeout: float) -> list[Attempt]:
            if self.stopped:
                held, self.held = self.held, []
                return held
            switch.press("enough")
            return super().wait(timeout)

    executor, switch = Patient(), Switch()
    summary, _ = scheduled(lab, executor, switch)
    assert summary.stopped == "enough" and summary.statuses == {"succeeded": 1}
    assert executor.stopped and not any(executor.stopped), "what is running may finish"
    assert lab.statuses() == {"succeeded": 1, "planned": 5}


def test_executors_are_found_by_their_entry_point(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    setups: list[NodeSetup] = []

    def load(group: str, name: str, noun: str) -> object:
        assert (group, name, noun) == ("bakeoff.executors", "elsewhere", "executor")
        return lambda setup: setups.append(setup) or Scripted()

    monkeypatch.setattr(registry, "load", load)
    monkeypatch.setattr(registry, "executors", lambda: ["elsewhere", "local"])
    lab.experiment(FILE + '[executor]\nkind = "elsewhere"\n')
    assert lab.run(jobs=5).statuses == {"succeeded": 6}
    (setup,) = setups
    assert (setup.workload, setup.jobs, setup.session, setup.base) == ("python", 5, 1, lab.place)
    assert setup.paths.directory == lab.directory()


def test_local_is_installed_and_another_kind_names_those_that_are(tmp_path: Path) -> None:
    assert registry.executors() == ["local"]
    file = tmp_path / "trial.toml"
    file.write_text('params = { command = "true" }\n[executor]\nkind = "lokal"\n')
    with pytest.raises(SpecError, match=r"trial.toml:3: executor.kind: no executor called 'lokal'\n.*'local'"):
        load_plan(file)
    with pytest.raises(UsageError, match="no executor called 'ray'; known executors: local"):
        registry.load(registry.EXECUTORS, "ray", "executor")
