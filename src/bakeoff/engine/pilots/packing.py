"""Directories as archives, for engines without a shared file system.

    pack(directory, file)           # a run's directory, on one machine
    unpack(file, target)            # on another: refuses everything but plain files and directories below `target`
    pack_whole(path, file)          # the user's own file or directory, with its links
    unpack(file, target, links=True)

An archive is a plain tar. Links in a run's directory are left out when it is packed, and refused when it is unpacked: a
run may make links to anywhere, and whoever reads its results later must not be led out of them. What the user sends to
nodes keeps its links, and they are made last: nothing is ever written through one.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from bakeoff.engine.pilots.arrivals import remove, sync_directory
from bakeoff.trees import data_of, storable_time, walk

_MODE = 0o755
"""Permissions that files keep at most."""
_MOST_HOLES = 1 << 30
"""Bytes of holes in a file that are packed as zeros. A file of a terabyte that takes no room would fill the disk."""


class RefusedArchive(OSError):
    """An archive that `pack` would not have made."""


def pack(directory: Path, file: IO[bytes], leave_out: Sequence[Path] = ()) -> None:
    """Write the directory's files and directories to `file`, except those in `leave_out`.

    What vanishes meanwhile is left out, too. Raises OSError, also for a file that cannot be read or is almost only holes.
    """
    left_out = {os.fspath(path) for path in leave_out}
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for folder, folders, names in walk(directory, whole=True):
            paths = ((name, os.path.join(folder, name)) for name in folders)
            folders[:] = sorted(name for name, path in paths if path not in left_out and not os.path.islink(path))
            for name in (*folders, *sorted(names)):
                path = os.path.join(folder, name)
                _add(archive, path, os.path.relpath(path, directory))


def pack_whole(path: Path, file: IO[bytes]) -> None:
    """Write a file, or a directory with everything in it, to `file` under its own name; raises OSError.

    The same content with the same modes and times gives the same bytes. If `path` itself is a link, what it leads to is written.
    """
    top = path.resolve(strict=True)
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, os.fspath(top), path.name)
        for folder, folders, names in walk(top, whole=True):
            folders.sort()  # links to directories are among them, and are not followed
            for name in (*folders, *sorted(names)):
                place = os.path.join(folder, name)
                _add(archive, place, os.path.join(path.name, os.path.relpath(place, top)), links=True)


def _add(archive: tarfile.TarFile, path: str, name: str, *, links: bool = False) -> None:
    """Add what is at `path` as `name`, if it is a file, a directory or, with `links`, a link."""
    entry = tarfile.TarInfo(name)
    if links and os.path.islink(path):
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
        archive.addfile(entry)
        return
    try:
        # Never opens a pipe, and follows no link that has taken the place of a file.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM):
            raise
        return
    try:
        facts = os.fstat(descriptor)
        entry.mode, entry.mtime = stat.S_IMODE(facts.st_mode), storable_time(facts.st_mtime)
        if stat.S_ISDIR(facts.st_mode):
            entry.type = tarfile.DIRTYPE
            archive.addfile(entry)
        elif stat.S_ISREG(facts.st_mode):
            entry.size = facts.st_size
            if entry.size > _MOST_HOLES and entry.size - sum(b - a for a, b in data_of(descriptor)) > _MOST_HOLES:
                raise OSError(errno.EFBIG, f"it has more than {_MOST_HOLES >> 30} GiB of holes", path)
            with open(descriptor, "rb", closefd=False) as content:
                archive.addfile(entry, content)
    finally:
        os.close(descriptor)


def unpack(file: IO[bytes], target: Path, *, sync: bool = True, links: bool = False) -> None:
    """Make `target` from an archive: it appears whole and synced, or not at all.

    Raises RefusedArchive for devices, sparse files, names that lead out of the directory and, unless `links` says that
    they may come, links; OSError for an archive that is torn.
    """
    made_last: list[tuple[Path, str]] = []
    part = target.with_name(f"{target.name}.part")
    remove(part)
    part.mkdir(mode=0o700, parents=True)
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for entry in archive:
                if links and entry.issym():
                    made_last.append((part / _inside(entry.name), entry.linkname))
                else:
                    _take(archive, entry, part, sync)
        _make_links(made_last)
        if sync:
            for folder, _, _ in walk(part):
                sync_directory(Path(folder))
        remove(target)
        os.rename(part, target)
        if sync:
            sync_directory(target.parent)
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise OSError(f"the archive is torn: {error}") from error
    finally:
        remove(part)


def _inside(text: str) -> PurePosixPath:
    name = PurePosixPath(text)
    if name.is_absolute() or ".." in name.parts or "\0" in text or not name.parts:
        raise RefusedArchive(f"the archive names {text!r}, which is outside of the run's directory")
    return name


def _make_links(links: Sequence[tuple[Path, str]]) -> None:
    """Make links where nothing is yet. None may be below another one: it would be made elsewhere."""
    places = {path for path, _ in links}
    for path, destination in links:
        if not places.isdisjoint(path.parents) or os.path.lexists(path):
            raise RefusedArchive(f"the archive has {path.name!r} twice")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(destination)


def _take(archive: tarfile.TarFile, entry: tarfile.TarInfo, part: Path, sync: bool) -> None:
    if not PurePosixPath(entry.name).parts and entry.isdir():
        return  # `.`, as tar names the directory itself
    name = _inside(entry.name)
    if not (entry.isdir() or (entry.isreg() and not entry.issparse())):
        raise RefusedArchive(f"the archive has {entry.name!r}, which is neither a file nor a directory")
    path = part / name
    try:
        if entry.isdir():
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(entry)
        assert content is not None  # it is a file
        with path.open("xb") as file:
            left = entry.size
            while left and (chunk := content.read(min(left, 1 << 20))):
                file.write(chunk)
                left -= len(chunk)
            if left:
                raise OSError(f"the archive is torn in {entry.name!r}")
            os.fchmod(file.fileno(), entry.mode & _MODE | 0o600)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.utime(path, (storable_time(entry.mtime),) * 2)
    except (FileExistsError, NotADirectoryError) as error:
        raise RefusedArchive(f"the archive has {entry.name!r} twice") from error
