"""What goes into an edition and comes out of it: a try's result, a run to be done, metrics as text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from bakeoff.records.trajectory import TrajectoryIndex

if TYPE_CHECKING:  # readers of results need no pydantic models, which take longer to import than a table to read
    from bakeoff.spec.workload import Scalar, Status

_JSON = msgspec.json.Encoder()


@dataclass(slots=True)
class Result:
    """What came of one try of one run."""

    position: int
    run_id: str
    attempt: int
    status: Status
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    error: str | None = None
    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    series: bytes | None = None
    trajectory: TrajectoryIndex | None = None
    command: str | None = None
    final: bool = True
    """False when the run is tried again: the attempt is kept, the run stays planned."""


OPEN = ("planned", "running", "cancelled", "infra_error")
FAILED = ("failed", "timeout")


def encode_metrics(metrics: Mapping[str, Scalar]) -> str | None:
    """JSON text; NaN and infinities as Python's json writes them, since standard JSON would lose them."""
    if not metrics:
        return None
    for value in metrics.values():
        if isinstance(value, float) and not math.isfinite(value):
            return json.dumps(dict(metrics))
    try:
        return _JSON.encode(metrics).decode()
    except (UnicodeEncodeError, OverflowError):  # half of a surrogate pair, or a number of more than 64 bits
        storables = {name: storable(value) if isinstance(value, str) else value for name, value in metrics.items()}
        return json.dumps(storables)


def storable(text: str | None) -> str | None:
    """Text that both databases take: what a run says may hold anything."""
    if text is None:
        return None
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def decode_metrics(text: str | None) -> dict[str, Scalar]:
    if not text:
        return {}
    try:
        found: dict[str, Scalar] = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = json.loads(text)
    return found
