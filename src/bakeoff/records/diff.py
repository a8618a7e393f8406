"""What differs between two editions: configuration, packages, environment, machine, and code to the last line.

Code is compared as it was when the runs ran: the commit plus the uncommitted changes that provenance kept.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakeoff.records.provenance import git
from bakeoff.records.recorded import Recorded

Changes = dict[str, tuple[Any, Any]]
"""Key to (value in A, value in B); None where it is not there."""
_VOLATILE = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "BAKEOFF_ROOT", "PYTEST_CURRENT_TEST"})
"""Environment variables that change from call to call."""
_BYTES = "surrogateescape"
"""Lines of a patch that are not UTF-8 come out as they went in."""
_MACHINE = ("host", "platform", "cores", "python")


@dataclass(frozen=True, slots=True)
class Difference:
    """One table of changes for each section. It is true when anything differs."""

    configuration: Changes
    code: Changes
    packages: Changes
    environment: Changes
    machine: Changes
    patch: str | None = None
    """Unified diff from A's code to B's; None when git cannot make one."""
    notes: list[str] = field(default_factory=list)

    @property
    def sections(self) -> dict[str, Changes]:
        return {name: getattr(self, name) for name in ("configuration", "code", "packages", "environment", "machine")}

    def __bool__(self) -> bool:
        return any(self.sections.values())


def compare(a: Recorded, b: Recorded, *, paths: Sequence[str] = (), stat: bool = False) -> Difference:
    """Compare the newest sessions. `paths` limit the patch; `stat` asks for its summary instead of its lines."""
    notes: list[str] = []
    newest: list[dict[str, Any]] = []
    for edition, name in ((a, "A"), (b, "B")):
        sessions = [session["provenance"] for session in edition.sessions()]
        newest.append(sessions[-1] if sessions else {})
        codes = [(session.get("git") or {}).get("code") for session in sessions]
        if len(set(codes)) > 1:
            notes.append(f"{name} was resumed with other code; its newest session is compared")
        elif not codes:
            notes.append(f"{name} was imported: its provenance is not recorded")
        elif not codes[-1]:
            notes.append(f"{name} was not run in a git repository: its code is not recorded")
    first, second = newest
    code = _code_changes(first.get("git") or {}, second.get("git") or {})
    environments = [
        {key: value for key, value in session.get("env", {}).items() if key not in _VOLATILE} for session in newest
    ]
    machines = [{key: session.get(key) for key in _MACHINE} for session in newest]
    return Difference(
        configuration=_changes(_dotted(a.facts()["spec"]), _dotted(b.facts()["spec"])),
        code=code,
        packages=_changes(first.get("packages", {}), second.get("packages", {})),
        environment=_changes(*environments),
        machine=_changes(*machines),
        patch=_patch(first, second, paths, stat) if code else "",
        notes=notes,
    )


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Changes:
    keys = [*a, *(key for key in b if key not in a)]
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def _dotted(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys; entries of a list go by their name, so that a reordering is not a change."""
    if isinstance(value, dict) and value:
        parts = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        parts = [(str(item.get("name", number)), item) for number, item in enumerate(value)]
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in parts:
        flat |= _dotted(item, f"{prefix}.{key}" if prefix else key)
    return flat


def _code_changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Changes:
    """From two `git_state` tables: commit, branch, and which files have uncommitted changes."""
    if a.get("code") == b.get("code"):
        return {}
    changes = _changes(*({key: state.get(key) for key in ("commit", "branch")} for state in (a, b)))
    if a.get("diff") != b.get("diff"):
        touched = []
        for state in (a, b):
            lines = str(state.get("diff") or "").splitlines()
            files = [line.split(" b/")[-1] for line in lines if line.startswith("diff --git")]
            touched.append(", ".join(files) or "none")
        changes["uncommitted changes"] = (touched[0], touched[1])
    return changes


def _patch(a: Mapping[str, Any], b: Mapping[str, Any], paths: Sequence[str], stat: bool) -> str | None:
    """The diff between the code of two sessions, made in the first repository that has both commits."""
    if not a.get("git") or not b.get("git"):
        return None
    for place in dict.fromkeys((os.getcwd(), a.get("base"), b.get("base"), a.get("cwd"), b.get("cwd"))):
        if not place or not Path(place).is_dir():
            continue
        objects = git(place, "rev-parse", "--path-format=absolute", "--git-path", "objects")
        top = git(place, "rev-parse", "--show-toplevel")
        if objects is None or top is None:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            # New objects and the index go to a scratch directory, so that the user's repository is only read
            # (git(1): GIT_OBJECT_DIRECTORY, GIT_ALTERNATE_OBJECT_DIRECTORIES, GIT_INDEX_FILE).
            env = {
                "GIT_OBJECT_DIRECTORY": scratch,
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects.strip(),
                "GIT_INDEX_FILE": f"{scratch}/index",
            }
            trees = [_tree(top.strip(), state["git"], env) for state in (a, b)]
            if None in trees:
                continue
            how = "--stat" if stat else "-p"
            here = place if paths else top.strip()
            text = git(
                here, "diff", "--no-color", "--no-ext-diff", how, *map(str, trees), "--", *paths, env=env, errors=_BYTES
            )
            if text is not None:
                return text
    return None


def _tree(top: str, state: Mapping[str, Any], env: Mapping[str, str]) -> str | None:
    """The tree of a commit with its uncommitted changes on top; None when the repository does not have the commit."""
    if not state.get("commit") or git(top, "read-tree", state["commit"], env=env) is None:
        return None
    if (
        state.get("diff")
        and git(top, "apply", "--cached", "--binary", "-", env=env, stdin=state["diff"], errors=_BYTES) is None
    ):
        return None
    tree = git(top, "write-tree", env=env)
    return tree.strip() if tree else None
