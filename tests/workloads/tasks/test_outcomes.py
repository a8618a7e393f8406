"""No agent chooses its own outcome: whatever it leaves, does or provokes, its try counts and is scored as it is."""

from __future__ import annotations

import json

import pytest

from support.processes import Lab
from support.reports import parts_of_runs
from workloads.tasks.scripted import Failure, ScriptedModel, say
from workloads.tasks.small import MEND, write_task
from workloads.tasks.tasked import HARBOR, harbor_task

pytestmark = [pytest.mark.apt, pytest.mark.slow]  # git and bubblewrap

ASK = """
import json, os, subprocess, urllib.request as u
body = json.dumps(dict(model="m", messages=[dict(role="user", content="Am I right?")])).encode()
answer = u.urlopen(u.Request("{base_url}/chat/completions", body, dict(authorization="Bearer {api_key}")))
right = json.load(answer)["choices"][0]["message"]["content"] == "right"
"""
"""The beginning of an agent that its model tells whether it is right this time."""
DO = f"subprocess.run({MEND!r}, shell=True)\n"
ODD_NAME = "open(b'odd' + bytes([34]), 'w').close()\n"
"""A name that ends with a quotation mark."""


def said(text: str) -> Failure:
    return Failure(200, {"choices": [{"message": {"role": "assistant", "content": text}}]})


def program(text: str) -> str:
    """A Python program as the command of an agent; braces are for `{base_url}` and `{api_key}` only."""
    return json.dumps(["python3", "-c", text])


def experiment(agents: dict[str, str], models: dict[str, str], *, rollouts: int = 1, more: str = "") -> str:
    """An experiment with one arm for each agent, whose model is that of the same name, or "m"."""
    arms = "".join(
        f'[[arms]]\nname = "{name}"\nparams = {{ agent = "{name}", model = "{name if name in models else "m"}/m" }}\n'
        for name in agents
    )
    tables = "".join(f"[params.agents.{name}]\ncommand = {command}\n" for name, command in agents.items())
    tables += "".join(f'[params.providers.{name}]\nbase_url = "{url}/v1"\n' for name, url in models.items())
    return (
        f'name = "outcomes"\nworkload = "tasks"\nrollouts = {rollouts}\nretries.backoff = 0.01\n'
        f'[analysis]\nmetric = "total_score"\nbounds = [0, 1]\n{arms}{tables}{more}'
    )


TASKS = '[[tasks]]\nname = "sums"\npath = "tasks/sums"\n'


def tries(lab: Lab) -> dict[str, list[str]]:
    """The statuses of all tries, by arm."""
    found: dict[str, list[str]] = {}
    for row in lab.rows("outcomes"):
        statuses = [attempt["status"] for attempt in lab.attempts(row["run_id"], "outcomes")]
        found.setdefault(f"{row['arm']} on {row['task']}", []).extend(statuses)
    return found


def test_an_agent_that_spoils_the_tries_that_it_got_wrong_is_not_better(lab: Lab) -> None:
    write_task(lab.place / "tasks" / "sums")
    coin = [said("right"), said("wrong")] * 40
    honest = ASK + f"if right:\n    {DO}"
    cheat = honest + f"else:\n    {ODD_NAME}"
    with ScriptedModel([], failures=coin) as one, ScriptedModel([], failures=coin) as other:
        agents = {"honest": program(honest), "cheat": program(cheat)}
        models = {"honest": one.url, "cheat": other.url}
        lab.cli("run", lab.write("x.toml", experiment(agents, models, rollouts=6, more=TASKS)), "-j2", cwd=lab.place)
    assert tries(lab) == {"honest on sums": ["succeeded"] * 6, "cheat on sums": ["succeeded"] * 6}
    assert sum(row["total_score"] for row in lab.rows("outcomes")) == 6
    compared = json.loads(lab.look("compare", "outcomes", "--json", code=None).stdout)
    assert "better" not in json.dumps(compared["comparisons"][0]["verdict"]).lower()


LEFT = (
    ODD_NAME,
    "os.mkdir(b'\\xff\\xfe\\n'); open(b'\\xff\\xfe\\n/\\xc3(.pyc', 'w').close(); open(b'x\\r\\n', 'w').close()\n",
    "os.mkfifo('pipe'); os.mkfifo('conftest.py')\n",
    "os.symlink('links', 'links'); os.symlink('/proc/self/root', 'all'); os.symlink('x' * 4000, b'\\xff')\n",
    "open('big', 'wb').truncate(1 << 40)\n",
    "open('.gitattributes', 'w').write('* filter=x working-tree-encoding=UTF-16 text\\n')\n",
    "open('.gitmodules', 'w').write('[submodule \\'x\\']\\n\\tpath = ../..\\n'); os.mkdir('.GIT')\n",
)
POST = """
import contextlib
for body, token in [(b"{{", "{api_key}"), (b"[]", "{api_key}"), (b"x", "wrong"), (b'{{"model": 5, "messages": "x"}}', "{api_key}")]:
    with contextlib.suppress(OSError):
        u.urlopen(u.Request("{base_url}/chat/completions", body, dict(authorization="Bearer " + token)))
"""
TRAPS = {
    "tree": "".join(LEFT),
    "requests": POST,
    "modes": "os.mkdir('shut'); open('shut/x', 'w').close(); os.chmod('shut', 0); os.chmod('.', 0)\n",
    "removed": "subprocess.run('rm -rf /app/repo', shell=True)\n",
    "file": "subprocess.run('rm -rf /app/repo; echo x > /app/repo', shell=True)\n",
    "linked": "subprocess.run('rm -rf /app/repo; ln -s /proc/self/root /app/repo', shell=True)\n",
    "deep": "for n in range(400): os.mkdir('d' * 200); os.chdir('d' * 200)\n",
    "killed": "os.kill(1, 9); os.kill(-1, 9)\n",
    "forks": "for n in range(6): os.fork()\nos._exit(0)\n",
    "files": "for n in range(600): open('n' + str(n), 'w').close()\n",
    "log": "print('x' * (64 << 20), flush=True)\n",
    "disk": "try:\n    with open('/tmp/x', 'wb') as f:\n        while True: f.write(bytes(1 << 20))\nexcept OSError: pass\n",
    "inodes": "try:\n    for n in range(6000): open('/tmp/' + str(n), 'w').close()\nexcept OSError: pass\n",
    "memory": "held = []\nwhile True: held.append(b'x' * (16 << 20))\n",
    "not-found": "os._exit(127)\n",
    "temporary": "os._exit(75)\n",
}


IN_THE_IMAGE = ("tree", "removed", "killed", "disk", "not-found")
"""Traps for a task whose tests run in the agent's own sandbox."""


@pytest.mark.parametrize("kind", ["repository", "image"])
def test_every_try_counts_whatever_an_agent_leaves(lab: Lab, kind: str) -> None:
    if kind == "repository":
        write_task(lab.place / "tasks" / "sums", environment={"memory_mb": 700, "storage_mb": 60})
    else:
        harbor_task(lab.place / "tasks" / "sums", toml=HARBOR.replace("[metadata]", "storage_mb = 60\n[metadata]"))
    with ScriptedModel([say("wrong")], side=None) as model:
        names = TRAPS if kind == "repository" else IN_THE_IMAGE
        agents = {name: program(ASK + f"if right:\n    {DO}" + TRAPS[name]) for name in names}
        file = lab.write("x.toml", experiment(agents, {"m": model.url}, more=TASKS))
        lab.cli("run", file, "-j2", cwd=lab.place, code=None)
    assert tries(lab) == {f"{name} on sums": ["succeeded"] for name in agents}
    again = json.loads(lab.cli("eval", "outcomes", "-j2", "--json", cwd=lab.place).stdout)
    assert [(row["before"], row["after"]) for row in again["results"]] == [(0.0, 0.0)] * len(agents)
    lab.look("report", "outcomes")
    assert len(parts_of_runs(lab.directory("outcomes") / "report")) == len(agents)
    lab.cli("export", "outcomes", "--format", "jsonl", cwd=lab.place)


def test_a_provider_that_fails_for_longer_than_the_patience_lasts_fails_the_run_whatever_its_score(lab: Lab) -> None:
    """Without looking at the score: an agent that is right keeps nothing, and one that is wrong gets no other try."""
    write_task(lab.place / "tasks" / "sums")
    flaky = [Failure(500)] * 40
    with ScriptedModel([say("right")], failures=flaky, side=None) as model:
        agents = {"right": program(f"import subprocess\n{DO}" + ASK), "wrong": program(ASK)}
        file = experiment(agents, {"m": model.url}).replace("[analysis]", "params.provider_patience = 1.5\n[analysis]")
        lab.cli("run", lab.write("x.toml", file + TASKS), "-j1", cwd=lab.place, code=None)
    assert tries(lab) == {"right on sums": ["failed"], "wrong on sums": ["failed"]}
    rows = {row["arm"]: row for row in lab.rows("outcomes")}
    assert {row["failure"] for row in rows.values()} == {"provider"}
    assert rows["right"]["error"].startswith("provider: 500") and rows["right"]["total_score"] == 1.0


@pytest.mark.parametrize(
    ("rest", "outcome"),
    [(f"if right:\n    {DO}", ("ok", 1.0)), (f"import time; time.sleep(60)\n{DO}", ("timeout", 0.0))],
    ids=["an agent that waits for its model", "an agent that sleeps"],
)
def test_waiting_for_a_provider_is_not_the_agents_time(lab: Lab, rest: str, outcome: tuple[str, float]) -> None:
    write_task(lab.place / "tasks" / "sums")
    with ScriptedModel([say("right")], failures=[Failure(529, headers={"retry-after": "6"})], side=None) as model:
        file = experiment({"asks": program(ASK + rest)}, {"m": model.url})
        file = file.replace("[analysis]", "params.timeout = 5\n[analysis]")
        lab.cli("run", lab.write("x.toml", file + TASKS), "-j1", cwd=lab.place)
    [row] = lab.rows("outcomes")
    assert (row["agent_status"], row["total_score"]) == outcome and row["seconds"] > 6
