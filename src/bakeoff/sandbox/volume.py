"""The disk of a box: a sparse ext4 image, which the box's keeper mounts on a loop device.

Formatting takes longer than a box, so an image is formatted once for each size and then copied.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from bakeoff.sandbox import marks
from bakeoff.sandbox.overlay import ALL_USERS, BYTES_PER_FILE, users_mapped
from bakeoff.sandbox.spec import DEFAULT_PATH

_SMALLEST_EXT4_MB = 1


def lacking() -> str | None:
    """Why a disk of its own cannot be had, and a tmpfs must do; None when it can."""
    if os.geteuid() != 0 or users_mapped() != ALL_USERS:
        return "that takes root"
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return "there is no /dev/loop-control"
    if shutil.which("mkfs.ext4", path=DEFAULT_PATH) is None:
        return "the program mkfs.ext4 is not here; install it with `apt-get install e2fsprogs`"
    return None


def ext4_image(cache: Path, disk_mb: int) -> int:
    """An empty, sparse ext4 image with room for `disk_mb`, open and without a name. Copied from one made before."""
    template = cache / f"volume-{disk_mb}.ext4"
    if not template.exists():
        _format(template, disk_mb)
    source = os.open(template, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fd = _unnamed(cache)
        _copy_data(source, fd)
    finally:
        os.close(source)
    return fd


def _unnamed(directory: Path) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):  # some file systems have only files with names
            raise
    fd, path = tempfile.mkstemp(dir=directory)
    os.unlink(path)
    return fd


def _format(template: Path, disk_mb: int) -> None:
    template.parent.mkdir(parents=True, exist_ok=True)
    path = template.with_name(marks.fresh("volume"))
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        # The file system's own tables need some room too: what is asked for should be there for files.
        os.ftruncate(fd, (disk_mb + disk_mb // 32 + _SMALLEST_EXT4_MB) << 20)
        flags = f"-q -F -m 0 -b 4096 -i {BYTES_PER_FILE} -O ^has_journal -E lazy_itable_init=1,nodiscard,root_owner=0:0"
        subprocess.run(["mkfs.ext4", *flags.split(), str(path)], check=True, capture_output=True)
        os.rename(path, template)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(fd)


def _copy_data(source: int, target: int) -> None:
    """Copy what is written in a sparse file, leaving its holes."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    position = 0
    while position < size:
        try:
            begin = os.lseek(source, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        position = os.lseek(source, begin, os.SEEK_HOLE)
        while begin < position:
            done = os.copy_file_range(source, target, position - begin, begin, begin)
            begin += done
