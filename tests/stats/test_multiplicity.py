from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from bakeoff.stats.multiplicity import benjamini_hochberg, holm

p_values = st.lists(st.floats(0.0, 1.0) | st.sampled_from([0.01, 0.025, 0.05, 0.05 / 3]), min_size=1, max_size=8)


@given(p_values, st.sampled_from([0.01, 0.05, 0.1]))
@settings(max_examples=40, deadline=None)
def test_holm_is_statsmodels(p: list[float], alpha: float) -> None:
    ours = holm(p, alpha)
    rejected, adjusted, *_ = multipletests(p, alpha, method="holm")
    assert ours.adjusted == pytest.approx(adjusted, rel=1e-9, abs=1e-12)
    near = np.isclose(adjusted, alpha, rtol=1e-9)
    assert np.array_equal(np.array(ours.rejected)[~near], rejected[~near])


@given(p_values, st.sampled_from([0.01, 0.05, 0.1]))
def test_holms_levels_adjusted_p_and_rejections_say_the_same(p: list[float], alpha: float) -> None:
    ours = holm(p, alpha)
    for value, adjusted, level, rejected in zip(p, ours.adjusted, ours.levels, ours.rejected, strict=True):
        assert rejected == (value <= level) == (adjusted <= alpha)
        assert alpha / len(p) <= level <= alpha


def test_what_was_not_rejected_carries_the_level_of_the_first_failure() -> None:
    ours = holm([0.2, 0.001, 0.03, 0.04], 0.05)
    assert ours.rejected == (False, True, False, False)
    assert ours.levels == pytest.approx((0.05 / 3, 0.05 / 4, 0.05 / 3, 0.05 / 3))


@given(p_values)
def test_benjamini_hochberg_is_scipys(p: list[float]) -> None:
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("bad", [[0.5, np.nan], [-0.1], [1.1], [[0.1]]])
def test_numbers_that_are_no_p_values_are_refused(bad: list) -> None:
    with pytest.raises(ValueError, match="p-values"):
        holm(bad)
