"""`bakeoff schedsim`: one simulation, its files and its main figures. Its options are the workload's parameters."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic import ValidationError

from bakeoff.cli.display import print_json
from bakeoff.cli.options import json_option
from bakeoff.errors import UsageError
from bakeoff.version import __version__
from bakeoff.workloads.schedsim import outputs
from bakeoff.workloads.schedsim.workload import SchedsimParams, simulate

LARGEST_SEED = 2**64 - 1


def _integer(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Digits and a sign, nothing else: `int` also accepts `1_0`, which is a mistake in a script."""
    if not re.fullmatch(r"[+-]?[0-9]+", value):
        raise click.BadParameter(f"{value!r} is not a whole number")
    if param.name == "seed" and not 0 <= int(value) <= LARGEST_SEED:
        raise click.BadParameter(f"{value} is not in the range 0 to {LARGEST_SEED}")
    return int(value)


def _parameter_options(function: Any) -> Any:
    """An option for every parameter of the workload, in their order."""
    for name, field in reversed(SchedsimParams.model_fields.items()):
        if name == "outputs":
            continue
        settings: dict[str, Any] = {"default": field.default, "show_default": field.default is not None}
        if field.annotation is bool:
            settings = {"is_flag": True}
        elif field.annotation is int:
            settings |= {"type": str, "callback": _integer, "metavar": "INTEGER"}
        elif field.annotation is float:
            settings |= {"type": float}
        elif get_origin(field.annotation) is Literal:
            settings |= {"type": click.Choice(get_args(field.annotation))}
        function = click.option(f"--{name}", help=field.description, **settings)(function)
    return function


class _ShowsUsage(click.Command):
    """Prints the usage with every error, also with those that click raises before it knows the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


@click.command(name="schedsim", cls=_ShowsUsage)
@_parameter_options
@click.option("--seed", default="1", show_default=True, callback=_integer, metavar="INTEGER", help="64 bits.")
@click.option("--out_dir", default="out", show_default=True, help="Where the files go. Created if missing.")
@json_option
def command(seed: int, out_dir: str, as_json: bool, **options: Any) -> None:
    """Simulate agent workflows under a scheduling policy, in virtual time.

    Writes summary.csv, workflows.csv, tiers.csv and trace.json. The same options give the same bytes.

    \b
    Exit code: 0 simulated; 1 no workflow succeeded; 2 the call or the file is wrong.
    """
    if not out_dir:
        raise click.BadParameter("must not be empty", param_hint="'--out_dir'")
    try:
        params = SchedsimParams.model_validate({**options, "outputs": True})
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        raise click.BadParameter(message, param_hint=f"'--{first['loc'][0]}'") from error
    sys.path.insert(0, "")  # the module of a custom policy may be in the current directory
    try:
        sim = simulate(params, seed, Path.cwd(), trace=params.trace_format != "none")
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    figures, files = outputs.metrics(sim), outputs.write(sim, Path(out_dir), params.trace_format)
    if as_json:
        print_json(
            {
                "version": __version__,
                "config": {**params.model_dump(mode="json", exclude={"outputs"}), "seed": seed},
                "summary": figures,
                "files": {name: str(path) for name, path in files.items()},
            }
        )
    else:
        click.echo("\n".join(outputs.printed(params.printed(seed, Path(out_dir)), figures, files)))
    if not figures["workflows_succeeded"]:
        click.get_current_context().exit(1)
