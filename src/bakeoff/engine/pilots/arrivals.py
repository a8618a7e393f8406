"""Run directories that come home. They arrive beside their place, complete and synced, and are then renamed into it.

    <edition>/.incoming/<token>          a directory that was delivered
    <edition>/.incoming/<token>.saved-3  the third copy of a directory whose run goes on; the newest two are kept
    <edition>/.incoming/*.part           on its way

Names are tokens, so a pilot that lost its claim cannot touch what belongs to another attempt of the run: only the
scheduler renames into `runs/`, and only for the current claim.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from bakeoff.records.claims import Token, is_token
from bakeoff.records.files import read_inside
from bakeoff.records.layout import EditionPaths
from bakeoff.records.rundir import CHECKPOINT
from bakeoff.spec.identity import RunId
from bakeoff.trees import copy_tree, remove_tree, walk

INCOMING = ".incoming"
_SAVED = re.compile(r"(.+)\.saved-(\d{1,9})")
_KEPT = 2
"""Saved copies of a run that are kept: the newest one, and the one before."""


class Arrivals:
    """`runs/` of an edition, and what is on its way there."""

    def __init__(self, paths: EditionPaths) -> None:
        self._paths = paths
        self.incoming = paths.directory / INCOMING
        """Where directories arrive."""
        self._replaced: list[Path] = []
        """What had the place of directories that were renamed since the last `sync`."""

    def delivered(self, token: Token) -> Path:
        """Where the directory of an attempt that ended has to be, when its report is taken in."""
        return self.incoming / token

    def saved(self, token: Token, number: int) -> Path:
        """Where copy `number` of a directory goes whose run goes on; a higher number replaces a lower one."""
        return self.incoming / f"{token}.saved-{number}"

    def drop_older(self, token: Token) -> None:
        """Delete the saved copies of a claim except for the newest ones."""
        copies = sorted((number, path) for name, number, path in self._arrived() if name == token and number)
        for _, path in copies[:-_KEPT]:
            remove(path)

    def open(self) -> None:
        """Make the place. What is on its way from an earlier session stays: its pilots may still deliver."""
        self.incoming.mkdir(mode=0o700, exist_ok=True)

    def install(self, token: Token, run_id: RunId) -> bool:
        """Put a delivered directory into its place. False when it is not there: it was lost on its way.

        It is durable after `sync`, which many share.

        A scheduler that is killed after this and before the attempt is recorded comes here again, and finds the
        directory in its place: `.token` in it says whose it is.
        """
        place, fresh = self._place(run_id), self.delivered(token)
        if not fresh.is_dir() or fresh.is_symlink():
            return _token_of(place) == token
        remove(fresh / ".token")  # a run may have made a link of it
        (fresh / ".token").write_text(token)
        self._replace(place, fresh, token)
        return True

    def rescue(self, token: Token, run_id: RunId) -> bool:
        """Put the newest saved copy of a lost attempt into its place, for the next attempt to go on from."""
        copies = sorted((number, path) for name, number, path in self._arrived() if name == token and number)
        if copies:
            self._replace(self._place(run_id), copies[-1][1], token)
        self.discard([token])
        return bool(copies)

    def _place(self, run_id: RunId) -> Path:
        """A run's place, where a link may lie that is to be replaced. Raises Damaged for an id that leads elsewhere."""
        return self._paths.runs / self._paths.run(run_id).name

    def _replace(self, place: Path, fresh: Path, token: Token) -> None:
        """Rename `fresh` to `place`; what is there is moved out of the way first, and deleted by `sync`."""
        self._paths.runs.mkdir(exist_ok=True)
        old = self.incoming / f"{token}.old.part"
        remove(old)
        if os.path.lexists(place):
            os.rename(place, old)
        os.rename(fresh, place)
        self._replaced.append(old)

    def sync(self) -> None:
        """Make the new names durable, all at once: on a disk that takes longer than everything else together."""
        if self._replaced:
            sync_directory(self._paths.runs)
            for old in self._replaced:
                remove(old)
            self._replaced.clear()

    def discard(self, tokens: Collection[str]) -> None:
        """Delete everything of claims that are over. Lists the directory once, which may have copies of all runs."""
        for token, _, path in self._arrived():
            if token in tokens:
                remove(path)

    def _arrived(self) -> Iterator[tuple[Token, int, Path]]:
        """(token, number, path) of all that has come: 0 for what was delivered, and the numbers of saved copies."""
        for name in os.listdir(self.incoming) if self.incoming.is_dir() else ():
            found = _SAVED.fullmatch(name)
            token, number = (name, 0) if found is None else (found[1], int(found[2]))
            if not is_token(token) or not (self.incoming / name).is_dir() or (self.incoming / name).is_symlink():
                continue
            yield token, number, self.incoming / name

    def settled(self, run_id: RunId) -> None:
        """The attempt is recorded: its directory needs no name of a claim any longer."""
        (self._paths.runs / run_id / ".token").unlink(missing_ok=True)

    def close(self) -> None:
        """Delete what arrived and was never asked for."""
        remove(self.incoming)


def _token_of(directory: Path) -> str | None:
    try:
        return read_inside(directory, ".token").decode(errors="replace")
    except OSError:
        return None


def checkpoint_state(directory: Path) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and time of change of every file of a run's checkpoint; empty when there is none."""
    files = []
    for folder, _, names in walk(directory / CHECKPOINT):
        for name in names:
            try:
                facts = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            files.append((os.path.join(folder, name), facts.st_size, facts.st_mtime_ns))
    return tuple(sorted(files))


@contextmanager
def checkpoint_unchanged(directory: Path) -> Iterator[None]:
    """Raise OSError if a run's checkpoint changed during the body: a copy of it would be one that never was."""
    before = checkpoint_state(directory)
    yield
    if checkpoint_state(directory) != before:
        raise OSError(errno.EBUSY, "the checkpoint changed while it was copied", str(directory / CHECKPOINT))


def copy_synced(source: Path, target: Path, watch: AbstractContextManager[None] | None = None) -> None:
    """Copy a directory so that `target` appears whole and is on disk, or not at all. `watch` is open while it is copied.

    Links stay links, and pipes, sockets and devices are left out.
    """
    part = target.with_name(f"{target.name}.part")
    remove(part)
    part.parent.mkdir(mode=0o700, exist_ok=True)
    with watch or nullcontext():
        copy_tree(source, part, _sync)
    remove(target)
    os.rename(part, target)
    sync_directory(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make names in a directory durable."""
    _sync(path)


def remove(path: Path) -> None:
    """Delete a file, a link or a tree, if it is there; as much of it as can be deleted."""
    with suppress(OSError):
        if not path.is_symlink() and path.is_dir():  # a link may lead to what no call takes
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)
