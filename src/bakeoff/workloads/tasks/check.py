"""Whether a task is fit to spend money on: it is complete, its reference passes, and doing nothing fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bakeoff.errors import InfraError
from bakeoff.sandbox.base import Sandbox
from bakeoff.workloads.tasks.authoring import is_draft
from bakeoff.workloads.tasks.built import built_for, refused, stand_in
from bakeoff.workloads.tasks.harbor_run import last_line
from bakeoff.workloads.tasks.model import Task
from bakeoff.workloads.tasks.proof import missing_reference, nothing, reference
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.start import lfs_pointers, start_state, submodules


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `ok` is None where it is worth knowing and no fault."""

    name: str
    ok: bool | None
    message: str = ""


def check(task: Task, sandbox: Sandbox, logs: Path) -> Iterator[Finding]:
    """Findings as they come; what rests on one that failed is not looked at."""
    built_instead = stand_in(task.environment, sandbox)
    yield from (Finding("note", None, note) for note in (*task.notes, *filter(None, [built_instead])))
    if why := refused(task.environment):
        yield Finding("can be run", False, why)
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
    solved = reference(task, sandbox, logs / "reference")
    yield Finding("reference passes", solved.passed, _said(solved))
    if not solved.passed and (absent := _absent(solved)):
        yield Finding(
            "note", None, f"the box has no {', '.join(absent)}: environment.docker_image can name an image with it"
        )
    if solved.discounted:
        listed = ", ".join(solved.discounted)
        yield Finding("note", None, f"the reference writes where tests are read from, which does not count: {listed}")
    idle = nothing(task, sandbox, logs / "nothing")
    failed = idle.status in ("scored", "patch_failed") and not idle.passed
    yield Finding("doing nothing fails", failed, _said(idle))


def _complete(task: Task) -> Iterator[Finding]:
    if task.format == "prepared":
        runnable = [script for script in task.scripts if script.rubric_id]
        yield Finding("has hidden tests", bool(runnable), "" if runnable else "add evaluation.test_scripts with a rubric_id")  # fmt: skip
        if task.untested:
            listed = ", ".join(rubric.id for rubric in task.untested)
            yield Finding("note", None, f"no test speaks for {listed}: only a judge can score that")
    missing = missing_reference(task)
    yield Finding("has a reference", not missing, missing and f"add {missing}")
    if is_draft(task):
        yield Finding("note", None, "the instruction is still a draft from commit messages")


def _start(task: Task) -> Iterator[Finding]:
    """The start state can be had, and does not hold what is meant to be hidden."""
    start = start_state(task)
    yield Finding("start state", True, start.baseline[:12])
    if modules := submodules(start):
        yield Finding("note", None, f"submodules are not fetched, so these are empty: {', '.join(modules)}")
    if pointers := lfs_pointers(start):
        yield Finding("note", None, f"LFS files are not fetched, so these are pointers: {', '.join(pointers)}")
    shown = [script.path for script in task.scripts if _holds(start.tree / script.path, script.content)]
    if shown:
        yield Finding("note", None, f"agents see the same file in the repository: {', '.join(shown)}")


def _holds(file: Path, content: str) -> bool:
    return file.is_file() and file.read_bytes() == content.encode()


def _absent(found: Verification) -> list[str]:
    """Modules that hidden tests looked for in vain."""
    said = "\n".join(script.output for script in found.scripts)
    return sorted(set(re.findall(r"^E +ModuleNotFoundError: No module named '([^']+)'", said, re.MULTILINE)))


def _said(found: Verification) -> str:
    """A verification in one line."""
    if found.status != "scored":
        return found.error or f"nothing was scored ({found.status})"
    if found.score is None:
        return found.error or "the rubrics that tests speak for have a weight of 0"
    parts = [f"score {found.score:g}"]
    if found.cases:
        parts.append(f"{sum(case.outcome == 'passed' for case in found.cases)} of {len(found.cases)} tests passed")
    stopped = [script.path for script in found.scripts if script.timed_out]
    if stopped:
        parts.append(f"out of time: {', '.join(stopped)}")
    silent = [one for one in found.scripts if not (one.passed or one.cases or one.timed_out)]
    if silent:
        parts.append(f"{silent[0].path} ended with code {silent[0].code}{last_line(silent[0].output)}")
    return ", ".join([*parts, f"{found.seconds:.1f} s", *([found.error] if found.error else [])])
