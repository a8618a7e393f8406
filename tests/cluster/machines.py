"""Virtual machines for tests of clusters: namespaces of this machine, joined by a switch.

A `Machine` has its own network, processes, host name and mounts; its files are those of this machine. The first machine
of a `Site` holds the switch, and tests start the command line there, as on a login node. Nothing outside the namespaces
is touched: all sites use the same addresses without meeting each other, and the kernel removes a site with its processes.

    with Site("n1", "n2") as site:
        site.head.run("ping", "-c1", site["n1"].address)
        site["n1"].cut()
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from support.processes import eventually

HEAD = "head"
_PREFIX = "10.99.0."
_INIT = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_DFL)
while True:
    try:
        os.wait()
    except ChildProcessError:
        signal.sigtimedwait([signal.SIGCHLD], 0.2)
"""
"""The first process of a machine: it reaps what its daemons leave behind, and everything ends with it."""
_PR_SET_PDEATHSIG = 1


def _die_with_pytest() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Machine:
    """One machine of a site. Files are shared with this machine, except what `hide` covers."""

    def __init__(self, name: str, address: str, files: Path) -> None:
        """`files` has `hosts` and `resolv.conf` for /etc: names are found at once, and nobody is asked for others."""
        self.name, self.address = name, address
        self._holder = subprocess.Popen(
            [
                "unshare",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "--uts",
                sys.executable,
                "-Ic",
                _INIT,
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_pytest,
        )
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        self.pid = int(eventually(lambda: children.read_text().split(), f"namespaces of {name}")[0])
        # The holder forks before it has mounted /proc; until then commands would see this machine's processes.
        eventually(lambda: b"-Ic" in Path(f"/proc/{self.pid}/cmdline").read_bytes(), f"the first process of {name}")
        self.run("hostname", name)
        for file in ("hosts", "resolv.conf"):
            self.run("mount", "--bind", files / file, f"/etc/{file}")
        self.run("ip", "link", "set", "lo", "up")

    def command(self, *argv: str | Path, cwd: Path = Path("/")) -> list[str]:
        """The command line, inside this machine."""
        return ["nsenter", "-t", str(self.pid), "-n", "-p", "-m", "-u", "--", "env", "-C", str(cwd), *map(str, argv)]

    def run(
        self, *argv: str | Path, env: Mapping[str, str] = {}, cwd: Path = Path("/"), check: bool = True, **options: Any
    ) -> str:
        """Standard output of a command in this machine; raises AssertionError with all its output when it fails."""
        done = subprocess.run(
            self.command(*argv, cwd=cwd), text=True, capture_output=True, stdin=subprocess.DEVNULL,
            env={**os.environ, **env}, **options,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{argv} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(
        self, *argv: str | Path, env: Mapping[str, str] = {}, cwd: Path = Path("/"), **options: Any
    ) -> subprocess.Popen[str]:
        """A process in this machine. It ends with the machine, if not earlier."""
        return subprocess.Popen(self.command(*argv, cwd=cwd), text=True, env={**os.environ, **env}, **options)

    def daemon(self, log: Path, *argv: str | Path, env: Mapping[str, str] = {}) -> None:
        """Start a program in the background, in its own session; its output is added to `log`."""
        with log.open("ab") as file:
            argv = ("setsid", "--fork", *argv)
            subprocess.run(
                self.command(*argv),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **env},
                check=True,
            )

    # -- the link and the files

    def cut(self) -> None:
        """Take the link down: packets are lost, and nobody is told."""
        self._net("ip", "link", "set", "eth0", "down")

    def restore(self) -> None:
        self._net("ip", "link", "set", "eth0", "up")

    def lose(self, share: float) -> None:
        """Lose this share of all incoming and outgoing packets; 0 ends that. netem is not in every kernel."""
        for chain in ("INPUT", "OUTPUT"):
            self._net("iptables", "-F", chain)
            if share:
                rule = ["-m", "statistic", "--mode", "random", "--probability", str(share), "-j", "DROP"]
                self._net("iptables", "-A", chain, "!", "-i" if chain == "INPUT" else "-o", "lo", *rule)

    def hide(self, directory: Path) -> None:
        """Cover a directory by an empty one that nothing can be written to, as if a file system were lost."""
        self.run("mount", "-t", "tmpfs", "-o", "ro,size=4k", "hidden", directory)

    def show(self, directory: Path) -> None:
        self.run("umount", "--lazy", directory)

    def _net(self, *argv: str) -> None:
        subprocess.run(["nsenter", "-t", str(self.pid), "-n", "--", *argv], check=True, capture_output=True)

    # -- processes

    def processes(self, text: str = "") -> Iterator[int]:
        """Ids, as this machine's kernel counts them outside, of its processes whose command line contains `text`."""
        space = os.readlink(f"/proc/{self.pid}/ns/net")  # runs are in a PID namespace of their own
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.pid:
                continue
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if (
                    command
                    and not command.startswith("nsenter ")
                    and text in command
                    and os.readlink(entry / "ns/net") == space
                ):
                    yield int(entry.name)
            except OSError:
                continue  # it has ended

    def signal(self, text: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to all processes whose command line contains `text`; how many those are."""
        ended = 0
        for pid in self.processes(text):
            try:
                os.kill(pid, number)
                ended += 1
            except ProcessLookupError:
                pass
        return ended

    def close(self) -> None:
        """End every process of the machine, and the machine."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._holder.wait()
        deadline = time.monotonic() + 10
        while Path(f"/proc/{self.pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


class Site:
    """A head with a switch, and machines that are linked to it. Addresses are 10.99.0.1 for the head, .2 and so on."""

    def __init__(self, *names: str) -> None:
        self.machines: dict[str, Machine] = {}
        self._files = Path(tempfile.mkdtemp(prefix="site-", dir="/tmp"))
        hosts = [f"{_PREFIX}{number} {name}\n" for number, name in enumerate((HEAD, *names), 1)]
        (self._files / "hosts").write_text("".join(["127.0.0.1 localhost\n", *hosts]))
        (self._files / "resolv.conf").touch()
        try:
            self.head = self.machines[HEAD] = Machine(HEAD, f"{_PREFIX}1", self._files)
            self.in_head("ip", "link", "add", "name", "switch", "type", "bridge")
            self.in_head("ip", "addr", "add", f"{self.head.address}/24", "dev", "switch")
            self.in_head("ip", "link", "set", "switch", "up")
            for number, name in enumerate(names, 2):
                self._join(Machine(name, f"{_PREFIX}{number}", self._files))
        except BaseException:
            self.close()
            raise

    def in_head(self, *argv: str) -> None:
        # Only the network is entered: `ip` names another network by a process id, and must know it.
        subprocess.run(["nsenter", "-t", str(self.head.pid), "-n", "--", *argv], check=True)

    def _join(self, machine: Machine) -> None:
        self.machines[machine.name] = machine
        name = f"to-{machine.name}"
        # The hardware address belongs to the place, so that a machine which replaces another is known at once.
        hardware = f"02:00:00:00:00:{int(machine.address.rpartition('.')[2]):02x}"
        peer = ["peer", "name", "eth0", "address", hardware, "netns", str(machine.pid)]
        self.in_head("ip", "link", "add", "name", name, "type", "veth", *peer)
        self.in_head("ip", "link", "set", name, "master", "switch", "up")
        machine.run("ip", "addr", "add", f"{machine.address}/24", "dev", "eth0")
        machine.restore()

    def replace(self, name: str) -> Machine:
        """A new machine in the place of one that is lost with all its processes."""
        address = self.machines[name].address
        # Sockets that still try to send keep the network of a machine for minutes. Its link goes at once.
        self.in_head("ip", "link", "del", f"to-{name}")
        self.machines.pop(name).close()
        eventually(lambda: not self._has_link(f"to-{name}"), f"the link of {name} goes away")
        self._join(Machine(name, address, self._files))
        return self.machines[name]

    def _has_link(self, name: str) -> bool:
        listed = subprocess.run(
            ["nsenter", "-t", str(self.head.pid), "-n", "--", "ip", "link", "show", name], capture_output=True
        )
        return listed.returncode == 0

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def close(self) -> None:
        for machine in reversed(self.machines.values()):
            machine.close()
        shutil.rmtree(self._files, ignore_errors=True)

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
