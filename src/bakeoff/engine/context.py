"""What a run knows about itself, in the scheduler (`Facts`) and inside a worker (`Context`)."""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.records.rundir import SERIES
from bakeoff.records.series import Series
from bakeoff.records.trajectory import FILE, TrajectoryIndex, TrajectoryWriter
from bakeoff.spec.identity import canonical_json
from bakeoff.spec.trajectory import Step

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Facts:
    run_id: str
    arm: str
    task: str
    seed: int
    rollout: int
    attempt: int
    flags: tuple[str, ...]
    base: Path
    path: Path

    @property
    def directory(self) -> Path:
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path

    def environment(self, params: str) -> dict[str, str]:
        """What every command finds in its environment. `params` is JSON, without settings that say how to run."""
        return {
            "BAKEOFF_SEED": str(self.seed),
            "BAKEOFF_ROLLOUT": str(self.rollout),
            "BAKEOFF_ARM": self.arm,
            "BAKEOFF_TASK": self.task,
            "BAKEOFF_RUN_ID": self.run_id,
            "BAKEOFF_RUN_DIR": str(self.path),
            "BAKEOFF_OUT_DIR": str(self.path / "out"),
            "BAKEOFF_PARAMS": params,
        }


def stream_key(*parts: Any) -> int:
    """128 bits that depend on nothing but `parts`."""
    return int.from_bytes(hashlib.sha256(canonical_json(parts).encode()).digest()[:16], "little")


class Context:
    """The `ctx` of one in-process run."""

    def __init__(self, facts: Facts, deadline: float | None = None) -> None:
        self._facts = facts
        self.run_id = facts.run_id
        self.arm = facts.arm
        self.task = facts.task
        self.seed = facts.seed
        self.rollout = facts.rollout
        self.attempt = facts.attempt
        self.flags = facts.flags
        self.base = facts.base
        self.path = facts.path
        self.deadline = deadline
        self.stop_asked = False
        self.cooperative = False
        self.finished: dict[str, Any] = {}
        self.series = Series()
        self._trajectory: TrajectoryWriter | None = None
        self._lines: deque[str] = deque()
        self._streaming = False

    @property
    def directory(self) -> Path:
        return self._facts.directory

    @property
    def cancelled(self) -> bool:
        self.cooperative = True  # who asks is expected to stop by itself
        return self.stop_asked

    def rng(self, name: str = "", *, own: bool = False) -> np.random.Generator:
        import numpy as np

        mine = (self.arm, self.rollout) if own else ()
        return np.random.Generator(np.random.Philox(key=stream_key(self.task, self.seed, name, *mine)))

    def log(self, step: int, **values: float) -> None:
        numbers = {name: float(value) for name, value in values.items()}
        self.series.add(step, numbers)
        self._lines.append(json.dumps({"step": step, **numbers}))

    def finish(self, **metrics: Any) -> None:
        self.finished.update(metrics)

    def trajectory(self, step: Step) -> None:
        if self._trajectory is None:
            self._trajectory = TrajectoryWriter(self.directory / FILE)
        self._trajectory.add(step)

    def flush(self) -> None:
        """Called now and then during a long run: what was logged so far can be read, and survives a crash."""
        lines = [self._lines.popleft() for _ in range(len(self._lines))]  # the run may add to it meanwhile
        if lines:
            self._streaming = True
            with open(self.directory / SERIES, "a") as file:
                file.write("".join(f"{line}\n" for line in lines))

    def close(self) -> tuple[bytes | None, TrajectoryIndex | None]:
        """The series as a block, and where the trajectory is."""
        if self._streaming:
            self.flush()
        index = self._trajectory.close() if self._trajectory is not None else None
        return (self.series.block() if self.series else None), index


def deadline_in(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds
