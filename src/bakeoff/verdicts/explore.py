"""Metrics that nobody declared: effects to look into, adjusted over all that were looked at. They get no verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bakeoff.errors import UsageError
from bakeoff.stats.decision import benjamini_hochberg, decide
from bakeoff.stats.evidence import Interval
from bakeoff.verdicts import describe
from bakeoff.verdicts.compare import Options, ask, choose_arms
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.wording import own


@dataclass(frozen=True, slots=True)
class Exploratory:
    """One arm against the control on one such metric, B - A."""

    metric: str
    control: str
    candidate: str
    effect: float | None = None
    interval: Interval | None = None
    p: float | None = None
    p_adjusted: float | None = None
    """Benjamini-Hochberg over every exploratory comparison."""
    note: str = ""


def explore(metrics: Sequence[Observations], options: Options | None = None) -> list[Exploratory]:
    """Every candidate on every metric given."""
    options = options or Options()
    found: list[Exploratory] = []
    for seen in metrics:
        control, candidates = choose_arms(seen, options)
        found += [_explored(seen, control, candidate, options) for candidate in candidates]
    known = [one.p for one in found if one.p is not None]
    adjusted = iter(benjamini_hochberg(known) if known else ())
    return [one if one.p is None else replace(one, p_adjusted=next(adjusted)) for one in found]


def _explored(seen: Observations, control: str, candidate: str, options: Options) -> Exploratory:
    """A metric that cannot be compared says why in its line; it must not stop the others."""
    analysis = seen.analysis.model_copy(update={"margin": None, "relative_margin": None, "bounds": None})
    seen = replace(seen, analysis=analysis)
    try:
        question = ask(seen, control, candidate, options, 1)
    except UsageError as error:
        return Exploratory(seen.metric, control, candidate, note=str(error))
    effect = describe.describe(question.design).effect
    if not seen.final:
        return Exploratory(seen.metric, control, candidate, effect, note="not final")
    (decision,) = decide([question.test], analysis.alpha)
    reason = decision.reason.replace("_", " ") if decision.p is None else ""
    interval = own(decision.interval, seen)
    return Exploratory(seen.metric, control, candidate, effect, interval, decision.p, None, reason)
