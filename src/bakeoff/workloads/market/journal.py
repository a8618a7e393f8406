"""What a seat saw, did and earned, turn by turn: how it behaved, the steps of its trajectory, and its ledger.

`Attendance` records the turns while an episode runs. Afterwards `steps` turns them into a trajectory, and `read_ledger`
into trades, stated probabilities and counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from bakeoff.spec.workload import Step, Tokens
from bakeoff.workloads.market.agents.base import LlmCall
from bakeoff.workloads.market.methods import END_TURN, METHODS, OBSERVE
from bakeoff.workloads.market.session import Call, Session

Conduct = Literal["acted", "late", "crashed", "absent"]
"""How a turn went: `late` missed its deadline, `crashed` raised, `absent` was not waited for any more."""

PATIENCE = 3
"""Deadlines missed in a row before a seat is not waited for any more."""
ERRORS_KEPT = 10
_ACTIONS = frozenset(name for name, method in METHODS.items() if method.mutates) - {END_TURN}


@dataclass(slots=True)
class Turn:
    """One seat in one tick."""

    tick: int
    timestamp: float
    observation: dict[str, Any]
    """What the seat could see when the turn began; in a served world, when it made its first call."""
    equity: float
    calls: list[Call] = field(default_factory=list)
    llm_calls: list[LlmCall] = field(default_factory=list)
    conduct: Conduct = "acted"
    error: str | None = None
    think_s: float = 0.0
    reward: float = 0.0
    """Change of equity until the next recorded turn begins."""

    @property
    def actions(self) -> list[Call]:
        """Calls that changed something, or tried to. Ending the turn is not one of them."""
        return [call for call in self.calls if call.method in _ACTIONS]


@dataclass(slots=True)
class Attendance:
    """How a seat behaved: the turns it lost and how long it thought; with `record` also all its turns."""

    session: Session
    record: bool = False
    turns: list[Turn] = field(default_factory=list)
    """Empty unless they are recorded."""
    on_turn: Callable[[Turn], object] | None = None
    """Gets each recorded turn when the next one begins. Then only the last one is kept in `turns`."""
    called: bool = False
    """Whether an agent has ever called, in a served world."""
    late: int = 0
    crashed: int = 0
    absent: int = 0
    """Turns in which it was not waited for any more."""
    missed_in_a_row: int = 0
    think_s: float = 0.0
    longest_think_s: float = 0.0
    errors: list[str] = field(default_factory=list)
    """The first `ERRORS_KEPT` of them."""

    @property
    def gone(self) -> bool:
        """Whether it is not waited for any more."""
        return self.missed_in_a_row >= PATIENCE

    def begin(self) -> None:
        """Record the observation with which a turn begins. This comes before the turn, so it is not thinking time."""
        if self.record:
            if self.on_turn is not None and self.turns:
                self.on_turn(self.turns.pop())
            session, world = self.session, self.session.world
            session.calls = None  # our own observation is not a call of the agent
            observation = session.recorded()
            turn = Turn(world.tick, world.time, observation, world.equity(session.seat))
            self.turns.append(turn)
            session.calls = turn.calls

    def note(
        self, conduct: Conduct, think_s: float, error: str | None = None, llm_calls: Sequence[LlmCall] = ()
    ) -> None:
        """Count and record how a turn went."""
        self.think_s += think_s
        if think_s > self.longest_think_s:
            self.longest_think_s = think_s
        if conduct == "acted":
            self.missed_in_a_row = 0
        else:
            setattr(self, conduct, getattr(self, conduct) + 1)
            self.missed_in_a_row = 0 if conduct == "crashed" else self.missed_in_a_row + 1
            if error and len(self.errors) < ERRORS_KEPT:
                self.errors.append(f"tick {self.session.world.tick}: {error}")
        if self.session.calls is not None:  # the turn is recorded: it has begun
            turn = self.turns[-1]
            turn.conduct, turn.think_s, turn.error = conduct, think_s, plain(error)
            turn.llm_calls = list(llm_calls)
            self.session.calls = None

    def settle(self) -> None:
        """Record what the last turn has earned, after the world has advanced."""
        if self.turns:
            turn = self.turns[-1]
            turn.reward = self.session.world.equity(self.session.seat) - turn.equity


# -- the trajectory


def steps(turns: Sequence[Turn], *, agent: str, policy_version: str | None = None) -> Iterator[Step]:
    """Yield the steps of a trajectory. A step's action is the list of calls that changed something; reads are among
    its tool calls. Its messages and tokens are those of the last LLM call, whose prompt holds the earlier ones."""
    for number, turn in enumerate(turns):
        done = number == len(turns) - 1
        yield step(turn, agent=agent, began=turns[0].timestamp, done=done, policy_version=policy_version)


def step(turn: Turn, *, agent: str, began: float, done: bool, policy_version: str | None = None) -> Step:
    """Return one turn of an episode that began at the world time `began` as a step of its trajectory."""
    last = turn.llm_calls[-1] if turn.llm_calls else None
    # Token ids of the last call cover the turn: its prompt contains the replies to the earlier calls.
    tokens = None
    if last and (last.prompt_ids or last.completion_ids or last.logprobs):
        tokens = Tokens(last.prompt_ids, last.completion_ids, last.logprobs)
    tool_calls = []
    for call in turn.calls:
        if call.method not in (OBSERVE, END_TURN):
            outcome = {"error": plain(call.error.as_json())} if call.error else {"result": call.result}
            tool_calls.append({"method": call.method, "params": plain(call.params), **outcome})
    info: dict[str, Any] = {
        "tick": turn.tick,
        "conduct": turn.conduct,
        "think_s": turn.think_s,
        "equity": turn.equity,
    }
    if turn.error:
        info["error"] = turn.error
    if turn.llm_calls:
        info["llm_calls"] = [_llm_facts(call) for call in turn.llm_calls]
    return Step(
        observation=turn.observation,
        action=[action_json(call) for call in turn.actions],
        reward=turn.reward,
        done=done,
        time_s=turn.timestamp - began,
        messages=plain(last.messages) if last else [],
        tool_calls=tool_calls,
        tokens=tokens,
        agent=agent,
        policy_version=policy_version,
        info=info,
    )


def _llm_facts(call: LlmCall) -> dict[str, Any]:
    """What a step tells about an LLM call beside its messages; empty lists are left out."""
    always = ("model", "latency_s", "tool_calls", "prompt_tokens", "completion_tokens")
    facts = {name: getattr(call, name) for name in always}
    for name in ("prompt_ids", "completion_ids", "logprobs", "error"):
        if value := getattr(call, name):
            facts[name] = value
    return facts


def action_json(call: Call) -> dict[str, Any]:
    """A call that changed something, or tried to, as trajectories and tables show it."""
    row = {"type": call.method, "params": plain(call.params), "success": call.error is None}
    return row if call.error is None else {**row, "error": plain(call.error.as_json())}


def plain(value: Any) -> Any:
    """Return `value` as JSON can hold it. Agents pass NaN, NumPy numbers, objects, and lone surrogates."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_encodable))
    except UnicodeEncodeError:  # half of a surrogate pair, which neither UTF-8 nor msgspec can hold
        text = json.dumps(value, default=_encodable, skipkeys=True, ensure_ascii=False)
        return plain(json.loads(text.encode(errors="replace")))


def _encodable(value: Any) -> Any:
    """NumPy's arrays and numbers as plain ones, and anything else as its `repr`."""
    return value.tolist() if hasattr(value, "tolist") else repr(value)


# -- the ledger

_ORDERS = frozenset({"a2a.buyShares", "a2a.sellShares", "a2a.openPosition", "a2a.closePosition"})


@dataclass(frozen=True, slots=True)
class Trade:
    """One order that was filled."""

    tick: int
    kind: str
    """buy, sell, open or close."""
    target: str
    side: str
    amount: float
    shares: float
    price: float
    fee: float
    before: float
    """Price of this side when the turn began; of a perpetual the index."""
    after: float
    """Price of YES that the order left behind; of a perpetual the index."""
    realized: float
    """Profit of what was sold or closed; of perpetuals without the fee."""

    @property
    def of_market(self) -> bool:
        """Whether it was an order for shares, not for a perpetual."""
        return self.kind in ("buy", "sell")

    @property
    def impact(self) -> float:
        """Dollars that an order for shares lost against the price when the turn began."""
        worse = self.price - self.before if self.kind == "buy" else self.before - self.price
        return self.shares * worse


@dataclass(frozen=True, slots=True)
class Statement:
    """A probability of YES that the seat posted, and the market's when the turn began, before the seat's own orders."""

    tick: int
    market: str
    probability: float
    price: float


@dataclass(slots=True)
class Ledger:
    """Everything a seat did in an episode."""

    trades: list[Trade] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    posts: int = 0
    messages: int = 0
    joined: int = 0
    refused: int = 0
    """Actions that the world refused."""
    index_pnl: float = 0.0
    """Dollars that the perpetual positions would have earned if they had been traded and closed at the index."""


class _Book:
    """Markets and positions as the tick began, moved on by the seat's own orders."""

    def __init__(self, observation: Mapping[str, Any]) -> None:
        self.opening = {view["id"]: view["yesPrice"] for view in observation["predictionMarkets"]}
        self.liquidity = {view["id"]: view["liquidity"] for view in observation["predictionMarkets"]}
        self.index = {view["ticker"]: view["indexPrice"] for view in observation["perpetualMarkets"]}
        self.units = {
            view["ticker"]: view["units"] * (1 if view["side"] == "LONG" else -1)
            for view in observation["positions"]["perpPositions"]
        }
        self.odds: dict[str, float] = {}
        for market, price in self.opening.items():
            inside = min(max(price, 1e-9), 1 - 1e-9)  # a price is shown with six digits and may be 0 or 1
            self.odds[market] = math.log(inside / (1 - inside))

    def trade(self, fill: Mapping[str, Any]) -> Trade:
        """The trade of a fill; moves the book."""
        target, side, kind = fill["target"], fill["side"], fill["kind"]
        if kind in ("buy", "sell"):
            # With a logarithmic scoring rule an order moves the log-odds by shares / b (see world.markets).
            toward = 1 if (side == "YES") == (kind == "buy") else -1
            self.odds[target] += toward * fill["shares"] / self.liquidity[target]
            before = self.opening[target] if side == "YES" else 1 - self.opening[target]
            after = 1 / (1 + math.exp(-self.odds[target]))
        else:
            before = after = self.index[target]
            held, units, sign = self.units.get(target, 0.0), fill["shares"], 1 if side == "LONG" else -1
            if kind == "open" and held * sign >= 0:
                self.units[target] = held + sign * units
            elif kind == "open" and units > abs(held):
                # Against the position: it is closed first, and the rest then stands on the other side.
                self.units[target] = sign * (units - abs(held))
            else:
                self.units[target] = held - math.copysign(units, held)
        copied = {name: fill[name] for name in ("tick", "kind", "target", "side", "amount", "shares", "price", "fee")}
        return Trade(**copied, before=before, after=after, realized=fill["realizedPnl"])


def read_ledger(turns: Sequence[Turn], end: Mapping[str, Any]) -> Ledger:
    """The ledger of all turns. `end` is what the seat would see after the last tick."""
    ledger = Ledger()
    keys: set[str] = set()
    for number, turn in enumerate(turns):
        book = _Book(turn.observation)
        sealed = False
        for call in turn.actions:
            key = call.params.get("idempotencyKey") if call.error is None else None
            if call.error is not None:
                ledger.refused += 1
            elif key is not None and key in keys:
                continue  # the call only got the first one's answer again
            elif call.method in _ORDERS:
                sealed = sealed or call.result["status"] == "sealed"
                if call.result["status"] == "filled":
                    ledger.trades.append(book.trade(call.result))
            elif call.method == "a2a.createPost":
                ledger.posts += 1
                if (probability := call.params.get("probability")) is not None:
                    market = call.params["marketId"]
                    ledger.statements.append(Statement(turn.tick, market, float(probability), book.opening[market]))
            elif call.method == "a2a.sendMessage":
                ledger.messages += 1
            elif call.method in ("a2a.joinGroup", "a2a.acceptGroupInvite"):
                ledger.joined += 1
            if key is not None:
                keys.add(key)
        after = turns[number + 1].observation if number + 1 < len(turns) else end
        if sealed:
            ledger.trades += [book.trade(fill) for fill in after["fills"] if fill["status"] == "filled"]
        for view in after["perpetualMarkets"]:
            ledger.index_pnl += book.units.get(view["ticker"], 0.0) * (view["indexPrice"] - book.index[view["ticker"]])
    return ledger
