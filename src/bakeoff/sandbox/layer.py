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
from bakeoff.sandbox.syscalls import RESOLVE_NO_SYMLINKS, openat2

_PIECE = 1 << 20
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

    def get(self, source: str, target: Path, most: int | None = None) -> None:
        """Copy out. `most` bytes in all: a sparse file of a terabyte costs the box nothing, but would cost us."""
        allowance = _Allowance(most, source)
        with self._opened(source) as fd:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                target.mkdir(parents=True, exist_ok=True)
                _get_tree(fd, target, PurePosixPath(), allowance)
            elif stat.S_ISREG(os.fstat(fd).st_mode):
                target.parent.mkdir(parents=True, exist_ok=True)
                _get_file(fd, target, allowance)
            else:
                raise UsageError(f"{source} in the box is neither a file nor a directory")

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

    def make_mount_point(self, path: str, directory: bool) -> None:
        """Something to mount on, reached without a link: a mount may not land where a link of the box leads."""
        try:
            fd = openat2(self._root, path, os.O_PATH, resolve=RESOLVE_NO_SYMLINKS)
        except FileNotFoundError:
            fd = self._make_point(path, directory)
        except OSError as error:
            raise UsageError(
                f"{path} in the box: a link or a file is in the way of a mount ({error.strerror})"
            ) from None
        os.close(fd)

    def _make_point(self, path: str, directory: bool) -> int:
        parent = str(PurePosixPath(path).parent)
        if parent != "/":
            self.make_mount_point(parent, True)
        above = openat2(self._root, parent, os.O_PATH | os.O_DIRECTORY, resolve=RESOLVE_NO_SYMLINKS)
        try:
            name = PurePosixPath(path).name
            if directory:
                os.mkdir(name, 0o755, dir_fd=above)
            else:
                os.close(os.open(name, _CREATE, 0o644, dir_fd=above))
        finally:
            os.close(above)
        return openat2(self._root, path, os.O_PATH, resolve=RESOLVE_NO_SYMLINKS)

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


class _Allowance:
    def __init__(self, most: int | None, what: str) -> None:
        self._most = most
        self._left = most
        self._what = what

    def spend(self, size: int) -> None:
        if self._left is not None:
            self._left -= size
            if self._left < 0:
                raise UsageError(f"{self._what} in the box is longer than the {self._most} bytes a box may hold")


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


def _get_file(fd: int, target: Path, allowance: _Allowance) -> None:
    facts = os.fstat(fd)
    allowance.spend(facts.st_size)
    left = facts.st_size
    with target.open("wb") as file:
        while piece := os.read(fd, min(_PIECE, left)):
            left -= len(piece)
            file.write(piece)
    target.chmod(stat.S_IMODE(facts.st_mode) & 0o777 | 0o400)
    os.utime(target, ns=(facts.st_mtime_ns, facts.st_mtime_ns))


def _get_tree(source: int, target: Path, below: PurePosixPath, allowance: _Allowance) -> None:
    for name in sorted(os.listdir(source)):
        mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            text = os.readlink(name, dir_fd=source)
            if stays_inside(below, text) and not os.path.lexists(target / name):
                os.symlink(text, target / name)
        elif stat.S_ISDIR(mode):
            fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=source)
            try:
                (target / name).mkdir(exist_ok=True)
                _get_tree(fd, target / name, below / name, allowance)
                (target / name).chmod(stat.S_IMODE(mode) & 0o777 | 0o700)
            finally:
                os.close(fd)
        elif stat.S_ISREG(mode):
            fd = os.open(name, _READ, dir_fd=source)
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    _get_file(fd, target / name, allowance)
            finally:
                os.close(fd)


def stays_inside(below: PurePosixPath, text: str) -> bool:
    """Whether a link in directory `below` of the copied tree leads to a place in that tree.

    A `..` is counted only at its beginning: after another link it would go up from where that one leads.
    """
    parts = PurePosixPath(text).parts
    ups = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    return not text.startswith("/") and ups <= len(below.parts) and ".." not in parts[ups:]
