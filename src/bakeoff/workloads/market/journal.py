"""What a seat saw, did and earned, turn by turn: how it behaved, and the steps of its trajectory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
    """What the seat could see when the turn began."""
    equity: float
    calls: list[Call] = field(default_factory=list)
    llm_calls: list[LlmCall] = field(default_factory=list)
    conduct: Conduct = "acted"
    error: str | None = None
    think_s: float = 0.0
    reward: float = 0.0
    """Change of equity until the next turn begins."""

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
            session, world = self.session, self.session.world
            session.calls = None  # our own observation is not a call of the agent
            observation = session.observe()
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
        if self.record:
            turn = self.turns[-1]
            turn.conduct, turn.think_s, turn.error = conduct, think_s, plain(error)
            turn.llm_calls = list(llm_calls)
            self.session.calls = None

    def settle(self) -> None:
        """Record what the turn earned, after the world has advanced."""
        if self.record:
            turn = self.turns[-1]
            turn.reward = self.session.world.equity(self.session.seat) - turn.equity


def steps(turns: Sequence[Turn], *, agent: str, policy_version: str | None = None) -> Iterator[Step]:
    """Yield the steps of a trajectory. A step's action is the list of calls that changed something; reads are among
    its tool calls. Its messages and tokens are those of the last LLM call, whose prompt holds the earlier ones."""
    for number, turn in enumerate(turns):
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
        yield Step(
            observation=turn.observation,
            action=[action_json(call) for call in turn.actions],
            reward=turn.reward,
            done=number == len(turns) - 1,
            time_s=turn.timestamp - turns[0].timestamp,
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
