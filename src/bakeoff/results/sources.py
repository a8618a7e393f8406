"""Names that a user types become `Results`.

A name is an edition of ours (`sorting`, `sorting/20260101-120000`, `sorting:arm`, its experiment file;
`records.layout.editions_named` has the rule for names that could be two things), the path of anything that an importer
reads (`importers`), a W&B run on a server (`wandb:ENTITY/PROJECT/RUN`), or the id of a run. Patterns that no shell has
expanded are expanded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import UsageError
from bakeoff.records.layout import LATEST, EditionPaths, editions_named, find_edition, shadowed
from bakeoff.results.importers import ONLINE, Claim, Editions, Importers, read
from bakeoff.results.reading import reading_line
from bakeoff.results.table import Results, Row, number_repeats
from bakeoff.spec.experiment import ExperimentFile
from bakeoff.spec.formats import SUFFIXES
from bakeoff.spec.registry import NATIVE, dialect_of

if TYPE_CHECKING:
    from bakeoff.results.importers.identity import Overrides

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs that belong together."""

    control: str
    candidate: str
    seed: int | None = None


def open_results(names: Sequence[str], root: Path, columns: Mapping[str, Any] | None = None) -> Results:
    """Whatever the names mean, as one table; the newest edition when there are none.

    `columns` has fields of `importers.table_roles.Columns`: what a table calls its columns, by role. Raises UsageError when
    a run in a source cannot be read: a verdict must not leave out runs in silence.
    """
    results = read_names(expand(names) or [LATEST], root, columns)
    if results.problems:
        raise UsageError(results.problems[0])
    return results


def read_names(names: Sequence[str], root: Path, columns: Mapping[str, Any] | None = None) -> Results:
    """Read what the names mean. Runs that cannot be read are in `Results.problems`."""
    alone = len(names) == 1 and not any((columns or {}).values())
    if alone and (edition := _edition(names[0], root)) is not None:
        # The usual case, without importers, which take longer to load than an edition to read.
        from bakeoff.results.editions import open_edition

        results = open_edition(edition)
    else:
        results = _read(names, root, columns)
    notes = [note for name in names if (note := shadowed(name.partition(":")[0], root)) is not None]
    return replace(results, notes=(*results.notes, *notes)) if notes else results


def _read(names: Sequence[str], root: Path, columns: Mapping[str, Any] | None) -> Results:
    """Read what importers claim of the names, else arms of editions, or the newest edition of an experiment file."""
    importers = Importers(columns)
    claims = [_claim(name, root, importers) for name in names]
    tables = [name for name, claim in zip(names, claims, strict=True) if claim is not None and _is_table(claim)]
    if tables and len(tables) < len(names):
        other = next(name for name in names if name not in tables)
        raise UsageError(f"{tables[0]} is a table and {other} is not; name either tables or other sources")
    known = [claim for claim in claims if claim is not None]
    overrides = _overrides(known, columns)
    if len(known) == len(names):
        return read(known, ", ".join(names), overrides)
    from bakeoff.results.editions import open_by_file, open_editions

    by_file = open_by_file(Path(names[0]), root) if len(names) == 1 else None
    return by_file if by_file is not None else open_editions(names, root)


def read_path(path: Path, columns: Mapping[str, Any] | None = None) -> Results | None:
    """Read whatever lies at a path, runs that cannot be read in `Results.problems`; None when no importer claims it."""
    claim = Importers(columns).claim(path)
    overrides = _overrides([] if claim is None else [claim], columns)
    return None if claim is None else read([claim], str(path), overrides)


def _overrides(claims: Sequence[Claim], columns: Mapping[str, Any] | None) -> Overrides | None:
    """Return what flags say about runs of other tools. Raises UsageError for flags that the sources know nothing of."""
    from bakeoff.results.importers.identity import Overrides

    given = {name: value for name, value in (columns or {}).items() if value}
    foreign = given.keys() & {field.name for field in fields(Overrides)}
    tables = any(map(_is_table, claims))
    if claims and not tables and not any(isinstance(claim.importer, Editions) for claim in claims):
        unknown = sorted(given.keys() - foreign)
        if unknown:
            raise UsageError(
                f"{claims[0].paths[0]} is not a table, so nothing in it is a column for --{unknown[0].replace('_', '-')}"
                f"{'' if unknown[0] in ('ignore', 'keep_duplicates') else '-from'}; it takes --arm-from, --task-from, "
                "--seed-from, --infra-error and --reruns"
            )
        return Overrides(**given)
    if (only := sorted(foreign & {"infra_error", "reruns"})) and tables:
        raise UsageError(f"--{only[0].replace('_', '-')} is for logs of other tools; {claims[0].paths[0]} is a table")
    if given and not tables:
        raise UsageError(
            "--arm-from and the like are for tables and for files of other tools, which say what a run's arm is in many ways; "
            "editions of bakeoff say it themselves"
        )
    return None


def _edition(name: str, root: Path) -> EditionPaths | None:
    """Find the edition that an experiment's name means, which goes before a directory of the same name here."""
    if Path(name).is_file() or not (name == LATEST or editions_named(name, root)):
        return None
    return EditionPaths(find_edition(name, root).directory.resolve())


def _claim(name: str, root: Path, importers: Importers) -> Claim | None:
    """Find out who reads what a name means; None for arms of editions, experiment files and names that mean nothing.

    Raises UsageError for a path that nobody reads.
    """
    if name.startswith(ONLINE):
        return importers.claim(Path(name))
    if (edition := _edition(name, root)) is not None:
        return Claim(Editions(), (edition.directory,))
    path = next((place for place in (Path(name), root / name) if place.exists()), Path(name))
    claim = importers.claim(path)
    if claim is None and path.is_dir():
        raise UsageError(f"{path}: {nothing_in(path)} ({importers.tried(path)})")
    if claim is None and path.suffix == ".json" and path.is_file() and not _is_experiment(path):
        from bakeoff.results.importers.table_files import describe_json

        raise UsageError(f"{name}: {describe_json(path)} ({importers.tried(path)})")
    if claim is None and path.is_file() and path.suffix not in SUFFIXES:
        reason = _packed(path) or "is not a file of bakeoff, a table, or a file of another tool that is read"
        raise UsageError(f"{name}: {reason} ({importers.tried(path)})")
    return claim


def _packed(path: Path) -> str | None:
    """Say of a compressed file that it has to be unpacked first; None for any other."""
    return f"is compressed ({path.suffix}); unpack it first" if path.suffix in COMPRESSED else None


def _is_table(claim: Claim) -> bool:
    from bakeoff.results.importers.tables import Tables

    return isinstance(claim.importer, Tables)


def nothing_in(directory: Path) -> str:
    """Say what a directory that nobody reads would need."""
    from bakeoff.records.rundir import META
    from bakeoff.results.importers.directories import LOGS
    from bakeoff.results.importers.table_files import is_table

    if any(map(is_table, directory.iterdir())):
        return f"is a directory with tables; name the tables, as in {directory}/*.csv"
    if packed := [path for path in sorted(directory.iterdir()) if _packed(path)]:
        return f"has nothing that can be read, but {packed[0].name} is compressed; unpack it first"
    return (
        f"there is no run directory in it; a run's directory has {', '.join((META, *LOGS))}. Files of other tools, such as logs of "
        "Inspect, W&B or TensorBoard, are read as well (docs/other-tools.md has the list)"
    )


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


def _is_experiment(path: Path) -> bool:
    """Whether a JSON file says what to run, and not what came of it."""
    try:
        tree = json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError):
        return False
    return isinstance(tree, dict) and (
        dialect_of(tree) is not NATIVE or ("name" in tree and len(set(tree) & set(ExperimentFile.model_fields)) > 1)
    )


def read_runs(name: str, root: Path) -> Results:
    """Every run that one name means: a directory, a campaign, W&B runs, or one run of one of our editions.

    Raises UsageError for a table, which holds runs of several arms, and for runs that cannot be read.
    """
    importers = Importers()
    path = next((place for place in (Path(name), root / name) if place.exists()), None)
    claim = importers.claim(Path(name) if path is None else path) if path or name.startswith(ONLINE) else None
    if claim is not None:
        if _is_table(claim):
            raise UsageError(f"{name}: is a table, which holds runs of several arms; name it alone, as the source")
        results = read([claim], name)
        if results.problems:
            raise UsageError(results.problems[0])
        return results
    if path is not None:
        raise UsageError(f"{path}: {nothing_in(path) if path.is_dir() else 'is not a file of runs that bakeoff knows'}")
    from bakeoff.results.editions import run_row
    from bakeoff.results.importers.assembly import as_results

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
    sides: list[list[Row]] = []
    sources: list[Results] = []
    for names, arm in ((control, arms[0]), (candidate, arms[1])):
        if not names:
            raise UsageError(f"runs of the {arm} are not named; both arms are needed")
        own = [read_runs(name, root) for name in expand(names)]
        sources += own
        rows = [row for results in own for row in results.rows]
        _check_distinct(rows, "")
        sides.append([replace(row, arm=arm) for row in rows])
    places = [{(row.task, row.seed) for row in side} for side in sides]
    seeds_known = all(seed is not None for side in places for _, seed in side)
    paired = seeds_known and places[0] == places[1]
    notes = [note for results in sources for note in results.notes]
    notes += [
        f"{results.label}: {reading_line(results.reading)}" for results in sources if results.reading.get("tools")
    ]
    if as_samples and not paired:
        notes.append("the runs share no seeds, so the arms are two independent samples")
        sides = [[replace(row, seed=None) for row in side] for side in sides]
    # How a tool's own metric is judged holds where all sources say the same.
    analyses = [results.analysis for results in sources]
    how = {"analysis": analyses[0]} if all(each == analyses[0] for each in analyses) else {}
    return _foreign(
        number_repeats([*sides[0], *sides[1]]), f"{len(sides[0])} runs against {len(sides[1])}",
        unpaired=as_samples and not paired, notes=tuple(dict.fromkeys(notes)), **how,
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
        if row.name in names:
            raise UsageError(f"{where}{row.name} is named twice; the same run cannot count twice")
        names.add(row.name)


def _foreign(rows: Sequence[Row], label: str, **fields: Any) -> Results:
    from bakeoff.results.importers.assembly import as_results

    return replace(as_results(rows, label), **fields)
