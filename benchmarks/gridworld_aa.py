"""How often does `compare` decide between two arms that are the same training with random numbers of their own?

100 trials of 8 seeds: one experiment of 1,600 small trainings through the engine, cut into blocks of 8 seeds, each of them
judged as `bakeoff compare` judges an experiment of this workload. At most 10 decisions are the bar: 5 are expected.
"""

from __future__ import annotations

import json
from collections import Counter

from measure import check, machine, options, publish, versions, workspace

import bakeoff
from bakeoff.workloads.gridworld.workload import GridworldWorkload

SEEDS = 8
METHOD = (
    "Two arms with equal parameters, one with own_sampling: vit_reset of width 40 on level_0, 4 updates of 16 environments x "
    "16 steps, 2 epochs. Each block of 8 seeds is one comparison with the workload's own analysis: hearts in 16 held-out rooms "
    "after the last update."
)
PARAMS = {
    "width": 40, "envs": 16, "unroll": 16, "steps": 1024, "epochs": 2, "minibatches": 2, "held_out": 16, "eval_every": 4,
}  # fmt: skip


def main() -> None:
    given = options(__doc__ or "")
    trials = 5 if given.quick else 100
    with workspace() as directory:
        facts = machine(directory)
        file = directory / "aa.json"
        arms = [{"name": "once"}, {"name": "again", "params": {"own_sampling": True}}]
        file.write_text(
            json.dumps({"name": "aa", "workload": "gridworld", "seeds": SEEDS * trials, "params": PARAMS, "arms": arms})
        )
        experiment = bakeoff.load(file, root=directory / "results")
        experiment.run()
        metric = str(GridworldWorkload.analysis["metric"])
        rows, processor_s = [], 0.0
        for run in experiment.table().select("run_id", "arm", "seed", "processor_s").to_dicts():
            path = experiment.edition.directory / "runs" / run["run_id"] / "metrics.jsonl"
            last = json.loads(path.read_text().splitlines()[-1])
            rows.append({"arm": run["arm"], "seed": run["seed"], metric: last[metric]})
            processor_s += run["processor_s"]
    verdicts, equal = [], 0
    for trial in range(trials):
        block = [row for row in rows if row["seed"] // SEEDS == trial]
        (verdict,) = bakeoff.compare(block, metric=metric, control="once")
        verdicts.append(verdict.verdict)
        equal += len({row[metric] for row in block}) == 1
    counts = Counter(verdicts)
    decided = trials - counts["undecided"]
    lines = [check("gridworld: A/A trials that were decided", f"{decided} of {trials}", "", decided, 0.1 * trials + 0.5, "under", "trials")]  # fmt: skip
    figures = {
        "verdicts": dict(counts),
        "trials_without_any_difference": equal,
        "runs": len(rows),
        "training_processor_s": processor_s,
    }
    publish("gridworld_aa", given, lines, figures, method=METHOD, facts=facts, programs=versions("torch", "numba"))


if __name__ == "__main__":
    main()
