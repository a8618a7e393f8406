"""What calls use, what that costs, and what a run may spend.

The proxy holds every budget, so one limit means the same for every client. A call is let through or refused before it
is sent, going by what the run's earlier calls used for requests of that length.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, NonNegativeFloat

from bakeoff.errors import UsageError

if TYPE_CHECKING:
    from bakeoff.workloads.tasks.proxy.providers import Route

Limit = Literal["tokens", "cost", "calls", "deadline"]

MILLION = 1_000_000
LETTERS_PER_TOKEN = 4
"""The usual rule of thumb for English text and code; used where the provider does not count."""
SHORTEST_ANSWER = 16
"""The smallest answer limit, in tokens, that every provider accepts."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one call. `input` includes `cached` and `cache_write`; `output` includes `reasoning`."""

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cost: float | None = None
    """Dollars, where the provider itself reports them."""
    estimated: bool = False
    """The provider did not count; this is estimated from the length of the text."""

    def dollars(self, price: Price | None) -> float | None:
        """The cost by the user's price, else as the provider reports it, else None: an unknown cost is never 0."""
        if price is None:
            return self.cost
        plain = max(0, self.input - self.cached - self.cache_write)
        cached = price.input if price.cached is None else price.cached
        cache_write = price.input if price.cache_write is None else price.cache_write
        total = plain * price.input + self.cached * cached + self.cache_write * cache_write
        return (total + self.output * price.output) / MILLION


class Price(BaseModel):
    """Dollars per million tokens. Cached and cache-written input cost as much as plain input unless they are set."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    input: NonNegativeFloat
    output: NonNegativeFloat
    cached: NonNegativeFloat | None = None
    cache_write: NonNegativeFloat | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one run; None means no limit. Tokens are input and output together, as the provider counts them."""

    tokens: int | None = None
    cost: float | None = None
    """Dollars."""
    calls: int | None = None
    deadline: float | None = None
    """The `time.monotonic()` value after which no call is answered."""

    def check(self, route: Route) -> None:
        """Raise UsageError for a cost budget on a model without a price: it could not be enforced."""
        if self.cost is not None and route.price is None:
            raise UsageError(
                f"a cost budget needs the price of {route.label}\n"
                f'  fix: [providers.{route.provider_name}.prices."{route.model}"] input = ..., output = ... '
                "(dollars per million tokens)"
            )


@dataclass(frozen=True, slots=True)
class Share:
    """What a call is expected to use. It is reserved while the call runs."""

    tokens: float
    cost: float
    input: float
    """Tokens of the request alone."""


@dataclass(slots=True)
class Spending:
    """What a run has spent, and what is reserved for its running calls.

    Without the reservations, calls that run at the same time would each see the same room left and exceed it together.
    """

    budget: Budget
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    input: int = 0
    """The part of `tokens` that was in requests."""
    _reserved: list[Share] = field(default_factory=list)
    _letters: int = 0
    """Length of all requests that were counted."""

    def expected(self, letters: int) -> Share:
        """What a request of this many letters is expected to use, in proportion to the calls so far.

        A client sends its whole history with every call, so requests grow, and so does what they cost. The first
        call has nothing to go by, so it reserves nothing and is always let through.
        """
        if not self._letters:
            return Share(0.0, 0.0, letters / LETTERS_PER_TOKEN)
        part = letters / self._letters
        return Share(part * self.tokens, part * self.cost, part * self.input)

    def refusal(self, share: Share) -> Limit | None:
        """The limit that a call with this share would exceed; None when there is room for it."""
        budget = self.budget
        if budget.deadline is not None and time.monotonic() >= budget.deadline:
            return "deadline"
        if budget.calls is not None and self.calls >= budget.calls:
            return "calls"
        tokens = self.tokens + sum(other.tokens for other in self._reserved)
        if budget.tokens is not None and (tokens >= budget.tokens or tokens + share.tokens > budget.tokens):
            return "tokens"
        dollars = self.cost + sum(other.cost for other in self._reserved)
        if budget.cost is not None and (dollars >= budget.cost or dollars + share.cost > budget.cost):
            return "cost"
        return None

    def longest_answer(self, share: Share, price: Price | None) -> int | None:
        """How many tokens the answer may have to stay within the budget; None when no budget limits it."""
        # Shares of other running calls are not subtracted, so calls at the same time may exceed a budget by that much.
        left = []
        if self.budget.tokens is not None:
            left.append(self.budget.tokens - self.tokens - share.input)
        if self.budget.cost is not None and price is not None and price.output > 0:
            dollars = self.budget.cost - self.cost - int(share.input) * price.input / MILLION
            left.append(dollars * MILLION / price.output)
        return max(SHORTEST_ANSWER, int(min(left))) if left else None

    def begin(self, share: Share) -> None:
        """Count a call that is sent now, and reserve its share."""
        self.calls += 1
        self._reserved.append(share)

    def end(self, share: Share, letters: int, usage: Usage | None, cost: float | None) -> None:
        """Replace the reservation of a call by what it used; None is a call that used nothing."""
        self._reserved.remove(share)
        if usage is not None:
            self.tokens += usage.input + usage.output
            self.input += usage.input
            self.cost += cost or 0.0
            self._letters += letters
