"""What a run is, as bytes: canonical JSON, digests and run ids. No path, host or time goes in."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DIGEST_LENGTH = 12


def canonical_json(value: Any) -> str:
    """Compact, key-sorted, ASCII JSON: equal values give equal text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def slug(text: str, limit: int = 48) -> str:
    """`text` as part of a file name: anything but letters, digits and `-_.+=` becomes `_`."""
    clean = re.sub(r"[^A-Za-z0-9\-_.+=]", "_", text).strip("_.") or "_"
    return clean[:limit]


class RunIds:
    """Run ids of one cell: everything but seed and rollout is serialised once, so 100,000 ids are quick."""

    def __init__(
        self, *, workload: str, revision: str, arm: str, task: str, task_digest: str | None, params: Mapping[str, Any]
    ) -> None:
        identity = {
            "arm": arm,
            "params": params,
            "rollout": 0,
            "seed": 0,
            "task": task_digest or task,
            "workload": [workload, revision],
        }
        # Keys are sorted, so rollout and seed are neighbours and the text splits around them.
        head, tail = canonical_json(identity).rsplit('"rollout":0,"seed":0,', 1)
        self._head = hashlib.sha256(head.encode())
        self._tail = tail.encode()
        self._prefix = slug(arm) if task == "default" else f"{slug(arm)}__{slug(task)}"

    def digest(self, seed: int, rollout: int) -> str:
        digest = self._head.copy()
        digest.update(b'"rollout":%d,"seed":%d,' % (rollout, seed))
        digest.update(self._tail)
        return digest.hexdigest()[:DIGEST_LENGTH]

    def run_id(self, seed: int, rollout: int) -> str:
        middle = f"__s{seed}__r{rollout}__" if rollout else f"__s{seed}__"
        return self._prefix + middle + self.digest(seed, rollout)


def directory_digest(path: Path) -> str:
    """Digest of a file or directory by content: relative names, executable bits and bytes; no times, no owners."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and ".git" not in p.parts)
    for file in files:
        name = "" if file == path else file.relative_to(path).as_posix()
        executable = "x" if file.stat().st_mode & 0o100 else "-"
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{name}\0{executable}\0{content}\n".encode())
    return digest.hexdigest()
