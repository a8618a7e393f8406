"""A directory for the time being, which is removed even when its maker is killed: by whoever starts next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bakeoff.sandbox import cache, leftovers, marks


@contextmanager
def scratch(word: str = "") -> Iterator[Path]:
    place = leftovers.boxes() / marks.fresh(word)
    place.mkdir(mode=0o700)
    try:
        yield place
    finally:
        if place.exists():  # it may have been moved to where it belongs
            cache.remove(place)
