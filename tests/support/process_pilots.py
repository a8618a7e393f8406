"""An executor whose pilots are plain processes of this machine, for tests of everything that does not need an engine.

`install(lab)` makes it known to bakeoff in the lab's processes as `[executor] kind = "processes"`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bakeoff.engine.executors import ExecutorSetup
from bakeoff.engine.pilots.executor import PilotExecutor
from bakeoff.engine.pilots.settings import PilotSettings, pilot_setup
from bakeoff.engine.pilots.spool import SpoolTransport
from bakeoff.errors import Problem
from bakeoff.spec.experiment import ExperimentFile
from support.processes import Lab


class ProcessSettings(PilotSettings):
    """The shared settings are enough."""


class ProcessLauncher:
    """Starts pilots as processes that outlive the scheduler, each on a node of its own as far as it knows."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, pilots: Sequence[str], *, avoid: Sequence[str]) -> None:
        for name in pilots:
            with open(self._spool.parent / f"pilot-{name}.log", "wb") as log:
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-P", "-m", "bakeoff.engine.pilots.spool", str(self._spool), name],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                    env={**os.environ, "BAKEOFF_NODE": f"node-{name}", "PYTHONPATH": self._path(name)},
                )  # fmt: skip

    def _path(self, name: str) -> str:
        """Modules that only this node has are in a directory beside the lab's, as `own_modules` says."""
        own = own_modules(self._spool.parents[3], name)
        return os.pathsep.join([str(own), os.environ.get("PYTHONPATH", "")])

    def ended(self) -> Mapping[str, str]:
        return {n: f"exit code {p.returncode}" for n, p in self._processes.items() if p.poll() is not None}

    def explained(self, why: str) -> bool:
        return False

    def log(self, pilot: str) -> str:
        return (self._spool.parent / f"pilot-{pilot}.log").read_text(errors="replace")[-2000:]

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
            process.wait(timeout=30)


class Processes:
    Settings = ProcessSettings

    def check(self, experiment: ExperimentFile) -> Iterable[Problem]:
        return ()

    def open(self, setup: ExecutorSetup) -> PilotExecutor:
        settings = setup.settings
        assert isinstance(settings, ProcessSettings)
        transport = SpoolTransport(setup.node.paths)
        return PilotExecutor(
            pilot_setup(setup, settings), setup.node.paths, setup.claims, transport, ProcessLauncher(transport.directory),
            pilots=settings.number_of_pilots(setup.jobs), expiry=settings.expiry,
            same_packages=settings.same_packages,
        )  # fmt: skip


PROCESSES = Processes()


def own_modules(place: Path, pilot: str) -> Path:
    """Return where modules are that only the node of this pilot has, of a lab in `place`."""
    return place.parent / f"{place.name}-nodes" / pilot


def install(lab: Lab) -> None:
    """Make the executor known in processes that the lab starts."""
    plug = lab.place.parent / f"{lab.place.name}-plug"
    info = plug / "process_pilots-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: process-pilots\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[bakeoff.executors]\nprocesses = support.process_pilots:PROCESSES\n")
    tests = Path(__file__).parents[1]
    lab.environment["PYTHONPATH"] = os.pathsep.join([str(plug), str(tests), os.environ.get("PYTHONPATH", "")])


def pilots_of(lab: Lab) -> list[int]:
    """Processes that are pilots: those that lead their session."""
    return [pid for pid in lab.processes_of("bakeoff.engine.pilots.spool") if os.getsid(pid) == pid]


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
