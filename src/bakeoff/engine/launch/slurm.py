"""Slurm: a batch script that starts a Ray cluster inside its allocation and runs the experiment on it.

This is for sites where one job with many nodes is preferred to jobs that come and go (`bakeoff run --executor slurm`).
Results are written to the root, which has to be on a file system that the nodes share, so they are home already.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path

from bakeoff.engine.launch.job import Job, call, require
from bakeoff.errors import BakeoffError

_LOOK_INTERVAL = 2.0
_RAY = """
# Other users of these nodes must not reach this cluster.
export RAY_AUTH_MODE=${{RAY_AUTH_MODE:-token}} RAY_AUTH_TOKEN=${{RAY_AUTH_TOKEN:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')}}
export RAY_USAGE_STATS_ENABLED=0
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(getent ahostsv4 "$head" | awk '{{ print $1; exit }}')
export RAY_ADDRESS=$address:$((20000 + SLURM_JOB_ID % 20000))
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT

srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" ray start --block --head --port="${{RAY_ADDRESS#*:}}" \\
    --node-ip-address="$address" --num-cpus={cpus} --num-gpus={gpus} --include-dashboard=false &
until ray health-check --address "$RAY_ADDRESS" >/dev/null 2>&1; do
    kill -0 $! 2>/dev/null || {{ echo "the head of the Ray cluster did not start" >&2; exit 1; }}
    sleep 1
done
srun --overlap --nodes={others} --ntasks={others} --exclude="$head" ray start --block --address="$RAY_ADDRESS" \\
    --num-cpus={cpus} --num-gpus={gpus} &
python - {nodes} <<'PYTHON' || exit 1
import sys, time
import ray
ray.init(logging_level="ERROR", log_to_driver=False)
deadline = time.monotonic() + 300
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]):
    if time.monotonic() > deadline:
        sys.exit("the nodes of the Ray cluster did not come together within five minutes")
    time.sleep(0.5)
PYTHON
"""


class Slurm:
    """A `Target`."""

    file = "slurm.sh"

    def write(self, job: Job) -> str:
        options = {
            "job-name": job.name,
            "nodes": str(job.nodes),
            "ntasks-per-node": "1",
            "cpus-per-task": str(job.cpus),
            "gres": f"gpu:{job.gpus}" if job.gpus else "",
            "mem": f"{-(-job.memory // 2**20)}M" if job.memory else "",
            "time": _clock(job.seconds) if job.seconds else "",
            "chdir": str(job.base),
            "output": f"{job.place}/slurm-%j.log",
            "signal": "B:TERM@60",
            **job.options,
        }
        lines = ["#!/bin/bash", *(f"#SBATCH --{name}={value}" for name, value in options.items() if value)]
        lines += ["#SBATCH --no-requeue", "set -u", *job.setup]
        script = "\n".join(lines) + "\n"
        if job.nodes > 1:
            script += _RAY.format(cpus=job.cpus, gpus=job.gpus, nodes=job.nodes, others=job.nodes - 1)
        # The run is asked to stop before the allocation ends; what it has recorded is safe, and the next job goes on.
        return script + (
            f"\n{job.command(shlex.quote(str(job.root)))} &\nrun=$!\n"
            "trap 'kill $run' TERM\nwait $run\ncode=$?\n"
            '[ "$code" -le 128 ] || { wait $run; code=$?; }  # the signal ended the first wait, not the run\nexit $code\n'
        )

    def commands(self, job: Job, path: Path) -> list[str]:
        return [f"sbatch --parsable {path}"]

    def start(self, job: Job, path: Path, say: Callable[[str], None], *, detach: bool) -> int:
        require(("sbatch", "scontrol"), "Launch from a login node of the cluster.")
        job.place.mkdir(parents=True, exist_ok=True)  # Slurm does not make it
        number = call("sbatch", "--parsable", str(path)).strip().partition(";")[0]
        log = job.place / f"slurm-{number}.log"
        say(f"job {number} is queued; its log is {log}")
        if detach:
            return 0
        position, state = 0, ""
        try:
            while True:
                facts = call("scontrol", "--oneliner", "show", "job", number)
                now = dict(word.partition("=")[::2] for word in facts.split()).get("JobState", "")
                if now != state:
                    state = now
                    say(f"job {number}: {state.lower()}")
                if log.exists():
                    with log.open(errors="replace") as file:
                        file.seek(position)
                        if text := file.read():
                            say(text.rstrip("\n"))
                        position = file.tell()
                if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED"):
                    break
                time.sleep(_LOOK_INTERVAL)
        except KeyboardInterrupt:
            raise BakeoffError(f"job {number} goes on; `scancel {number}` ends it, and its log is {log}") from None
        return 0 if state == "COMPLETED" else 1


def _clock(seconds: float) -> str:
    """As Slurm writes it: days-hours:minutes:seconds."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
