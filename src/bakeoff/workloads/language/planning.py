"""Which tokens of an answer are planning.

`exact` knows from the task: words of a plan are planning tokens and occur nowhere else. `phrases` is retrain's detector,
with its habits: from every position a window grows by one token until one of the phrases is found anywhere in it, and
then all of the window is planning. So it also marks up to four tokens in front of a phrase.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from bakeoff.workloads.language.tasks import Task

SHORTEST_WINDOW = 5


class Detector:
    """`phrases` None: exact. Call it with token ids [rows, tokens]."""

    def __init__(self, task: Task, phrases: Sequence[str] | None = None) -> None:
        self._task = task
        self._phrases = tuple(phrases) if phrases is not None else None
        if self._phrases is not None:
            task.check_phrases(self._phrases)
        self._ids = np.array(task.planning_ids)

    def __call__(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Planning tokens; what follows the end of an answer is never one."""
        if self._phrases is None:
            return np.isin(ids, self._ids)
        marked = np.zeros(ids.shape, dtype=bool)
        for row, tokens in enumerate(ids.tolist()):
            words = tuple(self._task.decode(tokens).split())
            marked[row, : len(words)] = found(words, self._phrases)
        return marked


@lru_cache(maxsize=100_000)
def found(words: tuple[str, ...], phrases: tuple[str, ...]) -> tuple[bool, ...]:
    """Mark the tokens of one answer. `\\b` does not hold beside a symbol, but phrases are words."""
    pattern = re.compile("|".join(rf"\b{re.escape(phrase.strip())}\b" for phrase in phrases), re.IGNORECASE)
    longest = max(SHORTEST_WINDOW, *(len(phrase.split()) for phrase in phrases))
    marked = [False] * len(words)
    for start in range(len(words)):
        for end in range(start + 1, min(start + longest, len(words)) + 1):
            if pattern.search(" ".join(words[start:end])):
                marked[start:end] = [True] * (end - start)
                break
    return tuple(marked)
