"""Deleting editions, for good."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bakeoff.errors import LeaseHeld
from bakeoff.records.database import URL_VARIABLE, connect
from bakeoff.records.layout import DATABASE, LATEST, EditionPaths, editions, point_latest
from bakeoff.records.lease import Lease, is_held

_TABLES = ("runs", "attempts", "superseded", "series", "trajectories", "cells", "sessions", "editions")


def remove(paths: EditionPaths) -> None:
    """Rows first, the database file last: what an interrupted deletion leaves can still be seen and deleted again."""
    if is_held(paths.lease):
        raise LeaseHeld(f"{paths.experiment}/{paths.name} is being run; stop it before deleting it")
    with Lease(paths.lease):
        url = os.environ.get(URL_VARIABLE)
        if url and not paths.database.exists():
            _remove_rows(url, paths)
        for entry in paths.directory.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif not entry.name.startswith((DATABASE, paths.lease.name)):
                entry.unlink()
        shutil.rmtree(paths.directory)
    _repair_latest(paths.directory.parent)


def _remove_rows(url: str, paths: EditionPaths) -> None:
    database = connect(url)
    try:
        row = database.one(
            "SELECT edition_id FROM editions WHERE experiment = ? AND edition = ?", (paths.experiment, paths.name)
        )
        if row is None:
            return
        with database.transaction() as transaction:
            for table in _TABLES:
                transaction.run(f"DELETE FROM {table} WHERE edition_id = ?", (row[0],))
    finally:
        database.close()


def _repair_latest(directory: Path) -> None:
    """`latest` names the newest edition that is left; an experiment without editions has no directory."""
    link = directory / LATEST
    left = editions(directory)
    if left:
        if link.is_symlink() and not link.exists():
            point_latest(left[-1])
        return
    link.unlink(missing_ok=True)
    for entry in directory.iterdir():
        if entry.is_symlink() and not entry.exists():  # runs/ and the like, which went through `latest`
            entry.unlink()
    if not any(directory.iterdir()):
        directory.rmdir()
