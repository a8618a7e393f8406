"""What a task asks of its box, as the sandbox understands it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import Box, BoxSpec, Image, Limits, Mount
from bakeoff.spec.identity import slug
from bakeoff.spec.variables import MissingVariable
from bakeoff.spec.variables import variables as host_variables
from bakeoff.workloads.tasks.model import Environment, Task, resolved_env

PIDS = 1024
"""Processes in a box: enough for test suites that start workers, and no fork bomb."""
MEMORY_MB, STORAGE_MB = 8192, 10240
"""Where a task does not say: plenty for the task, and no machine filled by an agent."""


def limits(environment: Environment) -> Limits:
    return Limits(
        memory_mb=environment.memory_mb or min(MEMORY_MB, _memory_here_mb() * 3 // 4),
        cpus=environment.cpus,
        pids=PIDS,
        disk_mb=environment.storage_mb or STORAGE_MB,
    )


def _memory_here_mb() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def box_spec(
    task: Task,
    image: Image,
    *,
    environment: Environment | None = None,
    workdir: str | None = None,
    mounts: tuple[Mount, ...] = (),
    env: Mapping[str, str] | None = None,
) -> BoxSpec:
    """A box for `task`: its variables, limits and workdir; a network only where granted."""
    where = environment or task.environment
    table = "environment" if environment is None else "verifier.environment"
    return BoxSpec(
        image=image,
        mounts=mounts,
        env={**filled_in(task, table, where.env), **(env or {})},
        workdir=workdir or task.workdir or "/",
        limits=limits(where),
        network=_networked(task, where),
        name=slug(task.id.rpartition("/")[2], 40).replace("+", "_").replace("=", "_"),
    )


def _networked(task: Task, environment: Environment) -> bool:
    """Only where it was granted and everybody in the box asks for it: a box knows no phases and no list of hosts."""
    asked = [environment.network]
    for step in task.steps:
        mine = environment is (step.verifier.environment or task.environment)
        phases = (
            step.agent.network if environment is task.environment else None,
            step.verifier.network if mine else None,
        )
        asked += [phase for phase in phases if phase is not None]
    return task.network_granted and all(one.mode == "public" for one in asked)


def network_withheld(task: Task) -> bool:
    """Whether the task says that it wants a network, and would have one if it were granted."""
    boxes = (task.environment, *(step.verifier.environment for step in task.steps))
    return not task.network_granted and any(
        box is not None and box.network.said and _networked(task.with_network(), box) for box in boxes
    )


def filled_in(task: Task, table: str, env: Mapping[str, str]) -> dict[str, str]:
    """One of the task's tables with `${VAR}` of this machine, named where one of them is set nowhere."""
    try:
        return resolved_env(env, host_variables())
    except MissingVariable as error:
        raise UsageError(f"{task.directory}: {table}.env: {error.args[0]} is set nowhere\n  fix: set it, or give a default: ${{{error.args[0]}:-...}}") from error  # fmt: skip


def check_variables(task: Task) -> None:
    """Whether boxes and tests can have their variables: to be known before an agent spends anything."""
    filled_in(task, "environment", task.environment.env)
    for step in task.steps:
        filled_in(task, "verifier", step.verifier.env)
        if step.verifier.environment is not None:
            filled_in(task, "verifier.environment", step.verifier.environment.env)


def seen(box: Box, path: str) -> str:
    """A path in the box as commands in it know it: without isolation they see this machine's own root."""
    root = getattr(box, "root", None)
    return path if root is None else f"{root}{path}"


def inner(box: Box, path: str) -> str:
    """And back: the path in the box that commands know as `path`."""
    root = getattr(box, "root", None)
    return path if root is None else path.removeprefix(str(root))


def give(box: Box, user: str, paths: Sequence[str]) -> None:
    """Make `user` the owner of `paths` in the box; the first is a directory that need not be there."""
    box.run(["sh", "-c", 'mkdir -p "$1" && chown -hR "$0" "$@"', user, *paths], user="root")


def tree_copy(source: Path, target: Path) -> None:
    """The content of a file or directory put below `target`; what is there of the same name is replaced."""
    target.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)
    else:
        shutil.copy2(source, target / source.name)
