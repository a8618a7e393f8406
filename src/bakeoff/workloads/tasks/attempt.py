"""One rollout: a box, an agent at work in it, what it changed, and its verification.

The agent sees the start state, its own files and one address, the model proxy's. Tests, reference and rubric are not
in its box. Whatever becomes of it, a timeout or a crash, what it changed is collected and verified.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.face import Box, Sandbox
from bakeoff.sandbox.scratch import scratch
from bakeoff.sandbox.spec import BoxSpec, Ended
from bakeoff.workloads.tasks.agents.base import HOME, PROGRAMS, SOLUTION, Assignment, TaskAgent
from bakeoff.workloads.tasks.boxes import box_spec, filled_in, give, inner, seen
from bakeoff.workloads.tasks.built import built_for
from bakeoff.workloads.tasks.changes import Changes, changes_of
from bakeoff.workloads.tasks.harbor_run import hide, play, show
from bakeoff.workloads.tasks.hidden_tests import lay_out, tail
from bakeoff.workloads.tasks.model import REPOSITORY, Step, Task
from bakeoff.workloads.tasks.proxy.server import ProxiedRun
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.start import remove, start_state
from bakeoff.workloads.tasks.verify import verify_diff

PORT = 4000
"""Where the model proxy is in a box with a network of its own."""
AGENT_SECONDS = 3600.0
"""How long an agent may work where neither the task nor the experiment says."""
LARGEST_WORKDIR_MB = 64
"""A Harbor workdir above this is not compared with its start: its tests judge it all the same."""
NOT_STARTED = (126, 127)

AgentStatus = Literal["ok", "error", "timeout", "memory"]


@dataclass(frozen=True, slots=True)
class Worked:
    """How the agent ended."""

    status: AgentStatus
    code: int
    seconds: float
    peak_memory_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    verification: Verification
    worked: tuple[Worked, ...]
    """One for each step that was reached."""
    diff: bytes | None
    """None where the start state is too large to compare with."""
    left_out: tuple[str, ...] = ()
    """Changed files that the diff had no room for."""


@dataclass
class Crew:
    """Who works on a task, and with what."""

    agent: TaskAgent
    logs: Path
    proxied: ProxiedRun | None = None
    socket: Path | None = None
    port: int = PORT
    seconds: float | None = None
    effort: str | None = None
    max_turns: int | None = None
    worked: list[Worked] = field(default_factory=list)

    def furnish(self, spec: BoxSpec) -> BoxSpec:
        """The agent's program, and the way to the proxy where it calls a model."""
        sockets = {self.port: self.socket} if self.socket is not None else {}
        return replace(spec, mounts=(*spec.mounts, *self.agent.install()), sockets=sockets)

    def work(self, box: Box, step: Step, env: Mapping[str, str] | None = None) -> None:
        """Let the agent work. Only an agent that cannot even be started, and so asked nothing, is an error of ours."""
        assignment = Assignment(
            instruction=step.instruction,
            workdir=seen(box, box.spec.workdir),
            model=self.proxied.model if self.proxied else "",
            url=f"http://127.0.0.1:{self.port}",
            token=self.proxied.token if self.proxied else "",
            home=seen(box, HOME),
            programs=seen(box, PROGRAMS),
            solution=seen(box, SOLUTION),
            effort=self.effort,
            max_turns=self.max_turns,
        )
        call = self.agent.invocation(assignment)
        for target, data in call.files.items():
            box.write(inner(box, target), data, 0o600)
        if step.agent.user is not None:
            give(box, step.agent.user, (assignment.home, *call.files))
        self.logs.mkdir(parents=True, exist_ok=True)
        output = self.logs / ("agent.txt" if not self.worked else f"agent-{len(self.worked) + 1}.txt")
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
        box.end_processes()
        silent = self.proxied is not None and not self.proxied.totals().calls
        if ended.code in NOT_STARTED and not ended.timed_out and silent:
            raise InfraError(f"agent {self.agent.name} could not be started in the box: {tail(output, 400)}")
        self.worked.append(Worked(_status(ended), ended.code, ended.seconds, ended.peak_memory_mb))


def _status(ended: Ended) -> AgentStatus:
    if ended.timed_out:
        return "timeout"
    if ended.memory_killed:
        return "memory"
    return "ok" if ended.code == 0 else "error"


def attempt(task: Task, crew: Crew, sandbox: Sandbox) -> Attempt:
    if crew.agent.needs_solution and any(step.solution is None for step in task.steps):
        raise UsageError(f"{task.directory}: there is no reference for {crew.agent.name} to apply")
    if task.format == "prepared":
        return _on_repository(task, crew, sandbox)
    return _on_image(task, crew, sandbox)


def _on_repository(task: Task, crew: Crew, sandbox: Sandbox) -> Attempt:
    changes = _worked(task, crew, sandbox)
    verification = verify_diff(task, changes.diff, sandbox, logs=crew.logs / "tests")
    return Attempt(verification, tuple(crew.worked), changes.diff, changes.left_out)


def _worked(task: Task, crew: Crew, sandbox: Sandbox) -> Changes:
    start = start_state(task)
    spec = box_spec(task, built_for(task.environment, sandbox).image)
    with scratch() as here:
        with sandbox.open(crew.furnish(spec)) as box:
            lay_out(task, start.tree, box, user=task.agent.user)
            if crew.agent.needs_solution and task.solution is not None:
                box.write(f"{SOLUTION}/diff.patch", task.solution.diff or b"")
            crew.work(box, task.steps[0])
            tree = here / "tree"
            _take_repository(box, tree)
        return changes_of(start, tree)


def _take_repository(box: Box, tree: Path) -> None:
    """As the agent left it. One that it removed, or put something else in the place of, is empty."""
    try:
        box.get(REPOSITORY, tree, all_links=True)
    except UsageError:
        pass
    if not tree.is_dir():
        remove(tree)
        tree.mkdir()


def _on_image(task: Task, crew: Crew, sandbox: Sandbox) -> Attempt:
    changes: list[bytes | None] = []

    def act(box: Box, step: Step) -> None:
        if crew.agent.needs_solution and step.solution is not None and step.solution.source is not None:
            show(box, SOLUTION, [step.solution.source], step.solution.script)
        with scratch() as here:
            before, after = here / "a", here / "b"
            comparable = _copied(box, before)
            crew.work(box, step, _solution_env(task, crew, step))
            if crew.agent.needs_solution:
                hide(box, SOLUTION)
            changes.append(_changes(before, after) if comparable and _copied(box, after) else None)

    logs = crew.logs / "tests"
    verification = play(task, sandbox, act, logs=logs, furnish=crew.furnish)
    diff = None if None in changes else b"".join(change for change in changes if change is not None)
    return Attempt(verification, tuple(crew.worked), diff)


def _solution_env(task: Task, crew: Crew, step: Step) -> dict[str, str]:
    if not crew.agent.needs_solution or step.solution is None:
        return {}
    return filled_in(task, "solution", step.solution.env)


def _copied(box: Box, target: Path) -> bool:
    """A copy of the workdir, unless it is the whole root or very large."""
    workdir = box.spec.workdir
    if workdir == "/":
        return False
    size = box.run(["du", "-sm", workdir], timeout=60)
    words = size.stdout.split()
    if not words or not words[0].isdigit() or int(words[0]) > LARGEST_WORKDIR_MB:
        return False
    box.get(workdir, target, all_links=True)
    return True


def _changes(before: Path, after: Path) -> bytes:
    """`git diff` of two directories that are no repositories; their own `.git` is no part of the work."""
    how = ("--no-index", "--binary", "--no-color", "--no-ext-diff", "--no-renames", "--no-prefix")
    for tree in (before, after):
        remove(tree / ".git")
    ended = subprocess.run(["git", "diff", *how, "--", "a", "b"], cwd=before.parent, capture_output=True, check=False)
    if ended.returncode not in (0, 1):
        raise InfraError(f"git could not compare two workdirs: {ended.stderr.decode(errors='replace')[-400:]}")
    return ended.stdout
