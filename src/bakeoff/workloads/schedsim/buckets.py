"""An exact, continuous token bucket in whole numbers: no drift, no burst above its size, the same on every machine."""

from __future__ import annotations

TOKEN = 1_000_000_000
"""One token in the bucket's own units: a rate of one per second is then 1000 units each microsecond."""


class Bucket:
    __slots__ = ("_at", "_level", "rate", "size")

    def __init__(self, rate: float, size: int) -> None:
        """`rate` in tokens per second, to the thousandth; it starts full."""
        self.rate = max(1, round(rate * 1000))
        self.size = size * TOKEN
        self._level = self.size
        self._at = 0

    def level(self, now: int) -> int:
        return min(self.size, self._level + (now - self._at) * self.rate)

    def take(self, now: int) -> int:
        """Take a token and return 0; or take none and return the microseconds until there is one."""
        level = self._level + (now - self._at) * self.rate
        if level > self.size:
            level = self.size
        self._at = now
        if level < TOKEN:
            self._level = level
            return -((level - TOKEN) // self.rate)
        self._level = level - TOKEN
        return 0

    def full_after(self) -> float:
        """Microseconds for one token."""
        return TOKEN / self.rate
