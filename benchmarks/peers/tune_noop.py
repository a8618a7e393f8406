"""No-op trials of Ray Tune, four at a time: `tune_noop.py TRIALS DIRECTORY`."""

from __future__ import annotations

import sys

import ray
from ray import tune


def noop(config: dict[str, int]) -> dict[str, float]:
    return {"score": float(config["seed"])}


if __name__ == "__main__":
    trials, directory = int(sys.argv[1]), sys.argv[2]
    ray.init(log_to_driver=False, logging_level="ERROR")
    results = tune.Tuner(
        tune.with_resources(noop, {"cpu": 1}),
        param_space={"seed": tune.grid_search(list(range(trials)))},
        tune_config=tune.TuneConfig(max_concurrent_trials=4),
        run_config=tune.RunConfig(storage_path=directory, verbose=0),
    ).fit()
    assert len(results) == trials and not results.errors
