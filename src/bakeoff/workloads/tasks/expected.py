"""What an honest run of a task's tests looks like: the tests that pass for the reference, and what the runner notices.

`bakeoff task check` stores it in the cache, by the digest of the task. It serves twice: a test that passes for the
reference and is not reported for an agent has failed; and what the runner notices for the reference too (tests that
rewrite their own data, say) is not tampering. Without it, test functions are read from the source, and the
reference is run when something is noticed for the first time.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.records.layout import atomic_write
from bakeoff.sandbox import cache
from bakeoff.sandbox.base import Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.witness import tests

if TYPE_CHECKING:
    from bakeoff.workloads.tasks.model import Task

CHANGED = "changed while the tests ran: "
REVISION = "3"


@dataclass(frozen=True, slots=True)
class Expected:
    """The reference's run."""

    tests: Mapping[str, tuple[str, ...]]
    """Script to the tests that pass, by pytest's names. Scripts whose tests depend on the work are not in it."""
    marks: tuple[str, ...]

    @classmethod
    def load(cls, task: Task, sandbox: Sandbox) -> Expected | None:
        """What is known about a task; None if its reference was not run here."""
        try:
            table = json.loads(_place(task, sandbox).read_text())
            return cls({path: tuple(names) for path, names in table["tests"].items()}, tuple(table["marks"]))
        except (OSError, ValueError, KeyError, AttributeError):
            return None

    @classmethod
    def keep(cls, task: Task, sandbox: Sandbox, reference: Verification, nothing: Verification | None) -> Expected:
        """Store the run of the reference. `nothing` is the run of the start state, which collects the same tests
        unless their parameters come from the work."""
        stable: dict[str, tuple[str, ...]] = {}
        idle = {script.path: {case.id for case in script.cases} for script in nothing.scripts} if nothing else {}
        for script in reference.scripts:
            passed = tuple(case.id for case in script.cases if case.outcome == "passed" and case.id)
            if script.passed and passed and set(passed) <= idle.get(script.path, set()):
                stable[script.path] = passed
        kept = cls(stable, reference.marks)
        if reference.status == "scored":
            atomic_write(_place(task, sandbox), json.dumps({"tests": stable, "marks": kept.marks}).encode())
        return kept


def _place(task: Task, sandbox: Sandbox) -> Path:
    name = hashlib.sha256(f"{REVISION} {task.digest} {sandbox.name}".encode()).hexdigest()[:24]
    return cache.directory("expected") / f"{name}.json"


def judged(task: Task, sandbox: Sandbox, verification: Verification) -> Verification:
    """`verification` with what the work did to its tests, which makes the score 0.

    What the runner notices for the reference too does not count; it is run now if it was not before.
    """
    if not verification.marks or verification.status != "scored":
        return verification
    expected = Expected.load(task, sandbox)
    if expected is None:
        from bakeoff.workloads.tasks.check import (  # it imports this module's users
            missing_reference,
            nothing,
            reference,
        )

        with scratch("reference") as logs:
            run = nothing if missing_reference(task) else reference
            expected = Expected.keep(task, sandbox, run(task, sandbox, logs), None)
    tampered = tuple(mark for mark in verification.marks if mark not in expected.marks)
    if not tampered:
        return verification
    problem = "; ".join(filter(None, (f"tampered: {', '.join(tampered)}", verification.error)))
    rewards = dict.fromkeys(verification.rewards, 0.0)
    return replace(verification, score=0.0, rewards=rewards, tampered=tampered, error=problem)


def function_of(test: str) -> str:
    """`TestX::test_y` of pytest's name `tests/test_z.py::TestX::test_y[1]`."""
    return test.partition("::")[2].partition("[")[0]


def plain_tests(source: str) -> list[str]:
    """Tests in a script that pytest runs whatever the work is: functions, and methods of `Test*` classes."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    odd = {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and (
            not node.name.startswith("Test")
            or any(isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in node.body)
            or "__test__" in ast.dump(node)
        )
    }
    names = [
        "::".join(path)
        for path, function in tests(tree)
        if path[0] not in odd and not any("fixture" in ast.dump(mark) for mark in function.decorator_list)
    ]
    return list(dict.fromkeys(names))
