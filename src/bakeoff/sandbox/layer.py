"""Files of a box, read and written from outside without ever being led astray.

Whoever ran in a box may have left links (`/app/repo -> /etc`), pipes and devices. Every path is opened by the kernel as
if the box's root were the root (openat2, RESOLVE_IN_ROOT), only plain files are read, nothing is opened that could
block, and what is written replaces what is there instead of writing through it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from bakeoff.errors import UsageError
from bakeoff.sandbox.spec import inside
from bakeoff.sandbox.syscalls import openat2

_PIECE = 1 << 20
DEEPEST = 200
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Owner = tuple[int, int] | None


class Layer:
    """The tree below an open directory. `owner` is whom new files belong to; None leaves them to whoever we are."""

    def __init__(self, root: int, owner: Owner = None) -> None:
        self._root = root
        self._owner = owner

    def write(self, target: str, data: bytes, mode: int = 0o644) -> None:
        with self._parent(target) as (parent, name):
            _replace(parent, name, mode, self._owner, lambda fd: _write_all(fd, data))

    def read(self, source: str, most: int) -> bytes:
        with self._opened(source) as fd:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode):
                raise UsageError(f"{source} in the box is no plain file")
            pieces, size = [], 0
            while piece := os.read(fd, _PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    raise UsageError(f"{source} in the box has more than {most} bytes")
            return b"".join(pieces)

    def put(self, source: Path, target: str) -> None:
        if not source.exists():
            raise UsageError(f"{source}: nothing there to put into the box")
        if source.is_dir():
            fd = self.make_directory(target)
            try:
                _put_tree(source, fd, self._owner)
            finally:
                os.close(fd)
        else:
            with self._parent(target) as (parent, name):
                _put_file(source, parent, name, self._owner)

    def get(self, source: str, target: Path, most: int | None = None, *, all_links: bool = False) -> None:
        """Copy out, of a directory as much as can be. At most `most` bytes: a sparse file costs the box nothing, but us.

        `all_links` is for a copy that nobody follows links in.
        """
        taking = _Taking(most, all_links)
        with self._opened(source) as fd:
            facts = os.fstat(fd)
            if stat.S_ISDIR(facts.st_mode):
                target.mkdir(parents=True, exist_ok=True)
                taking.tree(fd, target, PurePosixPath())
            elif taking.has_room(facts.st_size):
                target.parent.mkdir(parents=True, exist_ok=True)
                taking.file(fd, target)
            else:
                raise UsageError(f"{source} in the box is longer than the {most} bytes a box may hold")

    def is_directory(self, path: str) -> bool:
        try:
            os.close(self._open(path, _DIRECTORY))
        except (FileNotFoundError, UsageError):
            return False
        return True

    def make_directory(self, path: str) -> int:
        """Open a directory of the box, making it and those above it where they are missing."""
        inside(path)
        try:
            return self._open(path, _DIRECTORY)
        except FileNotFoundError:
            pass
        made = PurePosixPath(path)
        above = self.make_directory(str(made.parent))
        try:
            os.mkdir(made.name, 0o755, dir_fd=above)
            fd = os.open(made.name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        except OSError as error:
            raise _told(error, path) from None
        finally:
            os.close(above)
        _give(fd, self._owner)
        return fd

    def make_mount_point(self, path: str, directory: bool, *, replace: bool = False) -> None:
        """Something to mount on, reached without a link: a mount may not land where a link of the box leads.

        What is in the way is an error, or replaced.
        """
        parts = inside(path).parts[1:]
        here = os.dup(self._root)
        try:
            for number, name in enumerate(parts, 1):
                below = _point(here, name, directory or number < len(parts), replace)
                if below is None:
                    raise UsageError(f"{path} in the box: a link or a file is in the way of a mount")
                os.close(here)
                here = below
        finally:
            os.close(here)

    def _open(self, path: str, flags: int) -> int:
        try:
            return openat2(self._root, path, flags)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _told(error, path) from None

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        inside(path)
        try:
            # The kernel refuses a pipe or device only after opening it, so ask first what it is.
            look = self._open(path, os.O_PATH)
            try:
                mode = os.fstat(look).st_mode
            finally:
                os.close(look)
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise UsageError(f"{path} in the box is neither a file nor a directory")
            fd = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            raise UsageError(f"{path}: no such file or directory in the box") from None
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _parent(self, target: str) -> Iterator[tuple[int, str]]:
        path = inside(target)
        if not path.name:
            raise UsageError(f"{target!r} in the box is no name for a file")
        fd = self.make_directory(str(path.parent))
        try:
            yield fd, path.name
        except OSError as error:
            raise _told(error, target) from None
        finally:
            os.close(fd)


def _told(error: OSError, path: str) -> UsageError | OSError:
    """What the box can cause is an error about the box; a full disk of ours, say, is not."""
    if error.errno in (
        errno.ELOOP,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENXIO,
        errno.EXDEV,
        errno.ENOTEMPTY,
        errno.EEXIST,
    ):
        return UsageError(f"{path} in the box: {error.strerror}")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UsageError(f"{path}: no room left in the box; its disk limit is reached")
    return error


def _give(fd: int, owner: Owner) -> None:
    if owner is not None:
        os.fchown(fd, *owner)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _replace(parent: int, name: str, mode: int, owner: Owner, fill: Callable[[int], None]) -> None:
    """A new file under a new name, then renamed: nothing that is there is opened or followed."""
    for _ in range(100):
        temporary = f".{name[:100]}.{os.urandom(6).hex()}"
        try:
            fd = os.open(temporary, _CREATE, 0o600, dir_fd=parent)
        except FileExistsError:
            continue
        break
    try:
        try:
            fill(fd)
            _give(fd, owner)
            os.fchmod(fd, mode & 0o777)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(temporary, dir_fd=parent)
        raise


def _point(parent: int, name: str, directory: bool, replace: bool) -> int | None:
    """An open directory, or something else than one, of this name, made if it is not there; None if it cannot be had."""
    for _ in range(3):  # remove, make, open
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        except FileNotFoundError:
            if directory:
                os.mkdir(name, 0o755, dir_fd=parent)
            else:
                os.close(os.open(name, _CREATE, 0o644, dir_fd=parent))
            continue
        mode = os.fstat(fd).st_mode
        if not stat.S_ISLNK(mode) and stat.S_ISDIR(mode) == directory:
            return fd
        os.close(fd)
        if not replace or stat.S_ISDIR(mode):
            return None
        os.unlink(name, dir_fd=parent)
    return None


def _put_file(source: Path, parent: int, name: str, owner: Owner) -> None:
    with source.open("rb") as file:
        facts = os.fstat(file.fileno())

        def fill(fd: int) -> None:
            while piece := file.read(_PIECE):
                _write_all(fd, piece)
            os.utime(fd, ns=(facts.st_mtime_ns, facts.st_mtime_ns))

        _replace(parent, name, stat.S_IMODE(facts.st_mode), owner, fill)


def _put_tree(source: Path, target: int, owner: Owner) -> None:
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        if entry.is_symlink():
            _put_link(os.readlink(entry.path), target, entry.name, owner)
        elif entry.is_dir():
            fd = _enter(target, entry.name, stat.S_IMODE(entry.stat().st_mode), owner)
            try:
                _put_tree(Path(entry.path), fd, owner)
            finally:
                os.close(fd)
        elif entry.is_file():
            _put_file(Path(entry.path), target, entry.name, owner)


def _enter(parent: int, name: str, mode: int, owner: Owner) -> int:
    """A directory to put things in; whatever else has its name is replaced."""
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=parent)
            os.mkdir(name, mode, dir_fd=parent)
    fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    os.fchmod(fd, mode)
    _give(fd, owner)
    return fd


def _put_link(text: str, parent: int, name: str, owner: Owner) -> None:
    temporary = f".link.{os.urandom(6).hex()}"
    os.symlink(text, temporary, dir_fd=parent)
    if owner is not None:
        os.chown(temporary, *owner, dir_fd=parent, follow_symlinks=False)
    os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)


class _Taking:
    """One copy out of a box. Whoever made the tree may have made it so that it cannot be copied whole."""

    def __init__(self, most: int | None, all_links: bool) -> None:
        self._left = most
        self._all_links = all_links

    def has_room(self, size: int) -> bool:
        return self._left is None or size <= self._left

    def tree(self, source: int, target: Path, below: PurePosixPath) -> None:
        for name in sorted(os.listdir(source)):
            try:
                self._entry(source, name, target / name, below)
            except OSError as error:
                if error.errno not in (errno.ENAMETOOLONG, errno.EACCES):  # another, a full disk say, is about us
                    raise

    def _entry(self, source: int, name: str, target: Path, below: PurePosixPath) -> None:
        mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            text = os.readlink(name, dir_fd=source)
            if (self._all_links or stays_inside(below, text)) and not os.path.lexists(target):
                os.symlink(text, target)
        elif stat.S_ISDIR(mode):
            self._directory(source, name, mode, target, below / name)
        elif stat.S_ISREG(mode):
            fd = os.open(name, _READ, dir_fd=source)
            try:
                facts = os.fstat(fd)
                if stat.S_ISREG(facts.st_mode) and self.has_room(facts.st_size):
                    self.file(fd, target)
            finally:
                os.close(fd)

    def _directory(self, source: int, name: str, mode: int, target: Path, below: PurePosixPath) -> None:
        if len(below.parts) > DEEPEST:  # each level holds a descriptor
            return
        fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=source)
        try:
            target.mkdir(exist_ok=True)
            self.tree(fd, target, below)
            target.chmod(stat.S_IMODE(mode) & 0o777 | 0o700)
        finally:
            os.close(fd)

    def file(self, fd: int, target: Path) -> None:
        facts = os.fstat(fd)
        left = facts.st_size
        if self._left is not None:
            self._left -= left
        with target.open("wb") as file:
            while piece := os.read(fd, min(_PIECE, left)):
                left -= len(piece)
                file.write(piece)
        target.chmod(stat.S_IMODE(facts.st_mode) & 0o777 | 0o400)
        os.utime(target, ns=(facts.st_mtime_ns, facts.st_mtime_ns))


def stays_inside(below: PurePosixPath, text: str) -> bool:
    """Whether a link in directory `below` of the copied tree leads to a place in that tree.

    A `..` is counted only at its beginning: after another link it would go up from where that one leads.
    """
    parts = PurePosixPath(text).parts
    ups = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    return not text.startswith("/") and ups <= len(below.parts) and ".." not in parts[ups:]
