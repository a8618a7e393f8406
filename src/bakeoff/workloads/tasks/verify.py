"""Verification of a finished attempt. What the agent left is a diff, or for a Harbor task its box (`harbor_run.py`)."""

from __future__ import annotations

import time
from pathlib import Path

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.base import Sandbox
from bakeoff.workloads.tasks.built import built_for
from bakeoff.workloads.tasks.hidden_tests import rubric_scores, run_scripts
from bakeoff.workloads.tasks.model import Task
from bakeoff.workloads.tasks.results import Verification, weighted
from bakeoff.workloads.tasks.start import PatchFailed, start_state


def verify_diff(task: Task, diff: bytes, sandbox: Sandbox, *, logs: Path) -> Verification:
    """Run a prepared task's hidden tests on the start state plus `diff`, in fresh boxes; their output goes to `logs`.

    Nothing that code of the agent's does makes this an `error`: only a box, an image or a pytest that cannot be had.
    """
    if task.format != "prepared":
        raise UsageError(f"{task.directory}: a {task.format} task is verified in its box, not from a diff")
    began = time.monotonic()
    try:
        start = start_state(task)
        image = built_for(task.environment, sandbox).image
        results, discounted = run_scripts(task, start, diff, sandbox, image, logs=logs)
    except PatchFailed as error:
        return Verification("patch_failed", seconds=time.monotonic() - began, error=str(error))
    except InfraError as error:
        return Verification("error", seconds=time.monotonic() - began, error=str(error))
    rubrics = rubric_scores(task.rubrics, results)
    return Verification(
        "scored",
        score=weighted(rubrics),
        rubrics=rubrics,
        scripts=tuple(results),
        discounted=discounted,
        seconds=time.monotonic() - began,
    )
