"""Looking more than once: what earlier looks at an edition leave for a verdict on a plan that has grown since.

The first verdict of a test of fixed size spends alpha and stays on record. After the plan grew, a comparison with one
difference for each seed or task is decided by an e-process over all of them from the first, in order of planning, which
may spend half of alpha over all later looks. Other designs get a quarter of the level at each plan that was seen
before. A unit that was seen and then got more runs cannot be used again. Measured over all looks: docs/sequential.md.

    standing = looks.standing(observations, control, candidate, design)     # before the test
    decision = looks.later(standing, decision, observations, comparisons)   # after it, where the e-process decides

An analysis that is changed after a look gets a quarter of the level for each change, too.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bakeoff.records.looks import SET_ASIDE, Growth, Kind, Look, read_growths, record_look
from bakeoff.results.table import UNFINISHED, Results
from bakeoff.stats.decision import Decision, Reason, Word
from bakeoff.stats.evidence import LEAST_UNITS
from bakeoff.stats.sequential import LEAST_PLANNED, SequentialRule, evidence
from bakeoff.verdicts.designs import Design
from bakeoff.verdicts.observations import Observations

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
    """The level of a test of fixed size: the declared one divided by `share`."""
    reason: Reason = ""
    """Why there can be no verdict: `not_final` or `looked`."""
    order: tuple[Any, ...] = ()
    """Seeds or tasks in order of planning, where the e-process decides."""
    bar: float = 2.0
    """e has to reach this times m / alpha."""
    share: float = 1.0
    """What p is multiplied with, for smaller plans that were seen and for changes of the analysis."""


def standing(
    observations: Observations,
    control: str,
    candidate: str,
    design: Design,
    *,
    one_sided: bool = False,
    changes: int = 0,
) -> Standing:
    """What may be said about this comparison, as far as it depends on who has looked before.

    `one_sided` questions about a point other than 0 have no e-process. `changes` counts how often the analysis was
    changed after results were shown; results of a node that were set aside count as a change, too. The level depends on
    these alone, and not on the other comparisons.
    """
    changes += sum(look.verb == SET_ASIDE for look in observations.looks)
    share, final = _SHARE**changes, observations.analysis.final
    alpha = observations.analysis.alpha / share
    seen = observations.stages
    if final is None and not seen:
        return Standing(design, alpha, share=share)
    rows = [row for row in observations.rows if row.arm in (control, candidate)]
    if final is not None:
        first = design
        if design.one_pair_a_unit and design.units > final:
            # Units after the registered end change nothing.
            first = design.first_units(set(list(dict.fromkeys(design.unit_of(row, True) for row in rows))[:final]))
        return Standing(first, alpha, "" if first.units == final else "not_final", share=share)
    paired = design.has_pairs and not one_sided
    stages: dict[tuple[str, Any], int] = {}
    for row in rows:
        if stages.setdefault((row.arm, design.unit_of(row, paired)), row.stage) != row.stage:
            return Standing(design, alpha, "looked")
    if paired:
        # Before every planned run had ended nobody could have had a verdict, so alpha is still whole.
        spent = not observations.looks or any(look.kind in ("means", "verdict") for look in observations.looks)
        there = set(design.pair_names)  # --intersect sets others aside
        order = tuple(place for place in dict.fromkeys(design.unit_of(row, True) for row in rows) if place in there)
        return Standing(design, alpha, order=order, bar=4.0 if spent else 2.0, share=share)
    share *= _SHARE**seen
    return Standing(design, observations.analysis.alpha / share, share=share)


def later(standing: Standing, decision: Decision, observations: Observations, comparisons: int) -> Decision:
    """The decision as earlier looks allow it. `comparisons` is the size of the family."""
    if standing.reason:
        return Decision("undecided", standing.reason, effect=decision.effect, n=decision.n)
    if not standing.order or decision.p is None:  # too few units, or copies: there was nothing to test
        return decision
    analysis = observations.analysis
    m, bar = comparisons, standing.bar * standing.share
    low, high = standing.design.differences_in_order(standing.order)
    n = low.size
    rule = SequentialRule(max(n, LEAST_PLANNED), analysis.alpha * 2.0 / bar, m, analysis.margin)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return Decision("undecided", "missing", effect=decision.effect, n=n)
    words = {rule.look(d) for d in (low, high)}
    paths, interval, highest = evidence(low, high, rule)
    alone = interval if m == 1 else evidence(low, high, replace(rule, comparisons=1))[1]
    word: Word = "undecided"
    if len(words) == 1 and (only := words.pop()) in ("better", "worse", "equivalent"):
        word = only
    reason: Reason = "" if word != "undecided" else "missing" if words else "inconclusive"
    p = min(1.0, bar * math.exp(-highest))
    p_eq = None
    if paths.above is not None and paths.below is not None:
        p_eq = min(1.0, bar / 2.0 * math.exp(-min(float(paths.above[-1]), float(paths.below[-1]))))
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


@dataclass(frozen=True, slots=True)
class Looked:
    """The remark about earlier looks at a plan that has grown since, and about a look that could not be recorded."""

    recorded: bool
    grown: bool
    looks: Sequence[Look]
    growths: Sequence[Growth]
    runs: int
    """In the plan now."""
    final: int | None
    """Units at which the verdict was registered to be given."""

    @property
    def sentence(self) -> str:
        parts = []
        if self.grown:
            first = next((look for look in self.looks if look.planned < self.runs and look.kind == "verdict"), None)
            when = ""
            if first is not None:
                stamp = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(first.at))
                said = ", ".join(f"{name} {word}" for name, word in list(first.verdicts.items())[:3])
                when = f" (first verdict {stamp} at {first.planned} of now {self.runs} runs: {said})"
            if self.final is not None:
                parts.append(
                    f"Results were seen before the plan grew{when}; final = {self.final} was registered, so only the "
                    "verdict there counts."
                )
            else:
                parts.append(
                    f"Results were seen before the plan grew{when}, so the first verdict stays on record and this one is "
                    "corrected for the looks: an e-process over all units from the first, or a lower alpha where there is "
                    "none."
                )
        if not self.recorded:
            parts.append("This look could not be recorded: the edition cannot be written.")
        return " ".join(parts)

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        if not self.grown:
            return {"recorded": self.recorded}
        names = ("at", "verb", "kind", "planned", "verdicts")
        return {
            "recorded": self.recorded,
            "seen": [{name: getattr(look, name) for name in names} for look in self.looks],
            "growths": [{"at": each.at, "before": each.before, "after": each.after} for each in self.growths],
        }


def counted(answer: Answer, results: Results, verb: str) -> Answer:
    """The answer, after it was recorded in every edition that it is about; it says what earlier looks changed.

    Means alone are recorded once for each plan, whatever has ended since.
    """
    grown = max((row.stage for row in results.rows), default=0)
    verdicts = answer.verdicts()
    ended = [row for row in results.rows if row.status not in UNFINISHED]
    runs_of_arms = sorted(Counter(row.arm for row in ended).values())
    kind: Kind = "early" if not results.final else "verdict" if verdicts else "means"
    if len(runs_of_arms) < 2 or runs_of_arms[-2] < LEAST_UNITS:
        kind = "too few"
    elif verdicts and answer.anytime_valid:
        kind = "sequential"
    digest = hashlib.sha256("\n".join(f"{row.run_id} {row.status}" for row in ended).encode()).hexdigest()[:16]
    counts = (len(ended), digest) if verdicts else (0, "")
    recorded = True
    for edition in results.editions():
        look = Look(time.time(), verb, kind, edition.end_of_plan(), *counts, verdicts, answer.asked())
        recorded &= record_look(edition, look)
    if not verdicts or (recorded and not grown):
        return answer
    growths = [growth for edition in results.editions() for growth in read_growths(edition)] if grown else []
    return answer.remarked(
        looks=Looked(recorded, grown > 0, results.looks, growths, len(results.rows), results.analysis.final)
    )
