"""`bakeoff rank`: many arms on many tasks, in order, with what that order is worth."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bakeoff.cli import display, inputs
from bakeoff.cli.options import json_option, root_option
from bakeoff.errors import UsageError
from bakeoff.interop import sources
from bakeoff.interop.asking import judged
from bakeoff.interop.editions import OneEdition
from bakeoff.interop.source import Source
from bakeoff.stats.bootstrap import BootstrapInterval
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.passing import Chance, Passing, is_binary, passing
from bakeoff.verdicts.rank import Options, Ranking, References, rank
from bakeoff.version import __version__

POPULATION = "Intervals resample runs inside tasks: they speak of these tasks only."


@click.command()
@click.argument("names", nargs=-1, metavar="[SOURCE]...")
@click.option("--metric", metavar="NAME", help="What to rank by; the experiment's own metric when left out.")
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Only these arms; can be repeated.")
@click.option("--normalize", "--normalise", "bounds", nargs=2, metavar="LOW HIGH", help="Scores that count 0 and 1: two numbers, or two parameters or metrics that hold them for each task.")  # fmt: skip
@click.option("--target", type=float, help="Score from which on more earns nothing, for the optimality gap; 1 for normalised scores, else the good end of analysis.bounds.")  # fmt: skip
@click.option("--failure-score", type=float, help="What a failed run counts, where the experiment does not say.")
@click.option("--direction", type=click.Choice(inputs.DIRECTIONS), help="Which way is better, where nothing declares it or the metric is another one.")  # fmt: skip
@click.option("-k", "ks", multiple=True, type=click.IntRange(min=1), help="k of pass@k and pass^k; can be repeated. 1, 2, 4, ... when left out.")  # fmt: skip
@click.option("--success", type=float, help="Value from which on a run is a success; needed for pass@k unless the metric is 0 or 1.")  # fmt: skip
@click.option("--level", type=click.FloatRange(0.5, 1, max_open=True), default=0.95, show_default=True, help="Level of intervals and of the critical difference.")  # fmt: skip
@click.option("--resamples", type=click.IntRange(min=100), default=2000, show_default=True, help="Bootstrap resamples.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the bootstrap.")
@click.option("--output", "--plot", "output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw the performance profiles into FILE: .png, .svg or .html.")  # fmt: skip
@inputs.column_options
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, names: tuple[str, ...], root: Path, as_json: bool, **asked: Any) -> None:
    """Rank all arms over all tasks.

    IQM, mean and optimality gap with stratified bootstrap intervals, the chance that a run of one arm beats one of
    another, average ranks with a critical difference, Bradley-Terry strengths, and pass@k / pass^k for successes.
    SOURCE is an experiment (the newest when left out), a table (.csv, .tsv, .parquet, .jsonl), or directories of runs.
    Exits with 3 when runs are missing or still open.
    """
    source = sources.open_source(names, root, inputs.columns(asked))
    seen = _observed(source, asked)
    references = _references(source, asked["bounds"], seen)
    options = Options(asked["level"], asked["resamples"], asked["seed"], asked["target"])
    found = rank(seen, references, options)
    passes = _passes(seen, asked)
    if asked["output"] is not None:
        from bakeoff.report.plots import performance_profiles

        performance_profiles(found, asked["output"])
    if as_json:
        settings = {
            key: asked[key] for key in ("level", "resamples", "seed", "target", "success", "failure_score", "direction")
        }
        settings["normalize"] = list(asked["bounds"]) if asked["bounds"] else None
        display.print_json(
            {"version": __version__, "source": seen.source, "settings": settings, **as_table(found), "pass": [asdict(p) for p in passes]}
        )  # fmt: skip
    else:
        _show(seen.source, found, passes)
        if asked["output"] is not None:
            click.echo(f"plot: {asked['output']}")
    ctx.exit(0 if seen.final and not any(arm.flagged for arm in found.arms) else 3)


def _observed(source: Source, asked: dict[str, Any]) -> Observations:
    changes = {key: asked[key] for key in ("failure_score", "direction")}
    metric = asked["metric"] or source.declared()[0]
    seen = source.observe(metric, judged(source.analysis.about(metric), changes))
    for arm in asked["arms"]:
        if arm not in seen.arms:
            raise UsageError(f"no arm called {arm!r}; there are {', '.join(seen.arms)}")
    return seen.of(asked["arms"]) if asked["arms"] else seen


def _references(source: Source, bounds: tuple[str, str] | None, seen: Observations) -> References | None:
    if not bounds:
        return None
    low, high = (_column(source, bound, seen) for bound in bounds)
    return {task: (low[task], high[task]) for task in seen.tasks}


def _column(source: Source, name: str, seen: Observations) -> dict[str, float]:
    """One number for each task: a number that is given, a parameter, or a metric that the task's runs agree on."""
    try:
        return dict.fromkeys(seen.tasks, float(name))
    except ValueError:
        pass
    values: dict[str, set[float]] = {task: set() for task in seen.tasks}
    for cell in source.edition.cells() if isinstance(source, OneEdition) else ():
        value = cell.columns.get(name)
        if isinstance(value, int | float) and cell.task in values:
            values[cell.task].add(float(value))
    if not any(values.values()):
        for row in source.observe(name, seen.analysis.model_copy(update={"summary": None})).rows:
            if row.state == "scored" and row.task in values:
                values[row.task].add(row.value)
    for task, found in values.items():
        if len(found) != 1:
            what = "none" if not found else f"several: {', '.join(f'{value:g}' for value in sorted(found)[:3])}"
            raise UsageError(f"--normalize {name}: task {task!r} needs one reference score and has {what}")
    return {task: found.pop() for task, found in values.items()}


def _passes(seen: Observations, asked: dict[str, Any]) -> list[Passing]:
    if asked["success"] is None and not is_binary(seen):
        if asked["ks"]:
            raise UsageError("pass@k needs successes: say with --success from which value on a run is one")
        return []
    found = passing(seen, asked["ks"] or None, asked["success"], asked["level"])
    tried = {one.k for one in found}
    for k in asked["ks"]:
        if k not in tried:
            raise UsageError(f"pass@{k} needs {k} attempts on every task; no arm has that many")
    return found


def as_table(found: Ranking) -> dict[str, Any]:
    """The ranking as JSON has it."""
    names = [arm.arm for arm in found.arms]
    return {
        "metric": found.metric,
        "normalized": found.normalised,
        "tasks": list(found.tasks),
        "arms": [{**asdict(arm), "flagged": arm.flagged} for arm in found.arms],
        "probability_of_improvement": {
            a: {b: asdict(one) for b, one in zip(names, row, strict=True) if one is not None}
            for a, row in zip(names, found.improvement, strict=True)
        },
        "average_ranks": None
        if found.ranks is None
        else {**asdict(found.ranks), "arms": names, "blocks": found.blocks},
        "not_told_apart": [list(group) for group in found.groups],
        "population": POPULATION,
        "warnings": list(found.warnings),
    }


def _show(source: str, found: Ranking, passes: list[Passing]) -> None:
    click.secho(f"{source}: {len(found.arms)} arms on {len(found.tasks)} tasks", bold=True, nl=False)
    better = "larger" if found.larger_is_better else "smaller"
    click.echo(f", by {found.metric}{' (normalised)' if found.normalised else ''}, {better} is better")
    click.echo()
    _show_arms(found)
    click.echo(POPULATION)
    _show_improvement(found)
    _show_ranks(found)
    _show_passes(passes)
    if found.warnings:
        click.echo()
    for warning in found.warnings:
        click.echo(f"Warning: {warning}.")


def _show_arms(found: Ranking) -> None:
    columns = ["arm", "runs", "failed", "missing", "IQM", "interval", "mean", "optimality gap", "rank", "strength"]
    rows = []
    for arm in found.arms:
        strength = display.NOTHING
        if arm.strength is not None:
            strength = f"{arm.strength[0]:+.2f} ({arm.strength[1]:+.2f} .. {arm.strength[2]:+.2f})"
        rank_text = display.NOTHING if arm.average_rank is None else f"{arm.average_rank:.2f}"
        gap = display.NOTHING if arm.optimality_gap is None else display.number(arm.optimality_gap.estimate)
        missing = f"{len(arm.missing)} !" if arm.flagged else "0"
        rows.append([arm.arm, str(arm.runs), str(arm.failed), missing, display.number(arm.iqm.estimate), _ends(arm.iqm),
                     display.number(arm.mean.estimate), gap, rank_text, strength])  # fmt: skip
    keep = [i for i in range(len(columns)) if i < 6 or any(row[i] != display.NOTHING for row in rows)]
    display.print_table([columns[i] for i in keep], [[row[i] for i in keep] for row in rows], right=columns[1:])


def _ends(found: BootstrapInterval) -> str:
    return f"{display.number(found.low)} .. {display.number(found.high)}"


def _show_improvement(found: Ranking) -> None:
    names = [arm.arm for arm in found.arms]
    click.echo()
    rows = []
    for name, row in zip(names, found.improvement, strict=True):
        cells = [
            display.NOTHING if one is None else f"{one.probability:.2f} ({one.low:.2f} .. {one.high:.2f})"
            for one in row
        ]
        rows.append([name, *cells])
    display.print_table(["beats", *names], rows, title="Chance that a run of the row's arm beats one of the column's")


def _show_ranks(found: Ranking) -> None:
    ranks = found.ranks
    if ranks is None:
        return
    click.echo()
    click.echo(
        f"Average ranks over {found.blocks}: Friedman chi2 = {ranks.statistic:.3g}, p = {ranks.p:.3g}; ranks that differ "
        f"by less than {ranks.critical_difference:.3g} (Nemenyi, {1 - ranks.alpha:.0%}) are not told apart:"
    )
    for group in found.groups:
        click.echo(f"  {', '.join(group)}")


def _show_passes(passes: list[Passing]) -> None:
    if not passes:
        return
    click.echo()
    rows = [[p.arm, str(p.k), _chance(p.at), _chance(p.all), str(p.attempts), str(p.tasks)] for p in passes]
    headers = ["arm", "k", "pass@k (any)", "pass^k (all)", "attempts", "tasks"]
    display.print_table(headers, rows, right=headers[1:], title="Successes in k attempts, for tasks like these")


def _chance(chance: Chance) -> str:
    ends = "" if chance.low is None else f" ({chance.low:.2f} .. {chance.high:.2f})"
    return f"{chance.value:.3f}{ends}"
