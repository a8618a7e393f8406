"""What each ablation changes against its own base arm: exploratory, adjusted over all of them, no verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bakeoff.errors import BakeoffError
from bakeoff.verdicts.answer import is_sequential
from bakeoff.verdicts.compare import Exploratory, explore
from bakeoff.verdicts.observations import Observations
from bakeoff.web.contents import Contents


@dataclass(frozen=True, slots=True)
class Delta:
    """An ablation against its base arm on one metric; `same` when it changes nothing on any run."""

    ablation: str
    base: str
    line: Exploratory
    base_mean: float | None = None
    same: bool = False

    @property
    def share(self) -> float | None:
        """The effect as a share of the base arm's mean."""
        return self.line.effect / abs(self.base_mean) if self.line.effect is not None and self.base_mean else None


@dataclass(frozen=True, slots=True)
class Ablations:
    metric: str
    deltas: Sequence[Delta] = field(default_factory=tuple)


def ablations(contents: Contents) -> list[Ablations]:
    """For each metric that pictures show, every ablation against its base; adjusted over all of them, no verdict."""
    if not contents.base_of or is_sequential(contents.edition):
        return []
    tables = []
    for metric in contents.main:
        try:
            observations = contents.observe(metric)
        except BakeoffError:
            continue
        arms = list(contents.base_of)
        lines = explore([(observations, contents.base_of[arm][0], arm) for arm in arms])
        deltas = [_delta(observations, contents, arm, line) for arm, line in zip(arms, lines, strict=True)]
        tables.append(Ablations(metric, deltas))
    return tables


def _delta(observations: Observations, contents: Contents, arm: str, line: Exploratory) -> Delta:
    base, ablation = contents.base_of[arm]
    values: dict[str, dict[tuple[str, int | None, int], float | None]] = {base: {}, arm: {}}
    for row in observations.rows:
        if row.arm in values:
            values[row.arm][row.task, row.seed, row.rollout] = row.value if row.state == "scored" else None
    known = [value for value in values[base].values() if value is not None]
    mean = sum(known) / len(known) if known else None
    return Delta(ablation, base, line, mean, bool(known) and values[base] == values[arm])
