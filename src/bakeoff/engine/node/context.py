"""What a run knows about itself: `Context` wraps an attempt, and is the `ctx` that workloads get."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from bakeoff.records.run import Attempt, TrajectoryIndex
from bakeoff.records.rundir import CHECKPOINT, PARAMS, SERIES
from bakeoff.records.rundir import TRAJECTORY as FILE
from bakeoff.records.series import Series, TrajectoryWriter
from bakeoff.spec.identity import canonical_json
from bakeoff.spec.workload import LONGEST_VARIABLE, Step

if TYPE_CHECKING:
    import numpy as np


def stream_key(*parts: Any) -> int:
    """128 bits that depend on nothing but `parts`: the key of a Philox generator."""
    return int.from_bytes(hashlib.sha256(canonical_json(parts).encode()).digest()[:16], "little")


class Context:
    """The `RunContext` of spec/workload.py. A command's workload uses the facts; an in-process run uses all of it.

    `base` is the experiment file's directory, `path` the run's directory, which need not exist yet.
    """

    def __init__(self, attempt: Attempt, base: Path, path: Path, deadline: float | None = None) -> None:
        self.run_id = attempt.run_id
        self.arm = attempt.arm
        self.task = attempt.task
        assert attempt.seed is not None  # only imported runs have none, and those are never started
        self.seed = attempt.seed
        self.rollout = attempt.rollout
        self.attempt = attempt.number
        self.flags = attempt.flags
        self.base = base
        self.path = path
        self.deadline = deadline
        self.stop_asked = False
        """Set by the worker when the run is to stop."""
        self.cooperative = False
        """The run has looked at `cancelled`, so it is expected to stop by itself."""
        self.finished: dict[str, Any] = {}
        self.series = Series()
        self._trajectory: TrajectoryWriter | None = None
        self._lines: deque[str] = deque()
        self._streaming = False
        self._resumable = False
        self._writing = Lock()

    @property
    def directory(self) -> Path:
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path

    @property
    def checkpoint(self) -> Path:
        """From the first access on, what is logged is in `metrics.jsonl` at once: the file is never behind the
        checkpoint."""
        self._resumable = True
        self.flush()
        path = self.directory / CHECKPOINT
        path.mkdir(exist_ok=True)
        return path

    @property
    def cancelled(self) -> bool:
        self.cooperative = True
        return self.stop_asked

    def environment(self, params: str) -> dict[str, str]:
        """What every command finds in its environment. `params` is JSON, without settings that say how to run.

        It goes into a file where it is longer than a variable can be.
        """
        if len(params) > LONGEST_VARIABLE:
            file = self.directory / PARAMS
            file.write_text(params)
            given = {"BAKEOFF_PARAMS_FILE": str(file)}
        else:
            given = {"BAKEOFF_PARAMS": params}
        return {
            "BAKEOFF_SEED": str(self.seed),
            "BAKEOFF_ROLLOUT": str(self.rollout),
            "BAKEOFF_ARM": self.arm,
            "BAKEOFF_TASK": self.task,
            "BAKEOFF_RUN_ID": self.run_id,
            "BAKEOFF_RUN_DIR": str(self.path),
            "BAKEOFF_OUT_DIR": f"{self.path}/out",
            "BAKEOFF_CHECKPOINT_DIR": f"{self.path}/{CHECKPOINT}",
            **given,
        }

    def rng(self, name: str = "", *, own: bool = False) -> np.random.Generator:
        """Counter-based (Philox, Salmon et al. 2011): equal keys give equal streams on every machine."""
        import numpy as np

        mine = (self.arm, self.rollout) if own else ()
        return np.random.Generator(np.random.Philox(key=stream_key(self.task, self.seed, name, *mine)))

    def log(self, step: int, **values: float) -> None:
        numbers = {name: float(value) for name, value in values.items()}
        self.series.add(step, numbers)
        self._lines.append(json.dumps({"step": step, **numbers}))
        if self._resumable:
            self.flush()

    def finish(self, **metrics: Any) -> None:
        """Add final metrics; those that `run` returns win. `bakeoff.finish` in a script ends up here."""
        self.finished.update(metrics)

    def trajectory(self, step: Step) -> None:
        if self._trajectory is None:
            self._trajectory = TrajectoryWriter(self.directory / FILE)
        self._trajectory.add(step)

    def flush(self) -> None:
        """Write what was logged so far to `metrics.jsonl`, where it can be read and survives a crash.

        The worker's second thread calls this during long runs.
        """
        with self._writing:
            lines = [self._lines.popleft() for _ in range(len(self._lines))]  # the run may add to it meanwhile
            if lines:
                self._streaming = True
                with open(self.directory / SERIES, "a") as file:
                    file.write("".join(f"{line}\n" for line in lines))

    def close(self) -> tuple[bytes | None, TrajectoryIndex | None]:
        """The series as a block, and the index of the trajectory; None where the run recorded none.

        A run that can be resumed returns no block: the node reads its file after those of its earlier attempts.
        """
        if self._streaming:
            self.flush()
        index = self._trajectory.close() if self._trajectory is not None else None
        return (self.series.block() if self.series and not self._resumable else None), index
