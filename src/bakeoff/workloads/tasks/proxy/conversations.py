"""Which call continues which: a client sends its whole history each time, and only the end of it is new.

A call continues the call whose reply is the last thing that the assistant says in its history. Clients rewrite what
lies before that (reminders that come and go, other ids, cache marks), so an equal beginning only decides between
candidates. A second call that continues the same reply is a branch. A call that continues nothing begins a new
conversation: that is how sub-agents and side questions (a title, a summary) are recognised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from bakeoff.workloads.tasks.proxy.wire.base import Json, objects


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands among the calls of its run."""

    conversation: int | None
    """None when the call got no answer: it belongs to no conversation yet."""
    parent: int | None
    """Number of the call that it continues."""
    branch: bool
    """The parent was continued before; this call goes another way from there."""
    kept: int
    """Messages of the request that were known already."""


@dataclass(slots=True)
class _Answered:
    """A call that got an answer, as far as later calls are compared with it."""

    call: int
    conversation: int | None
    path: list[str]
    """Digests of the request's messages."""
    reply: str
    """Digest of the answer."""
    has_tool_calls: bool
    continued: bool = False


@dataclass(slots=True)
class Conversations:
    """All conversations of one run."""

    _by_call: dict[int, _Answered] = field(default_factory=dict)
    _by_reply: dict[str, list[_Answered]] = field(default_factory=dict)
    _by_id: dict[str, _Answered] = field(default_factory=dict)
    _count: int = 0

    def add(
        self, call: int, messages: Sequence[Json], previous: str | None, reply: Json | None, id: str | None
    ) -> Place:
        """Find the place of a call that ended, and remember its answer. A call without an answer changes nothing.

        `previous` is the id of the reply that the request says it continues, `id` the id of this reply.
        """
        path = [_digest(message) for message in messages]
        parent, branch, kept = self._parent(messages, path, previous)
        if reply is None:
            return Place(None, parent.call if parent else None, False, kept)
        if parent is None or branch:
            self._count += 1
            conversation: int | None = self._count
        else:
            conversation = parent.conversation
        answered = _Answered(call, conversation, path, _digest(reply), bool(reply.get("tool_calls")))
        if parent is not None:
            parent.continued = True
        self._by_call[call] = answered
        self._by_reply.setdefault(answered.reply, []).append(answered)
        if id:
            self._by_id[id] = answered
        return Place(conversation, parent.call if parent else None, branch, kept)

    def _parent(
        self, messages: Sequence[Json], path: list[str], previous: str | None
    ) -> tuple[_Answered | None, bool, int]:
        """The call that this request continues, whether it branches off there, and how many messages were known."""
        if previous is not None and (parent := self._by_id.get(previous)) is not None:
            # The server keeps everything but the instructions, which the client repeats (responses API).
            repeated = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
            return parent, parent.continued, repeated
        last = max((i for i, message in enumerate(messages) if message["role"] == "assistant"), default=None)
        if last is None:
            # The same question once more is a retry, or another sample of its answer.
            again = next((answered for answered in self._by_call.values() if answered.path == path), None)
            return (again, True, len(path)) if again is not None else (None, False, 0)

        def shared(answered: _Answered) -> int:
            """How many messages at the beginning are equal, without system prompts: many conversations share those."""
            pairs = zip(answered.path, path, messages, strict=False)
            same = [before == now for before, now, message in pairs if message["role"] != "system"]
            return same.index(False) if False in same else len(same)

        # An id of a tool call is unique. A reply of text alone ("Done.") may occur in several conversations, so it
        # needs an equal beginning, too.
        candidates = [
            answered
            for answered in self._by_reply.get(path[last], [])
            if answered.has_tool_calls or shared(answered) > 0
        ]
        if candidates:
            parent = max(candidates, key=lambda answered: (shared(answered), answered.call))
            return parent, parent.continued, last + 1
        # The assistant's last words are not ours: the client rewrote the history from some point on.
        closest = max(self._by_call.values(), key=lambda answered: (shared(answered), answered.call), default=None)
        if closest is None or shared(closest) == 0:
            return None, False, 0
        pairs = zip(closest.path, path, strict=False)
        kept = next((i for i, (before, now) in enumerate(pairs) if before != now), min(len(closest.path), len(path)))
        return closest, True, kept


def _digest(message: Json) -> str:
    """A digest of what a message says, not of how it is written: arguments as values, text without margins."""
    calls = []
    for call in objects(message.get("tool_calls")):
        arguments = call["function"].get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = msgspec.json.decode(arguments)
            except (msgspec.DecodeError, RecursionError):
                pass  # not JSON: compared as text
        calls.append([call.get("id"), call["function"].get("name"), arguments])
    # Clients summarise reasoning or leave it out, so an answer with tool calls is recognised by their ids alone.
    content = message.get("content") if message["role"] != "assistant" or not calls else None
    text = content.strip() if isinstance(content, str) else content or ""
    said = [message["role"], text, calls, message.get("tool_call_id")]
    return hashlib.blake2b(msgspec.json.encode(said, order="sorted"), digest_size=12).hexdigest()
