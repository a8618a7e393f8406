"""The pytest that hidden tests run with in boxes that have none: a copy of ours, with what it needs, in one directory."""

from __future__ import annotations

import compileall
import hashlib
import shutil
import tempfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.sandbox import cache
from bakeoff.sandbox.base import Mount

TOOLS = "/opt/hidden-tests"
"""Where it lies in the box."""
RUNNER = f"{TOOLS}/run.py"
LIBRARY = f"{TOOLS}/lib"
NEEDED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
FOR_OLDER_PYTHONS = ("exceptiongroup", "tomli", "typing_extensions")
COMPILED = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging")
REVISION = "1"


def tools() -> tuple[Mount, ...]:
    """The runner and the library, read-only."""
    return (Mount(Path(__file__).with_name("pytest_in_box.py"), RUNNER), Mount(_library(), LIBRARY))


def _library() -> Path:
    """All of it is plain Python, so any interpreter of the box's can read it. Made once for each set of versions."""
    distributions = installed()
    versions = " ".join([REVISION, *(f"{one.name}={one.version}" for one in distributions)])
    home = cache.directory("pytest")
    place = home / hashlib.sha256(versions.encode()).hexdigest()[:16]
    if not place.is_dir():
        made = Path(tempfile.mkdtemp(prefix="new.", dir=home))
        made.chmod(0o755)
        for one in distributions:
            _copy(one, made)
        for name in COMPILED:  # once here, and not in every box
            compileall.compile_dir(made / name, quiet=2, workers=1)
        try:
            made.rename(place)
        except OSError:  # another process was faster
            cache.remove(made)
    return place


def installed() -> list[Distribution]:
    """pytest and what it needs, as they are here; a UsageError says how to get them."""
    found = []
    for name in (*NEEDED, *FOR_OLDER_PYTHONS):
        try:
            found.append(distribution(name))
        except PackageNotFoundError:
            if name in NEEDED:
                fix = "pip install 'bakeoff[tasks]'"
                raise UsageError(f"hidden tests are run by pytest, and {name} is not installed\n  fix: {fix}") from None
    return found


def _copy(one: Distribution, target: Path) -> None:
    for file in one.files or ():
        if file.parts[0] in ("..", "__pycache__") or "__pycache__" in file.parts:
            continue
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(str(file.locate()), target / file)
