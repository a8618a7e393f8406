"""Read and write files inside a box from outside, without following symlinks out of it.

A command in the box may have left links (`/app/repo -> /etc`), pipes and devices for us to trip over. So the kernel
opens every path as if the box's root were the root (openat2 with RESOLVE_IN_ROOT), only plain files are read,
nothing is opened that could block, and a write replaces what is there instead of writing through it.

    root = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    tree = FileTree(root)
    tree.write("/app/answer", b"42", 0o600)
    tree.get("/app", Path("copy"), most=1 << 20)
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import MOST_LEFT_OUT, Box, LeftOut, box_path
from bakeoff.sandbox.syscalls import closing, openat2

_CHUNK = 1 << 20
MAX_DEPTH = 200
"""Directories below each other that `get` copies: each level holds an open descriptor."""
MAX_ENTRIES = 1_000_000
"""Files, links and directories that `get` copies: each costs us an inode."""
TOO_LARGE = "too large"
# O_NOFOLLOW fails with ELOOP on a link; O_NONBLOCK keeps the open of a pipe from waiting; O_EXCL creates or fails.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OURS = frozenset([errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS])
"""Errors of a copy out of a box that are about this machine: no room, no descriptors."""
# What openat2, mkdir and rename answer to trees that a command can make. EXDEV is also openat2's answer to an escape.
_CAUSED_INSIDE = frozenset(
    [
        errno.ELOOP,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENXIO,
        errno.EXDEV,
        errno.ENOTEMPTY,
        errno.EEXIST,
        errno.EACCES,
        errno.EPERM,
        errno.ENAMETOOLONG,
    ]
)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who new files belong to, as numbers outside of the box."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class FileTree:
    """The tree below an open directory, usually the root of a box. Paths are absolute, with that directory as `/`."""

    root: int
    """The open directory. It stays open while the tree is used."""
    owner: Owner | None = None
    """Who new files belong to (default: us)."""

    def write(self, target: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file, replacing whatever is there."""
        with self._parent(target) as (parent, name), _replacement(parent, name, mode, self.owner) as file:
            file.write(data)

    def read(self, source: str, most: int) -> bytes:
        """The content of a plain file of at most `most` bytes."""
        with self._opened(source) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UsageError(f"{source} in the sandbox is not a plain file")
            chunks, size = [], 0
            while chunk := os.read(fd, _CHUNK):
                chunks.append(chunk)
                size += len(chunk)
                if size > most:
                    raise UsageError(f"{source} in the sandbox has more than {most} bytes")
            return b"".join(chunks)

    def put(self, source: Path, target: str) -> None:
        """Copy a file or directory of this machine to `target`."""
        if not source.exists():
            raise UsageError(f"{source}: no such file or directory to copy into the sandbox")
        if source.is_dir():
            with closing(self.make_directory(target)) as fd:
                _put_tree(source, fd, self.owner)
        else:
            with self._parent(target) as (parent, name):
                _put_file(source, parent, name, self.owner)

    def get(self, source: str, target: Path, most: int | None = None, *, all_links: bool = False) -> list[LeftOut]:
        """Copy a file or directory out to `target`, at most `most` bytes, as `Box.get` says.

        The limit is there because a sparse file costs the box nothing, but us its full size.
        """
        copy = _CopyOut(most, all_links)
        with self._opened(source) as fd:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                target.mkdir(parents=True, exist_ok=True)
                copy.tree(fd, target, PurePosixPath())
            elif most is None or status.st_size <= most:
                target.parent.mkdir(parents=True, exist_ok=True)
                copy.file(fd, target)
            else:
                raise UsageError(f"{source} in the sandbox is longer than the {most} bytes a sandbox may hold")
        return copy.left_out

    def is_directory(self, path: str) -> bool:
        """Whether `path` is a directory, or a link to one inside the tree."""
        try:
            os.close(self._open(path, _DIRECTORY))
        except (FileNotFoundError, UsageError):
            return False
        return True

    def make_directory(self, path: str) -> int:
        """Open a directory, creating it and those above it where they are missing. The caller closes it."""
        box_path(path)
        try:
            return self._open(path, _DIRECTORY)
        except FileNotFoundError:
            pass
        missing = PurePosixPath(path)
        # Each level is made in a directory that is open already: nobody can exchange a parent in between.
        with closing(self.make_directory(str(missing.parent))) as above:
            try:
                os.mkdir(missing.name, 0o755, dir_fd=above)
                fd = os.open(missing.name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            except OSError as error:
                raise _box_error(error, path) from None
        if self.owner is not None:
            os.fchown(fd, self.owner.uid, self.owner.gid)
        return fd

    def make_mount_point(self, path: str, directory: bool, *, replace: bool = False) -> None:
        """Make sure that something to mount on is at `path`: a directory, or else a file.

        No component of the path may be a link: a mount on a link would land where the link leads. What is in the way is
        an error, or removed when `replace` is set (directories never are).
        """
        parts = box_path(path).parts[1:]
        here = os.dup(self.root)  # the loop closes each level when it has the next one
        try:
            for number, name in enumerate(parts, 1):
                below = _open_or_make(here, name, directory or number < len(parts), replace)
                if below is None:
                    raise UsageError(f"{path} in the sandbox: a link or a file is in the way of a mount")
                os.close(here)
                here = below
        finally:
            os.close(here)

    def _open(self, path: str, flags: int) -> int:
        """openat2 below the root. FileNotFoundError passes; other errors that a command can cause become UsageError."""
        try:
            return openat2(self.root, path, flags)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _box_error(error, path) from None

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """A plain file or directory, open for reading."""
        box_path(path)
        try:
            # Opening a device can already do something. O_PATH opens nothing (open(2)), so it tells first what it is.
            with closing(self._open(path, os.O_PATH)) as probe:
                mode = os.fstat(probe).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise UsageError(f"{path} in the sandbox is neither a file nor a directory")
            # It may have been exchanged since then: O_NONBLOCK keeps the open of a pipe from waiting for a writer.
            fd = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            raise UsageError(f"{path}: no such file or directory in the sandbox") from None
        with closing(fd):
            yield fd

    @contextmanager
    def _parent(self, target: str) -> Iterator[tuple[int, str]]:
        """The open directory that `target` is in, and its name there.

        Errors in the body become errors about `target`.
        """
        path = box_path(target)
        if not path.name:
            raise UsageError(f"{target!r} in the sandbox is not the name of a file")
        with closing(self.make_directory(str(path.parent))) as fd:
            try:
                yield fd, path.name
            except OSError as error:
                raise _box_error(error, target) from None


class FileTreeBox(Box):
    """A box whose files this process reaches directly. Subclasses set `_files`."""

    _files: FileTree
    _copy_limit: int | None = None

    def _tree(self, path: str) -> FileTree:
        """The tree that holds `path`; a UsageError when the box is closed or `path` is not the box's own."""
        self._check_open()
        return self._files

    def put(self, source: Path, target: str) -> None:
        self._tree(target).put(source, target)

    def get(self, source: str, target: Path, *, all_links: bool = False, most: int | None = None) -> list[LeftOut]:
        limits = [limit for limit in (self._copy_limit, most) if limit is not None]
        return self._tree(source).get(source, target, min(limits, default=None), all_links=all_links)

    def write(self, target: str, data: bytes, mode: int = 0o644) -> None:
        self._tree(target).write(target, data, mode)

    def read(self, source: str, most: int = 1 << 24) -> bytes:
        return self._tree(source).read(source, most)


def _box_error(error: OSError, path: str) -> UsageError | OSError:
    """The error to raise: a UsageError for what a command in the box can cause, else `error` itself (our full disk)."""
    if error.errno in _CAUSED_INSIDE:
        return UsageError(f"{path} in the sandbox: {error.strerror}")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UsageError(f"{path}: no room left in the sandbox; its disk limit is reached")
    return error


@contextmanager
def _replacement(parent: int, name: str, mode: int, owner: Owner | None) -> Iterator[IO[bytes]]:
    """A new file to fill, renamed to `name` at the end: nothing that is there is opened or followed (rename(2)).

    On an error the new file is removed and what was there stays.
    """
    for _ in range(100):
        temporary = f".{name[:100]}.{os.urandom(6).hex()}"
        try:
            fd = os.open(temporary, _CREATE, 0o600, dir_fd=parent)
        except FileExistsError:
            continue
        break
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()  # a later write would drop capabilities and change the time
            if owner is not None:
                os.fchown(fd, owner.uid, owner.gid)
            os.fchmod(fd, mode & 0o777)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(temporary, dir_fd=parent)
        raise


def _open_or_make(parent: int, name: str, directory: bool, replace: bool) -> int | None:
    """Open a directory, or else a file, by name (O_PATH). It is created if missing; None if something is in the way."""
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


def _put_file(source: Path, parent: int, name: str, owner: Owner | None) -> None:
    """Copy a file of this machine into an open directory, with its mode and time."""
    with source.open("rb") as original:
        status = os.fstat(original.fileno())
        with _replacement(parent, name, stat.S_IMODE(status.st_mode), owner) as file:
            shutil.copyfileobj(original, file, _CHUNK)
            file.flush()
            os.utime(file.fileno(), ns=(status.st_mtime_ns, status.st_mtime_ns))


def _put_tree(source: Path, target: int, owner: Owner | None) -> None:
    """Copy the content of a directory into an open one. What is in the way of a directory or a link is replaced."""
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        if entry.is_symlink():
            # A link cannot be replaced in place: make it under another name and rename it (symlink(2), EEXIST).
            temporary = f".link.{os.urandom(6).hex()}"
            os.symlink(os.readlink(entry.path), temporary, dir_fd=target)
            if owner is not None:
                os.chown(temporary, owner.uid, owner.gid, dir_fd=target, follow_symlinks=False)
            os.rename(temporary, entry.name, src_dir_fd=target, dst_dir_fd=target)
        elif entry.is_dir():
            mode = stat.S_IMODE(entry.stat().st_mode)
            try:
                os.mkdir(entry.name, mode, dir_fd=target)
            except FileExistsError:
                if not stat.S_ISDIR(os.stat(entry.name, dir_fd=target, follow_symlinks=False).st_mode):
                    os.unlink(entry.name, dir_fd=target)
                    os.mkdir(entry.name, mode, dir_fd=target)
            with closing(os.open(entry.name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=target)) as fd:
                os.fchmod(fd, mode)
                if owner is not None:
                    os.fchown(fd, owner.uid, owner.gid)
                _put_tree(Path(entry.path), fd, owner)
        elif entry.is_file():
            _put_file(Path(entry.path), target, entry.name, owner)


@dataclass(slots=True)
class _CopyOut:
    """One copy out of a box. Whoever made the tree may have made it so that it cannot be copied whole."""

    left: int | None
    """Bytes that may still be copied; None for no limit."""
    all_links: bool
    entries: int = MAX_ENTRIES
    """Entries that may still be copied."""
    left_out: list[LeftOut] = field(default_factory=list)

    def tree(self, source: int, target: Path, below: PurePosixPath) -> None:
        """Copy the content of an open directory to an existing one; `below` is where it is in the copied tree."""
        for name in sorted(os.listdir(source)):
            try:
                why = self._entry(source, name, target / name, below)
            except OSError as error:
                # Whoever made the tree can cause any error but those of our own disk and process.
                if error.errno in _OURS:
                    raise
                why = error.strerror or "cannot be read"
            if why and len(self.left_out) < MOST_LEFT_OUT:
                self.left_out.append(LeftOut(os.fsencode(below / name).decode(errors="replace"), why))

    def _entry(self, source: int, name: str, target: Path, below: PurePosixPath) -> str:
        """Copy one entry of an open directory: a link if it may be kept, a directory with its content, or a file.

        Returns why it was left out, empty if it was copied.
        """
        if not self.entries:
            return f"more than {MAX_ENTRIES:,} entries"
        self.entries -= 1
        mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            text = os.readlink(name, dir_fd=source)
            if not self.all_links and not stays_inside(below, text):
                return "a link that leads out"
            if not os.path.lexists(target):
                os.symlink(text, target)
        elif stat.S_ISDIR(mode):
            if len(below.parts) >= MAX_DEPTH:
                return f"more than {MAX_DEPTH} directories deep"
            with closing(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=source)) as fd:
                target.mkdir(exist_ok=True)
                self.tree(fd, target, below / name)
                target.chmod(stat.S_IMODE(mode) & 0o777 | 0o700)
        elif stat.S_ISREG(mode):
            with closing(os.open(name, _READ, dir_fd=source)) as fd:
                status = os.fstat(fd)  # of what was opened, which may be something else by now
                if not stat.S_ISREG(status.st_mode):
                    return "not a plain file"
                if self.left is not None and status.st_size > self.left:
                    return TOO_LARGE
                self.file(fd, target)
        else:
            return "not a plain file"
        return ""

    def file(self, fd: int, target: Path) -> None:
        """Copy an open file, no more of it than its size was: it may grow meanwhile."""
        status = os.fstat(fd)
        rest = status.st_size
        if self.left is not None:
            self.left -= rest
        with target.open("wb") as file:
            while chunk := os.read(fd, min(_CHUNK, rest)):
                rest -= len(chunk)
                file.write(chunk)
        target.chmod(stat.S_IMODE(status.st_mode) & 0o777 | 0o400)  # no set-user-ID bits; readable by us
        os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))


def stays_inside(below: PurePosixPath, text: str) -> bool:
    """Whether a link in directory `below` of a copied tree leads to a place in that tree, whatever else is in the tree.

    A `..` may be only at the beginning of the link: after another name, which may be a link itself, it would go up from
    wherever that one leads.
    """
    parts = PurePosixPath(text).parts
    ups = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    return not text.startswith("/") and ups <= len(below.parts) and ".." not in parts[ups:]
