"""The page "Write your own workload" and the example in `spec/workload.py` work as they stand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bakeoff.spec import workload

PAGE = (Path(__file__).parents[2] / "docs" / "write-a-workload.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```(?:python|toml)\n# ([\w.]+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = [
    line for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the page, installed as `pip install -e .` does: on the path, with their entry points."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    metadata = tmp_path / "coins-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: coins\nVersion: 1\n")
    groups = tomllib.loads(FILES["pyproject.toml"])["project"]["entry-points"]
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in table.items())
        for group, table in groups.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("BAKEOFF_ROOT", str(tmp_path / "results"))
    return tmp_path


def call(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "bakeoff", *arguments]
    return subprocess.run(argv, cwd=project, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_every_command_of_the_page_runs_and_tells_the_coins_apart(project: Path) -> None:
    assert COMMANDS == ["bakeoff validate coins.toml", "bakeoff run coins.toml", "bakeoff compare coins"]
    for line in COMMANDS:
        done = call(project, *line.split()[1:])
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    (verdict,) = [
        comparison["verdict"]
        for comparison in json.loads(call(project, "compare", "coins", "--json").stdout)["comparisons"]
    ]
    assert verdict == "better"


@pytest.mark.slow
def test_a_wrong_parameter_is_reported_with_its_key_before_anything_runs(project: Path) -> None:
    done = call(project, "run", "coins.toml", "--set", "params.flips=0")
    assert done.returncode == 2 and "params.flips" in done.stderr
    assert not (project / "results").exists()


@pytest.mark.slow
def test_the_command_workload_of_the_page_runs_and_its_check_speaks(project: Path) -> None:
    (project / "dice.toml").write_text('workload = "dice"\nseeds = 3\n[matrix]\nsides = [1, 6]\n')
    done = call(project, "run", "dice.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["succeeded"] == 6
    assert "a die with one side always shows 1" in done.stderr


def test_the_verb_of_the_page_is_a_verb_and_in_the_help(project: Path) -> None:
    assert "Flip one coin." in call(project, "--help").stdout
    assert call(project, "flip", "--bias", "1").stdout == "heads\n"


def test_the_example_in_the_interface_is_a_workload_and_runs() -> None:
    documentation = workload.__doc__ or ""
    code = documentation.partition("A complete one:")[2].partition("A package registers it")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    names: dict[str, Any] = {"__name__": "example"}  # pydantic looks annotations up in the module
    exec(textwrap.dedent(code), names)
    coin = names["CoinWorkload"]()
    assert isinstance(coin, workload.Workload)
    logged: list[tuple[int, Any]] = []
    ctx = SimpleNamespace(
        rng=lambda name: np.random.default_rng(1), log=lambda step, **values: logged.append((step, values))
    )
    outcome = coin.run(coin.Params(bias=1.0), ctx)
    assert outcome.metrics == {"heads": 1.0} and logged == [(0, {"heads": True})]
