"""`bakeoff market serve` and `bakeoff market mcp`: a world for agents that connect from outside."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.options import json_option
from bakeoff.errors import UsageError
from bakeoff.workloads.market.cli import DIRECTORY, SECONDS, ChosenWorld, chosen_secret, chosen_world, world_options

if TYPE_CHECKING:
    from bakeoff.workloads.market.serve.disk_journal import DiskJournal
    from bakeoff.workloads.market.serve.game import Game, Seats
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
@click.option("--read-budget", default=1000, show_default=True, type=click.IntRange(min=1), help="Other calls of an agent in one tick.")  # fmt: skip
@click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="JSON with a token for each agent: read if it exists, else written. Without it tokens are printed.")  # fmt: skip
@click.option("--save-trajectories", is_flag=True, help="Record what every agent saw and did; needs --output.")
@click.option("-o", "--output", type=DIRECTORY, metavar="DIR", help="Directory of the results.")
@click.option("--linger", default=5.0, show_default=True, type=click.FloatRange(min=0), metavar="SECONDS", help="How long to stay after the last tick, for agents to look at the end.")  # fmt: skip
@click.option("--journal", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Where the game is kept until it is over.  [default: serve.journal in --output, else a file below bakeoff-runs/.market]")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Discard an unfinished game and begin a new one.")
@json_option
def serve(as_json: bool, **options: Any) -> None:
    """Serve a world to agents over HTTP, until its last tick.

    Everything that was answered is in the journal. After a crash or an interruption the same command goes on with the
    game, and agents with the tokens they have.

    Each agent has a token (Authorization: Bearer TOKEN) and calls methods by JSON-RPC: POST /api/a2a. GET /health says
    how far the game is, GET /api/a2a/openapi.json describes the methods.

    The same seats speak standard A2A (card at /.well-known/agent-card.json, POST /a2a/v1) and MCP (/mcp).

    \b
    Exit code: 0 played to the end; 2 the call or a file is wrong; 130 interrupted (results so far are written).
    """
    from bakeoff.workloads.market.serve import server
    from bakeoff.workloads.market.serve.game import Clock, Seats
    from bakeoff.workloads.market.serve.results import Results, summaries

    output: Path | None = options["output"]
    token_file: Path | None = options["token_file"]
    tokens = read_tokens(token_file)
    if options["save_trajectories"] and output is None:
        raise UsageError("--save-trajectories needs --output DIR")
    world, seats = chosen_world(options, draw=True), options["seats"]
    with server.listen(options["host"], options["port"]) as bound, _open_journal(world, options) as journal:
        if journal.header is not None:
            # A secret that was drawn is nowhere else; a secret that was given has been compared.
            world = replace(world, key=bytes.fromhex(journal.header["key"]), secret=journal.header["secret"])
        # Copies of a world are the same world, so separate agents meet the same one.
        worlds = [world.world(seats)] if options["shared"] else [world.world(first_player=n + 1) for n in range(seats)]
        clock = Clock()
        games = [_game(each, options, clock) for each in worlds]
        table = Seats(games, tokens or (journal.header or {}).get("tokens"))
        if tokens is not None and (missing := table.tokens.keys() - tokens.keys()):
            raise UsageError(f"{token_file}: has no token for {min(missing)}")
        results = Results(table, output, world.secret) if output is not None else None
        if journal.header is None:
            journal.begin(_identity(world, options), table.tokens)
        resumed = journal.attach(games, clock)
        if world.warning:
            click.echo(world.warning, err=as_json)
        address = f"http://{options['host']}:{bound.getsockname()[1]}/api/a2a"
        _announce(table, address, token_file, world.secret, as_json, journal.path if resumed else None)

        def write() -> None:
            if results is not None:
                results.write()

        served = server.serve(
            table,
            bound,
            join_timeout=options["join_timeout"],
            linger=options["linger"],
            on_finished=write,
            journal=journal,
        )
        if not served.finished:
            write()
        ended = summaries(table)
        if served.finished or not ended["agents"]:
            journal.discard()
    if as_json:
        click.echo(json.dumps({"requests": served.requests, **ended}))
    else:
        for row in ended["agents"]:
            late = f", late {row['lateTurns']} times" if row["lateTurns"] else ""
            click.echo(f"{row['agent']}  {row['totalPnl']:+.2f} after {row['ticksProcessed']} ticks{late}")
        for name in ended["neverCalled"] if ended["agents"] else ():
            click.echo(f"{name}  never called")
        if not ended["agents"]:
            click.echo("nobody played: no agent has called, so there are no results")
        elif output is not None:
            click.echo(f"results are in {output}")
        if ended["agents"] and not served.finished:
            click.echo(f"unfinished: the same command goes on with the game in {journal.path}")
    if served.interrupted and not served.finished:
        click.get_current_context().exit(130)


_SETTINGS = ("seats", "shared", "action_budget", "read_budget", "tick_timeout", "save_trajectories")
"""Options that decide, with the world, what happens in a game."""


def _identity(world: ChosenWorld, options: dict[str, Any]) -> dict[str, Any]:
    """Return what makes a game this game, for its journal."""
    settings = {"--" + name.replace("_", "-"): options[name] for name in _SETTINGS}
    scenario = world.scenario.model_dump(mode="json")
    return {"scenario": scenario, "key": world.key.hex(), "secret": world.secret, "options": settings}


def _open_journal(world: ChosenWorld, options: dict[str, Any]) -> DiskJournal:
    """Open the journal of this game; without a header it is a new one. Raises UsageError for that of another game.

    Without `--journal` and `--output` the file is named by the options, so that the same command finds it again. A
    second server with the same command gets a file of its own.
    """
    from bakeoff.records.layout import default_root
    from bakeoff.spec.identity import canonical_json
    from bakeoff.workloads.market.scenario import PUBLISHED
    from bakeoff.workloads.market.serve.disk_journal import DiskJournal, JournalHeld

    identity, fresh = _identity(world, options), options["fresh"]
    drawn = options["benchmark"] is None and options["output"] is None and chosen_secret(options) is None
    if drawn:
        del identity["key"], identity["secret"]  # a journal has those of its game
    if (path := options["journal"]) is not None or options["output"] is not None:
        journal = DiskJournal(path or options["output"] / "serve.journal", fresh=fresh)
    else:
        call = [identity, *(str(options[name]) for name in ("benchmark", "seed", "host", "port"))]
        name = hashlib.sha256(canonical_json(call).encode()).hexdigest()[:12]
        for number in itertools.count(1):
            try:
                journal = DiskJournal(default_root() / ".market" / f"serve-{name}-{number}.journal", fresh=fresh)
                break
            except JournalHeld:
                continue
    with contextlib.ExitStack() as when_refused:
        when_refused.callback(journal.close)
        try:
            if journal.header is not None:
                journal.check(identity)
                if drawn and journal.header["secret"] == PUBLISHED:
                    raise UsageError(f"{journal.path} is a game of a published world: add --demo, or remove the file")
        except UsageError:
            if journal.played:
                raise
            journal.header = None  # nobody has called, so there is nothing to lose
        when_refused.pop_all()
    return journal


def _game(world: World, options: dict[str, Any], clock: Callable[[], float] = time.monotonic) -> Game:
    """Return a game with the options that `serve` and `mcp` share."""
    from bakeoff.workloads.market.serve.game import Game

    return Game(
        world,
        clock=clock,
        action_budget=options["action_budget"],
        read_budget=options.get("read_budget"),
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


def _announce(
    table: Seats, url: str, file: Path | None, secret: str, as_json: bool, resumed: Path | None = None
) -> None:
    """Print the address and the tokens, or write the tokens into a file that only its owner can read."""
    if file is not None and not file.exists():
        try:
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
                json.dump(table.tokens, opened, indent=2)
        except OSError as error:
            raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
    tick = min(game.world.tick for game in table.games)
    if as_json:
        facts = {"url": url, "tokens": table.tokens if file is None else str(file), "secret": secret}
        click.echo(json.dumps({**facts, "resumedAtTick": tick} if resumed else facts))
        return
    if resumed:
        click.echo(f"going on at tick {tick} with the game in {resumed} (--fresh begins a new one)")
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

    from bakeoff.workloads.market.serve.game import Seats
    from bakeoff.workloads.market.serve.mcp import serve_stdio
    from bakeoff.workloads.market.serve.results import Results

    output: Path | None = options["output"]
    world = chosen_world(options, draw=True)
    if world.warning:
        click.echo(world.warning, err=True)  # standard output is the protocol's
    if options["save_trajectories"] and output is None:
        raise UsageError("--save-trajectories needs --output DIR")
    game = _game(world.world(), options)
    results = Results(Seats([game]), output, world.secret) if output is not None else None

    def write() -> None:
        if results is not None:
            results.write()

    def interrupted() -> None:
        write()
        os._exit(130)  # the thread that reads standard input cannot be interrupted

    asyncio.run(serve_stdio(game, interrupted))
    write()
