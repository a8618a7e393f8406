"""`bakeoff market serve`: a world on a port, for agents that speak JSON-RPC over HTTP."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.market_options import asked_world, world_options
from bakeoff.cli.options import json_option
from bakeoff.errors import UsageError


@click.command(name="serve")
@world_options
@click.option("--seats", default=1, show_default=True, type=click.IntRange(1, 256), help="How many agents may come.")
@click.option("--shared/--separate", default=False, show_default=True, help="All agents in one world with sealed orders, or each in its own copy.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option("--tick-timeout", default=30.0, show_default=True, type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Time for an agent's turn; after it the agent has done nothing more in this tick.")  # fmt: skip
@click.option("--join-timeout", default=60.0, show_default=True, type=click.FloatRange(min=0), metavar="SECONDS", help="How long the first tick waits for all agents to come.")  # fmt: skip
@click.option("--action-budget", default=20, show_default=True, type=click.IntRange(min=1), help="Actions of an agent in one tick.")  # fmt: skip
@click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="JSON with a token for each agent: read if it is there, else written. Without it tokens are printed.")  # fmt: skip
@click.option("--save-trajectories", is_flag=True, help="Record what every agent saw and did; needs --output.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Where results go."
)
@click.option("--linger", default=5.0, show_default=True, type=click.FloatRange(min=0), metavar="SECONDS", help="How long to stay after the last tick, for agents to look at the end.")  # fmt: skip
@json_option
def command(as_json: bool, **given: Any) -> None:
    """Serve a world to agents over HTTP, until its last tick.

    Each agent has a token (Authorization: Bearer TOKEN) and calls methods by JSON-RPC: POST /api/a2a. GET /health says
    how far it is, GET /api/a2a/openapi.json describes the methods.

    The same seats speak standard A2A (card at /.well-known/agent-card.json, POST /a2a/v1) and MCP (/mcp).

    \b
    Exit code: 0 played to the end; 2 the call or a file is wrong; 130 interrupted (results so far are written).
    """
    from bakeoff.workloads.market.serve.game import Game
    from bakeoff.workloads.market.serve.run import listen, serve
    from bakeoff.workloads.market.serve.table import Table

    output: Path | None = given["output"]
    if given["save_trajectories"] and output is None:
        raise UsageError("--save-trajectories needs --output DIR")
    tokens = _read_tokens(given["token_file"])
    games = [
        Game(
            world,
            action_budget=given["action_budget"],
            tick_timeout=given["tick_timeout"],
            record=given["save_trajectories"],
        )
        for world in _worlds(given)
    ]
    table = Table(games, tokens)
    if tokens is not None and (missing := table.tokens.keys() - tokens.keys()):
        raise UsageError(f"{given['token_file']}: has no token for {min(missing)}")
    bound = listen(given["host"], given["port"])
    url = f"http://{given['host']}:{bound.getsockname()[1]}/api/a2a"
    _announce(table, url, given["token_file"], as_json)
    served = serve(
        table,
        bound,
        join_timeout=given["join_timeout"],
        linger=given["linger"],
        on_finished=lambda: _write(table, output),
    )
    if not served.finished:
        _write(table, output)
    _tell_end(table, served.requests, output, as_json)
    if served.interrupted and not served.finished:
        click.get_current_context().exit(130)


def _worlds(given: dict[str, Any]) -> list[Any]:
    """One world for all, or one a seat; copies of a world are the same world."""
    if given["shared"]:
        return [asked_world(given, given["seats"])]
    return [asked_world(given) for _ in range(given["seats"])]


def _read_tokens(file: Path | None) -> dict[str, str] | None:
    if file is None or not file.exists():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: cannot be read: {error}") from error
    fits = isinstance(found, dict) and all(isinstance(token, str) and len(token) >= 16 for token in found.values())
    if not fits or len(set(found.values())) != len(found):
        raise UsageError(f'{file}: must be {{"player-1": TOKEN, ...}} with different tokens of at least 16 characters')
    return dict(found)


def _announce(table: Any, url: str, file: Path | None, as_json: bool) -> None:
    """Where to come, and with which token: told once."""
    if file is not None and not file.exists():
        try:
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
                json.dump(table.tokens, opened, indent=2)
        except OSError as error:
            raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
    if as_json:
        click.echo(json.dumps({"url": url, "tokens": table.tokens if file is None else str(file)}))
        return
    click.echo(f"serving {len(table.places)} {'seat' if len(table.places) == 1 else 'seats'} at {url}")
    if file is not None:
        click.echo(f"tokens are in {file}")
    else:
        for name, token in table.tokens.items():
            click.echo(f"{name}  {token}")


def _write(table: Any, output: Path | None) -> None:
    if output is not None:
        from bakeoff.workloads.market.serve.results import write

        write(table, output)


def _tell_end(table: Any, requests: int, output: Path | None, as_json: bool) -> None:
    from bakeoff.workloads.market.serve.results import summary

    found = [summary(place) for place in table.places]
    if as_json:
        click.echo(json.dumps({"requests": requests, "agents": found}))
        return
    for told in found:
        late = f", late {told['lateTurns']} times" if told["lateTurns"] else ""
        click.echo(f"{told['agent']}  {told['totalPnl']:+.2f} after {told['ticksProcessed']} ticks{late}")
    if output is not None:
        click.echo(f"results are in {output}")
