"""A way to call the command line, in a place of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bakeoff.cli import main
from bakeoff.records.edition import Edition
from support import editions
from support.experiments import run_bench_and_train


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BAKEOFF_ROOT", "BAKEOFF_DATABASE_URL", "COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    scratch = tmp_path_factory.mktemp("scratch")  # reproduce leaves what it ran there
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))


@pytest.fixture
def bakeoff() -> Callable[..., Result]:
    """`bakeoff("ls", "--json")` is the command line of that name, with output and error apart."""

    def call(*arguments: str | os.PathLike[str]) -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="bakeoff")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def make_edition(tmp_path: Path) -> Callable[..., Edition]:
    """`editions.make_edition` in this test's directory, which is also the working directory."""
    return partial(editions.make_edition, tmp_path)


@pytest.fixture(scope="session")
def laboratory_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of experiments that the real engine has run, once: `bench` and `train`."""
    return run_bench_and_train(tmp_path_factory.mktemp("laboratory"))
