"""A package of somebody else with an importer, installed by pip into a virtual environment of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "write-an-importer.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^```python\n(# quizlog\.py\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def make_wheel(place: Path) -> Path:
    """A wheel of the page's example (https://packaging.python.org/en/latest/specifications/binary-distribution-format/)."""
    path = place / "quizlog-1-py3-none-any.whl"
    info = "quizlog-1.dist-info"
    files = {
        "quizlog.py": EXAMPLE,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: quizlog\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[bakeoff.importers]\nquiz = quizlog:QuizLogs\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.slow
def test_an_importer_that_pip_installed_reads_its_files_until_it_is_removed(tmp_path: Path) -> None:
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    # The new environment also sees what this one has, bakeoff and its dependencies.
    site = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "others.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    for number, (model, lift) in enumerate((("small", 0.0), ("large", 0.2))):
        samples = [{"id": f"q{n}", "topic": f"t{n % 4}", "score": lift + n % 5 / 10, "said": ""} for n in range(12)]
        log = {"version": "2.1", "model": model, "temperature": 0.0, "samples": samples}
        (tmp_path / f"{number}.quiz").write_text(json.dumps(log))

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(python), *words], cwd=tmp_path, capture_output=True, text=True, check=False)

    def pip(*words: str) -> None:
        subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *words], check=True, capture_output=True)

    compare = ("-m", "bakeoff", "compare", "0.quiz", "1.quiz", "--json")
    assert call(*compare).returncode == 2
    pip("install", "--no-index", "--no-deps", str(make_wheel(tmp_path)))
    done = call(*compare)
    assert done.returncode == 0, done.stderr
    (comparison,) = json.loads(done.stdout)["comparisons"]
    assert (comparison["control"], comparison["candidate"], comparison["verdict"]) == ("small", "large", "better")
    pip("uninstall", "--yes", "quizlog")
    assert call(*compare).returncode == 2
