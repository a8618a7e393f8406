"""Scratch directories of pilots and hosts, below TMPDIR. What a killed process left is deleted by the next one that starts there.

A directory belongs to whoever holds the lock on the file `.lock` in it. The kernel frees the lock when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from bakeoff.engine.pilots.arrivals import remove

_PREFIX = "bakeoff-scratch-"
_LOCK = ".lock"


class Scratch:
    """A directory of this process. `path` is where it is; `close` deletes it."""

    def __init__(self, name: str) -> None:
        sweep()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{name}-"))
            self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with suppress(OSError):  # a file system without locks: then nobody sweeps it, either
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            if (self.path / _LOCK).exists():
                return
            os.close(self._lock)  # somebody swept it between the two calls

    def close(self) -> None:
        remove(self.path)
        lock, self._lock = self._lock, -1
        if lock >= 0:  # it may be closed by two threads of a host
            os.close(lock)


def sweep() -> None:
    """Delete the scratch directories of this user whose processes have died."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if path.is_symlink() or path.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # somebody else's, or just being made or deleted
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(path)
        except OSError:
            pass  # it is in use
        finally:
            os.close(lock)
