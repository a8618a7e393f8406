"""Who has seen results of an edition, and when: every mean and verdict that was shown, and every growth of the plan.

Readers record their looks themselves, without the lease: a look changes no run. Where nothing can be written (a mailed
edition on a read-only disk) the verdict is shown all the same, and says that it was not counted.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from bakeoff.errors import Damaged, StorageError, UsageError
from bakeoff.records.recorded import Recorded
from bakeoff.records.run import decode_json
from bakeoff.records.store import connect

SINCE = 4
"""The version of the database that has these tables."""
LEAST_RUNS = 3
"""Of two arms: fewer runs decide nothing, so whoever saw them may add more."""
ASKED_SINCE = 6
"""The version of the database whose looks say how each metric was judged."""
SET_ASIDE = "set aside"
"""The verb of a look after which all results of a node were discarded."""
Kind = Literal["too few", "early", "means", "verdict", "sequential"]
"""`too few` runs to decide anything; `early`, before every planned run had ended; `means` without a verdict, after that;
a `verdict` by a test of fixed size; or one by a `sequential` test, which may be looked at any number of times."""


@dataclass(frozen=True, slots=True)
class Look:
    """Means, or a verdict, as they were shown."""

    at: float
    verb: str
    kind: Kind
    planned: int
    """Runs in the plan at that time: those at positions below this number."""
    ended: int
    runs: str
    """Digest of the ids and statuses of the runs that had ended."""
    verdicts: dict[str, str]
    """What was said, by arm and metric; empty where only means were shown."""
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By primary metric, what was set about how it is judged; empty in a look of an older version."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The plan of an edition became longer."""

    at: float
    before: int
    after: int
    open: int | None = None
    """Runs that had not ended then; None in a database of an older version."""


def read_looks(edition: Recorded) -> tuple[Look, ...]:
    """Return every look, oldest first."""
    if edition.database.version < SINCE:
        return ()
    asked = "asked" if edition.database.version >= ASKED_SINCE else "NULL"
    rows = edition.database.rows(
        f"SELECT at, verb, kind, planned, ended, runs, verdicts, {asked} FROM looks WHERE edition_id = ? ORDER BY at",
        (edition.edition_id,),
    )
    looks = []
    try:
        for at, verb, kind, planned, ended, runs, *texts in rows:
            words = msgspec.convert(decode_json(texts[0]), dict[str, str])
            settings = msgspec.convert(decode_json(texts[1]), dict[str, dict[str, Any]])
            looks.append(Look(at, verb, kind, planned, ended, runs, words, settings))
    except (ValueError, TypeError) as error:
        raise Damaged(edition.paths.directory, f"a look cannot be read: {error}") from error
    return tuple(looks)


def read_growths(edition: Recorded) -> tuple[Growth, ...]:
    """Return every growth of the plan, oldest first."""
    if edition.database.version < SINCE:
        return ()
    waiting = "open" if edition.database.version >= ASKED_SINCE else "NULL"
    rows = edition.database.rows(
        f"SELECT at, planned_before, planned_after, {waiting} FROM growths WHERE edition_id = ? ORDER BY at, planned_after",
        (edition.edition_id,),
    )
    return tuple(Growth(*row) for row in rows)


def record_means(edition: Recorded, verb: str) -> bool:
    """Record that means were shown, once for each plan. Returns False where nothing can be written."""
    ended, waiting = [0], 0
    for counts in edition.counts_by_arm().values():
        open_ = counts.get("planned", 0) + counts.get("running", 0)
        ended.append(sum(counts.values()) - open_)
        waiting += open_
    kind: Kind = "too few" if sorted(ended)[-2] < LEAST_RUNS else "early" if waiting else "means"
    return record_look(edition, Look(time.time(), verb, kind, edition.end_of_plan(), 0, "", {}))


def record_look(edition: Recorded, look: Look) -> bool:
    """Record it, unless the same verb has shown the same before. Returns False where nothing can be written."""
    columns = ("edition_id", "verb", "kind", "planned", "ended", "runs", "verdicts", "asked")
    same = " AND ".join(f"{column} = ?" for column in columns)
    words, asked = (json.dumps(each, sort_keys=True) for each in (look.verdicts, look.asked))
    values = (edition.edition_id, look.verb, look.kind, look.planned, look.ended, look.runs, words, asked)
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
                        f"INSERT INTO looks ({', '.join(columns)}, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (*values, look.at or time.time()),
                    )
    except (StorageError, UsageError, Damaged):
        return False
    return True
