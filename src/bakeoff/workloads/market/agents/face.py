"""What an agent is, and what it gets: a brief before the first tick, and its seat in every turn.

An agent is any object with a `name`, `reset(brief)` and `act(seat)`; `act` is called once for each tick and its
return ends the turn. It may also have `close()`, called after the last tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

    from bakeoff.workloads.market.session import Session


@dataclass(frozen=True, slots=True)
class Brief:
    """What an agent knows before it starts."""

    agent_id: str
    seat: int
    ticks: int
    scenario: Mapping[str, Any]
    """The public parameters: duration, interval, numbers of markets, regime, tier, fees, limits."""
    action_budget: int
    response_timeout: float | None
    rng: np.random.Generator
    """The agent's own source of chance, so that its runs repeat."""
    rules: str = ""
    """How the world works, in English; a prompt for agents that read."""
    model: Any = None
    """Only for agents that ship with bakeoff and need it: the reliabilities of sources."""
    truth: Any = None
    """Only for agents that ship with bakeoff and need it: the hidden state."""


@runtime_checkable
class Agent(Protocol):
    name: str

    def reset(self, brief: Brief) -> None: ...

    def act(self, seat: Seat) -> None: ...


@dataclass(slots=True)
class LlmCall:
    """One exchange with a language model, as an agent reports it for trajectories."""

    messages: list[dict[str, Any]]
    """The conversation that was sent, and the reply as the last message."""
    model: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    latency_s: float = 0.0
    error: str | None = None


class Seat:
    """An agent's place in the world. Refused actions raise `RpcError`, whose `type` says why."""

    __slots__ = ("_session", "llm_calls")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.llm_calls: list[LlmCall] = []

    # -- looking

    @property
    def tick(self) -> int:
        return self._session.world.tick

    @property
    def ticks(self) -> int:
        return self._session.world.ticks

    @property
    def actions_left(self) -> int:
        return self._session.actions_left

    @property
    def seconds_left(self) -> float | None:
        return self._session.seconds_left

    def clock_facts(self) -> dict[str, Any]:
        """Where time stands, as the end of a turn tells it."""
        return self._session.clock_facts()

    def observe(self) -> dict[str, Any]:
        """Everything that this seat may see now, ready for JSON."""
        return self._session.observe()

    def markets(self) -> list[Any]:
        """Open questions as `MarketView`s: cheaper than `observe` for code that wants numbers only."""
        with self._session.lock:
            return self._session.world.markets()

    def perpetuals(self) -> list[Any]:
        with self._session.lock:
            return self._session.world.perpetuals()

    def account(self) -> Any:
        with self._session.lock:
            return self._session.world.account(self._session.seat)

    def positions(self) -> Any:
        with self._session.lock:
            return self._session.world.positions(self._session.seat)

    def posts(self, limit: int = 50) -> list[Any]:
        with self._session.lock:
            return self._session.world.posts(self._session.seat, limit)

    def chats(self) -> list[Any]:
        with self._session.lock:
            return self._session.chats()

    def trades(self, limit: int = 50) -> list[Any]:
        with self._session.lock:
            return self._session.world.trades(limit)

    # -- acting

    def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Any method of the table, by its `a2a.*` name."""
        return self._session.call(method, params, idempotency_key=idempotency_key)

    def buy(self, market_id: str, side: Literal["YES", "NO"], dollars: float) -> dict[str, Any]:
        return self.call("a2a.buyShares", {"marketId": market_id, "outcome": side, "amount": dollars})

    def sell(self, market_id: str, side: Literal["YES", "NO"], shares: float) -> dict[str, Any]:
        return self.call("a2a.sellShares", {"marketId": market_id, "outcome": side, "shares": shares})

    def open(self, ticker: str, side: Literal["LONG", "SHORT"], size: float, leverage: float = 1.0) -> dict[str, Any]:
        return self.call(
            "a2a.openPosition", {"ticker": ticker, "side": side, "size": size, "leverage": float(leverage)}
        )

    def close(self, ticker: str, size: float | None = None) -> dict[str, Any]:
        """Close a perpetual position, or `size` dollars of it. `ticker` may also be the position's id."""
        return self.call("a2a.closePosition", _given(positionId=ticker, size=size))

    def post(
        self,
        content: str,
        market_id: str | None = None,
        side: Literal["YES", "NO"] | None = None,
        probability: float | None = None,
    ) -> dict[str, Any]:
        return self.call(
            "a2a.createPost", _given(content=content, marketId=market_id, outcome=side, probability=probability)
        )

    def join(self, chat_id: str) -> dict[str, Any]:
        return self.call("a2a.joinGroup", {"groupId": chat_id})

    def message(self, chat_id: str, content: str) -> dict[str, Any]:
        return self.call("a2a.sendMessage", {"chatId": chat_id, "content": content})

    def end_turn(self) -> None:
        """No more actions in this tick. Returning from `act` does the same."""
        self._session.end_turn()

    def record_llm(self, call: LlmCall) -> None:
        """Keep an exchange with a language model for the trajectory."""
        self.llm_calls.append(call)


def _given(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
