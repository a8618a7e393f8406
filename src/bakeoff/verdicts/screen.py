"""The first screen of a comparison: the arms of each metric in one ranked table, and what to do next.

`compare` prints it and the report shows it, so both have the same lines in the same order.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakeoff.stats.evidence import Interval
from bakeoff.text import NOTHING, Stroke, format_ends, format_level, format_p, number, short
from bakeoff.verdicts.answer import Table
from bakeoff.verdicts.compare import Comparison
from bakeoff.verdicts.observations import Observations

if TYPE_CHECKING:
    from bakeoff.verdicts.sequential import SequentialComparison

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
class Line:
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
    p_exact: float | None = None
    """With ties counted in full, where the verdict counts half of them; not adjusted."""


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
    lines: Sequence[Line]
    comparisons: int
    """In the whole family, over which p is adjusted."""
    sequential: bool = False

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
    comparisons: Sequence[Comparison] | Sequence[SequentialComparison],
    observations: Sequence[Observations],
    units: Mapping[str, str],
) -> list[Standings]:
    """One for each metric, in the order of the comparisons. `units` of metrics are those that the file declares."""
    by_metric: dict[str, list[Comparison | SequentialComparison]] = {}
    for comparison in comparisons:
        by_metric.setdefault(comparison.metric, []).append(comparison)
    larger = {each.metric: each.larger_is_better for each in observations}
    tables = []
    for metric, group in by_metric.items():
        first = group[0]
        # Where every comparison has its own pairs, the control's mean is that of the first.
        lines = [Line(first.control, first.control_mean if isinstance(first, Comparison) else None)]
        for each in group:
            reason = each.reason.replace("_", " ") if each.reason not in ("", "inconclusive", "continue") else ""
            mean, interval, p, exact = None, each.interval, each.p_adjusted, None
            if isinstance(each, Comparison):
                mean, interval, exact = each.candidate_mean, each.deciding_interval, each.p_exact
                if each.verdict == "equivalent":
                    p, exact = each.decision.p_eq_adjusted, None
            lines.append(Line(each.candidate, mean, each.effect, interval, each.verdict, reason, p, exact))
        direction = 1.0 if larger[metric] else -1.0

        def place(line: Line, direction: float = direction) -> float:
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
                comparisons=len(comparisons),
                sequential=not isinstance(first, Comparison),
            )
        )
    return tables


def ranked_tables(tables: Sequence[Standings], most: int = MOST_LINES) -> list[Table]:
    """A table for each metric. Of very many arms only the best are shown, and the control."""
    rows = max(FEWEST_LINES, most // max(1, len(tables)))
    return [ranked_table(each, rows) for each in tables]


def ranked_table(standing: Standings, most: int | None = None) -> Table:
    """The lines as text; what is left out beyond `most` is counted below."""
    shown = list(standing.lines)
    left: list[Line] = []
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
    headers = ["arm", f"mean{unit}", "effect", interval, "verdict", p]
    rows = []
    for line in shown:
        if line.verdict == CONTROL:
            rows.append([line.arm, number(line.mean), "", "", CONTROL, ""])
            continue
        word = f"{line.verdict} ({line.reason})" if line.reason else line.verdict
        tested, exact = format_p(line.p), format_p(line.p_exact)
        if standing.comparisons == 1 and exact not in (NOTHING, tested):
            tested = f"{tested} (exact {exact})"
        rows.append([
            line.arm, number(line.mean), standing.effect_in_words(line.effect), format_ends(line.interval), word, tested,
        ])  # fmt: skip
    below = standing.note
    if left:
        counts = Counter(line.verdict for line in left)
        words = ", ".join(f"{number(count)} {word}" for word, count in counts.most_common())
        more = f"... and {number(len(left))} more arms ({words}); --verbose, --json and --csv FILE have all of them"
        below = f"{more}. {below}".rstrip()
    strokes = [
        None if line.effect is None else Stroke(line.effect, *_ends(line.interval))
        for line in shown
    ]  # fmt: skip
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
    )


def _ends(interval: Interval | None) -> tuple[float, float]:
    return (math.nan, math.nan) if interval is None else (interval.low, interval.high)


# -- what to do next


def next_step(comparisons: Sequence[Comparison], observations: Sequence[Observations]) -> str:
    """One sentence: what would decide what is open, or what the verdicts do not speak of. Empty if there is nothing."""
    if not all(each.final for each in observations):
        return "planned runs are still open: `bakeoff run` finishes them, and there is no verdict before that"
    undecided = [each for each in comparisons if each.verdict == "undecided"]
    other = _other_population(comparisons, undecided)
    if not undecided or other:
        return other
    missing = [each for each in undecided if each.reason == "missing"]
    if missing:
        runs = max(each.missing for each in missing)
        return f"up to {runs} missing runs keep a comparison open: `bakeoff run` tries lost ones again"
    if any(each.reason == "seed_has_no_effect" for each in undecided):
        return "make the arms use their seed, or compare them on more tasks: copies of one run cannot decide"
    if any(each.reason == "too_few" for each in undecided):
        few = min(undecided, key=lambda each: each.units)
        if few.units < 3:
            return f"run at least {_more(few, 3 - few.units)}: fewer than 3 units decide nothing"
        return "run two seeds or more on every task: a single run has no spread"
    return _more_evidence(undecided, named=len(comparisons) > 1)


def _other_population(comparisons: Sequence[Comparison], undecided: Sequence[Comparison]) -> str:
    """What the same runs say for the other population, where that is more, or less, than was asked."""
    asked = undecided or comparisons
    told = [each for each in asked if each.other and ": no verdict" not in each.other]
    if not told:
        return ""
    flag = "fixed" if "these tasks only" in told[0].other or told[0].other.startswith("on these") else "sample"
    decided = [each for each in told if ": undecided" not in each.other]
    if undecided and decided:
        if len(comparisons) == 1:
            return f"add --tasks {flag} for an answer {decided[0].other}"
        return f"add --tasks {flag} to decide {len(decided)} of the {len(undecided)} that are open, {_population(decided[0].other)}"
    if undecided or len(decided) == len(told):
        return ""
    if len(comparisons) == 1:
        population, _, verdict = told[0].other.rpartition(": ")
        return f"{population} it is {verdict}{'; more tasks would tell' if flag == 'sample' else ''}"
    open_there = f"{len(told) - len(decided)} of {len(told)} are undecided {_population(told[0].other)}"
    return f"{open_there} (--tasks {flag}){'; more tasks would decide that' if flag == 'sample' else ''}"


def _population(other: str) -> str:
    """`for tasks like these 3` of `for tasks like these 3 (unit: task, N = 3): undecided`."""
    return other.partition(" (")[0]


def _more_evidence(undecided: Sequence[Comparison], named: bool) -> str:
    """How many units more would decide the margin, or an effect as large as the one seen; of which arm, if `named`."""
    bounded = [each for each in undecided if each.decision_interval is not None and each.decision_interval.is_bounded]
    if not bounded:
        few = max(undecided, key=lambda each: each.units)
        level = 1.0 - few.decision_interval.level if few.decision_interval is not None else 0.05
        if few.decision.floor is None or few.decision.floor <= level or not few.design.paired:
            return ""
        return f"run at least {_more(few, math.ceil(math.log2(few.decision.floor / level)))}"
    plans = []
    for each in bounded:
        if each.units_for_margin is not None and each.units_for_margin > each.units:
            about = f" for {short(each.candidate, 40)}" if named else ""
            plans.append((each.units_for_margin - each.units, f"a difference of the margin{about}", each))
        elif each.mde is not None and each.effect and each.mde > abs(each.effect):
            # The error of a mean falls with the square root of the units.
            needed = math.ceil(each.units * ((each.mde / each.effect) ** 2 - 1.0))
            about = f" of {short(each.candidate, 40)}" if named else ""
            size = f"an effect of {number(abs(each.effect))} (the one seen{about})"
            plans.append((needed, size, each))
    if not plans:
        return ""
    needed, size, each = min(plans, key=lambda plan: plan[0])
    digits = 10 ** max(0, len(str(needed)) - 2)
    needed = -(-needed // digits) * digits  # 681 is not known to the unit
    if needed > MOST_UNITS:
        return f"deciding {size} would take more than {number(MOST_UNITS)} {each.design.unit}s; --margin asks if they are equivalent"
    too_small = "; if that is too small to matter, say so with --margin" if needed > 10 * each.units else ""
    return f"about {_more(each, needed)} would decide {size} with 80 % power{too_small}"


def _more(comparison: Comparison, units: int) -> str:
    """`14 more seeds`, in the units that the design can have more of."""
    design, tasks = comparison.design, max(1, len(comparison.design.tasks))
    match design.kind:
        case "fixed seeds" | "fixed rollouts":
            each, where = math.ceil(units / tasks), " on each task"
            kind = design.unit
        case "crossed":
            each, kind, where = units, "task", f" and {number(units)} more seed{'s' if units > 1 else ''}"
        case _:
            each, kind, where = units, design.unit, "" if design.paired else " in each arm"
    return f"{number(each)} more {kind}{'s' if each > 1 else ''}{where}"
