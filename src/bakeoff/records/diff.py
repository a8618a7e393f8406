"""What differs between two editions: configuration, packages, environment, machine, and code to the last line.

Code is compared as it was when the runs ran: the commit plus the uncommitted changes that provenance kept.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakeoff.records.edition import Edition

Changes = dict[str, tuple[Any, Any]]
"""Key to (value in A, value in B); None where it is not there."""
_VOLATILE = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "BAKEOFF_ROOT", "PYTEST_CURRENT_TEST"})
_MACHINE = ("host", "platform", "cores", "python")


@dataclass(frozen=True, slots=True)
class Difference:
    configuration: Changes
    code: Changes
    packages: Changes
    environment: Changes
    machine: Changes
    patch: str | None = None
    """Unified diff from A's code to B's; None when git cannot tell."""
    notes: list[str] = field(default_factory=list)

    @property
    def sections(self) -> dict[str, Changes]:
        return {name: getattr(self, name) for name in ("configuration", "code", "packages", "environment", "machine")}

    def __bool__(self) -> bool:
        return any(self.sections.values())


def compare(a: Edition, b: Edition, *, paths: Sequence[str] = (), stat: bool = False) -> Difference:
    """`paths` limit the patch; `stat` asks for its summary instead of its lines."""
    first, second = provenance(a), provenance(b)
    code = _code(first.get("git") or {}, second.get("git") or {})
    notes = [note for edition, name in ((a, "A"), (b, "B")) for note in _notes(edition, name)]
    return Difference(
        configuration=changes(named(a.facts()["spec"]), named(b.facts()["spec"])),
        code=code,
        packages=changes(first.get("packages", {}), second.get("packages", {})),
        environment=changes(_steady(first.get("env", {})), _steady(second.get("env", {}))),
        machine=changes({key: first.get(key) for key in _MACHINE}, {key: second.get(key) for key in _MACHINE}),
        patch=_patch(first, second, paths, stat) if code else "",
        notes=notes,
    )


def provenance(edition: Edition) -> dict[str, Any]:
    """Of the newest session; empty when the edition was imported."""
    sessions = edition.sessions()
    found: dict[str, Any] = sessions[-1]["provenance"] if sessions else {}
    return found


def changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Changes:
    keys = [*a, *(key for key in b if key not in a)]
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def named(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys; entries of a list go by their name, so that a reordering is no change."""
    if isinstance(value, dict) and value:
        parts = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        parts = [(str(item.get("name", number)), item) for number, item in enumerate(value)]
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in parts:
        flat |= named(item, f"{prefix}.{key}" if prefix else key)
    return flat


def _steady(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key not in _VOLATILE}


def _code(a: Mapping[str, Any], b: Mapping[str, Any]) -> Changes:
    if a.get("code") == b.get("code"):
        return {}
    found = changes(
        {key: a.get(key) for key in ("commit", "branch")}, {key: b.get(key) for key in ("commit", "branch")}
    )
    if a.get("diff") != b.get("diff"):
        found["uncommitted changes"] = (_touched(a), _touched(b))
    return found


def _touched(git: Mapping[str, Any]) -> str:
    files = [line.split(" b/")[-1] for line in str(git.get("diff") or "").splitlines() if line.startswith("diff --git")]
    return ", ".join(files) or "none"


def _notes(edition: Edition, name: str) -> list[str]:
    codes = [(session["provenance"].get("git") or {}).get("code") for session in edition.sessions()]
    if len(set(codes)) > 1:
        return [f"{name} was resumed with other code; its newest session is compared"]
    if not codes:
        return [f"{name} was imported: where it came from is not recorded"]
    return [] if codes[-1] else [f"{name} was not run in a git repository: its code is not recorded"]


def _patch(a: Mapping[str, Any], b: Mapping[str, Any], paths: Sequence[str], stat: bool) -> str | None:
    for place in dict.fromkeys((os.getcwd(), a.get("base"), b.get("base"), a.get("cwd"), b.get("cwd"))):
        if (
            place
            and Path(place).is_dir()
            and (text := _patch_in(place, a.get("git"), b.get("git"), paths, stat)) is not None
        ):
            return text
    return None


def _patch_in(
    place: str, a: Mapping[str, Any] | None, b: Mapping[str, Any] | None, paths: Sequence[str], stat: bool
) -> str | None:
    """New objects go to a directory of their own, so that the user's repository is only read."""
    objects = _git(place, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    top = _git(place, "rev-parse", "--show-toplevel")
    if objects is None or top is None or not a or not b:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        env = {
            "GIT_OBJECT_DIRECTORY": scratch,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects.strip(),
            "GIT_INDEX_FILE": f"{scratch}/index",
        }
        trees = [_tree(top.strip(), git, env) for git in (a, b)]
        if None in trees:
            return None
        how = ["--stat"] if stat else ["-p"]
        prefix = place if paths else top.strip()
        return _git(prefix, "diff", "--no-color", "--no-ext-diff", *how, *map(str, trees), "--", *paths, env=env)


def _tree(top: str, git: Mapping[str, Any], env: Mapping[str, str]) -> str | None:
    """The tree of a commit with uncommitted changes on top."""
    if not git.get("commit") or _git(top, "read-tree", git["commit"], env=env) is None:
        return None
    if git.get("diff") and _git(top, "apply", "--cached", "--binary", "-", env=env, given=git["diff"]) is None:
        return None
    tree = _git(top, "write-tree", env=env)
    return tree.strip() if tree else None


def _git(where: str, *arguments: str, env: Mapping[str, str] | None = None, given: str = "") -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", where, *arguments],
            input=given,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            env={**os.environ, **(env or {})},
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
