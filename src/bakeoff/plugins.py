"""Entry points of installed packages, read without `importlib.metadata`.

Importing `importlib.metadata` takes longer than all of `bakeoff --help` may, and scanning with it takes as long again.
This module reads the same files: `entry_points.txt` in the `.dist-info` and `.egg-info` directories on `sys.path`, an
INI file whose sections are groups (https://packaging.python.org/en/latest/specifications/entry-points/). Packages
inside zip files are not seen.

    for name, table in load_all("bakeoff.commands", report=print): ...
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any


@cache
def entry_points(group: str) -> dict[str, str]:
    """The names of a group's entry points and their values (`module:attribute`), in the order of `sys.path`.

    As in `importlib.metadata`, a distribution that is on the path twice counts once, with its first directory.
    """
    values: dict[str, str] = {}
    distributions: set[str] = set()
    for folder in sys.path:
        try:
            names = sorted(os.listdir(folder or "."))
        except OSError:
            continue
        for name in names:
            distribution = name.partition("-")[0].lower()
            if not name.endswith((".dist-info", ".egg-info")) or distribution in distributions:
                continue
            distributions.add(distribution)
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as file:
                    text = file.read()
            except OSError:  # most distributions have no entry points
                continue
            section = ""
            for line in (line.strip() for line in text.splitlines()) if f"[{group}]" in text else ():
                if line.startswith("["):
                    section = line.strip("[]").strip()
                elif section == group and "=" in line and not line.startswith(("#", ";")):
                    entry, _, value = line.partition("=")
                    values.setdefault(entry.strip(), value.partition("[")[0].strip())  # without `[extras]`
    return values


def load(value: str) -> Any:
    """The object that an entry point's value names. ImportError or AttributeError if there is none."""
    from importlib import import_module

    module, _, attribute = value.partition(":")
    target: Any = import_module(module.strip())
    for part in filter(None, attribute.strip().split(".")):
        target = getattr(target, part)
    return target


def load_all(group: str, report: Callable[[str], None]) -> Iterator[tuple[str, Any]]:
    """The name and object of every entry point of a group.

    `report` gets a message for one that cannot be imported: a broken plug-in must not take the others away.
    """
    for name, value in entry_points(group).items():
        try:
            yield name, load(value)
        except (ImportError, AttributeError) as error:
            report(f"{group}: {name!r} ({value}) cannot be imported: {error}")
