"""`bakeoff schedsim`: one simulation, its files and its main figures. Options are the workload's parameters."""

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
from bakeoff.workloads.schedsim import outputs, summary
from bakeoff.workloads.schedsim.console import told
from bakeoff.workloads.schedsim.params import SchedsimParams
from bakeoff.workloads.schedsim.workload import simulate

LARGEST_SEED = 2**64 - 1


def _whole(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Digits and a sign, nothing else: what `int` would forgive is a mistake in a script."""
    if not re.fullmatch(r"[+-]?[0-9]+", value):
        raise click.BadParameter(f"{value!r} is not a whole number")
    return int(value)


def _seed(ctx: click.Context, param: click.Parameter, value: str) -> int:
    seed = _whole(ctx, param, value)
    if not 0 <= seed <= LARGEST_SEED:
        raise click.BadParameter(f"{value} is not in the range 0 to {LARGEST_SEED}")
    return seed


def _options(function: Any) -> Any:
    """An option for every parameter of the workload, in their order."""
    for name, field in reversed(SchedsimParams.model_fields.items()):
        if name == "outputs":
            continue
        how: dict[str, Any] = {"default": field.default, "show_default": field.default is not None}
        if field.annotation is bool:
            how = {"is_flag": True}
        elif field.annotation is int:
            how |= {"type": str, "callback": _whole, "metavar": "INTEGER"}
        elif field.annotation is float:
            how |= {"type": float}
        elif get_origin(field.annotation) is Literal:
            how |= {"type": click.Choice(get_args(field.annotation))}
        function = click.option(f"--{name}", help=field.description, **how)(function)
    return function


class _TellsUsage(click.Command):
    """Every mistake is told together with the usage, also those that click finds before it knows the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


@click.command(name="schedsim", cls=_TellsUsage)
@_options
@click.option("--seed", default="1", show_default=True, callback=_seed, metavar="INTEGER", help="64 bits.")
@click.option("--out_dir", default="out", show_default=True, help="Where the files go; made when it is not there.")
@json_option
def command(seed: int, out_dir: str, as_json: bool, **given: Any) -> None:
    """Simulate agent workflows under a scheduling policy, in virtual time.

    Writes summary.csv, workflows.csv, tiers.csv and trace.json. The same options give the same bytes.

    \b
    Exit code: 0 simulated; 1 no workflow succeeded; 2 the call or the file is wrong.
    """
    if not out_dir:
        raise click.BadParameter("it must not be empty", param_hint="'--out_dir'")
    try:
        params = SchedsimParams.model_validate({**given, "outputs": True})
    except ValidationError as error:
        first = error.errors()[0]
        raise click.BadParameter(
            first["msg"].removeprefix("Value error, "), param_hint=f"'--{first['loc'][0]}'"
        ) from error
    sys.path.insert(0, "")  # a policy of the user's own lies beside
    try:
        sim = simulate(params, seed, Path.cwd(), trace=params.trace_format != "none")
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    figures, files = summary.metrics(sim), outputs.write(sim, Path(out_dir), params.trace_format)
    if as_json:
        print_json(_report(params, seed, figures, files))
    else:
        click.echo("\n".join(told(params, seed, Path(out_dir), figures, files)))
    if not figures["workflows_succeeded"]:
        click.get_current_context().exit(1)


def _report(params: SchedsimParams, seed: int, figures: summary.Row, files: dict[str, Path]) -> dict[str, Any]:
    from bakeoff.version import __version__

    settings = params.model_dump(mode="json", exclude={"outputs"})
    return {
        "version": __version__,
        "config": {**settings, "seed": seed},
        "summary": figures,
        "files": {name: str(path) for name, path in files.items()},
    }
