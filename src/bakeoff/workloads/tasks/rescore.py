"""Score stored work again: the diff that an agent left, with the tests, metrics and judge as they are now.

No agent runs. Each new score is one more try of its run in the edition's record, with the diff, the tokens and the
trajectory of the try before; what was scored earlier stays in `attempts`. A run that cannot be scored again (its task is
gone, a box breaks) keeps the score that it has.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.records import provenance
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths
from bakeoff.records.lease import Lease
from bakeoff.records.results import Result
from bakeoff.sandbox.face import Box, Sandbox
from bakeoff.sandbox.scratch import scratch
from bakeoff.spec.workload import FINISHED, Status
from bakeoff.workloads.tasks.attempt import Attempt, Worked
from bakeoff.workloads.tasks.boxes import give
from bakeoff.workloads.tasks.evaluation import DIFF, RESULTS, Evaluation
from bakeoff.workloads.tasks.harbor_run import play
from bakeoff.workloads.tasks.model import Step, Task
from bakeoff.workloads.tasks.params import TasksParams
from bakeoff.workloads.tasks.proxy.records import Totals, add_up, read_calls
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.scoring.judge import JudgeSettings
from bakeoff.workloads.tasks.start import PatchFailed, apply_diff
from bakeoff.workloads.tasks.verify import verify_diff
from bakeoff.workloads.tasks.workload import CALLS, evaluate, settle, task_of


@dataclass(frozen=True, slots=True)
class Rescored:
    run_id: str
    directory: Path
    task_dir: str
    status: Status
    before: float | None
    after: float | None
    error: str | None = None


def rescore(
    paths: EditionPaths,
    sandbox: Sandbox,
    *,
    jobs: int,
    judge: Mapping[str, Any] | None = None,
    told: Callable[[Rescored], None] = lambda one: None,
) -> list[Rescored]:
    """Every run of the edition whose agent came to its end. Each new score is recorded before it is told.

    `judge` are settings that go before those of the file.
    """
    with Lease(paths.lease), closing(Edition.open(paths, readonly=False)) as edition:
        if edition.facts()["workload"] != "tasks":
            raise UsageError(f"{paths.experiment}/{paths.name} has no task rollouts; only those can be scored again")
        edition.lock()
        base = Path(edition.sessions()[0]["provenance"]["base"])
        session = edition.begin_session(provenance.collect(base, sys.argv), edition.planned())
        work = [
            run for run, status in edition.statuses() if status in FINISHED or _unscored(status, paths.run(run.run_id))
        ]
        runs = [edition.run(run.position) for run in work]
        found = []
        try:
            with ThreadPoolExecutor(jobs) as pool:
                for run, (result, one) in zip(
                    runs, pool.map(lambda run: _again(run, paths, base, sandbox, judge), runs), strict=True
                ):
                    if one.status != "infra_error":
                        series, trajectory = edition.series(run["position"]), edition.trajectory(run["position"])
                        edition.finish([replace(result, series=series, trajectory=trajectory)], session)
                    found.append(one)
                    told(one)
        finally:
            edition.end_session(session, "scored again")
        return found


def _unscored(status: str, directory: Path) -> bool:
    """Whether only scoring broke, a judge's endpoint say: then the work is there, and need not be done again."""
    worked = status == "infra_error" and (directory / RESULTS).is_file() and (directory / DIFF).is_file()
    return worked and _totals(directory).broken is None


def _again(
    run: dict[str, Any], paths: EditionPaths, base: Path, sandbox: Sandbox, judge: Mapping[str, Any] | None
) -> tuple[Result, Rescored]:
    directory = paths.run(run["run_id"])
    params = TasksParams.model_validate(run["params"])
    if judge is not None:
        settings = params.judge.model_dump() if params.judge is not None else {}
        params = params.model_copy(update={"judge": JudgeSettings.model_validate({**settings, **judge})})
    began = time.time()
    status: Status = "succeeded"
    metrics: dict[str, Any] = {}
    error = None
    try:
        found = _evaluation(params, run, directory, base, sandbox)
        if found.verification.status == "error":  # before anything is written
            raise InfraError(f"verification broke: {found.verification.error}")
        outcome = settle(found, directory)
        status, metrics, error = outcome.status, dict(outcome.metrics), outcome.error
    except BakeoffError as failure:
        status, error = "infra_error", str(failure)
    result = Result(
        run["position"], run["run_id"], run["attempts"] + 1, status,
        started_at=began, ended_at=time.time(), exit_code=run["exit_code"], error=error, metrics=metrics,
        command=run["command"],
    )  # fmt: skip
    before = run["metrics"].get("total_score")
    after = before if status == "infra_error" else metrics.get("total_score")
    return result, Rescored(run["run_id"], directory, params.path, status, before, after, error)


def _evaluation(params: TasksParams, run: dict[str, Any], directory: Path, base: Path, sandbox: Sandbox) -> Evaluation:
    task = task_of(params, base)
    earlier = _earlier(directory)
    diff_file = directory / DIFF
    if not diff_file.is_file():
        raise InfraError(f"{directory}: no diff was kept, so there is nothing to score again")
    diff = diff_file.read_bytes()
    verified = verify_again(task, diff, sandbox, directory / "logs" / "tests")
    tried = Attempt(verified, tuple(_worked(earlier)), diff, tuple(earlier.get("left_out") or ()))
    kept = ("run_id", "agent", "agent_version", "model", "seed", "rollout")
    facts = {**{name: earlier.get(name) for name in kept}, "sandbox": sandbox.name, "task_digest": task.digest}
    return evaluate(task, params, facts, tried, _totals(directory), sandbox)


def _totals(directory: Path) -> Totals:
    record = directory / CALLS
    return add_up(read_calls(record)) if record.exists() else Totals()


def _earlier(directory: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((directory / RESULTS).read_text())
    except (OSError, ValueError) as error:
        raise InfraError(f"{directory / RESULTS} cannot be read: {error}") from error
    return found


def _worked(earlier: dict[str, Any]) -> Iterator[Worked]:
    agent = earlier["agent_metrics"]
    share = agent["time_taken_seconds"] / max(1, len(agent["status"]))
    for status, code in zip(agent["status"], agent["exit_code"], strict=True):
        yield Worked(status, code, share)


def verify_again(task: Task, diff: bytes, sandbox: Sandbox, logs: Path) -> Verification:
    """Verify work of which the diff was kept."""
    if task.format == "prepared":
        return verify_diff(task, diff, sandbox, logs=logs)
    if len(task.steps) > 1:
        raise InfraError(f"{task.id}: a task with several steps cannot be scored again from a diff")

    def act(box: Box, step: Step) -> None:
        _redo(box, diff)
        if step.agent.user is not None:
            give(box, step.agent.user, (box.spec.workdir,))

    try:
        return play(task, sandbox, act, logs=logs)
    except PatchFailed as error:
        return Verification("patch_failed", error=str(error))
    except InfraError as error:
        return Verification("error", error=str(error))


def _redo(box: Box, diff: bytes) -> None:
    """Put the agent's changes into the workdir of a fresh box."""
    workdir = box.spec.workdir
    with scratch() as here:
        tree = here / "tree"
        box.get(workdir, tree, all_links=True)
        apply_diff(tree, diff)
        box.run(["find", workdir, "-mindepth", "1", "-delete"], user="root")
        box.put(tree, workdir)
