"""One rollout: an agent at work in a sandbox, what it changed, and its verification.

The agent sees the start state, its own files and one address, the model proxy's. Tests, reference and rubrics are not
in its sandbox. Whatever becomes of the agent (a timeout, a crash), what it changed is collected and verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.base import Box, BoxSpec, Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.agents.base import HOME, PROGRAMS, SOLUTION, Assignment, TaskAgent
from bakeoff.workloads.tasks.diff import changes_of, compare_directories
from bakeoff.workloads.tasks.environment import (
    NOT_STARTED,
    box_path,
    box_spec,
    built_for,
    chown,
    command_path,
    filled_in,
    lay_out,
    tail,
)
from bakeoff.workloads.tasks.harbor_run import hide, run_steps, show
from bakeoff.workloads.tasks.model import REPOSITORY, Step, Task
from bakeoff.workloads.tasks.proxy.server import ProxiedRun
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.start import remove, start_state
from bakeoff.workloads.tasks.verify import verify_diff

PORT = 4000
"""Where the model proxy listens in a sandbox with its own network."""
AGENT_SECONDS = 3600.0
"""Time limit of an agent if neither the task nor the experiment sets one."""
LARGEST_WORKDIR_MB = 64
"""No diff is made of a larger Harbor workdir. Its tests judge the work anyway."""

AgentStatus = Literal["ok", "error", "timeout", "memory"]


@dataclass(frozen=True, slots=True)
class AgentResult:
    """How the agent ended in one step."""

    status: AgentStatus
    code: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """What one rollout came to, before it is scored by a judge and custom metrics."""

    verification: Verification
    agent: tuple[AgentResult, ...]
    """One for each step that was reached."""
    diff: bytes | None
    """None if the workdir is too large to compare."""
    left_out: tuple[str, ...] = ()
    """Changed files that did not fit into the diff."""


@dataclass
class Worker:
    """An agent with everything that it needs to work on a task."""

    agent: TaskAgent
    logs: Path
    proxied: ProxiedRun | None = None
    """None for an agent that calls no model."""
    socket: Path | None = None
    port: int = PORT
    seconds: float | None = None
    effort: str | None = None
    max_turns: int | None = None
    results: list[AgentResult] = field(default_factory=list)

    def extend(self, spec: BoxSpec) -> BoxSpec:
        """A sandbox with the agent's program, and the way to the proxy if it calls a model."""
        sockets = {self.port: self.socket} if self.socket is not None else {}
        return replace(spec, mounts=(*spec.mounts, *self.agent.install()), sockets=sockets)

    def work(self, box: Box, step: Step, env: Mapping[str, str] | None = None) -> None:
        """Let the agent work on a step; the result goes to `results`, its output to `logs`.

        Raises InfraError only if the agent could not even be started and so called no model.
        """
        assignment = Assignment(
            instruction=step.instruction,
            workdir=command_path(box, box.spec.workdir),
            model=self.proxied.model if self.proxied else "",
            url=f"http://127.0.0.1:{self.port}",
            token=self.proxied.token if self.proxied else "",
            home=command_path(box, HOME),
            programs=command_path(box, PROGRAMS),
            solution=command_path(box, SOLUTION),
            effort=self.effort,
            max_turns=self.max_turns,
        )
        # The token is good for this run only; the provider's key stays in the proxy, outside the sandbox.
        call = self.agent.invocation(assignment)
        for target, data in call.files.items():
            box.write(box_path(box, target), data, 0o600)
        # Files were written as root with mode 0600, so an agent with another user could not read its own settings.
        if step.agent.user is not None:
            chown(box, step.agent.user, (assignment.home, *call.files))
        self.logs.mkdir(parents=True, exist_ok=True)
        output = self.logs / ("agent.txt" if not self.results else f"agent-{len(self.results) + 1}.txt")
        ended = box.run(
            call.argv,
            env={**call.env, **(env or {})},
            cwd=box.spec.workdir,
            timeout=self.seconds or step.agent.timeout or AGENT_SECONDS,
            stdin=call.stdin,
            stdout=output,
            stderr=output,
            user=step.agent.user,
        )
        # Whatever the agent left running must not change files while they are collected and verified.
        box.end_processes()
        # Only a program that never reached its model was certainly not started. One that called it and then exited
        # with 127 has failed, and is scored by what it left.
        silent = self.proxied is not None and not self.proxied.totals().calls
        if ended.code in NOT_STARTED and not ended.timed_out and silent:
            raise InfraError(f"agent {self.agent.name} could not be started in the sandbox: {tail(output, 400)}")
        status: AgentStatus = "ok" if ended.code == 0 else "error"
        if ended.timed_out:
            status = "timeout"
        elif ended.memory_killed:
            status = "memory"
        self.results.append(AgentResult(status, ended.code, ended.seconds))


def attempt(task: Task, worker: Worker, sandbox: Sandbox) -> TaskAttempt:
    """Let the agent work on the task, and verify what it left.

    Raises UsageError if the agent needs a reference that the task lacks; InfraError if something on our side breaks.
    """
    if worker.agent.needs_solution and any(step.solution is None for step in task.steps):
        raise UsageError(f"{task.directory}: there is no reference for {worker.agent.name} to apply")
    return (_on_repository if task.format == "prepared" else _on_image)(task, worker, sandbox)


def _on_repository(task: Task, worker: Worker, sandbox: Sandbox) -> TaskAttempt:
    """A prepared task: the agent's tree becomes a diff, which is verified in fresh sandboxes."""
    start = start_state(task)
    spec = box_spec(task, built_for(task.environment, sandbox).image)
    with scratch() as here:
        tree = here / "tree"
        with sandbox.open(worker.extend(spec)) as box:
            lay_out(task, start.tree, box, user=task.first.agent.user)
            if worker.agent.needs_solution and task.first.solution is not None:
                box.write(f"{SOLUTION}/diff.patch", task.first.solution.diff or b"")
            worker.work(box, task.steps[0])
            # All links are kept: nothing follows them, and the diff records where they point.
            try:
                box.get(REPOSITORY, tree, all_links=True)
            except UsageError:
                pass
            if not tree.is_dir():  # the agent removed the repository, or replaced it by a file: the tree is empty
                remove(tree)
                tree.mkdir()
        changes = changes_of(start, tree)
    verification = verify_diff(task, changes.diff, sandbox, logs=worker.logs / "tests")
    return TaskAttempt(verification, tuple(worker.results), changes.diff, changes.left_out)


def _on_image(task: Task, worker: Worker, sandbox: Sandbox) -> TaskAttempt:
    """A Harbor or terminal-bench task: agent and tests work in one sandbox, and the diff is of the workdir."""
    diffs: list[bytes | None] = []

    def act(box: Box, step: Step) -> None:
        env: dict[str, str] = {}
        if worker.agent.needs_solution and step.solution is not None:
            env = filled_in(task, "solution", step.solution.env)
            if step.solution.source is not None:
                show(box, SOLUTION, [step.solution.source], step.solution.script)
        with scratch() as here:
            before, after = here / "a", here / "b"
            comparable = _copied(box, before)
            worker.work(box, step, env)
            if worker.agent.needs_solution:
                hide(box, SOLUTION)
            diffs.append(compare_directories(before, after) if comparable and _copied(box, after) else None)

    verification = run_steps(task, sandbox, act, logs=worker.logs / "tests", extend=worker.extend)
    # One step without a diff makes the whole unknown: applying the others alone would be another piece of work.
    diff = None if None in diffs else b"".join(diff for diff in diffs if diff is not None)
    return TaskAttempt(verification, tuple(worker.results), diff)


def _copied(box: Box, target: Path) -> bool:
    """Copy the workdir to `target`, unless it is the whole root directory or very large; returns whether it did."""
    # `du` runs inside the sandbox, so a directory of any size costs no copy. An agent may have replaced it: what it
    # prints is only used as a number, and the copy itself is limited by the sandbox.
    workdir = box.spec.workdir
    if workdir == "/":
        return False
    size = box.run(["du", "-sm", workdir], timeout=60)
    words = size.stdout.split()
    if not words or not words[0].isdigit() or int(words[0]) > LARGEST_WORKDIR_MB:
        return False
    box.get(workdir, target, all_links=True)
    return True
