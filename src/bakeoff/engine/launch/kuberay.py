"""KubeRay: a RayJob, with the experiment's directory in a ConfigMap and its keys in a Secret.

The job runs on the head of a Ray cluster that the operator makes for it. When it has ended, the results are read from
the head's container and everything is deleted. If they cannot be read, everything stays.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bakeoff.engine.launch.job import Job, as_yaml, call, require, set_options
from bakeoff.engine.pilots.arrivals import remove
from bakeoff.engine.pilots.packing import pack, unpack
from bakeoff.errors import BakeoffError, UsageError
from bakeoff.records import layout
from bakeoff.records.layout import EditionPaths

_LARGEST = 900_000
"""Bytes that fit into a ConfigMap, which may have 1 MiB with everything (kubernetes.io/docs/concepts/configuration)."""
_FILES, _RESULTS, _WORK = "/bakeoff/files", "/tmp/bakeoff-runs", "/tmp/bakeoff-experiment"
_ARCHIVE = "experiment.tar.gz"
_LOOK_INTERVAL = 3.0
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")
"""`status.jobStatus` of a job that has ended."""


class KubeRay:
    """A `Target`."""

    file = "rayjob.yaml"

    def write(self, job: Job) -> str:
        if job.image is None:
            raise UsageError(
                "kuberay needs --image: a container image with Ray and bakeoff[ray], such as one that is made by "
                "`FROM rayproject/ray` and `RUN pip install 'bakeoff[ray]'`"
            )
        rayjob: dict[str, Any] = {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {"name": job.name},
            "spec": {
                "entrypoint": f"bash -c {shlex.quote(self._script(job))}",
                "shutdownAfterJobFinishes": False,  # the results are in the head's container
                "rayClusterSpec": {
                    "headGroupSpec": {
                        "rayStartParams": {"num-cpus": "0"} if job.nodes > 1 else {},
                        "template": self._pod(job, "ray-head", files=True),
                    },
                    "workerGroupSpecs": [
                        {
                            "groupName": "workers",
                            "replicas": job.nodes,
                            "minReplicas": job.nodes,
                            "maxReplicas": job.nodes,
                            "rayStartParams": {},
                            "template": self._pod(job, "ray-worker", files=False),
                        }
                    ]
                    if job.nodes > 1
                    else [],
                },
            },
        }
        if job.seconds:
            rayjob["spec"]["activeDeadlineSeconds"] = int(job.seconds)
        set_options(rayjob, job.options, ("metadata", "spec"))
        files = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": job.name},
            "binaryData": {_ARCHIVE: base64.b64encode(_archive(job)).decode()},
        }
        return as_yaml(files, rayjob)

    def _script(self, job: Job) -> str:
        """What the head runs."""
        return "\n".join(
            [
                "set -e",
                f"mkdir -p {_WORK} && tar -xzf {_FILES}/{_ARCHIVE} -C {_WORK} && cd {_WORK}",
                *job.setup,
                job.command(_RESULTS),
            ]
        )

    def _pod(self, job: Job, name: str, *, files: bool) -> dict[str, Any]:
        limits: dict[str, str] = {"cpu": str(job.cpus)}
        if job.memory:
            limits["memory"] = str(job.memory)
        if job.gpus:
            limits["nvidia.com/gpu"] = str(job.gpus)
        container: dict[str, Any] = {"name": name, "image": job.image}
        if not (files and job.nodes > 1):  # the head of a larger cluster only carries messages
            container["resources"] = {"limits": limits, "requests": dict(limits)}
        if job.secrets:
            container["env"] = [
                {"name": each, "valueFrom": {"secretKeyRef": {"name": job.name, "key": each}}} for each in job.secrets
            ]
        spec: dict[str, Any] = {"containers": [container]}
        if files:
            container["volumeMounts"] = [{"name": "files", "mountPath": _FILES}]
            spec["volumes"] = [{"name": "files", "configMap": {"name": job.name}}]
        return {"spec": spec}

    def commands(self, job: Job, path: Path) -> list[str]:
        secrets = [f"kubectl apply -f -   # a Secret {job.name} with {', '.join(job.secrets)}"] if job.secrets else []
        return [
            *secrets,
            f"kubectl apply -f {path}",
            f"kubectl get rayjob {job.name}   # until it has ended",
            f"kubectl exec HEAD -- sh -c {shlex.quote(_send(job))}   # into {job.home}",
            f"kubectl delete -f {path}",
        ]

    def start(self, job: Job, path: Path, say: Callable[[str], None], *, detach: bool) -> int:
        require(("kubectl",), "It talks to the Kubernetes cluster that has the KubeRay operator.")
        if job.secrets:
            call("kubectl", "apply", "-f", "-", content=self._secret(job))
        call("kubectl", "apply", "-f", str(path))
        say(f"rayjob {job.name} is created")
        if detach:
            say("results come home with\n  " + "\n  ".join(self.commands(job, path)[-2:]))
            return 0
        status, shown = "", ""
        while status not in _OVER:
            time.sleep(_LOOK_INTERVAL)
            state = json.loads(call("kubectl", "get", "rayjob", job.name, "-o", "json")).get("status", {})
            status = state.get("jobStatus", "")
            deployment = state.get("jobDeploymentStatus", "")
            if (text := f"{deployment} {status}".strip()) != shown:
                shown = text
                say(f"rayjob {job.name}: {text.lower()}")
            if deployment == "Failed" and status not in _OVER:
                raise BakeoffError(
                    f"rayjob {job.name} failed: {state.get('message') or state.get('reason') or 'no reason given'}"
                )
        self._bring_home(job, state["rayClusterName"])
        call("kubectl", "delete", "-f", str(path), "--wait=false")
        if job.secrets:
            call("kubectl", "delete", "secret", job.name)
        return 0 if status == "SUCCEEDED" else 1

    def _secret(self, job: Job) -> str:
        """Passed to kubectl through a pipe: it lies in no file."""
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": job.name},
                "type": "Opaque",
                "stringData": job.secret_values(),
            }
        )

    def _bring_home(self, job: Job, cluster: str) -> None:
        labels = f"ray.io/cluster={cluster},ray.io/node-type=head"
        head = call("kubectl", "get", "pods", "-l", labels, "-o", "jsonpath={.items[0].metadata.name}").strip()
        arriving = job.home / ".arriving"
        with subprocess.Popen(
            ["kubectl", "exec", head, "--", "sh", "-c", _send(job)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            try:
                unpack(process.stdout, arriving)
            except OSError as error:
                process.kill()
                raise BakeoffError(
                    f"the results could not be brought home: {error}. They are in the pod {head}"
                ) from error
        install_editions(arriving, job.home)


def _send(job: Job) -> str:
    """The shell command that writes all editions as an archive: files and directories, no links."""
    place = shlex.quote(f"{_RESULTS}/{job.home.name}")
    return f"cd {place} && find . \\( -type f -o -type d \\) -print0 | tar --no-recursion --null -T - -cf -"


def install_editions(arriving: Path, home: Path) -> None:
    """Rename editions into their place; one that is there already is an older state of the same edition."""
    for edition in sorted(path for path in arriving.iterdir() if layout.is_edition(path)):
        place = home / edition.name
        old = home / f".old-{edition.name}"
        remove(old)
        if place.exists():
            os.rename(place, old)
        os.rename(edition, place)
        remove(old)
        layout.point_latest(EditionPaths(place))
    remove(arriving)


def _archive(job: Job) -> bytes:
    """The experiment's directory without results, compressed; the same bytes for the same files."""
    content = io.BytesIO()
    pack(job.base, content, leave_out=(job.root, job.base / ".git", job.base / ".venv"))
    data = gzip.compress(content.getvalue(), mtime=0)
    if len(data) > _LARGEST:
        raise UsageError(
            f"{job.base} has {len(data):,} bytes after compression, and {_LARGEST:,} fit into a Kubernetes ConfigMap. "
            "Move the experiment file into a directory with only what it needs, and put data into the image"
        )
    return data
