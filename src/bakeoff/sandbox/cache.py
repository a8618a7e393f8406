"""Where boxes and images live on this machine: BAKEOFF_CACHE, else the user's cache directory."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from bakeoff.errors import UsageError

VARIABLE = "BAKEOFF_CACHE"


def directory(*names: str) -> Path:
    """A directory of the cache, made when it is missing, for this user alone."""
    path = _base().joinpath(*names)
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; set {VARIABLE} to a directory that can be written") from None
    return path


def _base() -> Path:
    if given := os.environ.get(VARIABLE):
        return Path(given).absolute()
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "bakeoff"
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(home, os.W_OK):
            return home
    except OSError:
        pass  # a user without a home directory
    shared = Path(tempfile.gettempdir()) / f"bakeoff-cache-{os.geteuid()}"
    shared.mkdir(exist_ok=True, mode=0o700)
    facts = shared.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        raise UsageError(f"{shared} belongs to somebody else; set {VARIABLE} to a directory of yours")
    return shared


def remove(path: Path) -> None:
    """Remove a tree whatever modes its directories have and however deep it is. Links are removed, not followed."""

    def open_up(function: Callable[..., object], name: str, _: object) -> None:
        if not os.path.lexists(name):
            return
        for place in (os.path.dirname(name), name):
            if not os.path.islink(place):
                os.chmod(place, 0o700)
        if os.path.isdir(name) and not os.path.islink(name):
            shutil.rmtree(name)
        else:
            os.unlink(name)

    try:
        shutil.rmtree(path, onerror=open_up)
    except (RecursionError, OSError):  # thousands of directories in each other: too many frames, or open files
        for words in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*words, str(path)], capture_output=True, check=False)
            if not path.exists():
                return
        raise
