"""The tables. The same text makes them in SQLite and PostgreSQL; the few words that differ are filled in.

    meta        schema version
    editions    one row for each execution of an experiment
    sessions    one row for each time a scheduler worked on it, with provenance
    cells       one arm on one task, with parameters
    runs        one row for each run: what it is, its status, and the outcome that counts
    attempts    one row for each try of a run that ended, the one that counts among them
    superseded  metrics of tries that no longer count: what they cost was spent all the same (since version 2)
    series      one compressed columnar block for each run that logged steps
    trajectories  an index of trajectory files

A run costs one row in `runs` and one in `attempts`; a step never costs a row.
"""

from __future__ import annotations

VERSION = 2
"""A newer version only adds tables: an older database gets them when it is next written to."""

TABLES = """
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
  position INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  cell INTEGER NOT NULL,
  seed BIGINT NOT NULL,
  rollout INTEGER NOT NULL,
  status TEXT NOT NULL DEFAULT 'planned',
  attempts INTEGER NOT NULL DEFAULT 0,
  started_at {real},
  ended_at {real},
  exit_code INTEGER,
  error TEXT,
  metrics TEXT,
  command TEXT,
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
"""

SQLITE_WORDS = {"serial": "INTEGER PRIMARY KEY", "real": "REAL", "blob": "BLOB"}
POSTGRES_WORDS = {"serial": "SERIAL PRIMARY KEY", "real": "DOUBLE PRECISION", "blob": "BYTEA"}
