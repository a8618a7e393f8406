"""Where a box's files live: a volume that holds what it writes, and an overlay of that volume over its image.

These mounts are made in a mount namespace of the box's own, so they go when its last process goes, whatever happens.
A limited volume is an ext4 image on a loop device where we may make one, and a tmpfs elsewhere. Both say "no space
left" at the limit; a tmpfs also counts as memory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from bakeoff.sandbox.syscalls import MS_BIND, MS_NOATIME, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_REC, freeze, mount

STAGE = "/sys"
"""Covered by the box's keeper with a tmpfs, in its own mount namespace, for mounts to hang on. Nobody needs it there."""
ROOT = f"{STAGE}/root"
DEVICES = f"{STAGE}/dev"
SHARED_MEMORY = f"{DEVICES}/shm"
_VOLUME = f"{STAGE}/volume"
_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "core": "/proc/kcore",
    "ptmx": "pts/ptmx",
}
BYTES_PER_FILE = 16384
"""On a limited volume there is room for one file in so many bytes: names without content fill a disk too."""

_LOOP_GET_FREE, _LOOP_CONFIGURE, _AUTOCLEAR = 0x4C82, 0x4C0A, 4
ALL_USERS = 2**32 - 1


def users_mapped() -> int:
    """How many users, from 0 on, this user namespace has; outside of all namespaces it is all there are."""
    with open("/proc/self/uid_map") as file:
        return sum(int(size) for first, _, size in map(str.split, file) if first == "0")


def mount_stage() -> None:
    mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0711,size=1m")
    for name in (ROOT, _VOLUME):
        os.mkdir(name, 0o755)


def mount_root(lowers: list[str], directory: str | None, disk_mb: int | None, image: int | None) -> None:
    """Mount the box's root on ROOT: `lowers`, the uppermost first, with writes going to a volume.

    The volume is `image` (an open ext4 image), or a tmpfs of `disk_mb`, or a plain `directory`, the first of those
    that is given. A directory that cannot carry an overlay (because it lies on one) is replaced by a tmpfs.
    """
    if image is not None:
        mount(_loop_device(image), _VOLUME, "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME, "nobarrier,errors=continue")
    elif disk_mb is not None:
        mount("tmpfs", _VOLUME, "tmpfs", MS_NOSUID | MS_NODEV, _tmpfs(disk_mb << 20, "0755"))
    elif directory is not None:
        os.rmdir(_VOLUME)
        os.symlink(directory, _VOLUME)
    try:
        _overlay(lowers)
    except OSError as error:
        if error.errno != errno.EINVAL or directory is None:
            raise
        os.unlink(_VOLUME)
        os.mkdir(_VOLUME)
        mount("tmpfs", _VOLUME, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
        _overlay(lowers)


def _overlay(lowers: list[str]) -> None:
    """Paths go through links: a colon or comma in them would be read as syntax."""
    for name in ("upper", "work"):
        os.makedirs(f"{_VOLUME}/{name}", 0o755, exist_ok=True)
    os.chmod(f"{_VOLUME}/upper", os.stat(lowers[0]).st_mode & 0o7777)
    links = [f"{STAGE}/{number}" for number in range(len(lowers))]
    for link, lower in zip(links, lowers, strict=True):
        if not os.path.islink(link):
            os.symlink(lower, link)
    options = f"lowerdir={':'.join(links)},upperdir={_VOLUME}/upper,workdir={_VOLUME}/work"
    if users_mapped() < ALL_USERS:
        options += ",userxattr"  # in a user namespace, marks of the overlay are kept where users may write them
    try:
        mount("overlay", ROOT, "overlay", MS_NOSUID | MS_NODEV, options + ",volatile")  # nothing here is kept: no syncs
    except OSError:
        mount("overlay", ROOT, "overlay", MS_NOSUID | MS_NODEV, options)


def mount_devices(shared_memory: int) -> None:
    """The box's /dev. Its nodes are this machine's own, so they are read-only: root of a box could take them from us."""
    os.mkdir(DEVICES, 0o755)
    for name, text in _LINKS.items():
        os.symlink(text, f"{DEVICES}/{name}")
    for name in _NODES:
        os.close(os.open(f"{DEVICES}/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        mount(f"/dev/{name}", f"{DEVICES}/{name}", None, MS_BIND)
        freeze(f"{DEVICES}/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{DEVICES}/{name}", 0o755)
    mount("devpts", f"{DEVICES}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    mount("tmpfs", SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, _tmpfs(shared_memory, "1777"))
    mount(DEVICES, DEVICES, None, MS_BIND | MS_REC)
    freeze(DEVICES)


def _tmpfs(size: int, mode: str) -> str:
    return f"size={size},nr_inodes={max(size // BYTES_PER_FILE, 64)},mode={mode}"


def staged(number: int) -> str:
    """Where the keeper has the source of the box's mount with this number."""
    return f"{STAGE}/mounts/{number}"


def stage_mounts(sources: list[str]) -> None:
    """Bind what the box will mount to places that any user may reach: the way to the source may be barred to some."""
    os.mkdir(f"{STAGE}/mounts", 0o711)
    for number, source in enumerate(sources):
        if os.path.isdir(source):
            os.mkdir(staged(number))
        else:
            os.close(os.open(staged(number), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        mount(source, staged(number), None, MS_BIND | MS_REC)


def upper() -> str:
    """The directory of what was written, as the keeper sees it."""
    return f"{_VOLUME}/upper"


def _loop_device(image: int) -> str:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(64):
            number = fcntl.ioctl(control, _LOOP_GET_FREE)
            device = os.open(f"/dev/loop{number}", os.O_RDWR | os.O_CLOEXEC)
            info = struct.pack("<QQQQQIIII64s64s32sQQ", 0, 0, 0, 0, 0, 0, 0, 0, _AUTOCLEAR, b"", b"", b"", 0, 0)
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, struct.pack("<II", image, 0) + info + bytes(64))
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # EBUSY: another box took it first
                    raise
                continue
            _KEPT.append(device)
            return f"/dev/loop{number}"
        raise OSError(errno.EBUSY, "no free loop device")
    finally:
        os.close(control)


_KEPT: list[int] = []
"""Open loop devices. The last close lets go of the image; by then the mount holds it too."""
