"""How often does `compare` decide between two arms that are the same training with random numbers of their own?

    training_aa.py gridworld
    training_aa.py language

100 trials of 8 seeds: one experiment of 1,600 small trainings through the engine, cut into blocks of 8 seeds, each of them
judged as `bakeoff compare` judges an experiment of this workload. At most 10 decisions are the bar: 5 are expected.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

from measure import check, machine, options, publish, versions, workspace

import bakeoff

SEEDS = 8


@dataclass(frozen=True, slots=True)
class Trial:
    """A training that is cheap enough for 1,600 of them."""

    method: str
    metric: str
    params: dict[str, Any]
    bounds: tuple[float, float] | None = None


TRIALS = {
    "gridworld": Trial(
        "vit_reset of width 40 on level_0, 4 updates of 16 environments x 16 steps, 2 epochs; hearts in 16 held-out rooms",
        "heldout_hearts",
        {
            "width": 40, "envs": 16, "unroll": 16, "steps": 1024, "epochs": 2, "minibatches": 2, "held_out": 16,
            "eval_every": 4,
        },
    ),
    "language": Trial(
        "6 updates of 8 x 8 answers on `strings`, width 32, learning rate 1e-3, from one warm start of 300 steps; accuracy on "
        "held-out prompts",
        "heldout_accuracy",
        {
            "task": "strings", "width": 32, "warm_steps": 300, "steps": 6, "batch_size": 8, "group_size": 8,
            "learning_rate": 1e-3, "advantage": "dr_grpo", "eval_every": 6, "eval_prompts": 64, "eval_samples": 4,
            "completions": False,
        },
        (0.0, 1.0),
    ),
}  # fmt: skip


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in TRIALS:
        raise SystemExit(f"usage: training_aa.py {'|'.join(TRIALS)} [options]")
    workload = sys.argv.pop(1)
    trial = TRIALS[workload]
    given = options(__doc__ or "")
    trials = 5 if given.quick else 100
    arms = [{"name": "once"}, {"name": "again", "params": {"own_sampling": True}}]
    content = {"name": "aa", "workload": workload, "seeds": SEEDS * trials, "params": trial.params, "arms": arms}
    with workspace() as directory:
        facts = machine(directory)
        file = directory / "aa.json"
        file.write_text(json.dumps(content))
        experiment = bakeoff.load(file, root=directory / "results")
        experiment.run()
        rows, processor_s = [], 0.0
        for run in experiment.table().select("run_id", "arm", "seed", "processor_s").to_dicts():
            path = experiment.edition.directory / "runs" / run["run_id"] / "metrics.jsonl"
            last = json.loads(path.read_text().splitlines()[-1])
            rows.append({"arm": run["arm"], "seed": run["seed"], trial.metric: last[trial.metric]})
            processor_s += run["processor_s"]
    verdicts, equal = [], 0
    for number in range(trials):
        block = [row for row in rows if row["seed"] // SEEDS == number]
        (verdict,) = bakeoff.compare(block, metric=trial.metric, control="once", bounds=trial.bounds)
        verdicts.append(verdict.verdict)
        equal += len({row[trial.metric] for row in block}) == 1
    counts = Counter(verdicts)
    decided = trials - counts["undecided"]
    lines = [check(f"{workload}: A/A trials that were decided", f"{decided} of {trials}", "", decided, 0.1 * trials + 0.5, "under", "trials")]  # fmt: skip
    figures = {
        "verdicts": dict(counts),
        "trials_without_any_difference": equal,
        "runs": len(rows),
        "training_processor_s": processor_s,
    }
    method = (
        f"Two arms with equal parameters, one with own_sampling: {trial.method}, after the last update. Each block of "
        f"{SEEDS} seeds is one comparison with the workload's own analysis."
    )
    publish(f"{workload}_aa", given, lines, figures, method=method, facts=facts, programs=versions("torch", "numpy"))


if __name__ == "__main__":
    main()
