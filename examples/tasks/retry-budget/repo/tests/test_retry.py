import pytest
from patient import GaveUp, retry


class FakeClock:
    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds


def test_the_first_success_is_returned():
    answers = iter([OSError("no"), "yes"])

    def call():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert retry(call, clock=FakeClock()) == "yes"


def test_it_gives_up():
    def call():
        raise OSError("no")

    with pytest.raises(GaveUp):
        retry(call, clock=FakeClock())
