"""Files that attempts name and nodes without a shared file system do not have: they travel by content digest.

At home, an order gets the names of what it needs, and a node that has not got it asks for it:

    attachments = Attachments(base, task_paths)
    order = attachments.attach(order)          # files = {"../tasks/sums": "sha256-.../sums", ...}
    attachments.pack("sha256-...", file)       # when a node asks

On the node it is unpacked into a directory whose name is the digest, and the attempt's parameters name that place
instead. What is attached: directories and files of tasks, and whatever a parameter names by a path that begins with
`..`, or by an absolute path below the experiment file's directory. Other absolute paths are the node's own.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import msgspec

from bakeoff.engine.pilots.messages import Order
from bakeoff.engine.pilots.packing import pack_whole, unpack
from bakeoff.errors import UsageError

_PREFIX = "sha256-"
"""Digests begin with it; no run id does, since those have `__s` and the seed in them."""


class Attachments:
    """What nodes may ask for, at home."""

    def __init__(self, base: Path, tasks: Collection[Path]) -> None:
        """`base` is the experiment file's directory; `tasks` are the paths of all tasks of the plan."""
        self._base = base.absolute()
        self._tasks = {Path(os.path.normpath(self._base / path)) for path in tasks}
        self._digests: dict[Path, str] = {}
        self._paths: dict[str, Path] = {}
        self._of_params = lru_cache(maxsize=4096)(self._find)  # attempts of one cell have the same parameters

    def attach(self, order: Order) -> Order:
        """The order with the digests of what it needs. Raises UsageError for what cannot be sent."""
        files = self._of_params(order.attempt.params)
        return msgspec.structs.replace(order, files=files) if files else order

    def _find(self, params: str) -> dict[str, str]:
        found: dict[str, str] = {}

        def look(text: str) -> str:
            path = Path(os.path.normpath(self._base / text))
            if text not in found and self._wanted(text, path) and path.exists():
                found[text] = f"{self._digest(path)}/{path.name}"
            return text

        # Quicker than decoding: most parameters name no path.
        if "/" in params or ".." in params:
            _each_text(json.loads(params), look)
        return found

    def _wanted(self, text: str, path: Path) -> bool:
        if not text or "\0" in text or len(text) > 4096:
            return False
        below = text.startswith("/") and path.is_relative_to(self._base)
        return below or text == ".." or text.startswith("../") or path in self._tasks

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            if self._base.resolve().is_relative_to(path.resolve()):
                raise UsageError(
                    f"{path} is named by a parameter and has the experiment file's directory in it: it cannot be sent to "
                    "nodes. Name what runs need of it"
                )
            sink = _Digest()
            try:
                pack_whole(path, sink)  # type: ignore[arg-type]
            except OSError as error:
                raise UsageError(f"{path} cannot be sent to nodes: {error}") from error
            self._digests[path] = sink.name()
            self._paths[sink.name()] = path
        return self._digests[path]

    def pack(self, digest: str, file: IO[bytes]) -> bool:
        """Write the archive of this digest to `file`; False when nothing that is attached has it."""
        path = self._paths.get(digest)
        if path is not None:
            pack_whole(path, file)
        return path is not None


class _Digest:
    """A file that only counts: how much was written, and its digest."""

    def __init__(self) -> None:
        self._sha256, self._size = hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self._sha256.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def name(self) -> str:
        return _PREFIX + self._sha256.hexdigest()


def is_digest(name: str) -> bool:
    """Whether a name that is asked for is that of an attachment, and not a run's id."""
    return name.startswith(_PREFIX)


def unpack_attachment(digest: str, file: IO[bytes], target: Path) -> None:
    """Make `target` from the archive of an attachment. Raises OSError when its content is not what the digest says."""
    received = _PREFIX + hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    if received != digest:
        raise OSError("files of the experiment have changed since it was started, or were damaged on their way")
    file.seek(0)
    unpack(file, target, sync=False, links=True)


def with_places(params: str, files: Mapping[str, str], cache: Path) -> str:
    """The parameters of an attempt, with the places on this node of what is attached to it."""
    tree = _each_text(json.loads(params), lambda text: str(cache / files[text]) if text in files else text)
    return json.dumps(tree)


def _each_text(tree: Any, change: Callable[[str], str]) -> Any:
    """The tree with every text changed; keys of tables stay."""
    if isinstance(tree, str):
        return change(tree)
    if isinstance(tree, list):
        return [_each_text(each, change) for each in tree]
    if isinstance(tree, dict):
        return {name: _each_text(each, change) for name, each in tree.items()}
    return tree
