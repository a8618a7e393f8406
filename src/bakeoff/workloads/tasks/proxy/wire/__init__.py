"""The three APIs that agents' clients speak.

| module | API |
|---|---|
| `face` | what the proxy needs to know of one |
| `chat` | chat completions |
| `responses` | responses |
| `messages` | messages |
"""

from __future__ import annotations

from bakeoff.workloads.tasks.proxy.wire.chat import Chat
from bakeoff.workloads.tasks.proxy.wire.face import Wire, WireName
from bakeoff.workloads.tasks.proxy.wire.messages import Messages
from bakeoff.workloads.tasks.proxy.wire.responses import Responses

WIRES: dict[WireName, Wire] = {"chat": Chat(), "responses": Responses(), "messages": Messages()}


def wire_at(path: str) -> Wire | None:
    """The API that lives at this path, with or without the `/v1` that clients add."""
    rest = path.strip("/").removeprefix("v1/")
    return next((wire for wire in WIRES.values() if rest == wire.path), None)
