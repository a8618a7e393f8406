"""From one advantage for each answer to one for each token, after retrain.

Uncertainty is surprisal S = -logprob of the sampled token. All arrays are [rows, tokens]; `written` is true for tokens that
the model wrote, `planning` for those of them that belong to a plan.

| name | what it does to the tokens of an answer with advantage A |
|---|---|
| `none` | A for every token |
| `gtpo` | A * max(0, 1 + beta * (S / (mean S + 1e-8) - 1)); uniform if beta is 0 or mean S < 1e-7 |
| `gtpo_hicra` | the same, then + alpha * abs(A) on planning tokens |
| `gtpo_sepa` | S of execution tokens is pooled first: lambda * mean(S of execution) + (1 - lambda) * S |

`gtpo` is retrain's name. The paper of that name (arXiv 2508.04349) redistributes rewards over the group at each position;
this weights tokens inside one answer, and `entropy_weighted` is accepted as a name for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from bakeoff.workloads.language.advantages import Floats

Bools = npt.NDArray[np.bool_]
Transform = Literal["none", "gtpo", "gtpo_hicra", "gtpo_sepa"]
NAMES: tuple[str, ...] = get_args(Transform)
FORMULAS: dict[str, str] = {
    "none": "A",
    "gtpo": "A * max(0, 1 + {beta:g} * (S / (mean S + 1e-8) - 1))",
    "gtpo_hicra": "A * max(0, 1 + {beta:g} * (S / (mean S + 1e-8) - 1)), then + {alpha:g} * abs(A) on planning tokens",
    "gtpo_sepa": "as gtpo with {beta:g}, S of execution tokens pooled by lambda within an answer",
}


def token_advantages(
    name: str,
    advantages: Floats,
    surprisal: Floats,
    written: Bools,
    planning: Bools,
    *,
    beta: float = 0.1,
    alpha: float = 0.2,
    pooling: float = 0.0,
) -> Floats:
    """`advantages` [rows] for each token. `pooling` is lambda of `gtpo_sepa`. Tokens that were not written get 0."""
    uniform = np.where(written, advantages[:, None], 0.0)
    if name == "none":
        return uniform
    if name == "gtpo_sepa":
        surprisal = pooled(surprisal, written & ~planning, pooling)
    mean = _mean(surprisal, written)[:, None]
    weights = np.maximum(0.0, 1 + beta * (surprisal / (mean + 1e-8) - 1))
    weighted = np.where((mean < 1e-7) | (beta == 0), uniform, uniform * weights)
    if name == "gtpo_hicra":
        weighted = np.where(planning & written, weighted + alpha * np.abs(weighted), weighted)
    return weighted


def pooled(surprisal: Floats, execution: Bools, pooling: float) -> Floats:
    """Execution tokens' surprisal, moved towards its mean within the row by `pooling`, which is clipped to [0, 1]."""
    share = min(max(pooling, 0.0), 1.0)
    mean = _mean(surprisal, execution)[:, None]
    return np.where(execution, share * mean + (1 - share) * surprisal, surprisal)


def _mean(values: Floats, where: Bools) -> Floats:
    """[rows]; 0 for a row without such tokens."""
    return np.asarray((values * where).sum(axis=1) / np.maximum(where.sum(axis=1), 1))


def spread(surprisal: Floats, where: Bools) -> tuple[float, float] | None:
    """Population mean and variance over the tokens; None if there are none."""
    chosen = surprisal[where]
    return (float(chosen.mean()), float(chosen.var())) if chosen.size else None


@dataclass(slots=True)
class Pooling:
    """The controller of lambda in `gtpo_sepa`.

    `linear` rises from 0 at step `delay` to 1 over `steps`. `auto` also follows the variance of execution surprisal, as
    an average over answers: lambda is at least 1 - min(variance / variance after warm-up / 0.2, 1). Before the first step
    whose correct rate reaches `gate`, lambda is 0; the linear clock goes on meanwhile, so lambda may jump when it opens.
    """

    schedule: Literal["linear", "auto"] = "linear"
    steps: int = 500
    delay: int = 50
    gate: float = 0.1
    warmup: int = 50
    """Answers, not steps, before the variance to compare with is fixed; so it is in retrain."""
    decay: float = 0.99
    threshold: float = 0.2
    average: float | None = None
    reference: float | None = None
    answers: int = 0
    is_open: bool = False

    def __post_init__(self) -> None:
        self.is_open = self.is_open or self.gate <= 0

    def at(self, step: int) -> float:
        """Lambda of a step, from what was observed before it."""
        if not self.is_open:
            return 0.0
        linear = min(max((step - self.delay) / self.steps, 0.0), 1.0) if self.steps > 0 else 0.0
        if self.schedule == "linear" or self.reference is None or self.average is None:
            return linear
        return max(1 - min(self.average / self.reference / self.threshold, 1.0), linear)

    def observe(self, correct_rate: float, variances: Floats) -> None:
        """After a step: its correct rate, and the variance of execution surprisal in each of its answers."""
        self.is_open = self.is_open or correct_rate >= self.gate
        if self.schedule != "auto":
            return
        for variance in variances.tolist():
            kept = self.average
            self.average = variance if kept is None else self.decay * kept + (1 - self.decay) * variance
            self.answers += 1
            if self.answers == self.warmup:
                self.reference = max(self.average, 1e-8)


def row_variances(surprisal: Floats, execution: Bools) -> Floats:
    """Population variance of execution surprisal of each row that has such tokens."""
    mean = _mean(surprisal, execution)
    variances = _mean((surprisal - mean[:, None]) ** 2, execution)
    return np.asarray(variances[execution.any(axis=1)])
