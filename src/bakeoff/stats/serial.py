"""Whether neighbours in a sequence are more alike than chance allows: rows of one curve are, independent repeats are not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from bakeoff.stats.numerics import Array

DRAWS = 9_999
BATCH = 99
MAX_VALUES = 5_000
"""Values beyond which further groups are left out: so many show any dependence that matters."""


def neighbours_alike(groups: Sequence[Array], alpha: float, seed: int = 0) -> float | None:
    """Return the mean von Neumann ratio of the groups where it is smaller than chance allows at `alpha`, else None.

    The ratio of a group is the sum of squared differences between neighbours over that of squares about the mean: 2 for
    independent values in any order, towards 0 for a curve (von Neumann, Ann. Math. Statist. 1941). Values are permuted
    inside their group, which is exact for exchangeable ones, tied ones too. Constant groups say nothing.
    """
    by_size: dict[int, list[Array]] = defaultdict(list)
    total = 0
    for values in groups:
        centred = values - values.mean()
        spread = float(np.sqrt((centred**2).sum()))
        if spread > 1e-12 * float(np.abs(values).max(initial=0.0)) and total < MAX_VALUES:
            by_size[len(values)].append(centred / spread)
            total += len(values)
    stacks = [np.stack(each) for each in by_size.values()]
    if not stacks:
        return None
    observed = sum(float((np.diff(each) ** 2).sum()) for each in stacks)
    rng = np.random.default_rng(seed)
    at_most = int(alpha * (DRAWS + 1)) - 1  # rearrangements as extreme as the observed one, which counts itself
    extreme = 0
    for _ in range(DRAWS // BATCH):
        drawn = np.zeros(BATCH)
        for each in stacks:
            shuffled = rng.permuted(np.broadcast_to(each, (BATCH, *each.shape)), axis=2)
            drawn += (np.diff(shuffled) ** 2).sum(axis=(1, 2))
        extreme += int((drawn <= observed * (1 + 1e-9)).sum())
        if extreme > at_most:
            return None
    return observed / sum(len(each) for each in stacks)
