"""Let 64 agents play at one HTTP server for a minute: measure requests per second and check that no action is lost."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import BAKEOFF, check, environment, machine, options, publish, say, versions, workspace

AGENTS = 64
METHOD = (
    "`bakeoff market serve --shared` with 64 seats in one world of 5 markets, 3 perpetuals and 8 background traders; then the "
    "same with 64 separate worlds. One client process speaks HTTP/1.1 over 64 connections on loopback; each agent repeats: "
    "observe, three actions (two orders and a post), end of turn, each call answered before the next. Every answer must be a "
    "result; afterwards the server's count of actions must be the clients' count, for every agent. Client and server share "
    "the machine's cores."
)


@dataclass
class Agent:
    """One agent on one connection that plays as fast as answers arrive."""

    host: str
    port: int
    token: str
    requests: int = 0
    actions: int = 0
    ticks: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)

    async def play(self, deadline: float) -> None:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        self._reader, self._writer = reader, writer
        while time.monotonic() < deadline:
            seen = await self.call("a2a.observe")
            if seen is None or seen["done"]:
                break
            await self._act(seen)
            await self.call("a2a.endTurn", tick=seen["tick"], wait=time.monotonic() < deadline)
            self.ticks += 1
        writer.close()
        await writer.wait_closed()

    async def _act(self, seen: dict[str, Any]) -> None:
        market = next(iter(seen["predictionMarkets"]), None)
        for side in ("YES", "NO") if market else ():
            self.actions += (
                await self.call("a2a.buyShares", marketId=market["id"], outcome=side, amount=1.5) is not None
            )
        self.actions += await self.call("a2a.createPost", content=f"tick {seen['tick']}") is not None

    async def call(self, method: str, **params: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params}).encode()
        head = (
            f"POST /api/a2a HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self.token}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        began = time.perf_counter()
        self._writer.write(head.encode() + body)
        answer = json.loads(await self._answer())
        if method != "a2a.endTurn":  # waits for the other agents
            self.latencies.append(time.perf_counter() - began)
        self.requests += 1
        if "error" in answer:
            self.errors[answer["error"]["data"]["type"]] += 1
            return None
        return answer["result"]

    async def _answer(self) -> bytes:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        return await self._reader.readexactly(length)


async def play(url: str, tokens: dict[str, str], seconds: float) -> list[Agent]:
    host, _, port = url.removeprefix("http://").partition("/")[0].rpartition(":")
    agents = [Agent(host, int(port), token) for token in tokens.values()]
    deadline = time.monotonic() + seconds
    await asyncio.gather(*(agent.play(deadline) for agent in agents))
    return agents


def measured(directory: Path, way: str, seconds: float) -> dict[str, Any]:
    """Start a server, let 64 agents play, stop it with a signal, and compare the counts of both sides."""
    output = directory / way
    # More ticks than any machine plays in a minute, and a timeout that no agent misses on a busy machine.
    argv = [*BAKEOFF, "market", "serve", f"--{way}", "--seats", str(AGENTS), "--port", "0", "--duration", "1000000",
            "--tick-timeout", "600", "--json", "--output", str(output)]  # fmt: skip
    used_before = cpu_of_children()
    server = subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE, text=True)
    assert server.stdout
    told = json.loads(server.stdout.readline())
    try:
        began = time.monotonic()
        agents = asyncio.run(play(told["url"], told["tokens"], seconds))
        took = time.monotonic() - began
    finally:
        server.terminate()
    ended = json.loads(server.stdout.readline())
    code = server.wait(60)
    # CPU time, which other work on the machine hardly affects. It includes a second or two for the start.
    return {**judged(agents, ended, took, code), "server_cpu_s": cpu_of_children() - used_before}


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def judged(agents: list[Agent], ended: dict[str, Any], took: float, code: int) -> dict[str, Any]:
    counted = [told["actions"] for told in ended["agents"]]
    latencies = sorted(latency for agent in agents for latency in agent.latencies)
    requests = sum(agent.requests for agent in agents)
    return {
        "seconds": took,
        "requests": requests,
        "requests_per_s": requests / took,
        "requests_unaccounted": ended["requests"] - requests,
        "agent_ticks": sum(agent.ticks for agent in agents),
        "actions": sum(agent.actions for agent in agents),
        "actions_lost": sum(abs(agent.actions - count) for agent, count in zip(agents, counted, strict=True)),
        "errors": dict(sum((agent.errors for agent in agents), Counter())),
        "late_turns": sum(told["lateTurns"] for told in ended["agents"]),
        "latency_ms": {
            name: 1000 * latencies[int(share * (len(latencies) - 1))]
            for name, share in (("median", 0.5), ("p99", 0.99), ("max", 1.0))
        },
        "exit_code": code,
    }


def main() -> None:
    given = options(__doc__ or "")
    seconds = 3.0 if given.quick else 60.0
    figures = {}
    with workspace() as directory:
        facts = machine(directory)
        for way in ("shared", "separate"):
            say(f"{AGENTS} agents, {way}, {seconds:g} s")
            figures[way] = measured(directory, way, seconds)
    checks = [
        check(
            f"{AGENTS} agents over HTTP for {seconds:g} s, {way}: errors, lost actions and late turns",
            f"{found['actions']:,} actions, {found['requests_per_s']:,.0f} requests/s", "none",
            sum(found["errors"].values()) + found["actions_lost"] + found["late_turns"], 1, "under", "faults",
        )
        for way, found in figures.items()
    ]  # fmt: skip
    programs = versions("starlette", "uvicorn", "httptools")
    publish("market_http", given, checks, figures, method=METHOD, facts=facts, programs=programs)


if __name__ == "__main__":
    main()
