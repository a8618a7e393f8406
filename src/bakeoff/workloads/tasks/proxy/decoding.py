"""JSON that somebody else wrote."""

from __future__ import annotations

import json

import msgspec

from bakeoff.workloads.tasks.proxy.wire.face import Json


def json_object(text: bytes) -> Json | str:
    """The object, or what is wrong with it."""
    try:
        found = _decoded(text)
    except (ValueError, RecursionError) as error:
        return f"the body is not JSON: {error}"
    return found if isinstance(found, dict) else "the body must be a JSON object"


def _decoded(text: bytes) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # Clients cut text in the middle of a character and send half of it, which only the lenient parser takes.
        whole = json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace")
        return msgspec.json.decode(whole)
