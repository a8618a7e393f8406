"""Many thousand verdicts in one process."""

from __future__ import annotations

import pytest
from calibrate.count import keep_freed_memory


@pytest.fixture(scope="session", autouse=True)
def memory_is_kept() -> None:
    keep_freed_memory()


@pytest.fixture(autouse=True)
def uncounted(untraced: None) -> None:
    """Counting lines would double the time, and every line here is covered elsewhere."""
