"""Tries that do not count, as people and programs see them: a table by arm, and warnings where they may bend a verdict.

A run that was tried again is one experiment more than a run that was not. If whatever voids a try has to do with what it
would have scored, the arm whose tries are voided more often looks better than it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bakeoff.records.run import Uncounted
from bakeoff.stats.binary import UnpairedBinary
from bakeoff.text import NOTHING, duration, format_p, number
from bakeoff.verdicts.answer import Table

ALPHA = 0.05
TITLE = "Tries that do not count"


def retry_facts(uncounted: Mapping[str, Uncounted]) -> dict[str, Any]:
    """Every arm's tries that do not count, and the warnings, as JSON shows them."""
    return {"arms": {arm: asdict(entry) for arm, entry in uncounted.items()}, "warnings": retry_warnings(uncounted)}


def retry_table(uncounted: Mapping[str, Uncounted]) -> Table | None:
    """One line for each arm; None if every try counts."""
    if not any(entry.affected for entry in uncounted.values()):
        return None
    spent = list(dict.fromkeys(name for entry in uncounted.values() for name in entry.spent))
    headers = ["arm", "runs tried", "runs with such tries", "tries", "why", "time", *spent]
    rows = [
        [
            arm,
            str(entry.runs),
            str(entry.affected),
            str(sum(entry.reasons.values())),
            ", ".join(f"{reason} {tries}" for reason, tries in entry.reasons.items()) or NOTHING,
            duration(entry.seconds),
            *(number(entry.spent.get(name)) for name in spent),
        ]
        for arm, entry in uncounted.items()
    ]
    right = [header for header in headers if header not in ("arm", "why")]
    return Table(headers, rows, f"{TITLE} (what they spent is in the budget)", right)


def retry_warnings(uncounted: Mapping[str, Uncounted]) -> list[str]:
    """Sentences for whoever reads a verdict: failures that were repeated, and arms that differ.

    Arms differ if the shares of runs with tries that do not count do, by Fisher's exact test of the arms with the
    lowest and the highest share, adjusted for the number of pairs (Bonferroni).
    """
    warnings = []
    repeated = {arm: entry for arm, entry in uncounted.items() if entry.after_failure}
    if repeated:
        listed = ", ".join(f"{arm}: {entry.after_failure} of {entry.runs} runs" for arm, entry in repeated.items())
        warnings.append(
            f"failed tries were repeated (retries.failed, --retry-failed), and only the last one counts: {listed}. "
            "This raises the score of an arm that fails often; it is not the same experiment as one try each"
        )
    tried = {arm: entry for arm, entry in uncounted.items() if entry.runs}
    if len(tried) < 2 or not any(entry.affected for entry in tried.values()):
        return warnings
    low = min(tried, key=lambda arm: tried[arm].affected / tried[arm].runs)
    high = max(tried, key=lambda arm: tried[arm].affected / tried[arm].runs)
    a, b = tried[low], tried[high]
    pairs = len(tried) * (len(tried) - 1) // 2
    p = min(1.0, UnpairedBinary(a.affected, a.runs, b.affected, b.runs).p_exact * pairs)
    if low != high and p < ALPHA:
        warnings.append(
            f"arms differ in runs with tries that do not count: {high} {b.affected} of {b.runs}, {low} {a.affected} of "
            f"{a.runs} (Fisher's exact test, p = {format_p(p)}{f' for {pairs} pairs of arms' if pairs > 1 else ''}). If what "
            "voids a try has to do with its result, the verdict is wrong; `bakeoff status` has the reasons"
        )
    return warnings
