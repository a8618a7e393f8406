"""Reads terminal-bench task directories: `task.yaml`, `run-tests.sh`, `tests/`, `solution.sh` and a Dockerfile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from bakeoff.errors import Problem, SpecError
from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.compose import FILES as COMPOSE_FILES
from bakeoff.workloads.tasks.compose import composed
from bakeoff.workloads.tasks.harbor import entry_notes, without_canary
from bakeoff.workloads.tasks.model import AgentSettings, Environment, Solution, Step, Task, Verifier
from bakeoff.workloads.tasks.schema import Open, Seconds, checked, first_file, read_tree

FILES = ("task.yaml", "task.yml")
TESTS_SCRIPT = "run-tests.sh"
MAIN_SERVICE = "client"
IN_METADATA = ("difficulty", "category", "author_name", "author_email", "estimated_duration_sec",
               "expert_time_estimate_min", "junior_time_estimate_min")  # fmt: skip


class YamlTable(Open):
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
    def older_names(cls, given: Any) -> Any:
        """The first tasks had several descriptions, of which `base` is the one that is always there."""
        if not isinstance(given, dict) or "instruction" in given or not isinstance(given.get("descriptions"), list):
            return given
        texts = {one.get("key"): one.get("description") for one in given["descriptions"] if isinstance(one, dict)}
        rest = {name: value for name, value in given.items() if name != "descriptions"}
        return {**rest, "instruction": texts.get("base") or next(iter(texts.values()), "")}


def read(directory: Path, file: Path) -> Task:
    table, notes = checked(YamlTable, read_tree(file), file)
    script = directory / TESTS_SCRIPT
    if not script.is_file():
        raise SpecError([Problem(TESTS_SCRIPT, "is needed", "add the script that runs tests/")], directory)
    environment, told = _environment(directory)
    metadata: dict[str, Any] = {name: getattr(table, name) for name in IN_METADATA if getattr(table, name) is not None}
    step = Step(
        name="main",
        instruction=without_canary(table.instruction),
        agent=AgentSettings(timeout=table.max_agent_timeout_sec),
        verifier=Verifier(
            tests=tuple(place for place in (directory / "tests", script) if place.exists()),
            script=TESTS_SCRIPT,
            timeout=table.max_test_timeout_sec,
            env={"TEST_DIR": "/tests"},
            parser=table.parser_name,
        ),
        solution=Solution(source=directory / "solution.sh", script="solution.sh")
        if (directory / "solution.sh").is_file()
        else None,
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
        metadata=metadata,
        notes=(*notes, *told, *_notes(table, directory)),
    )


def _environment(directory: Path) -> tuple[Environment, tuple[str, ...]]:
    found = Environment(
        context=directory,
        withheld=(*FILES, TESTS_SCRIPT, "tests", "solution.sh", "solution.yaml"),
        dockerfile=first_file(directory, "Dockerfile"),
    )
    compose = first_file(directory, *COMPOSE_FILES)
    found, told = composed(found, compose, MAIN_SERVICE) if compose else (found, ())
    if found.dockerfile is None and found.docker_image is None:
        raise SpecError([Problem("Dockerfile", "is needed", "add what the task's image is built from")], directory)
    return found, (*told, *entry_notes(found))


def _notes(table: YamlTable, directory: Path) -> Iterator[str]:
    if (directory / "solution.yaml").is_file() and not (directory / "solution.sh").is_file():
        yield "solution.yaml (keystrokes) is not run: write solution.sh to prove that the task can be solved"
    if table.run_tests_in_same_shell:
        yield f"{FILES[0]}: run_tests_in_same_shell: tests have a shell of their own, without what the agent set in its"
