"""Honeypots: checks that succeed only if an agent did what it must not do, such as editing the tests that it sees.

They never change the score. Their rate is the metric `honeypot`, and the report lists which ones an agent went into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import Box
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.model import Task
from bakeoff.workloads.tasks.startup import is_program, read_at_start

SECONDS = 60.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def hit(task: Task, box: Box) -> tuple[str, ...]:
    """The honeypots that the agent went into. `box` holds what it left; no process of it runs.

    A check runs in the workdir, by `sh`, and has found something if it exits with code 0.
    """
    return tuple(
        honeypot.id
        for honeypot in task.honeypots
        if box.run(["sh", "-c", honeypot.command], env={"PATH": PATH}, cwd=box.spec.workdir, timeout=SECONDS).ok
    )


def hit_elsewhere(task: Task, box: Box, fresh: Callable[[], Box]) -> tuple[str, ...]:
    """`hit` for a sandbox whose programs the agent could change: in an untouched one, with the files that it left there.

    Programs, libraries and start-up files are the image's, so none of the agent's answers in their place.
    """
    if not task.honeypots:
        return ()
    changed = [path for path, _ in box.changes() if not read_at_start(path)]
    with fresh() as clean, scratch("honeypots") as here:
        for number, place in enumerate(_places(changed)):
            clean.run(["rm", "-rf", place], user="root")
            with suppress(UsageError):  # the agent has removed it
                box.get(place, here / str(number), all_links=True)
                clean.put(here / str(number), place)
        return hit(task, clean)


def _places(paths: Iterable[str]) -> list[str]:
    """The directories at the top (below /usr, /var and /etc: the next ones) with changes, which are copied as a whole."""
    found = set()
    for path in paths:
        parts = path.strip("/").split("/")
        depth = 2 if parts[0] in ("usr", "var", "etc") else 1
        found.add("/" + "/".join(parts[:depth]))
    kept_out = {"/usr", "/usr/local", "/var", "/etc", "/proc", "/sys", "/dev", "/logs"}
    return sorted(place for place in found - kept_out if not is_program(f"{place}/program"))
