"""`bakeoff power`: how many runs an effect needs, and what the runs at hand can find."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bakeoff.cli import display, inputs
from bakeoff.cli.options import json_option, root_option
from bakeoff.errors import UsageError
from bakeoff.interop import sources
from bakeoff.interop.asking import judged
from bakeoff.stats.power import Costs, Design, detectable_rate_difference, outcomes_needed, rate_power
from bakeoff.verdicts import power as planning
from bakeoff.verdicts import simulated
from bakeoff.verdicts.compare import Options, choose_arms
from bakeoff.verdicts.power import Answer, Goal, Pilot, Plan, Spread
from bakeoff.version import __version__

SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command()
@click.argument("names", nargs=-1, metavar="[SOURCE]...")
@click.option("--effect", type=float, help="Difference that should be found, in the metric's own unit.")
@click.option("-n", "--n", "count", type=click.IntRange(min=1), help="Units at hand (in each arm when unpaired); the pilot's own when left out.")  # fmt: skip
@click.option("--sd", type=click.FloatRange(0, min_open=True), help="Spread without a pilot: sd of the paired differences, or inside an arm when unpaired.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(0, 1), help="Success rate of the control, for outcomes that are 0 or 1.")
@click.option("--discordant", type=SHARE, help="With --rate --paired: share of pairs whose outcomes differ.")
@click.option("--paired/--unpaired", "paired", default=None, help="Whether units pair up; a pilot knows, numbers are taken as paired and rates as unpaired.")  # fmt: skip
@click.option("--power", type=SHARE, default=0.8, show_default=True, help="Chance that the effect is found.")
@click.option("--alpha", type=click.FloatRange(0, 0.5, min_open=True, max_open=True), help="Error rate of the test; the experiment's, or 0.05.")  # fmt: skip
@click.option("--metric", metavar="NAME", help="The pilot's metric, when it is not the experiment's own.")
@click.option("--control", metavar="ARM", help="The pilot's arm that the other is compared with.")
@click.option("--candidate", metavar="ARM", help="The pilot's other arm; the first that is not the control when left out.")  # fmt: skip
@click.option(
    "--summary", type=click.Choice(inputs.SUMMARIES), help="How a series becomes one number; as declared, or auc."
)
@click.option("--window", metavar="PART", help="Part of a series: 'last 25%', 'first 20%' or steps such as '100..500'.")
@click.option("--tasks", "population", type=click.Choice(["sample", "fixed"]), help="Whether the plan is for tasks like the pilot's, or for these only.")  # fmt: skip
@click.option("--failure-score", type=float, help="What a failed run of the pilot counts, where the experiment does not say.")  # fmt: skip
@click.option("--confidence", type=SHARE, default=0.8, show_default=True, help="Of the upper limit of the pilot's spread.")  # fmt: skip
@click.option("--budget", type=click.FloatRange(0, min_open=True), help="Divide this much among tasks, seeds and rollouts of each arm.")  # fmt: skip
@click.option("--cost-task", type=click.FloatRange(0), default=0.0, show_default=True, help="Cost of one more task.")
@click.option("--cost-seed", type=click.FloatRange(0), default=0.0, show_default=True, help="Cost of one more seed on a task.")  # fmt: skip
@click.option("--cost-rollout", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Cost of one more rollout of a seed.")  # fmt: skip
@click.option("--most-tasks", type=click.IntRange(min=1), help="With --budget: the number of tasks, when no more can be had.")  # fmt: skip
@click.option("--simulate", "statistic", metavar="STATISTIC", help="Simulate instead of computing: decision, t, sign-flip, wilcoxon, mann-whitney, mean, median or iqm.")  # fmt: skip
@click.option("--replicates", type=click.IntRange(min=100), default=2000, show_default=True, help="Experiments to simulate.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the simulation.")
@click.option("--output", "--plot", "output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw the smallest detectable effect against N into FILE: .png, .svg or .html.")  # fmt: skip
@inputs.column_options
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, **asked: Any) -> None:
    """Plan: how many runs a target effect needs, and which effect the runs at hand can find.

    From a pilot (two arms of an experiment, a table or a campaign), with the upper limit of its spread beside the
    spread itself; from numbers (--sd, --effect, --n); or for success rates (--rate). The effect that a pilot happened to show is never
    used. Exits with 3 when the data cannot answer.
    """
    if bool(asked["names"]) + (asked["sd"] is not None) + (asked["rate"] is not None) != 1:
        raise UsageError("plan from one of these: a SOURCE as the pilot, --sd, or --rate")
    try:
        facts, lines = _answer(asked)
    except planning.NotAnswerable as reason:
        facts, lines = {"answered": False, "reason": str(reason)}, [f"Not answerable: {reason}."]
    facts = {"version": __version__, "settings": _settings(asked), **facts}
    display.print_json(facts) if as_json else click.echo("\n".join(lines))
    ctx.exit(0 if facts["answered"] else 3)


def _answer(asked: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    if asked["rate"] is not None:
        return _rates(asked)
    found = _pilot(asked) if asked["names"] else None
    if found is None:
        if asked["effect"] is None and asked["count"] is None:
            raise UsageError("say --effect (how many runs?) or --n (which effect can be found?), or both")
        spread = Spread(asked["sd"], asked["sd"], "unpaired" if asked["paired"] is False else "paired", "unit")
        goal = Goal(asked["alpha"] or 0.05, asked["power"], asked["effect"], asked["count"])
    else:
        pilot, alpha = found
        spread = pilot.spread
        goal = Goal(alpha, asked["power"], asked["effect"], asked["count"] or pilot.n)
    answer = planning.plan(spread, goal)
    facts: dict[str, Any] = {"answered": True, **_plan_json(answer)}
    lines = list(_plan_lines(answer))
    if found is not None:
        facts["pilot"], head = _pilot_facts(found[0])
        lines = [*head, *lines]
        more = planning.more_rollouts(found[0], answer)
        if more is not None:
            facts["more_rollouts"] = _fields(more)
            lines += _more_lines(more, answer)
    if asked["statistic"] is not None:
        facts["simulated"], told = _simulate(asked, spread, goal, found[0] if found else None)
        lines += told
    if asked["budget"] is not None:
        if found is None:
            raise UsageError("--budget divides what a pilot shows about tasks, seeds and rollouts: name one")
        facts["allocation"], told = _spend(asked, found[0], goal)
        lines += told
    if asked["output"] is not None:
        from bakeoff.report.plots import power_curve

        power_curve(answer, asked["output"])
        lines.append(f"plot: {asked['output']}")
        facts["plot"] = asked["output"]
    return facts, lines


def _pilot(asked: dict[str, Any]) -> tuple[Pilot, float]:
    source = sources.open_source(asked["names"], asked["root"], inputs.columns(asked))
    summary = {key: asked[name] for key, name in (("type", "summary"), ("window", "window")) if asked[name] is not None}
    changes = {"failure_score": asked["failure_score"], "alpha": asked["alpha"], "summary": summary}
    metric = asked["metric"] or source.declared()[0]
    analysis = judged(source.analysis.about(metric), changes)
    seen = source.observe(metric, analysis)
    options = Options(
        control=asked["control"],
        candidates=(asked["candidate"],) if asked["candidate"] else (),
        tasks=asked["population"],
        unpaired=asked["paired"] is False or source.unpaired,
    )
    control, candidates = choose_arms(seen, options)
    return planning.pilot(seen, control, candidates[0], options, asked["confidence"]), analysis.alpha


def _rates(asked: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    for key in ("statistic", "budget", "output"):
        if asked[key] is not None:
            option = {"statistic": "--simulate", "budget": "--budget", "output": "--output"}[key]
            raise UsageError(f"{option} does not go with --rate: it needs a spread or a pilot")
    if asked["effect"] is None and asked["count"] is None:
        raise UsageError("say --effect (how many outcomes?) or --n (which difference can be found?), or both")
    rate, effect, n = asked["rate"], asked["effect"], asked["count"]
    design: Design = "paired" if asked["paired"] else "unpaired"
    alpha, power, discordant = asked["alpha"] or 0.05, asked["power"], asked["discordant"]
    what = "pairs" if design == "paired" else "outcomes an arm"
    facts: dict[str, Any] = {"answered": True, "rate": rate, "design": design}
    lines = []
    try:
        if effect is not None:
            facts["needed"] = outcomes_needed(rate, effect, alpha, power, design, discordant)
            lines.append(
                f"{effect:+g} on a rate of {rate:g} is found ({power:.0%} power) with {facts['needed']:,} {what}."
            )
        if n is not None and effect is not None:
            facts["power"] = rate_power(rate, effect, n, alpha, design, discordant)
            lines.append(f"{n} {what} find it with {facts['power']:.1%} power.")
        if n is not None and effect is None:
            facts["mde"] = detectable_rate_difference(rate, n, alpha, power, design)
            found = "no rise at all" if facts["mde"] is None else f"rises from {facts['mde']:.4g} on"
            lines.append(f"{n} {what} find {found} ({power:.0%} power).")
    except ValueError as error:
        raise UsageError(str(error)) from error
    lines.append(
        "This counts independent outcomes. Outcomes that share a task, a seed or a training run are not: plan those with "
        "a pilot or with the spread of their units (--sd)."
    )
    return facts, lines


def _simulate(
    asked: dict[str, Any], spread: Spread, goal: Goal, found: Pilot | None
) -> tuple[dict[str, Any], list[str]]:
    if goal.effect is None:
        raise UsageError("--simulate needs the effect to simulate: --effect")
    setting = simulated.Setting(
        statistic=asked["statistic"],
        effect=goal.effect,
        sd=spread.sd,
        design=spread.design,
        alpha=goal.alpha,
        replicates=asked["replicates"],
        seed=asked["seed"],
        residuals=None if found is None else found.values,
    )
    data = "normal values" if found is None else "the pilot's values, moved"
    try:
        count = asked["count"]
        tried = [simulated.power_at(setting, count)] if count else simulated.units_for(setting, goal.power)
    except ValueError as error:
        raise planning.NotAnswerable(f"{asked['statistic']}: {error}") from error
    last = tried[-1]
    around = f"{last.interval.low:.1%} to {last.interval.high:.1%}"
    line = (
        f"Simulated ({asked['statistic']}, {data}, {setting.replicates} experiments): {last.n} {_units(spread)} find "
        f"{goal.effect:g} with {last.power:.1%} power ({around})."
    )
    facts = {
        "statistic": asked["statistic"],
        "replicates": setting.replicates,
        "seed": setting.seed,
        "data": data,
        "tried": [{"n": f.n, "power": f.power, "low": f.interval.low, "high": f.interval.high} for f in tried],
        "n": last.n,
        "power": last.power,
    }
    return facts, [line]


def _spend(asked: dict[str, Any], found: Pilot, goal: Goal) -> tuple[dict[str, Any], list[str]]:
    costs = Costs(asked["cost_task"], asked["cost_seed"], asked["cost_rollout"])
    now, best = planning.spend(found, goal, asked["budget"], costs, asked["most_tasks"])
    lines = [f"Noise of one difference, as sd: {_noise(found)}."]
    for label, design in (("As it was", now), (f"Best for {asked['budget']:g}", best)):
        lines.append(
            f"{label}: {design.tasks} tasks x {design.seeds} seeds x {design.rollouts} rollouts an arm (cost "
            f"{design.cost:g}): standard error {design.standard_error:.4g}, finds effects from {design.mde:.4g} on."
        )
    return {"now": _fields(now), "best": _fields(best)}, lines


def _noise(found: Pilot) -> str:
    parts = found.components
    assert parts is not None
    named = {
        "between tasks": parts.task,
        "between seeds": parts.seed,
        "seed in task": parts.cell,
        "rollout": parts.rollout,
    }
    return ", ".join(f"{name} {math.sqrt(value):.4g}" for name, value in named.items())


def _pilot_facts(found: Pilot) -> tuple[dict[str, Any], list[str]]:
    spread = found.spread
    lines = [
        f"Pilot: {found.candidate} against {found.control} on {found.metric}, {found.population}.",
        f"Spread of a {spread.unit}: sd {spread.sd:.4g}, upper {spread.confidence:.0%} limit {spread.upper:.4g}.",
        *(f"Note: {note}." for note in found.notes),
    ]
    facts = {key: getattr(found, key) for key in ("metric", "control", "candidate", "population", "n", "tasks", "seeds", "rollouts")}  # fmt: skip
    variances = None if found.components is None else _fields(found.components)
    return {**facts, "components": variances, "notes": list(found.notes)}, lines


def _units(spread: Spread) -> str:
    return f"{spread.unit}s" if spread.design == "paired" else f"{spread.unit}s an arm"


def _plan_lines(answer: Plan) -> Iterator[str]:
    goal, what = answer.goal, _units(answer.spread)
    if answer.mde is not None:
        yield f"{goal.n} {what} find effects from {_both(answer.mde, '.4g', answer.spread)} on ({goal.power:.0%} power)."
    elif goal.n is not None:
        yield f"{goal.n} {what} find nothing: a spread needs at least 2."
    if answer.chance is not None:
        yield f"They find {goal.effect:g} with {_both(answer.chance, '.1%', answer.spread)} power."
    if answer.needed is not None:
        yield f"{goal.effect:g} is found ({goal.power:.0%} power) with {_both(answer.needed, ',.0f', answer.spread)} {what}."


def _both(answer: Answer, form: str, spread: Spread) -> str:
    seen = "more than can be run" if answer.seen is None else format(answer.seen, form)
    if spread.confidence is None:
        return seen
    upper = "more than can be run" if answer.upper is None else format(answer.upper, form)
    return f"{seen} ({upper} at the upper limit)"


def _more_lines(more: planning.MoreRollouts, answer: Plan) -> list[str]:
    lines = [
        f"The plan is for tasks like these: {more.tasks} tasks are N = {more.tasks}, whatever the number of rollouts."
    ]
    if more.floor is not None:
        lines.append(
            f"Endlessly many runs on the same tasks would still find nothing below {more.floor:.4g} "
            f"with that power (now {more.now:.4g})."
        )
    if more.tasks_needed is not None:
        count = _both(more.tasks_needed, ",.0f", answer.spread)
        it = "More rollouts cannot help: it" if more.hopeless else "It"
        lines.append(f"{it} takes {count} tasks to find {answer.goal.effect:g}.")
    return lines


def _plan_json(answer: Plan) -> dict[str, Any]:
    spread = answer.spread
    both = {name: None if found is None else _fields(found) for name, found in (("mde", answer.mde), ("power", answer.chance), ("needed", answer.needed))}  # fmt: skip
    curve = {name: values.tolist() for name, values in planning.curve(answer).items()}
    return {"unit": spread.unit, "design": spread.design, "n": answer.goal.n, "sd": spread.sd, "sd_upper": spread.upper, **both, "curve": curve}  # fmt: skip


def _fields(value: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(value)


def _settings(asked: dict[str, Any]) -> dict[str, Any]:
    kept = ("names", "effect", "count", "sd", "rate", "discordant", "paired", "power", "alpha", "metric", "population",
            "confidence", "budget", "cost_task", "cost_seed", "cost_rollout", "replicates", "seed")  # fmt: skip
    return {key: asked[key] for key in kept}
