"""Custom metrics: scripts of a task, and Python functions that an experiment names.

A script is a file in the task's `metrics/`, which the agent never sees. It runs in a fresh sandbox where the
repository is as the agent left it, reads the run as JSON from standard input and prints a JSON object of numbers. A
function `module:function` gets the same facts as a dict and returns a mapping of numbers. When one fails, its
metric is missing and the run says why; a missing metric never becomes 0.
"""

from __future__ import annotations

import json
import math
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

from bakeoff.sandbox.base import Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.diff import apply_diff
from bakeoff.workloads.tasks.environment import box_spec, built_for
from bakeoff.workloads.tasks.model import Task
from bakeoff.workloads.tasks.start import start_state
from bakeoff.workloads.tasks.verify import lay_out

FOLDER = "metrics"
PLACE = "/metrics"
_RUNNERS = {".py": ("python3",), ".sh": ("sh",)}


@dataclass
class Measured:
    """The custom metrics of one run."""

    taken: frozenset[str] = frozenset()
    """Names of metrics that every run has."""
    values: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """Why a script or function has no value."""

    def take(self, name: str, answer: Any) -> None:
        """Keep the finite numbers of what `name` gave, under names that are free; the rest are problems."""
        if not isinstance(answer, Mapping):
            self.problems[name] = f"must give an object of numbers, gave {type(answer).__name__}"
            return
        for key, value in answer.items():
            try:
                number = float(value) if isinstance(value, Real) else math.nan
            except OverflowError:  # an integer beyond the largest float
                number = math.inf
            if not math.isfinite(number):
                self.problems[f"{name}: {key}"] = f"{value!r} is not a finite number"
            elif key in self.taken:
                self.problems[f"{name}: {key}"] = "is a metric that every run has; use another name"
            elif key in self.values:
                self.problems[f"{name}: {key}"] = "is given twice"
            else:
                self.values[str(key)] = number


def measure(
    task: Task,
    functions: Sequence[str],
    run: Mapping[str, Any],
    diff: bytes,
    sandbox: Sandbox,
    taken: Iterable[str] = (),
) -> Measured:
    """Run all scripts of the task and all `functions` on one run.

    `run` is what they get; `diff` is what the agent changed; `taken` are names of metrics that every run has.
    """
    measured = Measured(frozenset(taken))
    folder = task.directory / FOLDER
    scripts = sorted(file for file in folder.iterdir() if file.suffix in _RUNNERS) if folder.is_dir() else []
    if scripts:
        _run_scripts(measured, task, scripts, run, diff, sandbox)
    for name in functions:
        if not name.partition(":")[2]:
            measured.problems[name] = f"must be 'module:function'; scripts go into the task's {FOLDER}/ directory"
            continue
        try:
            # Modules beside the experiment file can be imported.
            measured.take(name, pkgutil.resolve_name(name)(dict(run)))
        except Exception as error:  # the user's code may raise anything, on import too
            measured.problems[name] = f"{type(error).__name__}: {error}"
    return measured


def _run_scripts(
    measured: Measured, task: Task, scripts: Sequence[Path], run: Mapping[str, Any], diff: bytes, sandbox: Sandbox
) -> None:
    image = built_for(task.environment, sandbox).image
    with scratch() as here, sandbox.open(box_spec(task, image)) as box:
        if task.repository is not None:
            tree = here / "tree"
            start_state(task).copy(tree)
            apply_diff(tree, diff)
            lay_out(task, tree, box, None)
        for script in scripts:
            place = f"{PLACE}/{script.name}"
            box.put(script, place)
            argv = (*_RUNNERS[script.suffix], place)
            ended = box.run(argv, stdin=json.dumps(run).encode(), timeout=task.verifier.timeout)
            if not ended.ok:
                reason = "took too long" if ended.timed_out else ended.stderr.decode(errors="replace")[-400:]
                measured.problems[script.name] = f"ended with {ended.code}: {reason}"
                continue
            try:
                measured.take(script.name, json.loads(ended.stdout))
            except (ValueError, RecursionError) as error:
                printed = ended.stdout[:200].decode(errors="replace")
                measured.problems[script.name] = f"did not print JSON: {error}: {printed!r}"
