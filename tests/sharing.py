"""What takes long to make and is only read: one worker makes it, and the tests of all workers use it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A directory of this test session that `make(directory)` has filled, in the first worker that asks for it.

    Other workers wait for it, and make it themselves if that fails.
    """
    base = factory.getbasetemp()
    if base.name.startswith("popen-"):  # a worker of xdist; its siblings are beside it
        base = base.parent
    place, done = base / name, base / f"{name}.done"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            place.mkdir(exist_ok=True)
            make(place)
            done.touch()
    return place
