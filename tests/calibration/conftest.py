"""Many thousand verdicts in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from calibrate.count import keep_freed_memory

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Counting lines would double the time, and every line here is covered elsewhere."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("no_cover")


@pytest.fixture(scope="session", autouse=True)
def memory_is_kept() -> None:
    keep_freed_memory()
