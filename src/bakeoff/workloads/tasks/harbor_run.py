"""Plays a Harbor task in one box: for each step somebody acts, then the step's tests are run and leave a reward.

The tests and the solution come into the box through read-only places that stay empty until they are needed, so an
agent can write into neither. `/logs/verifier` is emptied before the tests run, and looked at from outside afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.face import Box, Sandbox
from bakeoff.sandbox.scratch import scratch
from bakeoff.sandbox.spec import BoxSpec, Mount
from bakeoff.workloads.tasks.artifacts import collect, hand_over
from bakeoff.workloads.tasks.boxes import box_spec, filled_in, tree_copy
from bakeoff.workloads.tasks.built import built_for
from bakeoff.workloads.tasks.hidden_tests import tail
from bakeoff.workloads.tasks.model import Environment, Healthcheck, Step, Task
from bakeoff.workloads.tasks.results import StepResult, Verification, main_reward
from bakeoff.workloads.tasks.rewards import NoReward, read_rewards
from bakeoff.workloads.tasks.start import remove

TESTS, SOLUTION = "/tests", "/solution"
VERIFIER_LOGS = "/logs/verifier"
LOGS = ("/logs/agent", VERIFIER_LOGS, "/logs/artifacts")
SETUP = "setup.sh"
MOUNTED = frozenset({"bubblewrap", "docker", "podman"})
"""Backends where a place that is mounted shows what is put there later."""


@dataclass(frozen=True, slots=True)
class Places:
    """Directories of ours that a box sees read-only, or copies of them where it cannot."""

    folder: Path
    mounted: bool

    def mounts(self) -> tuple[Mount, ...]:
        return tuple(Mount(self._here(name), name) for name in (TESTS, SOLUTION)) if self.mounted else ()

    def show(self, box: Box, name: str, sources: Sequence[Path], script: str) -> None:
        """Put `sources` at `name` in the box, in place of what was there, with `script` executable."""
        here = self._here(name)
        self.hide(box, name)
        for source in sources:
            tree_copy(source, here)
        if (here / script).is_file():
            (here / script).chmod(0o755)
        if not self.mounted:
            box.put(here, name)

    def hide(self, box: Box, name: str) -> None:
        for entry in self._here(name).iterdir():
            remove(entry)
        if not self.mounted:
            box.run(["rm", "-rf", name])

    def _here(self, name: str) -> Path:
        place = self.folder / name.strip("/")
        place.mkdir(exist_ok=True)
        return place


Act = Callable[[Box, Step, Places], None]
"""Whoever works on a step: an agent, the reference, or nobody."""


def play(
    task: Task,
    sandbox: Sandbox,
    act: Act,
    *,
    logs: Path,
    variables: Mapping[str, str],
    furnish: Callable[[BoxSpec], BoxSpec] = lambda spec: spec,
) -> Verification:
    """All steps in one box, `act` in each; rewards of all steps together. `furnish` adds what the actor needs there."""
    began = time.monotonic()
    built = built_for(task.environment, sandbox)
    with scratch() as here:
        places = Places(here, sandbox.name in MOUNTED)
        spec = box_spec(task, built.image, workdir=task.workdir or built.workdir, mounts=places.mounts(), variables=variables)  # fmt: skip
        with sandbox.open(furnish(spec)) as box:
            begin(task, box)
            steps: list[StepResult] = []
            for step in task.steps:
                set_up(step, box)
                act(box, step, places)
                steps.append(verify_step(task, step, box, places, sandbox, logs=logs / step.name, variables=variables))
                if steps[-1].status != "scored" or not steps[-1].gate_passed:
                    break
    return combined(task, steps, time.monotonic() - began)


def begin(task: Task, box: Box) -> None:
    """What the box has before the first step: places for logs, the task's files, and its health."""
    _must(box, ["mkdir", "-p", *LOGS], "the places for logs")
    _must(box, ["chmod", "0777", *LOGS], "the places for logs")
    environment = task.environment
    if environment.uploads and environment.context is not None and environment.context.is_dir():
        box.put(environment.context, box.spec.workdir)
    for file in task.overlays:
        box.write(file.target, file.read(), 0o755 if file.executable else 0o644)
    if environment.healthcheck is not None:
        wait_until_healthy(environment.healthcheck, box)


def set_up(step: Step, box: Box) -> None:
    """A step's own files and its `setup.sh`, which is gone before the agent starts."""
    if step.workdir is not None:
        box.put(step.workdir, box.spec.workdir)
        if (step.workdir / SETUP).is_file():
            _must(box, ["sh", "-c", f"chmod +x {SETUP} && ./{SETUP}"], f"steps/{step.name}/workdir/{SETUP}")
            box.run(["rm", "-f", SETUP])
    if step.healthcheck is not None:
        wait_until_healthy(step.healthcheck, box)


def verify_step(
    task: Task,
    step: Step,
    box: Box,
    places: Places,
    sandbox: Sandbox,
    *,
    logs: Path,
    variables: Mapping[str, str],
) -> StepResult:
    """Run the step's tests after the agent stopped: in its box, or in one of their own with its artifacts."""
    box.end_processes()
    if step.verifier.mode == "shared":
        return _tests(task, step, box, places, logs=logs, variables=variables)
    environment = step.verifier.environment or Environment()
    built = built_for(environment, sandbox)
    with scratch() as here:
        taken = collect(box, task, step, here / "artifacts")
        own = Places(here, mounted=False)
        workdir = environment.workdir or built.workdir
        spec = box_spec(task, built.image, environment=environment, workdir=workdir, variables=variables)
        with sandbox.open(spec) as verifier:
            _must(verifier, ["mkdir", "-p", *LOGS], "the places for logs")
            hand_over(verifier, taken)
            inside = environment.dockerfile is not None  # its image brings /tests along
            return _tests(task, step, verifier, None if inside else own, logs=logs, variables=variables)


def _tests(
    task: Task, step: Step, box: Box, places: Places | None, *, logs: Path, variables: Mapping[str, str]
) -> StepResult:
    verifier = step.verifier
    logs.mkdir(parents=True, exist_ok=True)
    output = logs / "test-stdout.txt"
    if not _empty(box):
        zero = {"reward": 0.0}
        return StepResult(
            step.name, "scored", zero, error=f"{VERIFIER_LOGS} could not be emptied: the agent saw to that"
        )
    if places is not None:
        places.show(box, TESTS, verifier.tests, verifier.script)
    ended = box.run(
        [f"{TESTS}/{verifier.script}"],
        env=filled_in(task, verifier.env, variables),
        timeout=verifier.timeout,
        stdout=output,
        stderr=output,
        user=verifier.user,
    )
    box.end_processes()
    if places is not None:
        places.hide(box, TESTS)
    result = StepResult(step.name, "timeout", code=ended.code, seconds=ended.seconds, output=tail(output))
    if ended.timed_out:
        return replace(result, error=f"the tests took longer than {verifier.timeout:g} s")
    try:
        rewards = {"reward": float(ended.code == 0)} if verifier.by_exit_code else _rewards(box, logs)
    except NoReward as error:
        return replace(result, status="error", error=str(error))
    return replace(result, status="scored", rewards=rewards, gate_passed=_passes(rewards, step.min_reward))


def _empty(box: Box) -> bool:
    """Empty the verifier's place with the box's own tools, and look from outside whether that was done."""
    box.run(["rm", "-rf", VERIFIER_LOGS], user="root")
    box.run(["mkdir", "-p", VERIFIER_LOGS], user="root")
    box.run(["chmod", "0777", VERIFIER_LOGS], user="root")
    with scratch() as here:
        found = here / "verifier"
        try:
            box.get(VERIFIER_LOGS, found)
        except UsageError:
            return False
        return not any(found.iterdir())


def _rewards(box: Box, logs: Path) -> dict[str, float]:
    folder = logs / "verifier"
    try:
        box.get(VERIFIER_LOGS, folder)
    except UsageError as error:
        raise NoReward(str(error)) from error
    return read_rewards(folder)


def _passes(rewards: Mapping[str, float], gate: Mapping[str, float]) -> bool:
    main = {"reward": main_reward(rewards) or 0.0}
    return all({**main, **rewards}.get(name, 0.0) >= least for name, least in gate.items())


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


def wait_until_healthy(check: Healthcheck, box: Box) -> None:
    began = time.monotonic()
    failures = 0
    while not box.run(["sh", "-c", check.command], timeout=check.timeout).ok:
        starting = time.monotonic() - began < check.start_period
        failures += not starting
        if failures >= check.retries:
            raise InfraError(f"the box did not become healthy: {check.command!r} failed {failures} times")
        time.sleep(check.start_interval if starting else check.interval)


def _must(box: Box, argv: Sequence[str], what: str) -> None:
    ended = box.run(argv, user="root")
    if not ended.ok:
        raise InfraError(f"{what}: {argv[0]} ended with {ended.code}: {ended.stderr.decode(errors='replace')[-400:]}")
