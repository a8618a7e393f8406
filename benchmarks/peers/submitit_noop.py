"""No-op functions through submitit, four at a time: `submitit_noop.py JOBS DIRECTORY`."""

from __future__ import annotations

import sys

import submitit


def noop(seed: int) -> float:
    return float(seed)


if __name__ == "__main__":
    jobs, directory = int(sys.argv[1]), sys.argv[2]
    executor = submitit.AutoExecutor(folder=directory, cluster="slurm")
    executor.update_parameters(timeout_min=10, slurm_array_parallelism=4, cpus_per_task=1)
    submitted = executor.map_array(noop, range(jobs))
    assert [job.result() for job in submitted] == [float(seed) for seed in range(jobs)]
