"""A node: one machine (or one share of it) that runs attempts. `open_node` opens the kind that a workload needs."""

from __future__ import annotations

import os
import shutil
from abc import abstractmethod
from typing import Any

from bakeoff.engine import processes
from bakeoff.engine.executors import Executor, NodeSetup
from bakeoff.engine.node.context import Context
from bakeoff.engine.node.supervisor import Supervisor
from bakeoff.errors import UsageError
from bakeoff.records.run import Attempt, decode_json
from bakeoff.records.rundir import SERIES, write_meta
from bakeoff.records.series import read_jsonl
from bakeoff.spec import registry
from bakeoff.spec.workload import Command, CommandWorkload, Equivalent

_FULL = 16 * 1024
"""A disk with less free space than this, in bytes, is full."""
_CELLS = 1000
"""Of how many cells the parameters are remembered."""
_EXIT_CODES = {"succeeded": 0, "failed": 1}
"""How the command would have ended that an in-process run stands for."""


class Node(Executor):
    """What both kinds of node share. A node is an `Executor` of this machine; the two kinds implement its methods."""

    def __init__(self, setup: NodeSetup) -> None:
        """First ends what an earlier scheduler of this edition left running."""
        self._setup = setup
        self._limits = setup.limits
        self._mark = setup.mark
        self._workload = registry.workload(setup.workload)
        self._dialect = registry.dialect(setup.dialect)
        self._settings = registry.settings(setup.workload)
        self._params: dict[int, Any] = {}
        self._unbegun: list[Attempt] = []
        """Attempts to give back."""
        processes.end_marked(f"{setup.edition_mark}:")
        shutil.rmtree(setup.paths.scratch, ignore_errors=True)  # output of runs that a killed scheduler lost
        processes.become_subreaper()
        self._supervisor = Supervisor(f"{self._mark}:")
        try:
            self._orphans = processes.Orphans()  # after the supervisor, which is not one
            self._open()
        except BaseException:
            Node.close(self)
            raise

    @abstractmethod
    def _open(self) -> None:
        """Set up what the kind of node needs."""

    def close(self) -> None:
        """End what still runs, and the supervisor."""
        self._supervisor.close()
        processes.become_subreaper(False)

    # -- one attempt

    def _context(self, attempt: Attempt) -> Context:
        return Context(attempt, self._setup.base, self._setup.paths.runs / attempt.run_id)

    def _validated(self, attempt: Attempt) -> Any:
        """The attempt's parameters as the workload's model, validated once for each cell."""
        params = self._params.get(attempt.cell)
        if params is None:
            if len(self._params) >= _CELLS:
                self._params.clear()
            params = self._params[attempt.cell] = self._workload.Params.model_validate(decode_json(attempt.params))
        return params

    def _user_params(self, attempt: Attempt) -> dict[str, Any]:
        """The parameters without the settings that say how to run."""
        return {key: value for key, value in decode_json(attempt.params).items() if key not in self._settings}

    def _finish(self, attempt: Attempt, context: Context, command: Command | None = None) -> Attempt:
        """Read the series that the run wrote into its directory, and write `meta.json` there.

        The run wrote whatever lies in the directory: nothing in it may end the scheduler. `command` is the one that
        was spawned; for an in-process run it is the equivalent one, when its workload knows that.
        """
        if attempt.status == "failed":
            try:
                space = os.statvfs(self._setup.paths.directory)
                full = space.f_bavail * space.f_frsize < _FULL
            except OSError:
                full = False
            if full:  # whatever failed, the arm is not to blame
                attempt.status = "infra_error"
                _add_note(attempt, "the disk is full")
        if not context.path.exists():  # the run wrote nothing, so there is no directory to describe
            return attempt
        if command is None and isinstance(self._workload, Equivalent):
            try:
                command = self._workload.equivalent(self._validated(attempt), context)
                attempt.exit_code = _EXIT_CODES.get(attempt.status)
            except UsageError:
                pass  # what is wrong with the parameters is already the run's error
        steps = context.path / SERIES
        if attempt.series is None and steps.exists():
            try:
                series, _ = read_jsonl(steps)
                attempt.series = series.block() if series else None
            except Exception as error:
                _add_note(attempt, f"{SERIES} cannot be read: {error}")
        try:
            self._write_meta(attempt, context, command)
        except (OSError, ValueError) as error:
            _add_note(attempt, f"meta.json could not be written: {error}")
        return attempt

    def _write_meta(self, attempt: Attempt, context: Context, command: Command | None) -> None:
        """`meta.json` of an attempt that starts (without an end) or has ended."""
        meta: dict[str, Any] = {
            "run_id": attempt.run_id,
            "experiment": self._setup.paths.experiment,
            "edition": self._setup.paths.name,
            "workload": self._setup.workload,
            "arm": attempt.arm,
            "task": attempt.task,
            "seed": attempt.seed,
            "rollout": attempt.rollout,
            "attempt": attempt.number,
            "params": self._dialect.meta(self._user_params(attempt), attempt),
            "ablation_name": attempt.ablation or "baseline",
            "ablation_flags": list(attempt.flags),
            "cmd": list(command.argv) if command else None,
            "cwd": str(command.cwd) if command else None,
            "start_time_unix_s": attempt.started_at or 0.0,
        }
        if attempt.ended_at is not None:
            wall_time = None if attempt.started_at is None else round(attempt.ended_at - attempt.started_at, 6)
            meta |= {
                "end_time_unix_s": attempt.ended_at,
                "wall_time_s": wall_time,
                "exit_code": attempt.exit_code,
                "status": attempt.status,
                "error": attempt.error,
                "metrics": dict(attempt.metrics),
            }
        write_meta(context.path, meta)


def _add_note(attempt: Attempt, note: str) -> None:
    attempt.error = f"{attempt.error}; {note}" if attempt.error else note


def open_node(setup: NodeSetup) -> Node:
    """The node for the setup's workload: one that spawns commands, or one with warm workers.

    This is the executor `local` of the entry-point group `bakeoff.executors`.
    """
    from bakeoff.engine.node.commands import CommandNode
    from bakeoff.engine.node.workers import WorkerNode

    spawns = isinstance(registry.workload(setup.workload), CommandWorkload)
    return CommandNode(setup) if spawns else WorkerNode(setup)
