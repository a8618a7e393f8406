"""`python -m bakeoff.engine.node.supervisor MARK`: ends every process with the mark when its node dies.

The supervisor waits until its standard input ends. The node holds the other end of that pipe, and the kernel closes it
when the node dies, whatever the signal. So `kill -9` of a scheduler also ends its runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from bakeoff.engine import processes

_INTERVAL = 0.5


class Supervisor:
    """The node's end of the pipe. The supervisor acts when this is closed, or when the process that holds it is gone."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._process: subprocess.Popen[bytes] | None = None
        self._check_at = 0.0
        self.check()

    def check(self) -> None:
        """Start the supervisor, or another one if it was killed. Call it often: it looks twice a second."""
        now = time.monotonic()
        if now < self._check_at:
            return
        self._check_at = now + _INTERVAL
        if self._process is not None:
            if self._process.poll() is None:
                return
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bakeoff.engine.node.supervisor", self._mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal is not for it
            env={**os.environ, processes.MARK: f"{self._mark}supervisor"},
        )

    def close(self) -> None:
        """Let it end what still carries the mark, and wait until it has."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    # Whoever stops the scheduler by such a signal may send it to all its children: we have to outlive it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):  # nothing is ever written; it returns at end of file, when the last holder is gone
        pass
    processes.end_marked(sys.argv[1])


if __name__ == "__main__":
    main()
