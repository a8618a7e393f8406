"""How the world works, in words: what an agent that reads is told before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXT = """\
You trade in a simulated world. Time moves in {ticks} ticks. In each tick you may look around and act up to \
{budget} times; then you end your turn and time goes on.{deadline} Your score is the growth of your equity: cash and \
what everything you hold would bring if it were sold now.

Prediction markets: each asks a question about an asset and resolves YES or NO at a tick that is known. A share of the \
right side then pays 1 dollar, the other nothing. Your own orders move the price, and every order pays a fee.

Perpetual futures: go long or short in an asset. `size` is the notional value in dollars; size / leverage is taken as \
margin. You cannot lose more than the margin, and the position is liquidated when too little of it is left. Funding is \
paid from time to time: longs pay shorts when the price is above the index. Announcements come at ticks that are known \
and may move the price at once.

News: sources post claims about what the next announcement will say. Some sources are right more often than chance, \
some less; which ones is not told, but announcements show who was right. Group chats invite traders with a good \
reputation and bring further claims, some of them meant to deceive. Other traders may push prices or spread rumours.

Reputation: when you post a probability for a market, it is scored when the market resolves."""


def rules(scenario: Mapping[str, Any], action_budget: int, response_timeout: float | None, ticks: int) -> str:
    """The rules, and the scenario's public numbers."""
    deadline = ""
    if response_timeout is not None:
        deadline = f" You have {response_timeout:g} seconds; what comes later counts for nothing."
    text = _TEXT.format(ticks=ticks, budget=action_budget, deadline=deadline)
    facts = "\n".join(f"- {name}: {value}" for name, value in scenario.items() if isinstance(value, str | int | float))
    return f"{text}\n\nThis scenario:\n{facts}"
