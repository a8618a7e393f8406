"""The agents that people use, as published, at work in boxes without network against a model that follows a script."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from support.containers import started
from support.processes import Lab
from workloads.tasks.clients import AGENTS
from workloads.tasks.scripted import ScriptedModel, Turn, Use, say, shell
from workloads.tasks.small import MEND, write_task

EXPERIMENT = """
name = "clients"
workload = "tasks"
matrix.agent = ["codex", "claude", "mini"]
params.model = "m"
params.timeout = 150
[params.providers.here]
base_url = "{url}/v1"
env_key = "HERE_KEY"
models = {{ m = "real-m" }}
prices.real-m = {{ input = 1.0, cached = 0.5, output = 4.0 }}
[analysis]
metric = "total_score"
bounds = [0, 1]
[[tasks]]
name = "sums"
path = "tasks/sums"
"""
REACH = "python3 -c \"import socket; socket.create_connection(('{host}', {port}), 3)\" && echo REACHED || echo ALONE"
APIS = {"codex": "/v1/responses", "claude": "/v1/messages", "mini": "/v1/chat/completions"}
SIDE = Use(input=7, output=1)
"""What a client's question beside the work takes, such as one for a title."""


pytestmark = [pytest.mark.apt, pytest.mark.npm, pytest.mark.slow]


@pytest.fixture(params=["bubblewrap", pytest.param("docker", marks=[pytest.mark.root, pytest.mark.daemon])])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "bubblewrap":
        yield "bubblewrap"
        return
    if os.geteuid() != 0:
        pytest.skip("starting a container service needs root")
    with started("docker"):
        yield "docker"


def test_real_clients_solve_a_task_without_network_and_all_they_said_and_took_is_on_record(
    lab: Lab, backend: str
) -> None:
    write_task(lab.place / "tasks" / "sums")
    lab.environment |= {"HERE_KEY": "the-real-key", "BAKEOFF_AGENTS": str(AGENTS)}
    with ScriptedModel([], side=Turn(text="A title", use=SIDE)) as model:
        model.turns = script(model.url, say("Done. It adds now.", use=Use(300, 250, 30)))
        submit = shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", use=Use(300, 250, 30))
        model.scripts = {"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT": script(model.url, submit)}
        file = lab.write("clients.toml", EXPERIMENT.format(url=model.url))
        lab.cli("run", file, "-j2", "--sandbox", backend, cwd=lab.place)
        asked = {agent: [request for request in model.requests if request.path == APIS[agent]] for agent in APIS}
    rows = {row["arm"]: row for row in lab.rows("clients")}
    lab.cli("export", "clients", "--format", "atif", "-o", lab.place / "out", cwd=lab.place)
    exported = {made["agent"]["name"]: made for made in trajectories(lab)}
    for agent in APIS:
        row, requests = rows[agent], asked[agent]
        assert (row["total_score"], row["agent_status"]) == (1.0, "ok"), agent
        beside = len(requests) - 3
        assert (row["model_calls"], row["input_tokens"], row["output_tokens"]) == (
            len(requests),
            600 + SIDE.input * beside,
            60 + SIDE.output * beside,
        ), agent
        cached = 0.5 * (150 + 250)
        assert row["cost"] == pytest.approx((row["input_tokens"] - cached + 4 * row["output_tokens"]) / 1e6)
        assert {request.body["model"] for request in requests} == {"real-m"}
        said = json.dumps(exported[agent]["steps"])
        words = ("Mend it.", "Let me look.", "cat sums.py", "return a - b", "printf", "return a + b")
        places = [said.find(word) for word in words]
        assert -1 not in places and places == sorted(places), (agent, places)
        assert "ALONE" in said, agent
        assert "REACHED" not in said.replace("echo REACHED", ""), agent
    kept = b"".join(path.read_bytes() for path in lab.directory("clients").rglob("*") if path.is_file())
    assert b"the-real-key" not in kept


def script(url: str, last: Turn) -> list[Turn]:
    """Look, try to reach the model's server past the proxy, mend, end."""
    host, _, port = url.removeprefix("http://").partition(":")
    look = shell("cat sums.py; " + REACH.format(host=host, port=port), text="Let me look.", use=Use(100, 0, 10))
    return [look, shell(MEND + "; cat sums.py", use=Use(200, 150, 20)), last]


def trajectories(lab: Lab) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in (lab.place / "out").rglob("trajectory.json")]
