"""The executor `local`: a node on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pydantic import ConfigDict

from bakeoff.errors import Problem
from bakeoff.spec.experiment import ExecutorEntry, Experiment

if TYPE_CHECKING:
    from bakeoff.engine.executors import Executor, ExecutorSetup


class LocalSettings(ExecutorEntry):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Local:
    """An `ExecutorKind`."""

    Settings = LocalSettings

    def check(self, experiment: Experiment) -> Iterable[Problem]:
        return ()

    def open(self, setup: ExecutorSetup) -> Executor:
        from bakeoff.engine.node.node import open_node  # `validate` reads settings and opens nothing

        return open_node(setup.node)


LOCAL = Local()
