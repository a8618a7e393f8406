"""Where things lie. The only module that puts paths together."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from bakeoff.errors import StorageError
from bakeoff.spec.identity import directory_name

ROOT_VARIABLE = "BAKEOFF_ROOT"
DEFAULT_ROOT = "bakeoff-runs"
DATABASE = "experiment.db"
LATEST = "latest"


def default_root() -> Path:
    return Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)


@dataclass(frozen=True, slots=True)
class EditionPaths:
    """`<root>/<experiment>/<edition>/` and what is in it."""

    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def experiment(self) -> str:
        return self.directory.parent.name

    @property
    def database(self) -> Path:
        return self.directory / DATABASE

    @property
    def lease(self) -> Path:
        return self.directory / ".lease"

    @property
    def scratch(self) -> Path:
        """Output of runs that have only just begun."""
        return self.directory / ".scratch"

    @property
    def runs(self) -> Path:
        return self.directory / "runs"

    @property
    def aggregate(self) -> Path:
        return self.directory / "aggregate"

    def frozen(self, suffix: str) -> Path:
        return self.directory / f"experiment{suffix}"

    @property
    def registration(self) -> Path:
        """What was registered before the first result, if anything was."""
        return self.directory / "prereg.json"

    def run(self, run_id: str) -> Path:
        return self.runs / run_id


def registration_of(source: Path) -> Path:
    """Where the registration of an experiment file lies."""
    return source.with_name(f"{source.name}.prereg.json")


def experiment_directory(root: Path, name: str) -> Path:
    return root.absolute() / directory_name(name)


def editions(directory: Path) -> list[EditionPaths]:
    """Editions of an experiment, oldest first (their names are stamps)."""
    if not directory.is_dir():
        return []
    found = [entry for entry in directory.iterdir() if (entry / DATABASE).exists() or (entry / ".lease").exists()]
    return [EditionPaths(entry) for entry in sorted(found, key=_age) if not entry.is_symlink()]


def _age(entry: Path) -> str:
    """Orders stamps by time: the tenth edition of a second comes after the second one."""
    return re.sub(r"\d+", lambda digits: digits[0].zfill(20), entry.name)


def new_edition(directory: Path, now: float | None = None) -> EditionPaths:
    """A directory that nobody else has: the stamp is in UTC, and a second one in the same second gets a number."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
            try:
                (directory / (stamp + suffix)).mkdir()
            except FileExistsError:
                continue
            return EditionPaths(directory / (stamp + suffix))
    except OSError as error:
        raise StorageError(f"{directory}: cannot make a directory for results: {error.strerror}") from error
    raise StorageError(f"{directory}: too many editions in one second")


def point_latest(paths: EditionPaths) -> None:
    """`latest` always names a whole edition."""
    _link(paths.directory.parent / LATEST, paths.name)


def point_through_latest(paths: EditionPaths) -> None:
    """The sweep runner's users look for `runs/`, `aggregate/` and `report/` right below the experiment."""
    for name in ("runs", "aggregate", "report"):
        (paths.directory / name).mkdir(exist_ok=True)
        _link(paths.directory.parent / name, f"{LATEST}/{name}")


def _link(link: Path, target: str) -> None:
    """Replaced in one step, so that it never points nowhere."""
    fresh = link.parent / f".{link.name}-{os.getpid()}"
    try:
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(link)
    except OSError as error:
        raise StorageError(f"{link}: cannot be made a link to {target}: {error.strerror}") from error
