"""The real clients through the proxy: they do what the model says, and every call is recorded.

`scripts/install-agents.sh` installs them; `make test` calls it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bakeoff.workloads.tasks.agents.registry import agent
from bakeoff.workloads.tasks.proxy.providers import Budget
from workloads.tasks.clients import AGENTS, Bench
from workloads.tasks.proxied import KEY, lab
from workloads.tasks.scripted import Request, Turn, Use, say, shell

pytestmark = [pytest.mark.npm, pytest.mark.slow]

INSTRUCTION = "Fix the greeting in greeting.txt: it must say hello."
pytestmark = pytest.mark.npm
EDIT = "sed -i s/helo/hello/ greeting.txt"
CLIENTS = ["builtin", "opencode"]
"""The others solve a task in sandboxes, in test_clients_in_boxes.py."""


SCRIPT: list[Turn] = [
    shell("cat greeting.txt", text="I look first.", use=Use(1000, 0, 20)),
    shell(EDIT, use=Use(1100, 900, 30)),
    say("The greeting is right now.", use=Use(1200, 1000, 40)),
]


def web_tools(requests: list[Request]) -> list[str]:
    """Tools with which a model could look outside its sandbox: no client starts with one."""
    tools = [tool for request in requests for tool in request.body.get("tools", [])]
    names = [str(tool.get("name") or tool.get("function", {}).get("name") or tool["type"]) for tool in tools]
    return [name for name in names if "web" in name.lower()]


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert AGENTS.is_dir(), "the agent clients are not installed; run scripts/install-agents.sh"
    monkeypatch.setenv("BAKEOFF_AGENTS", str(AGENTS))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_makes_the_edit_and_its_calls_are_recorded(client: str, tmp_path: Path) -> None:
    bench, chosen = Bench(tmp_path), agent(client)
    bench.install(chosen)
    (bench.workdir / "greeting.txt").write_text("helo\n")
    with lab(tmp_path, SCRIPT, side=say("A title")) as here:
        told = bench.assignment(INSTRUCTION, model=here.run.model, url=here.proxy.url, token=here.run.token)
        ended = bench.call(chosen.invocation(told))
        totals, steps = here.run.close(), here.run.steps()
        asked = here.model.requests

    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    assert (bench.workdir / "greeting.txt").read_text() == "hello\n"
    assert (totals.calls, totals.input_tokens, totals.cached_tokens, totals.output_tokens) == (3, 3300, 1900, 90)
    assert totals.cost == pytest.approx((1400 * 1.0 + 1900 * 0.1 + 90 * 2.0) / 1e6)
    assert {call.wire for call in here.calls()} == {chosen.wire}
    assert web_tools(asked) == [] and totals.denied == ()

    main = [step for step in steps if step.agent == "main"]
    assert len(main) == len(steps) == 3
    assert INSTRUCTION in json.dumps(main[0].messages)
    commands = [next(iter(set(call["arguments"].values()) & {"cat greeting.txt", EDIT}))
                for step in main for call in step.tool_calls]  # fmt: skip
    assert commands == ["cat greeting.txt", EDIT]
    results = [message for step in main for message in step.messages if message["role"] == "tool"]
    assert len(results) == 2 and "helo" in results[0]["content"]
    assert main[0].messages[-1]["content"] == "I look first."

    seen = ended.stdout + ended.stderr + b"".join(file.read_bytes() for file in bench.home.rglob("*") if file.is_file())
    assert KEY.encode() not in seen + here.run.record.read_bytes()
    assert all(KEY in str(request.headers) for request in asked)


@pytest.mark.parametrize("client", ["builtin", "codex", "claude"])
def test_a_client_whose_budget_is_used_up_stops(client: str, tmp_path: Path) -> None:
    bench, chosen = Bench(tmp_path), agent(client)
    bench.install(chosen)
    (bench.workdir / "greeting.txt").write_text("helo\n")
    with lab(tmp_path, SCRIPT, budget=Budget(calls=1), side=say("A title")) as here:
        told = bench.assignment(INSTRUCTION, model=here.run.model, url=here.proxy.url, token=here.run.token)
        ended = bench.call(chosen.invocation(told))
        totals = here.run.close()
    assert ended.returncode != 0
    assert (totals.calls, totals.limit, totals.broken) == (1, "calls", None)
    assert web_tools(here.model.requests) == [] and totals.denied == ()
    assert (bench.workdir / "greeting.txt").read_text() == "helo\n"


@pytest.mark.parametrize(
    ("client", "version"), [("codex", "0.166.0"), ("claude", "2.1.325"), ("opencode", "1.18.33"), ("mini", "2.4.6")]
)
def test_versions_are_known_without_starting_anything(client: str, version: str) -> None:
    assert agent(client).version == version


@pytest.mark.parametrize("client", ["codex", "claude", "opencode", "mini"])
def test_nothing_of_the_users_home_goes_into_the_box(client: str) -> None:
    mounts = agent(client).install()
    assert mounts and not any(mount.writable for mount in mounts)
    assert all(mount.source.is_relative_to(AGENTS.resolve()) for mount in mounts)
    assert all(mount.target.startswith("/opt/bakeoff/") for mount in mounts)
