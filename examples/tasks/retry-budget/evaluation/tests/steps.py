"""What the hidden tests share: a clock that writes down every pause, and a call that fails for a while."""


class Clock:
    def __init__(self, cost=0.0):
        self.time, self.cost, self.pauses = 100.0, cost, []

    def now(self):
        return self.time

    def sleep(self, seconds):
        assert seconds > 0, "a pause of nothing is no pause"
        self.pauses.append(seconds)
        self.time += seconds


class Call:
    """Fails `failures` times, then returns "done"; every call takes `clock.cost` seconds."""

    def __init__(self, failures, clock, error=OSError):
        self.failures, self.clock, self.error, self.made = failures, clock, error, 0

    def __call__(self):
        self.made += 1
        self.clock.time += self.clock.cost
        if self.made <= self.failures:
            raise self.error(f"failure {self.made}")
        return "done"
