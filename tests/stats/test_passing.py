from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.passing import pass_at_k, pass_hat_k


@given(st.integers(1, 9), st.data())
def test_pass_at_k_and_pass_hat_k_count_subsets_of_attempts(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    outcomes = [1] * c + [0] * (n - c)
    subsets = list(itertools.combinations(outcomes, k))
    assert float(pass_at_k(c, n, k)) == pytest.approx(np.mean([any(s) for s in subsets]))
    assert float(pass_hat_k(c, n, k)) == pytest.approx(np.mean([all(s) for s in subsets]))


def test_pass_at_k_works_task_by_task_and_with_many_attempts() -> None:
    assert pass_at_k([0, 5, 10], [10, 10, 10], 1) == pytest.approx([0.0, 0.5, 1.0])
    assert float(pass_at_k(5, 100_000, 50)) == pytest.approx(1 - stats.hypergeom.pmf(0, 100_000, 5, 50), rel=1e-9)


@pytest.mark.parametrize(("c", "n", "k"), [(3, 2, 1), (1, 2, 3), (1, 2, 0), (-1, 2, 1), (0.5, 2, 1)])
def test_counts_that_make_no_sense_are_refused(c: float, n: int, k: int) -> None:
    with pytest.raises(ValueError, match="attempts"):
        pass_at_k(c, n, k)
