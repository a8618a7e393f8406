"""The tables of Harbor's `task.toml`, up to schema 1.4, and how task files are read and validated.

A prepared task's `tb_meta.json` may have the tables `environment`, `agent` and `verifier` too. Unknown keys become
notes of the task and are not errors: tasks are written for newer runners than this one.
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

T = TypeVar("T", bound=BaseModel)
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
HostPath = Literal["/usr/local", "/usr/src"]
"""See `BoxSpec.host_paths`."""
NetworkMode = Literal["public", "no-network", "allowlist"]
VerifierMode = Literal["shared", "separate"]
Isolation = Literal["none", "launcher"]
MODULE = r"^[^\W\d]\w*(\.[^\W\d]\w*)*$"
"""The name of a Python module."""
"""`launcher`: the work is called in a sandbox of its own; `none`: tests call or import it themselves."""
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
User = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]
"""A user name, or a numeric user id, which YAML and TOML authors write without quotes."""
MemoryMb = Annotated[int, BeforeValidator(lambda value: parse_size(value) // 2**20), Field(ge=1)]
Variables = dict[str, Annotated[str, Field(coerce_numbers_to_str=True)]]
"""Variables in a sandbox; `TIMEOUT_SEC = 900` means the same as `"900"`."""


class TaskFileTable(BaseModel):
    """A table of a task file. It may hold keys that we do not know: tasks are written for newer runners too."""

    model_config = ConfigDict(extra="allow")


class Healthcheck(TaskFileTable):
    """A command that must succeed before an agent starts. Same keys and defaults as in Harbor's `task.toml`."""

    model_config = ConfigDict(frozen=True)
    command: str
    interval_sec: Annotated[float, Field(ge=0)] = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, Field(ge=0)] = 0.0
    """Failures in this time do not count as retries."""
    start_interval_sec: Annotated[float, Field(ge=0)] = 5.0
    retries: Annotated[int, Field(ge=1)] = 3


class Collect(TaskFileTable):
    """A command that runs in the agent's sandbox after the agent stopped, before artifacts are copied."""

    model_config = ConfigDict(frozen=True)
    command: str
    service: str | None = None
    timeout_sec: Seconds = 60.0
    user: User | None = None


class Artifact(TaskFileTable):
    """A file or directory of the sandbox that is kept, and that a separate verifier finds at the same path."""

    model_config = ConfigDict(frozen=True)
    source: str
    destination: str | None = None
    """Below the artifacts' directory; `source` if not set."""
    exclude: tuple[str, ...] = ()
    service: str | None = None

    @field_validator("destination")
    @classmethod
    def stays_among_artifacts(cls, destination: str | None) -> str | None:
        """Reject a destination outside the run's artifacts directory: the task is not trusted with our disk."""
        if destination and (destination.startswith("/") or ".." in destination.split("/")):
            raise ValueError("must be a path below the artifacts' directory, without ..")
        return destination


Artifacts = list[
    Annotated[Artifact, BeforeValidator(lambda value: {"source": value} if isinstance(value, str) else value)]
]
"""A path alone is an artifact with this source."""


class Rubric(TaskFileTable):
    """One thing that a prepared task is scored by: by the scripts that name it, and by the judge.

    An entry of `evaluation.rubrics`. Weights need not sum to 1.
    """

    model_config = ConfigDict(frozen=True)
    id: Annotated[str, Field(min_length=1)]
    criterion: str = ""
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    evaluation_criteria: tuple[str, ...] = ()


class Honeypot(TaskFileTable):
    """A check that succeeds only if the agent did what it must not do. An entry of `honeypots`."""

    model_config = ConfigDict(frozen=True)
    id: Annotated[str, Field(min_length=1)]
    command: Annotated[str, Field(min_length=1)]
    """Run by `sh` in the workdir, with what the agent left. Exit code 0 means that it was found out."""
    criterion: str = ""


class HoneypotsTable(TaskFileTable):
    """`honeypots` of `[metadata]` in `task.toml`, and of `evaluation` in `tb_meta.json`."""

    honeypots: tuple[Honeypot, ...] = ()

    @field_validator("honeypots")
    @classmethod
    def each_once(cls, honeypots: tuple[Honeypot, ...]) -> tuple[Honeypot, ...]:
        names = [honeypot.id for honeypot in honeypots]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"there are two honeypots {repeated[0]!r}")
        return honeypots


class ModelEndpoint(BaseModel):
    """`openai` of an overrides file: the model endpoint that a task is run with."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    base_url: str | None = None
    api_key: Annotated[str | None, Field(repr=False)] = None
    model: str | None = None
    provider: str | None = None


class NetworkTable(TaskFileTable):
    """The keys about a network, which environment, agent and verifier share."""

    network_mode: NetworkMode | None = None
    allowed_hosts: list[str] = []

    @model_validator(mode="after")
    def hosts_only_where_they_count(self) -> NetworkTable:
        if self.allowed_hosts and self.network_mode not in (None, "allowlist"):
            raise ValueError('allowed_hosts needs network_mode = "allowlist"')
        return self


class ServerTable(TaskFileTable):
    """An MCP server of `environment.mcp_servers`. Validated and noted; agents do not get it."""

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
    """`environment`, of the task or of a separate verifier: an image and the size of its sandbox."""

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
    healthcheck: Healthcheck | None = None
    # Keys of older schemas: "2G" before memory_mb and storage_mb, allow_internet before network_mode.
    memory: MemoryMb | None = None
    storage: MemoryMb | None = None
    allow_internet: bool | None = None


class AgentTable(NetworkTable):
    timeout_sec: Seconds | None = None
    user: User | None = None


class VerifierTable(NetworkTable):
    """`verifier`, of the task or of a step. One with an `environment` is a separate verifier."""

    timeout_sec: Seconds | None = None
    env: dict[str, str] = {}
    user: User | None = None
    environment_mode: VerifierMode | None = None
    isolation: Isolation | None = None
    modules: list[Annotated[str, Field(pattern=MODULE)]] = []
    environment: EnvironmentTable | None = None
    collect: list[Collect] = []

    @model_validator(mode="after")
    def one_kind(self) -> VerifierTable:
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError('environment is for environment_mode = "separate"; remove one of them')
        if self.modules and self.isolation != "launcher":
            raise ValueError('modules are imported through a launcher; add isolation = "launcher"')
        return self


class SolutionTable(TaskFileTable):
    env: dict[str, str] = {}


class StepTable(TaskFileTable):
    """An entry of `steps`. Its files are in `steps/<name>/`."""

    # The name is a directory below steps/, so it must not be a path, `.` or `..`.
    name: Annotated[str, Field(min_length=1, pattern=r"^[^/\\]*[^/\\.][^/\\]*$")]
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: Artifacts = []


class AuthorTable(TaskFileTable):
    name: str
    email: str | None = None


class PackageTable(TaskFileTable):
    name: Annotated[str, Field(min_length=1)]
    version: str | None = None
    description: str = ""
    authors: list[AuthorTable] = []
    keywords: list[str] = []


class TaskTable(TaskFileTable):
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
        """Escape dollar signs in values that are not entirely `${VAR}`: Harbor expands only whole values."""
        # `$$` is how our own expansion writes a dollar sign (bakeoff.spec.formats).
        verifiers = [self.verifier, *(step.verifier for step in self.steps)]
        tables = [self.environment, self.solution, *verifiers, *(table.environment for table in verifiers)]
        for table in tables:
            if table is not None:
                texts = {name: text for name, text in table.env.items() if not VARIABLE.fullmatch(text)}
                table.env = {**table.env, **{name: text.replace("$", "$$") for name, text in texts.items()}}
        return self

    @field_validator("steps")
    @classmethod
    def each_once(cls, steps: list[StepTable]) -> list[StepTable]:
        names = [step.name for step in steps]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"there are two steps {repeated[0]!r}")
        return steps


def text_of(file: Path) -> str:
    """The content of a text file. SpecError if it is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise SpecError([Problem("", "not UTF-8 text", "save it as UTF-8")], file) from error


def read_tree(file: Path) -> dict[str, Any]:
    """The content of a TOML, YAML or JSON file whose top level is a table. SpecError with the line otherwise."""
    try:
        tree = formats.read(text_of(file), file.suffix)
    except formats.NotReadable as error:
        raise SpecError([Problem("", str(error), "correct the syntax", error.line)], file) from error
    if not isinstance(tree, dict):
        raise SpecError([Problem("", "must be a table of keys", 'write it as {"key": ...}')], file)
    return tree


def validated(model: type[T], tree: dict[str, Any], file: Path) -> tuple[T, tuple[str, ...]]:
    """`tree`, the content of `file`, as `model`; and a note for every key that no model knows.

    Raises SpecError with the line of every wrong key.
    """
    try:
        table = model.model_validate(tree)
    except ValidationError as error:
        # pydantic names the key, and the file is searched for the line that has it.
        text = file.read_text(encoding="utf-8")
        located = [
            Problem(
                problem.key, problem.message, problem.fix, find_line(text, file.suffix, tuple(problem.key.split(".")))
            )
            for problem in problems(error, model, given=tree)
        ]
        raise SpecError(located, file) from error
    return table, tuple(f"{file.name}: {key}: unknown key, not used" for key in unknown_keys(table))


def unknown_keys(table: BaseModel, prefix: str = "") -> Iterator[str]:
    """Dotted names of the keys in `table`, and in tables and lists of tables below it, that its model lacks."""
    for name in table.model_extra or {}:
        yield f"{prefix}{name}"
    for name in type(table).model_fields:
        value = getattr(table, name)
        for number, entry in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(entry, BaseModel):
                place = f"{prefix}{name}.{number}." if isinstance(value, list) else f"{prefix}{name}."
                yield from unknown_keys(entry, place)


def first_file(folder: Path | None, *names: str) -> Path | None:
    """The first of `names` that is a file in `folder`."""
    if folder is None:
        return None
    return next((folder / name for name in names if (folder / name).is_file()), None)
