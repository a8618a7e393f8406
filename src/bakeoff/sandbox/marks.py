"""Names that say whose they are: everything a sandbox leaves on the machine is named after the process that made it.

`<pid namespace>-<pid>-<start time>-<number>[-<word>]`: no two are alike, and anybody can tell whether the maker still
lives, so that a later start removes what a killed process could not.
"""

from __future__ import annotations

import os
import re
from itertools import count

from bakeoff.engine import processes

PREFIX = "bakeoff-"
_numbers = count(1)
_MARK = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)(-[\w.-]+)?", re.ASCII)


def maker() -> str:
    """The part of a mark that names this process."""
    pid = os.getpid()
    return f"{_pid_namespace()}-{pid}-{processes.born(pid)}"


def fresh(word: str = "") -> str:
    """A mark nobody else has."""
    return f"{maker()}-{next(_numbers)}" + (f"-{word}" if word else "")


def abandoned(mark: str) -> bool:
    """Whether this is a mark whose maker, of our own pid namespace, is gone."""
    found = _MARK.fullmatch(mark)
    if found is None or int(found[1]) != _pid_namespace():
        return False
    return processes.born(int(found[2])) != int(found[3]) or not processes.alive(int(found[2]))


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
