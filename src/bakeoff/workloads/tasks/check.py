"""Whether a task is fit to spend money on: it is complete, its reference passes, doing nothing and cheating fail.

    for finding in check(load_task(directory), sandbox, logs): ...

`reference` and `nothing` are the two proofs. `described` is a task as plain facts, for `bakeoff task show`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.base import Box, Sandbox
from bakeoff.workloads.tasks import harbor_run
from bakeoff.workloads.tasks.authoring import DRAFT
from bakeoff.workloads.tasks.cheats import attempts
from bakeoff.workloads.tasks.environment import (
    NOT_STARTED,
    box_spec,
    built_for,
    filled_in,
    refused,
    replaces_image,
    tail,
)
from bakeoff.workloads.tasks.evaluation import is_isolated
from bakeoff.workloads.tasks.expected import Expected
from bakeoff.workloads.tasks.harbor_run import last_line, missing_network, unreachable_host, verified_steps
from bakeoff.workloads.tasks.isolation import launched, write_launcher
from bakeoff.workloads.tasks.model import Step, Task
from bakeoff.workloads.tasks.network import REFUSED, hosts_of, opened
from bakeoff.workloads.tasks.proxy.egress import Egress
from bakeoff.workloads.tasks.repository import public_url
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.schema import Rubric
from bakeoff.workloads.tasks.start import lfs_pointers, start_state, submodules
from bakeoff.workloads.tasks.verify import run_hidden_tests

ADVICE = "docs/tasks.md, A launcher for the work"
LOOK_SECONDS = 120.0
SOLUTION_SECONDS = 3600.0
"""Time limit of a reference if the task sets agents no limit."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `ok` is None for a note, which is no fault."""

    name: str
    ok: bool | None
    message: str = ""


def check(task: Task, sandbox: Sandbox, logs: Path, *, set_up: bool = False) -> Iterator[Finding]:
    """Findings in order, as they are made. Checks that depend on one that failed are left out.

    `set_up` writes a launcher into the task's file if its tests can do with one.
    """
    for note in (*task.notes, replaces_image(task.environment, sandbox)):
        if note:
            yield Finding("note", None, note)
    if reason := refused(task.environment):
        yield Finding("can be run", False, reason)
        return
    complete = list(_complete(task))
    yield from complete
    if any(finding.ok is False for finding in complete):
        return
    try:
        built_for(task.environment, sandbox)
    except InfraError as error:
        yield Finding("can be run", False, str(error))
        return
    if task.format == "prepared":
        yield from _start(task)
    yield from _later_commits(task, sandbox)
    # The two proofs: without the first a task cannot be solved, without the second it measures nothing.
    solved = reference(task, sandbox, logs / "reference")
    yield Finding("reference passes", solved.passed, _in_one_line(solved))
    # pytest prints the error that ended an import with `E` before it.
    output = "\n".join(script.output for script in solved.scripts)
    absent = sorted(set(re.findall(r"^E +ModuleNotFoundError: No module named '([^']+)'", output, re.MULTILINE)))
    if not solved.passed and absent:
        advice = "environment.docker_image can name an image with it"
        yield Finding("note", None, f"the sandbox has no {', '.join(absent)}: {advice}")
    if solved.discounted:
        listed = ", ".join(solved.discounted)
        yield Finding(
            "note", None, f"the reference changes files that tests are read from, which does not count: {listed}"
        )
    # A verifier that breaks on the start state proves nothing, so `error` does not count as failing.
    idle = nothing(task, sandbox, logs / "nothing")
    if solved.passed:
        Expected.keep(task, sandbox, solved, idle)
    if task.honeypots:
        # An honest solution, and doing nothing, must go into none of them.
        wrong = sorted({*(solved.honeypots or ()), *(idle.honeypots or ())})
        yield Finding("honest work stays out of honeypots", not wrong, ", ".join(wrong))
    failed = idle.status in ("scored", "patch_failed") and not idle.passed
    yield Finding("doing nothing fails", failed, _in_one_line(idle))
    if not task.isolated:
        yield from _launcher(task, sandbox, logs, set_up)
    elif not solved.passed and task.first.verifier.modules:
        yield from _without_launcher(task, sandbox, logs)
    if solved.passed and failed:
        yield _cheats(task, sandbox, logs, idle)


def _launcher(task: Task, sandbox: Sandbox, logs: Path, set_up: bool) -> Iterator[Finding]:
    """Whether the tests can call the work through a launcher, which is written into the task if `set_up` says so."""
    candidate = launched(task)
    if candidate is None:
        yield Finding("note", None, f"scores are self-reported: the tests do not call the work from outside ({ADVICE})")
        return
    modules = candidate.first.verifier.modules
    solved = reference(candidate, sandbox, logs / "launcher-reference")
    if not solved.passed:
        problem = _first_problem(solved)
        yield Finding(
            "note", None, f"scores are self-reported: through a launcher the reference fails ({problem}; {ADVICE})"
        )
    elif nothing(candidate, sandbox, logs / "launcher-nothing").passed:
        yield Finding("note", None, f"scores are self-reported: through a launcher doing nothing passes ({ADVICE})")
    elif set_up:
        file = write_launcher(task, modules)
        yield Finding("launcher", True, f"written into {file.name}, modules {', '.join(modules)}; check the task again")
    else:
        yield Finding(
            "note", None, f"scores are self-reported, and need not be: --launcher makes the tests import {', '.join(modules)} "
            "through a launcher, for which the reference passes",
        )  # fmt: skip


def _without_launcher(task: Task, sandbox: Sandbox, logs: Path) -> Iterator[Finding]:
    """A note if the reference fails only because the tests import it through a launcher."""
    verifier = replace(task.first.verifier, isolation="none", modules=())
    inside = replace(task, steps=(replace(task.first, verifier=verifier),))
    if reference(inside, sandbox, logs / "in-process").passed:
        yield Finding(
            "note", None, "in one process with its tests the reference passes: they use the work in a way that a launcher "
            f'does not carry; change them ({ADVICE}), or set isolation to "none" and have self-reported scores',
        )  # fmt: skip


def _first_problem(verification: Verification) -> str:
    """The first failure of a verification on one line."""
    messages = (case.message for case in verification.cases if case.outcome in ("failed", "error"))
    text = next(filter(None, messages), "") or verification.error or "no test passed"
    return text.strip().splitlines()[0][:160]


def _cheats(task: Task, sandbox: Sandbox, logs: Path, idle: Verification) -> Finding:
    """The cheats that score more than doing nothing: a fault of a task with a launcher, a note about any other."""
    tried = list(attempts(task, sandbox, logs / "cheats"))
    succeeded = [attempt.name for attempt in tried if attempt.succeeded(idle)]
    if is_isolated(task, sandbox.name):
        return Finding("cheats score nothing", not succeeded, ", ".join(succeeded) or f"{len(tried)} tried")
    if succeeded:
        message = f"scores are self-reported, and these cheats succeed: {', '.join(succeeded)} ({ADVICE})"
    else:
        message = f"scores are self-reported: none of {len(tried)} cheats succeeds, others may"
    return Finding("note", None, message)


# Every commit in the object store counts, also of other branches, of the reflog and of nobody: git shows them all.
_COMMITS = """
find / -xdev -maxdepth 7 -name .git -not -path "/proc/*" 2>/dev/null | while read -r place; do
  at=$(dirname "$place")
  all=$(git -c safe.directory="*" -C "$at" cat-file --batch-all-objects --batch-check="%(objecttype)" 2>/dev/null | grep -c commit)
  known=$(git -c safe.directory="*" -C "$at" rev-list --count HEAD 2>/dev/null)
  [ "$all" -gt "${known:-0}" ] && echo "$((all - known)) in $at"
done; true
"""


def _later_commits(task: Task, sandbox: Sandbox) -> Iterator[Finding]:
    """A warning if a repository in the image has commits that its HEAD does not come from: the solution, perhaps."""
    built = built_for(task.environment, sandbox)
    if built.image.kind == "host" or sandbox.name == "none":
        return
    with sandbox.open(box_spec(task, built.image, workdir=task.workdir or built.workdir)) as box:
        ended = box.run(["sh", "-c", _COMMITS], user="root", timeout=LOOK_SECONDS)
    listed = [line for line in ended.stdout.decode(errors="replace").splitlines() if line.strip()]
    if listed:
        yield Finding("note", None, f"agents can read later commits in the image: {', '.join(listed)}")


def _complete(task: Task) -> Iterator[Finding]:
    """Whether the task has tests and a reference."""
    if task.format == "prepared":
        runnable = any(script.rubric_id for script in task.scripts)
        advice = "" if runnable else "add evaluation.test_scripts with a rubric_id"
        yield Finding("has hidden tests", runnable, advice)
        if task.untested:
            listed = ", ".join(rubric.id for rubric in task.untested)
            yield Finding("note", None, f"no test covers {listed}: only a judge can score that")
    missing = missing_reference(task)
    yield Finding("has a reference", not missing, missing and f"add {missing}")
    if DRAFT in task.first.instruction:
        yield Finding("note", None, "the instruction is still a draft from commit messages")


def _start(task: Task) -> Iterator[Finding]:
    """Whether the start state can be built, and notes on what it lacks or gives away."""
    start = start_state(task)
    yield Finding("start state", True, start.baseline[:12])
    if modules := submodules(start):
        yield Finding("note", None, f"submodules are not fetched, so these are empty: {', '.join(modules)}")
    if pointers := lfs_pointers(start):
        yield Finding("note", None, f"LFS files are not fetched, so these are pointers: {', '.join(pointers)}")
    # A hidden test that is also in the repository is not hidden.
    visible = []
    for script in task.scripts:
        file = start.tree / script.path
        if file.is_file() and file.read_bytes() == script.content.encode():
            visible.append(script.path)
    if visible:
        yield Finding("note", None, f"agents see the same file in the repository: {', '.join(visible)}")


def _in_one_line(verification: Verification) -> str:
    """The message of a finding: score, tests that passed, time, and what went wrong."""
    if verification.status != "scored":
        return verification.error or f"nothing was scored ({verification.status})"
    if verification.score is None:
        return verification.error or "the rubrics with tests have a weight of 0"
    parts = [f"score {verification.score:g}"]
    cases, scripts = verification.cases, verification.scripts
    if cases:
        parts.append(f"{sum(case.outcome == 'passed' for case in cases)} of {len(cases)} tests passed")
    stopped = [script.path for script in scripts if script.timed_out]
    if stopped:
        parts.append(f"out of time: {', '.join(stopped)}")
    silent = [script for script in scripts if not (script.passed or script.cases or script.timed_out)]
    if silent:
        parts.append(f"{silent[0].path} exited with code {silent[0].code}{last_line(silent[0].output)}")
    return ", ".join([*parts, f"{verification.seconds:.1f} s", *filter(None, [verification.error])])


def missing_reference(task: Task) -> str:
    """The file to add; empty if every step has a reference."""
    without = next((step.name for step in task.steps if step.solution is None), None)
    if without is None:
        return ""
    if task.format == "prepared":
        return "diff.patch"
    step = f"steps/{without}/" if (task.directory / "steps" / without).is_dir() else ""
    return f"{step}solution/solve.sh"


def reference(task: Task, sandbox: Sandbox, logs: Path) -> Verification:
    """Verify the reference solution. UsageError if the task has none."""
    if missing := missing_reference(task):
        raise UsageError(f"{task.directory}: there is no reference\n  fix: add {missing}")
    logs.mkdir(parents=True, exist_ok=True)
    with opened(task, sandbox, logs / REFUSED) as (reachable, egress):
        if task.format == "prepared":
            diff = (task.first.solution.diff if task.first.solution else None) or b""
            return _unless_unreachable(run_hidden_tests(reachable, diff, sandbox, logs=logs), egress)
        problems: list[str] = []

        def solve(box: Box, step: Step) -> None:
            if egress is not None:
                egress.enter("agent", hosts_of(task, "agent", step))
            problems.extend(_solve(task, step, box, logs / step.name))
            if egress is not None:
                egress.enter("verify", hosts_of(task, "verify", step))

        verification = _unless_unreachable(verified_steps(reachable, sandbox, solve, logs, trusted=True), egress)
    if verification.passed:
        return verification
    return replace(verification, error="; ".join(filter(None, (*problems, verification.error))))


def _unless_unreachable(verification: Verification, egress: Egress | None) -> Verification:
    """The verification of a reference; if it failed because a host could not be reached, its status is `error`.

    A download that fails says nothing about the reference, so it is no score of 0.
    """
    outputs = [*(script.output for script in verification.scripts), *(step.output for step in verification.steps)]
    problem = next(filter(None, map(unreachable_host, outputs)), "")
    if egress is not None and egress.refused:
        listed = (f"{entry['host']}:{entry['port']} ({entry['phase']}: {entry['why']})" for entry in egress.refused)
        problem = f"hosts were refused: {', '.join(listed)}"
    if verification.status != "scored" or verification.passed or not problem:
        return verification
    error = "; ".join(filter(None, (verification.error, problem)))
    return replace(verification, status="error", score=None, error=error)


def nothing(task: Task, sandbox: Sandbox, logs: Path) -> Verification:
    """Verify the start state as it is."""
    logs.mkdir(parents=True, exist_ok=True)
    with opened(task, sandbox, logs / REFUSED) as (reachable, egress):
        if task.format == "prepared":
            return run_hidden_tests(reachable, b"", sandbox, logs=logs)

        def idle(box: Box, step: Step) -> None:
            if egress is not None:
                egress.enter("verify", hosts_of(task, "verify", step))

        return verified_steps(reachable, sandbox, idle, logs, trusted=True)


def _solve(task: Task, step: Step, box: Box, logs: Path) -> Iterator[str]:
    """Run the reference as an agent would work: in the workdir, as its user, in its time. Yields what went wrong."""
    solution = step.solution
    assert solution is not None and solution.source is not None
    logs.mkdir(parents=True, exist_ok=True)
    output = logs / "oracle.txt"
    seconds = step.agent.timeout or SOLUTION_SECONDS
    harbor_run.show(box, harbor_run.SOLUTION, [solution.source], solution.script)
    ended = box.run(
        harbor_run.script_argv([solution.source], solution.script, harbor_run.SOLUTION),
        env={"DEBIAN_FRONTEND": "noninteractive", **filled_in(task, "solution", solution.env)},
        timeout=seconds,
        stdout=output,
        stderr=output,
        user=step.agent.user,
    )
    harbor_run.hide(box, harbor_run.SOLUTION)  # tests must not pass because they find the solution there
    if ended.timed_out:
        raise InfraError(f"the reference of {step.name} took longer than {seconds:g} s")
    if ended.code in NOT_STARTED:
        raise InfraError(f"the reference of {step.name} could not be started: {tail(output, 400)}")
    if ended.code != 0:
        yield f"the reference of {step.name} exited with code {ended.code}{last_line(tail(output))}"
    if not box.spec.network and (problem := missing_network(tail(output), "the reference")):
        yield problem


def described(task: Task) -> dict[str, Any]:
    """Everything about a task but the content of what is hidden, for JSON."""
    environment, repository = task.environment, task.repository
    limits = {"cpus": environment.cpus, "memory_mb": environment.memory_mb, "storage_mb": environment.storage_mb}
    return {
        "id": task.id,
        "title": task.title,
        "format": task.format,
        "directory": task.directory,
        "digest": task.digest,
        "tags": list(task.tags),
        "repository": public_url(repository.url) if repository else None,
        "commit": repository.commit if repository else None,
        "subdir": (repository.subdir or None) if repository else None,
        "sparse": list(repository.sparse) if repository else [],
        "image": environment.docker_image or environment.dockerfile,
        "workdir": task.workdir,
        "network": environment.network.mode,
        "limits": {name: value for name, value in limits.items() if value is not None},
        "agent_seconds": task.first.agent.timeout,
        "verifier_seconds": task.first.verifier.timeout,
        "verifier": task.first.verifier.mode if task.format != "prepared" else None,
        "variables": sorted(environment.env),
        "removed": list(task.removals),
        "overlays": [file.target for file in task.overlays],
        "hidden": [script.path for script in task.scripts],
        "isolation": task.first.verifier.isolation,
        "honeypots": [honeypot.id for honeypot in task.honeypots],
        "reference": not missing_reference(task),
        "rubrics": [rubric.model_dump(include=set(Rubric.model_fields)) for rubric in task.rubrics],
        "untested": [rubric.id for rubric in task.untested],
        "steps": [
            {"name": step.name, "instruction": step.instruction, "min_reward": dict(step.min_reward)}
            for step in task.steps
        ],
        "notes": list(task.notes),
    }
