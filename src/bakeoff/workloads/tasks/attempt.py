"""One rollout: an agent at work in a sandbox, what it changed, and its verification.

The agent sees the start state, its own files and one address, the model proxy's. Tests, reference and rubrics are not
in its sandbox. Whatever becomes of the agent (a timeout, a crash), what it changed is collected and verified.

An attempt has three phases. Until the agent's command has been started, what breaks is infrastructure and the run is
tried again. From then on nothing is: an agent that can void a try could void those that it got wrong. So collecting
leaves out what it cannot copy, and verification that breaks is repeated on the recorded work.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.sandbox.base import Box, BoxSpec, LeftOut, NotStarted, Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.sandbox.files import TOO_LARGE
from bakeoff.workloads.tasks.agents.base import HOME, PROGRAMS, SOLUTION, Assignment, TaskAgent
from bakeoff.workloads.tasks.diff import Changes, apply_diff, changes_of, compare_directories
from bakeoff.workloads.tasks.environment import (
    box_path,
    box_spec,
    built_for,
    chown,
    command_path,
    filled_in,
    lay_out,
    tail,
)
from bakeoff.workloads.tasks.harbor_run import hide, run_steps, show, verified_steps
from bakeoff.workloads.tasks.model import REPOSITORY, HostPhase, Step, Task
from bakeoff.workloads.tasks.proxy.egress import Egress
from bakeoff.workloads.tasks.proxy.server import ProxiedRun
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.start import StartState, remove, start_state
from bakeoff.workloads.tasks.verify import verify_diff

PORT = 4000
"""Where the model proxy listens in a sandbox with its own network."""
AGENT_SECONDS = 3600.0
"""Time limit of an agent if neither the task nor the experiment sets one."""
LARGEST_WORKDIR_MB = 64
"""No diff is made of a larger Harbor workdir. Its tests judge the work anyway."""

PAUSES = (1.0, 5.0)
"""Seconds before collecting, verification or judging that broke is repeated on the same work."""
NOT_VERIFIED = Verification("error", error="not verified yet")

AgentStatus = Literal["ok", "error", "timeout", "memory"]
Phase = Literal["", "sandbox", "record", "judge"]


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
    diffs: tuple[bytes | None, ...]
    """What changed in each step that was reached; None if the workdir is too large to compare."""
    left_out: tuple[LeftOut, ...] = ()
    """What the agent left and the diffs do not have."""

    @property
    def diff(self) -> bytes | None:
        """The diffs of all steps. One that is missing makes the whole unknown: the others are not the agent's work."""
        return None if None in self.diffs else b"".join(diff for diff in self.diffs if diff is not None)


@dataclass(slots=True)
class TimeLimit:
    """How long an agent may work in one step."""

    longest: float
    """Seconds after which its command ends, however long its provider failed."""
    reached: bool = False


@dataclass
class Worker:
    """An agent with everything that it needs to work on a task."""

    agent: TaskAgent
    logs: Path
    proxied: ProxiedRun | None = None
    """None for an agent that calls no model."""
    socket: Path | None = None
    port: int = PORT
    egress: Egress | None = None
    """The way out to a list of hosts, if there is one."""
    hosts: Callable[[HostPhase, Step], tuple[str, ...]] = lambda phase, step: ()
    """What a phase may reach through it."""
    seconds: float | None = None
    effort: str | None = None
    max_turns: int | None = None
    log_bytes: int | None = None
    """Most of what it prints in a step that is stored; None for the sandbox's own limit."""
    results: list[AgentResult] = field(default_factory=list)
    phase: Phase = ""
    """What a run that breaks now has failed at; empty until an agent's command has been started. What breaks before that
    is infrastructure. Nothing is after: an agent could cause it, and choose which of its tries count."""

    def extend(self, spec: BoxSpec) -> BoxSpec:
        """A sandbox with the agent's program, and the way to the proxy if it calls a model."""
        sockets = {self.port: self.socket} if self.socket is not None else {}
        return replace(spec, mounts=(*spec.mounts, *self.agent.install()), sockets={**spec.sockets, **sockets})

    def work(self, box: Box, step: Step, env: Mapping[str, str] | None = None) -> None:
        """Let the agent work on a step; the result goes to `results`, its output to `logs`.

        Raises InfraError if its command could not be started, or if the sandbox broke; `phase` tells which.
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
        if self.egress is not None:
            self.egress.enter("agent", self.hosts("agent", step))
        try:
            with self._time_limit(box, self.seconds or step.agent.timeout or AGENT_SECONDS) as limit:
                ended = box.run(
                    call.argv,
                    env={**call.env, **(env or {})},
                    cwd=box.spec.workdir,
                    timeout=limit.longest,
                    stdin=call.stdin,
                    stdout=output,
                    stderr=output,
                    user=step.agent.user,
                    output_limit=self.log_bytes,
                )
        except (NotStarted, UsageError):
            raise
        except BaseException:  # the sandbox broke while the agent was at work in it
            self.phase = "sandbox"
            raise
        if ended.started:
            self.phase = "sandbox"
        if ended.output_dropped and self.proxied is not None:
            self.proxied.met("log")
        # Whatever the agent left running must not change files while they are collected and verified.
        box.end_processes()
        if self.egress is not None:
            self.egress.enter("verify", self.hosts("verify", step))
        if not ended.started:
            raise InfraError(f"agent {self.agent.name} could not be started in the sandbox: {tail(output, 400)}")
        status: AgentStatus = "ok" if ended.code == 0 else "error"
        if ended.timed_out or limit.reached:
            status = "timeout"
        elif ended.memory_killed:
            status = "memory"
        self.results.append(AgentResult(status, ended.code, ended.seconds))

    @contextmanager
    def _time_limit(self, box: Box, seconds: float) -> Iterator[TimeLimit]:
        """End the command that runs in `box` after `seconds`, not counting waits for a provider that fails."""
        patience = self.proxied.patience if self.proxied is not None else None
        if patience is None or not patience.seconds:
            yield TimeLimit(seconds)
            return
        limit, ended, before = TimeLimit(seconds + patience.seconds), threading.Event(), patience.waited()

        def watch() -> None:
            began = time.monotonic()
            while (left := began + seconds + patience.waited() - before - time.monotonic()) > 0:
                if ended.wait(max(left, 0.05)):  # a wait that goes on moves the end with every look
                    return
            limit.reached = True
            with suppress(Exception):  # the thread that waits for the command reports it
                box.end_processes()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield limit
        finally:
            ended.set()
            watcher.join()


def attempt(
    task: Task, worker: Worker, sandbox: Sandbox, keep: Callable[[TaskAttempt], None] = lambda work: None
) -> TaskAttempt:
    """Let the agent work on the task, and verify what it left.

    `keep` gets the collected work before it is verified. Verification that breaks is repeated on that work, without
    the agent; what still breaks is the status `error`. Raises UsageError if the agent needs a reference that the task
    lacks, and whatever breaks before work could be collected: `worker.phase` says whether the agent had begun by then.
    """
    if worker.agent.needs_solution and any(step.solution is None for step in task.steps):
        raise UsageError(f"{task.directory}: there is no reference for {worker.agent.name} to apply")
    return (_on_repository if task.format == "prepared" else _on_image)(task, worker, sandbox, keep)


def _on_repository(task: Task, worker: Worker, sandbox: Sandbox, keep: Callable[[TaskAttempt], None]) -> TaskAttempt:
    """A prepared task: the agent's tree becomes a diff, which is verified in fresh sandboxes."""
    start = start_state(task)
    spec = box_spec(task, built_for(task.environment, sandbox).image)
    with _opened(sandbox, worker.extend(spec)) as box:
        lay_out(task, start.tree, box, user=task.first.agent.user)
        if worker.agent.needs_solution and task.first.solution is not None:
            box.write(f"{SOLUTION}/diff.patch", task.first.solution.diff or b"")
        worker.work(box, task.steps[0])
        changes = repeated(lambda: _changes(start, box))
    work = TaskAttempt(NOT_VERIFIED, tuple(worker.results), (changes.diff,), changes.left_out)
    keep(work)
    logs = worker.logs / "tests"
    return replace(work, verification=verified(lambda: verify_diff(task, changes.diff, sandbox, logs=logs)))


def _changes(start: StartState, box: Box) -> Changes:
    """What the agent changed in the repository, whatever it left there."""
    with scratch() as here:
        tree = here / "tree"
        left_out: list[LeftOut] = []
        # All links are kept: nothing follows them, and the diff records where they point.
        with suppress(UsageError):
            left_out = box.get(REPOSITORY, tree, all_links=True)
        if not tree.is_dir():  # the agent removed the repository, or replaced it by a file: the tree is empty
            remove(tree)
            tree.mkdir()
        changes = changes_of(start, tree)
    return Changes(changes.diff, (*left_out, *changes.left_out))


def _on_image(task: Task, worker: Worker, sandbox: Sandbox, keep: Callable[[TaskAttempt], None]) -> TaskAttempt:
    """A Harbor or terminal-bench task: agent and tests work in one sandbox, and the diff is of the workdir."""
    diffs: list[bytes | None] = []
    left_out: list[LeftOut] = []

    def work(verification: Verification = NOT_VERIFIED) -> TaskAttempt:
        return TaskAttempt(verification, tuple(worker.results), tuple(diffs), tuple(left_out))

    def act(box: Box, step: Step) -> None:
        env: dict[str, str] = {}
        if worker.agent.needs_solution and step.solution is not None:
            env = filled_in(task, "solution", step.solution.env)
            if step.solution.source is not None:
                show(box, SOLUTION, [step.solution.source], step.solution.script)
        with scratch() as here:
            before = here / "a"
            # A workdir that is too large before the agent works is not compared.
            comparable = not _too_large(_workdir(box, before))
            worker.work(box, step, env)
            if worker.agent.needs_solution:
                hide(box, SOLUTION)
            diff, problems = repeated(lambda: _compared(box, before)) if comparable else (None, [])
        diffs.append(diff)
        left_out.extend(problems)
        keep(work())

    logs = worker.logs / "tests"
    try:
        verification = run_steps(task, sandbox, act, logs=logs, extend=worker.extend)
    except Exception as error:
        if not worker.phase or not diffs:
            raise
        verification = broken(error)
    known = [diff for diff in diffs if diff is not None]
    if verification.status == "error" and len(known) == len(diffs):
        verification = verified(lambda: verify_again(task, known, sandbox, logs))
    return work(verification)


def _workdir(box: Box, target: Path) -> list[LeftOut]:
    """Copy the workdir to `target`; returns what was left out. The root directory is too large."""
    if box.spec.workdir == "/":
        return [LeftOut("/", TOO_LARGE)]
    # `du` runs inside the sandbox, so a directory of any size costs no copy. An agent may have replaced it: what it
    # prints is only used as a number, and the copy itself is limited.
    words = box.run(["du", "-sm", box.spec.workdir], timeout=60).stdout.split()
    if words and words[0].isdigit() and int(words[0]) > LARGEST_WORKDIR_MB:
        return [LeftOut(box.spec.workdir, TOO_LARGE)]
    return box.get(box.spec.workdir, target, all_links=True, most=LARGEST_WORKDIR_MB << 20)


def _compared(box: Box, before: Path) -> tuple[bytes | None, list[LeftOut]]:
    """The diff of the workdir against a copy from before, None if it has become too large; and what is not in it."""
    with scratch() as here:
        shutil.copytree(before, here / "a", symlinks=True)
        after = here / "b"
        left_out: list[LeftOut] = []
        with suppress(UsageError):
            left_out = _workdir(box, after)
        if _too_large(left_out):
            return None, left_out
        if not after.is_dir():  # the agent removed it, or replaced it by a file
            remove(after)
            after.mkdir()
        try:
            return compare_directories(here / "a", after), left_out
        except InfraError as error:  # git refuses it
            return None, [*left_out, LeftOut(box.spec.workdir, str(error))]


def _too_large(left_out: Iterable[LeftOut]) -> bool:
    return any(entry.why == TOO_LARGE for entry in left_out)


@contextmanager
def _opened(sandbox: Sandbox, spec: BoxSpec) -> Iterator[Box]:
    """A sandbox. If it cannot be removed at the end, that is only printed: the work is collected by then."""
    box = sandbox.open(spec)
    try:
        yield box
    finally:
        try:
            box.close()
        except (BakeoffError, OSError) as error:
            print(f"the sandbox could not be removed: {error}", file=sys.stderr)


T = TypeVar("T")


def repeated(do: Callable[[], T], broke: Callable[[T], bool] = lambda result: False) -> T:
    """What `do` returns. If it raises, or returns what `broke` rejects, it is done again after each of PAUSES.

    The last result counts, and what the last try raises is raised.
    """
    for pause in PAUSES:
        try:
            result = do()
            if not broke(result):
                return result
        except Exception as error:
            print(f"tried again in {pause:g} s: {error}", file=sys.stderr)
        time.sleep(pause)
    return do()


def verified(verify: Callable[[], Verification]) -> Verification:
    """The verification of recorded work, repeated while it breaks."""
    try:
        return repeated(verify, lambda verification: verification.status == "error")
    except Exception as error:
        return broken(error)


def broken(error: Exception) -> Verification:
    """The verification that an exception ended. One that is not an error of ours on purpose is a bug: print it all."""
    if isinstance(error, BakeoffError | OSError):
        return Verification("error", error=str(error))
    traceback.print_exception(error)
    return Verification("error", error=f"{type(error).__name__}: {error}")


def verify_again(task: Task, diffs: Sequence[bytes], sandbox: Sandbox, logs: Path) -> Verification:
    """Verify stored work, one diff for each step that the agent reached."""
    if task.format == "prepared":
        return verify_diff(task, diffs[0], sandbox, logs=logs)

    def act(box: Box, step: Step) -> None:
        """Put the agent's changes in this step into the workdir of the sandbox."""
        number = task.steps.index(step)
        if number >= len(diffs):  # the agent did not get here: an earlier step scored less then
            return
        workdir = box.spec.workdir
        with scratch() as here:
            tree = here / "tree"
            box.get(workdir, tree, all_links=True)
            apply_diff(tree, diffs[number])
            # Emptied first: `put` merges, and files that the agent deleted would come back.
            box.run(["find", workdir, "-mindepth", "1", "-delete"], user="root")
            box.put(tree, workdir)
        if step.agent.user is not None:
            chown(box, step.agent.user, (workdir,))

    return verified_steps(task, sandbox, act, logs)
