"""What somebody changed in a copy of the start state, as a diff, whatever became of the copy's own `.git`."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.git import GitFailed, git
from bakeoff.workloads.tasks.start import StartState, remove, submodules

LARGEST_DIFF = 256 << 20
"""Bytes of changed files that a diff has room for: it is held in memory, and git's own formats end at a few times this."""


@dataclass(frozen=True, slots=True)
class Changes:
    diff: bytes
    left_out: tuple[str, ...] = ()
    """Files, largest first, that a diff has no room for; to it they are as in the start state."""


def changes_of(start: StartState, tree: Path, most: int = LARGEST_DIFF) -> Changes:
    """What `git add -A` would take in; `tree` is used up, and no link in it is followed.

    Repositories inside `tree` lose their `.git`, so that their files count. What `.gitignore` names does not.
    """
    tree = tree.resolve()
    _forget_repositories(tree)
    with scratch() as here:
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
        filled = [name for name in submodules(start) if _is_filled(tree / name)]
        if filled:
            names = (f":(top,literal){name}" for name in filled)
            git("rm", "-q", "--cached", "--sparse", "--", *names, at=tree, env=env)
        left_out = tuple(_leave_out_large(start.tree.resolve(), tree, most, env))
        try:
            git("add", "-A", "--sparse", at=tree, env=env)
        except GitFailed:  # names or attributes of the worker's that git refuses; the rest counts all the same
            env["GIT_DIR"] = str(_plain_git(here / "git"))
            with suppress(GitFailed):
                git("add", "-A", "--sparse", "--ignore-errors", at=tree, env=env)
        how = ("--cached", "--binary", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")  # fmt: skip
        return Changes(git("diff", *how, start.baseline, at=tree, env=env), left_out)


def touched(diff: bytes | None) -> list[str]:
    """Files that a diff names. We write no renames, so a header has the same name twice."""
    headers = re.findall(rb"^diff --git (.*)$", diff or b"", re.MULTILINE)
    return [_unquoted(header[len(header) // 2 + 1 :]) for header in headers]


def readable(diff: bytes) -> str:
    """For people and judges: of binary files only their size."""
    return _BINARY.sub(lambda patch: b"binary, %s bytes\n" % f"{int(patch[1]):,}".encode(), diff).decode(
        errors="replace"
    )


_BINARY = re.compile(rb"^GIT binary patch\n(?:literal|delta) (\d+)\n(?:(?!diff --git ).*\n?)*", re.MULTILINE)


def lines_changed(diff: bytes) -> int:
    """Lines that were added or removed."""
    return sum(kind in ("add", "del") for kind, _ in marked(readable(diff)))


def marked(diff: str) -> Iterator[tuple[Literal["file", "head", "at", "add", "del", "same"], str]]:
    """Each line and what it is. Lines of three signs are a file's names before its first hunk, and content after it."""
    inside = False
    for line in diff.removesuffix("\n").split("\n"):
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


def _unquoted(name: bytes) -> str:
    """`b/name`, or as git quotes names with unusual characters: `"b/n\\303\\244me"`."""
    if name.startswith(b'"'):
        name = name.strip(b'"').decode("unicode_escape").encode("latin-1")
    return name[2:].decode(errors="replace")


def _forget_repositories(tree: Path) -> None:
    """Take away every `.git`, however it is spelled: git keeps no path with such a name."""
    for folder, folders, files in os.walk(tree):
        for name in [name for name in (*folders, *files) if name.lower() == ".git"]:
            remove(Path(folder, name))
        folders[:] = [name for name in folders if name.lower() != ".git"]


def _leave_out_large(start: Path, tree: Path, most: int, env: dict[str, str]) -> Iterator[str]:
    """Put the largest changed files back to the start state until the others fit; the names of those."""
    if sum(_size(Path(folder, name)) for folder, _, files in os.walk(tree) for name in files) <= most:
        return
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", at=tree, env=env).split(b"\0")
    names = {os.fsdecode(name) for name in listed if name}
    sizes = {name: _size(tree / name) for name in names if _changed(start / name, tree / name)}
    total = sum(sizes.values())
    for name in sorted(sizes, key=lambda name: sizes[name], reverse=True):
        if total <= most:
            return
        total -= sizes[name]
        (tree / name).unlink()
        before = start / name
        if _is_real(before) and (before.is_symlink() or before.is_file()):
            shutil.copy2(before, tree / name, follow_symlinks=False)
        yield os.fsencode(name).decode(errors="replace")


def _size(file: Path) -> int:
    return 0 if file.is_symlink() or not file.is_file() else file.stat().st_size


def _changed(before: Path, after: Path) -> bool:
    """Whether `after` is a plain file with other content than `before`."""
    if not _is_plain(after):
        return False
    return not _is_plain(before) or not filecmp.cmp(before, after, shallow=False)


def _is_plain(file: Path) -> bool:
    return _is_real(file) and not file.is_symlink() and file.is_file()


def _is_real(place: Path) -> bool:
    """Whether it is where its path says: a link above it, the worker's own, may lead anywhere on this machine."""
    return place.parent.resolve() == place.parent


def _is_filled(folder: Path) -> bool:
    return _is_real(folder) and not folder.is_symlink() and folder.is_dir() and any(folder.iterdir())


def _plain_git(place: Path) -> Path:
    """A repository of no commits in which every file is plain bytes, whatever `.gitattributes` says."""
    git("init", "-q", "--bare", "--template=", str(place))
    (place / "info").mkdir(exist_ok=True)
    (place / "info" / "attributes").write_text("* -text -filter -ident -working-tree-encoding\n")
    return place
