"""The proof that a task is one: its reference passes, and doing nothing does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.base import Box, Sandbox
from bakeoff.workloads.tasks.boxes import filled_in
from bakeoff.workloads.tasks.harbor_run import SOLUTION, Act, hide, last_line, play, show, started, unreached_network
from bakeoff.workloads.tasks.hidden_tests import tail
from bakeoff.workloads.tasks.model import Step, Task
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.verify import verify_diff

SOLUTION_SECONDS = 3600.0
"""How long a reference may take where the task gives agents no limit."""


def missing_reference(task: Task) -> str:
    """The file to add; empty where there is a reference for every step."""
    without = next((step.name for step in task.steps if step.solution is None), None)
    if without is None:
        return ""
    if task.format == "prepared":
        return "diff.patch"
    step = f"steps/{without}/" if (task.directory / "steps" / without).is_dir() else ""
    return f"{step}solution/solve.sh"


def reference(task: Task, sandbox: Sandbox, logs: Path) -> Verification:
    """Verify the reference solution."""
    if missing := missing_reference(task):
        raise UsageError(f"{task.directory}: there is no reference\n  fix: add {missing}")
    if task.format == "prepared":
        return verify_diff(task, _diff(task), sandbox, logs=logs)

    told: list[str] = []

    def solve(box: Box, step: Step) -> None:
        told.extend(_solve(task, step, box, logs / step.name))

    found = _played(task, sandbox, solve, logs)
    return found if found.passed else replace(found, error="; ".join(filter(None, (*told, found.error))))


def nothing(task: Task, sandbox: Sandbox, logs: Path) -> Verification:
    """Verify the start state as it is."""
    if task.format == "prepared":
        return verify_diff(task, b"", sandbox, logs=logs)
    return _played(task, sandbox, lambda box, step: None, logs)


def _diff(task: Task) -> bytes:
    return (task.solution.diff if task.solution else None) or b""


def _played(task: Task, sandbox: Sandbox, act: Act, logs: Path) -> Verification:
    try:
        return play(task, sandbox, act, logs=logs)
    except InfraError as error:
        return Verification("error", error=str(error))


def _solve(task: Task, step: Step, box: Box, logs: Path) -> Iterator[str]:
    """Run the reference as an agent would work: in the workdir, as its user, in its time. What went wrong, in words."""
    solution = step.solution
    assert solution is not None and solution.source is not None
    logs.mkdir(parents=True, exist_ok=True)
    output = logs / "oracle.txt"
    show(box, SOLUTION, [solution.source], solution.script)
    env = {"DEBIAN_FRONTEND": "noninteractive", **filled_in(task, "solution", solution.env)}
    ended = box.run(
        started([solution.source], solution.script, SOLUTION),
        env=env,
        timeout=step.agent.timeout or SOLUTION_SECONDS,
        stdout=output,
        stderr=output,
        user=step.agent.user,
    )
    hide(box, SOLUTION)
    if ended.timed_out:
        raise InfraError(f"the reference of {step.name} took longer than {step.agent.timeout or SOLUTION_SECONDS:g} s")
    if ended.code in (126, 127):
        raise InfraError(f"the reference of {step.name} could not be started: {tail(output, 400)}")
    if ended.code != 0:
        yield f"the reference of {step.name} ended with code {ended.code}{last_line(tail(output))}"
    if not box.spec.network and (unreached := unreached_network(tail(output))):
        yield unreached.replace("the tests", "the reference", 1)
