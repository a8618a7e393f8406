"""`bakeoff market generate`: a scenario as a public and a private file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.market_options import asked_scenario, scenario_options
from bakeoff.cli.options import json_option
from bakeoff.workloads.market.scenario import LARGEST_SEED, read_secret

DEFAULT_SEED = 12345


@click.command(name="generate")
@scenario_options
@click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    default=DEFAULT_SEED,
    show_default=True,
    help="Which of the scenario's worlds; it is not in the public file.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The public file, or a directory for it.  [default: benchmarks/benchmark-{id}.json]",
)
@click.option("--force", is_flag=True, help="Replace another snapshot that is at that path.")
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A line of random text that draws the worlds; for a contest.  [default: $BAKEOFF_MARKET_SECRET, else published]",
)
@json_option
def command(seed: int, output: Path | None, force: bool, secret_file: Path | None, as_json: bool, **given: Any) -> None:
    """Write a market scenario: a public snapshot, and the truth in a private file beside it.

    The same options, seed and secret give the same bytes. Give agents the public file only.

    \b
    Exit code: 0 the files are there; 2 the call is wrong.
    """
    wanted, secret = asked_scenario(given), read_secret(secret_file)

    from bakeoff.workloads.market.snapshot import generate

    written = generate(wanted, seed, output, secret=secret, force=force)
    if as_json:
        print_json(
            {
                "id": written.id,
                "public": str(written.public),
                "private": str(written.private),
                "fresh": written.fresh,
                "ticks": wanted.ticks,
                "config": wanted.model_dump(mode="json"),
            }
        )
        return
    state = "wrote" if written.fresh else "already there:"
    click.echo(f"{state} {written.public} ({wanted.ticks} ticks)\n{state} {written.private} (keep it from agents)")
