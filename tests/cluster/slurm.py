"""A Slurm cluster for tests: munged and slurmctld on the head of a `Site`, one slurmd on each machine.

    with SlurmCluster() as slurm:
        slurm.run("sbatch", "--wait", "--wrap", "hostname")
        slurm.cut("n1")

`shared` is the shared file system of the cluster: a cut takes it away from the machine together with its link.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from cluster.machines import Site
from support.processes import eventually

CPUS = 8
"""CPUs that each node says it has. No task is bound to one, so more than there are is fine."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
_CONF = """
ClusterName=bakeoff
SlurmctldHost=head({head})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/slurmd-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
DefMemPerCPU=100
MinJobAge=300
ReturnToService=2
SlurmdTimeout={timeout}
InactiveLimit=0
KillWait=5
MessageTimeout=5
TCPTimeout=2
{gres}NodeName=n[1-{nodes}] NodeAddr=10.99.0.[2-{last}] CPUs={cpus} RealMemory=4000{node_gres} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP
"""


class SlurmCluster:
    """`run` and `start` act on the head. With `gpus`, each node says that it has so many devices of that kind."""

    def __init__(self, *, nodes: int = 2, gpus: int = 0, timeout: int = 30) -> None:
        """`timeout`: seconds after which slurmctld gives up a node that does not answer."""
        for program in ("munged", "slurmctld", "slurmd"):
            assert shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin"), (
                f"{program} is not installed: run `make test`, or scripts/install-slurm.sh"
            )
        # A socket's path may have 107 bytes: pytest's own temporary directories are too deep.
        self.home = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self.home.chmod(0o755)
        self.shared = self.home / "shared"
        self.names = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.conf = self.home / "slurm.conf"
        self.env = {"SLURM_CONF": str(self.conf), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
        self.gpus = gpus
        self._hidden: set[str] = set()
        self.site = Site(*self.names)
        try:
            self._configure(timeout)
            self._start()
        except BaseException:
            self.close()
            raise

    def _configure(self, timeout: int) -> None:
        for name in ("state", "shared", *(f"slurmd-{node}" for node in self.names)):
            (self.home / name).mkdir()
        (self.home / "munge.key").write_bytes(secrets.token_bytes(128))
        (self.home / "munge.key").chmod(0o600)
        self.conf.write_text(
            _CONF.format(
                home=self.home,
                head=self.site.head.address,
                nodes=len(self.names),
                last=len(self.names) + 1,
                cpus=CPUS,
                timeout=timeout,
                gres="GresTypes=gpu\n" if self.gpus else "",
                node_gres=f" Gres=gpu:{self.gpus}" if self.gpus else "",
            )
        )
        if self.gpus:  # Slurm wants character devices, and does nothing with them
            lines = [f"NodeName=n[1-{len(self.names)}] Name=gpu File={device}" for device in _DEVICES[: self.gpus]]
            (self.home / "gres.conf").write_text("\n".join(lines) + "\n")

    def _start(self) -> None:
        head, log = self.site.head, self.home / "daemons.log"
        munged = ["munged", "--foreground", "--force", "--key-file", self.home / "munge.key"]
        munged += ["--socket", self.home / "munge.socket", "--pid-file", self.home / "munge.pid"]
        munged += ["--seed-file", self.home / "munge.seed", "--log-file", self.home / "munge.log"]
        head.daemon(log, *munged, env=self.env)
        eventually((self.home / "munge.socket").exists, "munged listens", 20)
        head.daemon(log, "slurmctld", "-D", "-c", env=self.env)
        for name in self.names:
            self.start_node(name)
        self.wait_until_idle()

    def start_node(self, name: str, env: Mapping[str, str] = {}) -> None:
        """Start slurmd on a machine, also again after it was killed. Its jobs inherit `env`."""
        self.site[name].daemon(self.home / "daemons.log", "slurmd", "-D", "-N", name, env={**self.env, **env})

    def wait_until_idle(self, names: Sequence[str] = ()) -> None:
        """Until slurmctld may give jobs to these nodes (default: all)."""
        wanted = set(names or self.names)
        try:
            eventually(lambda: wanted <= self.usable(), f"{wanted} are usable", 60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._logs()}") from None

    def usable(self) -> set[str]:
        listed = self.run("sinfo", "-h", "-N", "-o", "%N %t", check=False)
        states = dict(line.split() for line in listed.splitlines())
        return {name for name, state in states.items() if state in ("idle", "mix", "alloc")}

    def _logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(self.home.glob("*.log")))

    # -- commands on the head

    def run(self, *argv: str | Path, env: Mapping[str, str] = {}, **options: Any) -> str:
        return self.site.head.run(*argv, env={**self.env, **env}, **options)

    def start(self, *argv: str | Path, env: Mapping[str, str] = {}, **options: Any) -> subprocess.Popen[str]:
        return self.site.head.start(*argv, env={**self.env, **env}, **options)

    def jobs(self) -> list[str]:
        """Ids of jobs that wait or run."""
        return self.run("squeue", "-h", "-o", "%i").split()

    # -- trouble

    def cut(self, name: str) -> None:
        """The machine loses its link and, with it, the shared file system."""
        self.site[name].cut()
        self.site[name].hide(self.shared)
        self._hidden.add(name)

    def restore(self, name: str) -> None:
        self.site[name].restore()
        if name in self._hidden:
            self.site[name].show(self.shared)
            self._hidden.discard(name)

    def kill(self, name: str, program: str = "slurmd -D", number: int = signal.SIGKILL) -> int:
        """Signal processes of a machine by their command line; how many those were."""
        return self.site[name].signal(program, number)

    def reset(self) -> None:
        """As at the start: links up, daemons running, no jobs. For a test that begins after another one."""
        self.run("scancel", "--user", "root", check=False)
        for name in self.names:
            self.restore(name)
            if not any(self.site[name].processes("slurmd -D")):
                self.start_node(name)
            if name not in self.usable():
                self.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)
        eventually(lambda: not self.jobs(), "all jobs end", 60)
        self.wait_until_idle()

    def close(self) -> None:
        self.site.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> SlurmCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
