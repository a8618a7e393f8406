"""Files of an edition, opened and written without ever following a link.

An edition may come by mail, and runs write what they like into their directories: a link in it could make a report show
a file of whoever reads it, or make a verb write over one. A pipe would make it wait for ever. So every file in an
edition is opened here, from a directory that is known, part by part. The one link that we make ourselves, `latest`,
lies above the editions.

Systems without openat(2), such as Windows, get the same by other means: see `_open_by_path`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path, PurePath
from typing import BinaryIO

from bakeoff.errors import StorageError
from bakeoff.trees import walk

BINARY: int = getattr(os, "O_BINARY", 0)
"""Windows translates line ends in files that are opened by `os.open` without it."""
CLOSE_ON_EXEC: int = getattr(os, "O_CLOEXEC", 0)
# O_NONBLOCK: opening a pipe that nobody writes to would wait (fifo(7)); it means nothing for a regular file.
NO_LINK: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags that make `os.open` fail for a link and return at once for a pipe, where the system has them."""
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | CLOSE_ON_EXEC
_FILE = os.O_RDONLY | NO_LINK | CLOSE_ON_EXEC | BINARY
_JUNCTION = 0xA0000003
"""IO_REPARSE_TAG_MOUNT_POINT of Windows: a directory that is no link to Python, and leads elsewhere all the same."""
_BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
"""Whether a file can be opened relative to an open directory (openat(2))."""


def open_inside(home: Path, name: str | PurePath) -> BinaryIO:
    """Open the regular file `name` below the directory `home` for reading.

    `home` itself is trusted. Raises OSError: for a link anywhere in `name`, a name that leads out of `home`, and
    anything that is not a regular file; FileNotFoundError when there is nothing.
    """
    parts = _parts(home, name)
    number = _open_by_descriptor(home, parts) if _BY_DESCRIPTOR else _open_by_path(home, parts)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is not a regular file", str(home / name))
    return os.fdopen(number, "rb")


def read_inside(home: Path, name: str | PurePath) -> bytes:
    """The content of the file that `open_inside` opens."""
    with open_inside(home, name) as file:
        return file.read()


def is_file_inside(home: Path, name: str | PurePath) -> bool:
    """Whether `open_inside` would open it."""
    try:
        open_inside(home, name).close()
    except OSError:
        return False
    return True


def make_inside(home: Path, name: str | PurePath) -> Path:
    """The directory `name` below `home`, made where it is missing. Raises OSError when a part of it is a link."""
    here = home
    for part in _parts(home, name):
        here = here / part
        try:
            here.mkdir(exist_ok=True)
        except FileExistsError:
            raise OSError(errno.ENOTDIR, "is not a directory", str(here)) from None
        if here.is_symlink():
            raise _link(here)
    return here


def refuse_links(directory: Path) -> None:
    """Raise StorageError for a link, a pipe or a device in a directory. A directory that is not there has none."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise refused(Path(entry.path))
                if not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False):
                    raise StorageError(
                        f"{entry.path}: is neither a file nor a directory, so whoever reads it may wait for ever: remove it"
                    )
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StorageError(f"{directory}: cannot be read: {error.strerror}") from error


def remove_links(directory: Path) -> None:
    """Remove every link below a directory that is about to be written to; what they name stays."""
    for place, folders, names in walk(directory):
        for name in (*folders, *names):
            path = Path(place, name)
            if path.is_symlink():
                path.unlink()


def refused(link: Path) -> StorageError:
    """The error for a link in an edition."""
    return StorageError(
        f"{link}: is a symbolic link. Links in an edition are not followed, since they could lead to any file: "
        "remove it, or put what it names in its place"
    )


def _parts(home: Path, name: str | PurePath) -> tuple[str, ...]:
    parts = PurePath(name).parts
    if not parts or PurePath(name).is_absolute() or ".." in parts or "\0" in str(name):
        raise OSError(errno.EINVAL, f"{str(name)!r} is not the name of a file in it", str(home))
    return parts


def _open_by_descriptor(home: Path, parts: tuple[str, ...]) -> int:
    """Open a file part by part, each relative to the open directory before it."""
    *folders, last = parts
    path = home.joinpath(*parts)
    here = os.open(home, _DIRECTORY)
    try:
        for folder in folders:
            inner = _open(folder, _DIRECTORY | NO_LINK, here, path)
            os.close(here)
            here = inner
        return _open(last, _FILE, here, path)
    finally:
        os.close(here)


def _open_by_path(home: Path, parts: tuple[str, ...]) -> int:
    """Open a file of which no part is a link before it is opened, and which is the same file afterwards.

    For systems that cannot open relative to a directory. Whoever replaces a directory by a link between the look and the
    opening is found out: nothing is read from a file that another path leads to.
    """
    path = home.joinpath(*parts)
    expected = _facts(home, parts)
    if not stat.S_ISREG(expected.st_mode):  # a pipe would make us wait
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    number = os.open(path, _FILE)
    try:
        if not (os.path.samestat(os.fstat(number), expected) and os.path.samestat(_facts(home, parts), expected)):
            raise OSError(errno.EAGAIN, "was replaced while it was opened", str(path))
    except BaseException:
        os.close(number)
        raise
    return number


def _facts(home: Path, parts: tuple[str, ...]) -> os.stat_result:
    """Return what lstat says of a path. Raises OSError when a part below `home` is a link or a junction."""
    path = home
    for part in parts:
        path = path / part
        facts = os.lstat(path)
        if stat.S_ISLNK(facts.st_mode) or getattr(facts, "st_reparse_tag", 0) == _JUNCTION:
            raise _link(path)
    return facts


def _open(name: str, flags: int, here: int, path: Path) -> int:
    try:
        return os.open(name, flags, dir_fd=here)
    except OSError as error:
        # A link is ELOOP, and ENOTDIR where a directory was asked for (open(2)).
        if stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
            raise _link(path) from error
        raise OSError(error.errno, error.strerror, str(path)) from error


def _link(path: Path) -> OSError:
    return OSError(errno.ELOOP, "is a symbolic link, and links in an edition are not followed", str(path))


_NETWORK = re.compile(
    r"nfs\d?|smb\d?|smbfs|cifs|afs|lustre|gpfs|beegfs|ceph|orangefs|pvfs2|9p|wekafs|panfs|ocfs2|gfs2|virtiofs|vboxsf"
    r"|fuse|fuse\.(?!fuse-overlayfs$).*"
)
"""Types of file systems that other machines may write to at the same time. What is behind one in user space (FUSE) nobody
can tell, so it counts; `fuseblk` is on a disk of this machine."""


def on_network(path: Path) -> bool:
    """Whether the file system of `path` is shared with other machines, as far as its type tells (proc(5), mountinfo)."""
    try:
        device = os.stat(path).st_dev
        with open("/proc/self/mountinfo") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = [line.rpartition(" - ")[2].split()[0] for line in lines if line.split()[2] == number]
    return any(_NETWORK.fullmatch(kind) for kind in kinds)
