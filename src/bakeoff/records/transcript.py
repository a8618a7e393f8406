"""What was said in a run: the messages of its trajectory, and messages as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bakeoff.errors import Damaged
from bakeoff.records.files import is_file_inside
from bakeoff.records.series import read_trajectory

if TYPE_CHECKING:
    from bakeoff.records.recorded import Recorded


class Turn(NamedTuple):
    """One message for people."""

    role: str
    text: str
    calls: list[str]
    """Calls of tools: `name arguments`."""

    def __str__(self) -> str:
        return "\n".join(filter(None, (f"[{self.role}]", self.text, *(f"-> {call}" for call in self.calls))))


def read_messages(path: Path, home: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield the messages of a trajectory, each once, up to the first step that has none. Raises as `read_trajectory` does.

    A policy without a language model has none from the start, however long its trajectory is.
    """
    for step in read_trajectory(path, home):
        if not step.messages:
            return
        # A step may repeat the conversation so far; `copied` says how many of its messages were in earlier steps.
        yield from step.messages[step.info.get("copied", 0) :]


def run_messages(edition: Recorded, position: int) -> Iterator[dict[str, Any]]:
    """Yield what was said in a recorded run; nothing where it has no trajectory, or its file was deleted. Raises Damaged."""
    index = edition.trajectories().get(position)
    home = edition.paths.run(edition.run(position).run_id)
    if index is None or not is_file_inside(home, index.path):
        return
    try:
        yield from read_messages(home / index.path, home)
    except (OSError, ValueError) as error:
        raise Damaged(home / index.path, str(error)) from error


def turn_of(message: Mapping[str, Any]) -> Turn:
    """Return a recorded message, whichever interface it came from, as text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    texts = [part["text"] if isinstance(part, dict) and "text" in part else json.dumps(part) for part in parts]
    text = content if isinstance(content, str) else "\n".join(map(str, texts))
    calls = []
    for call in message.get("tool_calls") or ():
        function = call.get("function", call)
        arguments = function.get("arguments")
        shown = arguments if isinstance(arguments, str) else json.dumps(arguments, indent=1)
        calls.append(f"{function.get('name', '')} {shown}")
    return Turn(str(message.get("role") or "message"), text, calls)
