"""What a run says about an agent that asks for more than it may, through the command line."""

from __future__ import annotations

import json

import pytest

from support.processes import Lab
from workloads.tasks.scripted import ScriptedModel, say
from workloads.tasks.small import MEND, write_task

pytestmark = [pytest.mark.apt, pytest.mark.slow]  # git and bubblewrap

GREEDY = """
import http.client, json, os, socket, urllib.request
from urllib.parse import urlsplit

here = urlsplit("{base_url}")

def ask(headers, **more):
    body = json.dumps(dict(model="m", messages=[dict(role="user", content="hi")], **more))
    connection = http.client.HTTPConnection(here.hostname, here.port, timeout=20)
    connection.request("POST", "/v1/chat/completions", body, headers)
    return connection.getresponse().status

key = {{"authorization": "Bearer {api_key}"}}
print("plain", ask(key))
print("header", ask({{**key, "x": "y" * 100_000}}))
print("tool", ask(key, tools=[{{"type": "web_search"}}]))
try:
    urllib.request.urlopen("http://evil.example/solution", timeout=20)
except Exception as error:
    print("host", error)
"""
FILE = """
name = "bench"
workload = "tasks"
tasks = [{ name = "sums", path = "tasks/sums" }]
[params]
agent = "greedy"
model = "here/m"
network = { agent = ["pypi.org"] }
[params.agents.greedy]
"""


def test_limits_denied_tools_and_refused_hosts_are_in_the_results_of_a_run(lab: Lab) -> None:
    write_task(lab.place / "tasks" / "sums")
    with ScriptedModel([say("ok")], side=None) as model:
        text = FILE + f"command = {json.dumps('python3 {home}/greedy.py; ' + MEND)}\n"
        text += f"files = {{ '{{home}}/greedy.py' = {json.dumps(GREEDY)} }}\n"
        text += f'[params.providers.here]\nbase_url = "{model.url}/v1"\n'
        lab.cli("run", lab.write("bench.toml", text), cwd=lab.place)
        assert len(model.requests) == 1
    (row,) = lab.rows("bench")
    directory = lab.directory("bench") / "runs" / str(row["run_id"])
    said = (directory / "logs/agent.txt").read_text()
    assert "plain 200" in said and "header 431" in said and "tool 400" in said and "host HTTP Error 403" in said
    assert (row["total_score"], row["limits_met"], row["denied"]) == (1.0, "header", "web_search")
    facts = json.loads((directory / "evaluation_results.json").read_text())
    refused = {"phase": "agent", "host": "evil.example", "port": 80, "why": "this host is not on the list"}
    assert facts["refused_hosts"] == [refused]
    assert json.loads((directory / "refused_hosts.jsonl").read_text()) == refused
    written = (directory / "scoring_results.md").read_text()
    assert "limits of the model gateway: header" in written and "may not use: web_search" in written


def test_a_file_sets_the_limits_of_the_gateway_and_of_the_log(lab: Lab) -> None:
    write_task(lab.place / "tasks" / "sums")
    with ScriptedModel([say("ok")] * 2, side=None) as model:
        text = FILE + f"command = {json.dumps('python3 {home}/greedy.py; ' + MEND + '; seq 20000')}\n"
        text += f"files = {{ '{{home}}/greedy.py' = {json.dumps(GREEDY)} }}\n"
        text += f'[params.providers.here]\nbase_url = "{model.url}/v1"\n'
        text += '[params.gateway_limits]\nheader = "200kB"\nlog = "20kB"\n'
        lab.cli("run", lab.write("bench.toml", text), cwd=lab.place)
    (row,) = lab.rows("bench")
    said = (lab.directory("bench") / "runs" / str(row["run_id"]) / "logs/agent.txt").read_text()
    assert "header 200" in said and "\n3000\n" in said and "\n20000\n" not in said
    assert (row["total_score"], row["limits_met"]) == (1.0, "log")


def test_a_wrong_host_in_a_list_is_reported_with_its_key(lab: Lab) -> None:
    write_task(lab.place / "tasks" / "sums")
    text = FILE.replace('["pypi.org"]', '["https://pypi.org/simple"]') + 'command = "true"\n'
    ended = lab.cli("validate", lab.write("bench.toml", text), cwd=lab.place, code=2)
    assert "network" in ended.stderr and "is not the name of a host" in ended.stderr
