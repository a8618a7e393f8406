"""The executor `slurm`: pilots as job arrays, messages through a spool directory beside the results.

The results root and the experiment file's directory have to be on a file system that all nodes see at the same path.
Only the programs of Slurm are called: `sbatch` to start pilots, one `squeue` for all of them, `scancel` at the end.

A job's state explains a loss and never decides one: Slurm has said NODE_FAIL of a job that finished. Jobs are found by
their name, which holds the edition's mark, so a scheduler that was killed leaves nothing that the next one cannot end.
"""

from __future__ import annotations

import getpass
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from bakeoff.engine.pilots.settings import PilotSettings, pilot_setup
from bakeoff.errors import BakeoffError, Problem, StorageError, UsageError
from bakeoff.records.claims import is_pilot_name
from bakeoff.records.files import read_inside
from bakeoff.records.layout import atomic_write
from bakeoff.spec.experiment import Duration, ExperimentFile, Resources

if TYPE_CHECKING:
    from bakeoff.engine.executors import Executor, ExecutorSetup

_JOBS = "jobs.json"
_LARGEST_ARRAY = 500
"""Tasks of one job array; Slurm's own limit, MaxArraySize, is 1001 by default."""
_LOOK_INTERVAL = 5.0
_APPEARS = 60.0
"""Seconds after its submission in which a job need not be listed yet."""
_LEAVE = 90.0
"""Seconds that cancelled jobs get to disappear (KillWait is 30 s by default)."""
_TERM_BEFORE = 60
"""Seconds before the end of its allocation when a pilot is told."""
_OVER = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
}  # fmt: skip
"""States of a job that has ended (squeue(1))."""
_EXPLAINED = {"BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "PREEMPTED", "TIMEOUT"}
"""Ends that no run can cause."""


class SlurmSettings(PilotSettings):
    """`[executor]` with `kind = "slurm"`."""

    expiry: Duration = 120.0
    """Seconds of silence after which a pilot's attempts are lost. Network file systems cache for up to a minute."""
    partition: str | None = None
    account: str | None = None
    time: Duration | None = None
    """Time limit of a pilot's allocation, such as `"4h"` (default: the partition's)."""
    constraint: str | None = None
    """Features that nodes need to have."""
    setup: list[str] = Field(default=[])
    """Shell lines before a pilot starts: `module load cuda`, `source venv/bin/activate`."""
    python: str | None = None
    """The interpreter on the nodes (default: the one that runs bakeoff here)."""
    options: list[str] = Field(default=[])
    """Further options of sbatch, such as `--qos=high`."""


class Slurm:
    """An `ExecutorKind`."""

    Settings = SlurmSettings

    def check(self, experiment: ExperimentFile) -> Iterable[Problem]:
        settings = experiment.executor
        assert isinstance(settings, SlurmSettings)
        limit = experiment.limits.time
        if limit is not None and settings.time is not None and limit > settings.time - _TERM_BEFORE:
            yield Problem(
                "limits.time",
                f"a run may take {limit:g} s, and an allocation of {settings.time:g} s ends {_TERM_BEFORE} s early to "
                "bring results home",
                "raise executor.time or lower limits.time",
            )

    def open(self, setup: ExecutorSetup) -> Executor:
        from bakeoff.engine.pilots.executor import PilotExecutor
        from bakeoff.engine.pilots.spool import SpoolTransport

        settings = setup.settings
        assert isinstance(settings, SlurmSettings)
        for program in ("sbatch", "squeue", "scancel"):
            if shutil.which(program) is None:
                raise UsageError(f"executor slurm: {program} is not on PATH; run this on a login node of the cluster")
        paths = setup.node.paths
        transport = SpoolTransport(paths)
        name = f"bakeoff-{setup.node.edition_mark}"
        launcher = SlurmLauncher(settings, setup.node.resources, transport.directory, name)
        pilots = settings.number_of_pilots(setup.jobs)
        return PilotExecutor(
            pilot_setup(setup, settings),
            paths,
            setup.claims,
            transport,
            launcher,
            pilots=pilots,
            expiry=settings.expiry,
            same_packages=settings.same_packages,
        )


SLURM = Slurm()


class SlurmLauncher:
    """Job arrays of pilots (`Launcher`). `spool` is the spool directory; `name` is the name of all jobs."""

    def __init__(self, settings: SlurmSettings, resources: Resources, spool: Path, name: str) -> None:
        self._settings = settings
        self._resources = resources
        self._spool = spool
        self._name = name
        try:
            jobs = json.loads(read_inside(spool, _JOBS))
        except FileNotFoundError:
            jobs = {}
        except (OSError, ValueError) as error:
            raise StorageError(f"{spool / _JOBS}: cannot be read: {error}") from error
        # It may have come with the edition, and names of jobs are names of logs.
        self._jobs: dict[str, str] = {
            pilot: job for pilot, job in jobs.items() if is_pilot_name(pilot) and re.fullmatch(r"\d+_\d+", str(job))
        }
        """Pilot to job and task, such as `1234_0`, also those of earlier sessions."""
        self._submitted = dict.fromkeys(self._jobs, time.monotonic())
        self._over: dict[str, str] = {}
        self._looking: subprocess.Popen[str] | None = None
        self._look_at = 0.0

    # -- starting

    def start(self, pilots: Sequence[str], *, avoid: Sequence[str]) -> None:
        for first in range(0, len(pilots), _LARGEST_ARRAY):
            batch = pilots[first : first + _LARGEST_ARRAY]
            job = self._submit(batch, avoid)
            self._jobs |= {pilot: f"{job}_{number}" for number, pilot in enumerate(batch)}
            self._submitted |= dict.fromkeys(batch, time.monotonic())
        atomic_write(self._spool / _JOBS, json.dumps(self._jobs))

    def _submit(self, pilots: Sequence[str], avoid: Sequence[str]) -> str:
        """Submit one array; returns the number of the job."""
        script = self.script(pilots, avoid)
        done = subprocess.run(["sbatch", "--parsable"], input=script, text=True, capture_output=True, check=False)
        if done.returncode:
            raise BakeoffError(f"sbatch refused the pilots: {done.stderr.strip()}")
        return done.stdout.strip().partition(";")[0]

    def script(self, pilots: Sequence[str], avoid: Sequence[str] = ()) -> str:
        """The batch script of an array with one task for each pilot."""
        settings, resources = self._settings, self._resources
        slots = 1 if settings.pilots is False else settings.slots
        options = {
            "job-name": self._name,
            "array": f"0-{len(pilots) - 1}",
            "output": f"{self._spool}/log-%A_%a",
            "signal": f"B:TERM@{_TERM_BEFORE}",
            "open-mode": "append",
            "ntasks": "1",
            "cpus-per-task": str(math.ceil(slots * (resources.cpus or 1))),
            "partition": settings.partition,
            "account": settings.account,
            "constraint": settings.constraint,
            "time": _slurm_time(settings.time) if settings.time is not None else None,
            "mem": f"{math.ceil(slots * resources.memory / 2**20)}M" if resources.memory else None,
            # Declared devices are the user's own arrangement; otherwise Slurm assigns them, and the pilot keeps to that.
            "gres": f"gpu:{math.ceil(slots * resources.gpus)}" if resources.gpus and settings.gpus is None else None,
            "exclude": ",".join(avoid) or None,
        }
        lines = ["#!/bin/bash", *(f"#SBATCH --{name}={value}" for name, value in options.items() if value is not None)]
        lines += ["#SBATCH --no-requeue", *(f"#SBATCH {option}" for option in settings.options)]
        lines += settings.setup
        known = "" if settings.time is None else int(settings.time)
        lines += [
            f"pilots=({' '.join(map(shlex.quote, pilots))})",
            "export BAKEOFF_NODE=$SLURMD_NODENAME",
            # By the node's own clock: both times are those of slurmctld's, which may differ. Older versions give none.
            f"lasts=${{SLURM_JOB_END_TIME:+$((SLURM_JOB_END_TIME - SLURM_JOB_START_TIME))}}; lasts=${{lasts:-{known}}}",
            "export BAKEOFF_ALLOCATION_ENDS=${lasts:+$(($(date +%s) + lasts))}",
            # exec: the signal before the time limit goes to this process.
            f"exec {shlex.quote(settings.python or sys.executable)} -P -m bakeoff.engine.pilots.spool "
            f"{shlex.quote(str(self._spool))} ${{pilots[$SLURM_ARRAY_TASK_ID]}}",
        ]
        return "\n".join(lines) + "\n"

    # -- looking

    def ended(self) -> Mapping[str, str]:
        now = time.monotonic()
        if self._looking is not None and self._looking.poll() is not None:
            listed = self._looking.communicate()[0]
            if self._looking.returncode == 0:
                self._take_in(_states(listed), now)
            self._looking = None
        elif self._looking is None and now >= self._look_at and len(self._over) < len(self._jobs):
            self._look_at = now + _LOOK_INTERVAL
            self._looking = subprocess.Popen(
                self._squeue("--states=all"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        return self._over

    def _squeue(self, *options: str) -> list[str]:
        mine = f"--user={getpass.getuser()}"
        return ["squeue", "--noheader", "--array", mine, f"--name={self._name}", "--format=%i %T", *options]

    def _take_in(self, states: Mapping[str, str], now: float) -> None:
        for pilot, job in self._jobs.items():
            state = states.get(job)
            if state is None and now - self._submitted[pilot] > _APPEARS:
                state = "no longer listed"
            elif state not in _OVER:
                continue
            self._over.setdefault(pilot, str(state))

    def explained(self, why: str) -> bool:
        return why in _EXPLAINED

    def log(self, pilot: str) -> str:
        path = self._spool / f"log-{self._jobs.get(pilot, '')}"
        try:
            return "\n".join(path.read_text(errors="replace").splitlines()[-12:])
        except OSError:
            return ""

    # -- ending

    def close(self) -> None:
        if self._looking is not None:
            self._looking.communicate()
        deadline, cancelled = time.monotonic() + _LEAVE, False
        while time.monotonic() < deadline:
            done = subprocess.run(self._squeue(), capture_output=True, text=True, check=False)
            if done.returncode == 0 and not done.stdout.strip():
                return
            if not cancelled:
                subprocess.run(
                    ["scancel", "--quiet", f"--user={getpass.getuser()}", f"--name={self._name}"], check=False
                )
                cancelled = True
            time.sleep(0.25)


def _states(listed: str) -> dict[str, str]:
    """Job and task to state, of what squeue printed."""
    return dict(line.split(maxsplit=1) for line in listed.splitlines() if len(line.split(maxsplit=1)) == 2)


def _slurm_time(seconds: float) -> str:
    """A duration as Slurm reads it: minutes and seconds."""
    whole = math.ceil(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
