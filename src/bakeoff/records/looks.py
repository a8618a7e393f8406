"""Who has seen results of an edition, and when: every verdict that was shown, and every growth of the plan.

Readers record their looks themselves, without the lease: a look changes no run. Where nothing can be written (a mailed
edition on a read-only disk) the verdict is shown all the same, and says that it was not counted.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from bakeoff.errors import Damaged, StorageError, UsageError
from bakeoff.records.database import connect
from bakeoff.records.edition import Edition

SINCE = 4
"""The version of the database that has these tables."""
Kind = Literal["too few", "early", "verdict", "sequential"]
"""`too few` runs to decide anything; `early`, before every planned run had ended; a `verdict` by a test of fixed size;
or one by a `sequential` test, which may be looked at any number of times."""


@dataclass(frozen=True, slots=True)
class Look:
    """One verdict as it was shown."""

    at: float
    verb: str
    kind: Kind
    planned: int
    """Runs in the plan at that time: those at positions below this number."""
    ended: int
    runs: str
    """Digest of the ids and statuses of the runs that had ended."""
    verdicts: dict[str, str]
    """What was said, by arm and metric."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The plan of an edition became longer."""

    at: float
    before: int
    after: int


def read_looks(edition: Edition) -> tuple[Look, ...]:
    """Every look, oldest first."""
    if edition.database.version < SINCE:
        return ()
    rows = edition.database.rows(
        "SELECT at, verb, kind, planned, ended, runs, verdicts FROM looks WHERE edition_id = ? ORDER BY at",
        (edition.edition_id,),
    )
    try:
        return tuple(Look(at, verb, kind, *counts, _words(text)) for at, verb, kind, *counts, text in rows)  # type: ignore[call-arg]
    except (ValueError, TypeError) as error:
        raise Damaged(edition.paths.directory, f"a look cannot be read: {error}") from error


def _words(text: Any) -> dict[str, str]:
    words = json.loads(text)
    if not isinstance(words, dict):
        raise ValueError("its verdicts are not a table")
    return {str(name): str(word) for name, word in words.items()}


def read_growths(edition: Edition) -> tuple[Growth, ...]:
    """Every growth of the plan, oldest first."""
    if edition.database.version < SINCE:
        return ()
    rows = edition.database.rows(
        "SELECT at, planned_before, planned_after FROM growths WHERE edition_id = ? ORDER BY at, planned_after",
        (edition.edition_id,),
    )
    return tuple(Growth(*row) for row in rows)


def record_look(edition: Edition, look: Look) -> bool:
    """Record it, unless the same verb has shown the same before. Returns False where nothing can be written."""
    same = "edition_id = ? AND verb = ? AND kind = ? AND planned = ? AND ended = ? AND runs = ? AND verdicts = ?"
    words = json.dumps(look.verdicts, sort_keys=True)
    values = (edition.edition_id, look.verb, look.kind, look.planned, look.ended, look.runs, words)
    place = edition.database.place
    if edition.database.engine == "sqlite" and not (
        os.access(place, os.W_OK) and os.access(os.path.dirname(place), os.W_OK)
    ):
        return False
    try:
        # A connection of its own: an older database gets the tables when it is opened for writing.
        with closing(connect(place)) as database:
            if database.value(f"SELECT 1 FROM looks WHERE {same}", values) is None:
                with database.transaction() as transaction:
                    transaction.run(
                        "INSERT INTO looks (edition_id, verb, kind, planned, ended, runs, verdicts, at) "
                        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        (*values, look.at or time.time()),
                    )
    except (StorageError, UsageError, Damaged):
        return False
    return True
