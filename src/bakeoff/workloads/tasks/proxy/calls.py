"""The record of every model call: one JSON line each, written when the call ends and safe on disk before the next.

A line holds only what is new in its request (`Place.kept` says how much was known), and tools are written once for
each set of them, so a long conversation costs its length and not the square of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from bakeoff.spec.workload import Tokens
from bakeoff.workloads.tasks.proxy.usage import Usage
from bakeoff.workloads.tasks.proxy.wire.face import Json

End = Literal["answered", "refused", "budget", "upstream", "client"]
"""answered: the model replied. refused: the provider says that the request is wrong. budget: a limit of ours.
upstream: the provider failed, which is no fault of the agent's. client: the agent hung up or sent nonsense."""


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    status: int | None
    """None when there was no answer at all."""
    reason: str
    waited_s: float


class Call(msgspec.Struct, frozen=True, omit_defaults=True, tag="call", tag_field="type"):
    number: int
    wire: str
    end: End
    time_s: float
    """Since the run began."""
    status: int | None = None
    """What the client was answered."""
    provider: str | None = None
    model: str | None = None
    """The provider's name for it."""
    asked_model: str | None = None
    """What the client wanted, where that was something else."""
    stream: bool = False
    conversation: int | None = None
    parent: int | None = None
    branch: bool = False
    kept: int = 0
    """Messages of the request that were known. They are left out, but where a branch begins."""
    messages: list[Json] = []
    tools: str | None = None
    parameters: dict[str, Any] = {}
    reply: Json | None = None
    finish: str | None = None
    usage: Usage | None = None
    tokens: Tokens | None = None
    cost: float | None = None
    first_token_s: float | None = None
    total_s: float = 0.0
    retries: list[Retry] = []
    limit: str | None = None
    """Which budget ended it."""
    error: str | None = None


class ToolSet(msgspec.Struct, frozen=True, tag="tools", tag_field="type"):
    digest: str
    tools: list[Json]


class CallLog:
    """Appends whole lines; a crash can tear only the last."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def add(self, record: Call | ToolSet) -> None:
        line = memoryview(msgspec.json.encode(record) + b"\n")
        while line:
            line = line[os.write(self._file, line) :]
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def read_calls(path: Path) -> Iterator[Call | ToolSet]:
    """What was recorded, up to a torn last line. A run without any call has no file."""
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(Call | ToolSet)
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)
