"""The file systems of a box: its root, its disk and its /dev.

The root is an overlay (overlayfs, Documentation/filesystems/overlayfs.rst): the image below, read-only, and a
volume above that takes what the box writes. All mounts are made in the box's own mount namespace, so the kernel
removes them with the last process of the box, whatever killed it. A volume with a limit is an ext4 image on a loop
device where we may make one (root), else a tmpfs. Both say "no space left" at the limit; a tmpfs also counts as
memory.

The process that forks supervisors loads this module, so modules that only the owner of a box needs are imported in the
functions that need them: each fork copies the page tables of what is loaded.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from typing import TYPE_CHECKING

from bakeoff.sandbox import syscalls
from bakeoff.sandbox.syscalls import MS_BIND, MS_NOATIME, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC

if TYPE_CHECKING:
    from bakeoff.sandbox.launcher import Settings

_STAGE = "/sys"
"""A place for mounts. The supervisor covers it with a tmpfs in its mount namespace; it does not need /sys there."""
ROOT = f"{_STAGE}/root"
DEVICES = f"{_STAGE}/dev"
SHARED_MEMORY = f"{DEVICES}/shm"
_VOLUME = f"{_STAGE}/volume"
UPPER = f"{_VOLUME}/upper"
"""What the box has written, as the supervisor sees it."""
_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "core": "/proc/kcore",
    "ptmx": "pts/ptmx",
}
_BYTES_PER_FILE = 16384
"""A limited volume has room for one file in so many bytes: empty files fill a disk too."""
_EXT4_TABLES_MB = 1
# mke2fs(8): no journal and no reserved blocks, since nothing here outlives the box; its top directory is root's.
_MKFS = (
    f"mkfs.ext4 -q -F -m 0 -b 4096 -i {_BYTES_PER_FILE} -O ^has_journal -E lazy_itable_init=1,nodiscard,root_owner=0:0"
)
_ALL_USERS = 2**32 - 1
_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE, _LO_FLAGS_AUTOCLEAR = 0x4C82, 0x4C0A, 4  # linux/loop.h

_open_loop_devices: list[int] = []
"""Kept open until this process ends. The last close detaches the image; by then the mount holds it too."""


def users_mapped() -> int:
    """How many user ids, from 0 on, this user namespace has: user_namespaces(7). 2**32 - 1 in the first namespace."""
    with open("/proc/self/uid_map") as file:
        return sum(int(size) for first, _, size in map(str.split, file) if first == "0")


def staged(number: int) -> str:
    """Where the supervisor has bound the source of the box's mount with this number."""
    return f"{_STAGE}/mounts/{number}"


def mount_all(settings: Settings, image: int | None) -> None:
    """Make every mount of a box, in a mount namespace that the caller has just entered.

    `image` is an open ext4 image for the volume. Raises OSError, with the mount that failed in its text.
    """
    # Without this, our mounts would appear in the namespace we came from (mount_namespaces(7), shared subtrees).
    syscalls.mount("none", "/", None, MS_REC | MS_PRIVATE)
    syscalls.mount("tmpfs", _STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0711,size=1m")
    for name in (ROOT, _VOLUME):
        os.mkdir(name, 0o755)
    _mount_root(settings["lowers"], settings["directory"], settings["disk_mb"], image)
    # What the box will mount is bound to a place that every user may reach: bwrap may run as a user of the box, who
    # cannot pass through the directories above the source.
    os.mkdir(f"{_STAGE}/mounts", 0o711)
    for number, source in enumerate(settings["mounts"]):
        if os.path.isdir(source):
            os.mkdir(staged(number))
        else:
            os.close(os.open(staged(number), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        if number not in settings["nameless"] or not _mount_nameless(source, number):
            syscalls.mount(source, staged(number), None, MS_BIND | MS_REC)
    _mount_devices(settings["shared_memory"])


def _mount_nameless(source: str, number: int) -> bool:
    """Stage a directory so that a box does not learn its path on this machine; False when it must be bound instead.

    /proc/PID/mountinfo of a bind mount shows where it comes from, that of an overlay its options, in which we use
    links. An overlay needs a second layer, so there is an empty one. It would miss what is mounted below `source`.
    """
    with open("/proc/self/mountinfo", "rb") as file:
        below = os.fsencode(source.rstrip("/")) + b"/"
        if not os.path.isdir(source) or any(line.split()[4].replace(rb"\040", b" ").startswith(below) for line in file):
            return False
    link, empty = f"{_STAGE}/source{number}", f"{_STAGE}/empty"
    os.symlink(source, link)
    os.makedirs(empty, 0o755, exist_ok=True)
    options = f"lowerdir={link}:{empty}" + (",userxattr" if users_mapped() < _ALL_USERS else "")
    try:
        syscalls.mount("overlay", staged(number), "overlay", MS_NOSUID | MS_NODEV | MS_RDONLY, options)
    except OSError:  # too many overlays on one another, or a file system that cannot be a layer
        return False
    return True


def _mount_root(lowers: list[str], directory: str | None, disk_mb: int | None, image: int | None) -> None:
    """Mount the root of the box on ROOT: `lowers`, the uppermost first, with writes going to a volume.

    The volume is the first of these that is set: `image`, a tmpfs of `disk_mb`, a plain `directory`. A directory that
    is itself on an overlay cannot be the upper layer of another (EINVAL); then a tmpfs takes its place.
    """
    if image is not None:
        syscalls.mount(
            _loop_device(image), _VOLUME, "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME, "nobarrier,errors=continue"
        )
    elif disk_mb is not None:
        syscalls.mount("tmpfs", _VOLUME, "tmpfs", MS_NOSUID | MS_NODEV, _tmpfs_options(disk_mb << 20, "0755"))
    elif directory is not None:
        os.rmdir(_VOLUME)
        os.symlink(directory, _VOLUME)
    try:
        _mount_overlay(lowers)
    except OSError as error:
        if error.errno != errno.EINVAL or directory is None:
            raise
        os.unlink(_VOLUME)
        os.mkdir(_VOLUME)
        syscalls.mount("tmpfs", _VOLUME, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
        _mount_overlay(lowers)


def _mount_overlay(lowers: list[str]) -> None:
    """Mount an overlay of `lowers` and the volume on ROOT. `upper` and `work` have to be on one file system."""
    for name in (UPPER, f"{_VOLUME}/work"):
        os.makedirs(name, 0o755, exist_ok=True)
    os.chmod(UPPER, os.stat(lowers[0]).st_mode & 0o7777)
    # Layers are named by links: a colon or comma in their own paths would be read as syntax of the options.
    links = [f"{_STAGE}/{number}" for number in range(len(lowers))]
    for link, lower in zip(links, lowers, strict=True):
        if not os.path.islink(link):
            os.symlink(lower, link)
    options = f"lowerdir={':'.join(links)},upperdir={UPPER},workdir={_VOLUME}/work"
    if users_mapped() < _ALL_USERS:
        # Without rights over the first user namespace an overlay cannot set trusted.* attributes; user.* will do.
        options += ",userxattr"
    try:
        # volatile: no syncs, since nothing here outlives the box. Kernels before 5.10 do not know it.
        syscalls.mount("overlay", ROOT, "overlay", MS_NOSUID | MS_NODEV, options + ",volatile")
    except OSError:
        syscalls.mount("overlay", ROOT, "overlay", MS_NOSUID | MS_NODEV, options)


def _mount_devices(shared_memory: int) -> None:
    """Make the /dev of the box, with a tmpfs of `shared_memory` bytes as /dev/shm.

    Its nodes are those of this machine, because mknod needs a capability over the machine. They are read-only: root of
    a box is their owner's equal and could change their mode for everybody.
    """
    os.mkdir(DEVICES, 0o755)
    for name, text in _DEVICE_LINKS.items():
        os.symlink(text, f"{DEVICES}/{name}")
    for name in _NODES:
        os.close(os.open(f"{DEVICES}/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        syscalls.mount(f"/dev/{name}", f"{DEVICES}/{name}", None, MS_BIND)
        syscalls.make_read_only(f"{DEVICES}/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{DEVICES}/{name}", 0o755)
    syscalls.mount("devpts", f"{DEVICES}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    syscalls.mount("tmpfs", SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, _tmpfs_options(shared_memory, "1777"))
    syscalls.mount(DEVICES, DEVICES, None, MS_BIND | MS_REC)
    syscalls.make_read_only(DEVICES)


def _tmpfs_options(size: int, mode: str) -> str:
    """Mount options of a tmpfs of `size` bytes: tmpfs(5)."""
    return f"size={size},nr_inodes={max(size // _BYTES_PER_FILE, 64)},mode={mode}"


def _loop_device(image: int) -> str:
    """Attach an open image to a free loop device and return the device's path (loop(4), linux/loop.h).

    With LO_FLAGS_AUTOCLEAR the kernel detaches it when nobody uses it any more, so a killed box leaves no device.
    """
    with syscalls.closing(os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)) as control:
        for _ in range(64):
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
            device = os.open(f"/dev/loop{number}", os.O_RDWR | os.O_CLOEXEC)
            # struct loop_config: descriptor, block size, struct loop_info64, eight reserved words
            flags = _LO_FLAGS_AUTOCLEAR
            info = struct.pack("<QQQQQIIII64s64s32sQQ", 0, 0, 0, 0, 0, 0, 0, 0, flags, b"", b"", b"", 0, 0)
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, struct.pack("<II", image, 0) + info + bytes(64))
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # EBUSY: another box took this device first
                    raise
                continue
            _open_loop_devices.append(device)
            return f"/dev/loop{number}"
        raise OSError(errno.EBUSY, "no free loop device")


def disk_image_problem() -> str | None:
    """Why a box cannot have an ext4 image as its disk, so that a tmpfs must do; None when it can."""
    import shutil

    from bakeoff.sandbox.base import DEFAULT_PATH

    if os.geteuid() != 0 or users_mapped() != _ALL_USERS:
        return "that takes root"
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return "there is no /dev/loop-control"
    if shutil.which("mkfs.ext4", path=DEFAULT_PATH) is None:
        return "mkfs.ext4 is not installed; install it with `apt-get install e2fsprogs`"
    return None


def disk_image(disk_mb: int) -> int:
    """An empty, sparse ext4 image with room for `disk_mb`: an open file without a name, which the caller closes.

    Formatting takes longer than everything else about a box, so each size is formatted once and then copied.
    """
    import subprocess
    import tempfile

    from bakeoff.sandbox import cache

    directory = cache.directory("boxes")
    template = directory / f"volume-{disk_mb}.ext4"
    if not template.exists():
        # Formatted under another name and then renamed, so that nobody ever copies a half-made file system.
        temporary = str(directory / cache.unique_name("volume"))
        fd = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            # ext4's own tables need some room too; what the limit promises should be there for files.
            os.ftruncate(fd, (disk_mb + disk_mb // 32 + _EXT4_TABLES_MB) << 20)
            subprocess.run([*_MKFS.split(), temporary], check=True, capture_output=True)
            os.rename(temporary, template)
        except BaseException:
            os.unlink(temporary)
            raise
        finally:
            os.close(fd)
    with syscalls.closing(os.open(template, os.O_RDONLY | os.O_CLOEXEC)) as source:
        try:
            target = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
                raise
            target, path = tempfile.mkstemp(dir=directory)  # a file system without O_TMPFILE (open(2))
            os.unlink(path)
        _copy_sparse(source, target)
    return target


def _copy_sparse(source: int, target: int) -> None:
    """Copy what is written in a sparse file and leave its holes (lseek(2), SEEK_DATA)."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    position = 0
    while position < size:
        try:
            begin = os.lseek(source, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        position = os.lseek(source, begin, os.SEEK_HOLE)
        while begin < position:
            begin += os.copy_file_range(source, target, position - begin, begin, begin)
