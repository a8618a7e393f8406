"""The executor `local`: a node on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ConfigDict

from bakeoff.errors import Problem
from bakeoff.spec.experiment import ExecutorEntry, ExperimentFile

if TYPE_CHECKING:
    from bakeoff.engine.executors import Executor, ExecutorSetup


class LocalSettings(ExecutorEntry):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Local:
    """An `ExecutorKind` that `RunsHere`."""

    Settings = LocalSettings

    def check(self, experiment: ExperimentFile) -> Iterable[Problem]:
        return ()

    def check_machine(self, experiment: ExperimentFile, jobs: int) -> None:
        _share_machine(experiment, jobs)

    def open(self, setup: ExecutorSetup) -> Executor:
        # `validate` reads settings and opens nothing
        from bakeoff.engine.executors import leave_pilots
        from bakeoff.engine.hardware import kind_of_node
        from bakeoff.engine.node.node import open_node

        leave_pilots(setup.node.paths)
        experiment = setup.plan.experiment
        devices, jobs = _share_machine(experiment, setup.node.jobs)
        setup.claims.see_this_machine(kind_of_node(devices))
        return open_node(replace(setup.node, jobs=jobs, gpus=devices, env=experiment.environment()))


def _share_machine(experiment: ExperimentFile, jobs: int) -> tuple[tuple[str, ...], int]:
    """Return the devices that runs share, and how many of `jobs` runs may be going on at once.

    Raises UsageError when not a single one fits.
    """
    from bakeoff.engine import hardware

    declared = experiment.executor.gpus if experiment.executor is not None else None
    devices = hardware.find_devices(declared) if experiment.resources.gpus else ()
    return devices, hardware.fitting(experiment.resources, devices, jobs)


LOCAL = Local()
