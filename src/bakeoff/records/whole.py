"""Files that are whole or not there at all: a reader sees the old one or the new one, never half of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def replace(path: Path, write_to: Callable[[Any], object]) -> None:
    """Let `write_to` write a file beside `path`, which then takes its place."""
    fresh = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        write_to(fresh)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    replace(path, lambda fresh: fresh.write_text(text))


def write_bytes(path: Path, data: bytes) -> None:
    replace(path, lambda fresh: fresh.write_bytes(data))
