"""A task, whichever format it was written in: what the agent is told, where it starts, and how its work is verified.

Nothing here is ever written back. Overrides make another Task (`overrides.py`); the directory stays as it is.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

Format = Literal["prepared", "harbor", "terminal-bench"]
NetworkMode = Literal["public", "no-network", "allowlist"]
VerifierMode = Literal["shared", "separate"]

APP = "/app"
"""Where a prepared task's `overlay_files` go."""
REPOSITORY = "/app/repo"
"""Where a prepared task's repository lies in the box."""
VERIFIER_SECONDS = 600.0
"""How long tests may take where a task does not say: Harbor's default."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that a task brings along: from its directory (`source`) or written out in one of its files (`content`)."""

    target: str
    """An absolute path in the box."""
    source: Path | None = None
    content: bytes | None = None
    executable: bool = False

    def read(self) -> bytes:
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
    """The agent works here; empty is the repository's top."""
    sparse: tuple[str, ...] = ()
    """Only these paths are checked out; all when empty."""


@dataclass(frozen=True, slots=True)
class Network:
    """What the task asks for. A box without network refuses more than the model proxy whatever stands here."""

    mode: NetworkMode = "public"
    allowed_hosts: tuple[str, ...] = ()
    said: bool = field(default=False, compare=False)
    """Whether the task says so itself; where nothing is said, `public` is Harbor's default."""


@dataclass(frozen=True, slots=True)
class Healthcheck:
    command: str
    interval: float = 5.0
    timeout: float = 30.0
    start_period: float = 0.0
    start_interval: float = 5.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine that a task wants: an image, or what one is built from, and its size."""

    docker_image: str | None = None
    context: Path | None = None
    """The directory that the image is built from; None for a prepared task."""
    withheld: tuple[str, ...] = ()
    """Names in `context` that no image may contain: where tests and solution lie beside the Dockerfile."""
    dockerfile: Path | None = None
    build_args: Mapping[str, str] = field(default_factory=dict)
    compose: Path | None = None
    services: tuple[str, ...] = ()
    """Services that the compose file runs beside the main one. No box stands for them."""
    host_base: bool = False
    """Where the image that the Dockerfile starts from is not at hand, this machine's own programs will do."""
    workdir: str | None = None
    """None is the image's own."""
    env: Mapping[str, str] = field(default_factory=dict)
    """`${VAR}` and `${VAR:-default}` are kept by name; `resolved_env` fills them in."""
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int = 0
    network: Network = Network()
    healthcheck: Healthcheck | None = None
    os: Literal["linux", "windows"] = "linux"
    skills_dir: str | None = None
    mcp_servers: tuple[Mapping[str, Any], ...] = ()

    @property
    def uploads(self) -> bool:
        """Whether the files of `context` go into the workdir as they are: an image by name and nothing to build."""
        return self.docker_image is not None and self.dockerfile is None and self.compose is None


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file or directory of the box that is kept, and that a separate verifier gets at the same place."""

    source: str
    destination: str | None = None
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Collect:
    """A command that runs in the agent's box after it stopped, before artifacts are taken."""

    command: str
    timeout: float = 60.0
    user: str | None = None


@dataclass(frozen=True, slots=True)
class AgentSettings:
    timeout: float | None = None
    """Seconds; None is no limit of the task's own."""
    user: str | None = None
    network: Network | None = None
    """None is the environment's."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """How a step is verified. `tests` are Harbor's directories; a prepared task's scripts stand in the Task."""

    tests: tuple[Path, ...] = ()
    """Files and directories whose content goes to /tests; where two have the same file, the later one counts."""
    script: str = "test.sh"
    """The file in /tests that is run."""
    mode: VerifierMode = "shared"
    timeout: float = VERIFIER_SECONDS
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    network: Network | None = None
    environment: Environment | None = None
    """A separate verifier's own."""
    collect: tuple[Collect, ...] = ()
    tests_in_image: bool = False
    """A separate verifier's image brings /tests along."""
    parser: str | None = None
    """terminal-bench: whose results the script prints (`parsers.py`); there is no reward file then."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The reference: a diff against the start state (prepared), or what goes to /solution (Harbor)."""

    diff: bytes | None = None
    source: Path | None = None
    """A directory, or one file, with `script` in it."""
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
    """Files that go into the workdir before this step; `setup.sh` among them is run there."""
    min_reward: Mapping[str, float] = field(default_factory=dict)
    """Rewards below these end a task with several steps here."""
    healthcheck: Healthcheck | None = None
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class Rubric:
    id: str
    criterion: str
    weight: float
    evaluation_criteria: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """A hidden file of a prepared task. With a rubric it is run; without one it only lies there for others."""

    path: str
    """From the repository's top."""
    content: str
    rubric_id: str | None = None

    @property
    def by_pytest(self) -> bool:
        """Python is; anything else is a program that passes by its exit code."""
        return self.path.endswith(".py")


@dataclass(frozen=True, slots=True)
class ModelOverride:
    """What an overrides file says about the model endpoint."""

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    id: str
    format: Format
    directory: Path
    """Where it was read from; never written to."""
    digest: str
    """Of its content, and of the overrides that were applied."""
    title: str
    environment: Environment
    steps: tuple[Step, ...]
    repository: Repository | None = None
    """Prepared tasks only: a Harbor task starts from its image."""
    overlays: tuple[File, ...] = ()
    """Put into the box before the agent starts; those below REPOSITORY are part of the start state."""
    removals: tuple[str, ...] = ()
    """Paths and globs that are taken out of the repository before the agent starts."""
    rubrics: tuple[Rubric, ...] = ()
    scripts: tuple[Script, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    multi_step_reward: Literal["mean", "final"] = "mean"
    tags: tuple[str, ...] = ()
    description: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    model: ModelOverride | None = None
    network_granted: bool = False
    """Whether boxes of this task get the network that it asks for; by default they get none."""
    sensitivity: str = "unknown"
    notes: tuple[str, ...] = ()
    """What a reader should know: unknown keys, files that are kept from the agent, commits that move."""

    @property
    def instruction(self) -> str:
        """The first step's, which is the only one of most tasks."""
        return self.steps[0].instruction

    @property
    def agent(self) -> AgentSettings:
        return self.steps[0].agent

    @property
    def verifier(self) -> Verifier:
        return self.steps[0].verifier

    @property
    def solution(self) -> Solution | None:
        return self.steps[0].solution

    @property
    def workdir(self) -> str | None:
        """Where the agent works; None is the image's own directory."""
        if self.repository is None:
            return self.environment.workdir
        return posixpath.normpath(posixpath.join(REPOSITORY, self.repository.subdir))

    @property
    def untested(self) -> tuple[Rubric, ...]:
        """Rubrics that no script speaks for."""
        tested = {script.rubric_id for script in self.scripts}
        return tuple(rubric for rubric in self.rubrics if rubric.id not in tested)

    @property
    def scored_by_tests(self) -> bool:
        """Whether tests alone give a score: a Harbor task's always, a prepared one's where a tested rubric has a weight."""
        return self.format != "prepared" or any(one.weight for one in self.rubrics if one not in self.untested)

    def with_env(self, env: Mapping[str, str]) -> Task:
        """The same task with more variables in its box."""
        return replace(self, environment=replace(self.environment, env={**self.environment.env, **env}))

    def with_network(self) -> Task:
        """The same task in boxes with a network, unless it asks for none itself."""
        return replace(self, network_granted=True)


def resolved_env(env: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """`env` with `${VAR}` filled in from `variables`; MissingVariable where one is set nowhere."""
    from bakeoff.spec.variables import expand

    return {name: expand(value, variables) for name, value in env.items()}
