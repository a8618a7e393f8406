"""Editions in both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff.records import layout
from bakeoff.records.edition import Edition
from bakeoff.records.store import URL_VARIABLE
from bakeoff.spec.plan import Plan
from support.editions import SETTINGS, Begin, make_plan


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.apt)])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which database the test is about; the variable that says so is set."""
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    if request.param == "postgres":
        monkeypatch.setenv(URL_VARIABLE, request.getfixturevalue("postgres_url")())
    return str(request.param)


@pytest.fixture
def begin(tmp_path: Path, store: str) -> Iterator[Begin]:
    """Makes an edition of a plan; closed when the test ends."""
    made: list[Edition] = []

    def begin_edition(plan: Plan | None = None, *, runs: bool = True) -> Edition:
        plan = make_plan() if plan is None else plan
        paths = layout.new_edition(layout.experiment_directory(tmp_path / "root", plan.experiment.name))
        paths.lease.touch()
        edition = Edition.create(plan, paths)
        made.append(edition)
        if runs:
            edition.add_cells(plan.cells, SETTINGS)
            edition.add_runs(plan)
        return edition

    yield begin_edition
    for edition in made:
        edition.close()
