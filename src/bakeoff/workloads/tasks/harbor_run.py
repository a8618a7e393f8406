"""Runs a Harbor or terminal-bench task in one sandbox: in each step an actor works, then the step's tests are run.

Tests and solution are copied into the sandbox when they are needed, replacing whatever is there, and are removed
before the next agent works. `/tests` and `/logs/verifier` are emptied before the tests run, which is checked from
outside. The actor is an agent (`attempt.py`), the reference or nobody (`check.py`), or a stored diff (`rescore.py`):

    verification = run_steps(task, sandbox, lambda box, step: None, logs=logs)
"""

from __future__ import annotations

import filecmp
import fnmatch
import math
import os
import posixpath
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.base import Box, BoxSpec, Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.diff import PatchFailed
from bakeoff.workloads.tasks.environment import box_spec, built_for, filled_in, tail
from bakeoff.workloads.tasks.expected import CHANGED, judged
from bakeoff.workloads.tasks.honeypots import hit_elsewhere
from bakeoff.workloads.tasks.launcher import Launcher
from bakeoff.workloads.tasks.model import Environment, Step, Task
from bakeoff.workloads.tasks.results import (
    PASS,
    NoReward,
    StepResult,
    Verification,
    main_reward,
    printed_reward,
    read_rewards,
)
from bakeoff.workloads.tasks.schema import Artifact, Healthcheck
from bakeoff.workloads.tasks.start import remove
from bakeoff.workloads.tasks.startup import cleaned

TESTS, SOLUTION = "/tests", "/solution"
VERIFIER_LOGS = "/logs/verifier"
LOGS = ("/logs/agent", VERIFIER_LOGS, "/logs/artifacts")
SETUP = "setup.sh"
LONGEST_LOG = 1 << 24
ALWAYS_KEPT = Artifact(source="/logs/artifacts")
LARGEST_ARTIFACTS_MB = 1024
"""Artifacts of a step beyond this are not kept: run by run, an agent could fill the disk."""

Act = Callable[[Box, Step], None]
"""Works on a step: an agent, the reference, or nobody."""

# What curl, apt, pip, uv, npm, git and glibc print without a network.
_NO_NETWORK = re.compile(
    r"^.*(could not resolve|temporary failure (in name resolution|resolving)|name or service not known"
    r"|network is unreachable|dns error|failed to lookup address|getaddrinfo|no address associated with hostname).*$",
    re.IGNORECASE | re.MULTILINE,
)
# And what they print if there is one and a server does not answer. Tests of servers print some of it too, so that it
# counts only for a reference that fails.
_UNREACHABLE = re.compile(
    r"^.*(curl: \((5|6|7|28|35|52|56)\)|failed to connect to .+ port \d+|could not connect to server"
    r"|no route to host|max retries exceeded with url|connection timed out|read timed out|operation timed out"
    r"|err: failed to fetch|failed to fetch http|unable to connect to .+:(80|443|http)|could not fetch url"
    r"|newconnectionerror|connecttimeouterror|error sending request for url|client error \(connect\)"
    r"|unable to access 'https?://|npm (err!|error) (network|code e(conn|notfound|timedout|ai_again))"
    r"|tunnel connection failed|unable to establish ssl connection|unable to resolve host address).*$",
    re.IGNORECASE | re.MULTILINE,
)


def run_steps(
    task: Task,
    sandbox: Sandbox,
    act: Act,
    *,
    logs: Path,
    extend: Callable[[BoxSpec], BoxSpec] = lambda spec: spec,
    trusted: bool = False,
) -> Verification:
    """Run all steps in one sandbox with `act` in each, and verify them; the rewards of all steps together.

    `extend` adds to the sandbox what the actor needs there. What is noticed about a `trusted` actor, such as the
    reference, does not count as tampering. Raises InfraError if an image or a sandbox is not
    available, UsageError for sandbox `none`, which has no root directory of its own.
    """
    began = time.monotonic()
    if sandbox.name == "none":
        raise UsageError(
            f"{task.directory}: a {task.format} task needs its own root directory, which sandbox 'none' lacks"
        )
    built = built_for(task.environment, sandbox)
    for step in task.steps:  # a missing image of a verifier is reported before an agent works in vain
        if step.verifier.environment is not None:
            built_for(step.verifier.environment, sandbox)
    spec = box_spec(task, built.image, workdir=task.workdir or built.workdir)
    fresh = partial(sandbox.open, spec)
    # A container has one filter of system calls for its whole life, so agents there cannot trace either.
    if sandbox.name != "bubblewrap" and any(step.verifier.mode == "shared" for step in task.steps):
        spec = replace(spec, tracing=False)
    with sandbox.open(extend(spec)) as box:
        begin(task, box)
        steps: list[StepResult] = []
        honeypots: dict[str, None] = {}
        for step in task.steps:
            if problem := _broken_start(task, step, box, fresh):
                steps.append(StepResult(step.name, "scored", {"reward": 0.0}, gate_passed=False, error=problem))
                break
            act(box, step)
            box.end_processes()  # a process that waits for the tests could write their reward
            honeypots |= dict.fromkeys(hit_elsewhere(task, box, fresh))
            hook_problems = run_hooks(box, step)
            folder = logs / step.name / "artifacts"
            artifacts = collect(box, task, step, folder)
            verify = partial(verify_step, task, step, artifacts=artifacts, sandbox=sandbox, fresh=fresh)
            result = verify(box, logs=logs / step.name)
            # A separate verifier's sandbox was never the agent's, so nothing there can be its fault.
            if result.status == "error" and step.verifier.mode == "shared" and step.verifier.isolation == "none":
                result = _blame(task, step, result, box, fresh, verify, logs)
            problems = (*hook_problems, result.error, limit_artifacts(folder))
            steps.append(replace(result, error="; ".join(filter(None, problems))))
            if result.status != "scored" or not result.gate_passed:
                break
    verification = combined(task, steps, time.monotonic() - began)
    if task.honeypots:
        verification = replace(verification, honeypots=tuple(honeypots))
    return verification if trusted else judged(task, sandbox, verification)


def verified_steps(task: Task, sandbox: Sandbox, act: Act, logs: Path, *, trusted: bool = False) -> Verification:
    """`run_steps` without exceptions: a missing sandbox or image, or a diff that does not apply, is a status."""
    try:
        return run_steps(task, sandbox, act, logs=logs, trusted=trusted)
    except PatchFailed as error:
        return Verification("patch_failed", error=str(error))
    except InfraError as error:
        return Verification("error", error=str(error))


def _broken_start(task: Task, step: Step, box: Box, fresh: Callable[[], Box]) -> str:
    """Set a step up. Returns what went wrong if an agent in an earlier step caused it; empty if all is well.

    A setup that also fails in an untouched sandbox is not the agent's doing, and its InfraError is raised.
    """
    try:
        set_up(step, box)
    except InfraError as error:
        earlier = task.steps[: task.steps.index(step)]
        if not earlier:
            raise
        with fresh() as untouched:
            begin(task, untouched)
            for other in (*earlier, step):
                set_up(other, untouched)
        return f"the agent's work broke what this step starts from: {error}"
    return ""


def _blame(
    task: Task,
    step: Step,
    result: StepResult,
    box: Box,
    fresh: Callable[[], Box],
    verify: Callable[..., StepResult],
    logs: Path,
) -> StepResult:
    """The result of tests that left no reward in the sandbox in which an agent worked.

    If they leave one in an untouched sandbox, they are run again in the agent's. Leaving none once more is the agent's
    doing and scores 0, so that breaking the tests does not pay. Otherwise `result` stays: the verifier is broken.
    """
    with fresh() as untouched:
        begin(task, untouched)
        set_up(step, untouched)
        if verify(untouched, logs=logs / f"{step.name}-untouched").status != "scored":
            return result
    again = verify(box, logs=logs / step.name)
    if again.status == "scored":
        return again
    rewards, problem = {"reward": 0.0}, f"the agent's work broke the tests: {again.error}"
    gate_passed = _passes_gate(rewards, step.min_reward)
    return replace(again, status="scored", rewards=rewards, gate_passed=gate_passed, error=problem)


def begin(task: Task, box: Box) -> None:
    """Prepare the sandbox before the first step: directories for logs, the task's files, and its health check."""
    # Writable for everyone, as in Harbor: agent and tests may run as different users.
    _must(box, ["mkdir", "-p", *LOGS], "the directories for logs")
    _must(box, ["chmod", "0777", *LOGS], "the directories for logs")
    _upload(task.environment, box)
    for file in task.overlays:
        box.write(file.target, file.read(), 0o755 if file.executable else 0o644)
    if task.environment.healthcheck is not None:
        wait_until_healthy(task.environment.healthcheck, box)


def _upload(environment: Environment, box: Box) -> None:
    """Copy the files beside a named image into the workdir, as Harbor does if there is nothing to build."""
    if environment.uploads and environment.context is not None and environment.context.is_dir():
        box.put(environment.context, box.spec.workdir)


def set_up(step: Step, box: Box) -> None:
    """Copy a step's own files and run its `setup.sh` as the agent's user; the script is gone before the agent works."""
    user = step.agent.user
    if step.workdir is not None:
        box.put(step.workdir, box.spec.workdir)
        if (step.workdir / SETUP).is_file():
            script = f"{box.spec.workdir}/{SETUP}"
            _must(box, ["bash", script], f"steps/{step.name}/workdir/{SETUP}", user)
            box.run(["rm", "-f", script], user="root")
    if step.healthcheck is not None:
        wait_until_healthy(step.healthcheck, box, user)


def wait_until_healthy(check: Healthcheck, box: Box, user: str | None = None) -> None:
    """Repeat a health check until it succeeds. InfraError after its retries; the start period does not count."""
    began = time.monotonic()
    failures = 0
    while not box.run(["bash", "-c", check.command], timeout=check.timeout_sec, user=user).ok:
        starting = time.monotonic() - began < check.start_period_sec
        failures += not starting
        if failures >= check.retries:
            raise InfraError(f"the sandbox did not become healthy: {check.command!r} failed {failures} times")
        time.sleep(check.start_interval_sec if starting else check.interval_sec)


def _must(box: Box, argv: Sequence[str], what: str, user: str | None = "root") -> None:
    """Run a command that has to succeed. InfraError with `what` and the end of its error output otherwise."""
    ended = box.run(argv, user=user)
    if not ended.ok:
        message = ended.stderr.decode(errors="replace")[-400:]
        raise InfraError(f"{what}: {argv[0]} exited with code {ended.code}: {message}")


def show(box: Box, target: str, sources: Sequence[Path], script: str) -> None:
    """Copy files and directories to `target` in the sandbox, with `script` executable. Commands may write to the copy.

    Later sources replace files of earlier ones.
    """
    with scratch() as here:
        copy_sources(sources, here)
        if (here / script).is_file():
            (here / script).chmod(0o755)
        box.put(here, target)


def copy_sources(sources: Sequence[Path], target: Path) -> None:
    """Copy files, and the content of directories, into a directory."""
    for source in sources:
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)
        else:
            shutil.copy2(source, target / source.name)


def hide(box: Box, path: str) -> None:
    box.run(["rm", "-rf", path], user="root")


def script_argv(sources: Sequence[Path], script: str, target: str) -> list[str]:
    """How to start a task's script at `target`: by its first line, or by bash if that names no program."""
    files = (source if source.is_file() else source / script for source in reversed(sources))
    file = next((file for file in files if file.name == script and file.is_file()), None)
    path = f"{target}/{script}"
    return [path] if file is None or file.read_bytes().startswith(b"#!") else ["bash", path]


@dataclass(frozen=True, slots=True)
class Kept:
    """An artifact that was copied out of the sandbox."""

    source: str
    """Its path in the sandbox."""
    place: Path
    """Where the copy is."""


def run_hooks(box: Box, step: Step) -> list[str]:
    """Run the step's collect hooks; returns the problems of those that failed.

    A hook that fails stops nothing: the agent had this sandbox to itself and must not get out of its verification.
    """
    problems = []
    for hook in step.verifier.collect:
        ended = box.run(["bash", "-c", hook.command], timeout=hook.timeout_sec, user=hook.user)
        if not ended.ok:
            reason = f"took longer than {hook.timeout_sec:g} s" if ended.timed_out else f"exited with code {ended.code}"
            problems.append(f"verifier.collect: {hook.command!r} {reason}")
    return problems


def collect(box: Box, task: Task, step: Step, folder: Path) -> list[Kept]:
    """Copy every artifact of the task and the step below `folder`, by its destination or its path in the sandbox.

    Artifacts that the agent did not make are skipped; the tests will notice.
    """
    remove(folder)  # from an earlier attempt
    kept = []
    for artifact in (ALWAYS_KEPT, *task.artifacts, *step.artifacts):
        # Relative paths start at the workdir; normpath keeps `..` from leaving the root directory.
        source = posixpath.normpath(posixpath.join("/", box.spec.workdir, artifact.source))
        place = folder / (artifact.destination or source.lstrip("/"))
        remove(place)  # if one artifact is inside another, each is copied as it says
        try:
            box.get(source, place)
        except UsageError:
            continue
        if artifact is ALWAYS_KEPT and place.is_dir() and not any(place.iterdir()):  # no task asks for it
            remove(folder)
            continue
        for top, folders, files in os.walk(place):
            for name in (*folders, *files):
                relative = Path(top, name).relative_to(place).as_posix()
                patterns = artifact.exclude
                if any(fnmatch.fnmatch(text, pattern) for text in (relative, name) for pattern in patterns):
                    remove(Path(top, name))
        kept.append(Kept(source, place))
    return kept


def limit_artifacts(folder: Path) -> str:
    """Remove the collected artifacts if they are too large; returns a message if so."""
    size = sum(file.lstat().st_size for file in folder.rglob("*")) >> 20
    if size <= LARGEST_ARTIFACTS_MB:
        return ""
    remove(folder)
    return f"{size} MB of artifacts were not kept; the limit is {LARGEST_ARTIFACTS_MB} MB"


def verify_step(
    task: Task,
    step: Step,
    box: Box,
    *,
    artifacts: Sequence[Kept],
    sandbox: Sandbox,
    fresh: Callable[[], Box],
    logs: Path,
) -> StepResult:
    """Run the step's tests after the agent stopped: in its sandbox, or in a separate one with its artifacts.

    Start-up files in the agent's sandbox go back to those of an untouched one, which `fresh` opens.
    """
    if step.verifier.mode == "shared" and step.verifier.isolation == "none":
        ready = cleaned(box, fresh, step.verifier.user, box.spec.workdir)
        result = _run_tests(task, step, box, env=ready.env, logs=logs)
        return replace(result, discounted=ready.discounted, changed_programs=ready.changed_programs)
    environment = step.verifier.environment or (task.environment if step.verifier.mode == "shared" else Environment())
    built = built_for(environment, sandbox)
    workdir = environment.workdir or built.workdir
    spec = replace(box_spec(task, built.image, environment=environment, workdir=workdir), tracing=False)
    with ExitStack() as stack:
        launcher = None
        if step.verifier.isolation == "launcher":
            launcher = stack.enter_context(
                Launcher(box, user=step.agent.user, seconds=step.verifier.timeout, modules=step.verifier.modules)
            )
            spec = replace(spec, mounts=(*spec.mounts, *launcher.mounts))
        verifier = stack.enter_context(sandbox.open(spec))
        _must(verifier, ["mkdir", "-p", *LOGS], "the directories for logs")
        _upload(environment, verifier)
        for artifact in artifacts:
            verifier.put(artifact.place, artifact.source)
        env = launcher.env(verifier) if launcher is not None else None
        result = _run_tests(task, step, verifier, env=env, logs=logs)
        if launcher is not None:
            launcher.check()
        return result


def _run_tests(task: Task, step: Step, box: Box, *, env: Mapping[str, str] | None = None, logs: Path) -> StepResult:
    """Run a step's tests in a sandbox in which an agent may have worked, and read the reward that they leave.

    The status is `scored`, `timeout`, or `error` if there is no reward that can be read. A sandbox whose `/tests` and
    `/logs/verifier` cannot be emptied scores 0: only the agent can have caused that.
    """
    verifier = step.verifier
    logs.mkdir(parents=True, exist_ok=True)
    output = logs / "test-stdout.txt"
    places = (VERIFIER_LOGS,) if verifier.tests_in_image else (VERIFIER_LOGS, TESTS)
    if not _emptied(box, places):
        problem = f"the agent kept {' and '.join(places)} from being emptied"
        return StepResult(step.name, "scored", {"reward": 0.0}, error=problem)
    # COPY often leaves the script of an image without its executable bit; chmod fails if the image has no script.
    script = f"{TESTS}/{verifier.script}"
    in_image = verifier.tests_in_image and box.run(["chmod", "+x", script], user="root").ok
    if not in_image and verifier.tests:
        show(box, TESTS, verifier.tests, verifier.script)
    argv = ["bash", script] if verifier.parser else script_argv(verifier.tests, verifier.script, TESTS)
    # The exit code is only used in messages: in Harbor the reward file alone decides.
    ended = box.run(
        argv,
        env={**(env or {}), **filled_in(task, "verifier", verifier.env)},
        timeout=verifier.timeout,
        stdout=output,
        stderr=output,
        user=verifier.user,
        tracing=False,
    )
    box.end_processes()
    marks = () if in_image else _changed_tests(box, verifier.tests)
    if step is not task.steps[-1]:  # the next agent must not see them
        hide(box, TESTS)
    result = StepResult(step.name, "timeout", code=ended.code, seconds=ended.seconds, output=tail(output), marks=marks)
    if ended.timed_out:
        return replace(result, error=f"the tests took longer than {verifier.timeout:g} s")
    no_network = missing_network(result.output) if not box.spec.network else ""
    try:
        if verifier.parser:
            rewards = printed_reward(verifier.parser, tail(output, LONGEST_LOG), ended.code)
        else:
            folder = logs / "verifier"
            shutil.rmtree(folder, ignore_errors=True)  # from an earlier attempt
            try:
                box.get(VERIFIER_LOGS, folder)
            except UsageError as error:
                raise NoReward(str(error)) from error
            rewards = read_rewards(folder)
    except NoReward as error:
        problem = f"{error}; {verifier.script} exited with code {ended.code}{last_line(result.output)}"
        return replace(result, status="error", error="; ".join(filter(None, (problem, no_network))))
    passed = _passes_gate(rewards, step.min_reward)
    problem = no_network if (main_reward(rewards) or 0.0) < PASS else ""
    return replace(result, status="scored", rewards=rewards, gate_passed=passed, error=problem)


def _changed_tests(box: Box, sources: Sequence[Path]) -> tuple[str, ...]:
    """A mark for each file of the tests that is not what was copied in; new files beside them are nobody's business."""
    with scratch() as here:
        wanted, found = here / "wanted", here / "found"
        wanted.mkdir()
        copy_sources(sources, wanted)
        try:
            box.get(TESTS, found)
        except UsageError:
            return (f"{CHANGED}{TESTS}",)
        changed = []
        for file in sorted(wanted.rglob("*")):
            name = file.relative_to(wanted)
            other = found / name
            same = other.is_file() and not other.is_symlink() and filecmp.cmp(file, other, shallow=False)
            if file.is_file() and not file.is_symlink() and not same:
                changed.append(f"{CHANGED}{TESTS}/{name}")
        return tuple(changed)


def _emptied(box: Box, places: Sequence[str]) -> bool:
    """Empty directories with the sandbox's own tools, and look from outside whether that worked.

    An agent with root rights may have replaced `rm` or mounted something there.
    """
    box.run(["rm", "-rf", *places], user="root")
    box.run(["mkdir", "-p", "-m", "0777", *places], user="root")
    for place in places:
        with scratch() as here:
            try:
                box.get(place, here / "copy")
            except UsageError:
                return False
            if any((here / "copy").iterdir()):
                return False
    return True


def last_line(output: str) -> str:
    """The last line of an output as `: line`, to append to a message; empty if there is none."""
    lines = output.strip().splitlines()
    return f": {lines[-1].strip()[:200]}" if lines else ""


def missing_network(output: str, who: str = "the tests") -> str:
    """A message if `output` says that something looked for a network; empty otherwise."""
    line = _NO_NETWORK.search(output)
    if line is None:
        return ""
    return (
        f"{who} looked for a network ({line[0].strip()[:120]!r}) and the sandbox has none: --network of `bakeoff task`, "
        "`params.network = true` in an experiment, `network = true` in a benchmark file grants it"
    )


def unreachable_host(output: str) -> str:
    """A message if `output` says that a server could not be reached; empty otherwise."""
    line = _NO_NETWORK.search(output) or _UNREACHABLE.search(output)
    return f"a host could not be reached, so the tests prove nothing: {line[0].strip()[:160]!r}" if line else ""


def _passes_gate(rewards: Mapping[str, float], gate: Mapping[str, float]) -> bool:
    """Whether every reward that the gate names is there and high enough; `reward` may be a mean of others."""
    main = {"reward": main_reward(rewards) or 0.0}
    return all({**main, **rewards}.get(name, -math.inf) >= least for name, least in gate.items())


def combined(task: Task, steps: Sequence[StepResult], seconds: float) -> Verification:
    """One verification from the steps that were reached.

    `rewards` are Harbor's: over the steps that were reached. In `score` a step that was not reached counts as 0, so
    that giving up early is never worth more than going on.
    """
    broken = next((step for step in steps if step.status != "scored"), None)
    if broken is not None:
        return Verification(broken.status, steps=tuple(steps), seconds=seconds, error=f"{broken.name}: {broken.error}")
    # `final` counts the last step that was reached; as score it counts only if that is the task's last one.
    counted = steps if task.multi_step_reward == "mean" else steps[-1:]
    names = dict.fromkeys(name for step in counted for name in step.rewards)
    rewards = {name: sum(step.rewards.get(name, 0.0) for step in counted) / len(counted) for name in names}
    reached = len(steps) / len(task.steps) if task.multi_step_reward == "mean" else float(len(steps) == len(task.steps))
    score = (main_reward(rewards) or 0.0) * reached
    error = "; ".join(step.error for step in steps if step.error)
    return Verification("scored", score, rewards, steps=tuple(steps), seconds=seconds, error=error)
