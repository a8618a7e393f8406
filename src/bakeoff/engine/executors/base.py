"""What the scheduler asks of a place where runs are executed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from bakeoff.records.results import Result
from bakeoff.spec.plan import Cell

Reason = Literal["timeout", "cancelled", "memory"]


@dataclass(frozen=True, slots=True)
class Start:
    """One try of one run."""

    position: int
    run_id: str
    cell: Cell
    seed: int
    rollout: int
    attempt: int


class Executor(Protocol):
    def capacity(self) -> int:
        """How many more runs may be started now."""

    def start(self, run: Start) -> None: ...

    def wait(self, timeout: float) -> list[Result]:
        """Tries that ended, after at most `timeout` seconds."""

    def returned(self) -> list[Start]:
        """Runs that were handed over and had not begun when they had to be taken back."""

    def running(self) -> list[tuple[Start, float]]:
        """Runs going on, and when each began (seconds since the epoch)."""

    def recall(self) -> None:
        """Take back what has not begun."""

    def stop(self) -> None:
        """End what is going on: first politely, then not."""

    def close(self) -> None: ...
