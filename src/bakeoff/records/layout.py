"""Where things lie on disk, how they are found by name, who may write them, and how files are replaced in one step.

    bakeoff-runs/                    the root: --root, BAKEOFF_ROOT
      <experiment>/latest -> <edition>
      <experiment>/<edition>/        named by a stamp in UTC
        experiment.db  experiment.toml  runs/<run_id>/  aggregate/  report/

This is the only module that puts such paths together.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakeoff.errors import LeaseHeld, StorageError, UsageError, did_you_mean
from bakeoff.records.files import NO_LINK, on_network
from bakeoff.spec import formats
from bakeoff.spec.identity import NOT_IN_DIRECTORIES, RunId, run_id_in, slug

try:
    import fcntl
except ModuleNotFoundError:  # Windows, where nothing is run
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

ROOT_VARIABLE = "BAKEOFF_ROOT"
DEFAULT_ROOT = "bakeoff-runs"
DATABASE = "experiment.db"
LATEST = "latest"
LEASE = ".lease"
STAMP = re.compile(r"(\d{8}-\d{6})(?:-(\d{1,9}))?", re.ASCII)
"""The name of an edition: when it was begun, and its number when there are several of one second."""
SPOOL = ".spool"
"""Messages between a scheduler and its pilots (engine/pilots/spool.py)."""
PLACE = ".place"
"""Where the edition was when it handed out claims: a copy of it has no claim to what is on its way there."""
RAY_FILE = ".ray.json"
"""Names of the edition's actors on a Ray cluster, while it has some."""
BUDGET_FILE, BUDGET_USED_UP = "budget.json", "budget.used-up"
"""What the experiment may still use, for workloads that can stop in the middle of a run; and the mark of one that had
to: `cost` or `tokens`."""


def default_root() -> Path:
    return Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)


@dataclass(unsafe_hash=True)
class EditionPaths:
    """`<root>/<experiment>/<edition>/` and what is in it."""

    directory: Path

    def __post_init__(self) -> None:
        self.name = self.directory.name
        self.experiment = self.directory.parent.name
        self.database = self.directory / DATABASE
        self.lease = self.directory / LEASE
        self.scratch = self.directory / ".scratch"
        """Output of runs that have only just begun."""
        self.runs = self.directory / "runs"
        self.aggregate = self.directory / "aggregate"
        self.imported = self.directory / "imported.json"
        """What `bakeoff import` keeps of the source beside the runs, if the edition was imported."""
        self.registration = self.directory / "prereg.json"
        """What `bakeoff prereg` registered before the first result, if it was used."""

    def frozen(self, suffix: str) -> Path:
        """The copy of the experiment file, whose name ended in `suffix`."""
        return self.directory / f"experiment{suffix}"

    def run(self, run_id: RunId) -> Path:
        """A run's directory, which need not exist. Raises Damaged for an id that leads elsewhere.

        A link in its place counts as no directory: the path that is returned then has nothing at it. One run that
        made itself a link must not keep the others from being shown.
        """
        path = self.runs / run_id_in(self.directory, run_id)
        return path if not path.is_symlink() else self.directory / ".link" / run_id


def registration_of(source: Path) -> Path:
    """Where `bakeoff prereg` puts the registration of an experiment file."""
    return source.with_name(f"{source.name}.prereg.json")


def experiment_directory(root: Path, name: str) -> Path:
    return root.absolute() / slug(name, 200, unwanted=NOT_IN_DIRECTORIES)


# -- finding


def is_edition(directory: Path) -> bool:
    return (directory / DATABASE).exists() or (directory / LEASE).exists()


def editions(directory: Path) -> list[EditionPaths]:
    """Editions of the experiment in `directory`, oldest first."""
    if not directory.is_dir():
        return []
    entries = [entry for entry in directory.iterdir() if is_edition(entry) and not entry.is_symlink()]
    return [EditionPaths(entry) for entry in sorted(entries, key=lambda entry: _age(entry.name))]


def _age(name: str) -> tuple[bool, str, int]:
    """Sort key of editions: by stamp, then by number, so that stamp-10 comes after stamp-2.

    A directory that somebody renamed comes before all stamps: it must not pass for the newest edition for ever.
    """
    stamp = STAMP.fullmatch(name)
    return (False, name, 0) if stamp is None else (True, stamp[1], int(stamp[2] or 1))


def experiments(root: Path) -> list[str]:
    """Names of experiments with at least one edition."""
    if not root.is_dir():
        return []
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir() and editions(entry))


def all_editions(root: Path) -> list[EditionPaths]:
    """Editions of all experiments, newest first."""
    paths = [paths for name in experiments(root) for paths in editions(root / name)]
    return sorted(paths, key=lambda paths: (_age(paths.name), paths.experiment), reverse=True)


def editions_named(name: str, root: Path) -> list[EditionPaths]:
    """Editions of the experiment below `root` that a user's name begins with, oldest first; empty when it is a path.

    This is the rule for names, which every verb follows: a name is an experiment's (`NAME`, `NAME/EDITION`) when there is
    one, whatever lies in the working directory. A path that could be taken for one is written with a slash in front:
    `./NAME`, `/data/NAME`.
    """
    experiment = name.partition("/")[0]
    if experiment in ("", ".", ".."):
        return []
    return editions(experiment_directory(root, experiment)) or editions(root.absolute() / experiment)


def shadowed(name: str, root: Path) -> str | None:
    """Say which was taken when a name means an experiment and a directory in the working directory, too."""
    known = editions_named(name, root)
    place = Path(name)
    if not known or not place.is_dir() or os.path.samefile(place, known[-1].directory.parent):
        return None
    if place.resolve() in {paths.directory.resolve() for paths in known}:
        return None
    return f"{name} is an experiment under {root}, and that is what is used; write ./{name} for the directory here"


def find_edition(name: str, root: Path) -> EditionPaths:
    """The edition that a user's `name` means.

    `latest`, an experiment's name (its newest edition), `experiment/edition`, `experiment/latest`, or the path of an
    edition, of its database or of an experiment's directory; `editions_named` has the rule for names that could be both.
    Raises UsageError with what there is.
    """
    root = root.absolute()
    if name == LATEST:
        newest = all_editions(root)
        if not newest:
            raise UsageError(f"no experiment has been run under {root}")
        return newest[0]
    experiment, _, edition = name.rstrip("/").partition("/")
    known = editions_named(name, root)
    if known:
        if edition in ("", LATEST):
            return known[-1]
        for paths in known:
            if paths.name == edition:
                return paths
        listed = ", ".join(paths.name for paths in known[-5:])
        fix = f"; write ./{name} for the path" if Path(name).exists() else ""
        raise UsageError(f"{experiment} has no edition {edition!r}; there are {listed}{fix}")
    path = Path(name)
    if path.is_dir() or path.name == DATABASE:
        directory = (path.parent if path.name == DATABASE else path).resolve()
        if is_edition(directory):
            return EditionPaths(directory)
        inside = editions(directory)
        if not inside:
            raise UsageError(f"{directory}: is not an experiment of bakeoff; `bakeoff import {directory}` reads others")
        return inside[-1]
    if path.is_file() and path.suffix.lower() in formats.SUFFIXES:
        try:
            tree = formats.read(path.read_text(), path.suffix.lower())
        except (OSError, ValueError):
            tree = None
        called = tree.get("name") if isinstance(tree, dict) else None
        called = called if isinstance(called, str) else path.stem
        run = "" if editions(experiment_directory(root, called)) else f"run it first (`bakeoff run {path}`), then "
        raise UsageError(
            f"{path}: is an experiment file, and results go by the experiment's name: {run}ask for {called!r}"
        )
    if path.is_file():
        raise UsageError(f"{path}: is a file, not an experiment; compare, gate, rank, variance and power read tables")
    hint = did_you_mean(experiment, experiments(root), "`bakeoff ls` lists what is there")
    raise UsageError(f"no experiment called {experiment!r} under {root}; {hint}")


# -- making


def new_edition(directory: Path, now: float | None = None, after: str | None = None) -> EditionPaths:
    """Make a directory for a new edition of the experiment in `directory`.

    Its stamp is in UTC and later than that of every edition there, and than `after`: when the clock went back, or in
    the same second, the newest stamp gets the next number. The newest edition is the one that is resumed, so a new
    one must sort last. No edition of another experiment under the root has a later stamp, either: `latest` is the one
    that was begun last.
    """
    stamp, number = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)), 1
    try:
        make_root(directory.parent)
        directory.mkdir(exist_ok=True)
        names = [entry.name for entry in directory.iterdir()] + ([after] if after else [])
        names += [paths.name for paths in all_editions(directory.parent)[:1] if paths.name[: len(stamp)] > stamp]
        for found in filter(None, map(STAMP.fullmatch, names)):
            if (found[1], int(found[2] or 1)) >= (stamp, number):
                stamp, number = found[1], int(found[2] or 1) + 1
        for attempt in range(number, number + 1000):
            place = directory / (stamp if attempt == 1 else f"{stamp}-{attempt}")
            if not STAMP.fullmatch(place.name):  # a name that is no stamp would count as older than all editions
                break
            try:
                # For this user alone: outputs of hidden tests are in it. Fails if it exists: no two schedulers share one.
                place.mkdir(mode=0o700)
            except FileExistsError:
                continue
            return EditionPaths(place)
    except OSError as error:
        raise StorageError(f"{directory}: cannot make a directory for results: {error.strerror}") from error
    raise StorageError(f"{directory}: there are too many editions of {stamp}: rename or remove the last one")


def make_root(root: Path) -> None:
    """Make a directory for results that git leaves out. One that exists stays as it is."""
    if not root.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        (root / ".gitignore").write_text("*\n")


def link_experiment(paths: EditionPaths, root: Path) -> None:
    """Let the experiment be found by its name below `root`, too, when its results are kept elsewhere."""
    directory, link = paths.directory.parent.resolve(), root.absolute() / paths.directory.parent.name
    if directory.parent != root.resolve() and (link.is_symlink() or not link.exists()):
        make_root(root)
        replace_link(link, os.path.relpath(directory, root.resolve()))


def point_latest(paths: EditionPaths) -> None:
    """Let `latest` name this edition."""
    replace_link(paths.directory.parent / LATEST, paths.name)


def replace_link(link: Path, target: str) -> None:
    """Make `link` a symlink to `target` in one step, so that it never points nowhere (rename(2) is atomic)."""
    fresh = link.parent / f".{link.name}-{os.getpid()}"
    try:
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(link)
    except OSError as error:
        raise StorageError(f"{link}: cannot be made a link to {target}: {error.strerror}") from error


def atomic_write(path: Path, content: str | bytes | Callable[[Any], object]) -> None:
    """Write a file in one step: a reader sees the old content or the new, never half of it.

    `content` is text, bytes, or a function that writes the file whose path it is given, such as `frame.write_csv`.
    """
    fresh = path.with_name(f".{path.name}-{os.getpid()}")
    fresh.unlink(
        missing_ok=True
    )  # of a process that died; or a link that somebody put there, which must not be followed
    try:
        if isinstance(content, str):
            fresh.write_text(content)
        elif isinstance(content, bytes):
            fresh.write_bytes(content)
        else:
            content(fresh)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


# -- the right to write

LEASE_EXPIRES = 30.0
"""Seconds without a renewal after which a lease on a network file system is over."""


class Lease:
    """The right to write an edition, held from construction until `close`, or until this process is gone.

    It is an flock(2) on the file `.lease`, which the kernel releases when its holder dies, however it dies: no cleanup
    is needed after a crash. The file's content only says who holds it.

    On a network file system a lock may not reach other machines (flock(2), nfs(5): `local_lock`, `nolock`). There the
    holder also writes a number that it changes while it lives (`renew`). Who finds another machine's name in the file
    watches for LEASE_EXPIRES seconds whether that number still changes, and takes over only if it does not. A holder
    that was away for longer finds the other's name and stops.

    Raises LeaseHeld, which names the holder, and StorageError when the file cannot be written or locked, or the system
    has no such locks.
    """

    def __init__(self, path: Path, network: bool | None = None) -> None:
        """`network` says whether the file system is shared with other machines (default: its type tells)."""
        if not _HAS_LOCKS:
            raise StorageError(
                f"{path.parent}: cannot be locked, because {sys.platform} has no flock: do this on Linux"
            )
        try:
            self._file = open(path, "a+", opener=_no_link)  # noqa: SIM115 - held as long as the lease
        except OSError as error:
            raise StorageError(f"{path.parent}: cannot be written: {error.strerror}") from error
        for _ in range(5):  # a reader that asks `is_held` holds the lock for an instant
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError as error:
                raise StorageError(
                    f"{path}: cannot be locked: {error.strerror}. Choose a root on a file system with locks, with --root"
                ) from error
        else:
            holder = "another process"
            for _ in range(20):  # a holder that has only just taken it needs a moment to write its name
                self._file.seek(0)
                try:
                    named = json.loads(self._file.read())
                    holder = f"process {named['pid']} on {named['host']} since {named['since']}"
                    break
                except (ValueError, KeyError):
                    time.sleep(0.01)
            self._file.close()
            raise LeaseHeld(
                f"{path.parent.parent.name}/{path.parent.name} is being run by {holder}. "
                "Wait for it (--wait does), stop it, or start a new edition with --fresh"
            )
        self._path = path
        self._network = on_network(path.parent) if network is None else network
        self._renewed = time.monotonic()
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        self._facts: dict[str, Any] = {"pid": os.getpid(), "host": platform.node(), "since": since}
        if self._network:
            try:
                self._watch_other()
            except BaseException:
                self._file.close()
                raise
            self._facts["token"] = os.urandom(8).hex()
        self._write(0)

    def _write(self, beat: int) -> None:
        facts = {**self._facts, "beat": beat} if self._network else self._facts
        try:
            self._file.seek(0)
            self._file.truncate(0)
            self._file.write(json.dumps(facts))
            self._file.flush()
            if self._network:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be written: {error.strerror}") from error

    def _read(self) -> dict[str, Any]:
        """What the file holds now. It is opened again, because that is when NFS asks the server."""
        try:
            with open(self._path, opener=_no_link) as file:
                facts = json.loads(file.read())
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def _watch_other(self) -> None:
        """Wait until it is certain that the last holder, on another machine, is gone. Raises LeaseHeld when it lives."""
        first = self._read()
        if "token" not in first or first.get("over") or first.get("host") == platform.node():
            return  # nobody, one that gave it back, or one of this machine, whose lock the kernel would show
        deadline = time.monotonic() + LEASE_EXPIRES
        while time.monotonic() < deadline:
            time.sleep(min(0.5, LEASE_EXPIRES / 10))
            now = self._read()
            if now.get("over"):
                return
            if now != first:
                raise LeaseHeld(
                    f"{self._path.parent.parent.name}/{self._path.parent.name} is being run by process {first.get('pid')} "
                    f"on {first.get('host')}. Wait for it (--wait does), stop it, or start a new edition with --fresh"
                )

    def renew(self) -> None:
        """Show that the holder lives; call it about once a second. It does something on network file systems only.

        Raises LeaseHeld when another machine has taken over, because this one was away for too long.
        """
        now = time.monotonic()
        if not self._network or now - self._renewed < LEASE_EXPIRES / 6:
            return
        self._renewed = now
        facts = self._read()
        if facts.get("token") not in (None, self._facts["token"]):
            raise LeaseHeld(
                f"{self._path.parent.parent.name}/{self._path.parent.name} was taken over by process {facts.get('pid')} "
                f"on {facts.get('host')}, while this one was away"
            )
        self._write(int(now * 10))

    def close(self) -> None:
        """Give the right back."""
        if self._network and self._read().get("token") == self._facts.get("token"):
            self._facts["over"] = True
            self._write(0)
        self._file.close()


def _no_link(path: str, flags: int) -> int:
    """Opens a lease: the link or pipe that a mailed edition may have in its place is not opened."""
    return os.open(path, flags | NO_LINK, 0o666)


def is_held(path: Path) -> bool:
    """Whether the edition with this lease is being run now. Readers share the lock, so they do not disturb each other.

    A system without such locks runs no editions, and cannot see whether another machine runs this one.
    """
    if not _HAS_LOCKS:
        return False
    try:
        with open(path, opener=_no_link) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
