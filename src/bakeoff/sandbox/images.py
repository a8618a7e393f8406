"""The image store: images as directories, unpacked once, named by their content, never changed, shared by all boxes.

    <cache>/images/layers/<digest>/     the files of one layer, in the form that an overlay mounts
    <cache>/images/<digest>.json        an image: its layers, and what a Dockerfile says about commands
    <cache>/images/names/<name>         the digest that a name stands for

    stored = add("debian:12", Path("debian.tar"))
    assert find("debian:12") == stored
    box = Bubblewrap().open(BoxSpec(image=stored.image))

No registry is contacted. An image comes from `docker save`, `podman save`, `docker export`, an OCI archive or a
directory (`bakeoff sandbox image add NAME FILE|DIR`), or from a Dockerfile (build.py).

The image `host` is this machine: its programs, read-only, with a minimal /etc, and no personal files. Its root is a
small directory of copies and empty places; /usr (and /bin, /lib and so on, where they are not links into it) are
mounted over it. What is copied is an allow-list.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache as once
from pathlib import Path
from urllib.parse import quote, unquote

from bakeoff.errors import UsageError
from bakeoff.sandbox import cache
from bakeoff.sandbox.base import Image, Mount

_DIGEST = "sha256:"
_PROGRAMS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = (
    "alternatives", "bash.bashrc", "ca-certificates.conf", "debian_version", "gai.conf", "host.conf", "inputrc",
    "java-*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "locale.alias", "magic", "magic.mime",
    "mime.types", "nsswitch.conf", "os-release", "perl", "pki/tls/certs", "pki/ca-trust/extracted", "profile",
    "protocols", "python3*", "rpc", "services", "shells", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
    "xattr.conf",
)  # fmt: skip
"""What is copied from /etc: what the loader, the C library, certificates and common interpreters need."""
HOSTS = "127.0.0.1\tlocalhost box\n"
_WRITTEN = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\ntty:x:5:\nusers:x:100:\nnogroup:x:65534:\n",
    "hosts": HOSTS,
    "hostname": "box\n",
}
MAX_ID = 65536
"""User and group numbers in a box are below this: so many are mapped into its user namespace."""
_MAX_TABLE = 1 << 20
_EMPTY = ("dev", "home", "mnt", "opt", "proc", "run", "srv", "sys", "var/lib", "var/log", "var/cache")


@dataclass(frozen=True, slots=True)
class Stored:
    """An image in the store. The fields are those of its JSON file."""

    digest: str
    layers: tuple[str, ...] = ()
    """Digests of its layers, the uppermost first."""
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = ""
    user: str | None = None
    host: bool = False
    """Whether the view of this machine is below its layers."""

    @property
    def image(self) -> Image:
        """What a `BoxSpec` calls it."""
        return Image.host() if self == HOST else Image.named(f"{_DIGEST}{self.digest}")

    def directories(self) -> list[Path]:
        """What an overlay mounts, the uppermost first."""
        directories = [layer(digest) for digest in self.layers]
        if self.host:
            directories.append(host_root())
        return directories or [cache.directory("images", "empty")]


HOST = Stored("host", host=True)
"""The view of this machine without anything on it."""


def find(name: str) -> Stored:
    """The image called `name`: `debian:12`, `host`, or `sha256:` with a digest.

    Raises UsageError, with the ways to supply it, when the store does not have it.
    """
    if name == "host":
        return HOST
    if name.startswith(_DIGEST):
        digest = name.removeprefix(_DIGEST)
    else:
        named = _name_file(name)
        digest = named.read_text().strip() if named.exists() else ""
    entry = cache.directory("images") / f"{digest}.json"
    if not digest or not entry.exists():
        known = ", ".join(sorted(names())) or "none"
        raise UsageError(
            f"image {name!r} is not in the store (which has: {known}), and nothing is downloaded. "
            "Supply it once, in one of these ways:\n"
            f"  docker save {name} -o image.tar   (or podman save; on any machine that has it)\n"
            f"  bakeoff sandbox image add {name} image.tar\n"
            f"  bakeoff sandbox image add {name} DIRECTORY   (an unpacked root, such as debootstrap makes)\n"
            f"or run with --sandbox docker where docker has the image"
        )
    fields = json.loads(entry.read_text())
    return Stored(**{**fields, "layers": tuple(fields["layers"])})


def names() -> dict[str, str]:
    """Name to digest, of all images with a name."""
    return {unquote(path.name): path.read_text().strip() for path in cache.directory("images", "names").iterdir()}


def full_name(name: str) -> str:
    """The name as docker completes it: `docker.io/library/debian` and `debian` are both `debian:latest`."""
    # A colon before the last slash belongs to the port of a registry: localhost:5000/a has no tag.
    short = name.removeprefix("docker.io/").removeprefix("library/")
    return short if ":" in short.rpartition("/")[2] or "@" in short else f"{short}:latest"


def add(name: str, source: Path) -> Stored:
    """Take an archive or a directory into the store under a name. The same content is stored once.

    Raises UsageError when `source` does not exist or is not an image.
    """
    if not source.exists():
        raise UsageError(f"{source}: no such file or directory")
    if source.is_dir():
        digest = tree_digest(source)
        if not layer(digest).is_dir():
            with cache.scratch("layer") as made:
                subprocess.run(["cp", "-a", "--reflink=auto", f"{source}/.", str(made)], check=True)
                keep_layer(digest, made)
        stored = Stored(digest, (digest,))
    else:
        from bakeoff.sandbox import archives

        layers: list[str] = []
        with archives.open_image(source) as archive:
            for archived in archive.layers():
                if not layer(archived.digest).is_dir():
                    with cache.scratch("layer") as made:
                        archives.unpack_layer(archived.source, made)
                        keep_layer(archived.digest, made)
                layers.insert(0, archived.digest)
        env = dict(line.partition("=")[::2] for line in archive.config.env or ())
        workdir, user = archive.config.working_dir, archive.config.user
        digest = hashlib.sha256(json.dumps([layers, env, workdir, user]).encode()).hexdigest()
        stored = Stored(digest, tuple(layers), env, workdir or "", user or None)
    save(stored)
    _write(_name_file(name), stored.digest)
    return stored


def save(stored: Stored) -> None:
    """Write the JSON file of an image whose layers are in the store."""
    _write(cache.directory("images") / f"{stored.digest}.json", json.dumps(asdict(stored), indent=1))


def forget(name: str) -> None:
    """Remove a name. The layers stay, for images that share them, until `clean`."""
    path = _name_file(name)
    if not path.exists():
        raise UsageError(f"no image {name!r} in the store")
    path.unlink()


def clean() -> int:
    """Remove images without a name, and layers without an image. Returns how many layers were removed."""
    kept = set(names().values())
    # A build that runs meanwhile may lose a layer that it counted on; it then fails, and succeeds when repeated.
    for entry in cache.directory("images").glob("*.json"):
        if entry.stem not in kept:
            entry.unlink()
    used = {digest for image in kept for digest in find(f"{_DIGEST}{image}").layers}
    unused = [path for path in cache.directory("images", "layers").iterdir() if path.name not in used]
    for path in unused:
        cache.remove(path)
    return len(unused)


def layer(digest: str) -> Path:
    """Where the layer with this digest is, or would be. It is a directory when the store has it, complete."""
    return cache.directory("images", "layers") / digest


def keep_layer(digest: str, made: Path) -> None:
    """Move a finished directory into the store. If the layer is there already, that one stays and `made` is removed."""
    try:
        made.rename(layer(digest))
    except OSError:
        if not layer(digest).is_dir():
            raise
        cache.remove(made)


def tree_digest(root: Path) -> str:
    """A digest over names, kinds, modes and contents of everything below a directory, in order; times do not count."""
    digest = hashlib.sha256()
    for path in _walk(root):
        status = path.lstat()
        digest.update(f"{path.relative_to(root)}\0{status.st_mode:o}\0".encode(errors="surrogateescape"))
        if stat.S_ISLNK(status.st_mode):
            digest.update(os.fsencode(os.readlink(path)))
        elif stat.S_ISREG(status.st_mode):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _walk(directory: Path) -> Iterator[Path]:
    """Everything below a directory, each directory right before its content. Links are not followed."""
    for path in sorted(directory.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _name_file(name: str) -> Path:
    """The file that holds the digest for a name; quoted, because names have slashes."""
    return cache.directory("images", "names") / quote(full_name(name), safe="")


def _write(path: Path, text: str) -> None:
    """Write a file atomically. The temporary file is outside of `names/`, where it would be taken for a name."""
    fd, temporary = tempfile.mkstemp(prefix=".", dir=path.parent.parent)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    os.rename(temporary, path)


@dataclass(frozen=True, slots=True)
class Account:
    """A user of an image."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


class Accounts:
    """The users of an image: its /etc/passwd and /etc/group.

    They are read when the box opens, before a command could change them.
    `read` is called with a path and a maximum size, as `Box.read` is; its UsageError means that there is no such file.
    """

    def __init__(self, read: Callable[[str, int], bytes]) -> None:
        """Read both tables. Lines that are not in the right format are skipped."""
        tables = []
        for path, width in (("/etc/passwd", 7), ("/etc/group", 4)):
            try:
                text = read(path, _MAX_TABLE).decode(errors="replace")
            except UsageError:
                text = ""  # such an image knows users by number only
            rows = [line.split(":") for line in text.splitlines()]
            tables.append([row for row in rows if len(row) >= width and row[2].isdigit()])
        self._users, self._groups = tables

    def find(self, user: str | None) -> Account:
        """The account for `name`, `number`, `name:group` or `number:number`, as in a Dockerfile's USER; None is root.

        A number need not be in the tables. Raises UsageError for a name that is not, or a number that is too large.
        """
        wanted, _, group = (user or "0").partition(":")
        # passwd(5): name, password, uid, gid, comment, home, shell
        row = next((row for row in self._users if wanted in (row[0], row[2])), None)
        if row is None and not wanted.isdigit():
            known = ", ".join(row[0] for row in self._users) or "none"
            raise UsageError(f"the image has no user {wanted!r} (it has: {known}); give one of those or a number")
        uid = int(row[2]) if row else int(wanted)
        gid = int(row[3]) if row else uid
        if group:  # group(5): name, password, gid, members
            gids = [entry[2] for entry in self._groups if group in (entry[0], entry[2])] or [group]
            if not gids[0].isdigit():
                raise UsageError(f"the image has no group {group!r}; give one of its groups or a number")
            gid = int(gids[0])
        if not (uid < MAX_ID and gid < MAX_ID):
            raise UsageError(f"user {user!r}: user and group numbers in a sandbox are below {MAX_ID}")
        name = row[0] if row else "root" if uid == 0 else wanted
        extra = tuple(int(entry[2]) for entry in self._groups if name in entry[3].split(",") and entry[2].isdigit())
        home = row[5] if row and row[5].startswith("/") else "/root" if uid == 0 else "/"
        return Account(name, uid, gid, extra, home)


def host_mounts() -> tuple[Mount, ...]:
    """What is mounted, read-only, over the root."""
    return tuple(Mount(Path("/", name), f"/{name}") for name in _PROGRAMS if _is_real_directory(name))


def host_root() -> Path:
    """The directory with the root, made when /etc of this machine has changed since the last time."""
    finished = cache.directory("host") / _host_digest()
    if not finished.exists():
        with cache.scratch("host") as made:
            made.chmod(0o755)
            for name in _EMPTY:
                (made / name).mkdir(parents=True, mode=0o755)
            for name, mode in (("root", 0o700), ("tmp", 0o1777), ("var/tmp", 0o1777), ("etc", 0o755)):
                (made / name).mkdir(mode=mode)
                (made / name).chmod(mode)  # mkdir's mode is subject to the umask
            os.symlink("/run", made / "var/run")
            for name in _PROGRAMS:
                if Path("/", name).is_symlink():
                    os.symlink(os.readlink(f"/{name}"), made / name)
                elif _is_real_directory(name):
                    (made / name).mkdir(mode=0o755)
            for source in _etc_sources():
                copy = made / source.relative_to("/")
                copy.parent.mkdir(parents=True, exist_ok=True)
                if source.is_symlink() or not source.is_dir():
                    _copy_file(str(source), str(copy))
                else:
                    shutil.copytree(source, copy, symlinks=True, copy_function=_copy_file, dirs_exist_ok=True)
            for name, text in _WRITTEN.items():
                (made / "etc" / name).write_text(text)
            try:
                made.rename(finished)
            except OSError:
                pass  # another process was faster: rename(2) does not replace a directory that has content
    return finished


def _is_real_directory(name: str) -> bool:
    """Whether `/name` is a directory of this machine, and not a link to one such as /bin -> usr/bin."""
    path = Path("/", name)
    return path.is_dir() and not path.is_symlink()


def _etc_sources() -> list[Path]:
    """Files and directories of /etc that are copied, in order."""
    return sorted(path for pattern in _ETC for path in Path("/etc").glob(pattern))


@once
def _host_digest() -> str:
    """A digest of what would be copied, by size and time. Contents would take too long: certificates are many files."""
    digest = hashlib.sha256(repr((_WRITTEN, _EMPTY, _PROGRAMS)).encode())
    for path in _etc_sources():
        status = path.lstat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    for name in _PROGRAMS:
        link = Path("/", name).is_symlink()
        digest.update(f"{name}\0{os.readlink(f'/{name}') if link else _is_real_directory(name)}\0".encode())
    return digest.hexdigest()[:16]


def _copy_file(source: str, target: str) -> None:
    """Copy only what everybody may read: a private key that lies among the certificates is left out."""
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    elif os.stat(source).st_mode & 0o004:
        shutil.copy2(source, target)
