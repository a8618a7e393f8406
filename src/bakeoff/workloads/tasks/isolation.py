"""Set a task up with a launcher: find the modules of the work that its tests import, and write them into the task.

    tests: from shop.slug import slug          ->  "verifier": {"isolation": "launcher", "modules": ["shop"]}

`task new` writes this for every task whose tests import the repository; `task check` tries it for tasks that do not have it.
Tests that call the work in another way (a program, a file that it leaves) have to be written with `bakeoff_work`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.workloads.tasks import harbor, prepared
from bakeoff.workloads.tasks.diff import touched
from bakeoff.workloads.tasks.guard import TEST_FOLDERS
from bakeoff.workloads.tasks.model import Task
from bakeoff.workloads.tasks.start import start_state

CLIENT = "bakeoff_work"
"""The module by which tests call the work."""
_VERIFIER = re.compile(r"^\[verifier\][ \t]*(#.*)?$", re.MULTILINE)


def imported(sources: Iterable[str], is_module: Callable[[str], bool]) -> tuple[str, ...]:
    """The modules at the top that Python sources import and that `is_module` says are the work's."""
    names: set[str] = set()
    for source in sources:
        try:
            nodes = list(ast.walk(ast.parse(source)))
        except (SyntaxError, ValueError):
            continue
        for node in nodes:
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return tuple(sorted(name for name in names - TEST_FOLDERS if is_module(name)))


def modules_in(paths: Iterable[str]) -> Callable[[str], bool]:
    """Whether a module of a name is among files of a repository, at its top or in `src`."""
    names = set()
    for path in paths:
        parts = path.removeprefix("src/").split("/")
        if path.endswith(".py"):
            names.add(parts[0].removesuffix(".py"))
    return names.__contains__


def launched(task: Task) -> Task | None:
    """The task with a launcher, if it has none and its tests import the work; None otherwise."""
    if task.isolated or task.format == "terminal-bench" or len(task.steps) > 1:
        return None
    if task.format == "prepared":
        start = start_state(task).tree
        diff = task.first.solution.diff if task.first.solution is not None else None
        inner = Path(task.repository.subdir) if task.repository is not None else Path()
        known = [file.relative_to(top).as_posix() for top in {start, start / inner} for file in top.rglob("*.py")]
        modules = imported((script.content for script in task.scripts), modules_in([*known, *touched(diff)]))
    else:
        files = [file for place in task.first.verifier.tests for file in sorted(place.rglob("*.py"))]
        own = {file.stem for file in files}
        around = [file.name for place in ("environment", "solution") for file in (task.directory / place).rglob("*.py")]
        is_module = modules_in(name for name in around if name.removesuffix(".py") not in own)
        modules = imported((file.read_text(encoding="utf-8", errors="replace") for file in files), is_module)
    if not modules:
        return None
    verifier = replace(task.first.verifier, isolation="launcher", modules=modules)
    return replace(task, steps=(replace(task.first, verifier=verifier),))


def write_launcher(task: Task, modules: tuple[str, ...]) -> Path:
    """Write the launcher and the modules that go through it into the task's file, and return that file."""
    if task.format == "prepared":
        file = task.directory / prepared.FILE
        tree: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        tree["verifier"] = {**tree.get("verifier", {}), "isolation": "launcher", "modules": list(modules)}
        file.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return file
    file = task.directory / harbor.FILE
    text = file.read_text(encoding="utf-8")
    lines = f'isolation = "launcher"\nmodules = {json.dumps(list(modules))}\n'
    table = _VERIFIER.search(text)
    if table is None and re.search(r"^\s*verifier\s*[.=]", text, re.MULTILINE):
        raise UsageError(f"{file}: write {lines.strip()!r} into `verifier` by hand: it is not a [verifier] table")
    if table is None:
        text = f"{text.rstrip()}\n\n[verifier]\n{lines}"
    else:
        text = f"{text[: table.end()]}\n{lines.rstrip()}{text[table.end() :]}"
    file.write_text(text, encoding="utf-8")
    return file
