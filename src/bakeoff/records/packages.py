"""The packages that a Python process can import, by the names of directories: fast enough for every start of a pilot.

Versions are those of `*.dist-info` and `*.egg-info` (https://packaging.python.org/en/latest/specifications/recording-installed-packages/).
The version of a package that is installed in editable mode is `editable`: what is recorded is that of the day on which
it was installed, and its files are code that changes. `local_modules` compares such files, and all others that can be
imported without having been installed.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bakeoff.records.codefiles import module_digest
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


def local_modules(base: Path) -> dict[str, str]:
    """Return the version `files DIGEST`, by name, of modules that were not installed: on PYTHONPATH, or in editable mode.

    Without bakeoff and without what is below `base`, the experiment file's directory: that code is compared by itself.
    """
    versions: dict[str, str] = {}
    for name, path in _local_files():
        if name != "bakeoff" and name not in versions and not path.is_relative_to(base):
            try:
                versions[name] = f"files {module_digest(path)}"
            except OSError:
                continue
    return dict(sorted(versions.items()))


def _local_files() -> Iterator[tuple[str, Path]]:
    """Yield name and place of modules that were not installed, in the order in which an import looks for them."""
    import sysconfig  # only pilots need it

    installed = tuple({f"{path}/" for path in (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())})
    for text in sys.path:
        folder = Path(text or ".").absolute()
        if f"{folder}/".startswith(installed) or folder.name in ("site-packages", "dist-packages"):
            for record in folder.glob("*.dist-info/direct_url.json"):
                package = _RECORD.fullmatch(record.parent.name)
                if package is not None and _is_editable(str(record.parent)):
                    spec = importlib.util.find_spec(package["name"].replace(".", "_"))
                    if spec is not None and spec.origin is not None and os.path.isabs(spec.origin):
                        origin = Path(spec.origin)
                        yield normalized(package["name"]), origin.parent if spec.submodule_search_locations else origin
            continue
        for path in sorted(folder.glob("*.py")):
            yield normalized(path.stem), path
        for path in sorted(each.parent for each in folder.glob("*/*.py")):
            yield normalized(path.name), path


def differing_packages(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Return both versions of each package that differs and may change what a run measures; None where there is none.

    A package that is `editable` on one side is taken for the same: what it was like is not known.
    """
    a, b = counted_packages(a), counted_packages(b)
    pairs = {name: (a.get(name), b.get(name)) for name in sorted(a.keys() | b.keys())}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and EDITABLE not in pair}


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
