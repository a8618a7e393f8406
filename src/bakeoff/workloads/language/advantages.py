"""Advantages of the answers in a group: rewards [groups, group size] in, advantages of the same shape out.

The same word means different things elsewhere, so every run records its formula (`FORMULAS`):

| name | formula | who else calls it that |
|---|---|---|
| `grpo` | (r - mean) / (sd + 1e-4), sd with n - 1 | TRL 1.16 with `scale_rewards="group"`; verl has 1e-6 |
| `dr_grpo` | r - mean | retrain calls this `grpo` |
| `maxrl` | (r - mean) / (mean + 1e-6), zeros where mean <= 1e-6 | Tajwar et al., arXiv 2602.02710; the zeros are retrain's |
| `reinforce` | r - mean over the batch | no groups: a batch baseline |
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Advantage = Literal["grpo", "dr_grpo", "maxrl", "reinforce"]
NAMES: tuple[str, ...] = get_args(Advantage)
FORMULAS: dict[str, str] = {
    "grpo": "(r - mean) / (sd + 1e-4), sd with n - 1",
    "dr_grpo": "r - mean",
    "maxrl": "(r - mean) / (mean + 1e-6), zeros where mean <= 1e-6",
    "reinforce": "r - mean over the batch",
}


def advantages(name: str, rewards: Floats) -> Floats:
    """Raises ValueError for `maxrl` with negative rewards, whose advantages would be zero or have the wrong sign."""
    mean = rewards.mean(axis=1, keepdims=True)
    match name:
        case "grpo":
            return np.asarray((rewards - mean) / (rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4))
        case "dr_grpo":
            return np.asarray(rewards - mean)
        case "maxrl":
            if (rewards < 0).any():
                raise ValueError(
                    "maxrl needs rewards of 0 or more: with negative ones it trains nothing, or the wrong way"
                )
            return np.where(mean > 1e-6, (rewards - mean) / (mean + 1e-6), 0.0)
        case "reinforce":
            return np.asarray(rewards - rewards.mean())
    raise ValueError(f"no advantage called {name!r}; there are {', '.join(NAMES)}")


def informative(rewards: Floats) -> npt.NDArray[np.bool_]:
    """[groups]: whether rewards differ inside the group. Others have no advantage but against other groups."""
    return np.asarray(np.ptp(rewards, axis=1) > 0)


def expected_informative(rewards: Floats) -> float:
    """The share of groups expected to be informative if every prompt had the batch's success rate: 1 - p^G - (1-p)^G.

    A lower real share means that prompts differ in difficulty, not that training has converged.
    """
    rate, size = float((rewards > 0.5).mean()), rewards.shape[1]
    return float(1 - rate**size - (1 - rate) ** size)
