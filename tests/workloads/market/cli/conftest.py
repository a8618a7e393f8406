"""The command line of the market, in the test's own directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bakeoff.cli import main


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BAKEOFF_ROOT", "BAKEOFF_DATABASE_URL", "BAKEOFF_MARKET_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def bakeoff() -> Callable[..., Result]:
    """`bakeoff("market", "run", "--json")` calls the command line; output and error are apart."""
    return lambda *words: CliRunner().invoke(main, list(words), prog_name="bakeoff")
