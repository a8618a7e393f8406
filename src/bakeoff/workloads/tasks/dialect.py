"""The task benchmark's dialect: how its files are recognised, and its own result files, which are written beside ours.

`benchmark` reads its TOML; it is imported when it is needed, because every `bakeoff run` imports this module to find
out in which dialect a file is written. While such a benchmark runs, `RolloutFiles` keeps the files up to date that its
users know:

    data/rollouts/<name>/<stamp>/   manifest.json, runs.txt, task_results/<run>.json
    data/rollouts/temp/             rollout_<name>__<stamp>.json, an index
    data/runs/<stamp>-<number>      links to the runs' directories in the edition
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bakeoff.errors import UsageError
from bakeoff.spec.identity import RunId
from bakeoff.spec.registry import Dialect
from bakeoff.spec.workload import FINISHED

if TYPE_CHECKING:
    from bakeoff.engine.session import Session
    from bakeoff.records.run import Attempt, RunRecord
    from bakeoff.spec.plan import Plan

DATA = Path("data")
WRITE_EVERY = 0.5
"""Seconds between two updates of the benchmark's files."""


class TasksDialect(Dialect):
    """Reads the task benchmark's TOML and keeps its files up to date."""

    name: ClassVar[str] = "tasks"

    def recognises(self, tree: Mapping[str, Any]) -> bool:
        """Return whether entries have a prepared directory, or there is `parallel` and no key that only our files have."""
        entries = tree.get("tasks")
        if isinstance(entries, list) and any(isinstance(entry, dict) and "prepared_dir" in entry for entry in entries):
            return True
        if "parallel" not in tree:
            return False
        from bakeoff.spec.experiment import ExperimentFile

        return not tree.keys() & (ExperimentFile.model_fields.keys() - {"name", "tasks"})

    def plan(self, tree: dict[str, Any], path: Path) -> Plan:
        from bakeoff.workloads.tasks.benchmark import plan

        return plan(tree, path)

    def observers(self, session: Session) -> Sequence[RolloutFiles]:
        """The writer of the benchmark's files; its manifest names the experiment file."""
        return [RolloutFiles(session, session.options.source or Path(session.edition.paths.experiment))]


TASKS = TasksDialect()


def stamp_of(edition: str) -> str:
    """An edition's name as the benchmark writes stamps: 20250824-123456 becomes 20250824__12-34-56."""
    return re.sub(r"^(\d{8})-(\d\d)(\d\d)(\d\d)", r"\1__\2-\3-\4", edition)


class RolloutFiles:
    """An observer of the scheduler that writes the benchmark's files: at most WRITE_EVERY late, and at the end.

    `config` is the experiment file, which the manifest names.
    """

    def __init__(self, session: Session, config: Path) -> None:
        self._session = session
        self._config = config
        self._stamp = stamp_of(session.edition.paths.name)
        self._data = session.plan.base / DATA
        self._rows: dict[int, dict[str, Any]] = {}
        self.directory = self._data / "rollouts" / session.edition.paths.experiment / self._stamp
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        self.directory.mkdir(exist_ok=True, mode=0o700)
        (self.directory / "task_results").mkdir(exist_ok=True)
        self._written = 0.0
        self._stale = False
        self._cells = {cell.index: cell for cell in session.plan.cells}
        for run in session.edition.runs():
            if run.status in FINISHED:  # by an earlier call of `run` that this one resumes
                self._add(run)
        self._write()

    def finished(self, attempt: Attempt) -> None:
        """Take up a run that ended. One that will be tried again is not listed yet."""
        if not attempt.final:
            return
        self._add(attempt)
        self._stale = True
        self.tick(())  # writes if the last update is long enough ago

    def tick(self, running: Sequence[Attempt]) -> None:
        """Called by the scheduler several times a second; writes if something changed and the last write is old."""
        if self._stale and time.monotonic() - self._written > WRITE_EVERY:
            self._write()

    def close(self) -> None:
        self._write()

    def _add(self, run: Attempt | RunRecord) -> None:
        """Take up a finished run and write its file in task_results."""
        run_dir = self._link(run.position, run.run_id)
        params = self._cells[run.cell].params
        row = {
            "task_dir": params["prepared_dir"],
            "run_dir": os.path.relpath(run_dir, self._session.plan.base),
            "run_id": run_dir.name,
            "model": params.get("model"),
            "status": run.status,
            "launch_rc": 0 if run.status == "succeeded" else run.exit_code or 1,
            "error": run.error,
            "bakeoff_run_id": run.run_id,
        }
        self._rows[run.position] = row
        facts = {**row, "metrics": dict(run.metrics)}
        _write_json(self.directory / "task_results" / f"{run_dir.name}.json", facts)

    def _link(self, position: int, run_id: RunId) -> Path:
        """A link in data/runs to the run's directory, whose own name is the same in every edition."""
        target = self._session.edition.paths.run(run_id)
        target.mkdir(parents=True, exist_ok=True)
        runs = self._data / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        wanted = os.path.relpath(target, runs)
        # Two benchmarks can have the same stamp, so the second name carries the experiment's.
        for name in (f"{self._stamp}-{position}", f"{self._stamp}-{self._session.edition.paths.experiment}-{position}"):
            link = runs / name
            try:
                link.symlink_to(wanted)
            except FileExistsError:
                if not link.is_symlink() or os.readlink(link) != wanted:
                    continue  # another benchmark began in the same second
            return link
        raise UsageError(f"{link}: is in the way of a link to the run's directory\n  fix: move it")

    def _write(self) -> None:
        """Write the manifest, the list of runs and the index."""
        from bakeoff.records.layout import atomic_write

        rows = [self._rows[position] for position in sorted(self._rows)]
        paths, plan = self._session.edition.paths, self._session.plan
        head = {"config": str(self._config), "name": plan.experiment.name, "created_at": self._stamp}
        _write_json(self.directory / "manifest.json", {**head, "edition": str(paths.directory), "results": rows})
        atomic_write(self.directory / "runs.txt", "".join(f"{row['run_dir']}\n" for row in rows))
        index = self._data / "rollouts" / "temp" / f"rollout_{paths.experiment}__{self._stamp}.json"
        index.parent.mkdir(exist_ok=True)
        facts = {
            "created_at": self._stamp,
            "rollout_dir": os.path.relpath(self.directory, plan.base),
            "runs": [row["run_dir"] for row in rows],
            "tasks": list(dict.fromkeys(row["task_dir"] for row in rows)),
        }
        _write_json(index, facts)
        self._written, self._stale = time.monotonic(), False


def _write_json(path: Path, value: Any) -> None:
    from bakeoff.records.layout import atomic_write

    atomic_write(path, json.dumps(value, indent=2) + "\n")
