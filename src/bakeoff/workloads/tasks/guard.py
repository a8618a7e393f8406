"""What of an agent's diff may not steer its own hidden tests, and goes back to the start state.

pytest can be steered by files: configuration, conftest.py, packages that shadow a module, stale bytecode, plugins by
entry point. `guard` resets all of these in the tree that is tested, before the hidden files are written there.
"""

from __future__ import annotations

import configparser
import os
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bakeoff.workloads.tasks.model import Script
from bakeoff.workloads.tasks.start import place_file, real_parent, remove

TEST_FOLDERS = frozenset({"test", "tests", "testing", "spec", "specs"})
# Loaded by pytest or Python without being named: https://docs.python.org/3/library/site.html for the *customize
# modules and .pth files, https://docs.pytest.org/en/stable/reference/customize.html and writing_plugins.html for
# conftest.py, configuration files and plugins that a .dist-info directory declares.
STEERING = frozenset(
    {"conftest.py", "sitecustomize.py", "usercustomize.py", "sitecustomize", "usercustomize", "__pycache__"}
)
STEERING_SUFFIXES = (".pth", ".egg-link", ".dist-info", ".egg-info", ".pyc")
CONFIGURATIONS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
OWN_NAME = ".hidden-tests"
"""Name of the configuration that hidden tests run with, so that the repository's is never read."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """What `guard` did to a tree."""

    discounted: tuple[str, ...]
    """The agent's files that were reset, from the repository's top."""
    configurations: dict[str, str]
    """Each script's configuration file, from the repository's top."""


def guard(start: Path, tree: Path, scripts: Sequence[Script]) -> Guarded:
    """Reset in `tree` what could steer the hidden tests to what it is in `start`, and write the tests there.

    `start` is the start state, `tree` a copy of it with the agent's diff applied.
    """
    discounted: list[str] = []
    # In both trees: what the agent added or changed, and what it removed.
    for top in (tree, start):
        for place in _walk(top):
            if place.name in STEERING or place.name.endswith(STEERING_SUFFIXES):
                discounted += _reset(start, tree, place.relative_to(top).as_posix())
    for location in sorted(test_locations(start, scripts)):
        discounted += _reset(start, tree, location)
    for script in scripts:
        discounted += _reset_shadows(start, tree, script.path)
        # Written last, over whatever is there now.
        place_file(tree, script.path, script.content.encode(), executable=script.rubric_id is not None)
    # Hidden files replace the agent's by design, and bytecode is made by running tests: neither is worth reporting.
    hidden = {script.path for script in scripts}
    reported = {path for path in discounted if path not in hidden and not path.endswith(".pyc")}
    return Guarded(
        tuple(sorted(reported)),
        {script.path: _configuration(start, tree, scripts, script.path) for script in scripts if script.rubric_id},
    )


def test_locations(start: Path, scripts: Sequence[Script]) -> set[str]:
    """Directories that belong to the tests: above a script and named like one, or made by hidden files only."""
    locations: set[str] = set()
    for script in scripts:
        above = [str(parent) for parent in reversed(PurePosixPath(script.path).parents) if str(parent) != "."]
        named = next((folder for folder in above if PurePosixPath(folder).name in TEST_FOLDERS), None)
        unknown = next((folder for folder in above if not (start / folder).exists()), None)
        if named or unknown:
            locations.add(named or unknown or "")
    # A directory inside another one is covered by it.
    return {folder for folder in locations if not any(folder.startswith(f"{other}/") for other in locations)}


def _walk(top: Path) -> Iterator[Path]:
    """Everything below `top` but `.git`. Links are yielded and not followed. The caller may remove directories."""
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not (name == ".git" and Path(folder) == top)]
        for name in sorted((*folders, *files)):
            yield Path(folder, name)


def _reset(start: Path, tree: Path, relative: str) -> list[str]:
    """Make `relative` in `tree` what it is in `start`; returns the files that this changed."""
    before, after = start / relative, tree / relative
    changed = sorted(
        f"{relative}/{name}" if name != "." else relative
        for name in {*_files(before), *_files(after)}
        if _fingerprint(before / name) != _fingerprint(after / name)
    )
    if not changed:
        return []
    real_parent(tree, relative)  # a link of the agent's in the way would lead the copy out of the tree
    remove(after)
    if before.is_dir() and not before.is_symlink():
        shutil.copytree(before, after, symlinks=True)
    elif before.is_symlink():
        after.symlink_to(os.readlink(before))
    elif before.is_file():
        shutil.copy2(before, after)
    return changed


def _files(place: Path) -> set[str]:
    """The files and links below a directory; `.` for a file or link itself; empty if there is nothing."""
    if place.is_dir() and not place.is_symlink():
        return {file.relative_to(place).as_posix() for file in _walk(place) if file.is_symlink() or not file.is_dir()}
    return {"."} if place.is_symlink() or place.exists() else set()


def _fingerprint(file: Path) -> tuple[str, bytes] | None:
    """What makes a file different from another: its kind, whether it is executable, and its content."""
    if file.is_symlink():
        return ("link", os.fsencode(os.readlink(file)))
    if not file.is_file():
        return ("directory", b"") if file.is_dir() else None
    return ("program" if file.stat().st_mode & 0o100 else "file", file.read_bytes())


def _reset_shadows(start: Path, tree: Path, path: str) -> Iterator[str]:
    """Reset packages and extension modules that Python would import instead of the script beside them."""
    script = PurePosixPath(path)
    folder = tree / script.parent
    # A package, and then an extension module, comes before a .py file of the same name (importlib's FileFinder).
    if script.suffix != ".py" or folder.is_symlink() or not folder.is_dir():
        return
    for place in sorted(folder.iterdir()):
        shadow = place.name == script.stem or (
            place.name.split(".")[0] == script.stem and place.suffix in (".so", ".pyd")
        )
        if shadow:
            yield from _reset(start, tree, place.relative_to(tree).as_posix())


def _configuration(start: Path, tree: Path, scripts: Sequence[Script], path: str) -> str:
    """Write the configuration that the start state (or a hidden file) has for the script under our own name.

    Looks where pytest would: from the script's directory upwards, in the order of CONFIGURATIONS. Returns the path.
    """
    hidden = {script.path: script.content for script in scripts}
    folder, name, text = PurePosixPath("."), "pytest.ini", "[pytest]\n"
    for place in (parent / file for parent in PurePosixPath(path).parents for file in CONFIGURATIONS):
        candidate = hidden.get(str(place))
        if candidate is None and (start / place).is_file() and not (start / place).is_symlink():
            candidate = (start / place).read_text(encoding="utf-8", errors="replace")
        if candidate is not None and configures(place.name, candidate):
            folder, name, text = place.parent, place.name, candidate
            break
    if not name.endswith("pytest.toml"):  # pytest reads that format by this name only
        name = f"{OWN_NAME}{PurePosixPath(name).suffix}"
    target = str(folder / name)
    place_file(tree, target, text.encode())
    return target


def configures(name: str, text: str) -> bool:
    """Whether pytest would take its settings from a file of this name and content."""
    if name in ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"):
        return True
    if name == "pyproject.toml":
        try:
            return "pytest" in tomllib.loads(text).get("tool", {})
        except tomllib.TOMLDecodeError:
            return False
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error:
        return False
    return parser.has_section("pytest" if name == "tox.ini" else "tool:pytest")


def selects_tests(start: Path) -> bool:
    """Whether the start state's own files may leave out tests: by name patterns, options or a hook."""
    words = (b"python_functions", b"python_classes", b"addopts", b"modifyitems", b"collect_ignore", b"ignore_collect")
    names = {"conftest.py", *CONFIGURATIONS}
    return any(
        place.name in names and place.is_file() and any(word in place.read_bytes() for word in words)
        for place in _walk(start)
    )
