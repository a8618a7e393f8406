"""A verdict in words: one plain sentence, why this test was used, and numbers that never claim certainty."""

from __future__ import annotations

from bakeoff.stats.decision import Decision, flips_suffice
from bakeoff.stats.evidence import Interval
from bakeoff.verdicts.design import ONE_PAIR_A_UNIT, Design
from bakeoff.verdicts.observations import Observations

_REASONS = {
    "inconclusive": "the data do not separate them",
    "too_few": "at least 3 independent units are needed",
    "seed_has_no_effect": "every arm gives the same value on every seed, and copies are not replicates",
    "missing": "the missing runs could change the verdict either way",
    "not_final": "not final: planned runs are still open",
}


def sentence(
    observations: Observations, control: str, candidate: str, design: Design, decision: Decision, mde: float | None
) -> str:
    """The verdict in one plain sentence."""
    about = f"{candidate} against {control} on {observations.metric}, {design.population}"
    if decision.verdict == "undecided":
        why = _REASONS[decision.reason]
        if decision.reason == "too_few" and decision.n >= 3:
            why = "a task with a single run has no spread; run two seeds or more"
        if decision.reason == "inconclusive" and mde is not None:
            why += f"; {decision.n} units can detect effects of {mde:.3g} or more (80 % power)"
        if decision.reason == "missing":
            why = f"{design.missing} runs are missing, and {why}"
        return f"Undecided: {about}: {why}."
    equivalent = decision.verdict == "equivalent"
    deciding = (decision.equivalence_interval if equivalent else None) or decision.decision_interval
    interval = own_direction(deciding, observations)
    assert interval is not None and decision.effect is not None
    measured = f"{design.sign * decision.effect:+.4g} ({format_interval(interval)})"
    if equivalent:
        analysis = observations.analysis
        size = (
            f"{analysis.margin:g}" if analysis.margin is not None else f"{analysis.relative_margin:.3g} of the control"
        )
        differs = "; the small difference is real" if decision.differs else ""
        return f"Equivalent: {about}: {measured}, within a margin of {size}{differs}."
    assumes = f" ({decision.assumes})" if decision.method == "paired t" else ""
    return f"{decision.verdict.capitalize()}: {about}: {measured}, p = {format_p(decision.p_adjusted)}{assumes}."


def choice_of_test(design: Design, decision: Decision, alpha: float, comparisons: int) -> str:
    """Which test decided and why it was this one; the reason is the design, never the values."""
    if not decision.method:
        return "no test"
    of = f" at alpha {alpha:g}" + (f" over {comparisons} comparisons" if comparisons > 1 else "")
    why = {
        "sign-flip": f"{decision.n} paired units are enough for it{of}",
        "paired t": f"{decision.n} paired units are too few for a sign-flip test{of}",
        "permutation and Welch t": "unpaired arms; the larger p of the two counts",
        "permutation": "unpaired arms without any spread",
        "Welch t": f"unpaired arms with too few splits to permute{of}",
        "McNemar (mid-p)": "outcomes of 0 and 1, one pair for each unit",
        "Fisher (mid-p)": "outcomes of 0 and 1, unpaired",
        "stratified paired t": "these tasks only, seeds nested in tasks",
        "stratified t": "these tasks only, arms unpaired inside each task",
        "crossed t": "tasks and seeds are both samples, every seed on every task",
    }.get(decision.method, "")
    paired = design.kind in ONE_PAIR_A_UNIT
    if decision.method == "sign-flip" and not (paired and flips_suffice(decision.n, alpha, comparisons)):
        why = "there is no spread, so the units are only counted"
    return f"{decision.method}: {why}; {decision.assumes}"


def own_direction(interval: Interval | None, observations: Observations) -> Interval | None:
    """An interval in the metric's own direction: inside the tests larger is better."""
    return interval if interval is None or observations.larger_is_better else interval.negated()


def format_p(p: float | None, floor: float | None = None) -> str:
    """Never 0: a p at the smallest value that this many units can give says so."""
    if p is None:
        return "-"
    text = f"{p:.2g}" if p < 0.001 else f"{p:.3f}"
    return f"{text} (the smallest possible)" if floor is not None and p <= floor * (1 + 1e-9) and p < 1 else text


def format_interval(interval: Interval | None) -> str:
    """`95 % interval 0.1 to 0.3`."""
    if interval is None:
        return "-"
    return f"{format_level(interval.level)} interval {interval.low:.4g} to {interval.high:.4g}"


def format_level(level: float) -> str:
    return f"{100 * level:.4g} %"
