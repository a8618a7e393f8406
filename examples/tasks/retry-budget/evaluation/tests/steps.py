"""What the hidden tests share: `retried`, a retry in a process of the work, and what came of it."""

from bakeoff_work import script

# The clock writes down every pause, and the call fails for a while. The work sees this, and nothing of what is expected.
CODE = """
from patient import GaveUp, retry


class Clock:
    def __init__(self, cost):
        self.time, self.cost, self.pauses = 100.0, cost, []

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.time += seconds


class Call:
    def __init__(self, failures, clock, error):
        self.failures, self.clock, self.error, self.made = failures, clock, error, 0

    def __call__(self):
        self.made += 1
        self.clock.time += self.clock.cost
        if self.made <= self.failures:
            raise self.error(f"failure {self.made}")
        return "done"


errors = {"OSError": OSError, "KeyError": KeyError}
clock = Clock(cost)
call = Call(failures, clock, errors[error])
if retry_on:
    settings["retry_on"] = tuple(errors[name] for name in retry_on)
result = {"returned": None, "raised": None}
try:
    result["returned"] = retry(call, clock=clock, **settings)
except GaveUp as gave_up:
    result |= {"raised": "GaveUp", "attempts": gave_up.attempts, "text": str(gave_up), "last": str(gave_up.last)}
    result["cause"] = gave_up.__cause__ is gave_up.last
except Exception as other:
    result |= {"raised": type(other).__name__, "text": str(other)}
result |= {"made": call.made, "pauses": clock.pauses}
"""


def retried(failures, *, cost=0.0, error="OSError", retry_on=(), **settings):
    """`failures` calls raise `error`, the next returns "done"; every call takes `cost` seconds."""
    came = script(CODE, failures=failures, cost=cost, error=error, retry_on=list(retry_on), settings=settings)
    assert all(pause > 0 for pause in came["pauses"]), "a pause of nothing is no pause"
    return came
