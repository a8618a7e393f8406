"""The record of a run's model calls: what they add up to, which call continues which, and their trajectory.

`calls.jsonl` has one JSON line for each call. The line is on disk before the client sees the end of its answer, so a
client that is done finds its call recorded. A line holds only what is new in its request (`kept` says how many messages
were known), and each set of tools is written once, so the file of a long conversation grows with its length and not
with the square of it.

A client sends its whole history each time (`Conversations`). A call continues the call whose reply is the last thing
that the assistant says in its history. Clients rewrite what lies before that (reminders that come and go, other ids,
cache marks), so an equal beginning only decides between candidates. A second call that continues the same reply is a
branch. A call that continues nothing begins a new conversation: that is how sub-agents and side questions (a title, a
summary) are recognised.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from bakeoff.spec.workload import Step, Tokens
from bakeoff.workloads.tasks.proxy.wire import Json, ModelRequest, Usage, objects

End = Literal["answered", "counted", "refused", "budget", "denied", "upstream", "client"]
"""answered: the model replied. counted: the provider counted the tokens of a request. refused: the provider says that the request is wrong. budget: a limit of the run.
denied: it asked for a tool or a service of the provider that the run may not use. upstream: the provider failed, which says nothing about the agent. client: the agent hung up or sent nonsense."""

MAIN = "main"
MOST_DIGESTS = 1_000_000
"""Messages that a run's calls are compared with. Each call has its whole history; the oldest calls are forgotten."""


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A try that failed and was repeated."""

    status: int | None
    """None when there was no answer at all."""
    reason: str
    waited_s: float


class Call(msgspec.Struct, omit_defaults=True, tag="call", tag_field="type"):
    """One model call as it is recorded. The relay fills it in while the call runs. docs/agents.md lists the fields."""

    # These four have no default, because `omit_defaults` would leave them out.
    number: int
    """Counts the calls of a run from 1, in the order in which they end."""
    wire: str
    end: End
    time_s: float
    """Seconds since the run began."""
    status: int | None = None
    """The HTTP status that the client got."""
    provider: str | None = None
    model: str | None = None
    """The provider's name for the model."""
    asked_model: str | None = None
    """The name that the client used, where it was another one."""
    stream: bool = False
    conversation: int | None = None
    """None when the call got no answer: it belongs to no conversation yet."""
    parent: int | None = None
    """Number of the call that it continues."""
    branch: bool = False
    """The parent was continued before; this call goes another way from there."""
    kept: int = 0
    """Messages of the request that were known already. They are left out, except where a branch begins."""
    messages: list[Json] = []
    tools: str | None = None
    """Digest of the `ToolSet`."""
    parameters: dict[str, Any] = {}
    reply: Json | None = None
    finish: str | None = None
    usage: Usage | None = None
    tokens: Tokens | None = None
    cost: float | None = None
    cost_uncached: float | None = None
    """What it would have cost without the provider's cache."""
    first_token_s: float | None = None
    total_s: float = 0.0
    retries: list[Retry] = []
    limit: str | None = None
    """The budget that ended the call."""
    denied: list[str] = []
    """What it asked of the provider and may not use."""
    left_out: list[str] = []
    """Beta headers of the client that were not passed on."""
    error: str | None = None


class ToolSet(msgspec.Struct, frozen=True, tag="tools", tag_field="type"):
    """The tools that a client offered, written once for each different set."""

    digest: str
    tools: list[Json]


class LimitsMet(msgspec.Struct, frozen=True, tag="limits", tag_field="type"):
    """Limits of the proxy that the run met, written when the run ends."""

    names: list[str]


Record = Call | ToolSet | LimitsMet
"""A line of `calls.jsonl`."""


class CallLog:
    """Appends whole lines and syncs each one. A crash can tear only the last line."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.size = os.fstat(self._file).st_size

    def add(self, record: Record) -> None:
        """Write one record. Raises OSError, for example on a full disk."""
        line = memoryview(msgspec.json.encode(record) + b"\n")
        while line:  # write(2) may write less than it was given
            written = os.write(self._file, line)
            line, self.size = line[written:], self.size + written
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def read_calls(path: Path) -> Iterator[Record]:
    """The records of a `calls.jsonl`, without a torn last line. A run without calls has no file and no records."""
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(Record)
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return  # torn, or being written right now: the next read would begin in the middle of a line
            yield decoder.decode(line)


@dataclass(frozen=True, slots=True)
class Totals:
    """What the calls of a run add up to."""

    calls: int = 0
    """Calls that the model answered."""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = 0.0
    """Dollars; None when the cost of any call is unknown."""
    cost_uncached: float | None = 0.0
    """Dollars, as if no provider kept a cache."""
    tool_calls: int = 0
    input_estimated: int = 0
    """The part of `input_tokens` that no provider counted: estimated, or what was reserved for the call."""
    output_estimated: int = 0
    cost_estimated: float = 0.0
    """What these cost, as far as prices are known."""
    limit: str | None = None
    """The first budget that refused or ended a call."""
    limits_met: tuple[str, ...] = ()
    """Which limits of the proxy (`GatewayLimits`) the run met, by name."""
    denied: tuple[str, ...] = ()
    """Tools and services of the provider that the agent asked for and may not use."""
    broken: str | None = None
    """Why the model could not be reached: the provider failed and answered no later call. Such a run must not be
    scored."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def tokens_estimated(self) -> int:
        return self.input_estimated + self.output_estimated

    @property
    def estimated(self) -> bool:
        return bool(self.tokens_estimated)


def add_up(records: Iterable[Record]) -> Totals:
    """Add up the calls of one run. Calls that broke off still count for what they used."""
    answered = tool_calls = 0
    usages: list[Usage] = []
    costs: list[float | None] = []
    uncached: list[float | None] = []
    limit: str | None = None
    broken: str | None = None
    limits_met: tuple[str, ...] = ()
    denied: dict[str, None] = {}
    for record in records:  # one by one: a record may be much larger than what it adds
        if isinstance(record, LimitsMet):
            limits_met = tuple(record.names)
        if not isinstance(record, Call):
            continue
        if record.usage is not None:
            usages.append(record.usage)
            costs.append(record.cost)
            uncached.append(record.cost_uncached)
        limit = limit or record.limit
        denied |= dict.fromkeys(record.denied)
        # The last call that says anything about the provider decides: one answer after a failure proves that it works.
        if record.end == "answered":
            answered, broken = answered + 1, None
            tool_calls += len(record.reply.get("tool_calls", ())) if record.reply else 0
        elif record.end == "upstream":
            broken = record.error or f"the provider answered {record.status}"
    guessed = [(usage, cost) for usage, cost in zip(usages, costs, strict=True) if usage.estimated]
    return Totals(
        calls=answered,
        input_tokens=sum(usage.input for usage in usages),
        cached_tokens=sum(usage.cached for usage in usages),
        output_tokens=sum(usage.output for usage in usages),
        reasoning_tokens=sum(usage.reasoning for usage in usages),
        cost=_sum_known(costs),
        cost_uncached=_sum_known(uncached),
        tool_calls=tool_calls,
        input_estimated=sum(usage.input for usage, _ in guessed),
        output_estimated=sum(usage.output for usage, _ in guessed),
        cost_estimated=sum((cost or 0.0 for _, cost in guessed), 0.0),
        limit=limit,
        limits_met=limits_met,
        denied=tuple(denied),
        broken=broken,
    )


def _sum_known(costs: list[float | None]) -> float | None:
    """The sum; None if one of them is not known."""
    return None if None in costs else sum((cost for cost in costs if cost is not None), 0.0)


def steps(records: Iterable[Record], agent: str = MAIN) -> list[Step]:
    """The trajectory: one step for each answer, conversation by conversation, in the order of the calls.

    A step's `messages` are the new ones, with the answer last. The conversation in which the work was done comes first
    and belongs to `agent`: the one with the most tool calls, then the one with the most answers. The others follow as
    `side-1`, `side-2` and so on, in the order in which they began. A branch starts with its whole history;
    `info["copied"]` messages of it are in an earlier step already.
    """
    records = list(records)
    tools = {record.digest: record.tools for record in records if isinstance(record, ToolSet)}
    answers = [record for record in records if isinstance(record, Call) and record.end == "answered"]
    groups: dict[int | None, list[Call]] = {}
    for call in sorted(answers, key=lambda call: call.time_s):
        groups.setdefault(call.conversation, []).append(call)
    conversations = list(groups.values())

    def work(calls: list[Call]) -> tuple[int, int]:
        return sum(bool(call.reply and call.reply.get("tool_calls")) for call in calls), len(calls)

    main = max(conversations, key=work, default=None)
    trajectory: list[Step] = []
    for number, calls in enumerate(sorted(conversations, key=lambda calls: calls is not main)):
        shown: set[str] = set()
        for call in calls:
            step = _step(call, f"side-{number}" if number else agent)
            if call.tools and call.tools not in shown:
                shown.add(call.tools)
                step.info["tools"] = tools.get(call.tools, [])
            trajectory.append(step)
    return [*trajectory[:-1], msgspec.structs.replace(trajectory[-1], done=True)] if trajectory else []


def _step(call: Call, agent: str) -> Step:
    """One answer as a step. `info` has which call it was, what it used, and where it branched off."""
    reply = call.reply or {}
    tool_calls = []
    for made in objects(reply.get("tool_calls")):
        written = made["function"]["arguments"]
        try:
            arguments = msgspec.json.decode(written or "{}")
        except (msgspec.DecodeError, RecursionError):
            arguments = written  # a model may write anything; what it wrote stays text
        tool_calls.append({"id": made["id"], "name": made["function"]["name"], "arguments": arguments})
    info: dict[str, Any] = {
        "call": call.number,
        "wire": call.wire,
        "model": call.model,
        "total_s": call.total_s,
        "first_token_s": call.first_token_s,
        "finish": call.finish,
        "cost": call.cost,
    }
    if call.usage is not None:
        info["usage"] = msgspec.to_builtins(call.usage)
    if call.parent is not None:
        info["parent"] = call.parent
    if call.branch:
        info |= {"branch": True, "copied": call.kept}
    return Step(
        time_s=call.time_s,
        messages=[*call.messages, reply],
        tool_calls=tool_calls,
        tokens=call.tokens,
        agent=agent,
        policy_version=call.model,
        info=info,
    )


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
    _digests: int = 0
    """How many digests all paths have together."""

    def add(self, call: Call, request: ModelRequest, reply_id: str | None) -> None:
        """Fill in the place of a call that ended and what is new in its request, and remember its answer.

        A call without an answer has a place to continue from, but nothing can continue it.
        """
        path = [_digest(message) for message in request.messages]
        parent, branch, call.kept = self._parent(request.messages, path, request.previous)
        call.parent = parent.call if parent else None
        if call.end == "answered" and call.reply is not None:
            if parent is None or branch:
                self._count += 1
            call.branch, call.conversation = branch, self._count if parent is None or branch else parent.conversation
            reply = _digest(call.reply)
            answered = _Answered(call.number, call.conversation, path, reply, bool(call.reply.get("tool_calls")))
            if parent is not None:
                parent.continued = True
            self._by_call[call.number] = answered
            self._by_reply.setdefault(reply, []).append(answered)
            if reply_id:
                self._by_id[reply_id] = answered
            self._digests += len(path)
            while self._digests > MOST_DIGESTS and len(self._by_call) > 1:
                self._forget(next(iter(self._by_call)))
        # A branch repeats its history, so that each conversation can be read alone.
        call.messages = request.messages if call.branch else request.messages[call.kept :]

    def _forget(self, number: int) -> None:
        """Forget the answer of a call, as far as later calls are compared with it."""
        answered = self._by_call.pop(number)
        self._digests -= len(answered.path)
        self._by_reply[answered.reply].remove(answered)
        if not self._by_reply[answered.reply]:
            del self._by_reply[answered.reply]
        self._by_id = {id: other for id, other in self._by_id.items() if other is not answered}

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
