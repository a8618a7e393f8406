"""A run's directory: the names of its files, `meta.json`, earlier attempts, and the output that says why it failed.

The database is the truth. `meta.json` lets a directory speak for itself: for people, for other tools and for
`bakeoff import`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from bakeoff.records.files import open_inside, read_inside
from bakeoff.records.layout import atomic_write

META = "meta.json"
PARAMS = "params.json"
"""All parameters, for a command whose parameters do not fit into a variable."""
STDOUT = "stdout.txt"
STDERR = "stderr.txt"
SERIES = "metrics.jsonl"
TRAJECTORY = "trajectory.jsonl.zst"
ATTEMPTS = "attempts"
CHECKPOINT = "checkpoint"
"""A directory that outlives attempts: the next one goes on from what it finds there."""
_ATTEMPT = re.compile(r"\d{1,9}(-lost)?(-\d{1,9})?")


def write_meta(directory: Path, meta: Mapping[str, Any]) -> None:
    """Write `meta.json` in one step; makes the directory when it is not there."""
    directory.mkdir(parents=True, exist_ok=True)
    atomic_write(directory / META, json.dumps(meta, indent=2, sort_keys=True) + "\n")


def read_meta(directory: Path) -> dict[str, Any] | None:
    """The table in `meta.json`; None when there is none that can be read."""
    try:
        meta = json.loads(read_inside(directory, META))
    except (OSError, ValueError, RecursionError):
        return None
    return meta if isinstance(meta, dict) else None


def set_aside(directory: Path, attempt: int, *, checkpoint: bool = False) -> None:
    """Move what earlier attempts left into `attempts/`, so that nothing of it can pass for the next one's.

    With `checkpoint`, that directory stays where it is.

    `attempt` is the last one that was recorded. An attempt whose scheduler was killed before it could record it has
    no number: what it left becomes `attempts/<n>-lost`, so that `attempts/<n>` is always what attempt n left. What a run
    put in the place of its directory (a file, a link) is deleted: it would be in the way of every further attempt.
    """
    if directory.is_symlink() or not directory.is_dir():
        directory.unlink(missing_ok=True)
    stay = {ATTEMPTS, CHECKPOINT} if checkpoint and not (directory / CHECKPOINT).is_symlink() else {ATTEMPTS}
    entries = [entry for entry in directory.iterdir() if entry.name not in stay] if directory.is_dir() else []
    if not entries:
        return
    meta = read_meta(directory) or {}
    recorded = meta.get("attempt") == attempt and "status" in meta
    name = str(attempt) if recorded else f"{attempt + 1}-lost"
    kept = directory / ATTEMPTS
    if kept.is_symlink():  # a run's doing: what is moved must stay here
        kept.unlink()
    target = kept / name
    for number in count(2):
        if not target.exists():
            break
        target = kept / f"{name}-{number}"
    target.mkdir(parents=True)
    for entry in entries:
        shutil.move(entry, target / entry.name)


def continued_attempts(directory: Path) -> list[str]:
    """Where the attempts are that the run went on from, oldest first, as paths in its directory.

    An attempt whose checkpoint was set aside with it is not one of these.
    """
    attempts = directory / ATTEMPTS
    if not (directory / CHECKPOINT).is_dir() or not attempts.is_dir():
        return []
    earlier = [name for name in os.listdir(attempts) if _ATTEMPT.fullmatch(name)]
    earlier = [name for name in earlier if not os.path.lexists(attempts / name / CHECKPOINT)]
    # `2-lost` and `2-lost-2` had no number of their own when they ran; attempt 2 was started after them.
    earlier.sort(key=lambda name: (int(name.partition("-")[0]), "lost" not in name, len(name), name))
    return [f"{ATTEMPTS}/{name}" for name in earlier]


def log_of(directory: Path) -> Path | None:
    """The output that probably says why a run failed: standard error, else standard output, if not empty."""
    for name in (STDERR, STDOUT):
        try:
            with open_inside(directory, name) as file:
                if os.fstat(file.fileno()).st_size:
                    return directory / name
        except OSError:
            continue
    return None
