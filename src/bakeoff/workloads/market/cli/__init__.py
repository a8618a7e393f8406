"""`bakeoff market`: its verbs, each imported when it is called, and the options that choose a world.

`generate`, `run` and `train` are in `run`, `serve` and `mcp` in `serve`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from bakeoff.cli import Verbs

if TYPE_CHECKING:
    from bakeoff.workloads.market.scenario import Scenario
    from bakeoff.workloads.market.world.world import World

F = TypeVar("F", bound=Callable[..., Any])

MARKET_VERBS: dict[str, tuple[str, str]] = {
    "generate": (f"{__name__}.run", "Write a scenario: a public snapshot and the truth beside it."),
    "run": (f"{__name__}.run", "Play agents in the world of a snapshot and measure them."),
    "serve": (f"{__name__}.serve", "Serve a world to agents over HTTP: JSON-RPC, A2A and MCP."),
    "mcp": (f"{__name__}.serve", "Serve a world to one agent over MCP on standard input and output."),
    "train": (f"{__name__}.run", "Generate, play, train, benchmark again and decide."),
}
"""Each verb's module, which has a click command of the verb's name, and its line in `bakeoff market --help`."""


class MarketVerbs(Verbs):
    """A group whose verbs share modules."""

    verbs = MARKET_VERBS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.verbs:
            return None
        command: click.Command = getattr(import_module(self.verbs[cmd_name][0]), cmd_name)
        return command


@click.group(name="market", cls=MarketVerbs)
def command() -> None:
    """A world of prediction markets, perpetual futures and a social feed, for agents to trade in."""


# -- options that choose a world

DEFAULT_SEED = 12345
PRIVATE = "private.json"
"""In the output of a server: the secret that it drew."""
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
DIRECTORY = click.Path(path_type=Path, file_okay=False)
SECONDS = click.FloatRange(min=0, min_open=True)
_NAMES = {"duration": "duration_minutes", "interval": "tick_interval"}
_SIZE = ("duration", "interval", "markets", "perpetuals", "agents", "regime", "tier", "tape")


def scenario_options(function: F) -> F:
    """Add one option for each parameter of a scenario."""
    from bakeoff.workloads.market.scenario import Scenario

    for name in reversed(_SIZE):  # decorators apply from the inside out, and help lists options in that order
        field = Scenario.model_fields[_NAMES.get(name, name)]
        values = get_args(field.annotation)
        option = click.option(
            f"--{name}",
            type=click.Choice(values) if values else None,
            default=field.default,
            show_default=True,
            help=field.description,
        )
        function = option(function)
    return function


def chosen_scenario(options: Mapping[str, Any]) -> Scenario:
    """Return the scenario that `scenario_options` describe. Raises UsageError."""
    from bakeoff.workloads.market.scenario import scenario

    return scenario(**{_NAMES.get(name, name): options[name] for name in _SIZE})


demo_option = click.option(
    "--demo", is_flag=True, help="Draw the world with the published secret: the same for everyone, not for a contest."
)


def chosen_secret(options: Mapping[str, Any]) -> str | None:
    """Return the secret that `--secret-file`, `--demo` or the environment names; None if none of them does.

    Raises UsageError.
    """
    from bakeoff.errors import UsageError
    from bakeoff.workloads.market.scenario import PUBLISHED_SECRET, SECRET_VARIABLE, read_secret

    if options["demo"]:
        if options["secret_file"] is not None:
            raise UsageError("--demo and --secret-file exclude each other: the demo's secret is published")
        return PUBLISHED_SECRET
    if options["secret_file"] is None and not os.environ.get(SECRET_VARIABLE):
        return None
    return read_secret(options["secret_file"])


def world_options(function: F) -> F:
    """Add `--benchmark`, the options of a scenario, `--seed`, `--secret-file` and `--demo`."""
    from bakeoff.workloads.market.scenario import LARGEST_SEED

    options = [
        click.option("--benchmark", type=FILE, metavar="FILE", help="A file of `bakeoff market generate`."),
        scenario_options,
        click.option(
            "--seed",
            type=click.IntRange(0, LARGEST_SEED),
            default=DEFAULT_SEED,
            show_default=True,
            help="Draws the world; with --benchmark it drives only the agent.",
        ),
        click.option(
            "--secret-file", type=FILE, metavar="FILE", help="The secret that worlds are drawn with; for a contest."
        ),
        demo_option,
    ]
    for option in reversed(options):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class ChosenWorld:
    """The world that `world_options` describe."""

    id: str
    scenario: Scenario
    key: bytes
    secret: str
    """How results name the secret that drew it (`scenario.secret_label`)."""
    warning: str | None
    """The line that tells the owner about that secret."""

    def world(self, seats: int = 1, first_player: int = 1) -> World:
        """Return a new copy of the world at tick 0. Its seats are player-N, from `first_player` on."""
        from bakeoff.workloads.market.world.world import World

        return World.from_key(self.scenario, self.key, seats, first_player)


def chosen_world(options: Mapping[str, Any], *, draw: bool = False) -> ChosenWorld:
    """Return the chosen world. Raises UsageError when `--benchmark` comes with options of another scenario.

    Without a secret the world is one of the published secret. With `draw` it is one of a new secret, which is kept in
    private.json of `--output`, so that the same call finds the same world again.
    """
    from bakeoff.errors import UsageError
    from bakeoff.workloads.market import scenario as scenarios

    scenario, seed = chosen_scenario(options), options["seed"]
    if options["benchmark"] is None:
        secret = chosen_secret(options)
        if secret is None and draw:
            output: Path | None = options["output"]
            secret = scenarios.draw_secret() if output is None else scenarios.keep_secret(output / PRIVATE)
        secret = secret or scenarios.PUBLISHED_SECRET
        label = scenarios.secret_label(secret)
        identity = f"{scenario.digest[:16]}-{seed}"
        if label != scenarios.PUBLISHED:  # else two worlds of different secrets would have one name
            identity += "-" + label.removeprefix("sha256:")[:8]
        key = scenarios.world_key(scenario, seed, secret)
        warning = scenarios.secret_warning(secret)
        return ChosenWorld(identity, scenario, key, label, f"warning: {warning}" if warning else None)
    if scenario != scenarios.scenario() or options["secret_file"] is not None or options["demo"]:
        raise UsageError("--benchmark brings its own scenario: leave --duration, --regime, --secret-file ... out")
    from bakeoff.workloads.market.snapshot import load

    snapshot = load(options["benchmark"])
    warning = f"warning: {scenarios.PUBLISHED_WARNING}" if snapshot.secret == scenarios.PUBLISHED else None
    return ChosenWorld(snapshot.id, snapshot.scenario, snapshot.key, snapshot.secret, warning)
