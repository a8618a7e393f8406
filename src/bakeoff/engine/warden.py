"""`python -m bakeoff.engine.warden MARK`: waits until its standard input ends, then ends what carries the mark.

The scheduler holds the other end of the pipe, so when it dies, by whatever signal, its runs die with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from bakeoff.engine import processes


class Warden:
    """The scheduler's end: the warden acts when this is closed, or when the process that holds it is gone."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "bakeoff.engine.warden", self._mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal is not for it
            env={**os.environ, processes.MARK: f"{self._mark}warden"},
        )

    def check(self) -> None:
        """If somebody killed it, there must be another."""
        if self._process.poll() is not None:
            self._close_pipe()
            self._process = self._begin()

    def close(self) -> None:
        self._close_pipe()
        self._process.wait()

    def _close_pipe(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    processes.end_marked(sys.argv[1])


if __name__ == "__main__":
    main()
