"""Measure when pairing by seed pays: how much of a difference's variance do shared seeds remove?

    python benchmarks/gridworld_pairing.py            about 15 minutes on two cores; the same command resumes
    python benchmarks/gridworld_pairing.py --quick    three seeds and short runs, to see that it works

Arms with equal seeds always meet the same rooms. They can share more: initial weights where parameters have the same name
and shape, and the random numbers that choose actions. Results stay in build/gridworld-pairing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from measure import BAKEOFF, REPOSITORY, check, environment, machine, options, publish, say, versions

import bakeoff

ARMS: dict[str, dict[str, Any]] = {
    "vit_reset": {},
    "trxl": {"policy": "trxl"},
    "trxl, own start and actions": {"policy": "trxl", "shared_start": False, "own_sampling": True},
    "vit_reset, half rate": {"learning_rate": 1e-3},
    "vit_reset, own actions": {"own_sampling": True},
}
QUESTIONS = {
    "two networks, shared rooms only": ("vit_reset", "trxl, own start and actions"),
    "two networks, shared rooms and initial weights where shapes allow": ("vit_reset", "trxl"),
    "one network, two learning rates": ("vit_reset", "vit_reset, half rate"),
    "one network, the same twice with its own actions": ("vit_reset", "vit_reset, own actions"),
}
METRICS = ("heldout_hearts", "train_hearts")
METHOD = (
    "level_0, 131,072 steps, 15 seeds. Variance saved is 1 - var(d) / (var(a) + var(b)) of the arms' last values, as "
    "`bakeoff compare` prints it; with equal spreads it is the correlation."
)


def main() -> None:
    given = options(__doc__ or "")
    place = REPOSITORY / "build" / ("gridworld-pairing-quick" if given.quick else "gridworld-pairing")
    place.mkdir(parents=True, exist_ok=True)
    file = place / "pairing.json"
    content = {
        "name": "pairing",
        "workload": "gridworld",
        "seeds": 3 if given.quick else 15,
        "params": {"level": "level_0", "steps": 16_384 if given.quick else 131_072},
        "arms": [{"name": name, "params": params} for name, params in ARMS.items()],
    }
    file.write_text(json.dumps(content, indent=1))
    command = [*BAKEOFF, "run", str(file), "--root", str(place / "runs"), "--allow-code-change"]
    subprocess.run(command, env=environment(), stdout=sys.stderr, check=True)
    measured: dict[str, Any] = {}
    for question, (control, candidate) in QUESTIONS.items():
        for metric in METRICS:
            (verdict,) = bakeoff.compare(
                file.stem,
                root=place / "runs",
                control=control,
                arms=[candidate],
                metric=[metric],
                summary="final",
                last=1,
            )
            measured.setdefault(question, {})[metric] = {
                "correlation": verdict.sizes.correlation,
                "variance_saved": verdict.sizes.variance_reduction,
                "effect": verdict.effect,
                "verdict": verdict.verdict,
                "values": {
                    arm: sorted(round(float(cell.values[0]), 4) for cell in cells.values())
                    for arm, cells in ((control, verdict.design.control), (candidate, verdict.design.candidate))
                },
            }
            say(
                f"{question:66s} {metric:16s} r = {verdict.sizes.correlation:+.2f}, variance saved {verdict.sizes.variance_reduction:+.2f}, "
                f"effect {verdict.effect:+.3f} {verdict.verdict}"
            )
    same = measured["one network, two learning rates"]["heldout_hearts"]["variance_saved"]
    lines = [
        check("gridworld: variance saved by pairing two learning rates of one network", f"{same:.2f}", "", same, 0.0)
    ]
    publish(
        "gridworld_pairing",
        given,
        lines,
        measured,
        method=METHOD,
        facts=machine(place),
        programs=versions("torch", "numba"),
    )


if __name__ == "__main__":
    main()
