"""What is wrong on our side is told before a rollout where it can be, and is never the agent's score."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bakeoff.engine.node.context import Context
from bakeoff.errors import InfraError, UsageError, install
from bakeoff.records.run import Attempt
from bakeoff.sandbox.base import CommandResult, Image
from bakeoff.sandbox.bubblewrap import Bubblewrap, BubblewrapBox
from bakeoff.spec.workload import Outcome
from bakeoff.workloads.tasks import attempt, verify
from bakeoff.workloads.tasks.agents.base import Assignment, Invocation
from bakeoff.workloads.tasks.agents.registry import AgentEntry, Nop
from bakeoff.workloads.tasks.environment import box_spec, lay_out
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.model import REPOSITORY
from bakeoff.workloads.tasks.proxy.providers import Provider
from bakeoff.workloads.tasks.start import start_state
from bakeoff.workloads.tasks.workload import TasksParams, TasksWorkload
from workloads.tasks.small import MEND, write_task
from workloads.tasks.tasked import HARBOR, harbor_task

pytestmark = pytest.mark.apt  # git and bubblewrap

HERE = Provider(base_url="http://127.0.0.1:9/v1")


def test_results_that_cannot_be_written_are_no_failure_of_the_agent(tmp_path: Path) -> None:
    write_task(tmp_path / "sums")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "logs").write_text("in the way")
    context = Context(Attempt(0, "r", 0, "a", "t", 0, 0), tmp_path, tmp_path / "run")
    with pytest.raises(InfraError, match="logs"):
        TasksWorkload().run(TasksParams(path="sums", agent="nop"), context)


class Mistaken(Nop):
    def invocation(self, assignment: Assignment) -> Invocation:
        raise TypeError("a mistake")


def test_a_mistake_in_a_program_outside_the_box_is_no_failure_of_the_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_task(tmp_path / "sums")
    context = Context(Attempt(0, "r", 0, "a", "t", 0, 0), tmp_path, tmp_path / "run")
    with pytest.raises(InfraError, match="TypeError: a mistake"):
        TasksWorkload().run(TasksParams(path="sums", agent=f"{__name__}:Mistaken"), context)
    assert "Traceback" in capsys.readouterr().err


def test_a_missing_pytest_is_reported_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_task(tmp_path / "sums")
    monkeypatch.setattr(verify, "NEEDED", ("pytest-that-nobody-has",))
    with pytest.raises(UsageError, match=r"is not installed\n  fix: " + re.escape(install("tasks"))):
        TasksWorkload().check(TasksParams(path="sums", agent="nop"), tmp_path)


def test_a_cost_budget_without_a_price_is_reported_before_anything_starts(tmp_path: Path) -> None:
    write_task(tmp_path / "sums")
    params = TasksParams(path="sums", agent="builtin", model="m", cost_budget=1.0, providers={"here": HERE})
    with pytest.raises(UsageError, match="a cost budget needs the price of here/m"):
        TasksWorkload().check(params, tmp_path)


@pytest.mark.parametrize("tests", [{}, {"reads well": ""}])
def test_a_task_that_nothing_scores_is_reported_before_an_agent_is_paid(tmp_path: Path, tests: dict[str, str]) -> None:
    write_task(tmp_path / "sums", tests=tests)
    with pytest.raises(UsageError, match=r"sums: nothing scores this task\n  fix: add test scripts"):
        TasksWorkload().check(TasksParams(path="sums", agent="nop"), tmp_path)


def test_a_task_whose_overrides_name_an_endpoint_needs_no_other_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    params = TasksParams(path=str(write_task(tmp_path / "sums")), agent="builtin", model="gpt-4")
    with pytest.raises(UsageError, match="OPENAI_API_KEY is not set"):
        TasksWorkload().check(params, tmp_path)
    (tmp_path / "sums" / "overrides.json").write_text(
        '{"openai": {"base_url": "http://127.0.0.1:9/v1", "api_key": "k"}}'
    )
    TasksWorkload().check(params, tmp_path)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('[verifier]\nenv = { KEY = "${JUDGE_KEY}" }\n', "verifier.env: JUDGE_KEY is not set"),
        ('[verifier.environment]\nos = "windows"\n', "windows sandboxes are not available"),
        ('[[steps]]\nname = "one"\n', "no reference for oracle to apply\n  fix: add steps/one/solution/solve.sh"),
    ],
)
def test_what_would_break_after_the_agent_was_paid_is_reported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toml: str, words: str
) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    folder = harbor_task(tmp_path / "t", {"steps/one/instruction.md": "Do it."}, HARBOR + toml)
    if "steps" in toml:
        (folder / "solution/solve.sh").unlink()
    with pytest.raises(UsageError, match=words):
        TasksWorkload().check(TasksParams(path="t", agent="oracle"), tmp_path)


def test_an_agent_has_its_files_as_the_tasks_user_and_each_steps_own_time(tmp_path: Path) -> None:
    toml = '[agent]\nuser = "nobody"\ntimeout_sec = 60\n[[steps]]\nname = "one"\n[steps.agent]\ntimeout_sec = 0.1\n[[steps]]\nname = "two"\n'
    test = "#!/bin/sh\n[ $(cat /home/agent/said) = told ] && [ -e /home/agent/end ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
    files = {"steps/one/instruction.md": "a", "steps/two/instruction.md": "b", "tests/test.sh": test}
    harbor_task(tmp_path / "t", files, HARBOR + toml)
    command = "cat {home}/my.cfg > {home}/said; sleep 0.4; touch {home}/end"
    mine = AgentEntry(command=command, wire="none", files={"{home}/my.cfg": "told"})
    context = Context(Attempt(0, "r", 0, "a", "t", 0, 0), tmp_path, tmp_path / "run")
    TasksWorkload().run(TasksParams(path="t", agent="mine", agents={"mine": mine}), context)
    steps = json.loads((tmp_path / "run" / "evaluation_results.json").read_text())["steps"]
    assert [step["rewards"] for step in steps] == [{"reward": 0.0}, {"reward": 1.0}]


def test_the_repository_is_the_agents_own_for_git(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    task = load_task(write_task(tmp_path / "sums"))
    with bubblewrap.open(box_spec(task, Image.host())) as box:
        lay_out(task, start_state(task).tree, box, "1000")
        assert box.run(["git", "status"], cwd=REPOSITORY, user="1000").ok


def rollout(tmp_path: Path, agent: str, **more: object) -> Outcome:
    if not (tmp_path / "sums").exists():
        write_task(tmp_path / "sums")
    context = Context(Attempt(0, "r", 0, "a", "t", 0, 0), tmp_path, tmp_path / "run")
    entry = AgentEntry(command=agent, wire="none")
    return TasksWorkload().run(TasksParams(path="sums", agent="x", agents={"x": entry}, **more), context)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "status"), [(2, "succeeded"), (9, "failed")])
def test_verification_that_breaks_is_repeated_on_the_recorded_work_without_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int, status: str
) -> None:
    monkeypatch.setattr(attempt, "PAUSES", (0.0, 0.0))
    done, tried = verify.run_scripts, []

    def breaks(*args: Any, **how: Any) -> Any:
        tried.append((tmp_path / "run" / "artifacts" / "diff.patch").read_bytes())
        if len(tried) <= broken:
            raise [InfraError("no sandbox"), KeyError("a bug")][len(tried) % 2]
        return done(*args, **how)

    monkeypatch.setattr(verify, "run_scripts", breaks)
    outcome = rollout(tmp_path, f"{MEND}; date +%N > when")
    assert outcome.status == status and len(tried) == 3 and len(set(tried)) == 1
    if status == "failed":
        assert outcome.metrics["failure"] == "verification" and str(outcome.error).startswith("verification: ")
    else:
        assert outcome.metrics["total_score"] == 1.0


@pytest.mark.slow
def test_a_sandbox_that_ends_under_its_agent_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = BubblewrapBox.run

    def killed(box: BubblewrapBox, argv: Sequence[str], **how: Any) -> CommandResult:
        if "sleep 99" in " ".join(argv):
            threading.Timer(0.5, os.kill, (box.supervisor_pid, signal.SIGKILL)).start()
        return run(box, argv, **how)

    monkeypatch.setattr(BubblewrapBox, "run", killed)
    outcome = rollout(tmp_path, "sleep 99")
    assert (outcome.status, outcome.metrics) == ("failed", {"failure": "sandbox"})
    assert str(outcome.error).startswith("sandbox: the sandbox is gone")


def test_a_program_that_is_not_there_is_infrastructure_and_one_that_says_so_is_not(tmp_path: Path) -> None:
    write_task(tmp_path / "sums")
    context = Context(Attempt(0, "r", 0, "a", "t", 0, 0), tmp_path, tmp_path / "run")
    entry = AgentEntry(command=["no-such-program"], wire="none")
    with pytest.raises(InfraError, match="could not be started"):
        TasksWorkload().run(TasksParams(path="sums", agent="x", agents={"x": entry}), context)
    outcome = rollout(tmp_path, "echo bwrap: execvp x: No such file or directory >&2; exit 127")
    assert outcome.status == "succeeded" and outcome.metrics["agent_status"] == "error"
