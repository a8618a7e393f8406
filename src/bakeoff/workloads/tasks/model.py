"""A task, whichever format it was written in: what the agent is asked, where it starts, how its work is verified.

`loading.load_task` makes a `Task` from a directory. Nothing here is ever written back: overrides and granted networks
make another `Task` (`dataclasses.replace`), and the directory stays as it is.

Everything is a frozen dataclass that the readers (`prepared.py`, `harbor.py`) fill in, except tables that need no
translation (`Healthcheck`, `Collect`, `Artifact`, `Rubric` and `ModelEndpoint` in `schema.py`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bakeoff.workloads.tasks.schema import (
    AgentTable,
    Artifact,
    Collect,
    EnvironmentTable,
    Healthcheck,
    Honeypot,
    Isolation,
    ModelEndpoint,
    NetworkMode,
    NetworkTable,
    Rubric,
    VerifierMode,
    VerifierTable,
    first_file,
)

Format = Literal["prepared", "harbor", "terminal-bench"]
APP = "/app"
"""Where a prepared task's `overlay_files` go in the sandbox."""
REPOSITORY = "/app/repo"
"""Where a prepared task's repository is in the sandbox."""
VERIFIER_SECONDS = 600.0
"""Time limit for tests when a task sets none: Harbor's default."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that a task brings along: from its directory (`source`) or written out in one of its files (`content`)."""

    target: str
    """An absolute path in the sandbox."""
    source: Path | None = None
    content: bytes | None = None
    executable: bool = False

    def read(self) -> bytes:
        """Its content."""
        if self.content is not None:
            return self.content
        assert self.source is not None
        return self.source.read_bytes()


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository under test. `commit` is any commit, or a name that git resolves."""

    url: str
    """A git URL, or an absolute path of a repository, a bundle or a plain directory of files."""
    commit: str = "HEAD"
    branch: str = "main"
    subdir: str = ""
    """Where the agent works; empty is the repository's top."""
    sparse: tuple[str, ...] = ()
    """Only these paths are checked out; all if empty."""


HostPhase = Literal["agent", "verify"]


@dataclass(frozen=True, slots=True)
class Network:
    """The network that a task asks for. A sandbox gets one only if the user grants it (`Task.network_granted`)."""

    mode: NetworkMode = "public"
    allowed_hosts: tuple[str, ...] = ()
    explicit: bool = field(default=False, compare=False)
    """Whether the task file says so; `public` is also Harbor's default."""

    @classmethod
    def of(cls, table: NetworkTable) -> Network | None:
        """None if the table does not mention a network."""
        if table.network_mode is None and not table.allowed_hosts:
            return None
        return cls(table.network_mode or "allowlist", tuple(table.allowed_hosts), explicit=True)


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine that a task wants: an image, or what one is built from, and its size."""

    docker_image: str | None = None
    context: Path | None = None
    """The directory that the image is built from; None for a prepared task."""
    withheld: tuple[str, ...] = ()
    """Names in `context` that no image may contain, because tests and solution are beside the Dockerfile."""
    dockerfile: Path | None = None
    build_args: Mapping[str, str] = field(default_factory=dict)
    compose: Path | None = None
    services: tuple[str, ...] = ()
    """Services that the compose file runs beside the main one. No sandbox provides them."""
    host_base: bool = False
    """This machine's own programs may replace a base image that is not in the store."""
    workdir: str | None = None
    """None is the image's own."""
    env: Mapping[str, str] = field(default_factory=dict)
    """`${VAR}` and `${VAR:-default}` stay as written here; `environment.filled_in` expands them."""
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    network: Network = Network()
    build_hosts: tuple[str, ...] | None = None
    """Hosts that building the image may reach; None for all."""
    healthcheck: Healthcheck | None = None
    os: Literal["linux", "windows"] = "linux"

    @classmethod
    def of(cls, table: EnvironmentTable, context: Path | None = None) -> Environment:
        """The environment of a table; `context` is the directory that its image is built from."""
        allowed = table.allow_internet
        default = Network("no-network" if allowed is False else "public", explicit=allowed is True)
        return cls(
            docker_image=table.docker_image,
            context=context,
            dockerfile=first_file(context, "Dockerfile"),
            workdir=table.workdir,
            env=table.env,
            cpus=table.cpus,
            memory_mb=table.memory_mb or table.memory,
            storage_mb=table.storage_mb or table.storage,
            network=Network.of(table) or default,
            healthcheck=table.healthcheck,
            os=table.os,
        )

    @property
    def uploads(self) -> bool:
        """Whether the files of `context` are copied into the workdir: an image by name, and nothing to build."""
        return self.docker_image is not None and self.dockerfile is None and self.compose is None


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How the agent of a step is run."""

    timeout: float | None = None
    """Seconds; None if the task sets no limit."""
    user: str | None = None
    network: Network | None = None
    """None is the environment's."""

    @classmethod
    def of(cls, table: AgentTable, task: AgentSettings | None = None) -> AgentSettings:
        """The settings of a table. `task` are those of the whole task, for keys that a step does not set."""
        fallback = task or cls()
        return cls(
            table.timeout_sec if table.timeout_sec is not None else fallback.timeout,
            table.user if table.user is not None else fallback.user,
            Network.of(table) or fallback.network,
        )


@dataclass(frozen=True, slots=True)
class Verifier:
    """How a step is verified. `tests` are Harbor's directories; a prepared task's scripts are in `Task.scripts`."""

    tests: tuple[Path, ...] = ()
    """Files and directories whose content goes to /tests; later ones replace files of earlier ones."""
    script: str = "test.sh"
    """The file in /tests that is run."""
    mode: VerifierMode = "shared"
    timeout: float = VERIFIER_SECONDS
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    network: Network | None = None
    environment: Environment | None = None
    """A separate verifier's environment."""
    collect: tuple[Collect, ...] = ()
    tests_in_image: bool = False
    """A separate verifier's image contains /tests."""
    isolation: Isolation = "none"
    """Whether the work runs in a sandbox of its own while it is tested (`launcher.py`)."""
    modules: tuple[str, ...] = ()
    """With a launcher: modules of the work that tests import, through a process of the work (`imported_work.py`)."""
    parser: str | None = None
    """terminal-bench: which tool's summary the script prints (`results.printed_reward`) instead of a reward file."""

    @classmethod
    def of(cls, table: VerifierTable, tests: tuple[Path, ...] = (), task: Verifier | None = None) -> Verifier:
        """The verifier of a table. `task` is that of the whole task, for keys that a step does not set."""
        fallback = task or cls()
        return cls(
            tests=tests,
            mode=table.environment_mode or ("separate" if table.environment is not None else fallback.mode),
            timeout=table.timeout_sec or fallback.timeout,
            env={**fallback.env, **table.env},
            user=table.user if table.user is not None else fallback.user,
            network=Network.of(table) or fallback.network,
            collect=(*fallback.collect, *table.collect),
            isolation=table.isolation or fallback.isolation,
            modules=tuple(table.modules) or fallback.modules,
        )


@dataclass(frozen=True, slots=True)
class Solution:
    """The reference solution: a diff against the start state (prepared), or files for /solution (Harbor)."""

    diff: bytes | None = None
    source: Path | None = None
    """A directory, or one file, that contains `script`."""
    script: str = "solve.sh"
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction and its verification. Prepared and plain Harbor tasks have exactly one."""

    name: str
    instruction: str
    agent: AgentSettings = AgentSettings()
    verifier: Verifier = Verifier()
    solution: Solution | None = None
    workdir: Path | None = None
    """Files that go into the workdir before this step; a `setup.sh` among them is run there."""
    min_reward: Mapping[str, float] = field(default_factory=dict)
    """A task with several steps ends here if a reward is below its minimum."""
    healthcheck: Healthcheck | None = None
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """A hidden file of a prepared task. It is run if it has a rubric; otherwise other scripts import or read it."""

    path: str
    """From the repository's top."""
    content: str
    rubric_id: str | None = None

    @property
    def by_pytest(self) -> bool:
        """pytest runs Python files; any other file is a program that passes by its exit code."""
        return self.path.endswith(".py")


@dataclass(frozen=True, slots=True)
class Task:
    """A task as agents, verifiers and reports see it."""

    id: str
    format: Format
    directory: Path
    """Where it was read from. Never written to."""
    digest: str
    """Of its content, and of the overrides that were applied."""
    title: str
    environment: Environment
    steps: tuple[Step, ...]
    repository: Repository | None = None
    """Prepared tasks only: a Harbor task starts from its image."""
    overlays: tuple[File, ...] = ()
    """Written into the sandbox before the agent starts; those below REPOSITORY are part of the start state."""
    removals: tuple[str, ...] = ()
    """Paths and globs that are removed from the repository before the agent starts."""
    rubrics: tuple[Rubric, ...] = ()
    scripts: tuple[Script, ...] = ()
    honeypots: tuple[Honeypot, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    multi_step_reward: Literal["mean", "final"] = "mean"
    tags: tuple[str, ...] = ()
    model: ModelEndpoint | None = None
    network_granted: bool = False
    """Whether sandboxes of this task get the network that the task asks for; by default they get none."""
    hosts: Mapping[HostPhase, tuple[str, ...]] | None = None
    """Hosts that the user lets each phase reach, in place of a network."""
    egress: tuple[int, Path] | None = None
    """The port in its sandboxes, and the socket, of the proxy to those hosts (`network.opened`)."""
    host_paths: tuple[str, ...] = ()
    """`BoxSpec.host_paths` of its sandboxes."""
    runtime: str | None = None
    """`BoxSpec.runtime` of its sandboxes."""
    notes: tuple[str, ...] = ()
    """What the user should know: unknown keys, files that agents do not see, commits that move."""

    @property
    def first(self) -> Step:
        """The first step, which is the only one of most tasks."""
        return self.steps[0]

    @property
    def workdir(self) -> str | None:
        """Where the agent works; None is the image's own directory."""
        if self.repository is None:
            return self.environment.workdir
        return posixpath.normpath(posixpath.join(REPOSITORY, self.repository.subdir))

    @property
    def untested(self) -> tuple[Rubric, ...]:
        """Rubrics without a test script. Only a judge can score them."""
        tested = {script.rubric_id for script in self.scripts}
        return tuple(rubric for rubric in self.rubrics if rubric.id not in tested)

    @property
    def scored_by_tests(self) -> bool:
        """Whether tests alone give a score: always for a Harbor task, otherwise if a tested rubric has a weight."""
        return self.format != "prepared" or any(rubric.weight for rubric in self.rubrics if rubric not in self.untested)

    @property
    def isolated(self) -> bool:
        """Whether no test ever shares a sandbox with the work that it scores (`launcher.py`)."""
        return all(step.verifier.isolation == "launcher" for step in self.steps)

    def with_env(self, env: Mapping[str, str]) -> Task:
        """The same task with more variables in its sandboxes."""
        return replace(self, environment=replace(self.environment, env={**self.environment.env, **env}))

    def with_network(self) -> Task:
        """The same task with a network in its sandboxes, unless it asks for none itself."""
        return replace(self, network_granted=True)
