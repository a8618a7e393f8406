"""Back pressure on the batch size by the Universal Scalability Law, after retrain.

Throughput of p answers at once is fitted as X(p) = lambda * p / (1 + sigma * (p - 1) + kappa * p * (p - 1)), by least squares
on p / X = a + b * p + c * p^2. Its peak is at p* = sqrt((1 - sigma) / kappa). Throughput is tokens per second of processor
time, so a busy machine does not change the batch; still, batch sizes depend on the machine, and such runs do not repeat
bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Action = Literal["hold", "throttle", "increase"]
WINDOW = 100
ENOUGH = 3
"""Observations before anything is fitted."""


@dataclass(slots=True)
class BackPressure:
    """What was observed, and the batch size that follows."""

    enabled: bool = False
    group_size: int = 16
    warmup_steps: int = 10
    decay: float = 0.9
    throttle_margin: float = 0.85
    increase_margin: float = 0.5
    smallest: int = 1
    largest: int = 64
    observed: list[tuple[float, float]] = field(default_factory=list)
    """(answers, tokens per second), the newest last."""
    steps: int = 0
    throughput: float = 0.0
    sigma: float = 0.0
    kappa: float = 0.0
    peak: float = 1.0
    predicted: float = 0.0
    regime: str = "warmup"
    action: Action = "hold"

    def observe(self, batch_size: int, tokens: int, seconds: float) -> int:
        """After a step: the next batch size. A step without tokens (skipped) changes nothing."""
        self.steps += 1
        if not self.enabled:
            return batch_size
        if tokens and seconds > 0:
            now = tokens / seconds
            self.throughput = now if not self.throughput else self.decay * self.throughput + (1 - self.decay) * now
            self.observed = [*self.observed, (float(batch_size * self.group_size), now)][-WINDOW:]
            self._fit(batch_size * self.group_size)
        if self.steps <= self.warmup_steps:
            self.regime, self.action = "warmup", "hold"
            return self._warmup_size()
        answers = batch_size * self.group_size
        self.regime = self._regime(answers)
        limit = self.throttle_margin * self.peak
        self.action = "hold"
        if self.regime == "retrograde":
            self.action = "throttle"
        elif self.peak > 1 and answers < self.increase_margin * limit:
            self.action = "increase"
        if self.action == "hold":
            return batch_size
        return min(max(int(limit / self.group_size), self.smallest), self.largest)

    def _warmup_size(self) -> int:
        """Sizes in turn while warming up, so that there is something to fit: smallest, twice that, ... largest."""
        sizes = [self.smallest]
        while sizes[-1] < self.largest:
            sizes.append(min(2 * sizes[-1], self.largest))
        return sizes[self.steps % len(sizes)]

    def _fit(self, answers: int) -> None:
        if len({size for size, _ in self.observed}) < ENOUGH:
            return
        sizes, rates = np.array(self.observed).T
        (c, b, a), *_ = np.linalg.lstsq(np.vander(sizes, 3), sizes / rates, rcond=None)
        total = a + b + c
        if not total > 0:
            return
        self.sigma = float(np.clip((b + c) / total, 0, 1))
        self.kappa = float(max(0.0, c / total))
        flat = self.kappa <= 0 or self.sigma >= 1
        self.peak = 1.0 if flat else float(np.sqrt((1 - self.sigma) / self.kappa))
        spread = 1 + self.sigma * (answers - 1) + self.kappa * answers * (answers - 1)
        self.predicted = float(answers / (total * spread))

    def _regime(self, answers: int) -> str:
        if self.kappa > 1e-12 and self.peak > 1 and answers > self.throttle_margin * self.peak:
            return "retrograde"
        ratio = self.throughput / self.predicted if self.predicted > 0 else 1.0
        return "memory_bound" if ratio > 1.1 else "retrograde" if ratio < 0.8 else "optimal"

    def logged(self) -> dict[str, Any]:
        """The original's keys."""
        return {
            "bp_warmup": self.regime == "warmup",
            "bp_action": self.action,
            "bp_regime": self.regime,
            "bp_p_star": self.peak,
            "bp_sigma": self.sigma,
            "bp_kappa": self.kappa,
            "bp_utilization": self.throughput / self.predicted if self.predicted > 0 else 0.0,
            "bp_throughput": self.throughput,
        }
