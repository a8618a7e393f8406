"""Keeps an agent's diff from steering the hidden tests: what it wrote where tests are read from does not count.

pytest can be steered by files: configuration, conftest.py, packages that shadow a module, stale bytecode, plugins by
entry point. All of these go back to the start state, in the copy that is tested, before hidden files are written.
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
from bakeoff.workloads.tasks.start import place_file, remove

TEST_FOLDERS = frozenset({"test", "tests", "testing", "spec", "specs"})
BYTECODE = "__pycache__"
STEERING = frozenset(
    {"conftest.py", "sitecustomize.py", "usercustomize.py", "sitecustomize", "usercustomize", BYTECODE}
)
"""Loaded by pytest or Python without being asked for."""
STEERING_SUFFIXES = (".pth", ".egg-link", ".dist-info", ".egg-info", ".pyc")
CONFIGURATIONS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
OWN_NAME = ".hidden-tests"
"""The configuration that hidden tests run with has this name, so that the one in the repository is never read."""


@dataclass(frozen=True, slots=True)
class Guarded:
    discounted: tuple[str, ...]
    """What did not count, from the repository's top."""
    configurations: dict[str, str]
    """Each script's configuration file, from the repository's top."""


def guard(start: Path, tree: Path, scripts: Sequence[Script]) -> Guarded:
    """Put `tree`, the start state with a diff on top, into the state that hidden tests may trust, and write them."""
    discounted = [*_steering(start, tree)]
    for location in sorted(test_locations(start, scripts)):
        discounted += _reset(start, tree, location)
    for script in scripts:
        discounted += _shadows(start, tree, script.path)
        place_file(tree, script.path, script.content.encode(), executable=script.rubric_id is not None)
    hidden = {script.path for script in scripts}
    told = {path for path in discounted if path not in hidden and not path.endswith(".pyc")}
    return Guarded(
        tuple(sorted(told)),
        {script.path: _configuration(start, tree, scripts, script.path) for script in scripts if script.rubric_id},
    )


def test_locations(start: Path, scripts: Sequence[Script]) -> set[str]:
    """Directories that belong to the tests: one named so above a script, or one that only hidden files make."""
    found: set[str] = set()
    for script in scripts:
        above = [str(parent) for parent in reversed(PurePosixPath(script.path).parents) if str(parent) != "."]
        named = next((folder for folder in above if PurePosixPath(folder).name in TEST_FOLDERS), None)
        unknown = next((folder for folder in above if not (start / folder).exists()), None)
        if named or unknown:
            found.add(named or unknown or "")
    return {folder for folder in found if not any(folder.startswith(f"{other}/") for other in found)}


def _steering(start: Path, tree: Path) -> Iterator[str]:
    """Files that are loaded by their mere name, everywhere, and bytecode: back to the start state."""
    for top in (tree, start):
        for place in _walk(top):
            if _steers(place.name):
                yield from _reset(start, tree, place.relative_to(top).as_posix())


def _steers(name: str) -> bool:
    return name in STEERING or name.endswith(STEERING_SUFFIXES)


def _walk(top: Path) -> Iterator[Path]:
    """Everything below `top` but `.git`; links are named and not followed. What is removed meanwhile is left out."""
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not (name == ".git" and Path(folder) == top)]
        for name in sorted((*folders, *files)):
            yield Path(folder, name)


def _reset(start: Path, tree: Path, relative: str) -> list[str]:
    """Make `relative` what it is in the start state; the files that this changed."""
    before, after = start / relative, tree / relative
    changed = sorted(_differing(before, after, relative))
    if not changed:
        return []
    _clear_way(tree, relative)
    remove(after)
    if before.is_dir() and not before.is_symlink():
        shutil.copytree(before, after, symlinks=True)
    elif before.is_symlink():
        after.symlink_to(os.readlink(before))
    elif before.is_file():
        shutil.copy2(before, after)
    return changed


def _clear_way(tree: Path, relative: str) -> None:
    """Directories above, made real: a link in the way would lead the copy elsewhere."""
    here = tree
    for part in PurePosixPath(relative).parts[:-1]:
        here = here / part
        if here.is_symlink() or not here.is_dir():
            remove(here)
        here.mkdir(exist_ok=True)


def _differing(before: Path, after: Path, relative: str) -> Iterator[str]:
    names = {*_files(before), *_files(after)}
    for name in names:
        if _fingerprint(before / name) != _fingerprint(after / name):
            yield f"{relative}/{name}" if name != "." else relative


def _files(place: Path) -> set[str]:
    if place.is_dir() and not place.is_symlink():
        return {file.relative_to(place).as_posix() for file in _walk(place) if file.is_symlink() or not file.is_dir()}
    return {"."} if place.is_symlink() or place.exists() else set()


def _fingerprint(file: Path) -> tuple[str, bytes] | None:
    if file.is_symlink():
        return ("link", os.fsencode(os.readlink(file)))
    if not file.is_file():
        return ("directory", b"") if file.is_dir() else None
    return ("program" if file.stat().st_mode & 0o100 else "file", file.read_bytes())


def _shadows(start: Path, tree: Path, path: str) -> Iterator[str]:
    """Packages and extension modules that Python would import in place of the script beside them."""
    script = PurePosixPath(path)
    folder = tree / script.parent
    if script.suffix != ".py" or folder.is_symlink() or not folder.is_dir():
        return
    for place in sorted(folder.iterdir()):
        shadow = place.name == script.stem or (
            place.name.split(".")[0] == script.stem and place.suffix in (".so", ".pyd")
        )
        if shadow:
            yield from _reset(start, tree, place.relative_to(tree).as_posix())


def _configuration(start: Path, tree: Path, scripts: Sequence[Script], path: str) -> str:
    """The configuration that the start state (or a hidden file) gives the script, under a name of our own."""
    hidden = {script.path: script.content for script in scripts}
    for folder in PurePosixPath(path).parents:
        for name in CONFIGURATIONS:
            candidate = str(folder / name)
            place = start / candidate
            text = hidden.get(candidate)
            if text is None and place.is_file() and not place.is_symlink():
                text = place.read_text(encoding="utf-8", errors="replace")
            if text is not None and configures(name, text):
                return _write(tree, folder, name, text)
    return _write(tree, PurePosixPath("."), "pytest.ini", "[pytest]\n")


def _write(tree: Path, folder: PurePosixPath, name: str, text: str) -> str:
    if name.endswith("pytest.toml"):  # read as such by this name only
        target = str(folder / name)
    else:
        target = str(folder / f"{OWN_NAME}{PurePosixPath(name).suffix}")
    place_file(tree, target, text.encode())
    return target


def configures(name: str, text: str) -> bool:
    """Whether pytest would take its settings from such a file."""
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
