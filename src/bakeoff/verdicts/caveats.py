"""What limits the values of a metric, whatever the statistics say: who wrote them, and how much of them is a guess.

Both are facts of how a run was scored, which its workload reports as metrics of the run (`spec/workload.py`):
`self_reported` names the metrics that the thing under test could have written itself, and `NAME_estimated` is the part
of NAME that nobody counted. A verdict on such values stands, with a label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bakeoff.results.table import Row, is_number
from bakeoff.spec.workload import ESTIMATED, is_self_reported
from bakeoff.text import percent

MOST_NAMED = 5
"""Arms that a sentence names."""


@dataclass(frozen=True, slots=True)
class Caution:
    """Something that a reader of one verdict should know. Cautions of one kind differ in their numbers only."""

    kind: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Caveats:
    """By arm, what limits the values of one metric."""

    self_reported: tuple[str, ...] = ()
    """Arms with a run whose work could have written the value itself."""
    estimated: Mapping[str, float] = field(default_factory=dict)
    """The share of the arm's sum that is estimated, for arms that have any."""

    def facts(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self, metric: str) -> list[str]:
        said = []
        if self.self_reported:
            said.append(
                f"{metric} of {_names(self.self_reported)} is self-reported: the work ran where its tests ran, so it could "
                "have written its own score (docs/tasks.md, Isolated and self-reported scores)"
            )
        if self.estimated:
            shares = {f"{arm} {percent(share)}": share for arm, share in self.estimated.items()}
            worst = sorted(shares, key=lambda name: -shares[name])
            said.append(
                f"a part of {metric} is estimated, because the provider's count never arrived: {_names(worst)} "
                "(docs/agents.md, Budgets)"
            )
        return said


def caveats_of(rows: Sequence[Row], metric: str) -> Caveats:
    """What limits a metric of these runs."""
    reported: dict[str, None] = {}
    sums: dict[str, tuple[float, float]] = {}
    part = f"{metric}{ESTIMATED}"
    for row in rows:
        if is_self_reported(row.metrics, metric):
            reported[row.arm] = None
        value, guessed = row.metrics.get(metric), row.metrics.get(part)
        total, estimated = sums.get(row.arm, (0.0, 0.0))
        total += float(value) if is_number(value) else 0.0  # type: ignore[arg-type]
        estimated += float(guessed) if is_number(guessed) else 0.0  # type: ignore[arg-type]
        sums[row.arm] = (total, estimated)
    shares = {arm: min(1.0, guess / total) for arm, (total, guess) in sums.items() if guess > 0 and total > 0}
    return Caveats(tuple(reported), shares)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
