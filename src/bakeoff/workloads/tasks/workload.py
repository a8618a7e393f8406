"""The `tasks` workload: an agent works on a task in a sandbox, and what it leaves is verified and scored."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.sandbox.base import (
    RUNTIMES,
    UNSANDBOXED,
    BoxSpec,
    Sandbox,
    choose,
    choose_for_workers,
    refuse_runtime,
)
from bakeoff.sandbox.cache import remove_abandoned, scratch
from bakeoff.spec.workload import Outcome, RunContext
from bakeoff.workloads.tasks.agents.base import TaskAgent
from bakeoff.workloads.tasks.agents.registry import AgentEntry
from bakeoff.workloads.tasks.agents.registry import agent as find_agent
from bakeoff.workloads.tasks.attempt import TaskAttempt, Worker, attempt
from bakeoff.workloads.tasks.check import missing_reference
from bakeoff.workloads.tasks.environment import check_variables, network_withheld, refused, replaces_image
from bakeoff.workloads.tasks.evaluation import (
    NOTHING_SCORES,
    Evaluation,
    Failure,
    evaluate,
    is_isolated,
    keep,
    settle,
    spent,
)
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.model import Task
from bakeoff.workloads.tasks.network import REFUSED, HostLists, granted, hosts_of, opened
from bakeoff.workloads.tasks.proxy.providers import PROVIDER_PATIENCE, Budget, Provider, Providers, needs_price
from bakeoff.workloads.tasks.proxy.records import Totals, add_up, read_calls
from bakeoff.workloads.tasks.proxy.server import GatewayLimits, ModelProxy
from bakeoff.workloads.tasks.proxy.shared import ExperimentBudget
from bakeoff.workloads.tasks.schema import HostPath, ModelEndpoint, Variables
from bakeoff.workloads.tasks.scoring import JudgeSettings, judge_key
from bakeoff.workloads.tasks.verify import installed

TIMEOUT_VARIABLE, TOKENS_VARIABLE = "TIMEOUT_SEC", "TOKEN_LIMIT"
"""Variables by which a benchmark file limits its runs. They are set in the sandbox like all others."""
CALLS = "calls.jsonl"
NO_NETWORK = (
    "tasks here ask for a network and their sandboxes have none: "
    "`params.network = true` grants it (`network = true` in a benchmark file)"
)

SCORED_BY_THE_WORK = (
    "scores of tasks here are self-reported: tests share a sandbox with the work, which could write its own score "
    "(docs/tasks.md); `require_isolation = true` refuses such tasks"
)


class SandboxSettings(BaseModel):
    """How the sandboxes of agents and tests are made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runtime: str | None = Field(
        default=None, description="OCI runtime of docker's and podman's containers, such as gVisor's runsc."
    )


class TasksParams(BaseModel):
    """The parameters of one rollout."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    settings: ClassVar[frozenset[str]] = frozenset(
        {
            "path",
            "agents",
            "providers",
            "provider_patience",
            "gateway_limits",
            "prices",
            "judge",
            "metrics",
            "require_isolation",
            "sandbox",
        }
    )

    path: str = Field(
        validation_alias=AliasChoices("path", "prepared_dir"), min_length=1,
        description="The task's directory; the `path` of an entry in `tasks` sets it.",
    )  # fmt: skip
    agent: str = Field("codex", min_length=1, description="The agent: built in, one of `agents`, or module:Class.")
    model: str = Field("", description="The model that it uses, by its name in `providers`.")
    effort: str | None = Field(None, description="Reasoning effort, for agents and models that support it.")
    max_turns: int | None = Field(None, ge=1, description="Most model calls, for agents that count them.")
    overrides: str | None = Field(None, description="An overrides file instead of the task's own overrides.json.")
    apply_overrides: bool = Field(True, description="False ignores overrides.")
    environment_variables: Variables = Field({}, description="Variables in the sandbox.")
    network: bool | HostLists = Field(
        False, description="True gives sandboxes the network that the task asks for; a table lists hosts by phase."
    )
    host_paths: list[HostPath] = Field(
        [], description="/usr/local, /usr/src: what of them sandboxes with this machine's programs see, read-only."
    )
    timeout: float | None = Field(
        None, gt=0, description="Seconds for the agent; else TIMEOUT_SEC, else the task's own limit."
    )
    token_budget: int | None = Field(None, ge=1, description="Most tokens of a rollout; else TOKEN_LIMIT.")
    cost_budget: float | None = Field(None, gt=0, description="Most dollars of a rollout.")
    call_budget: int | None = Field(None, ge=1, description="Most model calls of a rollout.")
    agents: dict[str, AgentEntry] = Field({}, description="Custom agents, by name.")
    providers: dict[str, Provider] = Field({}, description="Endpoints and the models that they serve.")
    provider_patience: float = Field(
        PROVIDER_PATIENCE, ge=0, description="Seconds for which a call is repeated while its provider fails."
    )
    gateway_limits: GatewayLimits = Field(
        GatewayLimits(), description="What the agent's requests and its log may take of this machine."
    )
    prices: str | None = Field(None, description="A price list in place of the one that ships.")
    allow_provider_tools: list[str] = Field(
        [], description="Tools and services of the provider that the agent may use, such as `web_search`."
    )
    share_provider_cache: bool = Field(
        True,
        description="Whether a provider may answer from what other runs have sent; false: prompts begin differently.",
    )
    judge: JudgeSettings | None = Field(None, description="A model that judges rubrics.")
    metrics: list[str] = Field([], description="Custom metrics: module:function, or a script.")
    sandbox: SandboxSettings = Field(SandboxSettings(), description="How sandboxes are made.")
    require_isolation: bool = Field(
        False, description="Refuse tasks whose tests share a sandbox with the work, which could write its own score."
    )

    @field_validator("environment_variables")
    @classmethod
    def _limits_are_numbers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, kind in ((TIMEOUT_VARIABLE, float), (TOKENS_VARIABLE, int)):
            try:
                valid = name not in value or kind(value[name]) > 0
            except ValueError:
                valid = False
            if not valid:
                raise ValueError(f"the limit {name} must be a number above 0, not {value[name]!r}")
        return value

    def seconds(self) -> float | None:
        """Time limit of the agent in each step; None if only the step itself sets one."""
        value = self.environment_variables.get(TIMEOUT_VARIABLE)
        return self.timeout or (float(value) if value else None)

    def tokens(self) -> int | None:
        """Most tokens of a rollout; None for no limit."""
        value = self.environment_variables.get(TOKENS_VARIABLE)
        return self.token_budget or (int(value) if value else None)


class TasksWorkload:
    """The plug-in that `bakeoff.workloads` names. One instance serves all rollouts of a worker process."""

    kind: ClassVar[str] = "tasks"
    revision: ClassVar[str] = "1"
    cost_metric: ClassVar[str] = "cost"
    log: ClassVar[str] = "logs/agent*.txt"
    Params: ClassVar[type[BaseModel]] = TasksParams
    directions: ClassVar[Mapping[str, Literal["maximize", "minimize"]]] = dict.fromkeys(
        ("seconds", "verify_seconds", "cost", "tokens", "input_tokens", "output_tokens", "model_calls", "tool_calls", "diff_lines", "tampered", "honeypots_hit"), "minimize",
    )  # fmt: skip
    analysis: ClassVar[Mapping[str, Any]] = {"metric": "total_score", "direction": "maximize", "failure_score": 0.0}

    def configure(self, options: Mapping[str, str], accept: Callable[[str], None]) -> None:
        """Take `--sandbox` of `bakeoff run`."""
        risk = "without a sandbox agents run as you, with your files and keys"
        choose_for_workers(options.get("sandbox"), accept, risk)

    def check(self, params: TasksParams, base: Path) -> list[str]:
        """Check that sandbox, task, agent, key and price are there before anything starts; returns notes on the task.

        Raises UsageError that names the fix.
        """
        sandbox, unpriced = chosen(), ""
        task = task_of(params, base)
        check_variables(task)
        for environment in (task.environment, *(step.verifier.environment for step in task.steps)):
            if environment is not None and (reason := refused(environment)):
                raise UsageError(f"{task.directory}: {reason}")
        if sandbox.name not in RUNTIMES:
            refuse_runtime(BoxSpec(runtime=params.sandbox.runtime), sandbox.name)
        if params.require_isolation:
            check_isolation(task, sandbox)
        if task.scripts:
            installed()
        agent = find_agent(params.agent, params.agents, base)
        if agent.needs_solution and (missing := missing_reference(task)):
            raise UsageError(f"{task.directory}: there is no reference for {agent.name} to apply\n  fix: add {missing}")
        assert agent.version  # raises UsageError if the agent is not installed
        # Everything that would cost money to find out later: endpoint, wire format, key and price.
        if agent.wire is not None:
            providers, model = _routed(params, task, agent, base)
            route = providers.route(model)
            route.key(providers.environment)
            Budget(cost=params.cost_budget).check(route)
            if route.price is None:
                unpriced = f"the price of {route.label} is not known, so its runs may report no cost"
        if params.judge is not None:
            judge_key(params.judge)
        elif not task.scored_by_tests:
            raise UsageError(f"{task.directory}: {NOTHING_SCORES}")
        notes = [unpriced] if unpriced else []
        notes += [f"{task.id}: {note}" for note in (*task.notes, replaces_image(task.environment, sandbox)) if note]
        notes += [SCORED_BY_THE_WORK] * (task.scored_by_tests and not is_isolated(task, sandbox.name))
        return notes + [NO_NETWORK] * network_withheld(task)

    def check_price(self, params: TasksParams, base: Path) -> None:
        """Raise UsageError for a model without a price: nobody could tell what a run cost."""
        agent = find_agent(params.agent, params.agents, base)
        if agent.wire is not None:
            providers, model = _routed(params, task_of(params, base), agent, base)
            route = providers.route(model)
            if route.price is None:
                raise UsageError(f"budget.cost {needs_price(route)}")

    def run(self, params: TasksParams, ctx: RunContext) -> Outcome:
        """One rollout. No agent's code runs in this process.

        What goes wrong before the agent's command runs is an InfraError. What goes wrong after is a failed run, because
        an agent could have caused it.
        """
        worker: Worker | None = None
        try:
            with ExitStack() as stack:
                task, sandbox, worker = self._prepare(params, ctx, stack)
                outcome = self._rollout(params, ctx, task, sandbox, worker)
            return outcome
        except Exception as error:
            text = str(error)
            if not isinstance(error, BakeoffError | OSError):  # a bug of ours
                traceback.print_exc()
                text = f"{type(error).__name__}: {error}"
            if worker is None or not worker.phase:
                raise InfraError(text) from error
            try:
                totals = add_up(read_calls(ctx.directory / CALLS))
            except (ValueError, OSError):  # the record itself is what broke
                totals = Totals()
            # What it spent is charged and shown all the same.
            used = {**spent(totals), "model_calls": totals.calls} if totals.calls or totals.tokens else {}
            return Failure(worker.phase, text).outcome({k: value for k, value in used.items() if value is not None})

    def _prepare(self, params: TasksParams, ctx: RunContext, stack: ExitStack) -> tuple[Task, Sandbox, Worker]:
        """The task, its sandbox, and the agent behind a model proxy of its own, which `stack` closes."""
        task = task_of(params, ctx.base)
        sandbox = chosen()
        remove_abandoned()
        agent = find_agent(params.agent, params.agents, ctx.base)
        worker = Worker(
            agent,
            logs=ctx.directory / "logs",
            seconds=params.seconds(),
            effort=params.effort,
            max_turns=params.max_turns,
            log_bytes=params.gateway_limits.log,
        )
        task, worker.egress = stack.enter_context(opened(task, sandbox, ctx.directory / REFUSED))
        worker.hosts = partial(hosts_of, task)
        if agent.wire is not None:
            # Unix sockets have paths of at most 107 bytes (unix(7)), so it is not in the run's directory.
            worker.socket = stack.enter_context(scratch("proxy")) / "model.sock"
            if sandbox.name == "none":  # all runs, and everything else, share this machine's ports
                with socket.create_server(("127.0.0.1", 0)) as listener:
                    worker.port = listener.getsockname()[1]
            # The proxy enforces the run's budgets and records its calls.
            providers, model = _routed(params, task, agent, ctx.base)
            proxy = stack.enter_context(ModelProxy(socket=worker.socket, limits=params.gateway_limits))
            budget = Budget(params.tokens(), params.cost_budget, params.call_budget, ctx.deadline)
            together = ExperimentBudget.read(ctx.path.parents[1], self.cost_metric)
            if together is not None and together.used_up:
                raise InfraError("the experiment's budget is used up")
            record = ctx.directory / CALLS
            record.unlink(missing_ok=True)  # from an earlier attempt
            worker.proxied = stack.enter_context(
                proxy.open(
                    providers,
                    model,
                    record=record,
                    budget=budget,
                    patience=params.provider_patience,
                    allowed=params.allow_provider_tools,
                    together=together,
                    share_cache=params.share_provider_cache,
                )
            )
        return task, sandbox, worker

    def _rollout(self, params: TasksParams, ctx: RunContext, task: Task, sandbox: Sandbox, worker: Worker) -> Outcome:
        """Let the agent work, verify and score what it left, and record the conversation."""
        agent, proxied = worker.agent, worker.proxied
        facts: dict[str, Any] = {
            "run_id": ctx.run_id, "agent": agent.name, "agent_version": agent.version, "model": params.model,
            "sandbox": sandbox.name, "seed": ctx.seed, "rollout": ctx.rollout, "task_digest": task.digest,
        }  # fmt: skip
        if worker.egress is not None:
            facts["refused_hosts"] = worker.egress.refused  # the list grows as the run goes on

        def store(work: TaskAttempt) -> None:
            totals = proxied.totals() if proxied is not None else Totals()
            keep(Evaluation(task, facts, work, totals), ctx.directory)

        result = attempt(task, worker, sandbox, store)
        worker.phase = "record"
        # Closed before it is read: a call that is still open would change the totals.
        totals = proxied.close() if proxied is not None else Totals()
        for step in proxied.steps(agent.name) if proxied is not None else ():
            ctx.trajectory(msgspec.structs.replace(step, info={**step.info, "agent_version": agent.version}))
        worker.phase = "judge"
        evaluation = evaluate(
            task,
            facts,
            result,
            totals,
            sandbox,
            judge_settings=params.judge,
            metrics=params.metrics,
            providers=params.providers,
        )
        worker.phase = "record"
        return settle(evaluation, ctx.directory)


def task_of(params: TasksParams, base: Path) -> Task:
    """The task of a run with its overrides and variables; paths start at `base`, the experiment file's directory."""
    file = base / params.overrides if params.overrides else None
    task = load_task(base / params.path, overrides_file=file, apply_overrides=params.apply_overrides)
    task = replace(granted(task, params.network), host_paths=tuple(params.host_paths), runtime=params.sandbox.runtime)
    return task.with_env(params.environment_variables) if params.environment_variables else task


def check_isolation(task: Task, sandbox: Sandbox) -> None:
    """Raise UsageError, with the fix, for a task whose score could be written by the work."""
    if not task.scored_by_tests or is_isolated(task, sandbox.name):
        return
    if task.isolated:
        raise UsageError(
            f"{task.directory}: require_isolation is set, and without a sandbox the work can reach the tests that score "
            "it\n  fix: --sandbox bubblewrap, docker or podman"
        )
    place = {
        "prepared": '"verifier": {"isolation": "launcher"} in tb_meta.json',
        "harbor": 'isolation = "launcher" below [verifier] in task.toml',
        "terminal-bench": 'make a Harbor task of it with isolation = "launcher" below [verifier] in task.toml',
    }[task.format]
    raise UsageError(
        f"{task.directory}: require_isolation is set, and the tests of {task.id} share a sandbox with the work, which "
        f"could write its own score\n  fix: {place}, and tests that call the work through it (docs/tasks.md, A launcher "
        "for the work); or leave the task out"
    )


def chosen() -> Sandbox:
    """The sandbox that `configure` or the user's environment selected. UsageError if it does not work here."""
    return available(choose(accepted=bool(os.environ.get(UNSANDBOXED))))


def available(sandbox: Sandbox) -> Sandbox:
    """`sandbox` itself. UsageError with the reason if it does not work on this machine."""
    reason = sandbox.missing()
    if reason is not None:
        raise UsageError(f"sandbox {sandbox.name} cannot be used here: {reason}")
    return sandbox


def _routed(params: TasksParams, task: Task, agent: TaskAgent, base: Path) -> tuple[Providers, str]:
    """The providers and the name of the model that the agent calls.

    If the task's overrides name an endpoint, that one serves every model. Raises UsageError if no model is named, no
    provider serves it, or the provider does not speak the agent's API.
    """
    assert agent.wire is not None
    endpoint = task.model or ModelEndpoint()
    model = endpoint.model or params.model
    if not model:
        raise UsageError(f"agent {agent.name} calls a model and none is named\n  fix: set params.model")
    providers = Providers.read(params.providers, prices=base / params.prices if params.prices else None)
    if endpoint.base_url is not None:
        providers = providers.with_endpoint(endpoint.base_url, endpoint.api_key)
    providers.route(model).check(agent.wire, f"agent {agent.name}")
    return providers, model
