"""How many units an effect needs, what the units at hand can detect, and where the next runs are best spent.

Only spreads enter, never the effect that earlier runs happened to show. Their spread is itself an estimate, so the figure
to follow is the one that has the promised power on average over what the spread may be (`stats.plans`), and those at the
spread as seen and at its upper limit stand beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array, Results
from bakeoff.stats import plans
from bakeoff.stats import power as parts
from bakeoff.stats.detection import MOST_TOGETHER, Design
from bakeoff.stats.evidence import LEAST_UNITS
from bakeoff.stats.power import Multiplicity, chance_to_detect, minimum_detectable_effect
from bakeoff.text import percent
from bakeoff.verdicts.answer import NOT_ENOUGH_EVIDENCE, Answer, Block, Text, observe_metric
from bakeoff.verdicts.family import choose_arms
from bakeoff.verdicts.question import Power
from bakeoff.verdicts.questions.planning import (
    EarlierRuns,
    Estimate,
    NotAnswerable,
    PlanningSpread,
    Setting,
    earlier_runs,
    power_at,
    units_at,
    units_for,
)
from bakeoff.verdicts.repeats import refuse_curves
from bakeoff.version import __version__

_SETTINGS = (
    "names", "effect", "sd", "rate", "discordant", "paired", "power", "detect", "metric", "confidence", "budget",
    "cost_task", "cost_seed", "cost_rollout", "replicates", "seed",
)  # fmt: skip
"""Fields of the question that every output carries."""
_FAMILY = {
    "each": "This is the power for one particular comparison of {m} that share alpha {alpha:g}: it has to pass at alpha / {m}.",
    "any": "This is the power to detect at least one of {m} comparisons that share alpha {alpha:g} and one control, when all "
    "have the effect.",
    "all": "This is the power to detect all of {m} comparisons that share alpha {alpha:g} and one control, when all have the "
    "effect.",
}


WORTH_SAYING = 0.1
"""A floor below this share of what is detected now is none."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted: error rate, chance of finding an effect, and the effect in the metric's unit (None: not said)."""

    alpha: float = 0.05
    power: float = 0.8
    effect: float | None = None
    n: int | None = None
    """Units at hand, in each arm when unpaired."""
    family: Multiplicity = parts.ONE
    """The comparisons that share alpha."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything `power` answers. Fields are None where the question was not asked or has no answer."""

    goal: Goal
    spread: PlanningSpread
    mde: Estimate | None
    """Smallest effect that the units at hand detect."""
    chance: Estimate | None
    """Power for the wanted effect at the units at hand."""
    needed: Estimate | None
    """Units for the wanted effect."""
    both: BothSampled | None = None
    """Where tasks and seeds are both samples."""


def plan(spread: PlanningSpread, goal: Goal) -> Plan:
    """Runs needed for the effect, and what n units can find."""
    all_three = (spread.sd, spread.upper, spread.planned(goal.alpha / goal.family.comparisons, goal.power))
    mde = chance = needed = None
    how = (spread.design, goal.family)
    if goal.n is not None and parts.decidable(goal.n):
        n = goal.n
        mde = Estimate(*(minimum_detectable_effect(s, n, goal.alpha, goal.power, *how) for s in all_three))
        if goal.effect:
            effect = goal.effect

            def chance_at(sd: float) -> float:
                return chance_to_detect(effect, sd, n, goal.alpha, *how)

            on_average = (
                chance_at(spread.sd) if math.isinf(spread.df) else plans.average_chance(chance_at, spread.sd, spread.df)
            )
            chance = Estimate(chance_at(spread.sd), chance_at(spread.upper), on_average)
    if goal.effect:
        needed = units_at(goal.effect, all_three, goal.alpha, goal.power, *how)
    return Plan(goal, spread, mde, chance, needed)


@dataclass(frozen=True, slots=True)
class BothSampled:
    """What more tasks, more seeds (or runs in each arm), or more of both would do. None: no number is enough."""

    tasks: int
    """At hand."""
    seeds: int
    seed: str
    """`seed`, or `run`."""
    floor_of_tasks: float
    """Smallest effect that these seeds detect with any number of tasks."""
    floor_of_seeds: float
    """Smallest effect that these tasks detect with any number of seeds."""
    more_tasks: int | None = None
    """Tasks for the wanted effect, with as many seeds as now."""
    more_seeds: int | None = None
    more_of_both: tuple[int, int] | None = None
    """Tasks and seeds, in the proportion that they have now."""


def plan_of_both(noise: EarlierRuns, model: plans.TwoWay, goal: Goal) -> Plan:
    """Plan for tasks and seeds that are both samples: each has a floor that more of the other cannot buy."""
    level, power, effect = goal.alpha / goal.family.comparisons, goal.power, goal.effect
    per_task = noise.spread.unit == "task"
    tasks, seeds = (goal.n or noise.tasks, noise.seeds) if per_task else (noise.tasks, goal.n or noise.seeds)
    drawn, as_seen = (model.criticals(tasks, seeds, level, aim) for aim in (power, None))
    chance = needed = None
    # More of one kind never detects less than there is now, whatever is known about the rest of the noise.
    now = plans.detected(drawn, power)
    mde = Estimate(plans.detected(as_seen, power), None, now)
    both = BothSampled(
        tasks,
        seeds,
        "seed" if per_task else "run",
        floor_of_tasks=min(now, model.floor(level, power, seeds=seeds)),
        floor_of_seeds=min(now, model.floor(level, power, tasks=tasks)),
    )
    if effect:
        chance = Estimate(plans.chance(as_seen, effect), None, plans.chance(drawn, effect))
        ratio = max(tasks, seeds) / min(tasks, seeds)

        def sizes(smaller: int) -> tuple[int, int]:
            larger = plans.scaled(smaller, ratio)
            return (larger, smaller) if tasks >= seeds else (smaller, larger)

        smaller = plans.count_needed(lambda k: model.criticals(*sizes(k), level, power), effect, power)
        both = replace(
            both,
            more_tasks=plans.count_needed(lambda t: model.criticals(t, seeds, level, power), effect, power),
            more_seeds=plans.count_needed(lambda s: model.criticals(tasks, s, level, power), effect, power),
            more_of_both=None if smaller is None else sizes(smaller),
        )
        needed = Estimate(None, None, both.more_tasks if per_task else both.more_seeds)
    return Plan(goal, noise.spread, mde, chance, needed, both)


def plan_of_strata(noise: EarlierRuns, model: plans.Stratified, goal: Goal) -> Plan:
    """Plan for fixed tasks with units of their own: so many on each task."""
    level, power, effect = goal.alpha / goal.family.comparisons, goal.power, goal.effect
    mde = chance = needed = None
    if goal.n is not None and goal.n > 1:
        drawn, as_seen = (model.criticals(goal.n, level, aim) for aim in (power, None))
        mde = Estimate(plans.detected(as_seen, power), None, plans.detected(drawn, power))
        if effect:
            chance = Estimate(plans.chance(as_seen, effect), None, plans.chance(drawn, effect))
    if effect:
        counts = [
            plans.count_needed(lambda n, aim=aim: model.criticals(n, level, aim), effect, power)  # type: ignore[misc]
            for aim in (None, power)
        ]
        needed = Estimate(counts[0], None, counts[1])
    return Plan(goal, noise.spread, mde, chance, needed)


@dataclass(frozen=True, slots=True)
class MoreRollouts:
    """What more runs on the same tasks could do at best, when the tasks are the sample."""

    tasks: int
    now: float
    """Smallest effect that this many tasks detect with the runs that each has."""
    floor: float | None
    """The same with infinitely many runs on each. None: with one run a task, tasks and runs cannot be separated."""
    hopeless: bool
    """The wanted effect lies below the floor."""
    tasks_needed: Estimate | None
    """Tasks for the wanted effect, with as many runs on each as now."""


def more_rollouts(noise: EarlierRuns, answer: Plan) -> MoreRollouts | None:
    """None when the verdict is not about tasks like these."""
    if not noise.sample_of_tasks or answer.mde is None or answer.mde.seen is None or answer.both is not None:
        return None
    goal, floor = answer.goal, None
    if noise.components is not None and noise.seeds * noise.rollouts > 1:
        left = min(math.sqrt(noise.components.task), noise.spread.sd)
        floor = minimum_detectable_effect(left, noise.tasks, goal.alpha, goal.power, family=goal.family)
    hopeless = floor is not None and goal.effect is not None and abs(goal.effect) < floor
    return MoreRollouts(noise.tasks, answer.mde.seen, floor, hopeless, answer.needed)


@dataclass(frozen=True, slots=True)
class Spending(parts.Allocation):
    """A design, its cost, its standard error, and the smallest effect that it detects."""

    mde: float


def spend(
    noise: EarlierRuns, goal: Goal, budget: float, costs: parts.Costs, tasks: int | None
) -> tuple[Spending, Spending]:
    """(as it is, the best that the budget buys), both arms' runs of one kind counted once. NotAnswerable without components."""
    components = noise.components
    if components is None:
        raise NotAnswerable("the table has holes, so its noise cannot be divided among tasks, seeds and rollouts")
    fixed = tasks if tasks is not None else (None if noise.sample_of_tasks else noise.tasks)
    try:
        best = parts.allocate(components, budget, costs, fixed, least_tasks=3)
    except ValueError as error:
        raise UsageError(str(error)) from error
    size = (noise.tasks, noise.seeds, noise.rollouts)
    now = parts.Allocation(*size, math.sqrt(components.variance(*size)), costs.total(*size))
    spendings = []
    for design in (now, best):
        count = {"task": design.tasks, "seed": design.seeds}.get(noise.spread.unit, design.rollouts)
        spread = design.standard_error * math.sqrt(count)
        mde = minimum_detectable_effect(spread, count, goal.alpha, goal.power, family=goal.family)
        spendings.append(Spending(**asdict(design), mde=mde))
    return spendings[0], spendings[1]


def curve(plan: Plan, points: int = 40) -> Mapping[str, Array]:
    """MDE against the number of units, at the spread as seen and at its upper limit: what a plot shows."""
    wanted = [plan.goal.n, *(() if plan.needed is None else (plan.needed.seen, plan.needed.upper))]
    last = min(10_000, max([20, *(math.ceil(1.3 * w) for w in wanted if w is not None)]))
    n = np.unique(np.geomspace(LEAST_UNITS, last, points).round())
    goal, design = plan.goal, plan.spread.design
    unit = np.array([minimum_detectable_effect(1.0, float(k), goal.alpha, goal.power, design, goal.family) for k in n])
    return {"n": n, "mde": unit * plan.spread.sd, "mde_upper": unit * plan.spread.upper}


# -- the answer


@dataclass(frozen=True)
class PowerAnswer(Answer):
    """A plan in sentences, with its numbers. `plan` is None for success rates and where nothing can be answered."""

    answered: bool
    lines: Sequence[str]
    numbers: Mapping[str, Any]
    plan: Plan | None = None

    title = "Power"

    @property
    def exit_code(self) -> int:
        return 0 if self.answered else NOT_ENOUGH_EVIDENCE

    def facts(self) -> dict[str, Any]:
        return {"version": __version__, "settings": self.all_settings, "answered": self.answered, **self.numbers}

    def blocks(self) -> list[Block]:
        return [Text(line) for line in self.lines]


def answer(results: Results | None, question: Power) -> PowerAnswer:
    """From earlier runs (`results`), from a spread (`question.sd`), or for success rates (`question.rate`)."""
    if (results is not None) + (question.sd is not None) + (question.rate is not None) != 1:
        raise UsageError("plan from one of these: a SOURCE of earlier runs, --sd, or --rate")
    source = results.label if results is not None else ""
    settings = {
        **{name: getattr(question, name) for name in _SETTINGS},
        "count": question.n,
        "alpha": question.alpha if "alpha" in question.model_fields_set else None,
        "population": question.tasks,
        "comparisons": question.comparisons or 1,
    }
    try:
        if question.rate is not None:
            numbers, lines = _plan_rates(question, question.rate)
            return PowerAnswer(source, settings, True, lines, numbers)
        noise, alpha, comparisons = None, question.alpha, 1
        if results is not None:
            observations = observe_metric(results, question.metric or results.primary()[0], question, directed=False)
            refuse_curves(observations)
            unpaired = question.paired is False or results.unpaired
            asked = question.model_copy(update={"unpaired": unpaired})
            control, candidates = choose_arms(observations, asked)
            named = asked.model_copy(update={"arms": (question.candidate,)}) if question.candidate else asked
            candidate = choose_arms(observations, named)[1][0]
            noise = earlier_runs(observations, control, candidate, asked, question.confidence)
            alpha = observations.analysis.alpha
            # What `compare` would judge together: every arm, on every primary metric unless one is named.
            comparisons = len(candidates) * (1 if question.metric else len(results.primary()))
        family = Multiplicity(question.comparisons or comparisons, question.detect)
        if family.wanted != "each" and family.comparisons > MOST_TOGETHER:
            raise UsageError(f"--detect {family.wanted} is simulated for at most {MOST_TOGETHER} comparisons")
        settings["comparisons"] = family.comparisons
        plan_, numbers, lines = _plan_spread(question, noise, alpha, family)
        return PowerAnswer(source, settings, True, lines, numbers, plan_)
    except NotAnswerable as reason:
        notes = [f"Note: {note}." for note in results.notes] if results is not None else []
        return PowerAnswer(source, settings, False, [f"Not answerable: {reason}.", *notes], {"reason": str(reason)})


def _plan_spread(
    question: Power, noise: EarlierRuns | None, alpha: float, family: Multiplicity
) -> tuple[Plan, dict[str, Any], list[str]]:
    """The plan from the spread of earlier runs or from a given one, its numbers for JSON, and its sentences."""
    n = question.n
    if noise is None:
        if question.effect is None and n is None:
            raise UsageError("say --effect (how many runs?) or --n (which effect can be detected?), or both")
        assert question.sd is not None
        spread = PlanningSpread(question.sd, question.sd, "unpaired" if question.paired is False else "paired", "unit")
    else:
        spread, n = noise.spread, n or noise.n
    goal = Goal(alpha, question.power, question.effect, n, family)
    model = None if noise is None else noise.noise
    if model is not None and family.wanted != "each" and family.comparisons > 1:
        raise UsageError(f"--detect {family.wanted} needs one kind of unit; these runs have more than one")
    if noise is not None and isinstance(model, plans.TwoWay):
        made = plan_of_both(noise, model, goal)
    elif noise is not None and isinstance(model, plans.Stratified):
        made = plan_of_strata(noise, model, goal)
    else:
        made = plan(spread, goal)
    numbers: dict[str, Any] = {
        "unit": spread.unit, "design": spread.design, "n": goal.n, "sd": spread.sd, "sd_upper": spread.upper,
        "mde": asdict(made.mde) if made.mde else None, "power": asdict(made.chance) if made.chance else None,
        "needed": asdict(made.needed) if made.needed else None, "both": asdict(made.both) if made.both else None,
        "curve": {name: values.tolist() for name, values in curve(made).items()},
    }  # fmt: skip
    lines: list[str] = []
    if noise is not None:
        lines += [
            f"Earlier runs: {noise.candidate} against {noise.control} on {noise.metric}, {noise.population}.",
            f"Spread of a {spread.unit}: sd {spread.sd:.4g}, upper {percent(spread.confidence)} limit {spread.upper:.4g}.",
            *(f"Note: {note}." for note in noise.notes),
        ]
        names = ("metric", "control", "candidate", "population", "n", "tasks", "seeds", "rollouts")
        numbers["pilot"] = {
            **{name: getattr(noise, name) for name in names},
            "components": None if noise.components is None else asdict(noise.components),
            "notes": list(noise.notes),
        }
    more = None if noise is None else more_rollouts(noise, made)
    lines += _plan_lines(made, more)
    if more is not None:
        numbers["more_rollouts"] = asdict(more)
    if question.simulate is not None:
        numbers["simulated"], line = _simulate(question, question.simulate, made, noise)
        lines.append(line)
    if question.budget is not None:
        if noise is None:
            raise UsageError("--budget divides what earlier runs show about tasks, seeds and rollouts: name a SOURCE")
        numbers["allocation"], more_lines = _allocate(question, noise, goal, question.budget)
        lines += more_lines
    return made, numbers, lines


def _plan_lines(made: Plan, more: MoreRollouts | None) -> list[str]:
    goal, spread, both = made.goal, made.spread, made.both
    at_hand = f"{goal.n} {spread.units}" if both is None else f"{both.tasks} tasks x {_counted(both.seeds, both)}"
    lines = []
    if made.mde is not None:
        effects = _phrase(made.mde, "{:.4g}".format, spread)
        lines.append(f"{at_hand} can detect effects of {effects} or more ({percent(goal.power)} power).")
    elif goal.n is not None:
        lines.append(f"{at_hand} can detect nothing: a verdict needs at least {LEAST_UNITS}.")
    if made.chance is not None:
        lines.append(f"They detect {goal.effect:g} with {_phrase(made.chance, percent, spread)} power.")
    if both is not None and made.mde is not None:
        lines += _lines_of_both(goal, both, made.mde.planned or 0.0)
    elif made.needed is not None:
        needed = _phrase(made.needed, "{:,.0f}".format, spread)
        lines.append(f"To detect {goal.effect:g} ({percent(goal.power)} power): {needed} {spread.units}.")
    if goal.family.comparisons > 1:
        lines.append(_FAMILY[goal.family.wanted].format(m=goal.family.comparisons, alpha=goal.alpha))
    if more is None:
        return lines
    lines.append(
        f"The plan is for tasks like these: {more.tasks} tasks are N = {more.tasks}, whatever the number of rollouts."
    )
    if more.floor is not None:
        lines.append(
            f"Even infinitely many runs on the same tasks could not detect effects below {more.floor:.4g} with that power "
            f"(now {more.now:.4g})."
        )
    if more.tasks_needed is not None:
        count = _phrase(more.tasks_needed, "{:,.0f}".format, spread)
        it = "More rollouts cannot help: it" if more.hopeless else "It"
        lines.append(f"{it} takes {count} tasks to detect {goal.effect:g}.")
    return lines


def _counted(count: int, both: BothSampled) -> str:
    return f"{count} {both.seed}s" + (" per arm" if both.seed == "run" else "")


def _lines_of_both(goal: Goal, both: BothSampled, now: float) -> list[str]:
    """What both take together, cheapest first, and what each kind of unit cannot do alone; `now` is what these detect."""
    floors = [
        f"With {fixed} no number of {more}s detects effects below {floor:.4g} ({percent(goal.power)} power)."
        for fixed, more, floor in (
            (_counted(both.seeds, both), "task", both.floor_of_tasks),
            (f"{both.tasks} tasks", both.seed, both.floor_of_seeds),
        )
        if floor > WORTH_SAYING * now
    ]
    if goal.effect is None:
        return floors
    ways = [
        (tasks, seeds)
        for tasks, seeds in (
            both.more_of_both or (None, None),
            (both.more_tasks, both.seeds),
            (both.tasks, both.more_seeds),
        )
        if tasks is not None and seeds is not None
    ]
    ways.sort(key=lambda way: way[0] * way[1])
    enough = ", or ".join(f"{tasks} tasks x {_counted(seeds, both)}" for tasks, seeds in dict.fromkeys(ways))
    return [f"To detect {goal.effect:g} ({percent(goal.power)} power): {enough or 'more than can be run'}.", *floors]


def _phrase(estimate: Estimate, form: Callable[[float], str], spread: PlanningSpread) -> str:
    """The figure to follow, and beside it those at the spread as seen and at its upper limit; one figure for a given sd."""

    def shown(value: float | None) -> str:
        return "more than can be run" if value is None else form(value)

    if spread.confidence is None:
        return shown(estimate.seen)
    if estimate.upper is None and estimate.seen is not None and estimate.planned is not None:
        return f"{shown(estimate.planned)} ({shown(estimate.seen)} with the spread as seen)"
    return f"{shown(estimate.planned)} ({shown(estimate.seen)} with the spread as seen, {shown(estimate.upper)} at its upper limit)"


def _plan_rates(question: Power, rate: float) -> tuple[dict[str, Any], list[str]]:
    """Independent outcomes of 0 and 1."""
    for name in ("simulate", "budget"):
        if getattr(question, name) is not None:
            raise UsageError(f"--{name} does not go with --rate: it needs a spread or earlier runs")
    if question.detect != "each":
        raise UsageError(f"--detect {question.detect} does not go with --rate: it needs a spread or earlier runs")
    effect, n = question.effect, question.n
    if effect is None and n is None:
        raise UsageError("say --effect (how many outcomes?) or --n (which difference can be detected?), or both")
    design: Design = "paired" if question.paired else "unpaired"
    power, discordant, comparisons = question.power, question.discordant, question.comparisons or 1
    alpha = question.alpha / comparisons
    what = "pairs" if design == "paired" else "outcomes an arm"
    numbers: dict[str, Any] = {"rate": rate, "design": design}
    lines = []
    try:
        if effect is not None:
            numbers["needed"] = parts.outcomes_needed(rate, effect, alpha, power, design, discordant)
            lines.append(
                f"To detect {effect:+g} on a rate of {rate:g} ({percent(power)} power): {numbers['needed']:,} {what}."
            )
        if n is not None and effect is not None:
            numbers["power"] = parts.rate_power(rate, effect, n, alpha, design, discordant)
            lines.append(f"{n} {what} detect it with {percent(numbers['power'])} power.")
        if n is not None and effect is None:
            mde = numbers["mde"] = parts.detectable_rate_difference(rate, n, alpha, power, design)
            rises = "cannot detect any rise" if mde is None else f"can detect rises of {mde:.4g} or more"
            lines.append(f"{n} {what} {rises} ({percent(power)} power).")
    except ValueError as error:
        raise UsageError(str(error)) from error
    if comparisons > 1:
        lines.append(_FAMILY["each"].format(m=comparisons, alpha=question.alpha))
    lines.append(
        "This counts independent outcomes. Outcomes that share a task, a seed or a training run are not: plan those with "
        "earlier runs or with the spread of their units (--sd)."
    )
    return numbers, lines


def _simulate(question: Power, statistic: str, made: Plan, noise: EarlierRuns | None) -> tuple[dict[str, Any], str]:
    goal, spread = made.goal, made.spread
    if goal.effect is None:
        raise UsageError("--simulate needs the effect to simulate: --effect")
    if goal.family.wanted != "each":
        raise UsageError("--simulate is about one comparison: leave out --detect")
    setting = Setting(
        statistic=statistic,
        effect=goal.effect,
        sd=spread.sd,
        design=spread.design,
        alpha=goal.alpha / goal.family.comparisons,
        replicates=question.replicates,
        seed=question.seed,
        residuals=None if noise is None else noise.values,
    )
    data = "normal values" if noise is None else "the values of the earlier runs, moved"
    try:
        tried = [power_at(setting, question.n)] if question.n else units_for(setting, goal.power)
    except ValueError as error:
        raise NotAnswerable(f"{statistic}: {error}") from error
    steps = [{"n": each.n, "power": each.power, "low": each.interval.low, "high": each.interval.high} for each in tried]
    last = tried[-1]
    line = (
        f"Simulated ({statistic}, {data}, {setting.replicates} experiments): {last.n} {spread.units} detect "
        f"{goal.effect:g} with {percent(last.power)} power ({percent(last.interval.low)} to {percent(last.interval.high)})."
    )
    numbers = {
        "statistic": statistic, "replicates": setting.replicates, "seed": setting.seed, "data": data, "tried": steps,
        "n": last.n, "power": last.power,
    }  # fmt: skip
    return numbers, line


def _allocate(question: Power, noise: EarlierRuns, goal: Goal, budget: float) -> tuple[dict[str, Any], list[str]]:
    costs = parts.Costs(question.cost_task, question.cost_seed, question.cost_rollout)
    now, best = spend(noise, goal, budget, costs, question.most_tasks)
    variances = noise.components
    assert variances is not None
    named = {
        "between tasks": variances.task,
        "between seeds": variances.seed,
        "seed in task": variances.cell,
        "rollout": variances.rollout,
    }
    sds = ", ".join(f"{name} {math.sqrt(value):.4g}" for name, value in named.items())
    lines = [f"Noise of one difference, as sd: {sds}."]
    for label, design in (("As it was", now), (f"Best for {budget:g}", best)):
        lines.append(
            f"{label}: {design.tasks} tasks x {design.seeds} seeds x {design.rollouts} rollouts per arm (cost "
            f"{design.cost:g}): standard error {design.standard_error:.4g}, can detect effects of {design.mde:.4g} or more."
        )
    return {"now": asdict(now), "best": asdict(best)}, lines
