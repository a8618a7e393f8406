"""How often does `compare` decide between two arms that are the same training with random numbers of their own?

100 trials of 8 seeds: one experiment of 1,600 small trainings through the engine, cut into blocks of 8 seeds, each of them
judged as `bakeoff compare` judges an experiment of this workload. At most 10 decisions are the bar: 5 are expected.
"""

from __future__ import annotations

import json
from collections import Counter

from measure import check, machine, options, publish, versions, workspace

import bakeoff
from bakeoff.workloads.language.workload import LanguageWorkload

SEEDS = 8
METHOD = (
    "Two arms with equal parameters, one with own_sampling: 6 updates of 8 x 8 answers on `strings`, width 32, learning rate "
    "1e-3, from one warm start of 300 steps. Each block of 8 seeds is one comparison with the workload's own analysis: accuracy "
    "on held-out prompts at the end of the training."
)
PARAMS = {
    "task": "strings", "width": 32, "warm_steps": 300, "steps": 6, "batch_size": 8, "group_size": 8, "learning_rate": 1e-3,
    "advantage": "dr_grpo", "eval_every": 6, "eval_prompts": 64, "eval_samples": 4, "completions": False,
}  # fmt: skip


def main() -> None:
    given = options(__doc__ or "")
    trials = 5 if given.quick else 100
    with workspace() as directory:
        facts = machine(directory)
        file = directory / "aa.json"
        arms = [{"name": "once"}, {"name": "again", "params": {"own_sampling": True}}]
        file.write_text(
            json.dumps({"name": "aa", "workload": "language", "seeds": SEEDS * trials, "params": PARAMS, "arms": arms})
        )
        experiment = bakeoff.load(file, root=directory / "results")
        experiment.run()
        metric = str(LanguageWorkload.analysis["metric"])
        rows = []
        for run in experiment.table().select("run_id", "arm", "seed").to_dicts():
            last = (
                (experiment.edition.directory / "runs" / run["run_id"] / "metrics.jsonl").read_text().splitlines()[-1]
            )
            rows.append({"arm": run["arm"], "seed": run["seed"], metric: json.loads(last)[metric]})
    verdicts, equal = [], 0
    for trial in range(trials):
        block = [row for row in rows if row["seed"] // SEEDS == trial]
        (verdict,) = bakeoff.compare(block, metric=metric, control="once", bounds=(0.0, 1.0))
        verdicts.append(verdict.verdict)
        equal += len({row[metric] for row in block}) == 1
    counts = Counter(verdicts)
    decided = trials - counts["undecided"]
    lines = [check("language: A/A trials that were decided", f"{decided} of {trials}", "", decided, 0.1 * trials + 0.5, "under", "trials")]  # fmt: skip
    figures = {"verdicts": dict(counts), "trials_without_any_difference": equal, "runs": len(rows)}
    publish("language_aa", given, lines, figures, method=METHOD, facts=facts, programs=versions("torch", "numpy"))


if __name__ == "__main__":
    main()
