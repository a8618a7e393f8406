"""Where a run's output goes: a scratch file that moves into the run's directory as soon as there is a reason.

Output goes straight from the run into a file; nothing is pumped through Python, so 500 MB cost nothing extra and
what was written survives any crash. A run that writes nothing costs two calls of stat and leaves no directory.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bakeoff.records.rundir import STDERR, STDOUT

_NUMBERS = {STDOUT: 1, STDERR: 2}


def _open(path: str) -> int:
    # O_APPEND: a run and its children may hold the file open at the same time, and none overwrites the other.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)


class Capture:
    """Two files, used by one run after another."""

    def __init__(self, scratch: Path, name: str) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self._paths = {STDOUT: str(scratch / f"{name}.out"), STDERR: str(scratch / f"{name}.err")}
        self._fds = {name: _open(path) for name, path in self._paths.items()}
        # Descriptors for the run. Their numbers stay the same when the files behind them are renewed.
        self.stdout, self.stderr = self._fds[STDOUT], self._fds[STDERR]
        self._settled = False
        self._standard = False

    def take_over_standard_streams(self) -> None:
        """Make descriptors 1 and 2 of this process the captured ones. Our copies stay: a run may close its own."""
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
        """Move the files into `directory` now, so that they can be read during the run; open descriptors stay valid."""
        if not self._settled:
            directory.mkdir(parents=True, exist_ok=True)
            for name, path in self._paths.items():
                os.rename(path, directory / name)
            self._settled = True

    def finish(self, directory: Path, renew: bool = False) -> dict[str, Path]:
        """After a run: move what it wrote into its directory and start with empty files. Returns those not empty.

        `renew`: do not use the old files again even when empty, because a process may still hold them open. Raises
        OSError when the output cannot be moved there; it is lost then.
        """
        kept = {}
        try:
            for name, path in self._paths.items():
                size = os.fstat(self._fds[name]).st_size
                if not (size or self._settled or renew):
                    continue
                target = directory / name
                if size:
                    kept[name] = target
                    if not (self._settled and target.exists()):
                        directory.mkdir(parents=True, exist_ok=True)
                        try:
                            os.rename(path, target)
                        except FileNotFoundError:  # the run directory was deleted; the descriptor still has the content
                            shutil.copyfile(f"/proc/self/fd/{self._fds[name]}", target)
                elif self._settled:
                    target.unlink(missing_ok=True)
                self._renew(name)
        except OSError:  # the run put something else in its directory's place: the next run must not get its output
            for name in self._paths:
                self._renew(name)
            self._settled = False
            raise
        if self._settled and not kept:
            try:
                directory.rmdir()
            except OSError:
                pass  # the run wrote other files
        self._settled = False
        return kept

    def _renew(self, name: str) -> None:
        """Open a new file under the same descriptor numbers."""
        path = self._paths[name]
        if os.path.exists(path):
            os.unlink(path)
        fresh = _open(path)
        os.dup2(fresh, self._fds[name], inheritable=False)
        os.close(fresh)
        if self._standard:
            os.dup2(self._fds[name], _NUMBERS[name])

    def close(self) -> None:
        """Close and delete the scratch files."""
        for name, path in self._paths.items():
            os.close(self._fds[name])
            if os.path.exists(path):
                os.unlink(path)
