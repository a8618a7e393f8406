"""A Ray cluster for tests: the head without CPUs on the head of a `Site`, and a Ray node on each machine.

with RayCluster() as cluster:
    cluster.run("bakeoff", "run", "exp.toml", "--executor", "ray")
    cluster.cut("n1")
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from cluster.machines import Site
from support.processes import eventually

CPUS = 8
PORT = 6399
RAY = Path(sys.executable).with_name("ray")
_STORE = 200_000_000
"""Bytes of each node's object store. Chunks of results are taken out of it quickly."""


class RayCluster:
    """`run` and `start` act on the head, with RAY_ADDRESS set."""

    def __init__(self, *, nodes: int = 2, gpus: int = 0) -> None:
        # A socket's path may have 107 bytes: pytest's own temporary directories are too deep.
        self.home = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self.names = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.gpus = gpus
        self.env = {
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": "120",  # a busy machine is slow
            "PATH": f"{RAY.parent}:{os.environ['PATH']}",
        }
        self._hidden: list[Path] = []
        self.site = Site(*self.names)
        self.address = f"{self.site.head.address}:{PORT}"
        try:
            self._ray_start("head", "--head", f"--port={PORT}", "--num-cpus=0", "--num-gpus=0")
            with ThreadPoolExecutor() as threads:  # most of it is waiting
                list(threads.map(self.start_node, self.names))
            self.wait_for_nodes()
        except BaseException:
            self.close()
            raise

    def _ray_start(self, name: str, *arguments: str) -> None:
        machine = self.site[name]
        place = self.home / name
        place.mkdir(exist_ok=True)
        arguments += (f"--node-ip-address={machine.address}", f"--object-store-memory={_STORE}")
        if name == "head":
            arguments += (f"--temp-dir={place}", "--include-dashboard=false", "--disable-usage-stats")
        machine.run(RAY, "start", *arguments, env=self.env, timeout=300)

    def start_node(self, name: str) -> None:
        """Join a machine to the cluster, also again after its Ray node has ended."""
        # Ray gives all nodes the head's temporary directory. Each machine sees one of its own there.
        place = self.home / name
        place.mkdir(exist_ok=True)
        self.site[name].run("mount", "--bind", place, self.home / "head")
        self._ray_start(name, f"--address={self.address}", f"--num-cpus={CPUS}", f"--num-gpus={self.gpus}")

    def alive(self) -> set[str]:
        """Addresses of nodes that the head believes to be alive."""
        code = (
            "import ray\n"
            f"ray.init(address={self.address!r}, log_to_driver=False, logging_level='ERROR')\n"
            "print(*[node['NodeManagerAddress'] for node in ray.nodes() if node['Alive']])"
        )
        return set(self.run(sys.executable, "-c", code).split())

    def wait_for_nodes(self) -> None:
        wanted = {self.site[name].address for name in self.names}
        eventually(lambda: wanted <= self.alive(), "all Ray nodes are alive", 60)

    # -- commands on the head

    def run(self, *argv: str | Path, env: Mapping[str, str] = {}, **options: Any) -> str:
        return self.site.head.run(*argv, env={**self.env, "RAY_ADDRESS": self.address, **env}, **options)

    def start(self, *argv: str | Path, env: Mapping[str, str] = {}, **options: Any) -> subprocess.Popen[str]:
        return self.site.head.start(*argv, env={**self.env, "RAY_ADDRESS": self.address, **env}, **options)

    # -- trouble

    def hide(self, directory: Path) -> None:
        """Nodes do not see this directory, and cannot write to it: there is no shared file system."""
        for name in self.names:
            self.site[name].hide(directory)
        self._hidden.append(directory)

    def show(self, directory: Path) -> None:
        self._hidden.remove(directory)
        for name in self.names:
            self.site[name].show(directory)

    def cut(self, name: str) -> None:
        self.site[name].cut()

    def restore(self, name: str) -> None:
        self.site[name].restore()

    def kill(self, name: str, program: str = "raylet/raylet", number: int = signal.SIGKILL) -> int:
        """Signal processes of a machine by their command line; how many those were."""
        return self.site[name].signal(program, number)

    def replace(self, name: str) -> None:
        """A new machine with a new Ray node: one that was cut off for long has exited (and so does its raylet)."""
        machine = self.site.replace(name)
        for directory in self._hidden:
            machine.hide(directory)
        self.start_node(name)

    def close(self) -> None:
        self.site.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
