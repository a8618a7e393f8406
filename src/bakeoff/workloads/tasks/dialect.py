"""The task benchmark's dialect: its TOML files, and its rollout files beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bakeoff.spec.dialect import Dialect
from bakeoff.spec.dialects import tasks
from bakeoff.spec.plan import Plan

if TYPE_CHECKING:
    from bakeoff.engine.scheduler import Observer
    from bakeoff.engine.session import Session


class TasksDialect(Dialect):
    name: ClassVar[str] = "tasks"

    def recognises(self, tree: Mapping[str, Any]) -> bool:
        return tasks.recognises(tree)

    def plan(self, tree: dict[str, Any], path: Path) -> Plan:
        return tasks.plan(tree, path)

    def observers(self, session: Session) -> list[Observer]:
        from bakeoff.workloads.tasks.rollouts import RolloutFiles

        return [RolloutFiles(session, session.options.source or Path(session.paths.experiment))]


TASKS = TasksDialect()
