"""An experiment with trajectories, exported in every format, and what the training libraries make of that."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bakeoff.export.exporting import FORMATS, export
from bakeoff.export.rollouts import Filters
from bakeoff.results.sources import open_results
from support.experiments import made_once, run_talks

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of results of `talks`."""
    return run_talks(tmp_path_factory.mktemp("talks"))


@pytest.fixture
def results(talks: Path) -> Any:
    with closing(open_results(["talks"], talks)) as results:
        yield results


@pytest.fixture(scope="session")
def exported(talks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with every format below its own name."""
    place = tmp_path_factory.mktemp("exported")
    with closing(open_results(["talks"], talks)) as results:
        for name, form in FORMATS.items():
            export(results, name, Filters(), output=place / form.file)
    return place


@pytest.fixture(scope="session")
def seen(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each library found in the files, by its own code, in its own environment."""
    home = Path(os.environ.get("BAKEOFF_TRAINERS", ROOT / ".trainers"))
    python = home / "bin/python"
    if not python.exists():
        pytest.fail("the training libraries are not installed: run `make test`, or scripts/install-trainers.sh", False)
    # Coverage would follow into an environment that has none of it.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}

    def load(place: Path) -> None:
        command = [python, "-W", "ignore", Path(__file__).with_name("loading.py"), exported, place / "seen.json"]
        done = subprocess.run(command, cwd=exported, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr

    return json.loads((made_once(tmp_path_factory, "seen", load) / "seen.json").read_text())
