"""A task's environment: from a compose file or Dockerfile to an image, and from there to the spec of a sandbox.

    built = built_for(task.environment, sandbox)
    with sandbox.open(box_spec(task, built.image)) as box: ...

One sandbox stands for a compose file's main service. What it cannot provide becomes a note of the task (`composed`,
`entry_notes`), or a refusal if the task makes no sense without it (`refused`).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import BakeoffError, InfraError, Problem, SpecError, UsageError
from bakeoff.sandbox.base import Box, BoxSpec, Image, Limits, Mount, Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.spec.formats import MissingVariable, expand
from bakeoff.spec.formats import variables as host_variables
from bakeoff.spec.identity import slug
from bakeoff.workloads.tasks.model import REPOSITORY, Environment, Task
from bakeoff.workloads.tasks.proxy import egress
from bakeoff.workloads.tasks.schema import read_tree

if TYPE_CHECKING:
    from bakeoff.sandbox.bubblewrap import BubblewrapBox

COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
PIDS = 1024
"""Processes in a sandbox: enough for test suites that start workers, too few for a fork bomb."""
EGRESS_PORT = 4001
"""Where the proxy to listed hosts is in a sandbox."""
MEMORY_MB, STORAGE_MB = 8192, 10240
"""Limits of a task that sets none: plenty for the task, and no machine is filled by an agent."""

NOT_STARTED = (126, 127)
"""Exit codes of a command that could not be executed or was not found, as in a shell."""

_READ = frozenset({"build", "image", "environment", "working_dir"})
# Keys about other containers, or about keeping this one alive: nothing to apply and nothing to note.
_HARMLESS = frozenset({"container_name", "hostname", "platform", "tty", "stdin_open", "init", "restart", "pull_policy", "labels",
                       "expose", "ports", "networks", "depends_on", "logging", "stop_grace_period"})  # fmt: skip
# Variables by which Harbor and terminal-bench pass their own names and paths to a compose file.
_OF_THE_RUNNER = re.compile(r"\$\{?(T_BENCH_|HOST_|ENV_|MAIN_|PREBUILT_|CONTEXT_DIR|TEST_DIR|CPUS|MEMORY)")
_SLEEPS = re.compile(r"sleep\s+infinity|tail\s+-f\s+/dev/null|^(/bin/)?(ba)?sh$")
_ENTRYPOINT = re.compile(r"^[ \t]*ENTRYPOINT[ \t]+(?!\[[ \t]*\])", re.MULTILINE | re.IGNORECASE)
_FROM = re.compile(r"^(\s*FROM\s+)(\S+)", re.IGNORECASE | re.MULTILINE)
# Backends whose images are in our own store, which knows this machine's programs by the name `host`.
_ON_THIS_MACHINE = frozenset({"bubblewrap", "none"})
_WORKDIRS: dict[tuple[str, Image], str] = {}


def composed(environment: Environment, file: Path, main: str) -> tuple[Environment, tuple[str, ...]]:
    """`environment` with what the service `main` of the compose file says, and notes on what is not applied.

    The image is built from the service's `build`, else from the Dockerfile beside the file, else it is its `image`.
    Raises SpecError for a file that is not a compose file or whose Dockerfile does not exist.
    """
    services = read_tree(file).get("services")
    if not isinstance(services, dict) or not all(isinstance(service, dict) for service in services.values()):
        raise SpecError([Problem("services", "must be a table of services", "write it as compose does")], file)
    service: dict[str, Any] = services.get(main, {})
    others = tuple(name for name in services if name != main)
    build = service.get("build")
    table = {"context": build} if isinstance(build, str) else build if isinstance(build, dict) else {}
    image = service.get("image")
    result = replace(environment, compose=file, services=others)
    if table:
        context = str(table.get("context") or ".")
        folder = file.parent if _OF_THE_RUNNER.search(context) else (file.parent / context).resolve()
        dockerfile = folder / str(table.get("dockerfile") or "Dockerfile")
        if not dockerfile.is_file():
            raise SpecError([Problem("services.build", f"{dockerfile} does not exist", "correct its context")], file)
        result = replace(result, context=folder, dockerfile=dockerfile, build_args=dict(_variables(table.get("args"))))
    elif image and environment.dockerfile is None and not _OF_THE_RUNNER.search(str(image)):
        result = replace(result, docker_image=environment.docker_image or str(image))
    # Variables of the service win over those of task.toml.
    env = {**environment.env, **dict(_variables(service.get("environment")))}
    notes = [f"{file.name}: {main}: {note}" for note in _not_applied(service)]
    if others:
        notes.append(f"{file.name}: {_other_services(others)}")
    return replace(result, env=env, workdir=environment.workdir or service.get("working_dir")), tuple(notes)


def _variables(table: Any) -> Iterator[tuple[str, str]]:
    """Compose variables (`[A=1]` or `{A: 1}`) without those that a runner sets. `A` alone is this machine's `A`."""
    pairs = table.items() if isinstance(table, dict) else (str(entry).partition("=")[::2] for entry in table or ())
    for name, value in pairs:
        bare = value is None or (not isinstance(table, dict) and not value and f"{name}=" not in table)
        text = f"${{{name}:-}}" if bare else str(value).replace("$$", "$")
        if not _OF_THE_RUNNER.search(text):
            yield str(name), text


def _not_applied(service: Mapping[str, Any]) -> Iterator[str]:
    """A note for each key of a compose service that changes what runs and that a sandbox does not apply."""
    for name, value in service.items():
        if name in _READ | _HARMLESS:
            continue
        # A command that only keeps the container alive, and volumes and limits that a runner fills in, change nothing.
        words = " ".join(value) if isinstance(value, list) else str(value)
        if name in ("command", "entrypoint") and _SLEEPS.search(words):
            continue
        if name == "volumes" and all(_OF_THE_RUNNER.search(str(volume)) for volume in value or ()):
            continue
        if name == "deploy" and _OF_THE_RUNNER.search(str(value)):
            continue
        yield f"{name} is not applied to the sandbox"
    build = service.get("build")
    for name in sorted(set(build) - {"context", "dockerfile", "args"}) if isinstance(build, dict) else ():
        yield f"build.{name} is not applied"


def _other_services(names: Sequence[str]) -> str:
    return f"{', '.join(names)} would run beside the main service, and only one sandbox is run"


def entry_notes(environment: Environment) -> Iterator[str]:
    """A note if the image has an ENTRYPOINT: a sandbox runs commands, and nothing runs between them."""
    file = environment.dockerfile
    if file is not None and environment.docker_image is None and _ENTRYPOINT.search(file.read_text(errors="replace")):
        yield f"{file.name}: ENTRYPOINT: is not run"


def refused(environment: Environment) -> str:
    """Why no sandbox can be what the environment says; empty if one can."""
    if environment.os != "linux":
        return f"environment.os: {environment.os} sandboxes are not available, so the task cannot be run"
    if environment.services:
        return f"{environment.compose}: {_other_services(environment.services)}, so the task cannot be run"
    return ""


def replaces_image(environment: Environment, sandbox: Sandbox) -> str:
    """A note if the Dockerfile is built because the named image is not in the store; empty otherwise."""
    if environment.docker_image is None or environment.dockerfile is None or sandbox.name not in _ON_THIS_MACHINE:
        return ""
    if _in_store(environment.docker_image):
        return ""
    return f"image {environment.docker_image!r} is not in the store: {environment.dockerfile.name} is built instead"


def _in_store(image: str) -> bool:
    """Whether `bakeoff sandbox image add` or an earlier build has put the image into our store."""
    from bakeoff.sandbox import images

    try:
        images.find(image)
    except UsageError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Built:
    """An environment's image, ready to be opened."""

    image: Image
    workdir: str
    """The task's, or else the image's own."""


def built_for(environment: Environment, sandbox: Sandbox) -> Built:
    """The image of an environment: by name, from its Dockerfile, or this machine's programs if it names neither.

    Raises InfraError if the image cannot be built or found: that is not the agent's fault.
    """
    if reason := refused(environment):
        raise InfraError(reason)
    try:
        image = _image(environment, sandbox)
        if environment.workdir or image.kind == "host":
            return Built(image, environment.workdir or "/")
        # The image's own directory is read from a sandbox, so that it is the same for every backend; once is enough.
        key = (sandbox.name, image)
        if key not in _WORKDIRS:
            with sandbox.open(BoxSpec(image=image)) as box:
                _WORKDIRS[key] = box.run(["pwd"]).stdout.decode(errors="replace").strip() or "/"
        return Built(image, _WORKDIRS[key])
    except InfraError:
        raise
    except BakeoffError as error:
        raise InfraError(f"the task's image is not available: {error}") from error


def _image(environment: Environment, sandbox: Sandbox) -> Image:
    """The image by name, or built from the Dockerfile with the task's own changes to context and base applied.

    Tests and solution are left out of the context, and a base that is not in the store is replaced by `host`, if the
    environment says so. Both happen in a copy: nothing is written to the task.
    """
    if environment.docker_image is not None and not replaces_image(environment, sandbox):
        return Image.named(environment.docker_image)
    if environment.dockerfile is None:
        return Image.host()
    assert environment.context is not None
    with scratch("context") as here:
        context, file = environment.context, environment.dockerfile
        if environment.withheld:
            # Only at the top: a directory of the same name further down belongs to the image.
            def ignored(folder: str, names: list[str]) -> list[str]:
                return [name for name in names if Path(folder) == environment.context and name in environment.withheld]

            context = here / "context"
            shutil.copytree(environment.context, context, symlinks=True, ignore=ignored)
            file = context / file.relative_to(environment.context)
        if environment.host_base and sandbox.name in _ON_THIS_MACHINE:
            text = file.read_text(encoding="utf-8")
            base = _FROM.search(text)
            if base is not None and not _in_store(base[2]):
                text = f"{text[: base.start(2)]}host{text[base.end(2) :]}"
            file = here / "Dockerfile"
            file.write_text(text, encoding="utf-8")
        try:
            if environment.build_hosts is None:
                return sandbox.build(context, file, environment.build_args)
            return _built_through_proxy(context, file, environment, sandbox, here / "egress.sock")
        except BakeoffError as error:  # name the task's Dockerfile, which its author can change, not our copy
            message = str(error).replace(str(file), str(environment.dockerfile))
            raise InfraError(f"the task's image is not available: {message}") from error


def _built_through_proxy(context: Path, file: Path, environment: Environment, sandbox: Sandbox, way: Path) -> Image:
    """Build an image whose RUN lines reach only `environment.build_hosts`, through a proxy at the socket `way`."""
    if sandbox.name != "bubblewrap":
        raise UsageError(
            f"network.build: {sandbox.name} builds images with a network of its own\n"
            "  fix: leave `build` out, or build with bubblewrap"
        )
    from bakeoff.sandbox.bubblewrap import Bubblewrap
    from bakeoff.sandbox.build import build

    with egress.Egress(way) as proxy:
        proxy.enter("build", environment.build_hosts or ())

        def open_box(spec: BoxSpec) -> BubblewrapBox:
            env = {**egress.variables(EGRESS_PORT), **spec.env}
            return Bubblewrap().open(replace(spec, network=False, sockets={EGRESS_PORT: way}, env=env))

        return build(context, file, environment.build_args, open_box).image


def limits(environment: Environment) -> Limits:
    """The task's limits, with defaults: every sandbox has some."""
    # Three quarters of this machine at most: a sandbox that takes all of it takes the scheduler with it.
    memory_here_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    return Limits(
        memory_mb=environment.memory_mb or min(MEMORY_MB, memory_here_mb * 3 // 4),
        cpus=environment.cpus,
        pids=PIDS,
        disk_mb=environment.storage_mb or STORAGE_MB,
    )


def box_spec(
    task: Task,
    image: Image,
    *,
    environment: Environment | None = None,
    workdir: str | None = None,
    mounts: tuple[Mount, ...] = (),
    env: Mapping[str, str] | None = None,
) -> BoxSpec:
    """A sandbox for `task`: its variables, limits and workdir, and a network only if granted.

    `environment` is a separate verifier's; the task's own if not given.
    """
    where = environment or task.environment
    table = "environment" if environment is None else "verifier.environment"
    way_out = egress.variables(task.egress[0]) if task.egress is not None else {}
    return BoxSpec(
        image=image,
        mounts=mounts,
        env={**way_out, **filled_in(task, table, where.env), **(env or {})},
        sockets={task.egress[0]: task.egress[1]} if task.egress is not None else {},
        workdir=workdir or task.workdir or "/",
        limits=limits(where),
        network=networked(task, where),
        host_paths=task.host_paths,
        runtime=task.runtime,
        name=slug(task.id.rpartition("/")[2], 40).replace("+", "_").replace("=", "_"),
    )


def networked(task: Task, environment: Environment) -> bool:
    """Whether a sandbox of this environment has a network: granted, and asked for by every phase that runs in it.

    A sandbox has one network for its whole life and cannot limit hosts, so a single phase without one decides.
    Then the hosts that phases may reach are reached through a proxy (network.py).
    """
    networks = [environment.network]
    for step in task.steps:
        # Identity, not equality: a separate verifier may have an environment that looks like the task's.
        verified_here = environment is (step.verifier.environment or task.environment)
        phases = (
            step.agent.network if environment is task.environment else None,
            step.verifier.network if verified_here else None,
        )
        networks += [phase for phase in phases if phase is not None]
    return task.network_granted and all(network.mode == "public" for network in networks)


def network_withheld(task: Task) -> bool:
    """Whether the task says that it wants a network, and would get one if the user granted it."""
    environments = (task.environment, *(step.verifier.environment for step in task.steps))
    return (
        not task.network_granted
        and task.hosts is None
        and any(
            environment is not None and environment.network.explicit and networked(task.with_network(), environment)
            for environment in environments
        )
    )


def filled_in(task: Task, table: str, env: Mapping[str, str]) -> dict[str, str]:
    """`env`, the variables of the task's table `table`, with `${VAR}` of this machine filled in.

    Raises UsageError that names the table and the variable if one is not set.
    """
    # From the environment and .env, read when a sandbox is opened: no record holds a value.
    variables = host_variables()
    try:
        return {name: expand(value, variables) for name, value in env.items()}
    except MissingVariable as error:
        name = error.args[0]
        raise UsageError(
            f"{task.directory}: {table}.env: {name} is not set\n  fix: set it, or give a default: ${{{name}:-...}}"
        ) from error


def check_variables(task: Task) -> None:
    """Raise UsageError if a variable of a sandbox or of tests is not set, before an agent spends anything."""
    filled_in(task, "environment", task.environment.env)
    for step in task.steps:
        filled_in(task, "verifier", step.verifier.env)
        if step.verifier.environment is not None:
            filled_in(task, "verifier.environment", step.verifier.environment.env)


def command_path(box: Box, path: str) -> str:
    """A path in the sandbox as commands in it know it: sandbox `none` has no root of its own, but a directory."""
    root = getattr(box, "root", None)
    return path if root is None else f"{root}{path}"


def box_path(box: Box, path: str) -> str:
    """The reverse of `command_path`."""
    root = getattr(box, "root", None)
    return path if root is None else path.removeprefix(str(root))


def chown(box: Box, user: str, paths: Sequence[str]) -> None:
    """Make `user` the owner of `paths` in the sandbox. The first is a directory, created if it is missing."""
    # -h changes links themselves and does not follow them (chown(1)).
    box.run(["sh", "-c", 'mkdir -p "$1" && chown -hR "$0" "$@"', user, *paths], user="root")


def lay_out(task: Task, tree: Path, box: Box, user: str | None) -> None:
    """Put `tree` into the sandbox as the repository, owned by `user`, and the task's other files beside it."""
    for file in task.overlays:
        if not file.target.startswith(f"{REPOSITORY}/"):
            box.write(file.target, file.read(), 0o755 if file.executable else 0o644)
    box.put(tree, REPOSITORY)
    box.write("/logs/verifier/.keep", b"")  # makes the directory, where the runner writes report and seal
    if user is not None:
        chown(box, user, (REPOSITORY, "/logs"))  # git refuses a repository that another user owns


def tail(file: Path, most: int = 20_000) -> str:
    """The last `most` bytes of a file as text; empty if there is no file."""
    if not file.is_file():
        return ""
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - most))
        return opened.read().decode(errors="replace")
