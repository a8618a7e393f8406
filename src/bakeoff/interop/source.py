"""What every source of runs can do, and the source made of runs that logged numbers and series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Analysis, Summary
from bakeoff.verdicts import runlogs
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.runlogs import RunLog

TRAINED = Analysis(seeds="crossed")
"""How runs from elsewhere are judged: one seed is one trained policy, whatever it is scored on."""
USUAL = (("mean_reward", "correct_rate"), ("overview/reward",))
"""Metrics that training runs are compared on when nobody names any: those of a campaign, or of a benchmark."""
SHORTER = 0.9
"""Runs that end before this share of the longest one are worth a word."""


class Source(Protocol):
    """Runs of several arms, and how they are to be judged."""

    @property
    def label(self) -> str:
        """Where they come from, for people."""

    @property
    def analysis(self) -> Analysis:
        """What is declared there; flags change it."""

    @property
    def unpaired(self) -> bool:
        """Whether the runs were given as two samples that share nothing."""

    def declared(self) -> list[str]:
        """The metrics that get a verdict when none is named; an error says which there are."""

    def metrics(self) -> list[str]:
        """Every metric that there is."""

    def observe(self, metric: str, analysis: Analysis) -> Observations:
        """One metric of every run."""

    def close(self) -> None:
        """Let go of what is open."""


@dataclass(frozen=True)
class Runs:
    """Runs that logged numbers and series, each on its own. A series is reduced; its area when nothing is said."""

    logs: Sequence[RunLog]
    label: str
    analysis: Analysis = TRAINED
    unpaired: bool = False
    notes: tuple[str, ...] = ()

    def close(self) -> None:
        """Nothing is held open."""

    def metrics(self) -> list[str]:
        return runlogs.known_metrics(self.logs)

    def declared(self) -> list[str]:
        known = self.metrics()
        for names in USUAL:
            if set(names) <= set(known):
                return list(names)
        if len(known) == 1:
            return known
        raise UsageError(f"which metric? name it with --metric; runs report {', '.join(known[:20])}")

    def observe(self, metric: str, analysis: Analysis) -> Observations:
        if metric not in self.metrics():
            raise UsageError(f"{self.label}: no run reports {metric!r}; runs report {', '.join(self.metrics()[:20])}")
        numbers = any(metric in log.numbers for log in self.logs)
        if analysis.summary is None and not numbers:
            analysis = analysis.model_copy(update={"summary": Summary(type="auc")})
        if analysis.summary is not None and not runlogs.has_series(self.logs, metric):
            raise UsageError(
                f"{metric!r} is one number of each run, so there is no series to summarise; leave --summary out"
            )
        seen = runlogs.observe(self.logs, metric, analysis)
        ended = all(log.status not in ("planned", "running") for log in self.logs)
        return replace(
            seen, source=self.label, final=ended, notes=(*self.notes, *_lengths(self.logs, metric, analysis))
        )


def _lengths(logs: Sequence[RunLog], metric: str, analysis: Analysis) -> list[str]:
    """A run that ended early is averaged over the part that it survived; that is worth a word."""
    ends = [float(np.max(log.series[metric][0])) for log in logs if metric in log.series]
    if analysis.summary is None or not ends or min(ends) >= SHORTER * max(ends):
        return []
    return [
        f"runs end at unequal steps ({min(ends):g} to {max(ends):g}), so {metric} covers different stretches; "
        "--window '0..N' compares the same steps"
    ]


def numbered(logs: Sequence[RunLog]) -> list[RunLog]:
    """Runs that know no seed are told apart as rollouts of their arm and task."""
    counts: dict[tuple[str, str], int] = {}
    out = []
    for log in logs:
        key = (log.arm, log.task)
        if log.seed is None:
            log = replace(log, rollout=counts.get(key, 0))
            counts[key] = log.rollout + 1
        out.append(log)
    for arm in dict.fromkeys(log.arm for log in out):
        known = [log for log in out if log.arm == arm]
        unknown = [log for log in known if log.seed is None]
        if unknown and len(unknown) < len(known):
            raise UsageError(
                f"{unknown[0].name}: its seed is not known, while others of {arm!r} have one; name it like NAME_s3, "
                "or write `seed` into its metrics.jsonl"
            )
    return out
