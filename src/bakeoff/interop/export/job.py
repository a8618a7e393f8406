"""One export under way: what is to be written and where, and what has been written so far."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.interop.export.dialogue import Dialogue, Unspeakable, dialogue
from bakeoff.interop.export.rollouts import Rollout
from bakeoff.text import standard

Emit = Callable[[Any], None]
_JSON = msgspec.json.Encoder()


@dataclass(slots=True)
class Job:
    experiment: str
    edition: str
    groups: Sequence[Sequence[Rollout]]
    place: Path
    """A file, or a directory that is there and empty."""
    render: bool
    with_truth: bool
    dropped: Counter[str]
    rows: int = 0
    rollouts: int = 0
    kept: set[str] = field(default_factory=set)
    """Groups that something was written of."""

    def dialogues(self, group: Sequence[Rollout]) -> Iterator[tuple[Rollout, Dialogue]]:
        """The rollouts of a group that can be told as conversations, one in memory at a time."""
        for rollout in group:
            try:
                found = dialogue(rollout.steps(), render=self.render)
            except Unspeakable as reason:
                self.dropped[str(reason)] += 1
                continue
            self.count(rollout)
            yield rollout, found

    def count(self, rollout: Rollout) -> None:
        self.rollouts += 1
        self.kept.add(rollout.group)

    @contextmanager
    def lines(self, path: Path) -> Iterator[Emit]:
        """`emit(value)` writes one line of JSON."""
        with path.open("w", encoding="utf-8", newline="\n") as file:

            def emit(value: Any) -> None:
                file.write(to_json(value) + "\n")
                self.rows += 1

            yield emit


def to_json(value: Any) -> str:
    """Standard JSON, which every reader takes: what is no number is null."""
    try:
        return _JSON.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):  # half of a surrogate pair, or a number of more than 64 bits
        return json.dumps(standard(value), separators=(",", ":"), default=str)
