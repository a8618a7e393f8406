"""One seat of a world as JSON calls: typed errors, an action budget for each tick, idempotency keys, a deadline.

Every agent (Python class, program, HTTP, A2A, MCP) goes through `Session.call`, so all of them play by the same rules.
A call never advances time; only the end of a turn does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bakeoff.workloads.market import methods, rpc
from bakeoff.workloads.market.rpc import RpcError, encode, refusal
from bakeoff.workloads.market.world.views import ChatView, Rejected

if TYPE_CHECKING:
    from bakeoff.workloads.market.world.world import World

ACTION_BUDGET = 20
"""Calls that change something, for each tick. Attempts count, whether they succeed or not."""
READ_BUDGET = 1000
"""Other calls, for each tick of a served world: reads, calls that are refused, and repeated ends of a turn."""

_ERROR_TYPES = {
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
"""The world's rejection codes as error types; all others are `order_rejected`."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it was made, and its result or error."""

    method: str
    params: Mapping[str, Any]
    result: Any = None
    error: RpcError | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """The first answer to an idempotency key."""

    fingerprint: bytes
    """The method and its parameters; the same key with another fingerprint is a conflict."""
    result: Any
    error: RpcError | None


class Session:
    """One seat of one world: `Session(world).call("a2a.buyShares", {...})`.

    Sessions of the same world must share a lock, so that calls are made one after another.
    """

    def __init__(
        self,
        world: World,
        seat: int = 0,
        *,
        action_budget: int = ACTION_BUDGET,
        read_budget: int | None = None,
        response_timeout: float | None = None,
        lock: threading.RLock | None = None,
        on_end: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_end` is called when the seat ends its turn; it is for a driver that also begins turns (`begin_turn`).

        Without a driver the world advances when all its seats have ended their turns, and turns begin by themselves.
        """
        self.world = world
        self.seat = seat
        self.action_budget = action_budget
        self.read_budget = read_budget
        """None allows any number of reads."""
        self.reads_used = 0
        self._read_in = world.tick
        """The tick that `reads_used` is about."""
        self.changes = 0
        """Grows with every call that changes the world or what later calls are answered. A server must not forget it."""
        self.response_timeout = response_timeout
        self.lock = lock or threading.RLock()
        self.hidden_chats: set[str] = set()
        """Chats that the agent left, or whose invitation it declined."""
        self.actions_taken = 0
        """In the whole episode, attempts included."""
        self.looks, self._journal_looks = methods.Looks(), methods.Looks()
        self.calls: list[Call] | None = None
        """Where calls are recorded, if a journal wants them."""
        self._driven = on_end is not None
        self._on_end = on_end or (lambda: world.end_turn(seat))
        self._clock = clock
        self.agent_id = world.seat_id(seat)
        self._answers: dict[str, _Answer] = {}
        self.begin_turn()

    # -- turns

    def begin_turn(self, deadline: float | None = None) -> None:
        """Begin a turn with a full budget. `deadline` is a time on the session's clock.

        Without a driver the deadline is `response_timeout` from now.
        """
        self.turn = self.world.tick
        self.ended = False
        self.actions_used = 0
        if not self._driven and self.response_timeout is not None:
            deadline = self._clock() + self.response_timeout
        self.deadline = deadline

    def close_turn(self) -> None:
        """End the turn for the driver: calls that would change something are refused from now on."""
        with self.lock:
            self._follow()
            self.ended = True

    def end_turn(self) -> dict[str, Any]:
        """End the turn for the agent and return the clock. Ending it twice is the same as once."""
        with self.lock:
            self._follow()
            if not self.ended and not self.world.done:
                self.ended = True
                self.changes += 1
                self._on_end()
                self._follow()
            return self.clock_facts()

    def clock_facts(self) -> dict[str, Any]:
        """`{tick, ticks, timestamp, done}`, the answer to the end of a turn."""
        world = self.world
        return {"tick": world.tick, "ticks": world.ticks, "timestamp": world.time, "done": world.done}

    @property
    def actions_left(self) -> int:
        """Actions that this turn still allows."""
        return 0 if self.ended else self.action_budget - self.actions_used

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, or None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - self._clock())

    def _follow(self) -> None:
        """Without a driver, begin a new turn when the world has advanced."""
        if not self._driven and self.turn != self.world.tick:
            self.begin_turn()

    # -- calls

    def observe(self) -> dict[str, Any]:
        """Everything that this seat may see now, with the news since its last look."""
        return self.call(methods.OBSERVE)

    def recorded(self) -> dict[str, Any]:
        """The same for a journal, whose looks are its own: they take no news from the agent."""
        with self.lock:
            return methods.observation(self, self._journal_looks)

    def chats(self) -> list[ChatView]:
        """Chats that the agent is in or invited to, without those it left or declined."""
        return [view for view in self.world.chats(self.seat) if view.id not in self.hidden_chats]

    def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Return the method's result. Raises RpcError when the call is refused."""
        params = params or {}
        self._count_read(method)
        try:
            target = methods.find(method)
            method = target.name  # recorded with its prefix, however it was called
            if idempotency_key is not None and target.mutates:
                params = {"idempotencyKey": idempotency_key, **params}
            request = rpc.read(target.params, params)
            with self.lock:
                self._follow()
                result = self._change(target, request) if target.mutates else target.run(self, request)
        except RpcError as error:
            if self.calls is not None:
                self.calls.append(Call(method, params, error=error))
            raise
        if self.calls is not None:
            self.calls.append(Call(method, params, result))
        return result

    def _count_read(self, name: str) -> None:
        """Count a call of any method as a read. Raises RpcError when the tick's reads are used up.

        `_admit` gives it back for an action, which has a budget of its own: reads that are used up never stand in the way
        of actions that are left, and the end of a turn is never refused.
        """
        if self.read_budget is None:
            return
        with self.lock:
            self._follow()
            tick = self.world.tick
            if self._read_in != tick:
                self._read_in, self.reads_used = tick, 0
            method = methods.METHODS.get(name) or methods.METHODS.get(methods.PREFIX + name)
            if method is not None and method.name == methods.END_TURN and not self.ended:
                return
            spare = self.actions_left if method is not None and method.mutates else 0
            if self.reads_used >= self.read_budget + spare:
                message = f"all {self.read_budget} reads of tick {tick} are used"
                hint = {} if self.world.done else {"retryTick": tick + 1, "retryAfter": self.seconds_left}
                if hint:
                    message += f"; end the turn, and read again in tick {tick + 1}"
                raise refusal("budget_exhausted", message, tick=tick, readBudget=self.read_budget, **hint)
            self.reads_used += 1

    def _change(self, method: methods.Method, request: Any) -> dict[str, Any]:
        """Make a change, or return the answer that its idempotency key got before."""
        key = request.idempotency_key
        if key is None:
            self._admit(method, request)
            return self._execute(method, request)
        # Two spellings of one call (`yes` and `YES`, 50 and 50.0) have the same fingerprint: it is taken after validation.
        fingerprint = method.name.encode() + encode(request.model_dump(exclude={"idempotency_key"}))
        answer = self._answers.get(key)
        if answer is None:
            self._admit(method, request)
            try:
                answer = _Answer(fingerprint, self._execute(method, request), None)
            except RpcError as error:
                answer = _Answer(fingerprint, None, error)
            self._answers[key] = answer
            self.changes += 1
        elif answer.fingerprint != fingerprint:
            raise refusal("idempotency_conflict", f"the key {key!r} belongs to another call")
        if answer.error is not None:  # a new object: raising the stored one again would grow its traceback
            raise RpcError(answer.error.code, answer.error.message, answer.error.data)
        return dict(answer.result)

    def _admit(self, method: methods.Method, request: rpc.Mutation) -> None:
        """Raise RpcError if no change is allowed now, else count the action.

        A refusal here costs no action and is not stored under an idempotency key, so the call can be repeated.
        """
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
        if self.read_budget is not None:
            self.reads_used -= 1
        self.changes += 1

    def _execute(self, method: methods.Method, request: Any) -> dict[str, Any]:
        """Run a method, with rejections of the world as RpcError."""
        try:
            return method.run(self, request)
        except Rejected as error:
            kind = _ERROR_TYPES.get(error.code, "order_rejected")
            raise refusal(kind, error.message, reason=error.code) from error
