"""`calibrate`: how often these runs, judged as declared, lead to a wrong verdict when the arms do not differ.

Labels of the arms are exchanged for whole tasks, groups of tasks and seeds (`relabel`), declared or not, and every
relabelled experiment is judged by the test that the verdict uses. If runs of one block have something in common that the
declared unit does not know of, wrong verdicts are more frequent than alpha, and the answer says which declaration would be
right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Results
from bakeoff.spec.experiment import Analysis
from bakeoff.stats.decision import Decision
from bakeoff.stats.many import Bools
from bakeoff.stats.ttests import TStatistic
from bakeoff.text import NOTHING, format_p, number
from bakeoff.verdicts.answer import (
    NOT_ENOUGH_EVIDENCE,
    Answer,
    Block,
    Notes,
    Table,
    Text,
    observe_metric,
    refuse_sequential,
)
from bakeoff.verdicts.designs import Design, Rule, build_design
from bakeoff.verdicts.designs.replicates import Block as BlockKind
from bakeoff.verdicts.designs.replicates import Level
from bakeoff.verdicts.designs.testing import arm_mean, comparison_test
from bakeoff.verdicts.family import choose_arms
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.plausibility import copied_tasks
from bakeoff.verdicts.question import Calibrate
from bakeoff.verdicts.questions.relabel import DesignFamily
from bakeoff.verdicts.repeats import copied_seeds
from bakeoff.version import __version__

if TYPE_CHECKING:
    from bakeoff.verdicts.questions.gate import MetricRule

State = Literal["exceeds", "unclear", "too few", "holds", "own unit"]
"""The first of these that some kind of block has is that of the whole."""
ERRORS = 3.0
"""Standard errors of the simulation by which a rate may lie above alpha."""
T_TEST = 1.4
"""Times alpha: what a t-test, which is an approximation, may reach on given runs (docs/calibration.md bounds it so), and
what blocks that are not the test's units may show by chance."""
FEWEST_BLOCKS = 6
"""With fewer blocks there are too few ways of exchanging labels to tell a rate of alpha from 0."""
FEWEST_PATTERNS = 1.5
"""Times 1 / alpha: with fewer ways of exchanging labels, as at a small alpha, there is nothing to see either."""
IN_COMMON, PERHAPS = 0.01, 0.05
"""p below which runs of one block have something in common (`compare` warns at the same p), or may have."""
HIDDEN = 2.0
"""Times alpha: what seeds may have in common unseen, at most, where alpha is said to hold. Without this limit an analysis
with 15 to 29 % false verdicts was said to hold in 19 to 62 % of tables (12 tasks x 8 seeds), with it in 2 to 12 %."""
LOW_POWER = 0.5
_WORDS: Mapping[State, str] = {
    "exceeds": "too often", "unclear": "perhaps too often", "holds": "alpha holds", "too few": "too few to tell",
    "own unit": "the test's own unit: tells nothing",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What came out when labels were exchanged for whole blocks of one kind."""

    block: BlockKind
    blocks: int
    """How many of them there are."""
    replicates: int
    every: bool
    """The replicates are all ways in which labels can be exchanged, so there is no error of the simulation."""
    false_positives: float
    """Share of replicates with any `better` or `worse`."""
    coverage: float
    """Share of intervals that contain the true effect."""
    power: float | None
    """At a true effect of the margin: share of comparisons that find it."""
    false_equivalent: float | None
    """At a true effect of the margin: share of comparisons that are called `equivalent`."""
    p_common: float | None
    """p of 'such blocks have nothing in common that the test does not know of'; None where they are its own units."""
    hidden_rate: float | None
    """The rate that cannot be ruled out with 80 % confidence, because blocks may have more in common than shows; or None."""
    state: State
    gate_fails: float | None = None
    """Share of replicates in which the gate fails; None without a gate."""
    gate_undecided: float | None = None
    """Share of replicates in which the gate finds too little evidence."""
    column: str = ""
    """The column whose values group the tasks, where such groups are the blocks."""
    copies: bool = False
    """Tasks, or seeds, that are copies of each other were exchanged together."""

    def error(self, share: float | None) -> float | None:
        """Standard error of a share, from the number of replicates."""
        if share is None:
            return None
        return 0.0 if self.every else math.sqrt(share * (1.0 - share) / self.replicates)

    @property
    def plural(self) -> str:
        return Level(self.block, self.column, self.copies).plural

    @property
    def what(self) -> str:
        """`12 tasks`, `8 groups of tasks by 'repo'`."""
        return f"{self.blocks} {self.plural}"

    @property
    def one(self) -> str:
        """What runs of one block share: `task`, `group`, `seed`."""
        return "group" if self.column else self.block


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured, on which designs."""

    families: Sequence[DesignFamily]
    """One for each metric."""
    margins: Sequence[float | None]
    """Of each metric, in its own unit."""
    how: Rule
    test: str
    """The test of the first comparison, and what it assumes."""
    exact: bool
    """No comparison is decided by a t-test."""
    reason: str
    """Why nothing could be tested; else empty."""
    exchanged: Sequence[Exchanged] = ()
    limits: Sequence[Sequence[float]] = ()
    """With a gate, for each metric what the lower end of the effect has to lie above, one for each rule."""

    @property
    def design(self) -> Design:
        return self.families[0].designs[0]


Copies = Mapping[BlockKind, Mapping[Any, Any]]
"""Tasks, and seeds, each with the one that it is a copy of."""


def calibrate(
    metrics: Sequence[Observations],
    question: Calibrate,
    changes: Mapping[str, str | None] | None = None,
    copies: Copies | None = None,
) -> Calibration:
    """Exchange labels for every kind of block that the runs have. `changes` are to the declared analysis."""
    metrics = [replace(each, analysis=each.analysis.model_copy(update=dict(changes or {}))) for each in metrics]
    prepared = _prepare(metrics, question, copies or {})
    if prepared.reason:
        return prepared
    levels = prepared.families[0].levels()
    if question.blocks is not None:
        kinds = {"cluster" if level.column else level.block: None for level in levels if not level.copies}
        if question.blocks not in kinds:
            raise UsageError(
                f"--blocks {question.blocks}: these runs ({prepared.design.population}) can be exchanged by "
                f"{' or '.join(kinds)}"
            )
        levels = [
            level
            for level in levels
            if question.blocks == ("cluster" if level.column else level.block) and not level.copies
        ]
    exchanged = [_exchange(prepared, level, question) for level in levels]
    said_independent = metrics[0].analysis.cluster == "none"
    # Whoever says that tasks of one group are independent is not asked about groups too few to tell, unless they differ.
    return replace(
        prepared,
        exchanged=[
            each
            for each in exchanged
            if not (said_independent and each.column and each.state == "too few" and (each.p_common or 0.0) >= PERHAPS)
        ],
    )


def _prepare(metrics: Sequence[Observations], question: Calibrate, copies: Copies) -> Calibration:
    """Designs of all comparisons without their missing runs, and why they cannot be tested, if they cannot."""
    control, candidates = choose_arms(metrics[0], question)
    first = metrics[0].analysis
    how = Rule(first.alpha, len(metrics) * len(candidates), strict=first.ties == "full")
    families, reason, test, exact = [], "", "", True
    for observations in metrics:
        analysis, designs = observations.analysis, []
        for candidate in candidates:
            design = build_design(
                observations, control, candidate, unpaired=question.unpaired, intersect=question.intersect
            ).without_missing()
            designs.append(design)
            if not design.control or not design.candidate:
                reason = reason or f"{candidate} against {control}: no task and seed has finished runs of both"
                continue
            made = comparison_test(design, alpha=how.alpha, comparisons=how.comparisons, strict=how.strict)
            if isinstance(made, Decision):
                reason = reason or f"{candidate} against {control}: {made.reason.replace('_', ' ')}"
            else:
                test = test or f"{made.evidence.method}, {made.evidence.assumes}"
                exact &= not isinstance(made.evidence, TStatistic)
        if len({(type(design), design.binary) for design in designs}) > 1:
            raise UsageError(
                f"{observations.metric}: the candidates do not have the same design, so they cannot be calibrated "
                "together; name one of them with --arms"
            )
        swept = observations.fixed_tasks and analysis.tasks is None
        shared = designs if reason else _on_common_places(designs)
        if refused := next(filter(None, (design.refusal() for design in shared)), None) if not reason else None:
            reason = f"on the tasks and seeds that all arms have: {refused.reason.replace('_', ' ')}"
        families.append(DesignFamily(shared, swept, observations.groups, copies))
    margins = [
        None if reason else _margin(each.analysis, family) for each, family in zip(metrics, families, strict=True)
    ]
    limits: list[list[float]] = []
    if question.policy is not None and not reason:
        rules = question.policy.metrics
        limits = [_limits(rules[each.metric], family) for each, family in zip(metrics, families, strict=True)]
    return Calibration(families, margins, how, test, exact, reason, limits=limits)


def _on_common_places(designs: Sequence[Design]) -> Sequence[Design]:
    """Return the designs on the places that all of them have, where places pair: labels are exchanged between all arms."""
    if not all(design.matched for design in designs):
        return designs
    common = set.intersection(*(set(design.control) for design in designs))
    return [
        design
        if len(design.control) == len(common)
        else design.only(
            *({p: cell for p, cell in cells.items() if p in common} for cells in (design.control, design.candidate))
        )
        for design in designs
    ]


def _limits(rule: MetricRule, family: DesignFamily) -> list[float]:
    """What a gate asks the effect to lie above, in the metric's unit; a share is one of the control's mean."""
    control, _ = family.designs[0].arrays()
    mean = abs(arm_mean(control))
    return [
        sign * amount.size * (mean if amount.relative else 1.0)
        for sign, amount in ((-1.0, rule.max_regression), (1.0, rule.must_improve))
        if amount is not None
    ]


def _margin(analysis: Analysis, family: DesignFamily) -> float | None:
    """The margin in the metric's unit. Outcomes of 0 and 1 cannot be moved by it, so they have none here."""
    if family.designs[0].binary:
        return None
    if analysis.relative_margin is not None:
        control, _ = family.designs[0].arrays()
        return abs(analysis.relative_margin * arm_mean(control)) or None
    return analysis.margin


def _exchange(prepared: Calibration, at: Level, question: Calibrate) -> Exchanged:
    """Judge every relabelled experiment."""
    families, how = prepared.families, prepared.how
    alpha = how.alpha
    level = alpha / how.comparisons  # the first step of Holm's procedure: any p below it is a false verdict
    labels = families[0].labels(at, question.replicates, np.random.default_rng([question.seed, 0]))
    wrong = np.zeros(len(labels), np.bool_)
    covered: list[Bools] = []
    found: list[Bools] = []
    equivalent: list[Bools] = []
    passes, fails = np.ones(len(labels), np.bool_), np.zeros(len(labels), np.bool_)
    of_policy = None if question.policy is None or "alpha" in question.model_fields_set else question.policy.alpha
    asked = of_policy or alpha
    rules = sum(map(len, prepared.limits)) * len(families[0].designs)
    limits = prepared.limits or [()] * len(families)
    for family, margin, above in zip(families, prepared.margins, limits, strict=True):
        # Metrics are relabelled alike, because they are of the same runs.
        start = 0
        for worlds in family.worlds(labels, np.random.default_rng([question.seed, 1])):
            for world in worlds:
                many = world.many(how)
                wrong[start : start + many.size] |= np.logical_or(*many.rejects(0.0, level / 2.0))
                covered.append(many.covers(0.0, 1.0 - alpha))
                part = slice(start, start + many.size)
                for limit in above:  # as verdicts.gate: each rule at alpha passes, the first step of Holm's breaks
                    passes[part] &= many.rejects(limit, asked, guarded=True)[0]
                    fails[part] |= many.rejects(limit, asked / rules, guarded=True)[1]
                if margin is not None:
                    moved = world.many(how, margin)
                    found.append(moved.rejects(0.0, level / 2.0)[0])
                    equivalent.append(moved.equivalent(margin, level))
            start += many.size
    rate = float(wrong.mean())
    error = 0.0 if labels.every else math.sqrt(alpha * (1.0 - alpha) / len(labels))
    design = prepared.design
    if at.column:
        knows = own = at.column in design.group_columns
    else:
        knows = design.knows(at.block) and not at.copies
        own = knows and design.holds_by_construction(at.block)
    # With few blocks the rate moves in steps of one pattern, and one step above alpha shows nothing.
    allowed = alpha if prepared.exact and knows else T_TEST * alpha
    too_often = rate > allowed + ERRORS * error + 1.0 / labels.patterns
    # A few blocks that are not the test's units differ by chance, too.
    p_common = hidden_rate = None
    if not knows and not at.copies:
        hidden_rate = max(each.hidden_rate(labels, alpha) for each in families)
        p_common = min(1.0, len(families) * min(each.p_common(labels) for each in families))
    few = len(labels.number) < FEWEST_BLOCKS or labels.patterns * alpha < FEWEST_PATTERNS
    state: State = "too few" if few else "own unit" if own else "holds"
    if too_often and not few and (p_common is None or p_common < IN_COMMON):
        state = "exceeds"
    elif (
        not few and p_common is not None and (too_often or p_common < PERHAPS or (hidden_rate or 0.0) > HIDDEN * alpha)
    ):
        state = "unclear"
    power, false_equivalent = (float(np.concatenate(each).mean()) if each else None for each in (found, equivalent))
    return Exchanged(
        at.block, len(labels.number), len(labels), labels.every, rate, float(np.concatenate(covered).mean()), power,
        false_equivalent, p_common, hidden_rate, state, *_outcomes(passes, fails, rules), at.column, at.copies,
    )  # fmt: skip


def _outcomes(passes: Bools, fails: Bools, rules: int) -> tuple[float | None, float | None]:
    """The shares of replicates in which a gate fails, and in which it neither fails nor passes; None without rules."""
    return (float(fails.mean()), float((~passes & ~fails).mean())) if rules else (None, None)


# -- the answer


@dataclass(frozen=True, slots=True)
class BetterDeclaration:
    """A declaration that would be right, with the largest rate that it was measured to have."""

    changes: Mapping[str, str | None]
    population: str
    false_positives: float

    @property
    def flags(self) -> str:
        said = [f"--{name} {value}" for name, value in self.changes.items() if value is not None]
        left_out = [f"without --{name}" for name, value in self.changes.items() if value is None]
        return " ".join([*said, *left_out])


@dataclass(frozen=True)
class CalibrateAnswer(Answer):
    """Error rates of the declared analysis on these runs."""

    calibration: Calibration
    alpha: float
    advice: BetterDeclaration | None
    notes: Sequence[str]

    title = "Calibration"

    @property
    def exchanged(self) -> Sequence[Exchanged]:
        return self.calibration.exchanged

    @property
    def state(self) -> State:
        states = {each.state for each in self.exchanged}
        return next((state for state in get_args(State) if state in states), "too few")

    @property
    def exit_code(self) -> int:
        """0 alpha holds within the simulation's error, 1 it does not, 3 there is too little data to tell."""
        return {"holds": 0, "exceeds": 1}.get(self.state, NOT_ENOUGH_EVIDENCE)

    def worst(self) -> Exchanged:
        """Where wrong verdicts are the most frequent, of those that say most; what chance explains does not count."""
        said = [each for each in self.exchanged if each.state == self.state]
        return max([each for each in said if not self._by_chance(each)] or said, key=lambda each: each.false_positives)

    def _by_chance(self, each: Exchanged) -> bool:
        return each.state == "holds" and each.p_common is not None and each.false_positives > self.alpha

    @property
    def sentence(self) -> str:
        alpha = _percent(self.alpha)
        if not self.exchanged:
            return f"Too little data to tell whether alpha holds ({self.calibration.reason})."
        worst = self.worst()
        rate = f"{_percent(worst.false_positives)} of {_relabelled(worst)}"
        match self.state:
            case "holds":
                return f"Alpha holds: arms that do not differ got a verdict in {rate} (alpha {alpha})."
            case "exceeds":
                return (
                    f"Alpha does not hold: with labels exchanged for whole {worst.plural}, arms that do not differ got a "
                    f"verdict in {rate} (alpha {alpha})."
                )
            case "unclear" if (worst.p_common or 0.0) >= PERHAPS and (worst.hidden_rate or 0.0) > HIDDEN * self.alpha:
                return (
                    f"Too little data to tell whether alpha holds: arms that do not differ got a verdict in {rate} (alpha {alpha}), "
                    f"and {worst.what} are so few that they could hide a rate of {_percent(worst.hidden_rate or 0.0)} "
                    "(80 % confidence)."
                )
            case "unclear":
                return (
                    f"Too little data to tell whether alpha holds: with labels exchanged for whole {worst.plural}, arms that "
                    f"do not differ got a verdict in {rate} (alpha {alpha}), which {worst.what} can show by chance."
                )
            case "own unit":
                return (
                    f"These runs cannot tell whether alpha holds: labels can be exchanged for whole {worst.plural} only, which "
                    "are the test's own units (or parts of them), and then it holds by construction."
                )
            case "too few":
                ways = f"can be exchanged in only {worst.replicates} ways" if worst.every else "are too few to exchange"
                enough = f"; it takes {FEWEST_BLOCKS} {worst.one}s" if worst.blocks < FEWEST_BLOCKS else ""
                return f"Too little data to tell whether alpha holds: labels of {worst.what} {ways}{enough}."

    @property
    def gate_sentence(self) -> str:
        """How often the gate would fail on identical inputs, where that is the worst; empty without a gate."""
        known = [each for each in self.exchanged if each.gate_fails is not None and each.state != "too few"]
        if not self.calibration.limits:
            return "" if not self.settings["gate"] else "Too little data to tell how often this gate would fail."
        if not known:
            return f"Too little data to tell how often this gate would fail: it takes {FEWEST_BLOCKS} units or more."
        worst = max(known, key=lambda each: (each.gate_fails or 0.0, each.gate_undecided or 0.0))
        return (
            f"On identical inputs this gate would fail {_percent(worst.gate_fails or 0.0)} of the time, and find too little "
            f"evidence in {_percent(worst.gate_undecided or 0.0)} ({_relabelled(worst)})."
        )

    def what_to_do(self) -> list[str]:
        """What to change, most important first."""
        lines = []
        if self.state == "exceeds":
            worst = self.worst()
            if self.advice is not None:
                lines.append(
                    f"change the unit: {self.advice.flags} ({self.advice.population}) gives "
                    f"{_percent(self.advice.false_positives)} on these runs"
                )
                if "tasks" in self.advice.changes:
                    lines.append(
                        f"if the verdict is meant for these tasks only, --blocks {self._finer()} leaves the tasks as they are"
                    )
            elif worst.copies:
                lines.append(
                    f"remove the copies: only {worst.what} are there (--copies keep takes copies for replicates)"
                )
            else:
                lines.append(f"more {worst.one}s: {worst.blocks} are too few for this test on such data")
        elif self.state == "unclear":
            lines.append(f"more {self.worst().one}s would tell whether runs of one have something in common")
        elif self.state == "too few":
            what = self.worst().one if self.exchanged else "unit"
            enough = (
                "with 4 in each arm"
                if not self.exchanged or self.worst().blocks >= FEWEST_BLOCKS
                else f"from {FEWEST_BLOCKS} on"
            )
            lines.append(f"more {what}s: {enough} there is something to see at alpha 5 %")
            if any(each.column and each.state == "too few" for each in self.exchanged):
                lines.append("--cluster none, if tasks of one group are independent")
        elif self.state == "own unit":
            lines.append(
                "name a level above the unit, if runs have one in common: seeds that recur over tasks (--seed-from), or tasks "
                "of several seeds"
            )
        power = [each.power for each in self.exchanged if each.power is not None]
        if power and min(power) < LOW_POWER:
            lines.append(
                f"more units: a true effect as large as the margin is found in only {_percent(min(power))}; "
                "`bakeoff power` says how many would be enough"
            )
        return lines

    def _finer(self) -> str:
        return next((each.block for each in self.exchanged if each.block != "task"), "seed")

    def facts(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "settings": self.all_settings,
            "state": self.state,
            "sentence": self.sentence,
            "gate_sentence": self.gate_sentence,
            "population": self.calibration.design.population,
            "test": self.calibration.test,
            "alpha": self.alpha,
            "exchanged": [
                {
                    **asdict(each),
                    "errors": {
                        name: each.error(getattr(each, name))
                        for name in ("false_positives", "coverage", "power", "false_equivalent")
                    },
                }
                for each in self.exchanged
            ],
            "advice": None if self.advice is None else {**asdict(self.advice), "flags": self.advice.flags},
            "what_to_do": self.what_to_do(),
            "notes": list(self.notes),
        }

    def blocks(self) -> list[Block]:
        about = "; ".join(filter(None, [self.calibration.design.population, self.calibration.test]))
        gate = [Text(self.gate_sentence)] if self.gate_sentence else []
        blocks: list[Block] = [Text(self.sentence, strong=True), *gate, Text(about)]
        headers = [
            "labels exchanged for",
            "better or worse",
            "interval covers",
            "effect found",
            "called equivalent",
            "experiments",
            "",
        ]
        rows = [
            [
                each.what, _with_error(each, each.false_positives), _with_error(each, each.coverage),
                _with_error(each, each.power), _with_error(each, each.false_equivalent),
                f"all {each.replicates:,}" if each.every else f"{each.replicates:,}",
                "within chance" if self._by_chance(each) else _WORDS[each.state],
            ]
            for each in self.exchanged
        ]  # fmt: skip
        if rows:
            blocks.append(Table(headers, rows, right=headers[1:6]))
            if any(margin is not None for margin in self.calibration.margins):
                sizes = [f"{name} {number(margin)}" for name, margin in self.settings["margins"].items() if margin]
                blocks.append(
                    Text(
                        f"effect found, called equivalent: with a true effect of exactly the margin ({', '.join(sizes)}), "
                        "where `equivalent` is wrong"
                    )
                )
        if lines := self.what_to_do():
            blocks.append(Notes("What to change", lines))
        if self.notes:
            blocks.append(Notes("Notes", list(self.notes)))
        shown = {**self.settings, "metrics": ", ".join(self.settings["metrics"])}
        settings = ", ".join(
            f"{key} {value}" for key, value in shown.items() if key not in ("columns", "reading", "margins")
        )
        blocks.append(Text(f"source: {self.source}"))
        blocks.append(Text(f"settings: {settings}"))
        return blocks


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _with_error(each: Exchanged, share: float | None) -> str:
    if share is None:
        return NOTHING
    return f"{100 * share:.1f} %" if each.every else f"{100 * share:.1f} ± {100 * (each.error(share) or 0.0):.1f} %"


def _relabelled(each: Exchanged) -> str:
    return f"{'all ' if each.every else ''}{each.replicates:,} relabelled experiments"


def answer(results: Results, question: Calibrate) -> CalibrateAnswer:
    """Calibrate the declared analysis of the results. It shows no effect, so it may be asked before the runs are finished."""
    refuse_sequential(results, "calibrate")
    if question.policy is None:
        names = question.metrics or results.primary()
        metrics = [observe_metric(results, name, question) for name in names]
    else:
        from bakeoff.verdicts.questions.gate import observe_rules, with_arms

        names = list(question.policy.metrics)
        metrics, question = observe_rules(results, question), with_arms(question, question.policy)
    question = question.model_copy(update={"unpaired": question.unpaired or results.unpaired})
    copies = _copies(results)
    calibration = calibrate(metrics, question, copies=copies)
    advice = None
    if any(each.state == "exceeds" for each in calibration.exchanged):
        advice = _advice(metrics, question, calibration, copies)
    analysis = metrics[0].analysis
    settings = {
        "metrics": names, "alpha": analysis.alpha, "margins": dict(zip(names, calibration.margins, strict=True)),
        "tasks": metrics[0].population, "seeds": analysis.seeds, "replicates": question.replicates,
        "seed": question.seed, "gate": question.policy is not None, "version": __version__,
    }  # fmt: skip
    return CalibrateAnswer(
        results.label,
        settings,
        calibration,
        analysis.alpha,
        advice,
        [*results.notes, *_notes(metrics, calibration, analysis.alpha)],
    )


def _copies(results: Results) -> Copies:
    """Tasks, and seeds, that are copies of others. Copied seeds are refused before, unless somebody keeps them."""
    seeds = {seed: group[0] for group in copied_seeds(results.rows) for seed in group[1:]}
    tasks = {task: group[0] for group in copied_tasks(results.rows) for task in group[1:]}
    return {"seed": seeds, "task": tasks}


def _change(each: Exchanged, design: Design) -> tuple[str, str | None] | None:
    """The declaration that knows what runs of such a block have in common: a field of the analysis, and its value."""
    if each.copies or each.block == "run":
        return None
    if each.column:
        # Where tasks and seeds are both samples, groups are tested beside them unless somebody says that they do not count.
        return "cluster", None if design.both_sampled else each.column
    return ("tasks", "sample") if each.block == "task" else ("seeds", "crossed")


def _advice(
    metrics: Sequence[Observations], question: Calibrate, calibration: Calibration, copies: Copies
) -> BetterDeclaration | None:
    """The declaration that knows of the blocks which had something in common, and the rate that it has."""
    failed = [each for each in calibration.exchanged if each.state == "exceeds" and each.p_common is not None]
    changes = dict(change for each in failed if (change := _change(each, calibration.design)) is not None)
    try:
        other = calibrate(metrics, question.model_copy(update={"blocks": None}), changes, copies) if changes else None
    except UsageError:
        return None
    if other is None or not other.exchanged:
        return None
    return BetterDeclaration(changes, other.design.population, max(each.false_positives for each in other.exchanged))


def _notes(metrics: Sequence[Observations], calibration: Calibration, alpha: float) -> list[str]:
    notes = []
    for each in calibration.exchanged:
        if each.state in ("holds", "unclear") and each.p_common is not None and each.false_positives > alpha:
            notes.append(
                f"{each.what}: whether runs of one {each.one} have something in common shows in an F test "
                f"(p = {format_p(each.p_common)}); below {IN_COMMON:g} the rate counts"
            )
        if each.state == "too few" and each.p_common is not None and each.p_common < IN_COMMON:
            change = _change(each, calibration.design)
            repair = "" if change is None else f"; {BetterDeclaration(dict([change]), '', 0.0).flags} would know of it"
            notes.append(
                f"runs of one {each.one} have something in common that the test does not know of (F test, p = "
                f"{format_p(each.p_common)}), so its verdict is not to be trusted{repair}"
            )
    missing = sum(row.state == "missing" for each in metrics for row in each.rows)
    if missing:
        notes.append(
            f"{missing} missing runs are left out here; a verdict puts them at both ends of what they could have been"
        )
    if all(each.analysis.margin is None and each.analysis.relative_margin is None for each in metrics):
        notes.append(
            "no margin is declared: --margin adds how often an effect of that size is found, or called equivalent"
        )
    elif calibration.design.binary:
        notes.append("outcomes of 0 and 1 cannot be moved by a margin, so power and `equivalent` are not measured")
    return notes
