"""The tables of `task.toml`, up to schema 1.4. A prepared task may have `environment`, `agent` and `verifier` too.

Unknown keys are told and not refused: tasks are written for newer runners than this one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from bakeoff.errors import Problem, SpecError
from bakeoff.spec import formats
from bakeoff.spec.experiment import parse_size
from bakeoff.spec.problems import find_line, problems
from bakeoff.workloads.tasks.model import (
    AgentSettings,
    Artifact,
    Collect,
    Environment,
    Healthcheck,
    Network,
    NetworkMode,
    Verifier,
    VerifierMode,
)

Table = TypeVar("Table", bound=BaseModel)
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
MemoryMb = Annotated[int, BeforeValidator(lambda value: parse_size(value) // 2**20), Field(ge=1)]
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
User = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]


class Open(BaseModel):
    """A table that may hold more than we know."""

    model_config = ConfigDict(extra="allow")


class NetworkTable(Open):
    network_mode: NetworkMode | None = None
    allowed_hosts: list[str] = []

    @model_validator(mode="after")
    def hosts_only_where_they_count(self) -> NetworkTable:
        if self.allowed_hosts and self.network_mode not in (None, "allowlist"):
            raise ValueError('allowed_hosts needs network_mode = "allowlist"')
        return self

    def network(self) -> Network | None:
        if self.network_mode is None and not self.allowed_hosts:
            return None
        return Network(self.network_mode or "allowlist", tuple(self.allowed_hosts), said=True)


class HealthcheckTable(Open):
    command: str
    interval_sec: Annotated[float, Field(ge=0)] = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, Field(ge=0)] = 0.0
    start_interval_sec: Annotated[float, Field(ge=0)] = 5.0
    retries: Annotated[int, Field(ge=1)] = 3

    def healthcheck(self) -> Healthcheck:
        return Healthcheck(
            self.command,
            self.interval_sec,
            self.timeout_sec,
            self.start_period_sec,
            self.start_interval_sec,
            self.retries,
        )


class ServerTable(Open):
    name: str
    transport: Annotated[
        Literal["sse", "streamable-http", "stdio"],
        BeforeValidator(lambda value: "streamable-http" if value == "http" else value),
    ] = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def can_be_reached(self) -> ServerTable:
        needed = "command" if self.transport == "stdio" else "url"
        if not getattr(self, needed):
            raise ValueError(f"a server with transport {self.transport} needs {needed}")
        return self


class EnvironmentTable(NetworkTable):
    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: Annotated[
        Literal["linux", "windows"],
        BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value),
    ] = "linux"
    cpus: Annotated[float, Field(gt=0)] | None = None
    memory_mb: Annotated[int, Field(ge=1)] | None = None
    storage_mb: Annotated[int, Field(ge=1)] | None = None
    gpus: Annotated[int, Field(ge=0)] = 0
    gpu_types: list[str] | None = None
    tpu: dict[str, Any] | None = None
    env: dict[str, str] = {}
    workdir: str | None = None
    skills_dir: str | None = None
    mcp_servers: list[ServerTable] = []
    healthcheck: HealthcheckTable | None = None
    memory: MemoryMb | None = None  # "2G", as tasks wrote it before memory_mb
    storage: MemoryMb | None = None
    allow_internet: bool | None = None

    def environment(self, context: Path | None = None) -> Environment:
        """With `context`, the directory that an image is built from."""
        default = Network("no-network" if self.allow_internet is False else "public", said=self.allow_internet is True)
        return Environment(
            docker_image=self.docker_image,
            context=context,
            dockerfile=first_file(context, "Dockerfile"),
            workdir=self.workdir,
            env=self.env,
            cpus=self.cpus,
            memory_mb=self.memory_mb or self.memory,
            storage_mb=self.storage_mb or self.storage,
            gpus=self.gpus,
            network=self.network() or default,
            healthcheck=self.healthcheck.healthcheck() if self.healthcheck else None,
            os=self.os,
            skills_dir=self.skills_dir,
            mcp_servers=tuple(server.model_dump() for server in self.mcp_servers),
        )


class AgentTable(NetworkTable):
    timeout_sec: Seconds | None = None
    user: User | None = None

    def settings(self, fallback: AgentSettings = AgentSettings()) -> AgentSettings:  # noqa: B008 - frozen
        return AgentSettings(
            self.timeout_sec if self.timeout_sec is not None else fallback.timeout,
            self.user if self.user is not None else fallback.user,
            self.network() or fallback.network,
        )


class CollectTable(Open):
    command: str
    service: str | None = None
    timeout_sec: Seconds = 60.0
    user: User | None = None


class VerifierTable(NetworkTable):
    timeout_sec: Seconds | None = None
    env: dict[str, str] = {}
    user: User | None = None
    environment_mode: VerifierMode | None = None
    environment: EnvironmentTable | None = None
    collect: list[CollectTable] = []

    @model_validator(mode="after")
    def one_kind(self) -> VerifierTable:
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError('environment is for environment_mode = "separate"; take one of them out')
        return self

    def verifier(self, tests: tuple[Path, ...], fallback: Verifier = Verifier()) -> Verifier:  # noqa: B008 - frozen
        """`fallback` is what the whole task says, for a step that says less."""
        hooks = tuple(Collect(hook.command, hook.timeout_sec, hook.user) for hook in self.collect)
        return Verifier(
            tests=tests,
            mode=self.environment_mode or ("separate" if self.environment is not None else fallback.mode),
            timeout=self.timeout_sec or fallback.timeout,
            env={**fallback.env, **self.env},
            user=self.user if self.user is not None else fallback.user,
            network=self.network() or fallback.network,
            collect=(*fallback.collect, *hooks),
        )


class SolutionTable(Open):
    env: dict[str, str] = {}


class ArtifactTable(Open):
    source: str
    destination: str | None = None
    exclude: list[str] = []
    service: str | None = None

    @field_validator("destination")
    @classmethod
    def stays_among_artifacts(cls, given: str | None) -> str | None:
        if given and (given.startswith("/") or ".." in given.split("/")):
            raise ValueError("has to be a path from the artifacts' directory, without ..")
        return given


Artifacts = list[str | ArtifactTable]


def artifacts(given: Artifacts) -> tuple[Artifact, ...]:
    return tuple(
        Artifact(one) if isinstance(one, str) else Artifact(one.source, one.destination, tuple(one.exclude))
        for one in given
    )


class StepTable(Open):
    name: Annotated[str, Field(min_length=1, pattern=r"^[^/\\]*[^/\\.][^/\\]*$")]
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    min_reward: float | dict[str, float] | None = None
    healthcheck: HealthcheckTable | None = None
    artifacts: Artifacts = []

    def gate(self) -> dict[str, float]:
        if self.min_reward is None:
            return {}
        return self.min_reward if isinstance(self.min_reward, dict) else {"reward": self.min_reward}


class AuthorTable(Open):
    name: str
    email: str | None = None


class PackageTable(Open):
    name: Annotated[str, Field(min_length=1)]
    version: str | None = None
    description: str = ""
    authors: list[AuthorTable] = []
    keywords: list[str] = []


class TaskTable(Open):
    """The whole of `task.toml`."""

    schema_version: str | None = None
    version: str | None = None
    source: str | None = None
    artifacts: Artifacts = []
    multi_step_reward_strategy: Literal["mean", "final"] = "mean"
    task: PackageTable | None = None
    metadata: dict[str, Any] = {}
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    environment: EnvironmentTable = EnvironmentTable()
    solution: SolutionTable = SolutionTable()
    steps: list[StepTable] = []

    @model_validator(mode="after")
    def only_whole_values_are_filled_in(self) -> TaskTable:
        """In this format `${VAR}` is a variable where it is all of a value; a dollar sign in other text is only that."""
        verifiers = [self.verifier, *(step.verifier for step in self.steps)]
        tables = [self.environment, self.solution, *verifiers, *(one.environment for one in verifiers)]
        for table in tables:
            if table is not None:
                texts = {name: text for name, text in table.env.items() if not VARIABLE.fullmatch(text)}
                table.env = {**table.env, **{name: text.replace("$", "$$") for name, text in texts.items()}}
        return self

    @field_validator("steps")
    @classmethod
    def each_once(cls, steps: list[StepTable]) -> list[StepTable]:
        names = [step.name for step in steps]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the step {twice[0]!r} stands twice")
        return steps


def text_of(file: Path) -> str:
    """The content of a file that has to be text."""
    try:
        return file.read_text(encoding="utf-8-sig")  # some editors begin with a mark
    except UnicodeDecodeError as error:
        raise SpecError([Problem("", "not UTF-8 text", "save it as UTF-8")], file) from error


def read_tree(file: Path) -> dict[str, Any]:
    """The content of a TOML, YAML or JSON file that has to be a table."""
    try:
        tree = formats.read(text_of(file), file.suffix)
    except formats.NotReadable as error:
        raise SpecError([Problem("", str(error), "correct the syntax", error.line)], file) from error
    if not isinstance(tree, dict):
        raise SpecError([Problem("", "has to be a table of keys", 'write it as {"key": ...}')], file)
    return tree


def checked(model: type[Table], tree: dict[str, Any], file: Path) -> tuple[Table, tuple[str, ...]]:
    """`tree` as `model`, and a note for every key that nobody reads."""
    try:
        table = model.model_validate(tree)
    except ValidationError as error:
        text = file.read_text(encoding="utf-8")
        found = [
            Problem(one.key, one.message, one.fix, find_line(text, file.suffix, tuple(one.key.split("."))))
            for one in problems(error, model, given=tree)
        ]
        raise SpecError(found, file) from error
    return table, tuple(f"{file.name}: {key}: unknown key, not used" for key in unknown_keys(table))


def unknown_keys(table: BaseModel, prefix: str = "") -> Iterator[str]:
    """Dotted names of what was given and is in no model."""
    for name in table.model_extra or {}:
        yield f"{prefix}{name}"
    for name in type(table).model_fields:
        value = getattr(table, name)
        for number, one in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(one, BaseModel):
                place = f"{prefix}{name}.{number}." if isinstance(value, list) else f"{prefix}{name}."
                yield from unknown_keys(one, place)


def first_file(folder: Path | None, *names: str) -> Path | None:
    """The first of `names` that is there."""
    if folder is None:
        return None
    return next((folder / name for name in names if (folder / name).is_file()), None)
