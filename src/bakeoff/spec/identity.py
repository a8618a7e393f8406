"""What a run is, as bytes: dotted parameter names, canonical JSON, digests and run ids. No path, host or time goes in."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from json import encoder
from pathlib import Path
from typing import Any, NewType

from bakeoff.errors import Damaged, UsageError
from bakeoff.trees import walk

RunId = NewType("RunId", str)
"""The id of a run, which is the name of its directory. `RunIds` makes them; `run_id_in` checks one from elsewhere."""
DIGEST_LENGTH = 12
NOT_CONTENT = frozenset({".git", "__pycache__"})
"""Directories inside a task that say nothing about what the task is."""
MAX_TASK_LEVELS = 400
"""Directories inside each other. Copying a task takes a frame of Python for each."""

# Numbers are written by Python's repr, the shortest text that reads back as the same float: equal on every platform. That
# differs from RFC 8785 (JSON Canonicalization Scheme), whose number format is JavaScript's.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, check_circular=False)
# What `_ENCODER.encode` makes anew for each table, which takes as long as encoding a small one. Only CPython has it.
_make_encoder = getattr(encoder, "c_make_encoder", None)
_encode_parts: Callable[[Any, int], tuple[str, ...]] | None = _make_encoder and _make_encoder(
    None, _ENCODER.default, encoder.encode_basestring_ascii, None, ":", ",", True, False, True
)
# What may stand in a file name on every file system that we know of, and does not need quotes in a shell.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9\-_.+=]")
# For directories named by a user: letters of every script stay, or many names would be `_`.
NOT_IN_DIRECTORIES = re.compile(r"[^A-Za-z0-9\-_.+=\u0080-\U0010ffff]")


def canonical_json(value: Any) -> str:
    """Compact, key-sorted, ASCII JSON: equal values give equal text on every machine. NaN and infinities have names."""
    if _encode_parts is not None:
        return "".join(_encode_parts(value, 0))
    return _ENCODER.encode(value)


def slug(text: str, limit: int = 48, *, unwanted: re.Pattern[str] = _NOT_IN_NAMES) -> str:
    """`text` as part of a file name of at most `limit` bytes: anything but letters, digits and `-_.+=` becomes `_`."""
    # No leading dot (hidden), no leading dash (an option), and never empty.
    name = unwanted.sub("_", text).strip("_.").lstrip("-_.") or "_"
    return name.encode(errors="surrogateescape")[:limit].decode(errors="ignore") or "_"


def run_id_in(source: Path, text: str) -> RunId:
    """The id that an edition, a node or another tool gives a run. Raises Damaged if it leads out of a directory."""
    if "/" in text or "\0" in text or text in ("", ".", ".."):
        raise Damaged(source, f"{text!r} cannot be the id of a run")
    return RunId(text)


class RunIds:
    """Run ids of one cell: everything but seed and rollout is serialised once, so 100,000 ids are quick.

    The digest is that of the canonical JSON of `{arm, flags, params, rollout, seed, task, workload}`, in this order;
    `flags` only where there are any, and `task` with its content's digest where it has content.
    """

    __slots__ = ("_arm", "_head", "_prefix", "_tail", "_task")

    def __init__(
        self,
        *,
        workload: str,
        revision: str,
        arm: str,
        task: str,
        task_digest: str | None,
        params: str,
        flags: Sequence[str] = (),
    ) -> None:
        """`params` are canonical JSON."""
        more = f'"flags":{canonical_json(list(flags))},' if flags else ""
        self._head = f'{{"arm":{canonical_json(arm)},{more}"params":{params},'.encode()
        self._tail = _tail(workload, revision, task, task_digest)
        self._arm, self._task = arm, task
        self._prefix: str | None = None

    def run_id(self, seed: int, rollout: int) -> RunId:
        """`arm__task__s1__r2__digest`; a task called `default` and rollout 0 are left out."""
        if self._prefix is None:
            self._prefix = slug(self._arm) if self._task == "default" else f"{slug(self._arm)}__{slug(self._task)}"
        # Keys in the order in which a sorting encoder would write them, so this equals encoding the whole table.
        text = b'%b"rollout":%d,"seed":%d,%b' % (self._head, rollout, seed, self._tail)
        digest = hashlib.sha256(text).hexdigest()[:DIGEST_LENGTH]
        name = f"{self._prefix}__s{seed}__r{rollout}" if rollout else f"{self._prefix}__s{seed}"
        return RunId(f"{name}__{digest}")

    __call__ = run_id


@lru_cache(maxsize=64)  # cells come task by task, so the last few tasks are enough
def _tail(workload: str, revision: str, task: str, task_digest: str | None) -> bytes:
    named = task if task_digest is None else [task, task_digest]
    return f'"task":{canonical_json(named)},"workload":{canonical_json([workload, revision])}}}'.encode()


def directory_digest(path: Path, max_levels: int | None = MAX_TASK_LEVELS) -> str:
    """Return the digest of a file or directory by content: relative names, executable bits and bytes; no times, no owners.

    Raises UsageError where directories are nested deeper than `max_levels`: tasks are copied by tools that fail there.
    """
    digest = hashlib.sha256()
    for name, file in sorted(
        _content(path, max_levels)
    ):  # by bytes: the order of a directory listing differs between machines
        if file.is_symlink() and not file.is_file():
            kind, content = "l", hashlib.sha256(os.fsencode(os.readlink(file))).hexdigest()
        else:
            kind = "x" if file.stat().st_mode & 0o100 else "-"
            with file.open("rb") as opened:
                content = hashlib.file_digest(opened, "sha256").hexdigest()
        digest.update(name + f"\0{kind}\0{content}\n".encode())
    return digest.hexdigest()


def _content(path: Path, max_levels: int | None) -> Iterator[tuple[bytes, Path]]:
    """Files below `path` by their relative name; links to directories count as links and are not followed."""
    if not path.is_dir():
        yield b"", path
        return
    for folder, folders, files in walk(path):
        if max_levels is not None and folder.count(os.sep) - os.fspath(path).count(os.sep) > max_levels:
            raise UsageError(
                f"{path}: directories in it are nested more than {max_levels} levels deep\n  fix: remove them"
            )
        folders[:] = [name for name in folders if name not in NOT_CONTENT]
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in (*files, *links):
            file = Path(folder, name)
            if file.is_file() or file.is_symlink():  # sockets and pipes have no content
                yield os.fsencode(file.relative_to(path).as_posix()), file


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys."""
    if not prefix and dict not in map(type, tree.values()):  # the usual case, and called for each of many cells
        return dict(tree)
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat
