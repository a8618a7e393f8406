import pytest
from steps import retried


@pytest.mark.parametrize(("settings", "made"), [({"attempts": 4}, 4), ({"attempts": 9, "base": 2, "deadline": 3}, 2)])
def test_attempts_are_those_that_were_made(settings, made):
    came = retried(99, **settings)
    assert (came["raised"], came["attempts"], came["made"]) == ("GaveUp", made, made)
    assert f"{made} attempts" in came["text"]


def test_the_last_error_is_kept_and_is_the_cause():
    came = retried(99, attempts=3)
    assert (came["last"], came["cause"]) == ("failure 3", True)


def test_fewer_than_one_attempt_is_refused_before_anything_is_called():
    came = retried(0, attempts=0)
    assert (came["raised"], came["made"]) == ("ValueError", 0)
    assert "attempts" in came["text"]


def test_other_errors_pass_at_once():
    came = retried(99, error="KeyError", retry_on=["OSError"])
    assert (came["raised"], came["made"], came["pauses"]) == ("KeyError", 1, [])
