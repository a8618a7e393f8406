"""The right to write an edition: a lock that the kernel releases when its holder dies, however it dies.

It is an flock(2) on the file `.lease`, so it needs no cleanup after a crash. The file's content only says who holds it.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from pathlib import Path
from types import TracebackType

from bakeoff.errors import LeaseHeld, StorageError


class Lease:
    """Held from construction until `release`, or until this process is gone.

    Raises LeaseHeld, which names the holder, and StorageError when the file cannot be written or locked.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = open(path, "a+")  # noqa: SIM115 - held as long as the lease
        except OSError as error:
            raise StorageError(f"{path.parent}: cannot be written: {error.strerror}") from error
        for _ in range(5):  # a reader that asks `is_held` holds the lock for an instant
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError as error:
                raise StorageError(f"{path}: cannot be locked: {error.strerror}") from error
        else:
            holder = self._holder()
            self._file.close()
            raise LeaseHeld(
                f"{path.parent.parent.name}/{path.parent.name} is being run by {holder}. "
                "Wait for it (--wait does), stop it, or start a new edition with --fresh"
            )
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        try:
            self._file.truncate(0)
            self._file.write(json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since}))
            self._file.flush()
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error.strerror}") from error

    def _holder(self) -> str:
        """Who holds the lease. A holder that has only just taken it needs a moment to write its name."""
        for _ in range(20):
            self._file.seek(0)
            try:
                holder = json.loads(self._file.read())
                return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
            except (ValueError, KeyError):
                time.sleep(0.01)
        return "another process"

    def release(self) -> None:
        self._file.close()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_held(path: Path) -> bool:
    """Whether the edition with this lease is being run now. Readers share the lock, so they do not disturb each other."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
