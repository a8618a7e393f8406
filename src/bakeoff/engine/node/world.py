"""What a run may change in its worker, remembered before the first run and put back after each.

`World` has the process: environment, signal handlers, working directory, streams, children. `Seeder` has the global
random generators.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from bakeoff.engine import processes

# Those that programs take over. Asking for all sixty would cost more than a short run.
_SIGNALS = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGCHLD, signal.SIGPIPE,
)  # fmt: skip


class World:
    """The process as it was when this was made."""

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
        for stream in (sys.stdout, sys.stderr):
            if stream not in self._streams:
                try:
                    stream.flush()
                except Exception:
                    pass  # the run put something else there; what that does is the run's own affair
        sys.stdout, sys.stderr = self._streams
        intact = True
        try:
            for stream in self._streams:
                stream.flush()
        except (OSError, ValueError):
            intact = False
        os.environ = self._environ  # noqa: B003 - a run may have replaced the whole object
        if self._variables != self._variables_before:
            os.environ.clear()
            os.environ.update(self._environment)
        if sys.path != self._path:
            sys.path[:] = self._path
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.umask(self._umask)
        try:
            moved = os.getcwd() != self._directory
        except OSError:  # the run's working directory was deleted
            moved = True
        if moved:
            os.chdir(self._directory)
        if processes.has_children():  # the worker is a subreaper, so daemons are among them
            left = set(processes.children()) - processes.SPARED
            processes.send(processes.descendants(left), signal.SIGKILL)
            intact = intact and not left
        return intact and threading.active_count() <= self._threads


_LIBRARIES: dict[str, Callable[[ModuleType, int], object]] = {
    "numpy.random": lambda module, key: module.seed(key % 2**32),
    "torch": lambda module, key: module.manual_seed(key % 2**63),
}


class Seeder(MetaPathFinder):
    """Seeds the global random generators for each run, so that no run depends on the one before it.

    A library that a run is the first to import is seeded right after its import: otherwise the first run of each
    worker would draw other numbers than the same run in a worker where the library is loaded already. That takes an
    import hook (`importlib.abc.MetaPathFinder`) in front of the usual ones.
    """

    def __init__(self) -> None:
        self._key = 0
        self._looking = False
        sys.meta_path.insert(0, self)

    def seed(self, key: int) -> None:
        """Seed the generators that are loaded now; those loaded later get the same key."""
        self._key = key
        random.seed(key)
        for name, seed in _LIBRARIES.items():
            if (module := sys.modules.get(name)) is not None:
                seed(module, key)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Called by Python for each import. Finds nothing itself: it takes what the other finders found, and
        lets the loader of the libraries above seed them."""
        if name not in _LIBRARIES or self._looking:
            return None
        self._looking = True
        try:
            spec = find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_seed(module: ModuleType) -> None:
                load(module)
                _LIBRARIES[name](module, self._key)

            spec.loader.exec_module = load_and_seed  # type: ignore[method-assign]
        return spec
