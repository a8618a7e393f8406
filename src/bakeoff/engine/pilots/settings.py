"""Settings that all executors with pilots share, and the setup of a pilot that is made from them."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from bakeoff.engine.executors import ExecutorSetup
from bakeoff.engine.pilots.transport import PilotSetup
from bakeoff.engine.processes import MARK
from bakeoff.records.codefiles import code_digest
from bakeoff.records.secrets import sounds_secret
from bakeoff.records.store import URL_VARIABLE
from bakeoff.spec.experiment import Duration, ExecutorEntry

_HEARTBEAT = 5.0
_UNREACHABLE = 20.0


class PilotSettings(ExecutorEntry):
    """`[executor]` of an executor that starts pilots."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    pilots: Annotated[int, Field(ge=1)] | Literal[False] | None = None
    """How many pilots run at a time (default: as many as `jobs` needs, else 1). `false`: one job of the engine for each
    run."""
    slots: Annotated[int, Field(ge=1)] = 1
    """Runs at a time in each pilot."""
    expiry: Duration = 30.0
    """Seconds of silence after which a pilot's attempts are lost and given to others."""
    linger: Duration = 600.0
    """Seconds that a pilot without a scheduler keeps its results and waits for the next one."""

    probe: str | None = None
    """Shell command that has to succeed on a node before it gets runs, such as `nvidia-smi`."""
    same_packages: bool = False
    """Give nothing to nodes whose packages or local modules differ from those of the first node (default: warn)."""

    @field_validator("pilots", mode="before")
    @classmethod
    def _not_true(cls, value: object) -> object:
        if value is True:
            raise ValueError("write how many, or false for one job of the engine for each run")
        return value

    @field_validator("same_packages")
    @classmethod
    def _known_before_runs(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("pilots") is False:
            raise ValueError("a job for each run has its run before its packages are known; use pilots")
        return value

    def number_of_pilots(self, jobs: int | None) -> int:
        """How many pilots there may be at a time, where the user asked for `jobs` runs at a time."""
        if self.pilots is False:
            return jobs or 100
        return self.pilots or max(1, -(-(jobs or 1) // self.slots))


def pilot_setup(setup: ExecutorSetup, settings: PilotSettings, base: str | None = None) -> PilotSetup:
    """What every pilot gets. `base` is where the experiment file's directory is on the nodes (default: where it is here).

    Variables whose names begin with BAKEOFF_ travel with it, such as the chosen sandbox, but no secret: `env` keeps
    `${NAME}`, which is filled in on the node.
    """
    node = setup.node
    root = node.paths.directory.parent.parent
    inside = root.is_relative_to(node.base)
    return PilotSetup(
        workload=node.workload,
        dialect=node.dialect,
        experiment=node.paths.experiment,
        edition=node.paths.name,
        base=base or str(node.base),
        slots=1 if settings.pilots is False else settings.slots,
        limits=node.limits.model_dump(),
        resources=node.resources.model_dump(),
        gpus=settings.gpus,
        env=dict(setup.variables),
        fresh=node.fresh,
        checkpoints=node.checkpoints,
        settle_after=node.settle_after,
        code=code_digest(node.base, root if inside else None),
        results=str(root.relative_to(node.base)) if inside and root != node.base else "",
        heartbeat=min(_HEARTBEAT, settings.expiry / 6),
        unreachable=min(_UNREACHABLE, settings.expiry * 2 / 3),
        absent=settings.expiry,
        linger=settings.linger,
        once=settings.pilots is False,
        probe=settings.probe or "",
        variables={
            name: value
            for name, value in os.environ.items()
            if name.startswith("BAKEOFF_") and name not in (MARK, URL_VARIABLE) and not sounds_secret(name)
        },
    )
