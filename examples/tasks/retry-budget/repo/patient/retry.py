"""Retry with growing pauses."""

from collections.abc import Callable
from typing import TypeVar

from patient.clock import Clock, SystemClock

Value = TypeVar("Value")


class GaveUp(Exception):
    """All attempts failed, or there was no time for another one."""

    def __init__(self, attempts: int, last: BaseException) -> None:
        super().__init__(f"gave up after {attempts} attempts: {last}")
        self.attempts = attempts
        self.last = last


def retry(
    function: Callable[[], Value],
    *,
    attempts: int = 3,
    base: float = 0.5,
    factor: float = 2.0,
    cap: float = 30.0,
    deadline: float | None = None,
    retry_on: tuple[type[BaseException], ...] = (Exception,),
    clock: Clock | None = None,
) -> Value:
    """Call `function` until it returns."""
    clock = clock or SystemClock()
    started = clock.now()
    delay = base
    failure: BaseException = RuntimeError("never called")
    for _ in range(attempts):
        try:
            return function()
        except retry_on as error:
            failure = error
        clock.sleep(min(delay, cap))
        delay *= factor
        if deadline is not None and clock.now() - started > deadline:
            break
    raise GaveUp(attempts, failure)
