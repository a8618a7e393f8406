"""The doors that verbs use: an answer goes in, a file comes out. Its ending says PNG, SVG or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.report.write import check, write

if TYPE_CHECKING:
    from bakeoff.verdicts.power import Plan
    from bakeoff.verdicts.rank import Ranking
    from bakeoff.verdicts.sequential import SequentialReport
    from bakeoff.verdicts.variance import Precision


def variance_curves(found: Sequence[Precision], output: Path) -> Path:
    """Relative standard error and detectable difference against the number of units, with bands."""
    from bakeoff.report import planning

    check(output)
    return write(planning.variance(found), output)


def power_curve(found: Plan, output: Path) -> Path:
    """Power against the number of units."""
    from bakeoff.report import planning

    check(output)
    return write(planning.power(found), output)


def performance_profiles(found: Ranking, output: Path) -> Path:
    """Share of runs above each score, for every arm."""
    from bakeoff.report import ranking

    check(output)
    return write(ranking.profiles(found), output)


def e_process(found: SequentialReport, output: Path) -> Path:
    """Evidence pair by pair."""
    from bakeoff.report import evidence

    check(output)
    return write(evidence.e_process(found), output)
