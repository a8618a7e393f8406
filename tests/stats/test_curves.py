from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.stats.curves import (
    Reduction,
    Window,
    area,
    common_grid,
    exponential_average,
    reduce_series,
    restricted_times,
    series,
)


def reduced(steps, values, **summary) -> float:
    return reduce_series(steps, values, Reduction(**summary)).value


def test_the_area_of_a_straight_line_is_its_middle() -> None:
    assert reduced([0, 10], [0, 4], kind="auc") == pytest.approx(2.0)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30), st.floats(0.05, 1.0))
@settings(max_examples=60)
def test_the_area_of_a_window_is_that_of_a_finely_sampled_curve(values: list[float], share: float) -> None:
    steps = np.cumsum(np.arange(1, len(values) + 1, dtype=float))
    ours = reduced(steps, values, kind="auc", window=Window(last=share))
    low = steps[-1] - share * (steps[-1] - steps[0])
    fine = np.unique(np.concatenate((np.linspace(low, steps[-1], 200), steps[steps >= low])))
    assert ours == pytest.approx(np.trapezoid(np.interp(fine, steps, values), fine) / (steps[-1] - low), abs=1e-9)


def test_windows_count_steps_and_not_rows() -> None:
    dense = np.concatenate((np.linspace(0, 50, 501), [100.0]))
    values = np.where(dense <= 50, 0.0, 1.0)
    # The last half of the steps holds one of 502 rows.
    assert reduced(dense, values, kind="auc", window=Window(last=0.5)) == pytest.approx(0.5)
    assert reduced(dense, values, kind="mean", window=Window(last=0.4)) == 1.0


def test_logging_twice_as_often_does_not_change_the_area() -> None:
    steps = np.linspace(0, 100, 11)
    values = steps**2
    finer = np.linspace(0, 100, 21)
    line = np.interp(finer, steps, values)
    for window in (Window(), Window(first=0.33), Window(start=15, end=72)):
        assert reduced(steps, values, window=window) == pytest.approx(reduced(finer, line, window=window))


def test_each_summary_is_what_its_name_says() -> None:
    steps, values = np.arange(6.0), np.array([0.0, 1.0, 5.0, 3.0, 4.0, 2.0])
    assert reduced(steps, values, kind="final", n=2) == 3.0
    assert reduced(steps, values, kind="mean") == 2.5
    assert reduced(steps, values, kind="best") == 5.0
    assert reduced(steps, values, kind="best", larger_is_better=False) == 0.0
    assert reduced(steps, values, kind="percentile", q=50) == 2.5
    assert reduced(steps, values, kind="slope") == pytest.approx(np.polyfit(steps, values, 1)[0])
    assert reduced(steps, values, kind="slope", window=Window(first=0.4)) == pytest.approx(2.5)


def test_a_slope_over_millions_of_steps_keeps_its_digits() -> None:
    steps = 1e9 + np.arange(50) * 1e6
    assert reduced(steps, 3e-7 * (steps - 1e9) + 2.0, kind="slope") == pytest.approx(3e-7, rel=1e-9)


def test_the_time_to_a_threshold_is_interpolated_or_censored() -> None:
    steps, values = [0, 10, 20, 30], [0.0, 1.0, 3.0, 2.0]
    hit = reduce_series(steps, values, Reduction(kind="time_to_threshold", threshold=2.0))
    assert (hit.value, hit.censored) == (15.0, False)
    never = reduce_series(steps, values, Reduction(kind="time_to_threshold", threshold=9.0))
    assert (never.value, never.censored) == (30.0, True)
    loss = reduce_series(
        steps, [4.0, 3.0, 1.0, 1.0], Reduction("time_to_threshold", threshold=2.0, larger_is_better=False)
    )
    assert loss.value == 15.0
    assert reduce_series(steps, values, Reduction(kind="time_to_threshold", threshold=-1.0)).value == 0.0
    with pytest.raises(ValueError, match="threshold"):
        reduce_series(steps, values, Reduction(kind="time_to_threshold"))


def test_runs_that_never_arrive_count_with_the_common_horizon() -> None:
    times = restricted_times([5.0, 7.0, 100.0], [True, True, False], [100.0, 100.0, 100.0])
    assert times.tolist() == [5.0, 7.0, 100.0]
    with pytest.raises(ValueError, match="unequal horizons"):
        restricted_times([5.0, 80.0], [True, False], [100.0, 80.0])
    with pytest.raises(ValueError, match="after the horizon"):
        restricted_times([120.0, 80.0], [True, False], [100.0, 100.0])


def test_a_run_that_died_early_is_not_averaged_over_what_it_survived() -> None:
    with pytest.raises(ValueError, match="covers steps"):
        reduced([0, 50], [1, 1], window=Window(start=0, end=100))
    assert reduced([1, 98], [1, 1], window=Window(start=0, end=100)) == 1.0


def test_of_two_values_at_one_step_the_later_stays_and_order_does_not_matter() -> None:
    s, v = series([2, 0, 2, 1], [9.0, 1.0, 5.0, 3.0])
    assert s.tolist() == [0, 1, 2] and v.tolist() == [1.0, 3.0, 5.0]


def test_smoothing_averages_what_came_before() -> None:
    v = np.array([1.0, 2.0, 6.0, 3.0])
    assert exponential_average(v, 0.5) == pytest.approx([1.0, 5 / 3, 29 / 7, 3.533333333])


def test_runs_are_brought_onto_the_steps_they_share() -> None:
    grid, values = common_grid(
        [(np.array([0.0, 10.0]), np.array([0.0, 10.0])), (np.array([5.0, 20.0]), np.array([1.0, 1.0]))], 3
    )
    assert grid.tolist() == [5.0, 7.5, 10.0]
    assert values.tolist() == [[5.0, 7.5, 10.0], [1.0, 1.0, 1.0]]


def test_one_point_has_its_value_for_an_area() -> None:
    assert area(np.array([3.0]), np.array([7.0]), 3.0, 3.0) == 7.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: reduced([0, 1], [0.0, np.nan]),
        lambda: reduced([0, 1, 2], [0.0, 1.0]),
        lambda: reduced([], []),
        lambda: reduced([1, 1], [0.0, 1.0], kind="slope"),
        lambda: reduced([0, 1], [0.0, 1.0], kind="final", n=0),
        lambda: reduced([0, 1], [0.0, 1.0], kind="median"),
        lambda: Window(first=0.5, last=0.5),
        lambda: Window(last=25.0),
        lambda: Window(start=5, end=5),
        lambda: Window(first=0.2, end=10),
        lambda: exponential_average(np.ones(3), 1.0),
    ],
)
def test_series_and_windows_that_make_no_sense_are_refused(call) -> None:
    with pytest.raises(ValueError):
        call()
