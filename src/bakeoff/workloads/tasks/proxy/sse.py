"""Server-sent events, cut out of a byte stream as they come."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bakeoff.workloads.tasks.proxy.decoding import json_object

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE = re.compile(rb"\r\n|\n|\r")
LARGEST = 64 << 20
"""Bytes of one event."""


@dataclass(frozen=True, slots=True)
class Event:
    raw: bytes
    """With the empty line that ends it."""
    name: str
    data: dict[str, Any] | None
    """None when the data is no JSON object, as in `[DONE]`."""


class Endless(Exception):
    """An event that does not come to an end."""


class EventReader:
    """`secrets` are taken out of every event before anybody sees it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = [secret.encode() for secret in secrets]
        self._pending = bytearray()
        self._seen = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes."""
        self._pending += chunk
        events, start = [], 0
        for match in _END.finditer(self._pending, max(0, self._seen - 3)):
            events.append(_event(without(bytes(self._pending[start : match.end()]), self._secrets)))
            start = match.end()
        del self._pending[:start]
        if len(self._pending) > LARGEST:
            raise Endless
        self._seen = len(self._pending)
        return events

    @property
    def rest(self) -> bytes:
        """What came after the last whole event."""
        return without(bytes(self._pending), self._secrets)


def without(text: bytes, secrets: Iterable[bytes]) -> bytes:
    for secret in secrets:
        text = text.replace(secret, b"[key]")
    return text


def _event(raw: bytes) -> Event:
    name, data = "", []
    for line in _LINE.split(raw):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode(errors="replace")
        elif field == b"data":
            data.append(value)
    found = json_object(b"\n".join(data))
    return Event(raw, name, found if isinstance(found, dict) else None)
