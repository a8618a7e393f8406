"""The packages that a Python process can import, by the names of directories: fast enough for every start of a pilot.

Versions are those of `*.dist-info` and `*.egg-info` (https://packaging.python.org/en/latest/specifications/recording-installed-packages/).
The version of a package that is installed in editable mode is `editable`: what is recorded is that of the day on which
it was installed, and its files are code that changes.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence

from bakeoff.version import __version__

PYTHON = "Python"
"""The key of Python's own version; names of packages are lower case."""
EDITABLE = "editable"
_RECORD = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>[^-]+)(?:-py\d[\d.]*)?(?:-[\w.]+)?\.(?:dist|egg)-info"
)
_TOOLS = frozenset(
    (
        "pip", "setuptools", "wheel", "uv", "distribute", "pkg-resources", "virtualenv", "pipx", "poetry", "poetry-core",
        "hatchling", "build", "twine", "ruff", "black", "isort", "flake8", "mypy", "pyright", "pylint", "pre-commit", "pytest",
        "coverage", "tox", "nox", "ipython", "ipykernel", "jupyter", "jupyterlab", "notebook", "debugpy",
    )
)  # fmt: skip
"""Packages that install, check or edit code, and that experiments do not import."""


def installed_packages(path: Sequence[str] | None = None) -> dict[str, str]:
    """Version by name of every package on `path` (default: `sys.path`), of bakeoff, and of Python, sorted by name.

    As in an import, the first directory that has a package counts.
    """
    packages: dict[str, str] = {}
    for folder in sys.path if path is None else path:
        here: dict[str, str] = {}
        try:
            names = sorted(os.listdir(folder or "."))
        except OSError:
            continue  # a zip file, or a directory that is not there
        for name in names:
            record = _RECORD.fullmatch(name)
            if record is None:
                continue
            package = normalized(record["name"])
            if package not in packages:
                here[package] = EDITABLE if _is_editable(os.path.join(folder or ".", name)) else record["version"]
        packages |= here
    return {PYTHON: platform.python_version(), **dict(sorted((packages | {"bakeoff": __version__}).items()))}


def counted_packages(packages: Mapping[str, str]) -> dict[str, str]:
    """Those that may change what a run measures, by their normalized names."""
    names = {name: name if name == PYTHON else normalized(name) for name in packages}
    return {
        name: packages[given]
        for given, name in names.items()
        if name not in _TOOLS and not name.startswith(("types-", "pytest-"))
    }


def normalized(name: str) -> str:
    """A package's name as all tools agree on it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_editable(record: str) -> bool:
    """Whether the installer noted that the package's files lie elsewhere (PEP 610)."""
    try:
        with open(os.path.join(record, "direct_url.json"), "rb") as file:
            return re.search(rb'"editable"\s*:\s*true', file.read(10_000)) is not None
    except OSError:
        return False
