"""The first screen of a comparison: the arms of each metric in one ranked table, and what to do next.

`compare` prints it and the report shows it, so both have the same lines in the same order.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bakeoff.stats.evidence import LEAST_UNITS, Interval
from bakeoff.text import NOTHING, Stroke, format_ends, format_level, format_p, number, short
from bakeoff.verdicts.answer import Table
from bakeoff.verdicts.comparison import Comparison
from bakeoff.verdicts.observations import Observations

MOST_LINES = 32
"""Arms that a screen shows, over all metrics."""
FEWEST_LINES = 6
"""Arms that it shows for each of many metrics."""
MOST_UNITS = 10_000
"""More units than this are not a plan."""
OUTLIER = 4.0
"""An interval that reaches this many times as far as three quarters of them leaves the picture of the others."""
CONTROL = "control"
_TIMES = ("ns", "us", "µs", "ms", "s", "sec", "seconds", "min", "minutes", "h", "hours")
_UNIT_IN_NAME = re.compile(rf"(?<!per)_({'|'.join(_TIMES)})$")


@dataclass(frozen=True, slots=True)
class RankedArm:
    """One arm. The control has no effect, no interval and no p, and its verdict is `control`."""

    arm: str
    mean: float | None
    effect: float | None = None
    """Arm minus control, in the metric's own unit and direction."""
    interval: Interval | None = None
    """The one that the verdict was read from."""
    verdict: str = CONTROL
    reason: str = ""
    """Why it is undecided, where that is not for lack of evidence alone."""
    p: float | None = None
    """Adjusted over the family; that of equivalence where that is the verdict."""


@dataclass(frozen=True, slots=True)
class Standings:
    """Every arm on one metric, best first, the control in its place."""

    metric: str
    unit: str
    """Of the metric; empty where nothing declares it."""
    larger_is_better: bool
    control: str
    population: str
    """For whom the verdicts speak; empty where that differs between arms."""
    lines: Sequence[RankedArm]
    comparisons: int
    """In the whole family, over which p is adjusted."""
    sequential: bool = False
    estimand: str = "effect"
    """What an effect is, for a heading."""
    exploratory: bool = False
    """These comparisons were not declared, and p is adjusted by Benjamini and Hochberg."""

    @property
    def title(self) -> str:
        unit = f" ({self.unit})" if self.unit and not _UNIT_IN_NAME.search(self.metric) else ""
        better = "higher" if self.larger_is_better else "lower"
        arms = [line.arm for line in self.lines if line.arm != self.control]
        who = short(arms[0], 40) if len(arms) == 1 else "every arm"
        about = f", {self.population}" if self.population and len(arms) > 1 else ""
        return f"{self.metric}{unit}, {better} is better: {who} minus {short(self.control, 40)}{about}"

    @property
    def note(self) -> str:
        """What intervals and p are, where a heading cannot say it."""
        levels = sorted({line.interval.level for line in self.lines if line.interval is not None})
        equivalent = any(line.verdict == "equivalent" for line in self.lines) and not self.sequential
        of_equivalence = "Interval and p of an equivalent arm are those of equivalence." if equivalent else ""
        if self.exploratory:
            over = f" over {self.comparisons} comparisons (Benjamini-Hochberg)" if self.comparisons > 1 else ""
            return (
                f"Exploratory, not declared before results were shown: no verdict; p is adjusted{over}."
                if over
                else ("Exploratory, not declared before results were shown: no verdict.")
            )
        if self.sequential or self.comparisons < 2 or not levels:
            return of_equivalence
        low, high = format_level(levels[0]), format_level(levels[-1])
        span = low if low == high else f"{low.removesuffix(' %')} to {high}"
        family = f"Intervals ({span}) are those that decided; p is adjusted for {self.comparisons} comparisons (Holm)."
        return f"{family} {of_equivalence}".rstrip()

    def effect_in_words(self, effect: float | None) -> str:
        """`50.7 ms faster`, `0.02 lower`: the size with its unit, and the direction as a word."""
        if effect is None:
            return NOTHING
        if effect == 0.0:
            return "no difference"
        takes_time = self.unit in _TIMES and not self.larger_is_better
        down, up = ("faster", "slower") if takes_time else ("lower", "higher")
        return f"{number(abs(effect))}{f' {self.unit}' if self.unit else ''} {down if effect < 0 else up}"

    def span(self) -> tuple[float, float]:
        """What a forest plot of the lines shows: all intervals, without those that would squeeze the others."""
        reaches = []
        for line in self.lines:
            if line.effect is not None:
                ends = (line.interval.low, line.interval.high) if line.interval is not None else ()
                reaches.append((min(0.0, line.effect, *filter(math.isfinite, ends)),
                                max(0.0, line.effect, *filter(math.isfinite, ends))))  # fmt: skip
        if not reaches:
            return -1.0, 1.0
        usual = sorted(max(-low, high) for low, high in reaches)[3 * len(reaches) // 4]
        limit = OUTLIER * usual if usual > 0.0 else math.inf
        kept = [(low, high) for low, high in reaches if max(-low, high) <= limit] or reaches
        low, high = min(low for low, _ in kept), max(high for _, high in kept)
        return (low, high) if low < high else (-1.0, 1.0)


def standings(
    comparisons: Sequence[Comparison],
    observations: Sequence[Observations],
    units: Mapping[str, str],
) -> list[Standings]:
    """One for each metric, in the order of the comparisons. `units` of metrics are those that the file declares."""
    by_metric: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        by_metric.setdefault(comparison.metric, []).append(comparison)
    larger = {each.metric: each.larger_is_better for each in observations}
    tables = []
    for metric, group in by_metric.items():
        first = group[0]
        # Where every comparison has its own pairs, the control's mean is that of the first.
        lines = [RankedArm(first.control, first.control_mean)]
        for each in group:
            reason = each.reason.replace("_", " ") if each.reason not in ("", "inconclusive", "continue") else ""
            p_eq = each.decision.p_eq_adjusted if each.verdict == "equivalent" else None
            p = each.p_adjusted if p_eq is None else p_eq
            lines.append(
                RankedArm(
                    each.candidate, each.candidate_mean, each.effect, each.deciding_interval, each.verdict, reason, p
                )
            )
        direction = 1.0 if larger[metric] else -1.0

        def place(line: RankedArm, direction: float = direction) -> float:
            """Best first, and last those without an effect."""
            effect = 0.0 if line.verdict == CONTROL else line.effect
            return math.inf if effect is None else -direction * effect

        in_name = _UNIT_IN_NAME.search(metric)
        populations = {each.population for each in group}
        tables.append(
            Standings(
                metric=metric,
                unit=units.get(metric) or (in_name[1] if in_name else ""),
                larger_is_better=larger[metric],
                control=first.control,
                population=first.population if len(populations) == 1 else "",
                lines=sorted(lines, key=place),
                comparisons=first.family,
                sequential=first.evidence_path is not None,
                estimand="effect" if first.design.statistic == "mean" else first.design.estimand,
                exploratory=all(each.reason == "exploratory" for each in group),
            )
        )
    return tables


def ranked_table(standing: Standings, most: int | None = None) -> Table:
    """The lines as text; what is left out beyond `most` is counted below."""
    shown = list(standing.lines)
    left: list[RankedArm] = []
    if most is not None and len(shown) > most:
        shown, left = shown[:most], shown[most:]
        left_control = next((line for line in left if line.verdict == CONTROL), None)
        if left_control is not None:
            left.remove(left_control)
            shown.append(left_control)
    levels = {line.interval.level for line in shown if line.interval is not None}
    kind = "confidence sequence" if standing.sequential else "interval"
    interval = f"{format_level(min(levels))} {kind}" if len(levels) == 1 else f"deciding {kind}"
    p = "p (any time)" if standing.sequential else "p adjusted" if standing.comparisons > 1 else "p"
    unit = f" ({standing.unit})" if standing.unit else ""
    headers = ["arm", f"mean{unit}", standing.estimand, interval, "verdict", p]
    rows = []
    for line in shown:
        if line.verdict == CONTROL:
            rows.append([line.arm, number(line.mean), "", "", CONTROL, ""])
            continue
        word = f"{line.verdict} ({line.reason})" if line.reason else line.verdict
        rows.append([
            line.arm, number(line.mean), standing.effect_in_words(line.effect), format_ends(line.interval), word, format_p(line.p),
        ])  # fmt: skip
    below = standing.note
    if left:
        counts = Counter(line.verdict for line in left)
        words = ", ".join(f"{number(count)} {word}" for word, count in counts.most_common())
        more = f"... and {number(len(left))} more arms ({words}); --verbose, --json and --csv FILE have all of them"
        below = f"{more}. {below}".rstrip()
    strokes = [
        None
        if line.effect is None
        else Stroke(line.effect, math.nan, math.nan)
        if line.interval is None
        else Stroke(line.effect, line.interval.low, line.interval.high)
        for line in shown
    ]
    empty = [name for column, name in enumerate(headers) if all(row[column] in ("", NOTHING) for row in rows)]
    kept = [column for column, name in enumerate(headers) if name not in empty]
    return Table(
        [headers[column] for column in kept],
        [[row[column] for column in kept] for row in rows],
        standing.title,
        right=[headers[1], p],
        below=below,
        strokes=strokes,
        span=standing.span(),
        optional=[p, headers[1]],
        verdicts=[line.verdict for line in shown],
    )


# -- what to do next


@dataclass(frozen=True, slots=True)
class Advice:
    """What would decide what is open, or what the verdicts do not speak of; `advice_in_words` makes the sentence."""

    kind: Literal[
        "finish the plan", "ask about other tasks", "open for other tasks", "missing runs", "use the seed",
        "at least so many units", "two runs on each task", "so many units", "too many units",
    ]  # fmt: skip
    comparison: Comparison
    """The one that the numbers are about."""
    compared: int = 1
    """Comparisons at hand."""
    number: int = 0
    """Missing runs, further units, or comparisons that are decided (or open) for the other population."""
    of: int = 0
    """Comparisons among which `number` is counted."""
    target: Literal["margin", "half"] = "half"
    """What so many units would decide: a difference of the margin, or what four times as many can (about half)."""


def advise(comparisons: Sequence[Comparison], final: bool = True) -> Advice | None:
    """Return the next step; None where there is nothing to advise. `final`: every planned run has ended."""
    compared = len(comparisons)
    if not final:
        return Advice("finish the plan", comparisons[0], compared)
    undecided = [each for each in comparisons if each.verdict == "undecided"]
    known = [each for each in undecided or comparisons if each.other is not None and each.other.decision is not None]
    decided = [each for each in known if each.other is not None and each.other.decided]
    if undecided and decided:
        return Advice("ask about other tasks", decided[0], compared, len(decided), len(undecided))
    if not undecided:
        # One run on each task says nothing about these tasks only, which are the narrower question anyway.
        silent = [
            each for each in known if each.other and each.other.value == "fixed" and each.other.reason == "too_few"
        ]
        if len(decided) + len(silent) == len(known):
            return None
        return Advice("open for other tasks", known[0], compared, len(known) - len(decided), len(known))
    undecided = [each for each in undecided if each.reason != "exploratory"]
    if missing := [each for each in undecided if each.reason == "missing"]:
        most = max(missing, key=lambda each: each.missing)
        return Advice("missing runs", most, compared, most.missing)
    if copied := [each for each in undecided if each.reason == "seed_has_no_effect"]:
        return Advice("use the seed", copied[0], compared)
    if any(each.reason == "too_few" for each in undecided):
        few = min(undecided, key=lambda each: each.units)
        if few.units < LEAST_UNITS:
            return Advice("at least so many units", few, compared, LEAST_UNITS - few.units)
        return Advice("two runs on each task", few, compared)
    return _more_evidence(undecided, compared) if undecided else None


def _more_evidence(undecided: Sequence[Comparison], compared: int) -> Advice | None:
    """How many units more would decide the margin, or what four times as many would decide.

    Never the effect seen: of those that were not decided it is the luckier half that looks worth deciding, so that plans
    for it have less power than they promise.
    """
    bounded = [each for each in undecided if each.decision_interval is not None and each.decision_interval.is_bounded]
    if not bounded:
        few = max(undecided, key=lambda each: each.units)
        level = 1.0 - few.decision_interval.level if few.decision_interval is not None else 0.05
        if few.decision.floor is None or few.decision.floor <= level or not few.design.paired:
            return None
        return Advice("at least so many units", few, compared, math.ceil(math.log2(few.decision.floor / level)))
    plans = []
    for each in bounded:
        mde, needed = each.detectable.mde, each.detectable.units_for_margin
        if needed is not None and needed > each.units:
            plans.append(Advice("so many units", each, compared, needed - each.units, target="margin"))
        elif (
            mde is not None
            and each.effect is not None
            and mde > abs(each.effect)
            and each.detectable.mde_at_four_times is not None
        ):
            plans.append(Advice("so many units", each, compared, 3 * each.units))
    if not plans:
        return None
    cheapest = min(plans, key=lambda plan: plan.number)
    digits = 10 ** max(0, len(str(cheapest.number)) - 2)
    needed = -(-cheapest.number // digits) * digits  # 681 is not known to the unit
    return replace(cheapest, number=needed, kind="too many units" if needed > MOST_UNITS else "so many units")


def advice_in_words(advice: Advice, file: str | None = None) -> str:
    """Make the sentence of an advice. `file` is the experiment file that can be run; None for results from elsewhere."""
    each, count = advice.comparison, advice.number
    run = f"`bakeoff run {file}`"
    add = f"; add them to {file}, then {run}"
    match advice.kind:
        case "finish the plan":
            return f"planned runs are still open: {f'{run} finishes them, and ' if file else ''}there is no verdict before that"
        case "ask about other tasks" | "open for other tasks":
            return _other_tasks_in_words(advice)
        case "missing runs":
            how = f"{run} tries lost ones again" if file else "their values have to be in the results"
            return f"up to {count} missing runs keep a comparison open: {how}"
        case "use the seed":
            return "make the arms use their seed, or compare them on more tasks: copies of one run cannot decide"
        case "at least so many units":
            why = f": fewer than {LEAST_UNITS} units decide nothing" if each.units < LEAST_UNITS else ""
            more = each.design.more(count)
            return f"run at least {more}{why}{add}" if file else f"at least {more} would be needed{why}"
        case "two runs on each task":
            needed = (
                "run two seeds or more on every task" if file else "two seeds or more on every task would be needed"
            )
            return f"{needed}: a single run has no spread{add if file else ''}"
        case "so many units" | "too many units":
            who = short(each.candidate, 40) if advice.compared > 1 else ""
            if advice.target == "half":
                more = each.design.four_times or f"about {each.design.more(count)}"
                size = f"effects of {number(each.detectable.mde_at_four_times or 0.0)} or more{f' for {who}' if who else ''}"
                return f"{more} would detect {size} with 80 % power; --margin asks about a difference that matters"
            size = f"a difference of the margin{f' for {who}' if who else ''}"
            if advice.kind == "too many units":
                units = f"{number(MOST_UNITS)} {each.design.unit}s"
                return f"deciding {size} would take more than {units}; --margin asks if they are equivalent"
            return f"about {each.design.more(count)} would decide {size} with 80 % power"


def _other_tasks_in_words(advice: Advice) -> str:
    """What the same runs say for the other population."""
    other = advice.comparison.other
    assert other is not None and other.design is not None
    tasks, sample = len(other.design.tasks), other.value == "sample"
    if advice.compared == 1:
        if advice.kind == "ask about other tasks":
            return f"add --tasks {other.value} for an answer {other.design.population}: {other.verdict_in_words}"
        return f"{other.design.population} it is {other.verdict_in_words}{'; more tasks would tell' if sample else ''}"
    about = f"for tasks like these {tasks}" if sample else f"on these {tasks} tasks only"
    if other.design.both_sampled:
        about += f" and seeds like these {len(other.design.seeds)}"
    if other.design.given:
        about += f", {other.design.given}"
    if advice.kind == "ask about other tasks":
        return f"add --tasks {other.value} to decide {advice.number} of the {advice.of} that are open, {about}"
    more = "; more tasks would decide that" if sample else ""
    return f"{advice.number} of {advice.of} are undecided {about} (--tasks {other.value}){more}"
