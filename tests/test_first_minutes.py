"""A stranger's first five minutes: an empty directory, the wheel in an environment of its own, two scripts, a table, two logs."""

from __future__ import annotations

import csv
import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parent.parent
Stranger = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A virtual environment with the wheel of this checkout, one for all workers. Its dependencies are those of the tests."""
    base = tmp_path_factory.getbasetemp()
    place = (base if worker_id == "master" else base.parent) / "installed"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
            build = [*pip, "wheel", "--no-deps", "--wheel-dir", str(place), str(ROOT)]
            subprocess.run(build, check=True, capture_output=True)
            (wheel,) = place.glob("bakeoff-*.whl")
            venv.create(place / "venv", with_pip=False)
            install = [*pip, "--python", str(place / "venv/bin/python"), "install", "--no-deps", str(wheel)]
            subprocess.run(install, check=True, capture_output=True)
            (site,) = (place / "venv/lib").glob("python*/site-packages")
            (site / "dependencies.pth").write_text(f"{Path(click.__file__).parents[1]}\n")
            (place / "ready").touch()
    return place / "venv"


@pytest.fixture
def stranger(environment: Path, tmp_path: Path) -> Stranger:
    """`stranger("try", ...)` calls the installed `bakeoff` in an empty directory."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    variables = {**kept, "PATH": f"{environment}/bin:/usr/bin:/bin"}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(environment / "bin/bakeoff"), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)

    return call


@pytest.mark.slow
def test_a_stranger_gets_verdicts_in_an_empty_directory(stranger: Stranger, environment: Path, tmp_path: Path) -> None:
    where = [str(environment / "bin/python"), "-c", "import bakeoff; print(bakeoff.__file__)"]
    assert str(environment) in subprocess.run(where, cwd=tmp_path, capture_output=True, text=True).stdout

    for name, shift in (("old", 0), ("new", 1)):
        (tmp_path / f"{name}.py").write_text(f"import sys\nprint('score:', {shift} + int(sys.argv[1]) % 3)\n")
    tried = stranger("try", "python old.py {seed}", "python new.py {seed}", "--seeds", "8")
    assert tried.returncode == 0, tried.stderr
    assert "Better: new.py against old.py on score" in tried.stdout

    with (tmp_path / "results.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["model", "seed", "score"])
        rows.writerows([model, seed, shift + seed % 3] for model, shift in (("a", 0), ("b", -1)) for seed in range(8))
    compared = stranger("compare", "results.csv")
    assert compared.returncode == 0, compared.stderr
    assert "Worse: b against a on score" in compared.stdout

    for log in ("a.eval", "b.eval"):
        shutil.copy(ROOT / "examples/inspect" / log, tmp_path)
    logs = stranger("compare", "a.eval", "b.eval")
    assert logs.returncode == 3, logs.stderr
    assert "read 12 samples x 2 logs of Inspect" in logs.stdout

    (file,) = tmp_path.glob("try-*.toml")
    assert "complete already" in stranger("run", file.name).stdout
    assert stranger("report", "latest").returncode == 0
    misspelt = stranger("try", "python odl.py {seed}", "python new.py {seed}")
    assert misspelt.returncode == 2 and "did you mean 'old.py'?" in misspelt.stderr


def test_errors_name_the_command_that_works_from_where_bakeoff_was_installed(environment: Path) -> None:
    (wheel,) = environment.parent.glob("bakeoff-*.whl")
    ask = [str(environment / "bin/python"), "-c", "from bakeoff.errors import install; print(install('market'))"]
    assert subprocess.run(ask, capture_output=True, text=True).stdout == f"pip install '{wheel}[market]'\n"
    (record,) = environment.glob("lib/python*/site-packages/bakeoff-*.dist-info/direct_url.json")
    known = record.read_text()
    try:
        record.write_text(known.replace(str(wheel), "/gone/bakeoff.whl"))
        assert subprocess.run(ask, capture_output=True, text=True).stdout == "pip install llvmlite numba\n"
    finally:
        record.write_text(known)


SMALLER = {
    "gridworld": ("steps=2048", "held_out=4", "envs=8"),
    "language": ("warm_steps=10", "steps=1", "eval_prompts=8"),
    "market": ("duration_minutes=5",),
}
"""Parameters with which runs of an example take seconds instead of a minute."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "template",
    [
        "command",
        "python",
        "csv",
        pytest.param("tasks", marks=pytest.mark.apt),
        "market",
        "language",
        "gridworld",
        "sweep",
    ],
)
def test_a_stranger_goes_from_a_template_to_a_verdict_and_a_report(
    stranger: Stranger, tmp_path: Path, template: str
) -> None:
    """The commands are those that `init` prints; none of them is given a metric."""
    started = stranger("init", "--template", template)
    assert started.returncode == 0, started.stderr
    next_line = started.stdout.splitlines()[-1]
    calls = [call.removeprefix("bakeoff ").split() for call in next_line.removeprefix("next: ").split(", then ")]
    for call in calls:
        smaller = [word for name in SMALLER.get(template, ()) for word in ("--set", f"params.{name}")]
        done = stranger(*call, *(smaller if call[0] == "run" else ()))
        assert done.returncode in ((0, 3) if call[0] in ("compare", "rank") else (0,)), (
            f"{call}: {done.stdout}{done.stderr}"
        )
        if call[0] == "compare":
            assert "verdict" in done.stdout
    assert list(tmp_path.glob("**/index.html"))
