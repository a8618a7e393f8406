"""What a run may change in its worker, remembered before the first run and put back after each."""

from __future__ import annotations

import os
import signal
import sys
import threading

from bakeoff.engine import processes

# Those that programs take over. Asking for all sixty would cost more than a short run.
_SIGNALS = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGCHLD, signal.SIGPIPE,
)  # fmt: skip


class World:
    def __init__(self) -> None:
        self._streams = (sys.stdout, sys.stderr)
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._environ, self._environment = os.environ, dict(os.environ)
        # Comparing os.environ itself would decode every variable after every run.
        self._variables: dict[bytes, bytes] = vars(os.environ)["_data"]
        self._variables_before = dict(self._variables)
        self._path = list(sys.path)
        self._directory = os.getcwd()
        self._threads = threading.active_count()

    def restore(self) -> bool:
        """Put things back. False when the worker cannot be used again: threads, processes or broken streams are left."""
        intact = self._restore_streams()
        os.environ = self._environ  # noqa: B003 - a run may have put a table of its own there
        if self._variables != self._variables_before:
            os.environ.clear()
            os.environ.update(self._environment)
        if sys.path != self._path:
            sys.path[:] = self._path
        self._restore_signals()
        os.umask(self._umask)
        self._restore_directory()
        return self._end_children() and threading.active_count() <= self._threads and intact

    def _restore_streams(self) -> bool:
        for stream in (sys.stdout, sys.stderr):
            if stream not in self._streams:
                try:
                    stream.flush()
                except Exception:
                    pass  # whatever the run put there is the run's own affair
        sys.stdout, sys.stderr = self._streams
        try:
            for stream in self._streams:
                stream.flush()
        except (OSError, ValueError):
            return False
        return True

    def _restore_signals(self) -> None:
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _restore_directory(self) -> None:
        try:
            if os.getcwd() == self._directory:
                return
        except OSError:
            pass  # it is in a directory that was deleted
        os.chdir(self._directory)

    @staticmethod
    def _end_children() -> bool:
        """True when there were none. The worker is a subreaper, so daemons are among them."""
        if not processes.has_children():
            return True
        left = set(processes.children()) - processes.SPARED
        processes.send(processes.descendants(left), signal.SIGKILL)
        return not left
