"""The `tasks` workload: an agent works on a task in a box, and what it leaves is verified and scored."""

from __future__ import annotations

import os
import socket
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from pydantic import BaseModel

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.sandbox import leftovers
from bakeoff.sandbox.face import Sandbox, choose
from bakeoff.sandbox.scratch import scratch
from bakeoff.spec.workload import Outcome, RunContext
from bakeoff.workloads.tasks import evaluation as files
from bakeoff.workloads.tasks import pytest_tools
from bakeoff.workloads.tasks.agents.base import TaskAgent
from bakeoff.workloads.tasks.agents.registry import agent as find_agent
from bakeoff.workloads.tasks.attempt import PORT, Attempt, Crew, attempt
from bakeoff.workloads.tasks.boxes import check_variables, network_withheld
from bakeoff.workloads.tasks.built import refused, stand_in
from bakeoff.workloads.tasks.changes import readable
from bakeoff.workloads.tasks.evaluation import Evaluation
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.model import Task
from bakeoff.workloads.tasks.params import TasksParams
from bakeoff.workloads.tasks.proof import missing_reference
from bakeoff.workloads.tasks.proxy.budget import Budget
from bakeoff.workloads.tasks.proxy.providers import Providers
from bakeoff.workloads.tasks.proxy.records import Totals
from bakeoff.workloads.tasks.proxy.server import ModelProxy, ProxiedRun
from bakeoff.workloads.tasks.scoring.custom import measure
from bakeoff.workloads.tasks.scoring.judge import Judgement, judge, judge_key

UNSANDBOXED = "BAKEOFF_UNSANDBOXED"
"""Set by `bakeoff run` after the user agreed to run agents without a sandbox."""
CALLS = "calls.jsonl"
NOTHING_SCORES = (
    "nothing scores this task\n  fix: add test scripts for a rubric with a weight, or judge = { model = ... }"
)
NO_NETWORK = (
    "tasks here ask for a network and their boxes have none: "
    "`params.network = true` grants it (`network = true` in a benchmark file)"
)


class TasksWorkload:
    kind: ClassVar[str] = "tasks"
    revision: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = TasksParams

    def check(self, params: TasksParams, base: Path) -> list[str]:
        """The sandbox, the task, the agent, its model's key and price are there. What the task will miss, in words."""
        sandbox = available(chosen())
        task = task_of(params, base)
        check_variables(task)
        for environment in (task.environment, *(step.verifier.environment for step in task.steps)):
            if environment is not None and (why := refused(environment)):
                raise UsageError(f"{task.directory}: {why}")
        if task.scripts:
            pytest_tools.installed()
        agent = find_agent(params.agent, params.agents, base)
        if agent.needs_solution and (missing := missing_reference(task)):
            raise UsageError(f"{task.directory}: there is no reference for {agent.name} to apply\n  fix: add {missing}")
        assert agent.version
        if agent.wire is not None:
            providers = _providers(params, task)
            route = providers.route(_model(params, task, agent))
            route.check(agent.wire, f"agent {agent.name}")
            route.key(providers.environment)
            Budget(cost=params.cost_budget).check(route)
        if params.judge is not None:
            judge_key(params.judge)
        elif not task.scored_by_tests:
            raise UsageError(f"{task.directory}: {NOTHING_SCORES}")
        notes = [f"{task.id}: {note}" for note in (*task.notes, stand_in(task.environment, sandbox)) if note]
        return notes + [NO_NETWORK] * network_withheld(task)

    def run(self, params: TasksParams, ctx: RunContext) -> Outcome:
        try:
            return self._run(params, ctx)
        except InfraError:
            raise
        except (BakeoffError, OSError) as error:  # a full disk, say: nothing that an agent did, so nothing to be scored
            raise InfraError(str(error)) from error
        except Exception as error:  # a mistake of ours: no agent's code runs in this process
            traceback.print_exc()
            raise InfraError(f"{type(error).__name__}: {error}") from error

    def _run(self, params: TasksParams, ctx: RunContext) -> Outcome:
        task = task_of(params, ctx.base)
        sandbox = available(chosen())
        leftovers.remove()
        agent = find_agent(params.agent, params.agents, ctx.base)
        with ExitStack() as stack:
            crew = Crew(
                agent,
                logs=ctx.directory / "logs",
                seconds=params.seconds(),
                effort=params.effort,
                max_turns=params.max_turns,
            )
            if agent.wire is not None:
                crew.socket = stack.enter_context(scratch("proxy")) / "model.sock"
                crew.port = _free_port() if sandbox.name == "none" else PORT
                crew.proxied = _proxied(params, task, agent, crew.socket, ctx, stack)
            tried = attempt(task, crew, sandbox)
            totals = crew.proxied.close() if crew.proxied is not None else Totals()
            for step in crew.proxied.steps(agent.name) if crew.proxied is not None else ():
                ctx.trajectory(msgspec.structs.replace(step, info={**step.info, "agent_version": agent.version}))
        facts = {
            "run_id": ctx.run_id, "agent": agent.name, "agent_version": agent.version, "model": params.model,
            "sandbox": sandbox.name, "seed": ctx.seed, "rollout": ctx.rollout, "task_digest": task.digest,
        }  # fmt: skip
        return settle(evaluate(task, params, facts, tried, totals, sandbox), ctx.directory)


def task_of(params: TasksParams, base: Path) -> Task:
    """The task with its overrides and variables. Overrides make another task; the directory is never touched."""
    file = base / params.overrides if params.overrides else None
    task = load_task(base / params.path, overrides_file=file, apply_overrides=params.apply_overrides)
    task = task.with_network() if params.network else task
    return task.with_env(params.environment_variables) if params.environment_variables else task


def chosen() -> Sandbox:
    return choose(accepted=bool(os.environ.get(UNSANDBOXED)))


def available(sandbox: Sandbox) -> Sandbox:
    reason = sandbox.missing()
    if reason is not None:
        raise UsageError(f"sandbox {sandbox.name} cannot be used here: {reason}")
    return sandbox


def _proxied(
    params: TasksParams, task: Task, agent: TaskAgent, socket: Path, ctx: RunContext, stack: ExitStack
) -> ProxiedRun:
    """The run's own model proxy, which holds its budgets and its record."""
    model = _model(params, task, agent)
    assert agent.wire is not None
    providers = _providers(params, task)
    providers.route(model).check(agent.wire, f"agent {agent.name}")
    proxy = stack.enter_context(ModelProxy(socket=socket))
    budget = Budget(params.tokens(), params.cost_budget, params.call_budget, ctx.deadline)
    record = ctx.directory / CALLS
    record.unlink(missing_ok=True)  # of a try before this one
    return stack.enter_context(proxy.open(providers, model, record=record, budget=budget))


def _free_port() -> int:
    """Without a sandbox all runs, and everything else, share this machine's ports."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _providers(params: TasksParams, task: Task) -> Providers:
    """Those of the file; a task whose overrides name an endpoint has that one for everything."""
    providers = Providers.read(params.providers)
    if task.model is None or task.model.base_url is None:
        return providers
    return providers.with_endpoint(task.model.base_url, task.model.api_key)


def _model(params: TasksParams, task: Task, agent: TaskAgent) -> str:
    model = (task.model.model if task.model else None) or params.model
    if not model:
        raise UsageError(f"agent {agent.name} calls a model and none is named\n  fix: set params.model")
    return model


def evaluate(
    task: Task, params: TasksParams, facts: dict[str, Any], tried: Attempt, totals: Totals, sandbox: Sandbox
) -> Evaluation:
    """Beside the tests: the judge, and metrics of one's own."""
    verification = tried.verification
    diff = tried.diff or b""
    judged: tuple[Judgement, ...] = ()
    if params.judge is not None and task.rubrics and verification.status == "scored":
        tests = {case.name: case.outcome == "passed" for case in verification.cases}
        judged = tuple(
            judge(task.rubrics, instruction=task.instruction, diff=readable(diff), tests=tests, settings=params.judge)
        )  # fmt: skip
    found = Evaluation(task, facts, tried, totals, judged)
    if verification.status != "scored":
        return found
    told = {**facts, **found.metrics(), "diff": diff.decode(errors="replace"), "rewards": dict(verification.rewards)}
    measured = measure(task, params.metrics, told, diff, sandbox, found.standard())
    return Evaluation(task, facts, tried, totals, judged, measured)


def settle(found: Evaluation, directory: Path) -> Outcome:
    """Write the files; then say what the rollout came to. What broke on our side is never a score."""
    files.write(found, directory)
    verification = found.verification
    if found.totals.broken is not None and not verification.passed:
        raise InfraError(f"the model could not be reached: {found.totals.broken}")
    if verification.status == "error":
        raise InfraError(f"verification broke: {verification.error}")
    if verification.status != "scored":
        return Outcome(found.metrics(), "failed", f"{verification.status}: {verification.error}")
    if found.total_score is None and found.judged:
        raise InfraError(
            f"no judgement could be had: {next((vote.error for one in found.judged for vote in one.votes), '')}"
        )
    if found.total_score is None:
        raise UsageError(f"{found.task.directory}: {NOTHING_SCORES}")
    for name, problem in found.measured.problems.items():
        print(f"metric {name} is missing: {problem}", flush=True)
    return Outcome(found.metrics())
