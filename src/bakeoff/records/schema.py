"""The tables of the database. SQLite and PostgreSQL have the same, and `store.py` creates them when it opens a database.

    meta        schema version
    editions    one row for each execution of an experiment
    sessions    one row for each time a scheduler worked on it, with provenance
    cells       one arm on one task, with parameters
    runs        one row for each run: what it is, its status, and the outcome that counts
    attempts    one row for each attempt that ended, the one that counts among them
    superseded  metrics of attempts that no longer count: what they cost was spent all the same (since version 2)
    series      one compressed columnar block for each run that logged steps
    trajectories  an index of trajectory files
    looks       one row for each time that means or a verdict were shown (since version 4)
    growths     one row for each time that the plan became longer (since version 4)
    claims      one row for each attempt that another machine has and that has not come back (since version 5)
    nodes       one row for each machine or pilot that ran attempts (since version 5)
    environments  one row for each set of packages that nodes had (since version 6)
    changes     the number of the last change of an edition's runs (since version 8)

A run costs one row in `runs` and one in `attempts`; a step never costs a row. The columns of `runs` are the fields of
`RunRecord` (run.py), which is their one declaration, and `edition_id` and `crc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bakeoff.records.run import RUN_COLUMNS

if TYPE_CHECKING:
    from bakeoff.records.store import Database

LOCK = 7246112
"""The first key of our advisory locks in PostgreSQL; any number that other programs are unlikely to use."""
VERSION = 8
"""A newer version only adds tables and columns: an older database gets them when it is next written to."""

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS editions (
  edition_id {serial},
  experiment TEXT NOT NULL,
  edition TEXT NOT NULL,
  workload TEXT NOT NULL,
  dialect TEXT NOT NULL,
  spec TEXT NOT NULL,
  created_at {real} NOT NULL,
  complete INTEGER NOT NULL DEFAULT 0,
  UNIQUE (experiment, edition)
);
CREATE TABLE IF NOT EXISTS sessions (
  edition_id INTEGER NOT NULL,
  session INTEGER NOT NULL,
  started_at {real} NOT NULL,
  seen_at {real} NOT NULL,
  ended TEXT,
  planned INTEGER NOT NULL,
  provenance TEXT NOT NULL,
  PRIMARY KEY (edition_id, session)
);
CREATE TABLE IF NOT EXISTS cells (
  edition_id INTEGER NOT NULL,
  cell INTEGER NOT NULL,
  arm TEXT NOT NULL,
  task TEXT NOT NULL,
  base TEXT NOT NULL,
  ablation TEXT NOT NULL,
  flags TEXT NOT NULL,
  task_digest TEXT,
  params TEXT NOT NULL,
  columns TEXT NOT NULL,
  PRIMARY KEY (edition_id, cell)
);
CREATE TABLE IF NOT EXISTS runs (
  edition_id INTEGER NOT NULL,
  {runs},
  PRIMARY KEY (edition_id, position)
);
CREATE UNIQUE INDEX IF NOT EXISTS runs_by_id ON runs (edition_id, run_id);
CREATE TABLE IF NOT EXISTS attempts (
  edition_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  session INTEGER NOT NULL,
  status TEXT NOT NULL,
  started_at {real},
  ended_at {real},
  exit_code INTEGER,
  error TEXT,
  PRIMARY KEY (edition_id, position, attempt)
);
CREATE TABLE IF NOT EXISTS superseded (
  edition_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  metrics TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS series (
  edition_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  block {blob} NOT NULL,
  PRIMARY KEY (edition_id, position)
);
CREATE TABLE IF NOT EXISTS trajectories (
  edition_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  path TEXT NOT NULL,
  steps INTEGER NOT NULL,
  reward {real},
  bytes BIGINT NOT NULL,
  PRIMARY KEY (edition_id, position)
);
CREATE TABLE IF NOT EXISTS looks (
  edition_id INTEGER NOT NULL,
  at {real} NOT NULL,
  verb TEXT NOT NULL,
  kind TEXT NOT NULL,
  planned INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  runs TEXT NOT NULL,
  verdicts TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS growths (
  edition_id INTEGER NOT NULL,
  at {real} NOT NULL,
  planned_before INTEGER NOT NULL,
  planned_after INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS claims (
  edition_id INTEGER NOT NULL,
  token TEXT NOT NULL,
  position INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  session INTEGER NOT NULL,
  pilot TEXT NOT NULL,
  executor TEXT NOT NULL,
  PRIMARY KEY (edition_id, position)
);
CREATE TABLE IF NOT EXISTS nodes (
  edition_id INTEGER NOT NULL,
  node TEXT NOT NULL,
  session INTEGER NOT NULL,
  executor TEXT NOT NULL,
  host TEXT NOT NULL,
  kind TEXT NOT NULL,
  code TEXT NOT NULL,
  seen_at {real} NOT NULL,
  lost INTEGER NOT NULL DEFAULT 0,
  late INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (edition_id, node)
);
CREATE TABLE IF NOT EXISTS environments (
  edition_id INTEGER NOT NULL,
  digest TEXT NOT NULL,
  packages TEXT NOT NULL,
  PRIMARY KEY (edition_id, digest)
);
CREATE TABLE IF NOT EXISTS changes (
  edition_id INTEGER PRIMARY KEY,
  number BIGINT NOT NULL,
  removed BIGINT NOT NULL DEFAULT 0
);
"""
_ADDED = (
    ("runs", "crc", "BIGINT"), ("attempts", "node", "TEXT"), ("attempts", "lost", "TEXT"), ("looks", "asked", "TEXT"),
    ("growths", "open", "INTEGER"), ("nodes", "environment", "TEXT"), ("nodes", "refused", "TEXT"),
    ("runs", "change", "BIGINT NOT NULL DEFAULT 0"),
)  # fmt: skip
"""(table, column, type) of columns that came after the first version. `crc` is a checksum of a run's row (version 3);
`node` is where an attempt ran, and `lost` how it was lost, if it was (version 5); `asked` is how each metric of a look
was judged, `open` the number of runs that had not ended when the plan grew, and `environment` the digest of a node's
packages (version 6); `refused` is why a node was given nothing more (version 7); `change` is the number in `changes` at which the run was planned
or last changed (version 8)."""
_INDEX = "CREATE INDEX IF NOT EXISTS runs_by_change ON runs (edition_id, change)"
"""Finds runs that changed, whatever the number of runs; of a column that older databases get in `_ADDED`."""
TABLE_NAMES = (
    "runs", "attempts", "superseded", "series", "trajectories", "looks", "growths", "claims", "nodes", "environments", "changes",
    "cells", "sessions", "editions",
)  # fmt: skip
"""Tables with rows of editions, in the order in which an edition's rows can be deleted."""

_TYPES = {
    "sqlite": {"serial": "INTEGER PRIMARY KEY", "real": "REAL", "blob": "BLOB"},
    "postgres": {"serial": "SERIAL PRIMARY KEY", "real": "DOUBLE PRECISION", "blob": "BYTEA"},
}


def create_tables(database: Database) -> None:
    """Create the tables, or add those that a newer version has."""
    with database.transaction() as transaction:
        # Two first users at once: CREATE TABLE IF NOT EXISTS alone can fail with a unique violation in PostgreSQL.
        if database.engine == "postgres":
            transaction.run(f"SELECT pg_advisory_xact_lock({LOCK})")
        types = _TYPES[database.engine]
        runs = ",\n  ".join(f"{name} {sql}" for name, sql in RUN_COLUMNS.items()).format(**types)
        for statement in _TABLES.format(runs=runs, **types).split(";"):
            if statement.strip():
                transaction.run(statement)
        for table, column, kind in _ADDED:
            known = f"SELECT 1 FROM pragma_table_info('{table}') WHERE name = '{column}'"
            if database.engine == "postgres":
                transaction.run(f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column} {kind}")
            elif transaction.value(known) is None:
                transaction.run(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
        transaction.run(_INDEX)
        transaction.run(
            "INSERT INTO meta (key, value) VALUES ('schema', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (str(VERSION),),
        )


def allow_missing_seeds(database: Database) -> None:
    """Let runs have no seed in a PostgreSQL database that was made when every run had one."""
    if database.value(
        "SELECT 1 FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = 'runs' "
        "AND column_name = 'seed' AND is_nullable = 'NO'"
    ):
        with database.transaction() as transaction:
            transaction.run("ALTER TABLE runs ALTER COLUMN seed DROP NOT NULL")
