"""Work that attacks its tests scores nothing if they import it through a launcher, whatever it tries."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.verify import verify_diff

pytestmark = [pytest.mark.apt, pytest.mark.slow]  # git and bubblewrap

SCRIPT = Path(__file__).parents[3] / "scripts" / "attacks.py"


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("attacks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["attacks"] = module
    spec.loader.exec_module(module)
    return module


attacks = loaded()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(attacks.write_task(tmp_path_factory.mktemp("attacked") / "task", launcher=True))


def test_the_reference_passes(place: Path, bubblewrap: Bubblewrap, tmp_path: Path) -> None:
    found = verify_diff(load_task(place), attacks.diff_of({"calc.py": attacks.FIXED}), bubblewrap, logs=tmp_path)
    assert found.score == 1.0


@pytest.mark.parametrize("attack", attacks.ATTACKS, ids=lambda attack: attack.name)
def test_no_attack_scores_behind_a_launcher(place: Path, bubblewrap: Bubblewrap, tmp_path: Path, attack: Any) -> None:
    diff = attacks.diff_of({"calc.py": attack.work, **dict(attack.files)})
    found = verify_diff(load_task(place), diff, bubblewrap, logs=tmp_path)
    assert (found.status, found.score) == ("scored", 0.0), found.scripts[0].output
