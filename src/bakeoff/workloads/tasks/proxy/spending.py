"""What a run has spent, and what is reserved for its running calls.

A call reserves the most that it can use before it is sent, and is settled with what it used. So calls at the same time
cannot exceed a budget together, and a client that hangs up before its provider has counted has paid already.

    reserved = spending.reserve(asked, price)      # a Reservation, the limit that is met, or None: wait for `settled`
    ...
    spending.end(reserved, asked, usage, cost)
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bakeoff.workloads.tasks.proxy.providers import LETTERS_PER_TOKEN, Budget, Limit
from bakeoff.workloads.tasks.proxy.wire import MILLION, Json, Price, Usage, Wire

SHORTEST_ANSWER = 16
"""The smallest answer limit, in tokens, that every provider accepts."""
LONGEST_ANSWER = 131_072
"""Tokens of an answer without a limit. No model that we know of writes more in one answer."""
MEDIA_TOKENS = 1_500
"""Of a picture, about: vendors count 85 to 2,500."""
MEDIA_BYTES_PER_TOKEN = 10
"""At least so many bytes of a picture, a document or a recording (as base64) make a token."""
LONGEST_TEXT = 1 << 20
_ENCODED = re.compile(r"[A-Za-z0-9+/=_\-]{2000,}")
_MEDIA = re.compile(
    r"(messages|input|contents|system|instructions|systemInstruction)"
    r"(/content|/output|/parts|/source|/function_?[rR]esponse)*"
    r"(/(image|video|audio|file)_url(/url)?|/input_audio/data|(/file)?/file_data|/source/data|/inline_?[dD]ata/data)"
)
"""Where requests hold pictures and the like. The same bytes elsewhere (a text, arguments of a tool, a schema) are text,
and are paid as text."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How large a request is, and what it may get."""

    letters: int
    """Bytes of its text."""
    media: int = 0
    """How many pictures, documents and recordings it has."""
    media_bytes: int = 0
    answers: int = 1
    limit: int | None = None
    """Most tokens of each answer; None if the client set none."""

    @classmethod
    def of(cls, wire: Wire, body: Json) -> Asked:
        """The size of a request as it is sent."""
        media: list[int] = []
        letters = len(msgspec.json.encode(_without_media(wire.content(body), media)))
        return cls(letters, len(media), sum(media), wire.answers(body), wire.limit(body))

    @property
    def longest(self) -> int:
        """Most tokens of all answers together."""
        return self.answers * min(LONGEST_ANSWER, self.limit or LONGEST_ANSWER)

    @property
    def largest(self) -> int:
        """Most tokens of the request: no tokenizer makes more than one of a byte."""
        return self.letters + max(self.media * MEDIA_TOKENS, self.media_bytes // MEDIA_BYTES_PER_TOKEN)


def _without_media(value: Any, media: list[int], path: str = "") -> Any:
    """Return what of a request is text; `media` gets the size of everything else. `path` has the keys above `value`."""
    if isinstance(value, str):
        if _MEDIA.fullmatch(path) and (value.startswith("data:") or _ENCODED.fullmatch(value, 0, LONGEST_TEXT)):
            media.append(len(value))
            return ""
        return value
    if isinstance(value, list):
        return [_without_media(part, media, path) for part in value]
    if isinstance(value, dict) and value.get("type") != "text":  # a document may be text, in a place for media
        return {key: _without_media(part, media, f"{path}/{key}" if path else key) for key, part in value.items()}
    return value


@dataclass(slots=True, eq=False)
class Reservation:
    """What is set aside for one running call."""

    input: int
    """Tokens that the request is expected to have. They are charged where nobody counts."""
    output: int
    """Most tokens of its answers."""
    tokens: int
    cost: float
    needs: tuple[float, float]
    """Dollars and tokens that it is expected to use."""
    capped: bool
    """A budget limits the answer."""

    def unsettled(self, known: Usage | None) -> Usage:
        """What is charged for a call that was sent and never counted; `known` is what had been counted of it."""
        known = known or Usage()
        return msgspec.structs.replace(
            known, input=known.input or self.input, output=max(known.output, self.output), estimated=True
        )


def dollars(price: Price | None, tokens: float, answered: float) -> float:
    """Most that so many tokens cost; 0 if the price is not known."""
    if price is None:
        return 0.0
    return (tokens * max(price.input, *price.written) + answered * price.output) / MILLION


@dataclass(slots=True)
class Spending:
    """What a run has spent and reserved. The event loop of the proxy is the only user."""

    budget: Budget
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    _reserved: list[Reservation] = field(default_factory=list)
    _letters: int = 0
    """Length of all requests that were counted; the three below are what these used."""
    _counted_input: int = 0
    _counted_tokens: int = 0
    _counted_cost: float = 0.0
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def reserve(self, asked: Asked, price: Price | None) -> Reservation | Limit | None:
        """Count a call that is sent now, and reserve the most that it can use.

        Gives the limit that the call would exceed, and None if it may fit once a running call has ended: wait for
        `settled` and ask again. A call alone is let through if it fits as far as anybody can tell, and its answer may
        take what is left. A call beside others is let through only if the most that it can use fits beside theirs.
        """
        budget = self.budget
        if budget.deadline is not None and time.monotonic() >= budget.deadline:
            return "deadline"
        if budget.calls is not None and self.calls >= budget.calls:
            return "calls"
        input, tokens, cost = self._expected(asked, price)
        if (limit := self._exceeded(tokens, cost)) is not None:
            return limit
        output, largest = asked.longest, input
        if self._reserved:
            largest = max(input, asked.largest)
            beside = sum(other.tokens for other in self._reserved), sum(other.cost for other in self._reserved)
            if self._exceeded(beside[0] + largest + output, beside[1] + dollars(price, largest, output)) is not None:
                return None
        left = longest_within(
            None if budget.tokens is None else budget.tokens - self.tokens,
            None if budget.cost is None else budget.cost - self.cost,
            input,
            price,
        )
        if left is not None:
            output = min(output, left)
        reserved = Reservation(
            input, output, largest + output, dollars(price, largest, output), (cost, tokens), left is not None
        )
        self.calls += 1
        self._reserved.append(reserved)
        return reserved

    async def settled(self) -> None:
        """Wait until a running call has ended."""
        await self._ended.wait()

    def take_back(self, reserved: Reservation) -> None:
        """Forget a call that was not sent after all."""
        self.calls -= 1
        self._release(reserved)

    def end(self, reserved: Reservation, asked: Asked, usage: Usage | None, cost: float | None) -> None:
        """Replace the reservation of a call by what it used; None is a call that used nothing."""
        self._release(reserved)
        if usage is None:
            return
        self.tokens += usage.total
        self.cost += cost or 0.0
        if not usage.estimated:  # a reservation says nothing about what the next call will use
            self._letters += asked.letters
            self._counted_input += usage.input
            self._counted_tokens += usage.total
            self._counted_cost += cost or 0.0

    def _release(self, reserved: Reservation) -> None:
        self._reserved.remove(reserved)
        self._ended.set()  # wakes everyone who waits now
        self._ended = asyncio.Event()

    def _expected(self, asked: Asked, price: Price | None) -> tuple[int, float, float]:
        """Tokens of the request, all tokens, and dollars that a call is expected to use.

        A client sends its whole history with every call, so requests grow, and so does what they cost: in proportion to
        the calls so far. The first call is expected to have the shortest answers, and no call to have shorter ones.
        """
        shortest = SHORTEST_ANSWER * asked.answers
        if not self._letters:
            input = asked.letters // LETTERS_PER_TOKEN + asked.media * MEDIA_TOKENS
            return input, input + shortest, dollars(price, input, shortest)
        part = asked.letters / self._letters
        input, tokens, cost = round(part * self._counted_input), part * self._counted_tokens, part * self._counted_cost
        if asked.answers > 1:
            tokens, cost = max(tokens, input + shortest), max(cost, dollars(price, input, shortest))
        return input, tokens, cost

    def _exceeded(self, tokens: float, cost: float) -> Limit | None:
        """The limit that this would exceed on top of what was spent."""
        most = self.budget
        if most.tokens is not None and (self.tokens >= most.tokens or self.tokens + tokens > most.tokens):
            return "tokens"
        if most.cost is not None and (self.cost >= most.cost or self.cost + cost > most.cost):
            return "cost"
        return None


def longest_within(tokens: float | None, cost: float | None, input: int, price: Price | None) -> int | None:
    """How many tokens answers to a request of `input` tokens may have within so many tokens and dollars, None: any."""
    left = []
    if tokens is not None:
        left.append(tokens - input)
    if cost is not None and price is not None and price.output > 0:
        left.append((cost - input * price.input / MILLION) * MILLION / price.output)
    return max(SHORTEST_ANSWER, int(min(left))) if left else None
