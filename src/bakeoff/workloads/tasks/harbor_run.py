"""Plays a Harbor task in one box: for each step somebody acts, then the step's tests are run and leave a reward.

The tests and the solution are copied into the box when they are needed, in place of whatever lies there, and are gone
before the next agent works. `/tests` and `/logs/verifier` are emptied before the tests run, and looked at from outside.
"""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.base import Box, BoxSpec, Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.artifacts import Taken, collect, hand_over, keep, run_hooks
from bakeoff.workloads.tasks.boxes import box_spec, filled_in, tree_copy
from bakeoff.workloads.tasks.built import built_for
from bakeoff.workloads.tasks.hidden_tests import tail
from bakeoff.workloads.tasks.model import Environment, Healthcheck, Step, Task
from bakeoff.workloads.tasks.parsers import printed_reward
from bakeoff.workloads.tasks.results import PASS, StepResult, Verification, main_reward
from bakeoff.workloads.tasks.rewards import NoReward, read_rewards

TESTS, SOLUTION = "/tests", "/solution"
VERIFIER_LOGS = "/logs/verifier"
LOGS = ("/logs/agent", VERIFIER_LOGS, "/logs/artifacts")
SETUP = "setup.sh"
LONGEST_LOG = 1 << 24
_NO_NETWORK = re.compile(
    r"^.*(could not resolve|temporary failure (in name resolution|resolving)|name or service not known"
    r"|network is unreachable|dns error|failed to lookup address).*$",
    re.IGNORECASE | re.MULTILINE,
)


def show(box: Box, name: str, sources: Sequence[Path], script: str) -> None:
    """Copy `sources` to `name` in the box, with `script` executable. The copy is the box's own, to write to as well."""
    with scratch() as here:
        for source in sources:
            tree_copy(source, here)
        if (here / script).is_file():
            (here / script).chmod(0o755)
        box.put(here, name)


def hide(box: Box, name: str) -> None:
    box.run(["rm", "-rf", name], user="root")


def started(source: Sequence[Path], script: str, place: str) -> list[str]:
    """How a script of a task is started: by its first line, or by bash where that names no program."""
    files = (one if one.is_file() else one / script for one in reversed(source))
    file = next((one for one in files if one.name == script and one.is_file()), None)
    path = f"{place}/{script}"
    return [path] if file is None or file.read_bytes().startswith(b"#!") else ["bash", path]


Act = Callable[[Box, Step], None]
"""Whoever works on a step: an agent, the reference, or nobody."""


def play(
    task: Task, sandbox: Sandbox, act: Act, *, logs: Path, furnish: Callable[[BoxSpec], BoxSpec] = lambda spec: spec
) -> Verification:
    """All steps in one box, `act` in each; rewards of all steps together. `furnish` adds what the actor needs there."""
    began = time.monotonic()
    if sandbox.name == "none":
        raise UsageError(
            f"{task.directory}: a {task.format} task needs a root of its own, which sandbox 'none' has not"
        )
    built = built_for(task.environment, sandbox)
    for step in task.steps:  # a verifier's image that cannot be had is told before an agent works in vain
        if step.verifier.environment is not None:
            built_for(step.verifier.environment, sandbox)
    spec = box_spec(task, built.image, workdir=task.workdir or built.workdir)
    fresh = partial(sandbox.open, spec)
    with sandbox.open(furnish(spec)) as box:
        begin(task, box)
        steps: list[StepResult] = []
        for step in task.steps:
            if told := _unready(task, step, box, fresh):
                steps.append(StepResult(step.name, "scored", {"reward": 0.0}, gate_passed=False, error=told))
                break
            act(box, step)
            box.end_processes()
            told = "; ".join(run_hooks(box, step))
            artifacts = logs / step.name / "artifacts"
            taken = collect(box, task, step, artifacts)
            verify = partial(verify_step, task, step, taken=taken, sandbox=sandbox)
            done = verify(box, logs=logs / step.name)
            if done.status == "error" and step.verifier.mode == "shared":
                done = _blamed(task, step, done, box, fresh, verify, logs)
            steps.append(replace(done, error="; ".join(filter(None, (told, done.error, keep(artifacts))))))
            if done.status != "scored" or not done.gate_passed:
                break
    return combined(task, steps, time.monotonic() - began)


def _unready(task: Task, step: Step, box: Box, fresh: Callable[[], Box]) -> str:
    """Set a step up; what an agent did in a step before it that makes this fail, in words.

    What fails in a box that nobody worked in too is no doing of an agent's, and is raised.
    """
    try:
        set_up(step, box)
    except InfraError as error:
        earlier = task.steps[: task.steps.index(step)]
        if not earlier:
            raise
        with fresh() as untouched:
            begin(task, untouched)
            for one in (*earlier, step):
                set_up(one, untouched)
        return f"the agent's work broke what this step starts from: {error}"
    return ""


def _blamed(
    task: Task,
    step: Step,
    done: StepResult,
    box: Box,
    fresh: Callable[[], Box],
    verify: Callable[..., StepResult],
    logs: Path,
) -> StepResult:
    """What becomes of tests that left no reward in the box that an agent had for itself.

    Where they leave one in a box that nobody worked in, they are run again; leaving none once more is the agent's doing,
    and must not pay.
    """
    with fresh() as untouched:
        begin(task, untouched)
        set_up(step, untouched)
        if verify(untouched, logs=logs / f"{step.name}-untouched").status != "scored":
            return done
    again = verify(box, logs=logs / step.name)
    if again.status == "scored":
        return again
    rewards, told = {"reward": 0.0}, f"the agent's work broke the tests: {again.error}"
    return replace(again, status="scored", rewards=rewards, gate_passed=_passes(rewards, step.min_reward), error=told)


def begin(task: Task, box: Box) -> None:
    """What the box has before the first step: places for logs, the task's files, and its health."""
    _must(box, ["mkdir", "-p", *LOGS], "the places for logs")
    _must(box, ["chmod", "0777", *LOGS], "the places for logs")
    _upload(task.environment, box)
    for file in task.overlays:
        box.write(file.target, file.read(), 0o755 if file.executable else 0o644)
    if task.environment.healthcheck is not None:
        wait_until_healthy(task.environment.healthcheck, box)


def _upload(environment: Environment, box: Box) -> None:
    if environment.uploads and environment.context is not None and environment.context.is_dir():
        box.put(environment.context, box.spec.workdir)


def set_up(step: Step, box: Box) -> None:
    """A step's own files and its `setup.sh`, which runs as the agent's user and is gone before the agent starts."""
    user = step.agent.user
    if step.workdir is not None:
        box.put(step.workdir, box.spec.workdir)
        if (step.workdir / SETUP).is_file():
            script = f"{box.spec.workdir}/{SETUP}"
            _must(box, ["bash", script], f"steps/{step.name}/workdir/{SETUP}", user)
            box.run(["rm", "-f", script], user="root")
    if step.healthcheck is not None:
        wait_until_healthy(step.healthcheck, box, user)


def verify_step(task: Task, step: Step, box: Box, *, taken: list[Taken], sandbox: Sandbox, logs: Path) -> StepResult:
    """Run the step's tests after the agent stopped: in its box, or in one of their own with its artifacts."""
    if step.verifier.mode == "shared":
        return _tests(task, step, box, logs=logs)
    environment = step.verifier.environment or Environment()
    built = built_for(environment, sandbox)
    workdir = environment.workdir or built.workdir
    spec = box_spec(task, built.image, environment=environment, workdir=workdir)
    with sandbox.open(spec) as verifier:
        _must(verifier, ["mkdir", "-p", *LOGS], "the places for logs")
        _upload(environment, verifier)
        hand_over(verifier, taken)
        return _tests(task, step, verifier, logs=logs)


def _tests(task: Task, step: Step, box: Box, *, logs: Path) -> StepResult:
    verifier = step.verifier
    logs.mkdir(parents=True, exist_ok=True)
    output = logs / "test-stdout.txt"
    places = (VERIFIER_LOGS,) if verifier.tests_in_image else (VERIFIER_LOGS, TESTS)
    if not _emptied(box, places):
        told = f"{' and '.join(places)} could not be emptied: the agent saw to that"
        return StepResult(step.name, "scored", {"reward": 0.0}, error=told)
    brought = verifier.tests_in_image and _executable(box, f"{TESTS}/{verifier.script}")
    if not brought and verifier.tests:
        show(box, TESTS, verifier.tests, verifier.script)
    argv = (
        ["bash", f"{TESTS}/{verifier.script}"] if verifier.parser else started(verifier.tests, verifier.script, TESTS)
    )
    ended = box.run(
        argv,
        env=filled_in(task, "verifier", verifier.env),
        timeout=verifier.timeout,
        stdout=output,
        stderr=output,
        user=verifier.user,
    )
    box.end_processes()
    if step is not task.steps[-1]:
        hide(box, TESTS)
    result = StepResult(step.name, "timeout", code=ended.code, seconds=ended.seconds, output=tail(output))
    if ended.timed_out:
        return replace(result, error=f"the tests took longer than {verifier.timeout:g} s")
    unreached = unreached_network(result.output) if not box.spec.network else ""
    try:
        rewards = (
            printed_reward(verifier.parser, tail(output, LONGEST_LOG), ended.code)
            if verifier.parser
            else _rewards(box, logs)
        )
    except NoReward as error:
        told = f"{error}; {verifier.script} ended with code {ended.code}{last_line(result.output)}"
        return replace(result, status="error", error="; ".join(filter(None, (told, unreached))))
    passed = _passes(rewards, step.min_reward)
    told = unreached if (main_reward(rewards) or 0.0) < PASS else ""
    return replace(result, status="scored", rewards=rewards, gate_passed=passed, error=told)


def _executable(box: Box, script: str) -> bool:
    """Make a program of the script that an image brings, which COPY often leaves otherwise; False if it brings none."""
    return box.run(["chmod", "+x", script], user="root").ok


def last_line(output: str) -> str:
    """The last thing that was said, to be put behind something."""
    lines = output.strip().splitlines()
    return f": {lines[-1].strip()[:200]}" if lines else ""


def unreached_network(output: str) -> str:
    """What tests said when they looked for a network in a box that has none; empty where they did not."""
    found = _NO_NETWORK.search(output)
    if found is None:
        return ""
    looked = f"the tests looked for a network ({found[0].strip()[:120]!r}) and the box has none"
    grants = "`params.network = true` in an experiment, `network = true` in a benchmark file"
    return f"{looked}: --network of `bakeoff task`, {grants} grants it"


def _emptied(box: Box, places: Sequence[str]) -> bool:
    """Empty places of the verifier's with the box's own tools, and look from outside whether that was done."""
    box.run(["rm", "-rf", *places], user="root")
    box.run(["mkdir", "-p", "-m", "0777", *places], user="root")
    return all(_is_empty(box, place) for place in places)


def _is_empty(box: Box, place: str) -> bool:
    with scratch() as here:
        found = here / "found"
        try:
            box.get(place, found)
        except UsageError:
            return False
        return not any(found.iterdir())


def _rewards(box: Box, logs: Path) -> dict[str, float]:
    folder = logs / "verifier"
    shutil.rmtree(folder, ignore_errors=True)  # what tests left there before is not theirs
    try:
        box.get(VERIFIER_LOGS, folder)
    except UsageError as error:
        raise NoReward(str(error)) from error
    return read_rewards(folder)


def _passes(rewards: Mapping[str, float], gate: Mapping[str, float]) -> bool:
    main = {"reward": main_reward(rewards) or 0.0}
    return all({**main, **rewards}.get(name, -math.inf) >= least for name, least in gate.items())


def combined(task: Task, steps: Sequence[StepResult], seconds: float) -> Verification:
    """One answer for all steps.

    `rewards` are Harbor's: over the steps that were reached. In `score` a step that was not reached counts as 0, so that
    a task that was given up early is never worth more than one that was carried on.
    """
    broken = next((step for step in steps if step.status != "scored"), None)
    if broken is not None:
        return Verification(broken.status, steps=tuple(steps), seconds=seconds, error=f"{broken.name}: {broken.error}")
    counted = steps if task.multi_step_reward == "mean" else steps[-1:]
    names = dict.fromkeys(name for step in counted for name in step.rewards)
    rewards = {name: sum(step.rewards.get(name, 0.0) for step in counted) / len(counted) for name in names}
    reached = len(steps) / len(task.steps) if task.multi_step_reward == "mean" else float(len(steps) == len(task.steps))
    score = (main_reward(rewards) or 0.0) * reached
    error = "; ".join(step.error for step in steps if step.error)
    return Verification("scored", score, rewards, steps=tuple(steps), seconds=seconds, error=error)


def wait_until_healthy(check: Healthcheck, box: Box, user: str | None = None) -> None:
    began = time.monotonic()
    failures = 0
    while not box.run(["bash", "-c", check.command], timeout=check.timeout, user=user).ok:
        starting = time.monotonic() - began < check.start_period
        failures += not starting
        if failures >= check.retries:
            raise InfraError(f"the box did not become healthy: {check.command!r} failed {failures} times")
        time.sleep(check.start_interval if starting else check.interval)


def _must(box: Box, argv: Sequence[str], what: str, user: str | None = "root") -> None:
    ended = box.run(argv, user=user)
    if not ended.ok:
        raise InfraError(f"{what}: {argv[0]} ended with {ended.code}: {ended.stderr.decode(errors='replace')[-400:]}")
