"""Build a release and test it; publish nothing. docs/releasing.md says what to do before and after.

1. Check that pyproject.toml, `bakeoff.version` and CITATION.cff have the same version, and CHANGELOG.md its section.
2. Check that nothing is uncommitted and that the tag does not exist yet.
3. Write an sdist and a wheel to dist/ with `python -m build`.
4. Install the wheel into a fresh virtual environment and run an experiment there.

Exits with 1 and the list of problems if something is wrong.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def version(root: Path) -> str:
    """The version in pyproject.toml."""
    return str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def problems_of_files(root: Path) -> list[str]:
    """Problems with versions and changelog that prevent a release of the version in pyproject.toml."""
    wanted = version(root)
    problems = []
    for name, pattern in (
        ("src/bakeoff/version.py", r'^__version__ = "([^"]+)"'),
        ("CITATION.cff", r"^version: (\S+)"),
    ):
        match = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        if match is None or match[1] != wanted:
            actual = "no version" if match is None else f"version {match[1]}"
            problems.append(f"{name} has {actual}; pyproject.toml has {wanted}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    # A section begins "0.2.0 (2026-12-01)" and lists at least one change.
    released = [section for section in sections if re.match(rf"{re.escape(wanted)} \(\d{{4}}-\d\d-\d\d\)\n", section)]
    if not released:
        problems.append(f"CHANGELOG.md has no section `## {wanted} (YYYY-MM-DD)`: rename `## Unreleased`")
    elif "\n- " not in released[0]:
        problems.append(f"CHANGELOG.md lists no change for {wanted}")
    if any(section.startswith("Unreleased") and "\n- " in section for section in sections):
        problems.append("CHANGELOG.md still lists changes under `## Unreleased`")
    return problems


def problems_of_git(root: Path) -> list[str]:
    """Uncommitted changes, and a tag that exists already."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()

    tag = f"v{version(root)}"
    problems = []
    if git("status", "--porcelain"):
        problems.append("there are uncommitted changes")
    if git("tag", "--list", tag):
        problems.append(f"the tag {tag} exists already: raise the version in pyproject.toml")
    return problems


def build(root: Path) -> tuple[Path, Path]:
    """Build into dist/ and return the sdist and the wheel of this version."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", root / "dist", root], check=True)
    name = f"bakeoff-{version(root)}"
    sdist, wheel = root / "dist" / f"{name}.tar.gz", root / "dist" / f"{name}-py3-none-any.whl"
    missing = [str(file) for file in (sdist, wheel) if not file.exists()]
    if missing:
        sys.exit(f"the build did not write {', '.join(missing)}")
    return sdist, wheel


def try_wheel(wheel: Path, expected: str) -> None:
    """Install the wheel into a fresh venv outside the checkout, run a small experiment and print the venv's size."""
    with tempfile.TemporaryDirectory() as directory:
        venv = Path(directory, "venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        python = venv / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
        subprocess.run([*pip, "install", "--quiet", wheel], check=True)

        def bakeoff(*arguments: str) -> str:
            command = [str(venv / "bin" / "bakeoff"), *arguments]
            return subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE, text=True).stdout

        reported = bakeoff("--version")
        if not reported.startswith(f"bakeoff {expected} "):
            sys.exit(f"the installed wheel says {reported.strip()!r}, not version {expected}")
        bakeoff("init")
        bakeoff("run", "experiment.toml")
        bakeoff("collect", "latest")
        bakeoff("report", "latest")
        size = sum(file.stat().st_size for file in venv.rglob("*") if file.is_file() and not file.is_symlink())
        print(f"a fresh environment with the wheel has {size / 1e6:.0f} MB")


def main() -> None:
    problems = problems_of_files(ROOT) + problems_of_git(ROOT)
    if problems:
        sys.exit("\n".join(f"error: {problem}" for problem in problems))
    sdist, wheel = build(ROOT)
    try_wheel(wheel, version(ROOT))
    print(f"{sdist}\n{wheel}\nnext: docs/releasing.md, from step 4")


if __name__ == "__main__":
    main()
