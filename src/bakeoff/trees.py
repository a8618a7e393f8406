"""Directory trees that runs made, which may be thousands of levels deep and have any modes and times.

`os.walk` (before Python 3.12), `shutil.copytree` and `shutil.rmtree` need a frame, and some an open file, for each level:
a thousand levels raise RecursionError.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

_EARLIEST, _LATEST = -(2.0**31), 2.0**34 - 2**31 - 1
"""Times that every file system holds: what ext4 has room for, 1901 to 2446."""


def walk(top: Path | str, *, whole: bool = False) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (directory, names of directories, names of other files) as `os.walk` does, for a tree of any depth.

    Links to directories are among the directories and are not followed. What is taken out of the list of directories is
    left out, and so is a directory that cannot be read. With `whole`, one whose path is too long raises OSError.
    """
    waiting = [os.fspath(top)]
    while waiting:
        folder = waiting.pop()
        folders: list[str] = []
        names: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    (folders if _is_directory(entry) else names).append(entry.name)
        except OSError as error:
            if whole and error.errno == errno.ENAMETOOLONG:
                raise
            continue
        yield folder, folders, names
        paths = (os.path.join(folder, name) for name in reversed(folders))
        waiting += [path for path in paths if not os.path.islink(path)]


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def copy_tree(source: Path, target: Path, sync: Callable[[Path], None] = lambda path: None) -> None:
    """Copy a directory to `target`, which does not exist yet, and call `sync` for each file and directory made.

    Links stay links, and holes in files stay holes. Pipes, sockets and devices are left out, and so is what vanishes
    meanwhile. Raises OSError.
    """
    made: list[tuple[Path, Path]] = []
    waiting = [(source, target)]
    while waiting:
        folder, copy = waiting.pop()
        try:
            listed = os.scandir(folder)
        except FileNotFoundError:
            if folder == source:
                raise
            continue
        with listed as entries:
            copy.mkdir()
            made.append((folder, copy))
            for entry in entries:
                there = copy / entry.name
                try:
                    kind = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISLNK(kind):
                        there.symlink_to(os.readlink(entry.path))
                    elif stat.S_ISDIR(kind):
                        waiting.append((Path(entry.path), there))
                    elif stat.S_ISREG(kind):
                        _copy_file(entry.path, there)
                        shutil.copystat(entry.path, there, follow_symlinks=False)
                        sync(there)
                except FileNotFoundError:
                    continue  # a run that goes on has replaced it
    for folder, copy in reversed(made):  # inner ones first: what is made in a directory changes its time
        if folder.is_dir():
            shutil.copystat(folder, copy)
        sync(copy)


def _copy_file(source: str, target: Path) -> None:
    facts = os.lstat(source)
    if 512 * facts.st_blocks >= facts.st_size:
        shutil.copyfile(source, target, follow_symlinks=False)
        return
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with target.open("xb") as file:
            for start, end in data_of(fd):
                file.seek(start)
                while start < end and (chunk := os.pread(fd, min(end - start, 1 << 20), start)):
                    file.write(chunk)
                    start += len(chunk)
            file.truncate(max(file.seek(0, os.SEEK_END), os.fstat(fd).st_size))
    finally:
        os.close(fd)


def data_of(fd: int) -> Iterator[tuple[int, int]]:
    """Yield where a file has data, as (start, end). Between them are holes, which take no room on the disk."""
    end = 0
    while True:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no more data: lseek(2)
                return
            raise
        yield start, end


def make_readable(top: Path) -> None:
    """Let the owner read a tree, whatever modes a run gave its files and directories. Links are not followed.

    Raises OSError for what belongs to somebody else.
    """
    _allow(os.fspath(top), 0o700)
    for folder, folders, names in walk(top):
        for name in folders:
            _allow(os.path.join(folder, name), 0o700)
        for name in names:
            _allow(os.path.join(folder, name), 0o400)


def _allow(path: str, mode: int) -> None:
    now = os.lstat(path).st_mode
    if (stat.S_ISDIR(now) or stat.S_ISREG(now)) and now & mode != mode:
        os.chmod(path, stat.S_IMODE(now) | mode)


def remove_tree(path: Path) -> None:
    """Remove a tree whatever modes its directories have and however deep it is. Links are removed, not followed.

    Raises OSError when something is left.
    """

    def make_accessible(function: Callable[..., object], name: str, _: object) -> None:
        """Called by rmtree for what it cannot remove: open the directory modes and try once more."""
        if not os.path.lexists(name):
            return
        for place in (os.path.dirname(name), name):
            if not os.path.islink(place):
                os.chmod(place, 0o700)
        if os.path.isdir(name) and not os.path.islink(name):
            shutil.rmtree(name)
        else:
            os.unlink(name)

    try:
        shutil.rmtree(path, onerror=make_accessible)
    except (RecursionError, OSError) as error:
        # Thousands of nested directories: rmtree needs a frame and an open file for each, `rm` does not.
        for words in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*words, str(path)], capture_output=True, check=False)
            if not os.path.lexists(path):
                return
        raise OSError(f"{path} cannot be removed: {error}") from error


def storable_time(seconds: float) -> float:
    """Return a file's time as every file system holds it: one that is out of range becomes the nearest that is not."""
    return min(max(seconds, _EARLIEST), _LATEST) if not math.isnan(seconds) else 0.0
