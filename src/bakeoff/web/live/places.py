"""What a viewer shows, by address: editions, which may still be running, and results of other tools, which are read once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bakeoff.errors import BakeoffError
from bakeoff.records.damage import explained
from bakeoff.records.layout import EditionPaths, all_editions, is_edition, is_held
from bakeoff.records.looks import read_looks
from bakeoff.records.recorded import Recorded
from bakeoff.records.run import Tally
from bakeoff.results.table import Results, Row
from bakeoff.web.live.rows import RunTable
from bakeoff.web.live.watch import Watch

SOURCE = "source"
"""The address of results that are no edition."""


@dataclass(eq=False)
class EditionPlace:
    """An edition. It is opened when somebody asks for it, and stays open."""

    paths: EditionPaths
    _watch: Watch | None = None
    _opening: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        return f"e/{quote(self.paths.experiment, safe='')}/{quote(self.paths.name, safe='')}"

    @property
    def names(self) -> list[str]:
        """What `compare` would call it."""
        return [str(self.paths.directory)]

    def watch(self) -> Watch:
        """Raises BakeoffError for an edition that cannot be read."""
        with self._opening:
            if self._watch is None:
                self._watch = Watch(self.paths)
            return self._watch

    def close(self) -> None:
        if self._watch is not None:
            with self._watch.lock:
                self._watch.edition.close()


@dataclass(eq=False)
class ResultsPlace:
    """Results that other tools made, or arms of several editions: what they are does not change."""

    names: list[str]
    results: Results
    columns: dict[str, Any] = field(default_factory=dict)
    address = SOURCE

    def __post_init__(self) -> None:
        from bakeoff.results.importing import identified

        rows: Sequence[Row] = identified(self.results).rows
        self.results = replace(self.results, rows=rows)
        self.table: RunTable[Row] = RunTable(rows)
        self.by_id = {row.run_id: row for row in rows}

    def close(self) -> None:
        self.results.close()


Place = EditionPlace | ResultsPlace


@dataclass(frozen=True, slots=True)
class Listing:
    """A line of the first page."""

    experiment: str
    edition: str
    address: str
    state: str
    created_at: float | None
    tally: Tally | None
    verdicts: dict[str, str]
    """The last verdict that was shown of it, by arm and metric."""
    problem: str = ""
    """Why it cannot be read."""


class Catalogue:
    """Everything below a root; or, with `only`, one edition or one set of results and nothing beside it."""

    def __init__(self, root: Path, only: Place | None = None) -> None:
        self.root, self.only = root.absolute(), only
        self._open: dict[tuple[str, str], EditionPlace] = {}
        self._listed: dict[Path, tuple[object, Listing]] = {}
        self._lock = threading.Lock()

    def edition(self, experiment: str, name: str) -> EditionPlace | None:
        """The edition of that name, if it is one that is shown. Names are compared and never used as a path."""
        if isinstance(self.only, EditionPlace):
            known = self.only.paths
            return self.only if (known.experiment, known.name) == (experiment, name) else None
        if self.only is not None:
            return None
        with self._lock:
            place = self._open.get((experiment, name))
            if place is None or not is_edition(place.paths.directory):
                for paths in all_editions(self.root):
                    if (paths.experiment, paths.name) == (experiment, name):
                        place = self._open[experiment, name] = EditionPlace(paths)
                        break
                else:
                    return None
            return place

    def listings(self) -> list[Listing]:
        """Every edition, newest first."""
        if isinstance(self.only, EditionPlace):
            return [self._listing(self.only.paths)]
        return [] if self.only is not None else [self._listing(paths) for paths in all_editions(self.root)]

    def _listing(self, paths: EditionPaths) -> Listing:
        """Read an edition's line again only after its database has changed."""
        state = _files_of(paths), is_held(paths.lease)
        with self._lock:
            known = self._listed.get(paths.directory)
        if known is None or known[0] != state:
            known = state, self._read(paths, held=state[1])
            with self._lock:
                self._listed[paths.directory] = known
        return known[1]

    def _read(self, paths: EditionPaths, held: bool) -> Listing:
        address = EditionPlace(paths).address
        try:
            edition = Recorded.open(paths)
            try:
                facts = edition.facts()
                shown = ("verdict", "sequential") if facts["complete"] else ("sequential",)
                looks = [look for look in read_looks(edition) if look.kind in shown]
                return Listing(
                    paths.experiment, paths.name, address,
                    "running" if held else "complete" if facts["complete"] else "unfinished",
                    facts["created_at"], Tally.of(edition.counts()), looks[-1].verdicts if looks else {},
                )  # fmt: skip
            finally:
                edition.close()
        except Exception as error:  # the others are listed all the same
            try:
                problem = str(explained(error, [paths]))
            except Exception:
                problem = f"{type(error).__name__}: {error}"
            return Listing(paths.experiment, paths.name, address, "unreadable", None, None, {}, problem)

    def close(self) -> None:
        for place in (*self._open.values(), *([self.only] if self.only is not None else [])):
            try:
                place.close()
            except BakeoffError:
                pass


def _files_of(paths: EditionPaths) -> tuple[tuple[int, int] | None, ...]:
    """Times and sizes of the database's files: equal means that nothing was written."""
    states: list[tuple[int, int] | None] = []
    for name in (paths.database, paths.database.with_name(f"{paths.database.name}-wal")):
        try:
            status = name.lstat()
            states.append((status.st_mtime_ns, status.st_size))
        except OSError:
            states.append(None)
    return tuple(states)
