"""Reads Harbor task directories: `task.toml`, `instruction.md`, `environment/`, `tests/`, `solution/`, `steps/`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bakeoff.errors import Problem, SpecError
from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.compose import FILES as COMPOSE_FILES
from bakeoff.workloads.tasks.compose import composed
from bakeoff.workloads.tasks.model import AgentSettings, Environment, Solution, Step, Task, Verifier
from bakeoff.workloads.tasks.schema import (
    VARIABLE,
    StepTable,
    TaskTable,
    artifacts,
    checked,
    first_file,
    read_tree,
    text_of,
)

FILE = "task.toml"
MAIN_SERVICE = "main"
TRAJECTORY, IGNORE = "trajectory.json", ".harborignore"
SCHEMA = (1, 4)
"""The newest schema that this reader was written for."""
_ENTRY = re.compile(r"^[ \t]*ENTRYPOINT[ \t]+(?!\[[ \t]*\])", re.MULTILINE | re.IGNORECASE)
_CANARY = re.compile(r"^\s*(<!--.*canary.*-->|#.*canary.*)\s*$", re.IGNORECASE)


def read(directory: Path) -> Task:
    file = directory / FILE
    table, notes = checked(TaskTable, read_tree(file), file)
    missing = list(_missing(directory, table))
    if missing:
        raise SpecError(missing, directory)
    environment, told = _composed(table, table.environment.environment(directory / "environment"))
    steps = tuple(_steps(directory, table))
    name = table.task.name if table.task else directory.name
    return Task(
        id=name,
        format="harbor",
        directory=directory,
        digest=directory_digest(directory),
        title=str(table.metadata.get("title") or name.rpartition("/")[2]),
        environment=environment,
        steps=steps,
        artifacts=artifacts(table.artifacts),
        multi_step_reward=table.multi_step_reward_strategy,
        tags=tuple(table.task.keywords if table.task else _words(table.metadata.get("tags"))),
        description=table.task.description if table.task else "",
        metadata=table.metadata,
        notes=(*notes, *told, *_notes(table), *_network_notes(environment, steps), *_file_notes(directory, table)),
    )


def _composed(table: TaskTable, environment: Environment) -> tuple[Environment, tuple[str, ...]]:
    """With what a compose file beside the Dockerfile says, and notes on what is not followed."""
    environment = replace(environment, host_base=table.metadata.get("host_base") is True)
    compose = first_file(environment.context, *COMPOSE_FILES)
    found, told = composed(environment, compose, MAIN_SERVICE) if compose else (environment, ())
    return found, (*told, *entry_notes(found))


def entry_notes(environment: Environment) -> Iterator[str]:
    """A program that an image starts with, which no box runs: it has commands, and nothing goes on between them."""
    file = environment.dockerfile
    if file is not None and environment.docker_image is None and _ENTRY.search(file.read_text(errors="replace")):
        yield f"{file.name}: ENTRYPOINT: is not run"


def without_canary(text: str) -> str:
    """The instruction without the lines at its top that mark a benchmark's text for training filters."""
    lines = text.splitlines(keepends=True)
    while lines and (_CANARY.match(lines[0]) or not lines[0].strip()):
        lines.pop(0)
    return "".join(lines)


def _words(given: object) -> list[str]:
    """Free-form metadata as words."""
    return [str(one) for one in given] if isinstance(given, list) else [str(given)] if given else []


def _steps(directory: Path, table: TaskTable) -> Iterator[Step]:
    agent = table.agent.settings()
    verifier = table.verifier.verifier(_folders(directory / "tests"))
    if not table.steps:
        yield Step(
            name="main",
            instruction=without_canary(text_of(directory / "instruction.md")),
            agent=agent,
            verifier=_placed(verifier, directory, table),
            solution=_solution(table, directory),
        )
        return
    for step in table.steps:
        yield _step(directory / "steps" / step.name, step, table, agent, verifier)


def _step(folder: Path, step: StepTable, table: TaskTable, agent: AgentSettings, verifier: Verifier) -> Step:
    own = step.verifier.verifier((*verifier.tests, *_folders(folder / "tests")), verifier)
    return Step(
        name=step.name,
        instruction=without_canary(text_of(folder / "instruction.md")),
        agent=step.agent.settings(agent),
        verifier=_placed(own, folder.parent.parent, table, step),
        solution=_solution(table, folder, folder.parent.parent),
        workdir=folder / "workdir" if (folder / "workdir").is_dir() else None,
        min_reward=step.gate(),
        healthcheck=step.healthcheck.healthcheck() if step.healthcheck else None,
        artifacts=artifacts(step.artifacts),
    )


def _placed(verifier: Verifier, directory: Path, table: TaskTable, step: StepTable | None = None) -> Verifier:
    """With the environment of its own that a separate verifier has."""
    if verifier.mode == "shared":
        return verifier
    environment, inside = _separate(directory, table, step)
    return replace(verifier, environment=_composed(table, environment)[0], tests_in_image=inside)


def _separate(directory: Path, table: TaskTable, step: StepTable | None) -> tuple[Environment, bool]:
    """A separate verifier's environment, and whether its image brings /tests along.

    The image is named by `verifier.environment`, or built from `tests/`; where neither is there it is the task's own.
    What the step says counts before what the task says.
    """
    known = [(table.verifier.environment, directory / "tests")]
    if step is not None:
        known.insert(0, (step.verifier.environment, directory / "steps" / step.name / "tests"))
    size = next((own for own, _ in known if own is not None), table.environment)
    for own, folder in known:
        if own is not None and own.docker_image is not None:
            return replace(size.environment(), docker_image=own.docker_image), True
        if first_file(folder, "Dockerfile", *COMPOSE_FILES):
            return replace(size.environment(folder), docker_image=None), True
    return replace(size.environment(directory / "environment"), docker_image=table.environment.docker_image), False


def _folders(folder: Path) -> tuple[Path, ...]:
    return (folder,) if folder.is_dir() else ()


def _solution(table: TaskTable, *folders: Path) -> Solution | None:
    """The first that has a script: a step's own, or else the one that all steps share."""
    found = next((folder / "solution" for folder in folders if (folder / "solution" / "solve.sh").is_file()), None)
    return Solution(source=found, env=table.solution.env) if found is not None else None


def _missing(directory: Path, table: TaskTable) -> Iterator[Problem]:
    if not (directory / "environment").is_dir() and table.environment.docker_image is None:
        yield Problem("environment/", "is needed", f"add environment/Dockerfile, or docker_image in {FILE}")
    mode = table.verifier.verifier(()).mode
    elsewhere = table.environment.os != "linux"  # its scripts have other names, and it is refused where it would be run
    if not table.steps:
        inside = mode == "separate" and _separate(directory, table, None)[1]
        yield from _missing_files(directory, "", elsewhere or inside)
    for step in table.steps:
        own = step.verifier.verifier((), Verifier(mode=mode)).mode
        inside = own == "separate" and _separate(directory, table, step)[1]
        yield from _missing_files(directory, f"steps/{step.name}/", elsewhere or inside)


def _missing_files(directory: Path, prefix: str, tests_in_image: bool) -> Iterator[Problem]:
    instruction = directory / prefix / "instruction.md"
    if not instruction.is_file() or not without_canary(text_of(instruction)).strip():
        yield Problem(f"{prefix}instruction.md", "is needed", "write what the agent is asked to do")
    shared = directory / "tests" / "test.sh"  # steps share the task's tests where they have none of their own
    if not tests_in_image and not (directory / prefix / "tests" / "test.sh").is_file() and not shared.is_file():
        fix = "write a script that leaves its reward in /logs/verifier/reward.txt"
        yield Problem(f"{prefix}tests/test.sh", "is needed", fix)


def _notes(table: TaskTable) -> Iterator[str]:
    version = re.match(r"(\d+)\.(\d+)", table.schema_version or table.version or "")
    if version and (int(version[1]), int(version[2])) > SCHEMA:
        yield f"{FILE}: schema_version {version[0]} is newer than {SCHEMA[0]}.{SCHEMA[1]}: keys of it may not be known"
    environment = table.environment
    for name in ("gpus", "tpu"):
        if getattr(environment, name):
            yield f"{FILE}: environment.{name}: is not given to a box"
    for name in ("mcp_servers", "skills_dir"):
        if getattr(environment, name):
            yield f"{FILE}: environment.{name}: is not handed to agents"
    for name, text in environment.env.items():
        if shown := VARIABLE.fullmatch(text):
            yield f"{FILE}: environment.env.{name}: agents see {shown[1]} of this machine"
    yield from _verifier_notes(table)
    hooks = [hook for one in (table.verifier, *(step.verifier for step in table.steps)) for hook in one.collect]
    listed = [*table.artifacts, *(one for step in table.steps for one in step.artifacts)]
    services = {hook.service for hook in hooks} | {one.service for one in listed if not isinstance(one, str)}
    others = sorted(one for one in services if one not in (None, MAIN_SERVICE))
    if others:
        yield f"{FILE}: verifier.collect, artifacts: only the service {MAIN_SERVICE} is run, not {', '.join(others)}"


def _verifier_notes(table: TaskTable) -> Iterator[str]:
    """What a separate verifier's box has not: it runs the tests, and nothing waits for it or works in it before."""
    named = [("verifier", table.verifier), *((f"steps.{step.name}.verifier", step.verifier) for step in table.steps)]
    for place, verifier in named:
        for name in ("healthcheck", "gpus", "tpu", "mcp_servers", "skills_dir"):
            if verifier.environment is not None and getattr(verifier.environment, name):
                yield f"{FILE}: {place}.environment.{name}: is not used"


def _network_notes(environment: Environment, steps: tuple[Step, ...]) -> Iterator[str]:
    """A box has one network for all its life, or none; it knows no list of hosts."""
    shared = [environment.network]
    boxes = [shared]
    for step in steps:
        own = step.verifier.environment
        boxes += [[own.network]] if own is not None else []
        shared += [step.agent.network] if step.agent.network else []
        (boxes[-1] if own is not None else shared).extend([step.verifier.network] if step.verifier.network else [])
    modes = [{one.mode for one in box} for box in boxes]
    if any("allowlist" in found for found in modes):
        yield f"{FILE}: network_mode: a list of hosts cannot be held here, so there is no network at all"
    elif any(len(found) > 1 for found in modes):
        yield f"{FILE}: network_mode: a box has a network only where all that work in it ask for one"


def _file_notes(directory: Path, table: TaskTable) -> Iterator[str]:
    """Files that are not used, and scripts with Windows' line ends, which no shell runs."""
    folders = [directory, *(directory / "steps" / step.name for step in table.steps)]
    for folder in folders:
        if (folder / TRAJECTORY).is_file():
            where = (folder / TRAJECTORY).relative_to(directory)
            yield f"{where}: agents are not given this earlier conversation"
        for ignoring in sorted((*(folder / "tests").rglob(IGNORE), *(folder / "solution").rglob(IGNORE))):
            yield f"{ignoring.relative_to(directory)}: is not read, so what it names goes into the box too"
    for script in (folder / name for folder in folders for name in ("tests/test.sh", "solution/solve.sh")):
        if script.is_file() and script.read_bytes().partition(b"\n")[0].endswith(b"\r"):
            yield f"{script.relative_to(directory)}: its lines end with CR LF, and no shell runs it so"
