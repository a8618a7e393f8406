"""Where agents' programs are on this machine: BAKEOFF_AGENTS, `.agents` in the working directory or above, then PATH.

The npm packages of the clients carry a native program for each platform; that program is what a box gets, so it needs
neither Node nor the rest of the package.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bakeoff.errors import UsageError

VARIABLE = "BAKEOFF_AGENTS"
DIRECTORY = ".agents"
MACHINE = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine().lower(), "x64")


@dataclass(frozen=True, slots=True)
class Program:
    path: Path
    """The native program, or its directory."""
    version: str


def agent_directories() -> Iterator[Path]:
    """Where clients were installed for bakeoff; the first that has one counts."""
    if named := os.environ.get(VARIABLE):
        yield Path(named)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / DIRECTORY).is_dir():
            yield folder / DIRECTORY


def npm_program(package: str, native: str, inside: str, command: str) -> Program:
    """The program `inside` the package `native` (which `package` depends on), with the version of `package`."""
    return _npm_program(package, native.format(machine=MACHINE), inside, command, tuple(agent_directories()))


@cache
def _npm_program(package: str, native: str, inside: str, command: str, directories: tuple[Path, ...]) -> Program:
    for modules in [*(folder / "node_modules" for folder in directories), *_global_modules(command, package)]:
        for place in (modules / native, modules / package / "node_modules" / native):
            found = next(iter(sorted(place.glob(inside))), None)
            if found is not None:
                return Program(found.resolve(), _version(modules / package))
    raise UsageError(
        f"{command} is not installed\n  fix: npm install --prefix {DIRECTORY} {package} "
        f"(or set {VARIABLE} to a directory that has node_modules/{package})"
    )


def _global_modules(command: str, package: str) -> Iterator[Path]:
    """`node_modules` of an installation on PATH."""
    found = shutil.which(command)
    if found is None:
        return
    for folder in Path(found).resolve().parents:
        if folder.name == "node_modules" and (folder / package).is_dir():
            yield folder


def _version(package: Path) -> str:
    version = json.loads((package / "package.json").read_text())["version"]
    return str(version)
