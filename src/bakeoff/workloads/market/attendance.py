"""How a seat has behaved: turns it took, deadlines it missed, how long it thought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bakeoff.workloads.market.agents.face import LlmCall
from bakeoff.workloads.market.journal import Conduct, Journal, Turn
from bakeoff.workloads.market.session import Session

PATIENCE = 3
"""Deadlines missed in a row before a seat is not waited for any more."""
ERRORS_KEPT = 10


@dataclass(slots=True)
class Attendance:
    session: Session
    journal: Journal | None = None
    late: int = 0
    crashed: int = 0
    absent: int = 0
    """Turns in which nobody waited for it any more."""
    missed_in_a_row: int = 0
    think_s: float = 0.0
    longest_think_s: float = 0.0
    errors: list[str] = field(default_factory=list)
    """The first few, for people."""

    @property
    def gone(self) -> bool:
        return self.missed_in_a_row >= PATIENCE

    @property
    def turns(self) -> list[Turn]:
        """What was recorded, if anything was."""
        return self.journal.turns if self.journal else []

    def note(self, conduct: Conduct, think_s: float, error: str | None = None, llm: Sequence[LlmCall] = ()) -> None:
        """How the turn went."""
        self.think_s += think_s
        if think_s > self.longest_think_s:
            self.longest_think_s = think_s
        if conduct == "acted":
            self.missed_in_a_row = 0
        else:
            self._note_trouble(conduct, error)
        if self.journal:
            self.journal.end(conduct, think_s, error, list(llm))

    def _note_trouble(self, conduct: Conduct, error: str | None) -> None:
        setattr(self, conduct, getattr(self, conduct) + 1)
        self.missed_in_a_row = 0 if conduct == "crashed" else self.missed_in_a_row + 1
        if error and len(self.errors) < ERRORS_KEPT:
            self.errors.append(f"tick {self.session.world.tick}: {error}")
