"""Many arms on many tasks: aggregates with intervals, profiles, pairwise chances, ranks, strengths.

Intervals resample runs inside tasks, so they speak of these tasks only. Ranks and strengths take the task as the unit
(the shared seed, where there is one task). Failures count their failure score; missing runs are left out and listed,
and the arm is flagged: its figures are those of the runs that survived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array, Results
from bakeoff.stats import aggregates
from bakeoff.stats.aggregates import Improvement, Profile
from bakeoff.stats.bootstrap import BootstrapInterval
from bakeoff.stats.ranks import AverageRanks, BradleyTerry, bradley_terry_over, friedman
from bakeoff.text import NOTHING, format_p, number, percent
from bakeoff.verdicts.answer import NOT_ENOUGH_EVIDENCE, Answer, Block, Table, Text, observe_metric
from bakeoff.verdicts.observations import Observations, observe
from bakeoff.verdicts.question import Rank
from bakeoff.verdicts.questions.summarize import Passing, is_binary, passing
from bakeoff.version import __version__

POPULATION = "Intervals resample runs inside tasks: they speak for these tasks only."
PROFILE_POINTS = 101
"""Thresholds of the performance profile."""
FEW_RUNS = 10
PRIOR = 0.5
MAX_PAIRED = 20
"""Arms of which each pair gets a chance to beat the other; of a thousand arms there would be half a million pairs."""
MAX_LISTED = 12
"""Arms that one line names where more of them are alike."""
References = Mapping[str, tuple[float, float]]
"""For each task the scores that count 0 and 1."""


@dataclass(frozen=True, slots=True)
class ArmScore:
    """One arm. Estimates are in the metric's own direction, or normalised."""

    arm: str
    runs: int
    failed: int
    missing: tuple[str, ...]
    mean: BootstrapInterval
    iqm: BootstrapInterval
    optimality_gap: BootstrapInterval | None
    average_rank: float | None
    strength: tuple[float, float, float] | None
    """Bradley-Terry log strength with its interval, which is infinite where some arms never lost to others."""
    profile: Profile

    @property
    def flagged(self) -> bool:
        return bool(self.missing)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Arms, best IQM first; matrices follow this order."""

    metric: str
    normalised: bool
    larger_is_better: bool
    arms: tuple[ArmScore, ...]
    tasks: tuple[str, ...]
    improvement: tuple[tuple[Improvement | None, ...], ...]
    """improvement[i][j]: chance that a run of arm i beats one of arm j on the same task, of the first `MAX_PAIRED` arms."""
    ranks: AverageRanks | None
    groups: tuple[tuple[str, ...], ...]
    """Largest sets of arms that the average ranks do not tell apart."""
    strengths: BradleyTerry | None
    blocks: str
    """What ranks and strengths are taken over: `12 tasks`."""
    warnings: tuple[str, ...]


def rank(observations: Observations, references: References | None = None, question: Rank | None = None) -> Ranking:
    """Every arm of the table on every task. At least two arms. `references` normalise the scores of each task."""
    question = question if question is not None else Rank()
    scores = _Scores(observations, references)
    strata = {arm: scores.strata(arm) for arm in scores.arms}
    values = np.concatenate([part for parts in strata.values() for part in parts])
    low, high = float(values.min()), float(values.max())
    if references is not None:
        low, high = min(low, 0.0), max(high, 1.0)
    thresholds = np.linspace(low, high, PROFILE_POINTS) if high > low else np.array([low])
    how: dict[str, Any] = {"resamples": question.resamples, "level": question.level, "seed": question.seed}
    target = scores.target(question.target)
    summaries = {arm: aggregates.summary(parts, thresholds, target, **how) for arm, parts in strata.items()}
    order = sorted(scores.arms, key=lambda arm: -summaries[arm].iqm.estimate)
    by_arm = [strata[arm] for arm in order]
    blocks, unit = scores.blocks(order)
    ranks = friedman(blocks, 1.0 - question.level) if blocks.shape[0] >= 2 and len(order) >= 3 else None
    strengths, prior = _strengths(blocks, question.level)
    sign = -1.0 if scores.turned else 1.0
    arms = []
    for place, arm in enumerate(order):
        parts, found = strata[arm], summaries[arm]
        columns = None if strengths is None else (strengths.strength, strengths.low, strengths.high)
        score = ArmScore(
            arm=arm,
            runs=sum(part.size for part in parts),
            failed=scores.failed[arm],
            missing=tuple(scores.missing[arm]),
            mean=_turned(found.mean, sign),
            iqm=_turned(found.iqm, sign),
            optimality_gap=found.optimality_gap,
            average_rank=None if ranks is None else ranks.ranks[place],
            strength=None if columns is None else (columns[0][place], columns[1][place], columns[2][place]),
            profile=replace(found.profile, thresholds=tuple(sign * each for each in found.profile.thresholds)),
        )
        arms.append(score)
    sizes = {part.size for parts in by_arm for part in parts}
    return Ranking(
        metric=observations.metric,
        normalised=references is not None,
        larger_is_better=not scores.turned,
        arms=tuple(arms),
        tasks=tuple(scores.tasks),
        improvement=_improvement(by_arm[:MAX_PAIRED], how),
        ranks=ranks,
        groups=_groups(order, ranks),
        strengths=strengths,
        blocks=f"{blocks.shape[0]} {unit}",
        warnings=tuple(_warnings(observations, arms, sizes, ranks, prior)),
    )


class _Scores:
    """Values of every arm on every task, failures scored, normalised where references are given, larger is better."""

    def __init__(self, observations: Observations, references: References | None) -> None:
        self.arms, self.tasks = observations.arms, observations.tasks
        if len(self.arms) < 2:
            raise UsageError(f"there is nothing to rank: {observations.source or 'the table'} has {len(self.arms)} arm")
        self.turned = not observations.larger_is_better and references is None
        self.failed = dict.fromkeys(self.arms, 0)
        self.missing: dict[str, list[str]] = {arm: [] for arm in self.arms}
        self._observations, self._references = observations, references
        self._runs: dict[tuple[str, str], list[tuple[int | None, float]]] = {}
        for row in observations.rows:
            if row.state == "missing":
                self.missing[row.arm].append(row.run_id or row.place)
                continue
            self.failed[row.arm] += row.state == "failed"
            value = self._normalised(row.task, observations.score(row))
            self._runs.setdefault((row.arm, row.task), []).append((row.seed, value))
        for arm in self.arms:
            without = [task for task in self.tasks if (arm, task) not in self._runs]
            if without:
                names = ", ".join(repr(task) for task in without[:3])
                more = f" and {len(without) - 3} more" if len(without) > 3 else ""
                raise UsageError(
                    f"{arm!r} has no value on {names}{more}; every arm needs a run on every task to be ranked with the "
                    "others"
                )

    def _normalised(self, task: str, value: float) -> float:
        if self._references is None:
            return -value if self.turned else value
        if task not in self._references:
            raise UsageError(f"task {task!r} has no reference scores to normalise by")
        low, high = self._references[task]
        if low == high:
            raise UsageError(f"task {task!r}: both reference scores are {number(low)}, so nothing can be normalised")
        if (high > low) != self._observations.larger_is_better:
            word = "larger" if self._observations.larger_is_better else "smaller"
            raise UsageError(
                f"task {task!r}: {word} is better, but the reference that counts 1 ({number(high)}) is worse than {number(low)}"
            )
        return (value - low) / (high - low)

    def strata(self, arm: str) -> list[Array]:
        return [np.array([value for _, value in self._runs[arm, task]]) for task in self.tasks]

    def target(self, asked: float | None) -> float | None:
        """The target asked for, 1 for normalised scores, or the good end of a declared range; None when there is none."""
        if self._references is not None:
            return 1.0 if asked is None else asked
        bounds = self._observations.analysis.bounds
        if asked is None and bounds is not None:
            asked = bounds[0] if self.turned else bounds[1]
        return None if asked is None else (-asked if self.turned else asked)

    def blocks(self, arms: Sequence[str]) -> tuple[Array, str]:
        """(blocks x arms): task means; where there is one task, means of the seeds that all arms share."""
        if len(self.tasks) > 1:
            return np.array([[np.mean([v for _, v in self._runs[a, t]]) for a in arms] for t in self.tasks]), "tasks"
        by_seed: list[dict[int, float]] = []
        for arm in arms:
            values: dict[int, list[float]] = {}
            for seed, value in self._runs[arm, self.tasks[0]]:
                if seed is not None:
                    values.setdefault(seed, []).append(value)
            by_seed.append({seed: float(np.mean(each)) for seed, each in values.items()})
        shared = [seed for seed in by_seed[0] if all(seed in other for other in by_seed[1:])]
        return np.array([[means[seed] for means in by_seed] for seed in shared]).reshape(-1, len(arms)), "seeds"


def _turned(interval: BootstrapInterval, sign: float) -> BootstrapInterval:
    """Back in the metric's own direction."""
    if sign > 0:
        return interval
    return replace(interval, estimate=-interval.estimate, low=-interval.high, high=-interval.low)


def _improvement(by_arm: Sequence[list[Array]], how: Mapping[str, Any]) -> tuple[tuple[Improvement | None, ...], ...]:
    """Upper half computed, lower half its mirror, so that both sides of a pair add up to 1."""
    size = len(by_arm)
    matrix: list[list[Improvement | None]] = [[None] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1, size):
            chance = aggregates.improvement(by_arm[j], by_arm[i], **how)
            matrix[i][j] = chance
            matrix[j][i] = Improvement(
                1.0 - chance.probability, 1.0 - chance.high, 1.0 - chance.low, chance.level
            )  # fmt: skip
    return tuple(tuple(row) for row in matrix)


def _groups(arms: Sequence[str], ranks: AverageRanks | None) -> tuple[tuple[str, ...], ...]:
    """Largest sets of arms whose average ranks differ by less than the critical difference."""
    if ranks is None:
        return ()
    ordered = sorted(range(len(arms)), key=lambda i: ranks.ranks[i])
    groups: list[tuple[int, ...]] = []
    for start in range(len(ordered)):
        near = [i for i in ordered[start:] if ranks.ranks[i] - ranks.ranks[ordered[start]] <= ranks.critical_difference]
        if not groups or not set(near) <= set(groups[-1]):
            groups.append(tuple(near))
    return tuple(tuple(arms[i] for i in group) for group in groups)


def _strengths(blocks: Array, level: float) -> tuple[BradleyTerry | None, bool]:
    """One game of every pair of arms in each block, and whether a prior had to keep strengths finite.

    Strengths with a prior have no intervals: where some arms always win, blocks that are left out change nothing.
    """
    if blocks.shape[0] < 2:
        return None, False
    try:
        return bradley_terry_over(blocks, level=level), False
    except ValueError:
        finite = bradley_terry_over(blocks, PRIOR, level)
        infinite = (math.inf,) * len(finite.strength)
        return replace(finite, low=tuple(-end for end in infinite), high=infinite), True


def _listed(arms: Sequence[str]) -> str:
    if len(arms) <= MAX_LISTED:
        return ", ".join(arms)
    half = MAX_LISTED // 2
    return f"{', '.join(arms[:half])}, ... {len(arms) - 2 * half} more ..., {', '.join(arms[-half:])}"


def _warnings(
    observations: Observations, arms: Sequence[ArmScore], sizes: set[int], ranks: AverageRanks | None, prior: bool
) -> list[str]:
    warnings = [*observations.caveats.sentences(observations.metric), *observations.notes]
    if not observations.final:
        warnings.append("planned runs are still open, so this is not final")
    fewest = min(sizes)
    if sizes == {1}:
        warnings.append(
            "every task has a single run of an arm, which does not show how much its runs differ: intervals are for 0/1 "
            "outcomes only, as if all tasks were equally hard; `bakeoff compare` judges arms with tasks as units"
        )
    elif fewest == 1:
        warnings.append("some task has a single run of an arm: it is taken to vary as other tasks do on average")
    elif fewest < FEW_RUNS:
        warnings.append(
            f"some task has only {fewest} runs of an arm, fewer than {FEW_RUNS}: intervals are widened, because so few do not "
            "show skew"
        )
    flagged = [f"{arm.arm} ({len(arm.missing)})" for arm in arms if arm.flagged]
    if flagged:
        warnings.append(f"runs are missing, so these arms stand on the runs that survived: {', '.join(flagged)}")
    if len(arms) > MAX_PAIRED:
        warnings.append(
            f"chances of one arm to beat another are given for the best {MAX_PAIRED} of {len(arms)} arms; --arms names others"
        )
    if ranks is None:
        two = "average ranks need 3 arms; compare two with `bakeoff compare`"
        warnings.append(two if len(arms) < 3 else "average ranks need 2 tasks or shared seeds")
    if prior:
        warnings.append(
            f"some arms never lost to others, so strengths have no intervals, and were kept finite by {number(PRIOR)} games "
            "won by halves in each pair"
        )
    return warnings


# -- the answer


@dataclass(frozen=True)
class RankAnswer(Answer):
    """The ranking, and pass@k where runs are successes or failures."""

    observations: Observations
    ranking: Ranking
    passes: Sequence[Passing]

    title = "Ranking"
    shows_means = True

    @property
    def exit_code(self) -> int:
        """3 when runs are missing or still open."""
        complete = self.observations.final and not any(arm.flagged for arm in self.ranking.arms)
        return 0 if complete else NOT_ENOUGH_EVIDENCE

    def facts(self) -> dict[str, Any]:
        ranking = self.ranking
        names = [arm.arm for arm in ranking.arms]
        ranks = None
        if ranking.ranks is not None:
            ranks = {**asdict(ranking.ranks), "arms": names, "blocks": ranking.blocks}
        return {
            "version": __version__,
            "source": self.source,
            "settings": self.all_settings,
            "metric": ranking.metric,
            "normalized": ranking.normalised,
            "tasks": list(ranking.tasks),
            "arms": [{**asdict(arm), "flagged": arm.flagged} for arm in ranking.arms],
            "probability_of_improvement": {
                a: {b: asdict(chance) for b, chance in zip(names, row, strict=False) if chance is not None}
                for a, row in zip(names, ranking.improvement, strict=False)
            },
            "average_ranks": ranks,
            "not_told_apart": [list(group) for group in ranking.groups],
            "population": POPULATION,
            "warnings": list(ranking.warnings),
            "pass": [asdict(each) for each in self.passes],
        }

    def blocks(self) -> list[Block]:
        ranking = self.ranking
        better = "larger" if ranking.larger_is_better else "smaller"
        normalised = " (normalised)" if ranking.normalised else ""
        heading = (
            f"{self.source}: {len(ranking.arms)} arms on {len(ranking.tasks)} tasks, by {ranking.metric}{normalised}, "
            f"{better} is better"
        )
        blocks: list[Block] = [Text(heading, strong=True), self.records(), Text(POPULATION), self._chances()]
        if (ranks := ranking.ranks) is not None:
            blocks.append(
                Text(
                    f"Average ranks over {ranking.blocks}: Friedman chi2 = {number(ranks.statistic)}, p = {format_p(ranks.p)}; ranks "
                    f"that differ by less than {number(ranks.critical_difference)} (Nemenyi, {percent(1 - ranks.alpha)}) cannot be "
                    "separated:"
                )
            )
            blocks += [Text(f"  {_listed(group)}") for group in ranking.groups[:MAX_PAIRED]]
            if (more := len(ranking.groups) - MAX_PAIRED) > 0:
                blocks.append(Text(f"  and {more} more sets of arms; --json has them all"))
        if self.passes:
            headers = ["arm", "k", "pass@k (any)", "pass^k (all)", "attempts", "tasks"]
            rows = [
                [each.arm, str(each.k), str(each.at), str(each.all), str(each.attempts), str(each.tasks)]
                for each in self.passes
            ]
            blocks.append(Table(headers, rows, "Successes in k attempts, for tasks like these", headers[1:]))
        blocks += [Text(f"Warning: {warning}.") for warning in ranking.warnings]
        return blocks

    def records(self) -> Table:
        """One line for each arm; columns that no arm has are left out."""
        headers = ["arm", "runs", "failed", "missing", "IQM", "interval", "mean", "optimality gap", "rank", "strength"]
        rows = []
        for arm in self.ranking.arms:
            strength = NOTHING
            if arm.strength is not None:
                estimate, low, high = arm.strength
                strength = f"{estimate:+.2f}" + ("" if math.isinf(low) else f" ({low:+.2f} .. {high:+.2f})")
            rows.append([
                arm.arm, str(arm.runs), str(arm.failed), f"{len(arm.missing)} !" if arm.flagged else "0",
                number(arm.iqm.estimate), _ends(arm.iqm), number(arm.mean.estimate),
                NOTHING if arm.optimality_gap is None else number(arm.optimality_gap.estimate),
                NOTHING if arm.average_rank is None else f"{arm.average_rank:.2f}", strength,
            ])  # fmt: skip
        keep = [i for i in range(len(headers)) if i < 6 or any(row[i] != NOTHING for row in rows)]
        kept = [headers[i] for i in keep]
        return Table(kept, [[row[i] for i in keep] for row in rows], right=headers[1:])

    def _chances(self) -> Table:
        names = [arm.arm for arm in self.ranking.arms[: len(self.ranking.improvement)]]
        rows = []
        for name, row in zip(names, self.ranking.improvement, strict=True):
            cells = [
                NOTHING if chance is None else f"{chance.probability:.2f} ({chance.low:.2f} .. {chance.high:.2f})"
                for chance in row
            ]
            rows.append([name, *cells])
        return Table(["beats", *names], rows, "Chance that a run of the row's arm beats one of the column's")


def _ends(interval: BootstrapInterval) -> str:
    return NOTHING if math.isinf(interval.low) else f"{number(interval.low)} .. {number(interval.high)}"


def answer(results: Results, question: Rank) -> RankAnswer:
    """Every arm, or those that the question names."""
    observations = observe_metric(results, question.metric or results.primary()[0], question)
    if question.arms:
        observations = observations.of(question.arms)
    references = None
    if question.normalize is not None:
        low, high = (_reference_scores(results, name, observations) for name in question.normalize)
        references = {task: (low[task], high[task]) for task in observations.tasks}
    ranking = rank(observations, references, question)
    names = ("level", "resamples", "seed", "target", "success")
    settings = {name: getattr(question, name) for name in names}
    for name in ("failure_score", "direction"):
        settings[name] = getattr(question, name) if name in question.model_fields_set else None
    settings["normalize"] = list(question.normalize) if question.normalize else None
    return RankAnswer(results.label, settings, observations, ranking, _passes(observations, question))


def _reference_scores(results: Results, name: str, observations: Observations) -> dict[str, float]:
    """One number for each task: a number that is given, a parameter, or a metric that the task's runs agree on."""
    try:
        return dict.fromkeys(observations.tasks, float(name))
    except ValueError:
        pass
    values: dict[str, set[float]] = {task: set() for task in observations.tasks}
    for row in results.rows:
        value = row.params.get(name)
        if isinstance(value, int | float) and row.task in values:
            values[row.task].add(float(value))
    if not any(values.values()):
        plain = observations.analysis.model_copy(update={"summary": None})
        for each in observe(results, name, plain).rows:
            if each.state == "scored" and each.task in values:
                values[each.task].add(each.value)
    for task, scores in values.items():
        if len(scores) != 1:
            what = "none" if not scores else f"several: {', '.join(number(value) for value in sorted(scores)[:3])}"
            raise UsageError(f"--normalize {name}: task {task!r} needs one reference score and has {what}")
    return {task: scores.pop() for task, scores in values.items()}


def _passes(observations: Observations, question: Rank) -> list[Passing]:
    if question.success is None and not is_binary(observations):
        if question.ks:
            raise UsageError("pass@k needs successes: say with --success from which value on a run is one")
        return []
    passes = passing(observations, question.ks or None, question.success, question.level)
    for k in question.ks:
        if k not in {each.k for each in passes}:
            raise UsageError(f"pass@{k} needs {k} attempts on every task; no arm has that many")
    return passes
