"""This machine as an image: its programs, read-only, with a minimal /etc, and nothing of anybody's.

The root is a small directory of copies and empty places, kept in the cache under a digest of its content; /usr (and
/bin, /lib and so on, where they are not links into it) are mounted over it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import cache as once
from pathlib import Path

from bakeoff.sandbox import cache
from bakeoff.sandbox.scratch import scratch
from bakeoff.sandbox.spec import Mount

_PROGRAMS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates.conf",
    "debian_version",
    "gai.conf",
    "host.conf",
    "inputrc",
    "java-*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "locale.alias",
    "magic",
    "magic.mime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "perl",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "profile",
    "protocols",
    "python3*",
    "rpc",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xattr.conf",
)
HOSTS = "127.0.0.1\tlocalhost box\n"
_WRITTEN = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\ntty:x:5:\nusers:x:100:\nnogroup:x:65534:\n",
    "hosts": HOSTS,
    "hostname": "box\n",
}
_EMPTY = ("dev", "home", "mnt", "opt", "proc", "run", "srv", "sys", "var/lib", "var/log", "var/cache")


def mounts() -> tuple[Mount, ...]:
    """What is mounted, read-only, over the root."""
    return tuple(Mount(Path("/", name), f"/{name}") for name in _PROGRAMS if _is_real(name))


def network_mounts() -> tuple[Mount, ...]:
    """How names are found, for a box with network."""
    return tuple(
        Mount(path.resolve(), str(path)) for path in map(Path, ("/etc/resolv.conf", "/etc/hosts")) if path.exists()
    )


def root() -> Path:
    """The directory, made when this machine's /etc is new to us."""
    home = cache.directory("host")
    found = home / _digest()
    if not found.exists():
        with scratch("host") as made:
            _build(made)
            try:
                made.rename(found)
            except OSError:
                pass  # another process was faster
    return found


def _is_real(name: str) -> bool:
    path = Path("/", name)
    return path.is_dir() and not path.is_symlink()


def _sources() -> list[Path]:
    etc = Path("/etc")
    return sorted(path for pattern in _ETC for path in etc.glob(pattern))


@once
def _digest() -> str:
    """Over what would be copied, by size and time: certificates come as hundreds of links."""
    told = hashlib.sha256(repr((_WRITTEN, _EMPTY, _PROGRAMS)).encode())
    for path in _sources():
        facts = path.lstat()
        told.update(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
    for name in _PROGRAMS:
        told.update(f"{name}\0{os.readlink(f'/{name}') if Path('/', name).is_symlink() else _is_real(name)}\0".encode())
    return told.hexdigest()[:16]


def _build(target: Path) -> None:
    target.chmod(0o755)
    for name in _EMPTY:
        (target / name).mkdir(parents=True, mode=0o755)
    for name, mode in (("root", 0o700), ("tmp", 0o1777), ("var/tmp", 0o1777), ("etc", 0o755)):
        (target / name).mkdir(mode=mode)
        (target / name).chmod(mode)
    os.symlink("/run", target / "var/run")
    for name in _PROGRAMS:
        if Path("/", name).is_symlink():
            os.symlink(os.readlink(f"/{name}"), target / name)
        elif _is_real(name):
            (target / name).mkdir(mode=0o755)
    for path in _sources():
        _copy(path, target / path.relative_to("/"))
    for name, text in _WRITTEN.items():
        (target / "etc" / name).write_text(text)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink() or not source.is_dir():
        _copy_file(str(source), str(target))
    else:
        shutil.copytree(source, target, symlinks=True, copy_function=_copy_file, dirs_exist_ok=True)


def _copy_file(source: str, target: str) -> None:
    """Only what everybody may read: a key that was put among certificates stays out."""
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    elif os.stat(source).st_mode & 0o004:
        shutil.copy2(source, target)
