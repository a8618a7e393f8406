"""Which hosts a phase of a rollout may reach, and the proxy that holds it to them.

A sandbox has a direct network only if the user grants one and every phase in it asks for all hosts. Everything else
that is granted goes through one filtering proxy (`proxy/egress.py`), whose list changes with the phase.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, field_validator

from bakeoff.sandbox.base import Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.environment import EGRESS_PORT, networked
from bakeoff.workloads.tasks.model import Environment, HostPhase, Network, Step, Task
from bakeoff.workloads.tasks.proxy.egress import Egress, checked_hosts

REFUSED = "refused_hosts.jsonl"
"""The file of a run with the hosts that were asked for and refused."""


class HostLists(BaseModel):
    """`network = { build = [...], agent = [...], verify = [...] }`: the hosts of each phase. None: no network."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    build: tuple[str, ...] | None = None
    agent: tuple[str, ...] = ()
    verify: tuple[str, ...] = ()

    @field_validator("build", "agent", "verify")
    @classmethod
    def _names(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if value is None else checked_hosts(value)


def granted(task: Task, network: bool | HostLists) -> Task:
    """The task with what the user grants: nothing, what the task asks for, or lists of hosts."""
    if not isinstance(network, HostLists):
        return task.with_network() if network else task

    def built(environment: Environment) -> Environment:
        return replace(environment, build_hosts=network.build)

    steps = tuple(
        replace(step, verifier=replace(step.verifier, environment=built(step.verifier.environment)))
        if step.verifier.environment is not None
        else step
        for step in task.steps
    )
    hosts: dict[HostPhase, tuple[str, ...]] = {"agent": network.agent, "verify": network.verify}
    return replace(task, environment=built(task.environment), steps=steps, hosts=hosts)


def hosts_of(task: Task, phase: HostPhase, step: Step | None = None) -> tuple[str, ...]:
    """The hosts that the agent, or the tests, of a step may reach through the proxy."""
    step = step or task.first
    where: Environment = task.environment
    if phase == "verify" and step.verifier.environment is not None:
        where = step.verifier.environment
    own = step.agent.network if phase == "agent" else step.verifier.network
    network: Network = own or where.network
    if network.mode == "no-network" or not (task.network_granted or task.hosts is not None):
        return ()
    if task.hosts is not None:
        return task.hosts.get(phase, ())
    return ("*",) if network.mode == "public" else network.allowed_hosts


@contextmanager
def opened(task: Task, sandbox: Sandbox, record: Path | None = None) -> Iterator[tuple[Task, Egress | None]]:
    """The task with a way out for its sandboxes, if it may reach some hosts and has no direct network."""
    phases: tuple[HostPhase, ...] = ("agent", "verify")
    if networked(task, task.environment) or not any(
        hosts_of(task, phase, step) for phase in phases for step in task.steps
    ):
        yield task, None
        return
    port = EGRESS_PORT
    if sandbox.name == "none":  # all runs, and everything else, share this machine's ports
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
    with scratch("egress") as here, Egress(here / "egress.sock", record) as egress:
        egress.enter("verify", hosts_of(task, "verify"))
        yield replace(task, egress=(port, egress.path)), egress
