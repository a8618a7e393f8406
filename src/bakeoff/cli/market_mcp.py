"""`bakeoff market mcp`: a seat in a world for an MCP client, over standard input and output."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.market_options import asked_world, world_options
from bakeoff.errors import UsageError


@click.command(name="mcp")
@world_options
@click.option("--action-budget", default=20, show_default=True, type=click.IntRange(min=1), help="Actions in one tick.")
@click.option("--tick-timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Time for a turn, from the first call on; after it the tick is over. Unlimited when left out.")  # fmt: skip
@click.option("--save-trajectories", is_flag=True, help="Record what the agent saw and did; needs --output.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Where results go."
)
def command(**given: Any) -> None:
    """Give an MCP client a seat in a world, over standard input and output.

    For clients that start their servers themselves: {"command": "bakeoff", "args": ["market", "mcp", "--seed", "1"]}.
    Every method of the world is a tool; `market serve` has the same tools over HTTP.

    \b
    Exit code: 0 the client has left; 2 the call or a file is wrong; 130 interrupted (results so far are written).
    """
    import asyncio

    from bakeoff.workloads.market.serve.game import Game
    from bakeoff.workloads.market.serve.mcp import serve_stdio
    from bakeoff.workloads.market.serve.results import write
    from bakeoff.workloads.market.serve.table import Table

    output: Path | None = given["output"]
    if given["save_trajectories"] and output is None:
        raise UsageError("--save-trajectories needs --output DIR")
    game = Game(
        asked_world(given),
        action_budget=given["action_budget"],
        tick_timeout=given["tick_timeout"],
        record=given["save_trajectories"],
    )

    def keep() -> None:
        if output is not None:
            write(Table([game]), output)

    def leave() -> None:
        keep()
        os._exit(130)  # a read of standard input cannot be broken off

    asyncio.run(serve_stdio(game, leave))
    keep()
