"""Options that say which market world is meant: a scenario file, or a scenario's size and a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

if TYPE_CHECKING:
    from bakeoff.workloads.market.scenario import Scenario
    from bakeoff.workloads.market.snapshot import Snapshot
    from bakeoff.workloads.market.world.world import World

F = TypeVar("F", bound=Callable[..., Any])

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_NAMES = {"duration": "duration_minutes", "interval": "tick_interval"}
_SIZE = ("duration", "interval", "markets", "perpetuals", "agents", "regime", "tier")


def scenario_options(function: F) -> F:
    """One option for each parameter of a scenario."""
    from bakeoff.workloads.market.scenario import Scenario

    for name in reversed(_SIZE):
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


def asked_scenario(given: Mapping[str, Any]) -> Scenario:
    """The scenario that the options ask for."""
    from bakeoff.workloads.market.scenario import scenario

    return scenario(**{_NAMES.get(name, name): given[name] for name in _SIZE})


def world_options(function: F) -> F:
    """`--benchmark`, one option for each parameter of a scenario, `--seed` and `--secret-file`."""
    from bakeoff.workloads.market.scenario import LARGEST_SEED

    options = [
        click.option("--benchmark", type=_FILE, metavar="FILE", help="A file of `bakeoff market generate`."),
        scenario_options,
        click.option(
            "--seed",
            type=click.IntRange(0, LARGEST_SEED),
            default=12345,
            show_default=True,
            help="Draws the world; with --benchmark it drives only the agent.",
        ),
        click.option(
            "--secret-file", type=_FILE, metavar="FILE", help="The secret that worlds are drawn with; for a contest."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def asked_world(given: Mapping[str, Any], seats: int = 1) -> World:
    """The world that the options ask for."""
    from bakeoff.workloads.market.scenario import read_secret
    from bakeoff.workloads.market.world.world import World

    if (snapshot := asked_snapshot(given)) is not None:
        return snapshot.world(seats)
    secret = read_secret(given["secret_file"])
    return World.create(asked_scenario(given), given["seed"], seats=seats, secret=secret)


def asked_snapshot(given: Mapping[str, Any]) -> Snapshot | None:
    """What `--benchmark` names. It brings its own scenario and key, so options that ask for others are refused."""
    if given["benchmark"] is None:
        return None
    from bakeoff.errors import UsageError
    from bakeoff.workloads.market.scenario import scenario
    from bakeoff.workloads.market.snapshot import load

    if asked_scenario(given) != scenario() or given["secret_file"] is not None:
        raise UsageError("--benchmark brings its own scenario: leave --duration, --regime, --secret-file ... out")
    return load(given["benchmark"])
