"""An edition read once: what every part of the report looks at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bakeoff.records.edition import Edition
from bakeoff.records.overview import Tally
from bakeoff.records.run import CellRecord, RunRecord
from bakeoff.results.editions import edition_results
from bakeoff.results.table import Results
from bakeoff.spec.experiment import Analysis, Experiment
from bakeoff.verdicts.observations import Observations, observe

BASELINE = ("", "baseline")
"""What the base arm's own ablation is called."""


@dataclass(frozen=True)
class Contents:
    edition: Edition
    label: str
    """Experiment and edition, as a reader would type it."""

    @cached_property
    def facts(self) -> dict[str, Any]:
        return self.edition.facts()

    @cached_property
    def results(self) -> Results:
        return edition_results(self.edition)

    @cached_property
    def experiment(self) -> Experiment:
        return Experiment.model_validate(self.facts["spec"])

    @property
    def analysis(self) -> Analysis:
        return self.experiment.analysis

    @cached_property
    def cells(self) -> dict[int, CellRecord]:
        return {cell.number: cell for cell in self.edition.cells()}

    @cached_property
    def runs(self) -> list[RunRecord]:
        return list(self.edition.runs())

    @cached_property
    def tally(self) -> Tally:
        return Tally.of(self.edition.counts())

    @cached_property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(cell.arm for cell in self.cells.values()))

    @cached_property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(cell.task for cell in self.cells.values()))

    @cached_property
    def base_of(self) -> dict[str, tuple[str, str]]:
        """(base arm, ablation) of every arm that is an ablation of another one which was run too."""
        return {
            cell.arm: (cell.base, cell.ablation)
            for cell in self.cells.values()
            if cell.ablation not in BASELINE and cell.base in self.arms and cell.base != cell.arm
        }

    @property
    def base_arms(self) -> list[str]:
        return [arm for arm in self.arms if arm not in self.base_of]

    def colour(self, arm: str) -> int:
        """An arm has one colour in all pictures; an ablation has its base's."""
        return self.base_arms.index(self.base_of[arm][0] if arm in self.base_of else arm)

    @cached_property
    def metrics(self) -> list[str]:
        """Every number that a run reported: declared ones first, then by first appearance."""
        found: dict[str, None] = {}
        for run in self.runs:
            found |= dict.fromkeys(name for name, value in run.metrics.items() if is_number(value))
        return sorted(found, key=lambda name: name not in self.declared)

    @cached_property
    def declared(self) -> list[str]:
        analysis = self.analysis
        return [] if analysis.metric is None else list(dict.fromkeys((analysis.metric, *analysis.primary)))

    @cached_property
    def main(self) -> list[str]:
        """Metrics that pictures show: those declared, or the first two that were reported."""
        return self.declared or self.metrics[:2]

    def observe(self, metric: str) -> Observations:
        """A metric that the analysis does not declare has no range, score or summary from it."""
        if metric in self.declared or not self.declared:
            return observe(self.results, metric)
        plain = {"bounds": None, "failure_score": None, "margin": None, "relative_margin": None, "summary": None}
        return observe(self.results, metric, self.analysis.model_copy(update=plain))

    @property
    def control(self) -> str:
        return self.analysis.control or self.arms[0]

    @cached_property
    def cost_metric(self) -> str | None:
        """What the budget counts, or a metric with cost in its name; one that is zero everywhere tells nothing."""
        budget = self.experiment.budget.cost_metric
        named = [name for name in self.metrics if "cost" in name.lower()]
        found = [name for name in (budget, *named) if name in self.metrics and name not in self.main]
        return next((name for name in found if any(run.metrics.get(name) for run in self.runs)), None)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
