"""A seat's face in JSON: typed errors, an action budget for each tick, idempotency keys, a deadline.

Every agent (a Python class, lines, HTTP, A2A, MCP) goes through `Session.call`, so all of them have the same rules.
A call never advances time; only the end of a turn does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market import methods, requests
from bakeoff.workloads.market.rpc import RpcError, encode, refusal
from bakeoff.workloads.market.world.views import ChatView, Rejected

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.world import World

ACTION_BUDGET = 20
"""Calls that change something, for each tick; attempts count, whether they succeed or not."""

_REFUSALS = {
    "unknown_market": "market_not_found",
    "unknown_ticker": "market_not_found",
    "unknown_chat": "chat_not_found",
    "insufficient_funds": "insufficient_funds",
    "insufficient_shares": "insufficient_funds",
    "no_position": "position_not_found",
    "not_invited": "not_permitted",
    "not_member": "not_permitted",
    "world_over": "episode_over",
}
"""The world's own reasons as types of errors; all others are `order_rejected`."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it was made, and what came of it."""

    method: str
    params: Mapping[str, Any]
    result: Any = None
    error: RpcError | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    """The answer to a call with an idempotency key."""

    fingerprint: bytes
    result: Any
    error: RpcError | None


class Session:
    """One seat of one world. Sessions of the same world share a lock, so that calls come one after another."""

    def __init__(
        self,
        world: World,
        seat: int = 0,
        *,
        action_budget: int = ACTION_BUDGET,
        response_timeout: float | None = None,
        lock: threading.RLock | None = None,
        on_end: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_end` is for a driver that begins turns itself: it is called when the seat ends its turn. Without one the
        world is told, which advances when all seats have ended, and turns begin by themselves."""
        self.world = world
        self.seat = seat
        self.action_budget = action_budget
        self.response_timeout = response_timeout
        self.lock = lock or threading.RLock()
        self.hidden_chats: set[str] = set()
        """Chats that the agent left, or whose invitation it declined."""
        self.actions_taken = 0
        """In the whole episode, attempts included."""
        self.calls: list[Call] | None = None
        """Where calls are noted, when somebody wants them."""
        self._driven = on_end is not None
        self._on_end = on_end or self._tell_world
        self._clock = clock
        self.agent_id = world.seat_id(seat)
        self._kept: dict[str, _Kept] = {}
        self.begin_turn()

    # -- turns

    def begin_turn(self, deadline: float | None = None) -> None:
        """A new turn with a new budget. `deadline` is a time on the session's clock; without a driver, the timeout from now."""
        self.turn = self.world.tick
        self.ended = False
        self.actions_used = 0
        if not self._driven and self.response_timeout is not None:
            deadline = self._clock() + self.response_timeout
        self.deadline = deadline

    def close_turn(self) -> None:
        """The driver ends the turn: from now on calls that would change something are refused."""
        with self.lock:
            self._follow()
            self.ended = True

    def end_turn(self) -> dict[str, Any]:
        """The seat is done with this tick. Ending a turn twice is ending it once."""
        with self.lock:
            self._follow()
            if not self.ended and not self.world.done:
                self.ended = True
                self._on_end()
                self._follow()
            return self.clock_facts()

    def clock_facts(self) -> dict[str, Any]:
        world = self.world
        return {"tick": world.tick, "ticks": world.ticks, "timestamp": world.time, "done": world.done}

    @property
    def actions_left(self) -> int:
        return 0 if self.ended else self.action_budget - self.actions_used

    @property
    def seconds_left(self) -> float | None:
        """Until the deadline; None when there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - self._clock())

    def _tell_world(self) -> None:
        self.world.end_turn(self.seat)

    def _follow(self) -> None:
        """A world that has moved on has begun a new turn, unless a driver says when turns begin."""
        if not self._driven and self.turn != self.world.tick:
            self.begin_turn()

    # -- calls

    def observe(self) -> dict[str, Any]:
        """Everything that this seat may see now."""
        result: dict[str, Any] = self.call("a2a.observe")
        return result

    def chats(self) -> list[ChatView]:
        """Chats that the agent is in or invited to, and has not turned away from."""
        return [view for view in self.world.chats(self.seat) if view.id not in self.hidden_chats]

    def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """The method's result; RpcError when it is refused."""
        given = params or {}
        try:
            found = methods.find(method)
            method = found.name
            if idempotency_key is not None and found.mutates:
                given = {"idempotencyKey": idempotency_key, **given}
            request = requests.read(found.params, given)
            with self.lock:
                self._follow()
                result = self._change(found, request) if found.mutates else found.run(self, request)
        except RpcError as error:
            if self.calls is not None:
                self.calls.append(Call(method, given, error=error))
            raise
        if self.calls is not None:
            self.calls.append(Call(method, given, result))
        return result

    def _change(self, method: methods.Method, request: Any) -> dict[str, Any]:
        key = request.idempotency_key
        if key is None:
            self._admit(method, request)
            return self._execute(method, request)
        fingerprint = method.name.encode() + encode(request.model_dump(exclude={"idempotency_key"}))
        kept = self._kept.get(key)
        if kept is None:
            self._admit(method, request)
            kept = self._kept[key] = self._remembered(method, request, fingerprint)
        elif kept.fingerprint != fingerprint:
            raise refusal("idempotency_conflict", f"the key {key!r} belongs to another call")
        if kept.error is not None:
            raise RpcError(kept.error.code, kept.error.message, kept.error.data)
        return dict(kept.result)

    def _remembered(self, method: methods.Method, request: Any, fingerprint: bytes) -> _Kept:
        try:
            return _Kept(fingerprint, self._execute(method, request), None)
        except RpcError as error:
            return _Kept(fingerprint, None, error)

    def _admit(self, method: methods.Method, request: requests.Mutation) -> None:
        """Whether a change is allowed now. Refusals here cost nothing and are not remembered under a key."""
        if method.name == methods.END_TURN:
            return
        if self.world.done:
            raise refusal("episode_over", "the episode is over")
        tick = self.world.tick
        if request.tick is not None and request.tick != tick:
            raise refusal("turn_over", f"this is tick {tick}, not {request.tick}", tick=tick)
        if self.ended:
            raise refusal("turn_over", f"your turn in tick {tick} is over", tick=tick)
        if self.deadline is not None and self._clock() > self.deadline:
            raise refusal("turn_over", f"the deadline of tick {tick} has passed", tick=tick)
        if self.actions_used >= self.action_budget:
            message = f"all {self.action_budget} actions of tick {tick} are used; end the turn"
            raise refusal("budget_exhausted", message, tick=tick, actionBudget=self.action_budget)
        self.actions_used += 1
        self.actions_taken += 1

    def _execute(self, method: methods.Method, request: Any) -> dict[str, Any]:
        try:
            return method.run(self, request)
        except Rejected as error:
            kind = _REFUSALS.get(error.code, "order_rejected")
            raise refusal(kind, error.message, reason=error.code) from error
