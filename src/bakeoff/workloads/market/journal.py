"""What a seat saw, did and got, turn by turn; and the same as steps of a trajectory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from bakeoff.spec.workload import Step, Tokens
from bakeoff.workloads.market.agents.face import LlmCall
from bakeoff.workloads.market.methods import END_TURN, METHODS, OBSERVE
from bakeoff.workloads.market.session import Call, Session

Conduct = Literal["acted", "late", "crashed", "absent"]
"""How a turn went: `late` missed its deadline, `crashed` raised, `absent` is not waited for any more."""

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
        """Calls that changed something, or tried to; ending the turn is none."""
        return [call for call in self.calls if call.method in _ACTIONS]


class Journal:
    """Keeps the turns of one seat. It looks only at turns' ends, so what it costs does not count as thinking."""

    def __init__(self, session: Session) -> None:
        self.turns: list[Turn] = []
        self._session = session

    def begin(self) -> None:
        session, world = self._session, self._session.world
        session.calls = None  # the journal's own look is no call of the agent
        observation = session.observe()
        turn = Turn(world.tick, world.time, observation, world.equity(session.seat))
        self.turns.append(turn)
        session.calls = turn.calls

    def end(self, conduct: Conduct, think_s: float, error: str | None, llm_calls: list[LlmCall]) -> None:
        turn = self.turns[-1]
        turn.conduct, turn.think_s, turn.error = conduct, think_s, plain(error)
        turn.llm_calls = list(llm_calls)
        self._session.calls = None

    def settle(self) -> None:
        """After the world has moved on: what the turn earned."""
        turn = self.turns[-1]
        turn.reward = self._session.world.equity(self._session.seat) - turn.equity


def steps(turns: list[Turn], *, agent: str, policy_version: str | None = None) -> Iterator[Step]:
    """A trajectory. An action is the list of calls that changed something; looks are among the tool calls."""
    for number, turn in enumerate(turns):
        llm = turn.llm_calls
        yield Step(
            observation=turn.observation,
            action=[action_json(call) for call in turn.actions],
            reward=turn.reward,
            done=number == len(turns) - 1,
            time_s=turn.timestamp - turns[0].timestamp,
            messages=plain(llm[-1].messages) if llm else [],
            tool_calls=[call_json(call) for call in turn.calls if call.method not in (OBSERVE, END_TURN)],
            tokens=_tokens(llm[-1]) if llm else None,
            agent=agent,
            policy_version=policy_version,
            info=_info(turn),
        )


def action_json(call: Call) -> dict[str, Any]:
    found = {"type": call.method, "params": plain(call.params), "success": call.error is None}
    return found if call.error is None else {**found, "error": plain(call.error.as_json())}


def call_json(call: Call) -> dict[str, Any]:
    outcome = {"result": call.result} if call.error is None else {"error": plain(call.error.as_json())}
    return {"method": call.method, "params": plain(call.params), **outcome}


def plain(value: Any) -> Any:
    """As JSON can hold it. Agents hand over anything: NaN, numbers of NumPy, objects, halves of surrogate pairs."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_odd))
    except UnicodeEncodeError:
        text = json.dumps(value, default=_odd, skipkeys=True, ensure_ascii=False)
        return plain(json.loads(text.encode(errors="replace")))


def _odd(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else repr(value)


def _tokens(call: LlmCall) -> Tokens | None:
    if not (call.prompt_ids or call.completion_ids or call.logprobs):
        return None
    return Tokens(call.prompt_ids, call.completion_ids, call.logprobs)


def _info(turn: Turn) -> dict[str, Any]:
    found: dict[str, Any] = {"tick": turn.tick, "conduct": turn.conduct, "think_s": turn.think_s, "equity": turn.equity}
    if turn.error:
        found["error"] = turn.error
    if turn.llm_calls:
        # The step's messages and tokens are the last call's, whose prompt holds what went before in this turn.
        found["llm_calls"] = [_llm_facts(call) for call in turn.llm_calls]
    return found


def _llm_facts(call: LlmCall) -> dict[str, Any]:
    facts: dict[str, Any] = {name: getattr(call, name) for name in ("model", "latency_s", "tool_calls")}
    facts |= {"prompt_tokens": call.prompt_tokens, "completion_tokens": call.completion_tokens}
    facts |= {
        name: found for name in ("prompt_ids", "completion_ids", "logprobs", "error") if (found := getattr(call, name))
    }
    return facts
