"""What was promised before the first result: plan, seeds, metric, test and alpha, under a hash.

`bakeoff prereg FILE` writes it beside the file, `run` keeps a copy in the edition, and `compare` asks here whether the
analysis is the registered one:

    found = prereg.check(edition, analysis, question, metrics)      # None when nothing was registered
    if found is not None: found.sentence, found.deviations
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.errors import UsageError
from bakeoff.records import layout, provenance
from bakeoff.records.codefiles import CodeFiles, named_files
from bakeoff.records.recorded import Recorded
from bakeoff.records.run import RunRecord
from bakeoff.spec.experiment import Analysis, ExperimentFile
from bakeoff.spec.identity import canonical_json
from bakeoff.spec.plan import Plan, Run
from bakeoff.verdicts.designs import build_design
from bakeoff.verdicts.family import choose_arms
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.question import Question
from bakeoff.version import __version__

VERSION = 1


@dataclass(frozen=True, slots=True)
class Registration:
    """A registration held against what was done."""

    hash: str
    registered_at: float
    late: bool
    """It was made when there were results already."""
    deviations: tuple[str, ...]

    @property
    def kept(self) -> bool:
        return not self.deviations and not self.late

    @property
    def sentence(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.registered_at))
        what = f"registered {when} ({self.hash[:12]})"
        if self.late:
            what += ", after results were there"
        if not self.deviations:
            return f"This is the analysis that was {what}."
        count = len(self.deviations)
        return f"The analysis was {what}, and this one deviates in {count} point{'s' if count > 1 else ''}."


def register(
    plan: Plan, source: Path, *, root: Path | None = None, late: bool = False, now: float | None = None
) -> dict[str, Any]:
    """Everything that a verdict rests on, as it will be asked for, and its hash. Results under `root` are not code."""
    ignore = [source, layout.registration_of(source)]
    git = provenance.git_state(plan.base, ignore)
    files = provenance.untracked_code(plan.base, ignore, root and root.absolute(), named_files(plan))
    experiment = plan.experiment
    ids = _ids_by_seed(plan)
    every = [run_id for seed in ids.values() for run_id in seed]
    sequential = experiment.sequential
    content = {
        "bakeoff_prereg": VERSION,
        "version": __version__,
        "experiment": experiment.name,
        "registered_at": time.time() if now is None else now,
        "late": late,
        "runs": {
            "count": len(every),
            "digest": _digest_of(every),
            "by_seed": {str(seed): _digest_of(run_ids) for seed, run_ids in ids.items()},
        },
        "seeds": list(experiment.seeds),
        "cells": [[cell.arm.name, cell.task.name] for cell in plan.cells],
        "analysis": experiment.analysis.model_dump(mode="json"),
        # How many seeds there are between two looks depends on the machine and decides nothing.
        "sequential": sequential.model_dump(mode="json", exclude={"block"}) if sequential else None,
        "test": _test(plan),
        "code": {key: git[key] for key in ("commit", "dirty", "code")} if git else None,
        "files": msgspec.to_builtins(files),
    }
    return {**content, "hash": digest(content)}


def digest(content: Mapping[str, Any]) -> str:
    """Over everything but the hash itself."""
    return hashlib.sha256(canonical_json({k: v for k, v in content.items() if k != "hash"}).encode()).hexdigest()


def promise(registration: Mapping[str, Any]) -> dict[str, Any]:
    """The part that does not depend on when it was made."""
    return {
        key: registration.get(key) for key in ("experiment", "runs", "seeds", "cells", "analysis", "sequential", "test")
    }


def read(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():  # reading a pipe would wait for ever
            raise OSError("is not a regular file")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as a registration: {error}") from error
    if not isinstance(content, dict) or content.get("bakeoff_prereg") != VERSION:
        raise UsageError(f"{path}: is not a registration that this version of bakeoff knows")
    try:
        msgspec.convert(content.get("files"), CodeFiles | None)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: cannot be read as a registration: files: {error}") from error
    return content


def results_exist(root: Path, name: str) -> str | None:
    """An edition of the experiment in which a run has ended; None when there is none."""
    for paths in layout.editions(layout.experiment_directory(root, name)):
        try:
            edition = Recorded.open(paths)
        except UsageError:
            continue
        try:
            if any(status not in ("planned", "running") for status in edition.counts()):
                return f"{paths.experiment}/{paths.name}"
        finally:
            edition.close()
    return None


def check(
    edition: Recorded,
    analysis: Analysis | None = None,
    question: Question | None = None,
    metrics: Sequence[str] = (),
) -> Registration | None:
    """The edition's registration against the edition and the analysis at hand. None when there is no registration."""
    path = edition.paths.registration
    if not path.exists():
        return None
    registered = read(path)
    experiment = ExperimentFile.model_validate(edition.facts()["spec"])
    used = analysis or experiment.analysis
    intact = registered.get("hash") == digest(registered)
    deviations = [] if intact else ["the registration itself was changed after it was made: its hash does not match"]
    deviations += _plan_deviations(registered, edition, experiment)
    deviations += _analysis_deviations(registered, used, question if question is not None else Question(), metrics)
    sessions = edition.sessions()
    running = [(session["started_at"], session["seen_at"]) for session in sessions]
    code = {"git": registered.get("code"), "files": registered.get("files")}
    for session in sessions:
        change = provenance.code_change(code, session["provenance"], running)
        if change is not None:
            deviations.append(f"code: {change} before session {session['session']}")
            break
    first = min((run.started_at for run in edition.runs() if run.started_at is not None), default=None)
    when = float(registered.get("registered_at", 0.0))
    late = bool(registered.get("late")) or (first is not None and first < when)
    return Registration(str(registered.get("hash", "")), when, late, tuple(deviations))


def _analysis_deviations(
    registered: Mapping[str, Any], analysis: Analysis, question: Question, metrics: Sequence[str]
) -> Iterator[str]:
    """How metrics are judged, which of them, against which control, and what else the question changes."""
    before, used = registered["analysis"], analysis.model_dump(mode="json")
    for key, value in before.items():
        if key != "control" and used.get(key) != value:  # the control has its own line
            yield f"analysis.{key}: registered {_show(value)}, used {_show(used.get(key))}"
    family = {before["metric"], *before["primary"]}
    if metrics and set(metrics) != family:
        yield f"metrics: registered {', '.join(sorted(family))}, used {', '.join(sorted(set(metrics)))}"
    control = before.get("control") or registered["cells"][0][0]
    if question.control is not None and question.control != control:
        yield f"control: registered {control}, used {question.control}"
    candidates = {arm for arm, _ in registered["cells"]} - {control}
    if question.arms and set(question.arms) != candidates:
        yield f"candidates: registered {', '.join(sorted(candidates))}, used {', '.join(question.arms)}"
    for name in ("unpaired", "intersect"):
        if getattr(question, name):
            yield f"{name}: not registered"


def _plan_deviations(registered: Mapping[str, Any], edition: Recorded, experiment: ExperimentFile) -> Iterator[str]:
    """Runs by seed, so that a sequential test may have stopped early; its settings; arms and tasks."""
    sequential = experiment.sequential.model_dump(mode="json") if experiment.sequential else None
    before = registered.get("sequential")
    if (before is None) != (sequential is None):
        words = {True: "a fixed number of runs", False: "until decided"}
        yield f"plan: registered {words[before is None]}, run {words[sequential is None]}"
    elif before is not None and sequential is not None:
        for key, value in before.items():
            if sequential.get(key) != value:
                yield f"sequential.{key}: registered {_show(value)}, used {_show(sequential.get(key))}"
    known = registered["runs"]["by_seed"]
    here = {str(seed): _digest_of(ids) for seed, ids in _ids_by_seed(edition.runs()).items()}
    extra = [seed for seed in here if seed not in known]
    other = [seed for seed in here if seed in known and known[seed] != here[seed]]
    absent = [seed for seed in known if seed not in here] if sequential is None else []
    for what, seeds in (("not registered", extra), ("never run", absent), ("with other runs than registered", other)):
        if seeds:
            yield f"seeds {what}: {', '.join(seeds[:8])}{' ...' if len(seeds) > 8 else ''}"


def _ids_by_seed(runs: Iterable[Run | RunRecord]) -> dict[int | None, list[str]]:
    ids: dict[int | None, list[str]] = {}
    for run in runs:
        ids.setdefault(run.seed, []).append(run.run_id)
    return ids


def _digest_of(run_ids: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(run_ids)).encode()).hexdigest()[:16]


def _test(plan: Plan) -> dict[str, Any]:
    """The unit, how many there are, and the test that they get: known before any value is."""
    experiment = plan.experiment
    if experiment.sequential is not None:
        return {"name": f"{experiment.sequential.test} e-process", "unit": "seed", "units": len(experiment.seeds)}
    rows = [Observation(r.cell.arm.name, r.cell.task.name, r.seed, r.rollout, "missing", float("nan")) for r in plan]
    swept = bool(experiment.task_keys) and not experiment.tasks
    seen = Observations(experiment.analysis.metric or "", rows, experiment.analysis, fixed_tasks=swept)
    if len(seen.arms) < 2:
        return {"name": None, "unit": None, "units": 0}
    control, candidates = choose_arms(seen, Question())
    design = build_design(seen, control, candidates[0])
    n = design.units
    family = len(candidates) * max(1, len(experiment.analysis.metrics))
    name = design.planned_test(experiment.analysis.alpha, family)
    return {"name": name, "unit": design.unit, "units": n, "population": design.population, "comparisons": family}


def _show(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
