import pytest
from patient import GaveUp, retry
from steps import Call, Clock


def given_up(**settings):
    clock = Clock()
    call = Call(99, clock)
    with pytest.raises(GaveUp) as raised:
        retry(call, clock=clock, **settings)
    return raised.value, call


@pytest.mark.parametrize(("settings", "made"), [({"attempts": 4}, 4), ({"attempts": 9, "base": 2, "deadline": 3}, 2)])
def test_attempts_are_those_that_were_made(settings, made):
    error, call = given_up(**settings)
    assert error.attempts == call.made == made
    assert f"{made} attempts" in str(error)


def test_the_last_error_is_kept_and_is_the_cause():
    error, _ = given_up(attempts=3)
    assert str(error.last) == "failure 3"
    assert error.__cause__ is error.last


def test_fewer_than_one_attempt_is_refused_before_anything_is_called():
    clock = Clock()
    call = Call(0, clock)
    with pytest.raises(ValueError, match="attempts"):
        retry(call, attempts=0, clock=clock)
    assert call.made == 0


def test_other_errors_pass_at_once():
    clock = Clock()
    call = Call(99, clock, error=KeyError)
    with pytest.raises(KeyError):
        retry(call, retry_on=(OSError,), clock=clock)
    assert (call.made, clock.pauses) == (1, [])
