"""Score stored work again: the diff that an agent left, with the tests, metrics and judge as they are now.

No agent runs. Each new score is one more attempt of its run in the edition's record, with the diff, the tokens and
the trajectory of the attempt before; files of earlier scores stay in the run's `attempts/<n>/`. A run that cannot be
scored again (its task is gone, a sandbox breaks) keeps its score.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.records import provenance
from bakeoff.records.edition import Edition
from bakeoff.records.files import is_file_inside, make_inside, read_inside, remove_links
from bakeoff.records.layout import EditionPaths, Lease, atomic_write
from bakeoff.records.run import FAILED, RESCORED, Attempt, RunRecord
from bakeoff.records.rundir import ATTEMPTS
from bakeoff.sandbox.base import LeftOut, Sandbox
from bakeoff.spec.workload import Status
from bakeoff.workloads.tasks.attempt import AgentResult, TaskAttempt, verify_again
from bakeoff.workloads.tasks.evaluation import (
    BROKEN,
    DIFF,
    LOG,
    RESULTS,
    SCORING,
    STEP_DIFF,
    Evaluation,
    evaluate,
    settle,
)
from bakeoff.workloads.tasks.network import opened
from bakeoff.workloads.tasks.proxy.records import Totals, add_up, read_calls
from bakeoff.workloads.tasks.scoring import JudgeSettings
from bakeoff.workloads.tasks.workload import CALLS, TasksParams, TasksWorkload, check_isolation, task_of


@dataclass(frozen=True, slots=True)
class Rescored:
    """One run's score before and after. `infra_error`: it could not be scored again, and `after` is `before`."""

    run_id: str
    run_dir: str
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
    report: Callable[[Rescored], None] = lambda rescored: None,
) -> list[Rescored]:
    """Score every run of the edition whose agent came to its end; `jobs` at a time.

    `judge` are settings that replace those of the experiment file. Each new score is recorded before `report` is
    called with it. Raises UsageError for an edition of another workload.
    """
    with closing(Lease(paths.lease)), closing(Edition.open(paths, readonly=False)) as edition:
        if edition.facts()["workload"] != TasksWorkload.kind:
            raise UsageError(f"{paths.experiment}/{paths.name} has no task rollouts; only those can be scored again")
        edition.lock()  # with PostgreSQL the lease also has to hold on other machines
        # Paths of the experiment start where it was begun, wherever this command is called.
        base = Path(edition.sessions()[0]["provenance"]["base"])
        session = edition.begin_session({**provenance.collect(base, sys.argv), RESCORED: True}, edition.planned())
        runs = []
        for run in edition.runs():
            # A run without a score may have stored work: its judge was out of reach, say.
            directory = paths.run(run.run_id)
            stored = is_file_inside(directory, RESULTS) and is_file_inside(directory, DIFF)
            # A failed run without stored work has nothing to score: it lost its sandbox, or ran out of the run's time.
            if run.status == "succeeded" or (stored and run.status in (*FAILED, "infra_error")):
                runs.append(run)
        params = {cell.number: TasksParams.model_validate(cell.params) for cell in edition.cells()}
        rescored = []
        try:
            with ThreadPoolExecutor(jobs) as pool:
                results = pool.map(lambda run: _rescore(run, params[run.cell], paths, base, sandbox, judge), runs)
                # Only this thread writes to the database; the others verify.
                for run, (result, row) in zip(runs, results, strict=True):
                    if row.status != "infra_error":
                        # The work is the same, so the new attempt has the series and trajectory of the last one.
                        result.series = edition.series(run.position)
                        result.trajectory = edition.trajectories().get(run.position)
                        edition.finish([result], session, same_work=True)
                    rescored.append(row)
                    report(row)
        finally:
            edition.end_session(session, RESCORED)
        return rescored


def _rescore(
    run: RunRecord,
    params: TasksParams,
    paths: EditionPaths,
    base: Path,
    sandbox: Sandbox,
    judge: Mapping[str, Any] | None,
) -> tuple[Attempt, Rescored]:
    """Score one run: the attempt for the record, and the row for the user."""
    directory = paths.run(run.run_id)
    if judge is not None:
        settings = params.judge.model_dump() if params.judge is not None else {}
        params = params.model_copy(update={"judge": JudgeSettings.model_validate({**settings, **judge})})
    began = time.time()
    status: Status = "succeeded"
    metrics: dict[str, Any] = {}
    error = None
    try:
        evaluation = _evaluation(params, directory, base, sandbox)
        if evaluation.failure is not None and evaluation.failure.reason in BROKEN:  # before a file is overwritten
            raise InfraError(evaluation.failure.text)
        # The files of the score that counted until now stay beside those of the new one.
        for file in (Path(RESULTS), Path(SCORING), Path(LOG)):
            if is_file_inside(directory, str(file)):
                kept = make_inside(directory, f"{ATTEMPTS}/{run.attempts}/{file.parent}") / file.name
                atomic_write(kept, read_inside(directory, str(file)))
        outcome = settle(evaluation, directory)
        status, metrics, error = outcome.status, dict(outcome.metrics), outcome.error
    except (BakeoffError, OSError) as failure:
        status, error = "infra_error", str(failure)
    result = run.next_attempt(
        status=status,
        started_at=began,
        ended_at=time.time(),
        exit_code=run.exit_code,
        error=error,
        metrics=metrics,
        command=run.command,
    )
    score = run.metrics.get("total_score")
    before = float(score) if isinstance(score, int | float) else None
    after = before if status == "infra_error" else metrics.get("total_score")
    return result, Rescored(run.run_id, str(directory), params.path, status, before, after, error)


def _evaluation(params: TasksParams, directory: Path, base: Path, sandbox: Sandbox) -> Evaluation:
    """The evaluation of the diff in a run's directory, with the agent's part of the earlier one."""
    task = task_of(params, base)
    if params.require_isolation:
        check_isolation(task, sandbox)
    try:
        earlier: dict[str, Any] = json.loads(read_inside(directory, RESULTS))
    except (OSError, ValueError) as error:
        raise InfraError(f"{directory / RESULTS} cannot be read: {error}") from error
    if not is_file_inside(directory, DIFF):
        raise InfraError(f"{directory}: no diff was kept, so there is nothing to score again")
    diffs = [read_inside(directory, DIFF)]
    if len(earlier["agent_metrics"]["status"]) > 1:
        reached = range(1, len(earlier["agent_metrics"]["status"]) + 1)
        try:
            diffs = [read_inside(directory, STEP_DIFF.format(number)) for number in reached]
        except OSError as error:
            raise InfraError(f"{error.filename}: the diff of each step is needed to score it again") from error
    try:
        logs = make_inside(directory, "logs/tests")
        remove_links(logs)  # what is written there must not go elsewhere
    except OSError as error:
        raise InfraError(f"{error.filename}: {error.strerror}") from error
    with opened(task, sandbox) as (reachable, _):
        verification = verify_again(reachable, diffs, sandbox, logs)
    agent = earlier["agent_metrics"]
    # Only the total time was kept, so steps share it equally.
    share = agent["time_taken_seconds"] / max(1, len(agent["status"]))
    steps = zip(agent["status"], agent["exit_code"], strict=True)
    attempt = TaskAttempt(
        verification,
        tuple(AgentResult(status, code, share) for status, code in steps),
        tuple(diffs),
        tuple(LeftOut(name, "") for name in earlier.get("left_out") or ()),
    )
    kept = ("run_id", "agent", "agent_version", "model", "seed", "rollout")
    facts = {**{name: earlier.get(name) for name in kept}, "sandbox": sandbox.name, "task_digest": task.digest}
    return evaluate(
        task,
        facts,
        attempt,
        _totals(directory),
        sandbox,
        judge_settings=params.judge,
        metrics=params.metrics,
        providers=params.providers,
    )


def _totals(directory: Path) -> Totals:
    """Tokens and cost from the run's recorded model calls."""
    record = directory / CALLS
    return add_up(read_calls(record)) if is_file_inside(directory, CALLS) else Totals()
