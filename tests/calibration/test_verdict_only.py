"""`verdict_only=True`, which calibration uses, leaves descriptions out and nothing of the verdict."""

from __future__ import annotations

import numpy as np
import pytest
from calibrate.cells import CROSSED, PAIRED, UNPAIRED, Grid, same_law, three_metrics
from calibrate.laws import LAWS, NORMAL
from calibrate.table import Batch, Judge

from bakeoff.verdicts.comparison import compare

RNG = np.random.default_rng(7)
FAMILIES: list[tuple[Judge, Batch]] = [
    *((PAIRED, same_law(RNG, 3, law, n)) for law in LAWS for n in (5, 12)),
    (PAIRED, three_metrics(RNG, 3, 9)),
    (UNPAIRED, Grid(6, 1, 3, effect=1.0).draw(RNG, 3)),
    (CROSSED, Grid(6, 5, 2, effect=1.0, by_seed=1.0).draw(RNG, 3)),
]


@pytest.mark.parametrize("number", range(len(FAMILIES)))
def test_the_verdict_alone_is_the_same_verdict(number: int) -> None:
    judge, batch = FAMILIES[number]
    for family in judge.tables(batch):
        whole, alone = compare(family), compare(family, verdict_only=True)
        assert [one.decision for one in alone] == [one.decision for one in whole]
        assert [one.effect for one in alone] == [one.effect for one in whole]


def test_the_verdict_alone_has_no_descriptions() -> None:
    (family,) = PAIRED.tables(same_law(RNG, 1, NORMAL, 9))
    (whole,), (alone,) = compare(family), compare(family, verdict_only=True)
    assert whole.skew is not None and whole.detectable.mde is not None and whole.control_mean is not None
    assert alone.skew is None and alone.detectable.mde is None and alone.control_mean is None
