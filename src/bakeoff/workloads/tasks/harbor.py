"""Reads Harbor task directories: `task.toml`, `instruction.md`, `environment/`, `tests/`, `solution/`, `steps/`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bakeoff.errors import Problem, SpecError
from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.model import AgentSettings, Solution, Step, Task, Verifier
from bakeoff.workloads.tasks.schema import StepTable, TaskTable, artifacts, checked, read_tree

FILE = "task.toml"
SCHEMA = (1, 4)
"""The newest schema that this reader was written for."""
_CANARY = re.compile(r"^\s*(<!--.*canary.*-->|#.*canary.*)\s*$", re.IGNORECASE)


def read(directory: Path) -> Task:
    file = directory / FILE
    table, notes = checked(TaskTable, read_tree(file), file)
    missing = list(_missing(directory, table))
    if missing:
        raise SpecError(missing, directory)
    environment = table.environment.environment(directory / "environment")
    if table.metadata.get("host_base") is True:
        environment = replace(environment, host_base=True)
    name = table.task.name if table.task else directory.name
    return Task(
        id=name,
        format="harbor",
        directory=directory,
        digest=directory_digest(directory),
        title=str(table.metadata.get("title") or name.rpartition("/")[2]),
        environment=environment,
        steps=tuple(_steps(directory, table)),
        artifacts=artifacts(table.artifacts),
        multi_step_reward=table.multi_step_reward_strategy,
        tags=tuple(table.task.keywords if table.task else table.metadata.get("tags") or ()),
        description=table.task.description if table.task else "",
        metadata=table.metadata,
        notes=(*notes, *_notes(table, directory)),
    )


def without_canary(text: str) -> str:
    """The instruction without the lines at its top that mark a benchmark's text for training filters."""
    lines = text.splitlines(keepends=True)
    while lines and (_CANARY.match(lines[0]) or not lines[0].strip()):
        lines.pop(0)
    return "".join(lines)


def _steps(directory: Path, table: TaskTable) -> Iterator[Step]:
    agent = table.agent.settings()
    verifier = table.verifier.verifier(_folders(directory / "tests"))
    if not table.steps:
        yield Step(
            name="main",
            instruction=without_canary((directory / "instruction.md").read_text(encoding="utf-8")),
            agent=agent,
            verifier=verifier,
            solution=_solution(directory, table),
        )
        return
    for step in table.steps:
        yield _step(directory / "steps" / step.name, step, table, agent, verifier)


def _step(folder: Path, step: StepTable, table: TaskTable, agent: AgentSettings, verifier: Verifier) -> Step:
    return Step(
        name=step.name,
        instruction=without_canary((folder / "instruction.md").read_text(encoding="utf-8")),
        agent=step.agent.settings(agent),
        verifier=step.verifier.verifier((*verifier.tests, *_folders(folder / "tests")), verifier),
        solution=_solution(folder, table),
        workdir=folder / "workdir" if (folder / "workdir").is_dir() else None,
        min_reward=step.gate(),
        healthcheck=step.healthcheck.healthcheck() if step.healthcheck else None,
        artifacts=artifacts(step.artifacts),
    )


def _folders(folder: Path) -> tuple[Path, ...]:
    return (folder,) if folder.is_dir() else ()


def _solution(folder: Path, table: TaskTable) -> Solution | None:
    if not (folder / "solution" / "solve.sh").is_file():
        return None
    return Solution(source=folder / "solution", env=table.solution.env)


def _missing(directory: Path, table: TaskTable) -> Iterator[Problem]:
    if not (directory / "environment").is_dir() and table.environment.docker_image is None:
        yield Problem("environment/", "is needed", f"add environment/Dockerfile, or docker_image in {FILE}")
    separate = table.verifier.environment_mode == "separate" or table.verifier.environment is not None
    if not table.steps:
        yield from _missing_files(directory, "", separate)
    for step in table.steps:
        own = step.verifier.environment_mode
        yield from _missing_files(directory, f"steps/{step.name}/", own == "separate" if own else separate)


def _missing_files(directory: Path, prefix: str, separate: bool) -> Iterator[Problem]:
    if not (directory / prefix / "instruction.md").is_file():
        yield Problem(f"{prefix}instruction.md", "is needed", "write what the agent is asked to do")
    shared = directory / "tests" / "test.sh"  # steps share the task's tests where they have none of their own
    if not separate and not (directory / prefix / "tests" / "test.sh").is_file() and not shared.is_file():
        fix = "write a script that leaves its reward in /logs/verifier/reward.txt"
        yield Problem(f"{prefix}tests/test.sh", "is needed", fix)


def _notes(table: TaskTable, directory: Path) -> Iterator[str]:
    version = re.match(r"(\d+)\.(\d+)", table.schema_version or table.version or "")
    if version and (int(version[1]), int(version[2])) > SCHEMA:
        yield f"{FILE}: schema_version {version[0]} is newer than {SCHEMA[0]}.{SCHEMA[1]}: keys of it may not be known"
    if table.environment.os == "windows":
        yield f"{FILE}: environment.os: windows boxes cannot be had here"
    if table.environment.gpus or table.environment.tpu:
        yield f"{FILE}: environment: gpus and tpus are not given to a box"
    services = [hook.service for hook in table.verifier.collect if hook.service not in (None, "main")]
    if services:
        yield f"{FILE}: verifier.collect: only the service main is run, not {', '.join(str(one) for one in services)}"
