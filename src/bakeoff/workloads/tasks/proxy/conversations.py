"""Which call continues which: a client sends its whole history each time, and only the end of it is new.

A call continues the call whose reply is the last thing that the assistant says in it. Clients rewrite what lies
before (reminders that come and go, other ids, cache marks), so an equal beginning only decides between candidates.
A second call that continues the same reply is a branch; one that continues nothing begins a conversation, which is
how sub-agents and side questions (a title, a summary) are told apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from bakeoff.workloads.tasks.proxy.wire.face import Json, objects


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands among the calls of its run."""

    conversation: int | None
    """None when nothing was answered: it belongs to none yet."""
    parent: int | None
    """The call that it continues."""
    branch: bool
    """The parent was continued before; this call goes another way from there."""
    kept: int
    """Messages of the request that were known already."""


@dataclass(slots=True)
class _Known:
    call: int
    conversation: int | None
    path: list[str]
    """Digests of the request's messages."""
    reply: str
    has_tool_calls: bool
    continued: bool = False


@dataclass(slots=True)
class Conversations:
    """All conversations of one run."""

    _by_call: dict[int, _Known] = field(default_factory=dict)
    _by_reply: dict[str, list[_Known]] = field(default_factory=dict)
    _by_id: dict[str, _Known] = field(default_factory=dict)
    _begun: int = 0

    def add(
        self, call: int, messages: Sequence[Json], previous: str | None, reply: Json | None, id: str | None
    ) -> Place:
        """Where a call that ended belongs. An answer is remembered; a call without one changes nothing."""
        path = [_digest(message) for message in messages]
        begun, place = self._begun, self._place(messages, path, previous)
        if reply is None:
            self._begun = begun
            return Place(None, place.parent, False, place.kept)
        parent = self._by_call.get(place.parent) if place.parent is not None else None
        if parent is not None:
            parent.continued = True
        known = _Known(call, place.conversation, path, _digest(reply), bool(reply.get("tool_calls")))
        self._by_call[call] = known
        self._by_reply.setdefault(known.reply, []).append(known)
        if id:
            self._by_id[id] = known
        return place

    def _place(self, messages: Sequence[Json], path: list[str], previous: str | None) -> Place:
        if previous is not None and (known := self._by_id.get(previous)) is not None:
            repeated = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
            return self._after(known, repeated)  # the server remembers all but its instructions
        last = max((i for i, message in enumerate(messages) if message["role"] == "assistant"), default=None)
        if last is not None:
            candidates = self._by_reply.get(path[last], [])
            ranked = [(_shared(known.path, path, messages), known.call, known) for known in candidates]
            likely = [entry for entry in ranked if entry[0] > 0 or entry[2].has_tool_calls]
            if likely:
                return self._after(max(likely, key=lambda entry: entry[:2])[2], last + 1)
            return self._from_prefix(path, messages)
        again = next((known.call for known in self._by_call.values() if known.path == path), None)
        if again is not None:  # the same question once more: a retry, or several samples of one answer
            return self._begin(branch=True, kept=len(path), parent=again)
        return self._begin(branch=False, kept=0, parent=None)

    def _from_prefix(self, path: list[str], messages: Sequence[Json]) -> Place:
        """The assistant's last words are not ours: the history was rewritten from some point on."""
        shared, known = max(
            ((_shared(known.path, path, messages), known) for known in self._by_call.values()),
            key=lambda entry: (entry[0], entry[1].call),
            default=(0, None),
        )
        if known is None or shared == 0:
            return self._begin(branch=False, kept=0, parent=None)
        same = next((i for i, (a, b) in enumerate(zip(known.path, path, strict=False)) if a != b), None)
        kept = min(len(known.path), len(path)) if same is None else same
        return self._begin(branch=True, kept=kept, parent=known.call)

    def _after(self, known: _Known, kept: int) -> Place:
        if known.continued:
            return self._begin(branch=True, kept=kept, parent=known.call)
        return Place(known.conversation, known.call, False, kept)

    def _begin(self, *, branch: bool, kept: int, parent: int | None) -> Place:
        self._begun += 1
        return Place(self._begun, parent, branch, kept)


def _shared(known: list[str], path: list[str], messages: Sequence[Json]) -> int:
    """Equal messages at the beginning that are not system prompts, which many conversations have in common."""
    count = 0
    for before, now, message in zip(known, path, messages, strict=False):
        if message["role"] == "system":
            continue
        if before != now:
            break
        count += 1
    return count


def _digest(message: Json) -> str:
    """What a message says, not how it is written: arguments as values, text without its margins."""
    calls = [
        [call.get("id"), call["function"].get("name"), _value(call["function"].get("arguments"))]
        for call in objects(message.get("tool_calls"))
    ]
    # Clients sum up reasoning or leave it out; an answer with tool calls is known by their ids.
    content = message.get("content") if message["role"] != "assistant" or not calls else None
    text = content.strip() if isinstance(content, str) else content or ""
    said = [message["role"], text, calls, message.get("tool_call_id")]
    return hashlib.blake2b(msgspec.json.encode(said, order="sorted"), digest_size=12).hexdigest()


def _value(arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
