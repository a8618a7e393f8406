"""Diffs: what an agent changed in its copy of the start state, applied to another copy, and read by people.

| function | what it does |
|---|---|
| `changes_of` | the diff of a prepared task's tree, whatever the agent did to its `.git` |
| `compare_directories` | the diff of two directories that are not repositories: a Harbor task's workdir |
| `apply_diff` | a diff on a copy of the start state |
| `touched`, `lines_changed`, `readable`, `marked` | a diff as file names, as a number, as text, as lines with their kind |
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Literal

from bakeoff.errors import BakeoffError, InfraError
from bakeoff.sandbox.base import LeftOut
from bakeoff.sandbox.cache import scratch
from bakeoff.sandbox.files import TOO_LARGE
from bakeoff.workloads.tasks.repository import GitFailed, git, git_query
from bakeoff.workloads.tasks.start import StartState, remove, submodules

LARGEST_DIFF = 64 << 20
"""Bytes of changed files in one diff. It is held in memory, a few times over while it is scored and shown."""
MOST_FILES = 50_000
"""Changed files in one diff."""
LineKind = Literal["file", "head", "at", "add", "del", "same"]

_BINARY = re.compile(rb"^GIT binary patch\n(?:literal|delta) (\d+)\n(?:(?!diff --git ).*\n?)*", re.MULTILINE)
_AMBIGUOUS = re.compile(rb"^diff --git a/([^\n]* /[^\n]*) b/\1$", re.MULTILINE)
"""Headers that git writes and cannot read: of empty files below a directory whose name ends with a space. Quoted, it can."""


class PatchFailed(BakeoffError):
    """A diff does not apply to the start state."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What an agent changed, as a diff that applies to the start state."""

    diff: bytes
    left_out: tuple[LeftOut, ...] = ()
    """Files that are not in the diff: too large ones, largest first, and names that git refuses."""


def changes_of(start: StartState, tree: Path, most: int = LARGEST_DIFF) -> Changes:
    """The diff from the start state to `tree`: what `git add -A` would add, at most `most` bytes of files.

    `tree` is used up, and no link in it is followed. Repositories inside `tree` lose their `.git`, so that their files
    count. Files that `.gitignore` names do not count.
    """
    tree = tree.resolve()
    # Remove every `.git`, however it is spelled: git keeps no path with such a name, and the agent's own is not trusted.
    for folder, folders, files in os.walk(tree):
        for name in [name for name in (*folders, *files) if name.lower() == ".git"]:
            remove(Path(folder, name))
        folders[:] = [name for name in folders if name.lower() != ".git"]
    with scratch() as here:
        # The agent's tree with the start state's repository: a copy of its index, and new objects in another place.
        index = here / "index"
        shutil.copyfile(start.tree / ".git" / "index", index)
        objects = here / "objects"
        objects.mkdir()
        env = {
            "GIT_DIR": str(start.tree / ".git"),
            "GIT_WORK_TREE": str(tree),
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(start.tree / ".git" / "objects"),
        }
        # Files in a submodule's place count; its entry in the index would hide them.
        places = {name: tree / name for name in submodules(start)}
        filled = [
            name
            for name, place in places.items()
            if _is_real(place) and not place.is_symlink() and place.is_dir() and any(place.iterdir())
        ]
        if filled:
            names = (f":(top,literal){name}" for name in filled)
            git("rm", "-q", "--cached", "--sparse", "--", *names, at=tree, env=env)
        left_out = list(_leave_out_large(start.tree.resolve(), tree, most, env))
        try:
            git("add", "-A", "--sparse", at=tree, env=env)
        except GitFailed:
            # git refuses some names and attributes that an agent can write. The rest counts all the same: add it in a
            # repository without commits in which every file is plain bytes, whatever `.gitattributes` says.
            plain = here / "git"
            git("init", "-q", "--bare", "--template=", str(plain))
            (plain / "info").mkdir(exist_ok=True)
            (plain / "info" / "attributes").write_text("* -text -filter -ident -working-tree-encoding\n")
            env["GIT_DIR"] = str(plain)
            with suppress(GitFailed):
                git("add", "-A", "--sparse", "--ignore-errors", at=tree, env=env)
            refused = git("ls-files", "-z", "--others", "--exclude-standard", at=tree, env=env).split(b"\0")
            left_out += [LeftOut(name.decode(errors="replace"), "git refuses it") for name in refused if name]
        how = ("--cached", "--binary", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")  # fmt: skip
        diff = git("diff", *how, start.baseline, at=tree, env=env)
        return Changes(_AMBIGUOUS.sub(rb'diff --git "a/\1" "b/\1"', diff), tuple(left_out))


def _leave_out_large(start: Path, tree: Path, most: int, env: dict[str, str]) -> Iterator[LeftOut]:
    """Reset the largest changed files to the start state until the others fit, in bytes and in number; yields them."""

    def size(file: Path) -> int:
        return 0 if file.is_symlink() or not file.is_file() else file.stat().st_size

    sizes_of_all = [size(Path(folder, name)) for folder, _, files in os.walk(tree) for name in files]
    if sum(sizes_of_all) <= most and len(sizes_of_all) <= MOST_FILES:
        return
    # With the index of the start state, `--others --exclude-standard` lists what `git add -A` would add.
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", at=tree, env=env).split(b"\0")
    names = {os.fsdecode(name) for name in listed if name}
    changed = [
        name
        for name in names
        if _is_plain(tree / name)
        and not (_is_plain(start / name) and filecmp.cmp(start / name, tree / name, shallow=False))
    ]
    sizes = {name: size(tree / name) for name in changed}
    total, count = sum(sizes.values()), len(sizes)
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if total <= most and count <= MOST_FILES:
            return
        total, count = total - sizes[name], count - 1
        (tree / name).unlink()
        before = start / name
        # A file of the start state comes back as it was; a new one stays away.
        if _is_real(before) and (before.is_symlink() or before.is_file()):
            shutil.copy2(before, tree / name, follow_symlinks=False)
        yield LeftOut(os.fsencode(name).decode(errors="replace"), TOO_LARGE)


def _is_real(place: Path) -> bool:
    """Whether a path is where it says: a link above it, made by the agent, may lead anywhere on this machine."""
    return place.parent.resolve() == place.parent


def _is_plain(file: Path) -> bool:
    return _is_real(file) and not file.is_symlink() and file.is_file()


def compare_directories(before: Path, after: Path) -> bytes:
    """`git diff` of two directories in the same parent, called `a` and `b`; their `.git` does not count."""
    how = ("--no-index", "--binary", "--no-color", "--no-ext-diff", "--no-renames", "--no-prefix")
    for tree in (before, after):
        remove(tree / ".git")
    result = subprocess.run(["git", "diff", *how, "--", "a", "b"], cwd=before.parent, capture_output=True, check=False)
    if result.returncode not in (0, 1):  # 1: they differ
        raise InfraError(f"git could not compare two workdirs: {result.stderr.decode(errors='replace')[-400:]}")
    return result.stdout


def apply_diff(tree: Path, diff: bytes) -> None:
    """Apply a diff to a copy of a start state. PatchFailed if it does not fit.

    git refuses paths that lead out of `tree`, through links too (git-apply(1), `--unsafe-paths` is not given).
    """
    if not diff.strip():
        return
    try:
        git("apply", "--whitespace=nowarn", "-", at=tree, stdin=diff)
    except GitFailed as first:
        # A three-way merge reads the index, which lists the times of the files that this tree was copied from.
        git_query("update-index", "-q", "--refresh", at=tree)
        try:
            git("apply", "--whitespace=nowarn", "--3way", "-", at=tree, stdin=diff)
        except GitFailed:
            raise PatchFailed(f"the diff does not apply to the start state: {first.output}") from first


def touched(diff: bytes | None) -> list[str]:
    """The files that a diff names. We write no renames, so a header has the same name twice."""
    files = []
    for header in re.findall(rb"^diff --git (.*)$", diff or b"", re.MULTILINE):
        name = header[len(header) // 2 + 1 :]  # the second half of `a/NAME b/NAME`
        if name.startswith(b'"'):  # git quotes names with unusual characters: `"b/n\303\244me"`
            name = name[1:-1].decode("unicode_escape").encode("latin-1")
        files.append(name[2:].decode(errors="replace"))
    return files


def readable(diff: bytes) -> str:
    """A diff for people and judges: of binary files only the size."""
    return _BINARY.sub(lambda patch: b"binary, %s bytes\n" % f"{int(patch[1]):,}".encode(), diff).decode(
        errors="replace"
    )


def lines_changed(diff: bytes) -> int:
    """How many lines were added or removed."""
    return sum(kind in ("add", "del") for kind, _ in marked(readable(diff)))


def marked(diff: str) -> Iterator[tuple[LineKind, str]]:
    """Each line with its kind. `---` and `+++` lines are file names before a file's first hunk, and content after."""
    inside = False
    # At newlines only: `splitlines` would also split at form feeds and U+2028, which are content. One line at a time: an
    # agent can write a file of millions of empty lines.
    for line in StringIO(diff.removesuffix("\n"), newline="\n"):
        line = line.removesuffix("\n")
        if line.startswith("diff --git "):
            inside = False
            yield "file", line
        elif line.startswith("@@"):
            inside = True
            yield "at", line
        elif inside:
            yield ("add" if line[:1] == "+" else "del" if line[:1] == "-" else "same"), line
        else:
            yield "head", line
