"""A Python agent in a process of its own: `process:my_agent.py:MyAgent`. It can neither hang the episode nor look into it.

The process speaks the lines protocol; the agent does not notice, except that every look costs a message.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from bakeoff.workloads.market import methods, render, requests, rpc
from bakeoff.workloads.market.agents.face import Agent, Brief, Seat
from bakeoff.workloads.market.agents.lines import FAILED, READY, LinesAgent
from bakeoff.workloads.market.agents.load import agent_class, load
from bakeoff.workloads.market.rpc import RpcError, refusal
from bakeoff.workloads.market.world import views


def hosted(spec: str, options: Mapping[str, Any], base: Path) -> LinesAgent:
    """The agent as a program. Its class is looked for here first, so that a wrong name is told before anything starts."""
    agent_class(spec, base)
    argv = [sys.executable, "-m", __spec__.name, spec, json.dumps(dict(options)), str(base)]
    return LinesAgent(argv, name=f"process:{spec}", cwd=base, says_ready=True)


def _plain(value: Any) -> Any:
    """What NumPy computed is a number there as it is here."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise NotImplementedError


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


class _Wire:
    """Lines to and from the episode."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader, self._writer = reader, writer
        self._number = 0

    def messages(self) -> Iterator[dict[str, Any]]:
        for line in self._reader:
            yield cast("dict[str, Any]", rpc.decode(line))

    def send(self, method: str, params: Mapping[str, Any], **more: Any) -> None:
        self._writer.write(_encode({"jsonrpc": "2.0", "method": method, "params": params, **more}) + b"\n")
        self._writer.flush()

    def call(self, method: str, params: Mapping[str, Any]) -> Any:
        self._number += 1
        self.send(method, params, id=self._number)
        for message in self.messages():
            if message.get("id") == self._number:
                if "error" in message:
                    raise RpcError(**message["error"])
                return message["result"]
        raise SystemExit  # the episode is over


class _Session:
    """What a Seat needs, over the wire: the session itself, and the looks that it takes at the world."""

    def __init__(self, wire: _Wire, brief: Mapping[str, Any]) -> None:
        self._wire = wire
        self.world = self
        self.seat = brief["seat"]
        self.lock = nullcontext()
        self.tick, self.ticks = 0, brief["ticks"]
        self.ended = False
        self._deadline: float | None = None

    def begin(self, params: Mapping[str, Any]) -> None:
        self.tick, self.ended = params["tick"], False
        left = params["responseTimeout"]
        self._deadline = None if left is None else time.monotonic() + left

    def call(self, method: str, params: Any = None, *, idempotency_key: str | None = None) -> Any:
        given = dict(params or {})
        found = methods.find(method)
        if found.name == methods.END_TURN:  # the return from `act` says it to the episode, which answers until then
            self.ended = requests.read(requests.EndTurn, given).ends(self.tick) or self.ended
            return self.clock_facts()
        if found.mutates and self.ended:
            raise refusal("turn_over", f"your turn in tick {self.tick} is over", tick=self.tick)
        if idempotency_key is not None:
            given["idempotencyKey"] = idempotency_key
        return self._wire.call(found.name, given)

    def clock_facts(self) -> dict[str, Any]:
        told = self.call("a2a.getSystemStats")
        return {name: told[name] for name in ("tick", "ticks", "timestamp", "done")}

    def observe(self) -> Any:
        return self.call("a2a.observe")

    @property
    def actions_left(self) -> int:
        return 0 if self.ended else int(self.observe()["actionsLeft"])

    @property
    def seconds_left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def end_turn(self) -> None:
        self.ended = True

    def markets(self) -> list[views.MarketView]:
        return [render.revived(views.MarketView, told) for told in self.call("a2a.getPredictions")["predictions"]]

    def perpetuals(self) -> list[views.PerpView]:
        return [render.revived(views.PerpView, told) for told in self.call("a2a.getPerpetuals")["perpetuals"]]

    def account(self, seat: int) -> views.Account:
        return render.revived(views.Account, self.call("a2a.getUserWallet"))

    def positions(self, seat: int) -> views.PositionsView:
        return render.revived_positions(self.call("a2a.getPositions"))

    def posts(self, seat: int, limit: int) -> list[views.PostView]:
        return [render.revived(views.PostView, told) for told in self.call("a2a.getFeed", {"limit": limit})["posts"]]

    def chats(self) -> list[views.ChatView]:
        return [render.revived_chat(told) for told in self.call("a2a.getChats")["chats"]]

    def trades(self, limit: int) -> list[views.TradeView]:
        return [
            render.revived(views.TradeView, told) for told in self.call("a2a.getTrades", {"limit": limit})["trades"]
        ]


def _brief(told: Mapping[str, Any]) -> Brief:
    import numpy as np

    return Brief(
        agent_id=told["agentId"],
        seat=told["seat"],
        ticks=told["ticks"],
        scenario=told["scenario"],
        action_budget=told["actionBudget"],
        response_timeout=told["responseTimeout"],
        rng=np.random.default_rng(told["seed"]),
        rules=told["rules"],
    )


def play(agent: Agent, wire: _Wire) -> None:
    session: _Session | None = None
    for message in wire.messages():
        params = message.get("params", {})
        try:
            if message.get("method") == "reset":
                session = _Session(wire, params)
                agent.reset(_brief(params))
                wire.send(READY, {})
            elif message.get("method") == "tick" and session:
                session.begin(params)
                agent.act(Seat(cast("Any", session)))
                wire.send(methods.END_TURN, {})
            elif message.get("method") == "end":
                return
        except Exception as error:
            traceback.print_exc()
            wire.send(FAILED, {"message": f"{type(error).__name__}: {error}"})


def main(spec: str, options: str, base: str) -> None:
    # What the agent prints must not get between the lines.
    writer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    play(load(spec, json.loads(options), base=Path(base)), _Wire(sys.stdin.buffer, writer))


if __name__ == "__main__":
    main(*sys.argv[1:])
