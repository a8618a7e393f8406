"""Metrics of one's own: scripts that a task brings along, and Python functions that an experiment names.

A script lies in the task's `metrics/` (the agent never sees it) and runs in a fresh box where the repository is as the
agent left it. It reads the run as JSON from standard input and prints a JSON object of numbers. A function
`module:function` is called with the same facts and returns a mapping of numbers. One that fails leaves its metric
missing, and says why; it never makes it 0.
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

from bakeoff.errors import UsageError
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
    taken: frozenset[str] = frozenset()
    """Names of metrics that every run has."""
    values: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """Why a script or function has no value."""

    def take(self, name: str, answer: Any) -> None:
        """Keep what is a number under a name that nobody has yet."""
        if not isinstance(answer, Mapping):
            self.problems[name] = f"must give an object of numbers, gave {type(answer).__name__}"
            return
        for key, value in answer.items():
            number = _number(value)
            if not math.isfinite(number):
                self.problems[f"{name}: {key}"] = f"{value!r} is no number"
            elif key in self.taken:
                self.problems[f"{name}: {key}"] = "is a metric that every run has; give it another name"
            elif key in self.values:
                self.problems[f"{name}: {key}"] = "is given twice"
            else:
                self.values[str(key)] = number


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        return math.inf


def scripts_of(task: Task) -> list[Path]:
    folder = task.directory / FOLDER
    return sorted(file for file in folder.iterdir() if file.suffix in _RUNNERS) if folder.is_dir() else []


def measure(
    task: Task,
    functions: Sequence[str],
    run: Mapping[str, Any],
    diff: bytes,
    sandbox: Sandbox,
    taken: Iterable[str] = (),
) -> Measured:
    """`taken` are names of metrics that every run has."""
    found = Measured(frozenset(taken))
    scripts = scripts_of(task)
    if scripts:
        _run_scripts(found, task, scripts, run, diff, sandbox)
    for name in functions:
        try:
            found.take(name, function(name)(dict(run)))
        except Exception as error:  # somebody else's code
            found.problems[name] = f"{type(error).__name__}: {error}"
    return found


def function(name: str) -> Any:
    """`module:function`; modules beside the experiment file can be imported."""
    if not name.partition(":")[2]:
        raise UsageError(
            f"metrics: {name!r} must be 'module:function'\n  fix: scripts go into the task's {FOLDER}/ directory"
        )
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"metrics: {name!r} cannot be found: {error}") from error


def _run_scripts(
    found: Measured, task: Task, scripts: Sequence[Path], run: Mapping[str, Any], diff: bytes, sandbox: Sandbox
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
                said = "took too long" if ended.timed_out else ended.stderr.decode(errors="replace")[-400:]
                found.problems[script.name] = f"ended with {ended.code}: {said}"
                continue
            try:
                found.take(script.name, json.loads(ended.stdout))
            except (ValueError, RecursionError) as error:
                found.problems[script.name] = (
                    f"printed no JSON: {error}: {ended.stdout[:200].decode(errors='replace')!r}"
                )
