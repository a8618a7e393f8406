"""What one run may spend, and what it has spent."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from bakeoff.errors import UsageError
from bakeoff.workloads.tasks.proxy.providers import Route
from bakeoff.workloads.tasks.proxy.usage import MILLION, Price, Usage

Limit = Literal["tokens", "cost", "calls", "deadline"]


@dataclass(frozen=True, slots=True)
class Budget:
    """None is no limit. Tokens are input and output together, as the provider counts them."""

    tokens: int | None = None
    cost: float | None = None
    """Dollars."""
    calls: int | None = None
    deadline: float | None = None
    """`time.monotonic()` value after which no call is answered."""

    def check(self, route: Route) -> None:
        """A budget that could not be enforced is an error, never silently off."""
        if self.cost is not None and route.price is None:
            raise UsageError(
                f"a cost budget needs the price of {route.label}\n"
                f'  fix: [providers.{route.provider_name}.prices."{route.model}"] input = ..., output = ... '
                "(dollars per million tokens)"
            )


LETTERS_PER_TOKEN = 4
"""Where nobody counted."""
SHORTEST_ANSWER = 16
"""Tokens: the smallest limit that providers take."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a call is expected to take, held back while it is under way."""

    tokens: float
    cost: float
    input: float
    """Tokens of its request alone."""


@dataclass(slots=True)
class Spending:
    """Counts calls under way too, so that calls at the same time cannot each think that there is room."""

    budget: Budget
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    input: int = 0
    """Of the tokens, those of requests."""
    _reserved: list[Share] = field(default_factory=list)
    _letters: int = 0

    def expected(self, letters: int) -> Share:
        """For a request with so much text, going by the calls so far. The first one is let through."""
        if not self._letters:
            return Share(0.0, 0.0, letters / LETTERS_PER_TOKEN)
        part = letters / self._letters
        return Share(part * self.tokens, part * self.cost, part * self.input)

    def refusal(self, share: Share) -> Limit | None:
        """The limit that such a call would exceed."""
        budget = self.budget
        if budget.deadline is not None and time.monotonic() >= budget.deadline:
            return "deadline"
        if budget.calls is not None and self.calls >= budget.calls:
            return "calls"
        tokens = self.tokens + sum(other.tokens for other in self._reserved)
        if budget.tokens is not None and _exceeds(tokens, share.tokens, budget.tokens):
            return "tokens"
        cost = self.cost + sum(other.cost for other in self._reserved)
        if budget.cost is not None and _exceeds(cost, share.cost, budget.cost):
            return "cost"
        return None

    def longest_answer(self, share: Share, price: Price | None) -> int | None:
        """Tokens that may be written within what is left; None where no budget says."""
        left = []
        if self.budget.tokens is not None:
            left.append(self.budget.tokens - self.tokens - share.input)
        if self.budget.cost is not None and price is not None and price.output > 0:
            asked = price.of(Usage(input=int(share.input)))
            left.append((self.budget.cost - self.cost - asked) * MILLION / price.output)
        return max(SHORTEST_ANSWER, int(min(left))) if left else None

    def begin(self, share: Share) -> None:
        self.calls += 1
        self._reserved.append(share)

    def end(self, share: Share, letters: int, usage: Usage | None, cost: float | None) -> None:
        self._reserved.remove(share)
        if usage is not None:
            self.tokens += usage.total
            self.input += usage.input
            self.cost += cost or 0.0
            self._letters += letters


def _exceeds(spent: float, more: float, limit: float) -> bool:
    return spent >= limit or spent + more > limit
