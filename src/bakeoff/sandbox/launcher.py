"""The owner's end of keeper.py: one launcher process for each Python process, and a socket to each box's keeper."""

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
from typing import Any

from bakeoff.engine import processes
from bakeoff.errors import InfraError
from bakeoff.sandbox import wire

_HOME = str(Path(__file__).parents[2])
_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from bakeoff.sandbox.keeper import main; main()"
"""Python on its own, whatever the environment says, with bakeoff wherever we found it, and nothing else: each fork copies it."""

_lock = threading.Lock()
_launchers: dict[int, _Launcher] = {}
"""By our own pid: a forked child must not use its parent's."""


class Keeper:
    """A box's keeper, as its owner sees it. `root` and `upper` are open directories in the box's mount namespace."""

    def __init__(self, settings: dict[str, Any], fds: Sequence[int] = ()) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._launcher = _launcher()
        try:
            with theirs:
                self._launcher.begin(theirs)
            wire.send(ours, settings, fds)
            reply, received = self._reply()
            self.root, self.upper = received
            self.pid: int = reply["pid"]
            self._pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            ours.close()
            raise InfraError(f"the box cannot be made: {error}") from error
        except BaseException:
            ours.close()
            raise
        self._launcher.count(1)

    def run(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """Have a command run, and wait for its end. When we are interrupted, it ends too."""
        try:
            wire.send(self._socket, request, fds)
            return self._reply()[0]
        except OSError as error:
            raise InfraError(f"the box is gone: {error}") from error
        except InfraError:
            raise
        except BaseException:
            self.cancel()
            self._reply()
            raise

    def cancel(self) -> None:
        """End what runs; whoever waits for it gets its reply."""
        try:
            wire.send(self._socket, {})
        except OSError:
            pass  # the keeper is gone, and so is what ran

    def close(self) -> None:
        """End everything; the box's namespaces and mounts are gone on return."""
        self._socket.shutdown(socket.SHUT_RDWR)
        os.close(self.root)
        os.close(self.upper)
        gone = select.poll()
        gone.register(self._pidfd, select.POLLIN)
        gone.poll()
        os.close(self._pidfd)
        self._socket.close()
        self._launcher.count(-1)

    def _reply(self) -> tuple[dict[str, Any], list[int]]:
        received = wire.receive(self._socket)
        if received is None:
            raise InfraError("the box is gone: its keeper was killed or the box was closed")
        reply, fds = received
        if "error" in reply:
            raise InfraError(f"the box cannot be made or used: {reply['error']}")
        return reply, fds


class _Launcher:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-I", "-S", "-c", _PROGRAM, _HOME, str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                words,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # ours may be the file of a run that is over long before the launcher
                start_new_session=True,  # Ctrl-C at the terminal is for us, who then close our boxes
                cwd="/",
            )
        self._socket = ours
        self._boxes = 0

    def count(self, change: int) -> None:
        """With no box open, the launcher is no leftover of a run: the next run will use it too."""
        with _lock:
            self._boxes += change
            (processes.SPARED.discard if self._boxes else processes.SPARED.add)(self._process.pid)

    def alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, control: socket.socket) -> None:
        wire.send(self._socket, {}, [control.fileno()])

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _launcher() -> _Launcher:
    with _lock:
        found = _launchers.get(os.getpid())
        if found is None or not found.alive():
            found = _launchers[os.getpid()] = _Launcher()
        return found


@atexit.register
def close() -> None:
    """End this process's launcher. Another starts when another box is opened."""
    with _lock:
        found = _launchers.pop(os.getpid(), None)
    if found is not None:
        found.close()
