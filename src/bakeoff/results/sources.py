"""Names that a user types become `Results`.

A name is an edition of ours (`sorting`, `sorting/20260101-120000`, `sorting:arm`, a path), a table (.csv, .tsv, .parquet,
.jsonl), a run directory, a directory of them, a campaign, a W&B run (`.wandb` file, offline directory,
`wandb:ENTITY/PROJECT/RUN`), or the id of a run. Patterns that no shell has expanded are expanded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.records.layout import LATEST, editions, is_edition
from bakeoff.results.importers.tables import SUFFIXES, Columns, read_tables
from bakeoff.results.table import Results, Row, number_repeats

ONLINE = "wandb:"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs that belong together."""

    control: str
    candidate: str
    seed: int | None = None


def open_results(names: Sequence[str], root: Path, columns: Mapping[str, Any] | None = None) -> Results:
    """Whatever the names mean, as one table; the newest edition when there are none.

    `columns` has fields of `importers.tables.Columns`: what a table calls its columns, by role.
    """
    places = expand(names) or [LATEST]
    tables = [name for name in places if Path(name).suffix in SUFFIXES]
    if tables and len(tables) == len(places):
        return read_tables([Path(name) for name in places], Columns(**dict(columns or {})))
    if tables:
        other = next(name for name in places if name not in tables)
        raise UsageError(f"{tables[0]} is a table and {other} is not; name either tables or other sources")
    if any((columns or {}).values()):
        raise UsageError("--arm-from and the like name columns of a table: give a .csv, .tsv, .parquet or .jsonl file")
    if any(_is_foreign(name, root) for name in places):
        parts = [read_runs(name, root) for name in places]
        rows = number_repeats([row for part in parts for row in part.rows])
        return replace(parts[0], rows=rows, label=", ".join(places))
    from bakeoff.results.editions import open_editions

    return open_editions(places, root)


def expand(names: Sequence[str]) -> list[str]:
    """Patterns as a shell expands them. Raises UsageError for one that matches nothing."""
    expanded: list[str] = []
    for name in names:
        if any(sign in name for sign in "*?[") and not Path(name).exists() and not name.startswith(ONLINE):
            matches = sorted(glob(name))
            if not matches:
                raise UsageError(f"{name}: nothing matches this pattern")
            expanded += matches
        else:
            expanded.append(name)
    return expanded


def _is_foreign(name: str, root: Path) -> bool:
    """Whether a name means runs that are not in one of our editions."""
    if name.startswith(ONLINE) or Path(name).suffix == ".wandb":
        return True
    directory = _directory(name, root)
    return directory is not None and not is_edition(directory) and not editions(directory)


def _directory(name: str, root: Path) -> Path | None:
    return next((place for place in (Path(name), root / name) if place.is_dir()), None)


def read_runs(name: str, root: Path) -> Results:
    """Every run that one name means: a directory, a campaign, W&B runs, or one run of one of our editions.

    Raises UsageError when something in it cannot be read: a verdict must not leave out runs in silence.
    """
    if name.startswith(ONLINE):
        from bakeoff.results.importers.wandb_runs import online

        return online(name.removeprefix(ONLINE))
    place = Path(name) if Path(name).is_file() else _directory(name, root)
    if place is not None:
        from bakeoff.results.importers import read_place

        try:
            results = read_place(place)
        except (ValueError, OSError, KeyError, TypeError) as error:
            raise UsageError(f"{place}: {error}") from error
        if results.problems:
            raise UsageError(results.problems[0])
        return results
    from bakeoff.results.editions import run_row
    from bakeoff.results.importers.directories import as_results

    try:
        return as_results([run_row(name, root)], name)
    except UsageError as error:
        raise UsageError(f"{name}: neither a directory with metrics.jsonl nor a run ({error})") from error


def read_one(name: str, root: Path) -> Row:
    """The single run that a name means."""
    rows = read_runs(name, root).rows
    if len(rows) != 1:
        raise UsageError(f"{name} is {len(rows)} runs, and one run is needed here")
    return rows[0]


def open_sides(
    control: Sequence[str], candidate: Sequence[str], root: Path, arms: tuple[str, str], *, as_samples: bool
) -> Results:
    """Runs of two arms, each named on its own. `as_samples`: without equal seeds they are two independent samples."""
    sides = []
    for names, arm in ((control, arms[0]), (candidate, arms[1])):
        if not names:
            raise UsageError(f"runs of the {arm} are not named; both arms are needed")
        rows = [row for name in expand(names) for row in read_runs(name, root).rows]
        _check_distinct(rows, "")
        sides.append([replace(row, arm=arm) for row in rows])
    places = [{(row.task, row.seed) for row in side} for side in sides]
    seeds_known = all(seed is not None for side in places for _, seed in side)
    paired = seeds_known and places[0] == places[1]
    notes: tuple[str, ...] = ()
    if as_samples and not paired:
        notes = ("the runs share no seeds, so the arms are two independent samples",)
        sides = [[replace(row, seed=None) for row in side] for side in sides]
    return _foreign(
        number_repeats([*sides[0], *sides[1]]), f"{len(sides[0])} runs against {len(sides[1])}",
        unpaired=as_samples and not paired, notes=notes,
    )  # fmt: skip


def open_pairs(pairs: Sequence[Pair], root: Path) -> Results:
    """Pairs of runs: each pair is one unit, whatever the runs themselves say about their seeds."""
    if not pairs:
        raise UsageError("--pairs is empty: name at least one pair of runs")
    seeds = [pair.seed for pair in pairs]
    by_seed = None not in seeds and len(set(seeds)) == len(seeds)
    if any(seed is not None for seed in seeds) and not by_seed:
        raise UsageError("--pairs: give every pair its own seed, or give none")
    rows = []
    for number, pair in enumerate(pairs):
        for name, arm in ((pair.control, "control"), (pair.candidate, "candidate")):
            row = read_one(name, root)
            rows.append(replace(row, arm=arm, task="default", seed=pair.seed if by_seed else number, rollout=0))
    _check_distinct(rows, "--pairs: ")
    return _foreign(rows, f"{len(pairs)} pairs of runs")


def open_one_arm(names: Sequence[str], root: Path) -> Results:
    """Runs that are named one by one, as one arm. Seeds that some lack, or that two share, make them rollouts."""
    rows = [read_one(name, root) for name in names]
    _check_distinct(rows, "")
    seeds = [row.seed for row in rows]
    rows = [replace(row, arm="runs", task="default") for row in rows]
    if None in seeds or len(set(seeds)) < len(seeds):
        rows = [replace(row, seed=None, rollout=number) for number, row in enumerate(rows)]
    return _foreign(rows, "")


def _check_distinct(rows: Sequence[Row], where: str) -> None:
    """A copy is not a second run."""
    names: set[str] = set()
    for row in rows:
        if row.run_id in names:
            raise UsageError(f"{where}{row.run_id} is named twice; the same run cannot count twice")
        names.add(row.run_id)


def _foreign(rows: Sequence[Row], label: str, **fields: Any) -> Results:
    from bakeoff.results.importers.directories import as_results

    return replace(as_results(rows, label), **fields)
