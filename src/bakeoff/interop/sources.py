"""Names that a user gives become one source of runs.

A name is an edition of ours (`sorting`, `sorting/20260101-120000`, `sorting:arm`, a path), a table (.csv, .tsv, .parquet,
.jsonl), a directory of run logs, a campaign, a W&B run (`.wandb` file, offline directory, `wandb:ENTITY/PROJECT/RUN`), or
the id of a run. Patterns that no shell has expanded are expanded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.interop import directories
from bakeoff.interop.source import TRAINED, Runs, Source, numbered
from bakeoff.interop.tables import SUFFIXES, Columns, read_table
from bakeoff.records.layout import LATEST, editions, is_edition
from bakeoff.verdicts.runlogs import RunLog, of_run

ONLINE = "wandb:"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs that belong together."""

    control: str
    candidate: str
    seed: int | None = None


def open_source(names: Sequence[str], root: Path, columns: dict[str, str | None] | None = None) -> Source:
    """Whatever the names mean, as one source; the newest edition when there are none."""
    given = expand(names) or [LATEST]
    tables = [Path(name) for name in given if Path(name).suffix in SUFFIXES]
    if tables and len(tables) == len(given):
        return read_table(tables, Columns(**columns or {}))
    if tables:
        raise UsageError(f"{tables[0]} is a table, and {given[0] if tables[0] != Path(given[0]) else given[1]} is none")
    if any((columns or {}).values()):
        raise UsageError(
            "--arm-column and its like name columns of a table: give a .csv, .tsv, .parquet or .jsonl file"
        )
    if any(_is_log(name, root) for name in given):
        logs = [log for name in given for log in read_logs(name, root)]
        return Runs(numbered(logs), ", ".join(given))
    from bakeoff.interop.editions import open_arms

    return open_arms(given, root)


def expand(names: Sequence[str]) -> list[str]:
    """Patterns as a shell would expand them; one that matches nothing is an error, as it is in a careful shell."""
    found: list[str] = []
    for name in names:
        if any(sign in name for sign in "*?[") and not Path(name).exists() and not name.startswith(ONLINE):
            matches = sorted(glob(name))
            if not matches:
                raise UsageError(f"{name}: nothing is called like that")
            found += matches
        else:
            found.append(name)
    return found


def _is_log(name: str, root: Path) -> bool:
    """Whether a name means logs of runs, as opposed to an edition."""
    if name.startswith(ONLINE) or Path(name).suffix == ".wandb":
        return True
    directory = _directory(name, root)
    return directory is not None and not is_edition(directory) and not editions(directory)


def _directory(name: str, root: Path) -> Path | None:
    return next((place for place in (Path(name), root / name) if place.is_dir()), None)


def read_logs(name: str, root: Path) -> list[RunLog]:
    """Every run that one name means: a directory, a campaign, W&B files, or a run of one of our editions."""
    if name.startswith(ONLINE):
        from bakeoff.interop.wandb_runs import online

        return online(name.removeprefix(ONLINE))
    place = Path(name) if Path(name).is_file() else _directory(name, root)
    if place is None:
        return [of_run(name, root)]
    if place.suffix == ".wandb" or (place.is_dir() and any(place.glob("*.wandb"))):
        from bakeoff.interop.wandb_runs import offline

        return [offline(place)]
    if place.is_file():
        raise UsageError(f"{name}: a file of this kind is no run; tables are {', '.join(SUFFIXES)}")
    return directories.read_all(place)


def open_sides(
    control: Sequence[str], candidate: Sequence[str], root: Path, arms: tuple[str, str], *, as_samples: bool
) -> Runs:
    """Runs of two arms, each named on its own. `as_samples`: without equal seeds they are two independent samples."""
    sides = []
    for names, arm in ((control, arms[0]), (candidate, arms[1])):
        if not names:
            raise UsageError(f"runs of the {arm} are not named; both arms are needed")
        logs = [log for name in expand(names) for log in read_logs(name, root)]
        twice = [log.name for i, log in enumerate(logs) if log.name in [other.name for other in logs[:i]]]
        if twice:
            raise UsageError(f"{twice[0]} is named twice; a copy is no second run")
        sides.append([replace(log, arm=arm) for log in logs])
    places = [{(log.task, log.seed) for log in side} for side in sides]
    known = all(seed is not None for side in places for _, seed in side)
    paired = known and places[0] == places[1]
    label = f"{len(sides[0])} runs against {len(sides[1])}"
    notes = ("the runs share no seeds, so the arms are two independent samples",) if as_samples and not paired else ()
    if as_samples and not paired:
        sides = [[replace(log, seed=None) for log in side] for side in sides]
    return Runs(numbered([*sides[0], *sides[1]]), label, unpaired=as_samples and not paired, notes=notes)


def open_pairs(pairs: Sequence[Pair], root: Path) -> Runs:
    """Pairs of runs: each pair is one unit, whatever the runs themselves say about their seeds."""
    if not pairs:
        raise UsageError("--pairs is empty: name at least one pair of runs")
    seeds = [pair.seed for pair in pairs]
    by_seed = None not in seeds and len(set(seeds)) == len(seeds)
    if any(seed is not None for seed in seeds) and not by_seed:
        raise UsageError("--pairs: give every pair a seed of its own, or none of them")
    logs = []
    for number, pair in enumerate(pairs):
        for name, arm in ((pair.control, "control"), (pair.candidate, "candidate")):
            found = read_logs(name, root)
            if len(found) != 1:
                raise UsageError(f"--pairs: {name} is {len(found)} runs; a pair has one run on each side")
            logs.append(replace(found[0], arm=arm, task="default", seed=pair.seed if by_seed else number, rollout=0))
    names = [log.name for log in logs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"--pairs: {twice} is in two places; a run can be in one pair only")
    return Runs(logs, f"{len(pairs)} pairs of runs", TRAINED)
