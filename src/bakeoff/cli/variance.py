"""`bakeoff variance`: how precise is the mean at N runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from bakeoff.cli import display, inputs
from bakeoff.cli.options import json_option, root_option
from bakeoff.errors import UsageError
from bakeoff.interop import sources
from bakeoff.interop.editions import OneEdition
from bakeoff.interop.source import Runs
from bakeoff.spec.experiment import Analysis, Summary
from bakeoff.verdicts import runlogs, sample
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.runlogs import Logs, RunLog
from bakeoff.verdicts.variance import BANDS, Curve, Needed, Precision, precision, sentences
from bakeoff.version import __version__

DEFAULT_METRIC = "overview/reward"
AREA, SLOPE = "AUC", "Derivative"


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="SOURCE[:ARM] | RUN...")
@click.option("--metric", metavar="NAME", help=f"What to look at; the experiment's own metric when left out, for single runs {DEFAULT_METRIC}.")  # fmt: skip
@click.option("--threshold", type=click.FloatRange(0, 1, min_open=True), default=0.05, show_default=True, help="Precision that is wanted, as a share of the mean.")  # fmt: skip
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Only this arm of the experiment; can be repeated.")
@click.option("--window", metavar="PART", help="Part of the series: 'last 25%', 'first 20%' or steps such as '100..500'.")  # fmt: skip
@click.option("--power", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.8, show_default=True, help="Chance that a difference is found.")  # fmt: skip
@click.option("--alpha", type=click.FloatRange(0, 0.5, min_open=True, max_open=True), help="Error rate of the comparison that is planned; the experiment's, or 0.05.")  # fmt: skip
@click.option("--failure-score", type=float, help="What a failed run counts, where the experiment does not say.")
@click.option("--output", "--plot", "output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw both curves into FILE: .png, .svg or .html.")  # fmt: skip
@inputs.column_options
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    runs: tuple[str, ...],
    metric: str | None,
    threshold: float,
    arms: tuple[str, ...],
    window: str | None,
    power: float,
    alpha: float | None,
    failure_score: float | None,
    output: Path | None,
    root: Path,
    as_json: bool,
    **asked: Any,
) -> None:
    """Say how precise the mean of a metric is at N runs, and from which N on it is precise enough.

    Takes an experiment, a campaign or a table (one arm after a colon, or all), or single runs: ids, directories with
    metrics.jsonl, or W&B runs. A metric that was logged by step is looked at as its area under the curve and as its
    slope; otherwise as it is.
    Exits with 3 when nothing can be said as a share of the mean, because the mean may be 0.
    """
    read = _read(runs, root, inputs.columns(asked))
    changes = {"failure_score": failure_score, "alpha": alpha}
    name = metric or read.analysis.metric or read.usual()
    declared = read.analysis.about(name)
    analysis = declared.model_copy(update={key: value for key, value in changes.items() if value is not None})
    found = _precisions(read, name, analysis, [*arms, *([read.arm] if read.arm else [])], window, threshold, power)
    if output is not None:
        from bakeoff.report.plots import variance_curves

        variance_curves(found, output)
    facts = {
        "version": __version__,
        "source": read.label or list(read.names),
        "metric": name,
        "settings": {"threshold": threshold, "alpha": analysis.alpha, "power": power, "window": window, "bands": BANDS},
        "statistics": [_as_json(one) for one in found],
        "plot": output,
    }
    display.print_json(facts) if as_json else _show(found, facts, output)
    ctx.exit(3 if all(one.undefined for one in found) else 0)


@dataclass(frozen=True)
class Read:
    """Where values come from. `label` is empty for runs that were named one by one; `arm` is the one named with a colon."""

    label: str
    names: Sequence[str]
    analysis: Analysis
    usual: Callable[[], str]
    """The metric when none is named."""
    by_step: Callable[[str], bool]
    observe: Callable[[str, Analysis], Observations]
    arm: str = ""


def _read(names: tuple[str, ...], root: Path, columns: dict[str, str | None]) -> Read:
    """An experiment, a campaign or a table; or the runs that were named, as one arm."""
    given = sources.expand(names)
    if len(given) == 1:
        name, colon, arm = given[0].rpartition(":")
        whole = not colon or Path(given[0]).exists() or given[0].startswith(sources.ONLINE)
        return replace(_open(given[0] if whole else name, root, columns), arm="" if whole else arm)
    if len(set(given)) < len(given):
        twice = next(name for name in given if given.count(name) > 1)
        raise UsageError(f"{twice} is named twice; a copy is no second run")
    return _of_logs(Logs(runlogs.named([_one(name, root) for name in given], "runs")))


def _open(name: str, root: Path, columns: dict[str, str | None]) -> Read:
    found = sources.open_source([name], root, columns)
    if isinstance(found, OneEdition):
        return _of_logs(runlogs.open_experiment(name, root))
    if isinstance(found, Runs):
        return _of_logs(Logs(found.logs, found.analysis, found.label if len(found.logs) > 1 else ""))

    def by_step(metric: str) -> bool:  # a table reduces a series even when nothing says how
        return found.observe(metric, found.analysis).analysis.summary is not None

    return Read(found.label, [name], found.analysis, lambda: found.declared()[0], by_step, found.observe)


def _of_logs(logs: Logs) -> Read:
    def observe(metric: str, analysis: Analysis) -> Observations:
        _check(logs, metric)
        return runlogs.observe(logs.runs, metric, analysis, fixed_tasks=logs.fixed_tasks)

    return Read(
        label=logs.source,
        names=[run.name for run in logs.runs],
        analysis=logs.analysis,
        usual=lambda: DEFAULT_METRIC,
        by_step=lambda metric: runlogs.has_series(logs.runs, metric),
        observe=observe,
    )


def _one(name: str, root: Path) -> RunLog:
    found = sources.read_logs(name, root)
    if len(found) != 1:
        raise UsageError(f"{name} is {len(found)} runs; name runs one by one, or this alone")
    return found[0]


def _check(logs: Logs, metric: str) -> None:
    """Runs that are named have the metric, every one of them; an experiment has it somewhere."""
    without = [run for run in logs.runs if not run.has(metric)]
    if not without or (logs.source and len(without) < len(logs.runs)):
        return
    names = runlogs.known_metrics(logs.runs)
    known = f"there are {', '.join(names[:20])}" if names else "nothing was logged"
    who = "no run" if len(without) == len(logs.runs) else f"{without[0].name}: the run"
    raise UsageError(f"{who} reports {'' if who == 'no run' else 'no '}{metric!r}; {known}")


def _precisions(
    read: Read, metric: str, analysis: Analysis, arms: list[str], window: str | None, threshold: float, power: float
) -> list[Precision]:
    """Every statistic of every arm, arm by arm."""
    seen = {
        label: read.observe(metric, analysis.model_copy(update={"summary": how}))
        for label, how in _statistics(read, metric, analysis, window)
    }
    found = []
    for arm in arms or next(iter(seen.values())).arms:
        for label, values in seen.items():
            drawn = sample.draw(values, arm)
            try:
                found.append(precision(drawn, label, threshold=threshold, alpha=analysis.alpha, power=power))
            except ValueError as error:
                raise UsageError(f"{arm}: {error}") from error
    return found


def _statistics(read: Read, metric: str, analysis: Analysis, window: str | None) -> list[tuple[str, Summary | None]]:
    if not read.by_step(metric):
        if window is not None:
            raise UsageError(f"--window cuts a series, and {metric!r} was not logged by step")
        return [(metric, None)]
    part = window or (analysis.summary.window if analysis.summary is not None else None)
    return [(AREA, Summary(type="auc", window=part)), (SLOPE, Summary(type="slope", window=part))]


def _as_json(found: Precision) -> dict[str, Any]:
    drawn = found.sample
    return {
        "arm": drawn.arm,
        "statistic": found.statistic,
        "unit": drawn.unit,
        "population": drawn.population,
        "n": found.at_hand,
        "failed": drawn.failed,
        "missing": list(drawn.missing),
        "values": drawn.values.tolist(),
        "mean": found.mean,
        "mean_interval": [found.mean_interval.low, found.mean_interval.high],
        "sd": found.sd,
        "sd_interval": [found.sd_interval.low, found.sd_interval.high],
        "undefined": found.undefined,
        "mde": found.mde_at_hand,
        "n_for_relative_error": _needed(found.runs_for_error),
        "n_for_mde": _needed(found.runs_for_mde),
        "curve": {
            "n": found.n.tolist(),
            "relative_error": _curve(found.relative_error),
            "relative_mde": _curve(found.mde),
        },
        "sentences": sentences(found),
    }


def _needed(needed: Needed) -> dict[str, int | None]:
    return {"estimate": needed.units, "upper": needed.at_most}


def _curve(curve: Curve | None) -> dict[str, list[float]] | None:
    return None if curve is None else {name: getattr(curve, name).tolist() for name in ("value", "low", "high")}


def _show(found: list[Precision], facts: dict[str, Any], output: Path | None) -> None:
    source = facts["source"] if isinstance(facts["source"], str) else f"{len(facts['source'])} runs"
    click.secho(f"{facts['metric']} of {source}", bold=True)
    many = len({one.sample.arm for one in found}) > 1
    for one in found:
        click.echo()
        if many or one.sample.missing or one.sample.failed:
            click.echo(_heading(one))
        _table(one)
        for sentence in sentences(one):
            click.echo(sentence)
    click.echo()
    click.echo(f"Bands: {BANDS}. Beyond the {found[0].sample.unit}s at hand the figures are projected.")
    if output is not None:
        click.echo(f"plot: {output}")


def _heading(one: Precision) -> str:
    drawn = one.sample
    notes = [f"{drawn.failed} failed, counted with their failure score"] if drawn.failed else []
    if drawn.missing:
        some = ", ".join(drawn.missing[:3]) + (" ..." if len(drawn.missing) > 3 else "")
        notes.append(f"{len(drawn.missing)} missing and left out: {some}")
    return f"{drawn.arm}, {drawn.population}" + (f" ({'; '.join(notes)})" if notes else "")


def _table(one: Precision) -> None:
    if one.relative_error is None or one.mde is None:
        return
    wanted = {2, 3, 5, 8, 12, 20, one.at_hand, one.runs_for_error.units, one.runs_for_mde.units}
    headers = ["N", f"{one.statistic}: relative error", "band", "detectable difference", "band "]
    rows = []
    for i, n in enumerate(one.n):
        if int(n) in wanted:
            mark = "*" if n > one.at_hand else ""
            cells = [_shares(curve, i) for curve in (one.relative_error, one.mde)]
            rows.append([f"{int(n)}{mark}", *cells[0], *cells[1]])
    display.print_table(headers, rows, right=headers)
    if any(row[0].endswith("*") for row in rows):
        click.echo(f"* projected; {one.at_hand} {one.sample.unit}s are at hand")


def _shares(curve: Curve, i: int) -> tuple[str, str]:
    return f"{100 * curve.value[i]:.3g} %", f"{100 * curve.low[i]:.3g} .. {100 * curve.high[i]:.3g} %"
