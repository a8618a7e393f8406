"""Studies of Optuna, in an SQLite database or a journal file. The arm is the study, and a run is a trial.

The task is the trial's parameters where studies share some, as those of a grid do. Otherwise all trials are of one task, and a note
says that trials of a sampler that learns depend on one another.

A pruned trial is missing: Optuna stores the last value that it reported as if it were the result. A failed one is failed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.importers.files import first_bytes, read_whole_lines
from bakeoff.results.importers.foreign import BY_FILE, DIRECTORY, ForeignRun, Item, Measure, Outcome, Reading, Source

TABLES = ("studies", "trials", "trial_values", "trial_params", "study_directions")
STATES: Mapping[str, Outcome] = {
    "COMPLETE": "scored", "FAIL": "failed", "PRUNED": "missing", "RUNNING": "running", "WAITING": "running",
}  # fmt: skip
NUMBERS = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")
"""States by their number in a journal."""
METRIC_NAMES = "study:metric_names"


@dataclass(slots=True)
class Trial:
    """One trial of a study."""

    number: int
    state: str
    values: list[float] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in sorted(self.params.items()))


@dataclass(slots=True)
class Study:
    """A study and its trials."""

    path: Path
    name: str
    directions: list[str]
    trials: list[Trial] = field(default_factory=list)
    names: Sequence[str] = ()

    @property
    def metrics(self) -> Sequence[str]:
        count = len(self.directions)
        return self.names or (["value"] if count == 1 else [f"value_{number}" for number in range(count)])


class Optuna:
    """A database or a journal of Optuna."""

    name = "optuna"

    def claims(self, path: Path) -> list[Path]:
        if not path.is_file():
            return []
        if path.suffix in (".db", ".sqlite", ".sqlite3"):
            from bakeoff.records.foreign_database import is_database

            return [path] if is_database(path, *TABLES) else []
        start = first_bytes(path, 1 << 10) if path.suffix in (".log", ".journal", ".jsonl") else b""
        return [path] if b'"op_code"' in start and b'"study_name"' in start else []

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        studies = [study for path in paths for study in (_database(path) if _is_database(path) else _journal(path))]
        shared = Counter(settings for study in studies for settings in {trial.settings for trial in study.trials})
        paired = any(count > 1 for settings, count in shared.items() if settings)
        states: Counter[str] = Counter()
        for study in studies:
            for trial in study.trials:
                states[trial.state] += 1
                outcome = STATES[trial.state]
                complete = outcome == "scored"
                yield ForeignRun(
                    labels={"study": study.name, DIRECTORY: study.path.name},
                    header={"params": trial.params},
                    source=Source(study.path, member=f"{study.name}:{trial.number}"),
                    task=trial.settings if paired else "default",
                    outcome=outcome,
                    error=None if complete else trial.state.lower(),
                    metrics=dict(zip(study.metrics, trial.values, strict=False)) if complete else {},
                )
            directions: Mapping[str, Any] = dict(zip(study.metrics, study.directions, strict=False))
            measures = {name: Measure(direction) for name, direction in directions.items()}
            yield Reading("Optuna", "", measures, unit="trial", labels=BY_FILE)
        yield Reading(notes=_notes(states, paired))


def _notes(states: Counter[str], paired: bool) -> list[str]:
    notes = []
    if states["PRUNED"]:
        notes.append(
            f"{states['PRUNED']} of {states.total()} trials were pruned: they have no result and count as missing"
        )
    if not paired:
        notes.append(
            "studies share no parameters: trials count as independent, which those of a sampler that learns are not"
        )
    return notes


def _is_database(path: Path) -> bool:
    return path.suffix in (".db", ".sqlite", ".sqlite3")


def _database(path: Path) -> list[Study]:
    from bakeoff.records.foreign_database import ForeignDatabase

    with ForeignDatabase(path) as database:
        studies = {
            row["study_id"]: Study(path, row["study_name"], [])
            for row in database.rows("studies", ("study_id", "study_name"), order="study_id")
        }
        for row in database.rows("study_directions", ("study_id", "direction"), order="objective"):
            studies[row["study_id"]].directions.append(str(row["direction"]).lower())
        for row in database.rows("study_system_attributes", ("study_id", "value_json"), key=METRIC_NAMES):
            studies[row["study_id"]].names = json.loads(row["value_json"])
        trials = {}
        for row in database.rows("trials", ("trial_id", "study_id", "number", "state"), order="trial_id"):
            trial = trials[row["trial_id"]] = Trial(row["number"], row["state"])
            studies[row["study_id"]].trials.append(trial)
        infinities = {"INF_POS": math.inf, "INF_NEG": -math.inf}
        typed = (
            "value_type" in database.tables["trial_values"]
        )  # before version 3 of the schema infinities were no values
        columns = ("trial_id", "value", *(["value_type"] if typed else []))
        for row in database.rows("trial_values", columns, order="objective"):
            trials[row["trial_id"]].values.append(
                infinities.get(row["value_type"], row["value"]) if typed else row["value"]
            )
        for row in database.rows("trial_params", ("trial_id", "param_name", "param_value", "distribution_json")):
            trials[row["trial_id"]].params[row["param_name"]] = _param(row["param_value"], row["distribution_json"])
        return list(studies.values())


def _param(value: float, distribution: str) -> Any:
    """Return a parameter as the study's code saw it: a category is stored as its place."""
    settings = json.loads(distribution)
    choices = settings.get("attributes", {}).get("choices")
    if choices is not None:
        return choices[int(value)]
    return int(value) if settings.get("name", "").startswith("Int") else value


def _journal(path: Path) -> list[Study]:
    """Replay a journal: study_id and trial_id count what was created."""
    operations, _ = read_whole_lines(path)
    studies: list[Study | None] = []
    trials: list[Trial] = []
    for line, operation in enumerate(operations, 1):
        try:
            _replay(path, operation, studies, trials)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{path}, line {line}: is not an operation of Optuna's journal: {error!r}") from error
    return [study for study in studies if study is not None]


def _replay(path: Path, operation: Mapping[str, Any], studies: list[Study | None], trials: list[Trial]) -> None:
    match operation["op_code"]:
        case 0:
            directions = [{1: "minimize", 2: "maximize"}[number] for number in operation["directions"]]
            studies.append(Study(path, operation["study_name"], directions))
        case 1:
            studies[operation["study_id"]] = None
        case 3 if METRIC_NAMES in operation["system_attr"]:
            if (study := studies[operation["study_id"]]) is not None:
                study.names = operation["system_attr"][METRIC_NAMES]
        case 4:
            study = studies[operation["study_id"]]
            trial = Trial(len(study.trials) if study else 0, NUMBERS[operation.get("state") or 0])
            single = operation.get("value")
            trial.values = operation.get("values") or ([] if single is None else [single])
            distributions = operation.get("distributions") or {}
            params = operation.get("params") or {}
            trial.params = {name: _param(value, distributions[name]) for name, value in params.items()}
            trials.append(trial)
            if study is not None:
                study.trials.append(trial)
        case 5:
            trials[operation["trial_id"]].params[operation["param_name"]] = _param(
                operation["param_value_internal"], operation["distribution"]
            )
        case 6:
            trial = trials[operation["trial_id"]]
            trial.state, trial.values = NUMBERS[operation["state"]], operation["values"] or []
