"""Anything that can be read becomes `Results`: our editions, and other tools' files. One importer for each format.

An importer says what at a path is its own (`claims`), and reads that (`read`). Ours are listed in `Importers`; packages add
theirs through the entry-point group `bakeoff.importers`, as a class or as an object:

    class MyTool:
        name = "mytool"

        def claims(self, path):
            return [path] if path.suffix == ".mytool" else sorted(path.glob("*.mytool"))

        def read(self, paths):
            for path in paths:
                log = json.loads(path.read_text())
                for sample in log["samples"]:
                    yield ForeignRun(
                        labels={"model": log["model"], "temperature": log["temperature"]},
                        source=Source(path, member=sample["id"]),
                        task=sample["id"],
                        metrics={"score": sample["score"]},
                    )
            yield Reading(tool="mytool", metrics={"score": Measure("maximize", (0, 1))})

Of several importers that claim a path, one of another package goes before ours, and ours go in the order of the list; a
note names the other one.

| module | reads |
|---|---|
| `foreign` | the interface: `Importer`, `ForeignRun`, `Source`, `Log`, `Reading` |
| `identity` | arms, tasks and seeds of runs by what differs or by what flags say; reruns |
| `transcripts` | messages of any shape, and files that changed since their runs were read |
| `assembly` | what importers yield as `Results`, and the reading line |
| `inspect_logs` | `.eval` and `.json` logs of Inspect AI |
| `harbor_jobs` | job directories of Harbor |
| `lm_eval_samples` | results of lm-evaluation-harness with `--log_samples` |
| `tables` | CSV, TSV, Parquet, JSONL and JSON, one row for each run or for each step of a run |
| `table_files`, `table_shapes`, `table_roles` | its parts: files; arms that are columns or files; which column is what |
| `table_checks`, `table_settings`, `table_aggregates` | what is refused or noted: identifiers and runs; settings that split runs; summaries |
| `promptfoo` | evals of promptfoo: JSON, JSONL, its database |
| `verifiers_evals`, `verifiers_results` | evals of verifiers 0.4 and 0.1 |
| `nemo_evals`, `lerobot_evals` | results of NeMo Evaluator 0.3, and `eval_info.json` of LeRobot |
| `wandb_runs` | W&B runs: offline files without the package, and runs on a server |
| `training_logs`, `training_readers` | runs of trainers: event files of TensorBoard, Stable-Baselines3, Hugging Face |
| `hyperfine`, `pytest_benchmark`, `optuna_studies`, `mlflow_runs`, `trackio_runs` | files and databases of these tools |
| `directories` | run directories with `metrics.jsonl` or `meta.json`, and training campaigns |
| `files` | small JSON and CSV files, read quickly |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import BakeoffError, UsageError
from bakeoff.plugins import load_all

if TYPE_CHECKING:
    from bakeoff.results.importers.foreign import Importer, Item
    from bakeoff.results.importers.identity import Overrides
    from bakeoff.results.table import Results

GROUP = "bakeoff.importers"
ONLINE = "wandb:"
"""What names of W&B runs on a server begin with; an importer gets such a name as a path."""


class Editions:
    """One of our editions, or the newest one of an experiment's directory."""

    name = "editions"

    def claims(self, path: Path) -> list[Path]:
        from bakeoff.records.layout import DATABASE, editions, is_edition

        if path.name == DATABASE:
            path = path.parent
        return [path] if is_edition(path) else [paths.directory for paths in editions(path)[-1:]]

    def read(self, paths: Sequence[Path]) -> Results:
        from bakeoff.records.layout import EditionPaths
        from bakeoff.results.editions import open_edition

        if len(paths) > 1:
            raise UsageError(f"{paths[1]}: say which arm of it, as in {paths[1]}:ARM")
        return open_edition(EditionPaths(paths[0].resolve()))


class PlugIn:
    """An importer of another package. What it raises becomes a UsageError of one line."""

    def __init__(self, name: str, importer: Importer) -> None:
        self.name, self._importer = name, importer

    def claims(self, path: Path) -> list[Path]:
        if not path.exists():
            return []
        try:
            return [Path(claimed) for claimed in self._importer.claims(path)]
        except BakeoffError:
            raise
        except Exception as error:  # code of other packages
            raise self._error(path, error) from error

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        from bakeoff.results.importers.foreign import checked

        watched = _Watched(paths)
        try:
            for item in self._importer.read(watched):  # type: ignore[union-attr]  # `Results` are given by ours only
                yield checked(item)
        except BakeoffError:
            raise
        except Exception as error:
            raise self._error(watched.last, error) from error

    def _error(self, path: Path, error: Exception) -> UsageError:
        lines = str(error).splitlines()
        reason = f": {lines[0]}" if lines else ""
        return UsageError(f"{path}: the importer {self.name!r} failed: {type(error).__name__}{reason}")


class _Watched(Sequence[Path]):
    """Paths that remember which of them was asked for last."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self.last = paths[0]

    def __getitem__(self, place: Any) -> Any:
        found = self._paths[place]
        self.last = found if isinstance(found, Path) else self.last
        return found

    def __len__(self) -> int:
        return len(self._paths)


def plug_ins(notes: list[str]) -> Iterator[Importer]:
    """Yield importers of other packages. One that cannot be imported is a line in `notes`."""
    for name, loaded in load_all(GROUP, notes.append):
        try:
            yield PlugIn(name, loaded() if isinstance(loaded, type) else loaded)
        except Exception as error:  # code of other packages
            notes.append(f"{GROUP}: {name!r} cannot be used: {type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Claim:
    """What an importer will read of a path."""

    importer: Importer
    paths: tuple[Path, ...]
    notes: tuple[str, ...] = ()


_FORMATS = (
    ("inspect_logs", "InspectLogs"),
    ("harbor_jobs", "HarborJobs"),
    ("lm_eval_samples", "LmEvalSamples"),
    ("promptfoo", "Promptfoo"),
    ("verifiers_evals", "Verifiers"),
    ("verifiers_results", "VerifiersResults"),
    ("nemo_evals", "NemoEvaluator"),
    ("lerobot_evals", "LeRobot"),
    ("training_logs", "TrainingFiles"),
    ("hyperfine", "Hyperfine"),
    ("pytest_benchmark", "PytestBenchmark"),
    ("optuna_studies", "Optuna"),
    ("mlflow_runs", "Mlflow"),
    ("trackio_runs", "Trackio"),
)
"""Modules here and the importers in them, in the order in which they are asked."""


class Importers:
    """The ordered list of importers: those of other packages, then ours, the special formats before the general ones."""

    def __init__(self, columns: Mapping[str, Any] | None = None) -> None:
        """`columns` are fields of `table_roles.Columns`: what flags say about a table's columns."""
        self._columns = columns
        self._notes: list[str] = []

    @cached_property
    def _first(self) -> list[Importer]:
        from bakeoff.results.importers.tables import Tables
        from bakeoff.results.importers.wandb_runs import Wandb

        special = [getattr(import_module(f"{__name__}.{module}"), name)() for module, name in _FORMATS]
        return [*plug_ins(self._notes), Editions(), *special, Tables(self._columns), Wandb()]

    @cached_property
    def _of_directories(self) -> list[Importer]:
        from bakeoff.results.importers.directories import RunDirectories
        from bakeoff.results.importers.training_logs import TrainingLogs

        return [*of_dialects(), RunDirectories(), TrainingLogs()]

    def claim(self, path: Path) -> Claim | None:
        """Find who reads `path`: the first importer that claims anything there; None when nobody does."""
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UsageError(f"{path}: is a pipe or a device; write what it gives into a file, and name that")
        claims: list[Claim] = []
        # Dialects are imported for directories only: that takes longer than reading a table.
        for importer in chain(self._first, self._of_directories if path.is_dir() else ()):
            # A pipe that is named like a log would keep us waiting for whoever writes into it.
            if paths := tuple(each for each in importer.claims(path) if _can_be_read(each)):
                claims.append(Claim(importer, paths))
                if not isinstance(importer, PlugIn):
                    break  # ours are ordered so that the first is right
        if not claims:
            return None
        first, *others = claims
        names = " and ".join(repr(other.importer.name) for other in others)
        notes = [f"{path}: read by the importer {first.importer.name!r}; {names} would read it, too"] if others else []
        return replace(first, notes=(*self._notes, *notes, *self._beside(path, first)))

    def _beside(self, path: Path, claim: Claim) -> list[str]:
        """Name an entry of a directory that another importer would read, and that is not read with the others."""
        if not path.is_dir() or path in claim.paths or isinstance(claim.importer, PlugIn | Editions):
            return []
        read = {each.relative_to(path).parts[0] for each in claim.paths if each.is_relative_to(path)}
        for entry in sorted(path.iterdir()):
            if entry.name in read or entry.name.startswith("."):
                continue
            importers = chain(self._first, self._of_directories if entry.is_dir() else ())
            if other := next(
                (each for each in importers if self._reads(each, entry) and each is not claim.importer), None
            ):
                return [
                    f"only {claim.importer.name} is read of {path}; {entry} is of {other.name}: name it to read that"
                ]
        return []

    def _reads(self, importer: Importer, path: Path) -> bool:
        """Whether an importer finds logs of its tool at a path. A table may be anything, such as a summary of what is read."""
        from bakeoff.results.importers.tables import Tables

        return not isinstance(importer, Tables) and any(map(_can_be_read, importer.claims(path)))

    def tried(self, path: Path) -> str:
        """Say which formats nobody found at `path`, and why the nearest one does not fit."""
        importers = [*self._first, *(self._of_directories if path.is_dir() else ())]
        near = [
            f"{importer.name}: {reason}"
            for importer in importers
            if (explain := getattr(importer, "misses", None)) is not None and (reason := explain(path)) is not None
        ]
        names = ", ".join(dict.fromkeys(importer.name for importer in importers))
        # Inspect has a reason for every directory and every .json, so that of another format is closer.
        near.sort(key=lambda reason: reason.startswith("Inspect:"))
        return f"tried {names}" + (f"; nearest is {near[0]}" if near else "")


def _can_be_read(path: Path) -> bool:
    """Whether a path is a file, a directory, or the name of something that is not on this machine."""
    return path.is_file() or path.is_dir() or not path.exists()


def of_dialects() -> Iterator[Importer]:
    """Yield the importers of installed dialects."""
    from bakeoff.spec import registry

    for dialect in registry.dialects():
        importer: Importer | None = dialect.importer()
        if importer is not None:
            yield importer


def read(claims: Sequence[Claim], label: str, overrides: Overrides | None = None) -> Results:
    """Read everything that was claimed, as one table. Each importer gets all its paths at once.

    `overrides` are what flags say about runs of other tools. Raises UsageError when something cannot be read at all. Single
    runs that cannot be read are in `Results.problems`.
    """
    from bakeoff.results.importers.assembly import as_results
    from bakeoff.results.importers.transcripts import file_state
    from bakeoff.results.table import Results

    paths: dict[Importer, list[Path]] = {}
    for claim in claims:
        paths.setdefault(claim.importer, []).extend(claim.paths)
    _refuse_twice(claims)
    states = ((path, file_state(path)) for claimed in paths.values() for path in claimed)
    before = {path: state for path, state in states if state is not None}
    streams: list[Iterable[Item]] = []
    whole: Results | None = None
    for importer, claimed in paths.items():
        watched = _Watched(claimed)
        read_from = importer.read(watched)
        if not isinstance(read_from, Results):
            streams.append(_one_line(importer.name, read_from, watched))
        elif len(paths) == 1:
            whole = read_from
        else:
            raise UsageError(f"{claimed[0]}: {importer.name} can only be asked about without other sources beside them")
    try:
        results = whole or as_results(chain.from_iterable(streams), label, overrides, before)
    except (ValueError, OSError, KeyError, TypeError) as error:
        raise UsageError(f"{label}: {error}") from error
    notes = dict.fromkeys(note for claim in claims for note in claim.notes)
    changed = [path for path, state in before.items() if file_state(path) != state]
    notes |= dict.fromkeys(f"{path} changed while it was read; ask again when it is complete" for path in changed)
    sources = tuple(path for claimed in paths.values() for path in claimed)
    return replace(results, notes=(*results.notes, *notes), sources=sources if not results.editions() else ())


def _one_line(name: str, items: Iterable[Item], watched: _Watched) -> Iterator[Item]:
    """Yield what an importer reads. A file whose fields are of other types than its tool writes is a UsageError of one line."""
    try:
        yield from items
    except (ValueError, OSError, LookupError, TypeError, AttributeError, RecursionError) as error:
        lines = str(error).splitlines() or [""]
        raise UsageError(
            f"{watched.last}: is not as {name} writes it, or was changed: {type(error).__name__}: {lines[0]}"
        ) from error


def _refuse_twice(claims: Sequence[Claim]) -> None:
    """Raise UsageError where two names, or a link, lead to one file."""
    known: set[Path] = set()
    for claim in claims:
        for path in claim.paths:
            place = path.resolve()
            if place in known and place.is_file():
                raise UsageError(f"{path} is read twice; the same run cannot count twice")
            known.add(place)
