"""`bakeoff export`: recorded trajectories as training data."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import Several, SeveralValues, json_option, note_shadowed, root_option
from bakeoff.text import printable

FORMATS = ("verifiers", "trl-sft", "trl-kto", "trl-grpo", "art", "atif", "sharegpt", "jsonl", "parquet", "inspect")


def _quantiles(_ctx: click.Context, _option: click.Parameter, value: str | None) -> tuple[float, float] | None:
    """`0.8` (to 1) or `0.2:0.8` as two numbers."""
    if value is None:
        return None
    low, _, high = value.partition(":")
    try:
        lower, upper = float(low or 0), float(high or 1)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not LO or LO:HI, such as 0.8 or 0.2:0.8") from None
    if not 0 <= lower <= upper <= 1:
        raise click.BadParameter(f"{value!r}: quantiles go from 0 to 1, the lower one first")
    return lower, upper


@click.command(cls=SeveralValues)
@click.argument("names", nargs=-1, metavar="[SOURCE]...")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("--arms", cls=Several, metavar="ARM...", help="Only these arms; several values may follow.")
@click.option("--tasks", cls=Several, metavar="TASK...", help="Only these tasks; several values may follow.")
@click.option("--success", is_flag=True, help="Only runs that succeeded: their metric `success`, or a reward above 0.")
@click.option("--reward-quantile", "quantile", callback=_quantiles, metavar="LO[:HI]", help="Only rewards between these quantiles of their task: 0.8 keeps the best fifth.")  # fmt: skip
@click.option("--min-group", type=click.IntRange(min=1), help="Only groups of at least this many rollouts (default: 2 for art and trl-grpo, else 1).")  # fmt: skip
@click.option("--render", is_flag=True, help="Also write trajectories without a language model as conversations: observations and actions as JSON.")  # fmt: skip
@click.option("--with-truth", is_flag=True, help="Also write what the agent could not see (jsonl and parquet only).")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="PATH", help="Where to write (default: export/ in the edition's directory, or here). An earlier export there is replaced.")  # fmt: skip
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    form: str,
    arms: tuple[str, ...],
    tasks: tuple[str, ...],
    success: bool,
    quantile: tuple[float, float] | None,
    min_group: int | None,
    render: bool,
    with_truth: bool,
    output: Path | None,
    root: Path,
    as_json: bool,
) -> None:
    """Write recorded trajectories as training data, or all runs as logs of Inspect AI.

    SOURCE is an experiment (default: the newest), or whatever `bakeoff compare` takes: runs of other tools are written
    where their source holds what was said in them.

    A group holds the rollouts of one policy from one prompt in one world (task and seed). For art and trl-grpo,
    --success and --reward-quantile keep or drop whole groups, by their best and by their mean reward; for other formats
    they keep or drop single rollouts. Exits with 1 when nothing is left.
    """
    from bakeoff.export.exporting import NothingLeft, export
    from bakeoff.export.rollouts import Filters
    from bakeoff.results.sources import open_results

    filters = Filters(arms=arms, tasks=tasks, success=success, quantile=quantile)
    note_shadowed(names, root)
    with closing(open_results(names, root)) as results:
        try:
            summary = export(
                results, form, filters, min_group=min_group, render=render, with_truth=with_truth, output=output
            )
        except NothingLeft as nothing:
            summary = nothing.summary
    if as_json:
        print_json(asdict(summary))
    else:
        if summary.rows:
            counts = f"rows={summary.rows} rollouts={summary.rollouts} groups={summary.groups}"
            click.echo(f"wrote: {printable(str(summary.output))} {counts}")
        if summary.equal_groups:
            click.echo(f"groups whose rewards are all equal: {summary.equal_groups}")
        for reason, count in summary.dropped.items():
            click.echo(f"left out: {count} runs, {reason}")
    if not summary.rows:
        click.echo("error: nothing is left to export; nothing was written", err=True)
        ctx.exit(1)
