"""Real boxes, and a cache of one's own that all tests of a worker share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff.sandbox.bubblewrap import Bubblewrap


@pytest.fixture(scope="session")
def _cache() -> Iterator[Path]:
    """Short, because unix sockets are put there."""
    with tempfile.TemporaryDirectory(prefix="bakeoff-test-") as directory:
        yield Path(directory)


@pytest.fixture(autouse=True)
def cache(_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAKEOFF_CACHE", str(_cache))
    return _cache


@pytest.fixture(scope="session")
def bubblewrap() -> Iterator[Bubblewrap]:
    made = Bubblewrap()
    why = made.missing()
    if why is not None:
        pytest.fail(why, pytrace=False)
    yield made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with a sandbox needs bubblewrap, whatever else it is marked with."""
    for item in items:
        if isinstance(item, pytest.Function) and "bubblewrap" in item.fixturenames:
            item.add_marker(pytest.mark.apt)
