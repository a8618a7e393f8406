"""The owner's end of supervisor.py, and the messages between the two.

Each Python process that opens boxes has one launcher process, and a socket to the supervisor of each box. Messages
are JSON objects with descriptors behind them (`syscalls.send`): the owner sends `Settings` once, then one `Request`
for each command, and gets a `Reply` or `{"error": text}` for each.
"""

from __future__ import annotations

import atexit
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, cast

from bakeoff.engine import processes
from bakeoff.errors import InfraError
from bakeoff.sandbox.base import NotStarted
from bakeoff.sandbox.syscalls import Message, receive, send

_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from bakeoff.sandbox.supervisor import main; main()"
"""Run with -I -S: no variables, no site packages, so that a fork copies little. The path of bakeoff is an argument."""

_lock = threading.Lock()
_launchers: dict[int, _Launcher] = {}
"""By our own pid: a forked child must not use the launcher of its parent."""


class Settings(TypedDict):
    """The first message of an owner to its supervisor: what the box is made of. Descriptors behind it: the ext4 image,
    if there is one, and `join_fds` open cgroup.procs files."""

    lowers: list[str]
    directory: str | None
    disk_mb: int | None
    mounts: list[str]
    nameless: list[int]
    """Numbers of mounts whose path on this machine the box must not see."""
    network: bool
    sockets: dict[str, str]
    shared_memory: int
    join_fds: int
    rlimits: dict[str, int]
    affinity: list[int]


class Request(TypedDict):
    """Run one command. Descriptors behind it: stdin, stdout, stderr, bwrap's arguments, bwrap's status.

    An empty message instead means: end the command that runs.
    """

    argv: list[str]
    bwrap: str
    timeout: float | None
    tracing: bool
    uid: int
    gid: int
    groups: list[int]
    switch: bool
    """Whether the starter becomes `uid` before it runs bwrap."""
    watch_mb: int | None
    watch_pids: int | None
    """Limits that no cgroup enforces, so that the supervisor has to watch them."""


class Reply(TypedDict):
    """How a command ended. `why` is empty, or timeout, memory, pids or cancelled when the supervisor killed it."""

    code: int
    why: str
    seconds: float
    cpu: float
    peak_kb: int
    free: int


class Supervisor:
    """The supervisor of one box, as its owner sees it. `root` and `upper` are open directories in the box's mount
    namespace: the root of the box, and what the box has written."""

    def __init__(self, settings: Settings, fds: Sequence[int] = ()) -> None:
        """Start it; on return the box is ready for commands. Raises InfraError when it cannot be made."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        with _lock:
            launcher = _launchers.get(os.getpid())
            if launcher is None or launcher.process.poll() is not None:
                launcher = _launchers[os.getpid()] = _Launcher()
        self._launcher = launcher
        try:
            with theirs:
                send(launcher.socket, {}, [theirs.fileno()])
            send(ours, settings, fds)
            reply = self._receive()
            self.root, self.upper = reply.fds
            self.pid: int = reply.body["pid"]
            self._pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            ours.close()
            raise InfraError(f"the sandbox cannot be made: {error}") from error
        except BaseException:
            ours.close()
            raise
        launcher.count(1)

    def run(self, request: Request, fds: Sequence[int]) -> Reply:
        """Have a command run, and wait for its end. If this thread is interrupted, the command is killed first."""
        try:
            send(self._socket, request, fds)
            return cast(Reply, self._receive().body)
        except OSError as error:
            raise InfraError(f"the sandbox is gone: {error}") from error
        except InfraError:
            raise
        except BaseException:  # KeyboardInterrupt, say: the reply has to be read, or the next command would get it
            self.cancel()
            self._receive()
            raise

    def cancel(self) -> None:
        """Kill the command that runs; the thread that waits for it gets its reply."""
        try:
            send(self._socket, {})
        except OSError:
            pass  # the supervisor is gone, and with it the command

    def close(self) -> None:
        """End everything. On return the box's namespaces and mounts are gone."""
        self._socket.shutdown(socket.SHUT_RDWR)
        os.close(self.root)
        os.close(self.upper)
        # Not our child, so it cannot be waited for: a pidfd becomes readable when its process ends (pidfd_open(2)).
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        ended.poll()
        os.close(self._pidfd)
        self._socket.close()
        self._launcher.count(-1)

    def _receive(self) -> Message:
        """The next message. InfraError when the supervisor is gone or reports an error."""
        received = receive(self._socket)
        if received is None:
            raise InfraError("the sandbox is gone: its supervisor was killed or the sandbox was closed")
        if "error" in received.body:
            kind = InfraError if received.body.get("started", True) else NotStarted
            raise kind(f"the sandbox cannot be made or used: {received.body['error']}")
        return received


class _Launcher:
    """The process that forks supervisors (`supervisor.main`), started with the first box."""

    def __init__(self) -> None:
        """Start the process. It inherits one end of a socket pair and nothing else."""
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        home = str(Path(__file__).parents[2])
        with theirs:
            words = [sys.executable, "-I", "-S", "-c", _PROGRAM, home, str(theirs.fileno()), str(os.getpid())]
            self.process = subprocess.Popen(
                words,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # ours may be the log of a run that ends long before the launcher
                start_new_session=True,  # Ctrl-C at the terminal is for us; we close our boxes then
                cwd="/",
            )
        self._boxes = 0

    def count(self, change: int) -> None:
        """Count open boxes. With none, the engine spares the launcher between runs: the next run will use it too."""
        with _lock:
            self._boxes += change
            (processes.SPARED.discard if self._boxes else processes.SPARED.add)(self.process.pid)


@atexit.register
def close() -> None:
    """End the launcher of this process. Another starts when another box is opened."""
    with _lock:
        launcher = _launchers.pop(os.getpid(), None)
    if launcher is not None:
        launcher.socket.close()
        launcher.process.wait()
