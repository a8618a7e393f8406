"""Looking more than once: what earlier looks at an edition leave for a verdict on a plan that has grown since.

The first verdict of a test of fixed size spends alpha and stays on record. After the plan grew, a comparison with one
difference for each seed or task is decided by an e-process over all of them from the first, in order of planning, which
may spend half of alpha over all later looks. Other designs get a quarter of the level at each plan that was seen
before. A unit that was seen and then got more runs cannot be used again. Measured over all looks: docs/sequential.md.

    standing = looks.standing(observations, control, candidate, design)     # before the test
    decision = looks.later(standing, decision, observations, comparisons)   # after it
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bakeoff.records.looks import Kind, Look, read_growths, record_look
from bakeoff.results.table import OPEN, Results
from bakeoff.stats.decision import Decision, Reason, Word
from bakeoff.stats.evidence import LEAST_UNITS
from bakeoff.stats.sequential import LEAST_PLANNED, SequentialRule
from bakeoff.verdicts.design import Design, Place, population_of
from bakeoff.verdicts.eprocess import differences, evidence, has_pairs
from bakeoff.verdicts.observations import Observation, Observations

if TYPE_CHECKING:
    from bakeoff.verdicts.answer import Answer

METHOD = "e-process over all looks"
_ASSUMES = "without an effect a difference is as likely up as down"
_SHARE = 4.0
"""The level of a test of fixed size is divided by this for each smaller plan that was seen. With 2 there are 6.7 to 8.4 %
false verdicts over all looks, with 4 at most 6.2 %."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What earlier looks leave for one comparison."""

    design: Design
    alpha: float
    """The level of a test of fixed size."""
    reason: Reason = ""
    """Why there can be no verdict: `not_final` or `looked`."""
    order: tuple[Any, ...] = ()
    """Seeds or tasks in order of planning, where the e-process decides."""
    bar: float = 2.0
    """e has to reach this times m / alpha."""
    share: float = 1.0
    """What p of a test of fixed size is multiplied with."""


def standing(
    observations: Observations, control: str, candidate: str, design: Design, *, one_sided: bool = False
) -> Standing:
    """What may be said about this comparison, as far as it depends on who has looked before.

    `one_sided` questions about a point other than 0 have no e-process.
    """
    alpha, final = observations.analysis.alpha, observations.analysis.final
    rows = [row for row in observations.rows if row.arm in (control, candidate)]
    if final is not None:
        first = _first_units(design, rows, final)
        return Standing(first, alpha, "" if first.units == final else "not_final")
    seen = max((row.stage for row in observations.rows), default=0)
    if not seen:
        return Standing(design, alpha)
    paired = has_pairs(design) and not one_sided
    unit = _unit(design, paired)
    stages: dict[tuple[str, Any], int] = {}
    for row in rows:
        if stages.setdefault((row.arm, unit(row)), row.stage) != row.stage:
            return Standing(design, alpha, "looked")
    if paired:
        spent = not observations.looks or any(look.kind == "verdict" for look in observations.looks)
        return Standing(design, alpha, order=tuple(dict.fromkeys(map(unit, rows))), bar=4.0 if spent else 2.0)
    return Standing(design, alpha / _SHARE**seen, share=_SHARE**seen)


def _unit(design: Design, paired: bool) -> Callable[[Observation], Any]:
    """What a run belongs to: more runs of the same unit and arm change what was seen, others add to it."""
    if design.unit == "seed" and (paired or design.kind not in ("fixed seeds", "fixed rollouts")):
        return lambda row: row.seed
    if design.unit == "task":
        return lambda row: row.task
    if design.unit == "rollout":
        return lambda row: (row.task, row.seed, row.rollout)
    return lambda row: (row.task, row.seed)


def _first_units(design: Design, rows: Sequence[Observation], final: int) -> Design:
    """The design up to the registered end: later units change nothing. Only where a unit is one seed or one task."""
    if design.units <= final or design.kind not in ("seeds", "seeds over tasks", "tasks"):
        return design
    unit = _unit(design, paired=True)
    kept = set(list(dict.fromkeys(map(unit, rows)))[:final])

    def keep(place: Place) -> bool:
        return place[design.unit == "seed"] in kept

    control, candidate = (
        {place: cell for place, cell in cells.items() if keep(place)} for cells in (design.control, design.candidate)
    )
    tasks = tuple(task for task in design.tasks if design.unit == "seed" or task in kept)
    return replace(
        design,
        control=control,
        candidate=candidate,
        tasks=tasks,
        seeds=tuple(seed for seed in design.seeds if design.unit == "task" or seed in kept),
        missing=sum(cell.missing for cell in (*control.values(), *candidate.values())),
        population=population_of(design.kind, design.unit, tasks, control, candidate, given=design.given),
    )


def later(standing: Standing, decision: Decision, observations: Observations, comparisons: int) -> Decision:
    """The decision as earlier looks allow it. `comparisons` is the size of the family that was asked for."""
    if standing.reason:
        return Decision("undecided", standing.reason, effect=decision.effect, n=decision.n)
    if standing.share > 1.0:
        scaled = {
            name: min(1.0, standing.share * p)
            for name in ("p_adjusted", "p_eq_adjusted")
            if (p := getattr(decision, name)) is not None
        }
        return replace(decision, **scaled)
    if not standing.order or decision.p is None:  # too few units, or copies: there was nothing to test
        return decision
    analysis = observations.analysis
    # Every arm that was ever planned counts, whichever are asked about now.
    metrics = len({analysis.metric, *analysis.primary} - {None}) or 1
    m = max(comparisons, metrics * (len(observations.arms) - 1))
    low, high = differences(standing.design, standing.order)
    n = low.size
    rule = SequentialRule(max(n, LEAST_PLANNED), analysis.alpha * 2.0 / standing.bar, m, analysis.margin)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return Decision("undecided", "missing", effect=decision.effect, n=n)
    words = {rule.look(d) for d in (low, high)}
    paths, interval, highest = evidence(low, high, rule)
    alone = interval if m == 1 else evidence(low, high, replace(rule, comparisons=1))[1]
    word: Word = "undecided"
    if len(words) == 1 and (only := words.pop()) in ("better", "worse", "equivalent"):
        word = only
    reason: Reason = "" if word != "undecided" else "missing" if words else "inconclusive"
    p = min(1.0, standing.bar * math.exp(-highest))
    p_eq = None
    if paths.above is not None and paths.below is not None:
        p_eq = min(1.0, standing.bar / 2.0 * math.exp(-min(float(paths.above[-1]), float(paths.below[-1]))))
    return Decision(
        word,
        reason,
        effect=decision.effect,
        p=p,
        p_adjusted=min(1.0, m * p),
        p_eq=p_eq,
        p_eq_adjusted=None if p_eq is None else min(1.0, m * p_eq),
        interval=alone,
        decision_interval=interval,
        identical=decision.identical,
        method=METHOD,
        assumes=_ASSUMES,
        n=n,
    )


# -- counting this look


def counted(answer: Answer, results: Results, verb: str) -> Answer:
    """The answer, after it was recorded in every edition that it is about; it says what earlier looks changed."""
    grown = max((row.stage for row in results.rows), default=0)
    verdicts = answer.verdicts()
    kind = _kind(results, answer)
    ended = [row for row in results.rows if row.status not in OPEN]
    digest = hashlib.sha256("\n".join(f"{row.run_id} {row.status}" for row in ended).encode()).hexdigest()[:16]
    recorded = True
    for edition in results.editions():
        look = Look(time.time(), verb, kind, edition.end_of_plan(), len(ended), digest, verdicts)
        recorded &= record_look(edition, look)
    if recorded and not grown:
        return answer
    facts: dict[str, Any] = {"recorded": recorded, "sentence": _sentence(results, grown, recorded)}
    if grown:
        facts |= {
            "seen": [
                {
                    "at": look.at,
                    "verb": look.verb,
                    "kind": look.kind,
                    "planned": look.planned,
                    "verdicts": look.verdicts,
                }
                for look in results.looks
            ],
            "growths": [
                {"at": growth.at, "before": growth.before, "after": growth.after}
                for edition in results.editions()
                for growth in read_growths(edition)
            ],
        }
    return replace(answer, settings={**answer.settings, "looks": facts})


def _kind(results: Results, answer: Answer) -> Kind:
    by_arm = Counter(row.arm for row in results.rows if row.status not in OPEN)
    if len(by_arm) < 2 or sorted(by_arm.values())[-2] < LEAST_UNITS:
        return "too few"
    if answer.anytime_valid:
        return "sequential"
    return "verdict" if results.final else "early"


def _sentence(results: Results, grown: int, recorded: bool) -> str:
    parts = []
    if grown:
        before = [look for look in results.looks if look.planned < len(results.rows)]
        first = next((look for look in before if look.kind == "verdict"), None)
        when = ""
        if first is not None:
            stamp = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(first.at))
            said = ", ".join(f"{name} {word}" for name, word in list(first.verdicts.items())[:3])
            when = f" (first verdict {stamp} at {first.planned} of now {len(results.rows)} runs: {said})"
        if results.analysis.final is not None:
            parts.append(
                f"Results were seen before the plan grew{when}; final = {results.analysis.final} was registered, so "
                "only the verdict there counts."
            )
        else:
            parts.append(
                f"Results were seen before the plan grew{when}, so the first verdict stays on record and this one is "
                "corrected for the looks: an e-process over all units from the first, or a lower alpha where there is none."
            )
    if not recorded:
        parts.append("This look could not be recorded: the edition cannot be written.")
    return " ".join(parts)
