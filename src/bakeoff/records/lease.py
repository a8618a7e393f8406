"""The right to write an edition: a lock that the kernel releases when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from bakeoff.errors import LeaseHeld, StorageError

_TRIES = 5


class Lease:
    """Held from construction until `release`, or until this process is gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = open(path, "a+")  # noqa: SIM115 - held as long as the lease
        except OSError as error:
            raise StorageError(f"{path.parent}: cannot be written: {error.strerror}") from error
        if not self._lock():
            holder = _holder(self._file)
            self._file.close()
            raise LeaseHeld(
                f"{path.parent.parent.name}/{path.parent.name} is being run by {holder}. "
                "Wait for it (--wait does), stop it, or start a new edition with --fresh"
            )
        me = {
            "pid": os.getpid(),
            "host": platform.node(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        }
        try:
            self._file.truncate(0)
            self._file.write(json.dumps(me))
            self._file.flush()
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error.strerror}") from error

    def _lock(self) -> bool:
        """A reader that asks `is_held` holds the file for an instant, so one refusal is not yet an answer."""
        for _ in range(_TRIES):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.02)
            except OSError as error:
                raise StorageError(f"{self._path}: cannot be locked: {error.strerror}") from error
        return False

    def release(self) -> None:
        self._file.close()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_held(path: Path) -> bool:
    """Whether somebody is running this edition now."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _holder(file: IO[str]) -> str:
    """Who holds it. The one who has only just taken it needs a moment to write down its name."""
    for _ in range(20):
        file.seek(0)
        try:
            holder = json.loads(file.read())
            return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
        except (ValueError, KeyError):
            time.sleep(0.01)
    return "another process"
