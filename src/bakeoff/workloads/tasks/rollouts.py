"""The task benchmark's own files, kept up to date while a benchmark runs.

data/rollouts/<name>/<stamp>/   manifest.json, runs.txt, task_results/<run>.json
data/rollouts/temp/             rollout_<name>__<stamp>.json, an index
data/runs/<stamp>-<number>      links to the runs' directories in the edition
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from bakeoff.engine.session import Session
from bakeoff.errors import UsageError
from bakeoff.records.layout import atomic_write
from bakeoff.records.run import Attempt
from bakeoff.spec.workload import FINISHED

DATA = Path("data")
_PAUSE_S = 0.5


def stamp_of(edition: str) -> str:
    """An edition's name as the benchmark writes stamps: 20250824-123456 is 20250824__12-34-56."""
    return re.sub(r"^(\d{8})-(\d\d)(\d\d)(\d\d)", r"\1__\2-\3-\4", edition)


def edition_of(stamp: str) -> str:
    """And back; the name of an edition stays as it is."""
    return re.sub(r"^(\d{8})__(\d\d)-(\d\d)-(\d\d)", r"\1-\2\3\4", stamp)


class RolloutFiles:
    """An observer of the scheduler. What was finished is in the files half a second later, and at the end."""

    def __init__(self, session: Session, config: Path) -> None:
        self._session = session
        self._config = config
        self._stamp = stamp_of(session.paths.name)
        self._name = session.plan.experiment.name
        self._data = session.plan.base / DATA
        self._rows: dict[int, dict[str, Any]] = {}
        self._cells = {cell.index: cell for cell in session.plan.cells}
        self.directory = self._data / "rollouts" / session.paths.experiment / self._stamp
        (self.directory / "task_results").mkdir(parents=True, exist_ok=True)
        self._written = 0.0
        self._stale = False
        for run in session.edition.runs():
            if run.status in FINISHED:
                params = self._cells[run.cell].params
                self._add(run.position, run.run_id, params, run.status, structs.asdict(run))
        self._write()

    def finished(self, attempt: Attempt) -> None:
        if not attempt.final:
            return
        facts = {"exit_code": attempt.exit_code, "error": attempt.error, "metrics": dict(attempt.metrics)}
        self._add(attempt.position, attempt.run_id, self._cells[attempt.cell].params, attempt.status, facts)
        self._stale = True
        self.tick(())

    def tick(self, running: Sequence[Attempt]) -> None:
        if self._stale and time.monotonic() - self._written > _PAUSE_S:
            self._write()

    def close(self) -> None:
        self._write()

    def _add(
        self, position: int, run_id: str, params: Mapping[str, Any], status: str, facts: Mapping[str, Any]
    ) -> None:
        run_dir = self._link(position, run_id)
        row = {
            "task_dir": params["prepared_dir"],
            "run_dir": os.path.relpath(run_dir, self._session.plan.base),
            "run_id": run_dir.name,
            "model": params.get("model"),
            "status": status,
            "launch_rc": 0 if status == "succeeded" else facts.get("exit_code") or 1,
            "error": facts.get("error"),
            "bakeoff_run_id": run_id,
        }
        self._rows[position] = row
        metrics = facts.get("metrics") or {}
        _replace(self.directory / "task_results" / f"{run_dir.name}.json", {**row, "metrics": metrics})

    def _link(self, position: int, run_id: str) -> Path:
        """A name under data/runs that leads to the run's directory, whose own name repeats in every edition."""
        target = self._session.paths.run(run_id)
        target.mkdir(parents=True, exist_ok=True)
        runs = self._data / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        wanted = os.path.relpath(target, runs)
        for name in (f"{self._stamp}-{position}", f"{self._stamp}-{self._session.paths.experiment}-{position}"):
            link = runs / name
            try:
                link.symlink_to(wanted)
            except FileExistsError:
                if not link.is_symlink() or os.readlink(link) != wanted:
                    continue  # another benchmark began in the same second
            return link
        raise UsageError(f"{link}: is in the way\n  fix: move it; the link to the run's directory belongs there")

    def _write(self) -> None:
        rows = [self._rows[position] for position in sorted(self._rows)]
        head = {"config": str(self._config), "name": self._name, "created_at": self._stamp}
        edition = str(self._session.paths.directory)
        _replace(self.directory / "manifest.json", {**head, "edition": edition, "results": rows})
        atomic_write(self.directory / "runs.txt", "".join(f"{row['run_dir']}\n" for row in rows))
        index = self._data / "rollouts" / "temp" / f"rollout_{self._session.paths.experiment}__{self._stamp}.json"
        index.parent.mkdir(exist_ok=True)
        tasks = _once(row["task_dir"] for row in rows)
        where = os.path.relpath(self.directory, self._session.plan.base)
        runs = [row["run_dir"] for row in rows]
        _replace(index, {"created_at": self._stamp, "rollout_dir": where, "runs": runs, "tasks": tasks})
        self._written, self._stale = time.monotonic(), False


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _replace(path: Path, value: Any) -> None:
    atomic_write(path, json.dumps(value, indent=2) + "\n")
