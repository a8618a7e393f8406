"""Reads terminal-bench task directories: `task.yaml`, `run-tests.sh`, `tests/`, `solution.sh` and a Dockerfile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from bakeoff.errors import Problem, SpecError
from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.harbor import without_canary
from bakeoff.workloads.tasks.model import AgentSettings, Environment, Solution, Step, Task, Verifier
from bakeoff.workloads.tasks.schema import Open, Seconds, checked, read_tree

FILES = ("task.yaml", "task.yml")
TESTS_SCRIPT = "run-tests.sh"
IN_METADATA = ("difficulty", "category", "author_name", "author_email", "estimated_duration_sec",
               "expert_time_estimate_min", "junior_time_estimate_min")  # fmt: skip


class YamlTable(Open):
    instruction: Annotated[str, Field(min_length=1)]
    author_name: str | None = None
    author_email: str | None = None
    difficulty: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    parser_name: str = "pytest"
    max_agent_timeout_sec: Seconds = 360.0
    max_test_timeout_sec: Seconds = 60.0
    run_tests_in_same_shell: bool = False
    disable_asciinema: bool = False
    estimated_duration_sec: float | None = None
    expert_time_estimate_min: float | None = None
    junior_time_estimate_min: float | None = None


def read(directory: Path, file: Path) -> Task:
    table, notes = checked(YamlTable, read_tree(file), file)
    script = directory / TESTS_SCRIPT
    if not script.is_file():
        raise SpecError([Problem(TESTS_SCRIPT, "is needed", "add the script that runs tests/")], directory)
    dockerfile, compose = directory / "Dockerfile", directory / "docker-compose.yaml"
    if not dockerfile.is_file() and not compose.is_file():
        raise SpecError([Problem("Dockerfile", "is needed", "add what the task's image is built from")], directory)
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
            by_exit_code=True,
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
        environment=Environment(
            context=directory,
            withheld=(*FILES, TESTS_SCRIPT, "tests", "solution.sh", "solution.yaml"),
            dockerfile=dockerfile if dockerfile.is_file() else None,
            compose=compose if compose.is_file() else None,
        ),
        steps=(step,),
        tags=tuple(table.tags),
        metadata=metadata,
        notes=(*notes, *_notes(directory)),
    )


def _notes(directory: Path) -> list[str]:
    if (directory / "solution.yaml").is_file() and not (directory / "solution.sh").is_file():
        return ["solution.yaml (keystrokes) is not run: write solution.sh to prove that the task can be solved"]
    return []
