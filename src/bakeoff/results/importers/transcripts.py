"""What was said in a run of another tool: messages of any of the usual shapes, read when somebody opens the run.

An importer gives each run a function from its `Source` to its messages, the same one for all runs of a file. `Unchanged` is
put around it, so that a file which was written again since is refused and not read as if it were the old one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

from bakeoff.errors import UsageError
from bakeoff.results.importers.foreign import Message, Source, Transcript

T = TypeVar("T")
FileState = tuple[int, int, int]
"""Size and times of a file. A changed content has another time of change, also where the other time was set back."""


def file_state(path: Path) -> FileState | None:
    """Return what changes when a file is written; None for directories and for what is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns) if S_ISREG(status.st_mode) else None


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Reads the messages of runs in one file, while it is the file that the runs were read from."""

    read: Transcript
    path: Path
    state: FileState
    """As it was before the runs were read."""

    def __call__(self, source: Source) -> Sequence[Message]:
        """Raise UsageError where the file has changed, or the messages cannot be read."""
        self._check()
        try:
            messages = self.read(source)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            self._check()
            reason = str(error).partition("\n")[0]
            raise UsageError(f"{source}: its messages cannot be read: {type(error).__name__}: {reason}") from error
        self._check()
        return messages

    def _check(self) -> None:
        if file_state(self.path) != self.state:
            raise UsageError(
                f"{self.path} changed since its runs were read; read it again to see what was said in them"
            )


def latest(parse: Callable[[Path], T]) -> Callable[[Path], T]:
    """Keep what `parse` made of the last file, until that changes: messages of a file's runs are read one run after the other."""

    @lru_cache(maxsize=1)
    def parsed(path: Path, state: FileState | None) -> T:
        return parse(path)

    return lambda path: parsed(path, file_state(path))


def conversation(value: Any, role: str) -> list[Message]:
    """Return a prompt or an answer as messages: text, a list of messages, or JSON text of such a list."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            decoded = json.loads(value)
        except ValueError:
            decoded = value
        value = decoded if _is_conversation(decoded) else value
    if _is_conversation(value):
        return [message_of(each) for each in value]
    return [] if value is None else [Message(role, value if isinstance(value, str) else json.dumps(value))]


def _is_conversation(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) and "role" in each for each in value)


def message_of(table: Mapping[str, Any]) -> Message:
    """Return a message as chat interfaces and tools write it: content is text or parts, and calls have any of their shapes."""
    parts = table.get("content")
    parts = parts if isinstance(parts, list) else [parts]
    reasoning = [part["reasoning"] for part in parts if isinstance(part, Mapping) and part.get("reasoning")]
    own = table.get("reasoning_content") or table.get("reasoning")
    texts = [_text(part) for part in parts if not (isinstance(part, Mapping) and part.get("type") == "reasoning")]
    return Message(
        str(table.get("role") or "message"),
        "\n".join(text for text in texts if text),
        tuple(_call(call) for call in table.get("tool_calls") or ()),
        table.get("tool_call_id"),
        own if isinstance(own, str) else "\n".join(map(str, reasoning)),
    )


def _text(part: Any) -> str:
    """Return the text of a part of a message; of an image or another part only its type."""
    if part is None or isinstance(part, str):
        return part or ""
    if isinstance(part, Mapping):
        return str(part["text"]) if part.get("text") is not None else f"[{part.get('type', 'no text')}]"
    return json.dumps(part)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call in the shape of the chat-completions interface."""
    function = call.get("function")
    table = function if isinstance(function, Mapping) else call
    name = function if isinstance(function, str) else table.get("name") or table.get("function_name")
    arguments = table.get("arguments")
    return {
        "id": str(call.get("id") or call.get("tool_call_id") or ""),
        "type": "function",
        "function": {
            "name": str(name or ""),
            "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments or {}),
        },
    }
