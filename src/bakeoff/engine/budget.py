"""What the whole experiment may use. Nothing is started beyond it; what is going on may finish."""

from __future__ import annotations

import math
import time

from bakeoff.records.edition import Edition
from bakeoff.records.results import Result
from bakeoff.spec.experiment import Budget
from bakeoff.spec.workload import FINISHED


class Account:
    """Counts over all sessions of an edition; earlier ones are read from the database."""

    def __init__(self, budget: Budget, edition: Edition) -> None:
        self._budget = budget
        counts = edition.counts()
        self._runs = sum(counts.get(status, 0) for status in FINISHED)
        self._cost = edition.spent(budget.cost_metric) if budget.cost is not None else 0.0
        self._seconds = sum(session["seen_at"] - session["started_at"] for session in edition.sessions())
        self._began = time.monotonic()
        self.unmetered: str | None = None
        """What to say when a run does not report its cost: a budget that nobody reports to would be no budget at all."""

    @property
    def metered(self) -> bool:
        return self._budget.cost is not None

    def exhausted(self) -> str | None:
        """Why nothing more may start, or None."""
        budget = self._budget
        if budget.runs is not None and self._runs >= budget.runs:
            return f"budget of {budget.runs} runs used up"
        elapsed = self._seconds + time.monotonic() - self._began
        if budget.time is not None and elapsed >= budget.time:
            return f"time budget of {budget.time:g} s used up"
        if budget.cost is not None and self._cost >= budget.cost:
            return f"budget of {budget.cost:g} {budget.cost_metric} used up ({self._cost:g})"
        return None

    def room(self, in_flight: int) -> bool:
        """Whether one more run fits beside those in flight."""
        return self._budget.runs is None or self._runs + in_flight < self._budget.runs

    def charge(self, result: Result) -> None:
        """For every try: one that has to be done again cost something too."""
        if result.final and result.status in FINISHED:
            self._runs += 1
        if self._budget.cost is None:
            return
        value = result.metrics.get(self._budget.cost_metric)
        if isinstance(value, int | float) and math.isfinite(value):
            self._cost += value
        elif result.status == "succeeded":
            self.unmetered = (
                f"run {result.run_id} reports no {self._budget.cost_metric!r}, so the cost budget cannot be kept; "
                "let runs report it, name another metric in budget.cost_metric, or remove budget.cost"
            )
