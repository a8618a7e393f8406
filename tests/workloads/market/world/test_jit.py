"""Compiled kernels are cached on disk; numba is an extra, and whoever needs it is told its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bakeoff
from bakeoff.errors import install

WITHOUT_NUMBA = "import sys; sys.modules['numba'] = None\n"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["world.world", "world.advance", "envs.gymnasium_env"])
def test_without_numba_the_world_names_the_extra_that_brings_it(module: str) -> None:
    done = python(f"{WITHOUT_NUMBA}import bakeoff.workloads.market.{module}")
    assert done.stderr.splitlines()[-1] == (
        "bakeoff.errors.UsageError: the market world needs the package numba: " + install("market")
    )


def test_without_numba_a_verb_ends_with_a_usage_error_that_names_the_extra(tmp_path: Path) -> None:
    done = python(
        f"{WITHOUT_NUMBA}from bakeoff.cli import main; main()",
        "market",
        "generate",
        "--output",
        str(tmp_path / "x.json"),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert install("market") in done.stderr and "Traceback" not in done.stderr


def test_without_numba_an_experiment_is_refused_before_anything_runs() -> None:
    code = "from pathlib import Path\nfrom bakeoff.workloads.market.workload import MarketParams, MarketWorkload\n"
    done = python(f"{WITHOUT_NUMBA}{code}MarketWorkload().check(MarketParams(), Path('.'))")
    assert done.stderr.splitlines()[-1].startswith(
        "bakeoff.errors.UsageError: the market world needs the package numba"
    )


def test_without_gymnasium_the_environments_name_their_extra() -> None:
    done = python("import sys; sys.modules['gymnasium'] = None\nimport bakeoff.workloads.market.envs")
    assert done.stderr.splitlines()[-1].endswith(install("environments"))


@pytest.mark.slow
def test_without_numba_everything_outside_the_worlds_can_be_imported() -> None:
    root = Path(bakeoff.__file__).parent
    files = [file.relative_to(root.parent).with_suffix("") for file in root.rglob("*.py")]
    files = [file for file in files if file.name != "__main__" and not {"starter", "starters"} & {*file.parts[:-1]}]
    names = [".".join(file.parts).removesuffix(".__init__") for file in files]
    worlds = ("bakeoff.workloads.jit", "bakeoff.workloads.gridworld", "bakeoff.workloads.market")
    core = [name for name in names if not name.startswith(worlds)]
    done = python(f"{WITHOUT_NUMBA}import importlib\nfor name in {core!r}: importlib.import_module(name)")
    assert done.returncode == 0, done.stderr
    assert python(f"{WITHOUT_NUMBA}import bakeoff.workloads.market.workload").returncode == 0


@pytest.mark.slow
def test_a_second_process_loads_what_the_first_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    code = "from bakeoff.workloads.market.world import seats, layout\n"
    code += "print(seats.word(layout.allocate(1, 1, 1, 1, 1).ints, 0, 0, 0), sum(seats.word.stats.cache_hits.values()))"
    outputs = [python(code).stdout for _ in range(2)]
    assert outputs == [f"{0x6627E8D5} 0\n", f"{0x6627E8D5} 1\n"]
    assert [path.name[:8] for path in tmp_path.iterdir()] == ["kernels-"]
