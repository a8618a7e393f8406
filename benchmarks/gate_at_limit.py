"""How often does `gate` pass at exactly the allowed regression? `python benchmarks/gate_at_limit.py [--quick]`.

Differences are skewed to losses, which is the bad case: most units lose a little less than is allowed, a few lose much
more. The printed shares should be at most 9, 9, 8 and 7 % at 8, 10, 15 and 30 units. The last column has three arms at
the limit, each with its own rule: how often some line passes, and how often the whole gate does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.questions.gate import check, overall, policy

REPLICATES, QUICK = 3_000, 200
LIMIT = 1.0
LAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "exponential": lambda rng, size: 1.0 - rng.exponential(size=size),
    "lognormal, sigma 0.5": lambda rng, size: np.exp(0.125) - np.exp(0.5 * rng.standard_normal(size)),
    "normal": lambda rng, size: rng.standard_normal(size),
}


def passed(rng: np.random.Generator, law: str, units: int, arms: int) -> tuple[bool, bool]:
    """Whether some line, and whether the whole gate, passes when every arm is worse by exactly the limit."""
    differences = LAWS[law](rng, (arms, units)) - LIMIT
    control = rng.standard_normal(units)
    rows = [Observation("control", "task", seed, 0, "scored", value) for seed, value in enumerate(control)]
    for arm, values in enumerate(control + differences):
        rows += [Observation(f"arm {arm}", "task", seed, 0, "scored", value) for seed, value in enumerate(values)]
    checks = check(
        [Observations("score", rows, Analysis(control="control"))],
        policy({"metrics": {"score": {"max_regression": LIMIT}}}),
    )
    return any(each.outcome == "pass" for each in checks), overall(checks) == "pass"


def main() -> None:
    replicates = QUICK if "--quick" in sys.argv else REPLICATES
    print("| differences | units | one arm passes | three arms: some line passes | the gate passes |")
    print("|---|---|---|---|---|")
    for law in LAWS:
        for units in (5, 8, 10, 15, 30):
            rng = np.random.default_rng([units, len(law)])
            one = np.mean([passed(rng, law, units, 1) for _ in range(replicates)], axis=0)
            three = np.mean([passed(rng, law, units, 3) for _ in range(replicates // 3)], axis=0)
            print(f"| {law} | {units} | {one[0]:.1%} | {three[0]:.1%} | {three[1]:.1%} |", flush=True)


if __name__ == "__main__":
    main()
