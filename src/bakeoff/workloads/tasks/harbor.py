"""Readers of Harbor and terminal-bench task directories, which start from an image and are verified in it.

| format | file | beside it |
|---|---|---|
| Harbor | `task.toml` | `instruction.md`, `environment/`, `tests/`, `solution/`, `steps/<name>/` |
| terminal-bench | `task.yaml` | a Dockerfile or compose file, `run-tests.sh`, `tests/`, `solution.sh` |

What a sandbox here does not do (GPUs, several services, host allow-lists) becomes a note of the task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from bakeoff.errors import Problem, SpecError
from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.environment import COMPOSE_FILES, composed, entry_notes
from bakeoff.workloads.tasks.model import (
    AgentSettings,
    Environment,
    Solution,
    Step,
    Task,
    Verifier,
)
from bakeoff.workloads.tasks.schema import (
    VARIABLE,
    HoneypotsTable,
    Seconds,
    StepTable,
    TaskFileTable,
    TaskTable,
    first_file,
    read_tree,
    text_of,
    validated,
)

FILE = "task.toml"
MAIN_SERVICE = "main"
SCHEMA = (1, 4)
"""The newest schema of `task.toml` that this reader was written for."""
TERMINAL_BENCH_FILES = ("task.yaml", "task.yml")
TERMINAL_BENCH_SCRIPT = "run-tests.sh"
TERMINAL_BENCH_SERVICE = "client"

# Benchmarks mark their texts with such lines, so that training data can be filtered. They are not part of the task.
_CANARY = re.compile(r"^\s*(<!--.*canary.*-->|#.*canary.*)\s*$", re.IGNORECASE)


def read(directory: Path) -> Task:
    """The Harbor task in `directory`. SpecError that names every missing file and wrong key."""
    file = directory / FILE
    table, notes = validated(TaskTable, read_tree(file), file)
    honeypots, _ = validated(HoneypotsTable, {"honeypots": table.metadata.get("honeypots") or ()}, file)
    missing = list(_missing(directory, table))
    if missing:
        raise SpecError(missing, directory)
    # `environment/` need not be there for a task with a named image; its Dockerfile is then simply missing.
    environment, image_notes = _with_compose(
        Environment.of(table.environment, directory / "environment"), MAIN_SERVICE, table.metadata
    )
    steps = tuple(_steps(directory, table))
    name = table.task.name if table.task else directory.name
    tags = table.task.keywords if table.task else table.metadata.get("tags") or []
    return Task(
        id=name,
        format="harbor",
        directory=directory,
        digest=directory_digest(directory),
        title=str(table.metadata.get("title") or name.rpartition("/")[2]),
        environment=environment,
        steps=steps,
        artifacts=tuple(table.artifacts),
        multi_step_reward=table.multi_step_reward_strategy,
        honeypots=honeypots.honeypots,
        tags=tuple(str(tag) for tag in (tags if isinstance(tags, list) else [tags])),
        notes=(
            *notes,
            *image_notes,
            *_notes(table),
            *_network_notes(environment, steps),
            *_file_notes(directory, table),
        ),
    )


def without_canary(text: str) -> str:
    """`text` without blank lines and canary lines at its top."""
    lines = text.splitlines(keepends=True)
    while lines and (_CANARY.match(lines[0]) or not lines[0].strip()):
        lines.pop(0)
    return "".join(lines)


def _with_compose(
    environment: Environment, service: str, metadata: Mapping[str, Any]
) -> tuple[Environment, tuple[str, ...]]:
    """`environment` with what a compose file in its context says of `service`, and notes on what is not applied."""
    result = replace(environment, host_base=metadata.get("host_base") is True)
    notes: tuple[str, ...] = ()
    if compose := first_file(result.context, *COMPOSE_FILES):
        result, notes = composed(result, compose, service)
    return result, (*notes, *entry_notes(result))


def _step_tables(table: TaskTable) -> list[StepTable]:
    """The task's steps; a task without any has one, `main`, whose files are at the top of its directory."""
    return table.steps or [StepTable(name="main")]


def _steps(directory: Path, table: TaskTable) -> Iterator[Step]:
    """The steps of a task with what they inherit from it.

    Keys that a step does not set are the task's, and so is a solution that it does not have. Its tests are added to
    the task's.
    """
    agent = AgentSettings.of(table.agent)
    verifier = Verifier.of(table.verifier, _tests_in(directory))
    for step in _step_tables(table):
        folder = directory / "steps" / step.name if table.steps else directory
        tests = (*verifier.tests, *_tests_in(folder)) if table.steps else verifier.tests
        own = Verifier.of(step.verifier, tests, verifier)
        if own.mode == "separate":
            environment, in_image = _separate(directory, table, step)
            own = replace(
                own, environment=_with_compose(environment, MAIN_SERVICE, table.metadata)[0], tests_in_image=in_image
            )
        solutions = [place / "solution" for place in (folder, directory)]  # a step's own, or the one that all share
        source = next((place for place in solutions if (place / "solve.sh").is_file()), None)
        gate = step.min_reward
        yield Step(
            name=step.name,
            instruction=without_canary(text_of(folder / "instruction.md")),
            agent=AgentSettings.of(step.agent, agent),
            verifier=own,
            solution=Solution(source=source, env=table.solution.env) if source is not None else None,
            workdir=folder / "workdir" if table.steps and (folder / "workdir").is_dir() else None,
            min_reward={} if gate is None else gate if isinstance(gate, dict) else {"reward": gate},
            healthcheck=step.healthcheck,
            artifacts=tuple(step.artifacts),
        )


def _tests_in(folder: Path) -> tuple[Path, ...]:
    return (folder / "tests",) if (folder / "tests").is_dir() else ()


def _separate(directory: Path, table: TaskTable, step: StepTable) -> tuple[Environment, bool]:
    """A separate verifier's environment, and whether its image contains /tests.

    The image is named by `verifier.environment`, or built from `tests/`, or else the task's own. A step's table comes
    before the task's.
    """
    own_tests = directory / "steps" / step.name / "tests"
    known = [(step.verifier.environment, own_tests), (table.verifier.environment, directory / "tests")]
    # Size and limits come from the nearest table that sets any.
    size = next((own for own, _ in known if own is not None), table.environment)
    for own, folder in known:
        if own is not None and own.docker_image is not None:
            return replace(Environment.of(size), docker_image=own.docker_image), True
        if first_file(folder, "Dockerfile", *COMPOSE_FILES):
            return replace(Environment.of(size, folder), docker_image=None), True
    return replace(Environment.of(size, directory / "environment"), docker_image=table.environment.docker_image), False


def _missing(directory: Path, table: TaskTable) -> Iterator[Problem]:
    """A problem for each file that the task lacks."""
    if not (directory / "environment").is_dir() and table.environment.docker_image is None:
        yield Problem("environment/", "is needed", f"add environment/Dockerfile, or docker_image in {FILE}")
    # The mode has to be known before the tests are looked for: a separate verifier may have them in its image.
    mode = Verifier.of(table.verifier).mode
    for step in _step_tables(table):
        prefix = f"steps/{step.name}/" if table.steps else ""
        instruction = directory / prefix / "instruction.md"
        if not instruction.is_file() or not without_canary(text_of(instruction)).strip():
            yield Problem(f"{prefix}instruction.md", "is needed", "write what the agent is asked to do")
        own_mode = Verifier.of(step.verifier, task=Verifier(mode=mode)).mode
        if own_mode == "separate" and _separate(directory, table, step)[1]:
            continue  # its image brings the tests
        if table.environment.os != "linux":
            continue  # its scripts have other names, and running it is refused anyway
        # A step without its own tests uses the task's.
        scripts = (directory / prefix / "tests" / "test.sh", directory / "tests" / "test.sh")
        if not any(script.is_file() for script in scripts):
            fix = "write a script that leaves its reward in /logs/verifier/reward.txt"
            yield Problem(f"{prefix}tests/test.sh", "is needed", fix)


def _notes(table: TaskTable) -> Iterator[str]:
    """Notes on keys of `task.toml` that are not applied."""
    version = re.match(r"(\d+)\.(\d+)", table.schema_version or table.version or "")
    if version and (int(version[1]), int(version[2])) > SCHEMA:
        yield f"{FILE}: schema_version {version[0]} is newer than {SCHEMA[0]}.{SCHEMA[1]}: new keys may not be known"
    environment = table.environment
    for name in ("gpus", "tpu", "mcp_servers", "skills_dir"):
        if getattr(environment, name):
            yield f"{FILE}: environment.{name}: is not given to {'a sandbox' if name in ('gpus', 'tpu') else 'agents'}"
    for name, text in environment.env.items():
        if reference := VARIABLE.fullmatch(text):
            yield f"{FILE}: environment.env.{name}: agents see {reference[1]} of this machine"
    # A separate verifier's sandbox only runs the tests: nothing waits for it or works in it before.
    verifiers = {"verifier": table.verifier, **{f"steps.{step.name}.verifier": step.verifier for step in table.steps}}
    for place, verifier in verifiers.items():
        for name in ("healthcheck", "gpus", "tpu", "mcp_servers", "skills_dir"):
            if verifier.environment is not None and getattr(verifier.environment, name):
                yield f"{FILE}: {place}.environment.{name}: is not used"
    hooks = [hook for verifier in verifiers.values() for hook in verifier.collect]
    kept = [*table.artifacts, *(artifact for step in table.steps for artifact in step.artifacts)]
    services = {hook.service for hook in hooks} | {artifact.service for artifact in kept}
    others = sorted(service for service in services if service not in (None, MAIN_SERVICE))
    if others:
        yield f"{FILE}: verifier.collect, artifacts: only the service {MAIN_SERVICE} is run, not {', '.join(others)}"


def _network_notes(environment: Environment, steps: tuple[Step, ...]) -> Iterator[str]:
    """A note if phases that share a sandbox want different networks, or one wants a list of hosts.

    A sandbox has one network for its whole life, or none: then only programs that use the proxy reach anything.
    """
    shared = [environment.network]  # what the agent's sandbox is asked for, by all phases that run in it
    boxes = [shared]
    for step in steps:
        own = step.verifier.environment
        boxes += [[own.network]] if own is not None else []
        shared += [step.agent.network] if step.agent.network else []
        (boxes[-1] if own is not None else shared).extend([step.verifier.network] if step.verifier.network else [])
    modes = [{network.mode for network in box} for box in boxes]
    if any("allowlist" in wanted or len(wanted) > 1 for wanted in modes):
        yield f"{FILE}: network_mode: hosts are reached through an HTTP proxy (http_proxy, https_proxy) and no other way"


def _file_notes(directory: Path, table: TaskTable) -> Iterator[str]:
    """Notes on files that are not used, and on scripts with Windows line endings, which no shell runs."""
    folders = [directory, *(directory / "steps" / step.name for step in table.steps)]
    for folder in folders:
        trajectory = folder / "trajectory.json"
        if trajectory.is_file():
            yield f"{trajectory.relative_to(directory)}: this earlier conversation is not given to agents"
        ignore = ".harborignore"
        for file in sorted((*(folder / "tests").rglob(ignore), *(folder / "solution").rglob(ignore))):
            yield f"{file.relative_to(directory)}: is not read, so the files that it names are copied too"
    for script in (folder / name for folder in folders for name in ("tests/test.sh", "solution/solve.sh")):
        if script.is_file() and script.read_bytes().partition(b"\n")[0].endswith(b"\r"):
            yield f"{script.relative_to(directory)}: its lines end with CR LF, and no shell runs that"


class YamlTable(TaskFileTable):
    """The whole of terminal-bench's `task.yaml`, with its defaults."""

    instruction: Annotated[str, Field(min_length=1)]
    author_name: str | None = None
    author_email: str | None = None
    difficulty: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    parser_name: Literal["pytest", "swebench"] = "pytest"
    max_agent_timeout_sec: Seconds = 360.0
    max_test_timeout_sec: Seconds = 60.0
    run_tests_in_same_shell: bool = False
    disable_asciinema: bool = False
    estimated_duration_sec: float | None = None
    expert_time_estimate_min: float | None = None
    junior_time_estimate_min: float | None = None

    @model_validator(mode="before")
    @classmethod
    def older_names(cls, tree: Any) -> Any:
        """The first tasks had several `descriptions`, of which `base` is always there."""
        if not isinstance(tree, dict) or "instruction" in tree or not isinstance(tree.get("descriptions"), list):
            return tree
        entries = [entry for entry in tree["descriptions"] if isinstance(entry, dict)]
        texts = {entry.get("key"): entry.get("description") for entry in entries}
        rest = {name: value for name, value in tree.items() if name != "descriptions"}
        return {**rest, "instruction": texts.get("base") or next(iter(texts.values()), "")}


def read_terminal_bench(directory: Path, file: Path) -> Task:
    """The terminal-bench task in `directory`, whose `task.yaml` is `file`."""
    table, notes = validated(YamlTable, read_tree(file), file)
    script, solution = directory / TERMINAL_BENCH_SCRIPT, directory / "solution.sh"
    if not script.is_file():
        raise SpecError([Problem(TERMINAL_BENCH_SCRIPT, "is needed", "add the script that runs tests/")], directory)
    environment = Environment(
        context=directory,
        # The Dockerfile often copies its whole directory, in which tests and solution are.
        withheld=(*TERMINAL_BENCH_FILES, TERMINAL_BENCH_SCRIPT, "tests", "solution.sh", "solution.yaml"),
        dockerfile=first_file(directory, "Dockerfile"),
    )
    environment, image_notes = _with_compose(environment, TERMINAL_BENCH_SERVICE, {})
    if environment.dockerfile is None and environment.docker_image is None:
        raise SpecError([Problem("Dockerfile", "is needed", "add the Dockerfile of the task's image")], directory)
    own_notes = []
    if (directory / "solution.yaml").is_file() and not solution.is_file():
        own_notes.append("solution.yaml (keystrokes) is not run: write solution.sh to prove that the task is solvable")
    if table.run_tests_in_same_shell:
        own_notes.append(
            f"{TERMINAL_BENCH_FILES[0]}: run_tests_in_same_shell: tests run in a new shell, without the agent's settings"
        )
    step = Step(
        name="main",
        instruction=without_canary(table.instruction),
        agent=AgentSettings(timeout=table.max_agent_timeout_sec),
        verifier=Verifier(
            tests=tuple(place for place in (directory / "tests", script) if place.exists()),
            script=TERMINAL_BENCH_SCRIPT,
            timeout=table.max_test_timeout_sec,
            env={"TEST_DIR": "/tests"},
            parser=table.parser_name,
        ),
        solution=Solution(source=solution, script=solution.name) if solution.is_file() else None,
    )
    return Task(
        id=directory.name,
        format="terminal-bench",
        directory=directory,
        digest=directory_digest(directory),
        title=directory.name,
        environment=environment,
        steps=(step,),
        tags=tuple(table.tags),
        notes=(*notes, *image_notes, *own_notes),
    )
