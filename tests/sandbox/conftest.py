"""Boxes for tests: a cache of their own, and a look at the machine after each test."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff.sandbox import cache, cgroups, leftovers, marks


@pytest.fixture(scope="session", autouse=True)
def own_cache() -> Iterator[Path]:
    """A cache for this test session. Short, because unix sockets are put there."""
    before = os.environ.get(cache.VARIABLE)
    with tempfile.TemporaryDirectory(prefix="bakeoff-test-") as directory:
        os.environ[cache.VARIABLE] = directory
        yield Path(directory)
        if before is None:
            del os.environ[cache.VARIABLE]
        else:
            os.environ[cache.VARIABLE] = before


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """The test fails when one of its boxes left a directory or a cgroup behind."""
    yield
    assert [path.name for path in leftovers.boxes().iterdir() if path.is_dir()] == []
    groups = [
        group for parent in set(cgroups.parents().values()) for group in parent.glob(f"{marks.PREFIX}{marks.maker()}*")
    ]
    assert groups == []
