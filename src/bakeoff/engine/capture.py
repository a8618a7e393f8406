"""Where a run's output goes: a scratch file that moves into the run's directory as soon as there is a reason.

Output goes straight from the run into a file; nothing is pumped through Python, so 500 MB cost nothing extra and
what was written survives any crash. A run that writes nothing costs two calls of stat and leaves nothing.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bakeoff.records.rundir import STDERR, STDOUT

_NUMBERS = {STDOUT: 1, STDERR: 2}


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        pass  # the run wrote something else


class Capture:
    """Two files, used by one run after another."""

    def __init__(self, scratch: Path, name: str) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self._paths = {STDOUT: str(scratch / f"{name}.out"), STDERR: str(scratch / f"{name}.err")}
        self._fds = {name: self._fresh(path) for name, path in self._paths.items()}
        self._settled = False
        self._standard = False

    @property
    def stdout(self) -> int:
        return self._fds[STDOUT]

    @property
    def stderr(self) -> int:
        return self._fds[STDERR]

    @staticmethod
    def _fresh(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def take_over_standard_streams(self) -> None:
        """Let descriptors 1 and 2 of this process be the captured ones. Ours stay: a run may close its own."""
        self._standard = True
        for name, number in _NUMBERS.items():
            os.dup2(self._fds[name], number)

    def intact(self) -> bool:
        """Whether descriptors 1 and 2 are still the captured ones."""
        try:
            return all(os.path.sameopenfile(self._fds[name], number) for name, number in _NUMBERS.items())
        except OSError:
            return False

    def settle(self, directory: Path) -> None:
        """Show what the run at hand writes under its final name from now on; open descriptors stay valid."""
        if not self._settled:
            directory.mkdir(parents=True, exist_ok=True)
            for name, path in self._paths.items():
                os.rename(path, directory / name)
            self._settled = True

    def finish(self, directory: Path, renew: bool = False) -> dict[str, Path]:
        """After a run: put what it wrote into its directory and be empty again. Returns the files that are not empty.

        `renew`: the old files are not used again even when empty, because something may still hold them open.
        """
        kept = {}
        for name, path in self._paths.items():
            size = os.fstat(self._fds[name]).st_size
            if size:
                kept[name] = directory / name
                self._keep(name, directory)
            elif self._settled:
                (directory / name).unlink(missing_ok=True)
            if size or self._settled or renew:
                self._renew(name, path)
        if self._settled and not kept:
            _remove_if_empty(directory)
        self._settled = False
        return kept

    def _keep(self, name: str, directory: Path) -> None:
        target = directory / name
        if self._settled and target.exists():
            return
        directory.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(self._paths[name], target)
        except FileNotFoundError:  # somebody deleted the directory; the descriptor still has the content
            shutil.copyfile(f"/proc/self/fd/{self._fds[name]}", target)

    def _renew(self, name: str, path: str) -> None:
        """Descriptors keep their numbers."""
        if os.path.exists(path):
            os.unlink(path)
        fresh = self._fresh(path)
        os.dup2(fresh, self._fds[name], inheritable=False)
        os.close(fresh)
        if self._standard:
            os.dup2(self._fds[name], _NUMBERS[name])

    def close(self) -> None:
        for name, path in self._paths.items():
            os.close(self._fds[name])
            if os.path.exists(path):
                os.unlink(path)
