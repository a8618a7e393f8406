"""The executor `ray`: pilots are actors of a Ray cluster. Only this package imports Ray, and only when runs start.

| module | what it does |
|---|---|
| `host` | what runs on a node: the actor, and the pilot's end of the wire |
| `cluster` | connects to the cluster; starts and ends actors (`Launcher`) |
| `transport` | the scheduler's end: carries messages and run directories by actor calls (`Transport`) |

    [executor]
    kind = "ray"                 # RAY_ADDRESS, or a local cluster
    secrets = ["OPENAI_API_KEY"]

There is no shared file system. Nodes get the experiment file's directory and bakeoff's own code from Ray (`runtime_env`,
by content digest); task directories and files elsewhere are attached to orders (pilots/attachments.py). Python on the nodes
needs bakeoff's dependencies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from bakeoff.engine.pilots.settings import PilotSettings
from bakeoff.errors import BakeoffError, Problem, install
from bakeoff.spec.experiment import ExperimentFile

if TYPE_CHECKING:
    from bakeoff.engine.executors import Executor, ExecutorSetup


class RaySettings(PilotSettings):
    """`[executor]` with `kind = "ray"`."""

    address: str | None = None
    """The cluster (default: RAY_ADDRESS, or a local cluster that ends with the command)."""
    slots: Annotated[int, Field(ge=1)] | None = None  # type: ignore[assignment]
    """Runs at a time in each pilot (default: as many as the smallest node has room for). Without `pilots`, there are as
    many pilots as the nodes have room for."""
    secrets: list[str] = Field(default=[])
    """Variables of this environment that runs on nodes get too, such as `OPENAI_API_KEY`, besides those that `[env]` names
    as `${NAME}`. They travel in calls of Ray and are written to no file. Nodes may also have their own."""


class Ray:
    """An `ExecutorKind`."""

    Settings = RaySettings

    def check(self, experiment: ExperimentFile) -> Iterable[Problem]:
        return ()

    def open(self, setup: ExecutorSetup) -> Executor:
        try:
            import ray  # noqa: F401
        except ImportError as error:
            raise BakeoffError(f"executor ray needs Ray: {install('ray')}") from error
        from bakeoff.engine.executors.ray.cluster import open_executor

        return open_executor(setup)


RAY = Ray()
