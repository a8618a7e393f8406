from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bakeoff.results.sources import open_results
from bakeoff.results.table import Results

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Results]:
    """`read("inspect/skill", reruns="newest")` reads fixtures, or other paths, as `compare` does."""

    def call(*names: str | Path, **flags: Any) -> Results:
        places = [FIXTURES / name if isinstance(name, str) else name for name in names]
        return open_results([str(place) for place in places], tmp_path / "root", flags)

    return call
