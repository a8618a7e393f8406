"""Let one seat flood a market server and measure what another seat notices; and how long /health takes while a world plays
itself out. `--before DIRECTORY` measures an earlier checkout's sources in the same run."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from market_http import Agent
from measure import BAKEOFF, Options, check, environment, machine, publish, say, versions, workspace

CONNECTIONS, BATCH = 8, 64
SEATS, TICKS = 64, 2_000
METHOD = (
    "`bakeoff market serve` with two seats in worlds of their own. One agent observes 300 times, each call answered before "
    "the next, first alone, then while the other agent keeps 8 connections busy with batches of 64 observe calls; the ratio "
    "of its median latencies is the figure. With the default read budget, and with one that the flood never meets. Then a "
    "server with 64 recorded seats that nobody calls: /health is asked again and again while its 2,000 ticks are worked "
    "off, and the longest answer counts; at the end it is told SIGTERM in the middle of such a world. Client and server "
    "share the machine's cores."
)


class Server:
    """A server in a process of its own; `sources` are those of another checkout."""

    def __init__(self, directory: Path, sources: Path | None, *options: str) -> None:
        variables = environment()
        if sources is not None:
            variables["PYTHONPATH"] = str(sources / "src")
        elif "--read-budget" not in options:
            options += ("--journal", str(directory / f"{time.time_ns()}.journal"))
        argv = [*BAKEOFF, "market", "serve", "--port", "0", "--json", *options]
        self.process = subprocess.Popen(argv, env=variables, cwd=directory, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        told = json.loads(self.process.stdout.readline())
        host, _, port = told["url"].removeprefix("http://").partition("/")[0].rpartition(":")
        self.host, self.port, self.tokens = host, int(port), list(told["tokens"].values())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


async def flood(server: Server, token: str) -> None:
    """One connection of the flood."""
    body = json.dumps(
        [{"jsonrpc": "2.0", "id": number, "method": "a2a.observe", "params": {}} for number in range(BATCH)]
    ).encode()
    head = (
        f"POST /api/a2a HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=1 << 22)
    while True:
        writer.write(head + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(length)


async def latencies(server: Server, token: str, calls: int) -> list[float]:
    agent = Agent(server.host, server.port, token)
    agent._reader, agent._writer = await asyncio.open_connection(server.host, server.port)
    for _ in range(calls):
        await agent.call("a2a.observe")
    agent._writer.close()
    return agent.latencies


def attack(server: Server, token: str) -> subprocess.Popen[bytes]:
    """The flood, in a process of its own: on the victim's event loop it would be measured too."""
    script = (
        "import asyncio, sys; sys.path[:0] = [sys.argv[1]]; from types import SimpleNamespace; import market_latency as m\n"
        "server = SimpleNamespace(host=sys.argv[2], port=int(sys.argv[3]))\n"
        "async def all_of_them(): await asyncio.gather(*(m.flood(server, sys.argv[4]) for _ in range(m.CONNECTIONS)))\n"
        "asyncio.run(all_of_them())"
    )
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", script, here, server.host, str(server.port), token], stderr=subprocess.DEVNULL
    )


def flooded(directory: Path, sources: Path | None, calls: int, *options: str) -> dict[str, Any]:
    """Median latency of one seat alone and beside a flood, in milliseconds, and their ratio."""
    server = Server(directory, sources, "--seats", "2", "--tick-timeout", "600", "--duration", "1000", *options)
    try:
        victim, attacker = server.tokens
        asyncio.run(latencies(server, victim, 50))
        alone = statistics.median(asyncio.run(latencies(server, victim, calls)))
        flooding = attack(server, attacker)
        try:
            time.sleep(1.0)
            beside = asyncio.run(latencies(server, victim, min(calls, 100)))
        finally:
            flooding.kill()
            flooding.wait()
    finally:
        server.end()
    return {
        "alone_ms": 1000 * alone,
        "flooded_ms": 1000 * statistics.median(beside),
        "flooded_max_ms": 1000 * max(beside),
        "ratio": statistics.median(beside) / alone,
    }


async def longest_health(server: Server, until_tick: int) -> tuple[float, list[float]]:
    """Ask /health until the world has reached a tick: the longest answer, and all of them."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    taken: list[float] = []
    while True:
        began = time.perf_counter()
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        health = json.loads(await reader.readexactly(length))
        taken.append(time.perf_counter() - began)
        if health["tick"] >= until_tick:
            writer.close()
            return max(taken), taken
        await asyncio.sleep(0.002)


def unattended(directory: Path, ticks: int) -> dict[str, Any]:
    """/health and SIGTERM while nobody plays, in milliseconds."""
    options = [
        "--shared",
        "--seats",
        str(SEATS),
        "--tick-timeout",
        "0.05",
        "--join-timeout",
        "0",
        "--save-trajectories",
    ]
    server = Server(directory, None, *options, "--duration", str(ticks), "-o", str(directory / "all"), "--linger", "60")
    try:
        longest, taken = asyncio.run(longest_health(server, ticks))
    finally:
        server.end()
    server = Server(directory, None, *options, "--duration", "100000", "-o", str(directory / "half"))
    try:
        asyncio.run(longest_health(server, 50))
        began = time.perf_counter()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(60)
        ended = time.perf_counter() - began
    finally:
        server.end()
    return {
        "health_asked": len(taken),
        "health_median_ms": 1000 * statistics.median(taken),
        "health_longest_ms": 1000 * longest,
        "sigterm_to_exit_ms": 1000 * ended,
        "exit_code": code,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small version; its figures mean little")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON object into this file")
    parser.add_argument(
        "--before", type=Path, metavar="DIRECTORY", help="an earlier checkout, measured beside this one"
    )
    given = parser.parse_args()
    calls = 50 if given.quick else 300
    figures: dict[str, Any] = {}
    with workspace() as directory:
        facts = machine(directory)
        if given.before is not None:
            say("the flood, with the earlier sources")
            figures["before"] = flooded(directory, given.before.resolve(), calls)
        say("the flood, with the default read budget")
        figures["flooded"] = flooded(directory, None, calls)
        say("the flood, with a read budget that it never meets")
        figures["flooded_without_budget"] = flooded(directory, None, calls, "--read-budget", str(10**9))
        say("a world that nobody plays")
        figures["unattended"] = unattended(directory, 200 if given.quick else TICKS)
    free, idle = figures["flooded_without_budget"], figures["unattended"]
    was = f"{figures['before']['ratio']:.3g}x before" if "before" in figures else "65x before"
    checks = [
        check(
            "market server: median latency of one seat beside another's flood (8 connections of 64 calls), against alone",
            f"{free['flooded_ms']:.2f} ms against {free['alone_ms']:.2f} ms", was, free["ratio"], 10, "under",
        ),
        check(
            f"market server: longest /health while {SEATS} recorded seats and {TICKS:,} ticks play themselves out",
            f"{idle['health_longest_ms']:.3g} ms", "-", idle["health_longest_ms"], 100, "under", "ms",
        ),
    ]  # fmt: skip
    programs = versions("starlette", "uvicorn", "httptools")
    publish("market_latency", Options(given.quick, given.out), checks, figures, method=METHOD, facts=facts, programs=programs)  # fmt: skip


if __name__ == "__main__":
    main()
