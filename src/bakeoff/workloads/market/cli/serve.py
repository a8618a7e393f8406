"""`bakeoff market serve` and `bakeoff market mcp`: a world for agents that connect from outside."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.options import json_option
from bakeoff.errors import UsageError
from bakeoff.workloads.market.cli import DIRECTORY, SECONDS, chosen_world, world_options

if TYPE_CHECKING:
    from bakeoff.workloads.market.serve.game import Game, Table
    from bakeoff.workloads.market.world.world import World


@click.command()
@world_options
@click.option("--seats", default=1, show_default=True, type=click.IntRange(1, 256), help="How many agents may connect.")
@click.option("--shared/--separate", default=False, show_default=True, help="All agents in one world with sealed orders, or each in its own copy.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option("--tick-timeout", default=30.0, show_default=True, type=SECONDS, metavar="SECONDS", help="Time for an agent's turn; what it does later in this tick is refused.")  # fmt: skip
@click.option("--join-timeout", default=60.0, show_default=True, type=click.FloatRange(min=0), metavar="SECONDS", help="How long the first tick waits for all agents to connect.")  # fmt: skip
@click.option("--action-budget", default=20, show_default=True, type=click.IntRange(min=1), help="Actions of an agent in one tick.")  # fmt: skip
@click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="JSON with a token for each agent: read if it exists, else written. Without it tokens are printed.")  # fmt: skip
@click.option("--save-trajectories", is_flag=True, help="Record what every agent saw and did; needs --output.")
@click.option("-o", "--output", type=DIRECTORY, metavar="DIR", help="Directory of the results.")
@click.option("--linger", default=5.0, show_default=True, type=click.FloatRange(min=0), metavar="SECONDS", help="How long to stay after the last tick, for agents to look at the end.")  # fmt: skip
@json_option
def serve(as_json: bool, **options: Any) -> None:
    """Serve a world to agents over HTTP, until its last tick.

    Each agent has a token (Authorization: Bearer TOKEN) and calls methods by JSON-RPC: POST /api/a2a. GET /health says
    how far the game is, GET /api/a2a/openapi.json describes the methods.

    The same seats speak standard A2A (card at /.well-known/agent-card.json, POST /a2a/v1) and MCP (/mcp).

    \b
    Exit code: 0 played to the end; 2 the call or a file is wrong; 130 interrupted (results so far are written).
    """
    from bakeoff.workloads.market.serve import server
    from bakeoff.workloads.market.serve.game import Table, summary, write_results

    output: Path | None = options["output"]
    token_file: Path | None = options["token_file"]
    tokens = read_tokens(token_file)
    world, seats = chosen_world(options), options["seats"]
    # Copies of a world are the same world, so separate agents meet the same one.
    worlds = [world.world(seats)] if options["shared"] else [world.world() for _ in range(seats)]
    table = Table([_game(each, options) for each in worlds], tokens)
    if tokens is not None and (missing := table.tokens.keys() - tokens.keys()):
        raise UsageError(f"{token_file}: has no token for {min(missing)}")
    bound = server.listen(options["host"], options["port"])
    _announce(table, f"http://{options['host']}:{bound.getsockname()[1]}/api/a2a", token_file, as_json)

    def write() -> None:
        if output is not None:
            write_results(table, output)

    served = server.serve(
        table, bound, join_timeout=options["join_timeout"], linger=options["linger"], on_finished=write
    )
    if not served.finished:
        write()
    summaries = [summary(place) for place in table.places]
    if as_json:
        click.echo(json.dumps({"requests": served.requests, "agents": summaries}))
    else:
        for row in summaries:
            late = f", late {row['lateTurns']} times" if row["lateTurns"] else ""
            click.echo(f"{row['agent']}  {row['totalPnl']:+.2f} after {row['ticksProcessed']} ticks{late}")
        if output is not None:
            click.echo(f"results are in {output}")
    if served.interrupted and not served.finished:
        click.get_current_context().exit(130)


def _game(world: World, options: dict[str, Any]) -> Game:
    """Return a game with the options that `serve` and `mcp` share."""
    from bakeoff.workloads.market.serve.game import Game

    if options["save_trajectories"] and options["output"] is None:
        raise UsageError("--save-trajectories needs --output DIR")
    return Game(
        world,
        action_budget=options["action_budget"],
        tick_timeout=options["tick_timeout"],
        record=options["save_trajectories"],
    )


def read_tokens(file: Path | None) -> dict[str, str] | None:
    """Return the tokens of a file by name of the seat, or None without a file. Raises UsageError."""
    if file is None or not file.exists():
        return None
    try:
        tokens = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: cannot be read: {error}") from error
    valid = isinstance(tokens, dict) and all(isinstance(each, str) and len(each) >= 16 for each in tokens.values())
    if not valid or len(set(tokens.values())) != len(tokens):
        raise UsageError(f'{file}: must be {{"player-1": TOKEN, ...}} with different tokens of at least 16 characters')
    return dict(tokens)


def _announce(table: Table, url: str, file: Path | None, as_json: bool) -> None:
    """Print the address and the tokens, or write the tokens into a file that only its owner can read."""
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


@click.command()
@world_options
@click.option("--action-budget", default=20, show_default=True, type=click.IntRange(min=1), help="Actions in one tick.")
@click.option("--tick-timeout", type=SECONDS, metavar="SECONDS", help="Time for a turn, from the first call on; then the tick ends.  [default: unlimited]")  # fmt: skip
@click.option("--save-trajectories", is_flag=True, help="Record what the agent saw and did; needs --output.")
@click.option("-o", "--output", type=DIRECTORY, metavar="DIR", help="Directory of the results.")
def mcp(**options: Any) -> None:
    """Give an MCP client a seat in a world, over standard input and output.

    For clients that start their servers themselves: {"command": "bakeoff", "args": ["market", "mcp", "--seed", "1"]}.
    Every method of the world is a tool; `market serve` has the same tools over HTTP.

    \b
    Exit code: 0 the client has left; 2 the call or a file is wrong; 130 interrupted (results so far are written).
    """
    import asyncio

    from bakeoff.workloads.market.serve.game import Table, write_results
    from bakeoff.workloads.market.serve.mcp import serve_stdio

    output: Path | None = options["output"]
    game = _game(chosen_world(options).world(), options)

    def write() -> None:
        if output is not None:
            write_results(Table([game]), output)

    def interrupted() -> None:
        write()
        os._exit(130)  # the thread that reads standard input cannot be interrupted

    asyncio.run(serve_stdio(game, interrupted))
    write()
