"""The scheduler knows executors by their interface alone, and experiment files name them."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ConfigDict

from bakeoff.engine.executors import Executor, ExecutorSetup
from bakeoff.engine.executors.slurm import SlurmSettings
from bakeoff.engine.queue import Queue
from bakeoff.engine.scheduler import INTERRUPTED, Scheduler, SessionSummary, Switch
from bakeoff.engine.session import Options, Session, open_session
from bakeoff.errors import Problem, SpecError, UsageError
from bakeoff.records.run import Attempt
from bakeoff.spec import registry
from bakeoff.spec.experiment import ExecutorEntry, ExperimentFile
from bakeoff.spec.load import load_plan
from support.processes import Lab

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


def scheduled(lab: Lab, executor: Executor, switch: Switch | None = None) -> tuple[SessionSummary, Session]:
    lab.experiment(FILE, anywhere="def run(): ...")
    session = open_session(load_plan(lab.place / "trial.toml"), Options(lab.root))
    with closing(session):
        queue = Queue(session.plan, session.edition, order_seed=0)
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
            switch.press()
            return super().wait(timeout)

    executor, switch = Patient(), Switch()
    summary, _ = scheduled(lab, executor, switch)
    assert summary.stopped == INTERRUPTED and summary.statuses == {"succeeded": 1}
    assert executor.stopped and not any(executor.stopped), "what is running may finish"
    assert lab.statuses() == {"succeeded": 1, "planned": 5}


class Elsewhere:
    """An `ExecutorKind` with a setting of its own."""

    class Settings(ExecutorEntry):
        model_config = ConfigDict(extra="forbid", frozen=True)
        queue: str = "short"

    def __init__(self) -> None:
        self.setups: list[ExecutorSetup] = []

    def check(self, experiment: ExperimentFile) -> list[Problem]:
        return []

    def open(self, setup: ExecutorSetup) -> Executor:
        self.setups.append(setup)
        return Scripted()


def test_executors_are_found_by_their_entry_point(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Elsewhere()
    monkeypatch.setattr(registry, "executor", {"elsewhere": kind}.__getitem__)
    monkeypatch.setattr(registry, "executors", lambda: ["elsewhere", "local"])
    lab.experiment(FILE + '[executor]\nkind = "elsewhere"\nqueue = "long"\n')
    assert lab.run(jobs=5).statuses == {"succeeded": 6}
    (setup,) = kind.setups
    node = setup.node
    assert (node.workload, node.jobs, node.session, node.base) == ("python", 5, 1, lab.place)
    assert node.paths.directory == lab.directory() and setup.settings.queue == "long"


def test_local_is_installed_and_another_kind_names_those_that_are(tmp_path: Path) -> None:
    assert {"local", "slurm"} <= set(registry.executors())
    file = tmp_path / "trial.toml"
    file.write_text('params = { command = "true" }\n[executor]\nkind = "lokal"\n')
    with pytest.raises(SpecError, match=r"trial.toml:3: executor.kind: no executor called 'lokal'\n.*'local'"):
        load_plan(file)
    with pytest.raises(UsageError, match="no executor called 'nomad'; known executors: local"):
        registry.executor("nomad")


def test_settings_of_an_executor_are_checked_by_it(tmp_path: Path) -> None:
    file = tmp_path / "trial.toml"
    file.write_text('params = { command = "true" }\n[executor]\nkind = "slurm"\npartiton = "gpu"\n')
    with pytest.raises(SpecError, match=r"trial.toml:4: executor.partiton: unknown key\n.*did you mean 'partition'"):
        load_plan(file)
    file.write_text(
        'params = { command = "true" }\nlimits = { time = "2h" }\n[executor]\nkind = "slurm"\ntime = "1h"\n'
    )
    with pytest.raises(SpecError, match=r"limits.time: a run may take 7200 s, and an allocation of 3600 s"):
        load_plan(file)


def test_another_executor_on_the_command_line_leaves_the_settings_of_the_files_own_out(tmp_path: Path) -> None:
    file = tmp_path / "trial.toml"
    file.write_text('params = { command = "true" }\n[executor]\nkind = "slurm"\npartition = "gpu"\ngpus = 2\n')
    ids = {run.run_id for run in load_plan(file)}
    plan = load_plan(file, executor="local")
    assert plan.experiment.executor is not None and plan.experiment.executor.model_dump() == {
        "kind": "local",
        "gpus": 2,
    }
    assert {run.run_id for run in plan} == ids
    plan = load_plan(file, ["executor.partition=cpu", "executor.slots=4", "resources.gpus=0.5"], executor="slurm")
    assert isinstance(plan.experiment.executor, SlurmSettings)
    assert (plan.experiment.executor.partition, plan.experiment.executor.slots) == ("cpu", 4)
    assert {run.run_id for run in plan} == ids, "neither the executor nor resources are part of what a run is"
