import pytest
from patient import GaveUp, retry
from steps import Call, Clock


def test_no_pause_after_the_last_attempt():
    clock = Clock()
    with pytest.raises(GaveUp):
        retry(Call(99, clock), attempts=4, base=1, clock=clock)
    assert clock.pauses == [1, 2, 4]


def test_a_single_attempt_never_pauses():
    clock = Clock()
    with pytest.raises(GaveUp):
        retry(Call(99, clock), attempts=1, clock=clock)
    assert clock.pauses == []


def test_a_pause_that_would_end_after_the_deadline_is_not_begun():
    clock = Clock()
    with pytest.raises(GaveUp):
        retry(Call(99, clock), attempts=9, base=2, deadline=10, clock=clock)
    assert clock.pauses == [2, 4]


def test_a_pause_may_end_exactly_at_the_deadline():
    clock = Clock()
    call = Call(3, clock)
    assert retry(call, attempts=9, base=2, deadline=14, clock=clock) == "done"
    assert clock.pauses == [2, 4, 8]


def test_the_time_that_calls_take_counts():
    clock = Clock(cost=3)
    with pytest.raises(GaveUp):
        retry(Call(99, clock), attempts=9, base=1, factor=1, deadline=10, clock=clock)
    assert clock.pauses == [1, 1]


def test_the_cap_is_what_counts_against_the_deadline():
    clock = Clock()
    call = Call(4, clock)
    assert retry(call, attempts=9, base=4, factor=10, cap=5, deadline=19, clock=clock) == "done"
    assert clock.pauses == [4, 5, 5, 5]


def test_no_time_at_all_means_one_attempt():
    clock = Clock()
    call = Call(99, clock)
    with pytest.raises(GaveUp):
        retry(call, attempts=9, base=1, deadline=0, clock=clock)
    assert (call.made, clock.pauses) == (1, [])
