"""SkyPilot: a task on a cluster of its own, in any cloud that `sky check` knows.

`sky launch` sends the experiment's directory, streams the log and returns when the task has ended. Results are copied
home with rsync, to which SkyPilot gives the cluster's name as a host; then the cluster is taken down. A cluster whose
results did not come home stays, and the same command goes on with it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bakeoff.engine.launch.job import Job, as_yaml, install_line, require, set_options
from bakeoff.errors import BakeoffError

_RESULTS = "bakeoff-runs"
"""Below the home directory of the cluster's first node."""
_KEYS = ("name", "num_nodes", "resources", "file_mounts", "envs", "config", "setup", "run", "workdir", "volumes")
_RAY = """~/sky_templates/ray/start_cluster
if [ "$SKYPILOT_NODE_RANK" != 0 ]; then exit 0; fi
export RAY_ADDRESS=$(echo "$SKYPILOT_NODE_IPS" | head -n1):6379
code=0
{command} || code=$?
~/sky_templates/ray/stop_cluster
exit $code
"""
"""SkyPilot has a Ray of its own on each node, which its scripts leave alone."""


ANY_GPU = ("L4", "A10G", "L40S", "A100", "A100-80GB", "H100")
"""Accelerators of which SkyPilot takes the cheapest that it finds, for `--gpus N` without a kind
(https://docs.skypilot.co/en/latest/reference/yaml-spec.html, `resources.accelerators` as a table)."""


class Sky:
    """A `Target`."""

    file = "sky.yaml"

    def write(self, job: Job) -> str:
        command = job.command(f"~/{_RESULTS}")
        resources: dict[str, Any] = {"cpus": f"{job.cpus}+"}
        if job.memory:
            resources["memory"] = f"{-(-job.memory // 10**9)}+"
        if job.image:
            resources["image_id"] = f"docker:{job.image}"
        tree: dict[str, Any] = {
            "name": job.name,
            "workdir": str(job.base),
            "num_nodes": job.nodes,
            "resources": resources,
            "setup": "\n".join(["set -e", *(job.setup or (install_line(job),))]) + "\n",
            "run": _RAY.format(command=command) if job.nodes > 1 else f"{command}\n",
        }
        if job.secrets:  # `sky launch --secret NAME` takes the values from the environment
            tree["secrets"] = dict.fromkeys(job.secrets)
        set_options(tree, job.options, _KEYS)
        if job.gpus and "accelerators" not in resources:
            resources["accelerators"] = dict.fromkeys(ANY_GPU, job.gpus)
        return as_yaml(tree)

    def commands(self, job: Job, path: Path) -> list[str]:
        secrets = "".join(f" --secret {name}" for name in job.secrets)
        return [
            f"sky launch --yes --cluster {job.name}{secrets} {path}",
            f"rsync -a {job.name}:{_RESULTS}/{job.home.name}/ {job.home}/",
            f"sky down --yes {job.name}",
        ]

    def start(self, job: Job, path: Path, say: Callable[[str], None], *, detach: bool) -> int:
        require(("sky", "rsync"), "pip install skypilot, and `sky check` says which clouds it can use.")
        launch = ["sky", "launch", "--yes", "--cluster", job.name]
        launch += [word for name in job.secrets for word in ("--secret", name)]
        code = subprocess.run([*launch, *(["--detach-run"] if detach else []), str(path)], check=False).returncode
        if detach:
            say(f"started; results come home with\n  {self.commands(job, path)[1]}")
            return code
        # Whatever the task's end: what it recorded is worth having, and resuming needs it.
        job.home.mkdir(parents=True, exist_ok=True)
        copied = subprocess.run(["rsync", "-a", f"{job.name}:{_RESULTS}/{job.home.name}/", f"{job.home}/"], check=False)
        if copied.returncode:
            raise BakeoffError(
                f"the results could not be copied; the cluster {job.name} is still up. The same command goes on with it, "
                f"and `sky down {job.name}` ends it"
            )
        if code == 0:
            subprocess.run(["sky", "down", "--yes", job.name], check=False)
        else:
            say(
                f"the task did not end well; the cluster {job.name} is still up: `sky logs {job.name}`, `sky down {job.name}`"
            )
        return code
