"""`bakeoff market`: verbs of the market world, each in a module of its own that is imported when it is called."""

from __future__ import annotations

import click

from bakeoff.cli import Verbs

MARKET_VERBS: dict[str, tuple[str, str]] = {
    "generate": ("bakeoff.cli.market_generate", "Write a scenario: a public snapshot and the truth beside it."),
    "run": ("bakeoff.cli.market_run", "Play agents in the world of a snapshot and measure them."),
    "serve": ("bakeoff.cli.market_serve", "Serve a world to agents over HTTP: JSON-RPC, A2A and MCP."),
    "mcp": ("bakeoff.cli.market_mcp", "Serve a world to one agent over MCP on standard input and output."),
    "train": ("bakeoff.cli.market_train", "Generate, play, train, benchmark again and decide."),
}


class MarketVerbs(Verbs):
    verbs = MARKET_VERBS


@click.group(name="market", cls=MarketVerbs)
def command() -> None:
    """A world of prediction markets, perpetual futures and a social feed, for agents to trade in."""
