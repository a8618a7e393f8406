"""A run's directory: what is in it, and `meta.json`, which lets the directory speak for itself.

The database is the truth; `meta.json` is for people, for other tools and for `bakeoff import`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from bakeoff.records import whole

META = "meta.json"
STDOUT = "stdout.txt"
STDERR = "stderr.txt"
SERIES = "metrics.jsonl"
ATTEMPTS = "attempts"


def write_meta(directory: Path, meta: Mapping[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    whole.write_text(directory / META, json.dumps(meta, indent=2, sort_keys=True) + "\n")


def read_meta(directory: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((directory / META).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def set_aside(directory: Path, attempt: int) -> None:
    """Move what earlier tries left into `attempts/`, so that nothing of it can pass for the next one's.

    `attempt` is the last one that was recorded. What a try left that no scheduler lived to record has no number of
    its own and becomes `attempts/<n>-lost`, so that `attempts/<n>` is always what attempt n left.
    """
    entries = [entry for entry in directory.iterdir() if entry.name != ATTEMPTS] if directory.is_dir() else []
    if not entries:
        return
    meta = read_meta(directory) or {}
    recorded = meta.get("attempt") == attempt and "status" in meta
    name = str(attempt) if recorded else f"{attempt + 1}-lost"
    target = directory / ATTEMPTS / name
    for number in count(2):
        if not target.exists():
            break
        target = directory / ATTEMPTS / f"{name}-{number}"
    target.mkdir(parents=True)
    for entry in entries:
        shutil.move(entry, target / entry.name)
