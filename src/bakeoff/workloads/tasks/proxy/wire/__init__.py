"""The three APIs that agents' clients speak.

| module | API |
|---|---|
| `base` | what the proxy needs to know about an API; the shape in which messages are recorded |
| `chat` | OpenAI chat completions, which most servers offer |
| `responses` | OpenAI responses |
| `messages` | Anthropic messages |
"""

from __future__ import annotations

from bakeoff.workloads.tasks.proxy.wire.base import Wire, WireName
from bakeoff.workloads.tasks.proxy.wire.chat import Chat
from bakeoff.workloads.tasks.proxy.wire.messages import Messages
from bakeoff.workloads.tasks.proxy.wire.responses import Responses

WIRES: dict[WireName, Wire] = {"chat": Chat(), "responses": Responses(), "messages": Messages()}


def wire_at(path: str) -> Wire | None:
    """The API at this request path, with or without the `/v1` that some clients add to the base URL.

    None for others.
    """
    rest = path.strip("/").removeprefix("v1/")
    return next((wire for wire in WIRES.values() if rest == wire.path), None)
