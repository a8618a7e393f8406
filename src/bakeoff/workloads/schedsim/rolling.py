"""Quantiles of the last so many observations, kept sorted: looking costs nothing and adding very little."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

LENGTH = 1000


class Rolling:
    __slots__ = ("_recent", "_sorted", "_total")

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []
        self._total = 0

    def add(self, value: int) -> None:
        recent, ordered = self._recent, self._sorted
        if len(recent) == LENGTH:
            oldest = recent.popleft()
            del ordered[bisect_left(ordered, oldest)]
            self._total -= oldest
        recent.append(value)
        insort(ordered, value)
        self._total += value

    def __len__(self) -> int:
        return len(self._sorted)

    def quantile(self, share: float, default: int) -> int:
        """The value at place floor(share * n); `default` before there is any."""
        ordered = self._sorted
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else default

    def mean(self, default: float) -> float:
        return self._total / len(self._sorted) if self._sorted else default
