"""What runs cost: budgets of an experiment, prices, and rates that all runs share. Through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bakeoff.workloads.tasks.proxy.shared import Rates
from support.processes import Lab, eventually
from workloads.tasks.proxied import wait_for_looks
from workloads.tasks.scripted import ScriptedModel, Turn, Use, say, shell
from workloads.tasks.small import MEND, write_task

pytestmark = [pytest.mark.apt, pytest.mark.slow]  # git and bubblewrap

FILE = """
name = "bench"
workload = "tasks"
jobs = 2
rollouts = {rollouts}
{top}
tasks = [{{ name = "sums", path = "tasks/sums" }}]
[params]
agent = "builtin"
model = "here/m"
[params.providers.here]
base_url = "{url}/v1"
{provider}
"""
PRICE = "prices.m = { input = 1000.0, output = 0.0 }"  # a thousand tokens are a dollar
TURNS = [shell(MEND, use=Use(input=1000, output=0)), say("Done.", use=Use(input=1000, output=0))]


def experiment(lab: Lab, model: ScriptedModel, top: str = "", provider: str = PRICE, rollouts: int = 6) -> Path:
    if not (lab.place / "tasks" / "sums").exists():
        write_task(lab.place / "tasks" / "sums")
    return lab.write("bench.toml", FILE.format(url=model.url, top=top, provider=provider, rollouts=rollouts))


def test_a_cost_budget_of_an_experiment_counts_what_tasks_report(lab: Lab) -> None:
    with ScriptedModel(TURNS) as model:
        file = experiment(lab, model, "budget.cost = 5.5")
        ended = lab.cli("run", file, cwd=lab.place, code=None)
        asked = len(model.requests)
    assert "budget of 5.5 cost used up" in ended.stderr + ended.stdout
    status = json.loads(lab.look("status", "bench", "--json").stdout)
    assert status["budget"]["cost"]["used"] == pytest.approx(asked)
    assert 3 <= asked <= 6  # before the next call, not after the next run; estimates may be too low


def test_a_token_budget_of_an_experiment_ends_calls_in_the_middle_of_a_run(lab: Lab) -> None:
    with ScriptedModel(TURNS) as model:
        file = experiment(lab, model, "budget.tokens = 3500", provider="")
        ended = lab.cli("run", file, cwd=lab.place, code=None)
        asked = len(model.requests)
    assert "budget of 3500 tokens used up" in ended.stderr + ended.stdout
    assert asked == 3
    hit = [row.get("budget_hit") for row in lab.rows("bench") if row["status"] == "succeeded"]
    assert "experiment" in hit


def test_a_cost_budget_on_a_model_without_a_price_is_refused_before_anything_is_paid(lab: Lab) -> None:
    with ScriptedModel(TURNS) as model:
        ended = lab.cli("run", experiment(lab, model, "budget.cost = 0.5", provider=""), cwd=lab.place, code=2)
        assert model.requests == []
    assert "budget.cost needs the price of here/m" in ended.stderr and "prices" in ended.stderr


def test_a_model_without_a_price_is_named_once_and_its_cost_stays_unknown(lab: Lab) -> None:
    with ScriptedModel(TURNS) as model:
        ended = lab.cli("run", experiment(lab, model, provider="", rollouts=2), cwd=lab.place)
    assert (ended.stderr + ended.stdout).count("the price of here/m is not known") == 1
    assert all(row.get("cost") is None for row in lab.rows("bench"))


def test_a_price_list_of_ones_own_replaces_the_one_that_ships(lab: Lab) -> None:
    lab.write("prices.toml", 'date = "2030-01-01"\n[here]\nm = { input = 2000.0, output = 0.0 }\n')
    with ScriptedModel(TURNS) as model:
        file = experiment(lab, model, "", provider="", rollouts=1)
        file.write_text(file.read_text().replace('agent = "builtin"', 'agent = "builtin"\nprices = "prices.toml"'))
        lab.cli("run", file, cwd=lab.place)
    (row,) = lab.rows("bench")
    assert row["cost"] == pytest.approx(4.0)


def test_requests_per_minute_are_shared_by_the_workers_of_a_scheduler(lab: Lab) -> None:
    with ScriptedModel(TURNS) as model:
        file = experiment(lab, model, provider="requests_per_minute = 5", rollouts=3)
        file.write_text(file.read_text().replace("jobs = 2", "jobs = 3"))
        rates = Rates.of(f"{model.url}/v1", None, 5, None)
        assert rates is not None
        process = lab.start("run", file, cwd=lab.place)
        try:
            eventually(lambda: len(model.requests) == 5, "the minute is full")
            wait_for_looks(rates.path, 3)
            assert len(model.requests) == 5
        finally:
            process.kill()
            process.wait()


def test_estimated_tokens_are_marked_sums_and_means_are_labelled_and_custom_metrics_are_shown(lab: Lab) -> None:
    turns = [shell(MEND, use=None), say("Done.", use=None)]
    with ScriptedModel(turns) as model:
        file = experiment(lab, model, 'analysis.metric = "total_score"', rollouts=2)
        script = lab.place / "tasks/sums/metrics/size.py"
        script.parent.mkdir()
        script.write_text("print('{\"files_touched\": 3.5}')\n")
        lab.cli("run", file, cwd=lab.place)
    assert all(row["tokens_estimated"] == row["tokens"] > 0 for row in lab.rows("bench"))
    (calls, *_) = lab.directory("bench").glob("runs/*/calls.jsonl")
    assert '"estimated":true' in calls.read_text()
    shown = lab.look("summarize", "bench").stdout
    assert "sum of tokens" in shown and "mean total_score" in shown
    assert "~" in shown and "default: 100 % of tokens" in " ".join(shown.split())
    assert any(line.split()[:1] == ["files_touched"] and "3.5" in line for line in shown.splitlines())
    facts = json.loads(lab.look("summarize", "bench", "--json").stdout)
    tally = facts["by_arm"][0]
    assert tally["estimated"]["tokens"] == tally["used"]["tokens"]
    assert facts["others"]["files_touched"]["default"] == {"value": 3.5, "n": 2, "self_reported": True}
    (row, *_) = lab.rows("bench")
    written = (lab.directory("bench") / "runs" / str(row["run_id"]) / "scoring_results.md").read_text()
    assert f"| ~{row['tokens']:.0f} | ~$" in written


HASTY = """
import json, os, socket, sys
from urllib.parse import urlsplit
url = urlsplit(sys.argv[1])
body = json.dumps({"model": "m", "stream": True, "max_tokens": 9000, "messages": [{"role": "user", "content": "hi"}]})
head = f"POST {url.path}/chat/completions HTTP/1.1\\r\\nhost: x\\r\\nauthorization: Bearer {sys.argv[2]}\\r\\n"
with socket.create_connection((url.hostname, url.port)) as client:
    client.sendall((head + f"content-length: {len(body)}\\r\\n\\r\\n" + body).encode())
    if sys.argv[3] == "hasty":
        client.recv(1)
    else:
        while b"[DONE]" not in client.recv(1 << 16):
            pass
"""


def test_an_agent_that_hangs_up_before_it_is_counted_is_charged_and_the_part_is_shown(lab: Lab) -> None:
    """The provider counts 5,000 tokens at the end of each answer, after the agent has left."""
    turns = [say("word " * 20, use=Use(input=1000, output=4000), pause_s=0.05)]
    lab.write("hasty.py", HASTY)
    agents = "".join(
        f'''
[params.agents.{name}]
wire = "chat"
command = "python3 {{programs}}/hasty/hasty.py {{base_url}} {{api_key}} {name}"
mounts = {{ hasty = "{lab.place}" }}
'''
        for name in ("patient", "hasty")
    )
    with ScriptedModel(turns, side=None) as model:
        price = "prices.m = { input = 1000.0, output = 1000.0 }" + agents + "[params.gateway_limits]\ndrain_s = 0.1\n"
        top = 'matrix.agent = ["patient", "hasty"]\nanalysis = { metric = "cost", direction = "minimize" }'
        file = experiment(lab, model, top, price, rollouts=3)
        file.write_text(file.read_text().replace('agent = "builtin"\n', ""))
        lab.cli("run", file, cwd=lab.place)
    rows = {row["arm"]: row for row in lab.rows("bench")}
    assert rows["patient"]["cost"] == 5.0 and rows["patient"].get("cost_estimated") is None
    assert rows["hasty"]["cost"] == rows["hasty"]["cost_estimated"] > 5.0  # what was reserved for its longest answer
    assert rows["hasty"]["output_tokens"] == 9000
    compared = lab.look("compare", "bench", code=None).stdout
    assert "a part of cost is estimated" in compared and "hasty 100 %" in compared
    assert json.loads(lab.look("compare", "bench", "--json", code=None).stdout)["estimated"] == {"cost": {"hasty": 1.0}}
    summary = " ".join(lab.look("summarize", "bench").stdout.split())
    assert "hasty: 100 % of tokens; hasty: 100 % of cost" in summary


def test_arms_whose_caches_saved_unequal_shares_are_shown_without_caches(lab: Lab) -> None:
    def turns(cached: int) -> list[Turn]:
        return [shell(MEND, use=Use(input=1000, output=1)), say("Done.", use=Use(input=1000, cached=cached, output=1))]

    with ScriptedModel(turns(0)) as cold, ScriptedModel(turns(800)) as warm:
        price = "prices.m = { input = 1000.0, cached = 100.0, output = 0.0 }"
        other = f'[params.providers.warm]\nbase_url = "{warm.url}/v1"\n{price}\n'
        top = 'matrix.model = ["here/m", "warm/m"]\nanalysis = { metric = "cost", direction = "minimize" }'
        file = experiment(lab, cold, top, f"{price}\n{other}", rollouts=2)
        file.write_text(file.read_text().replace('model = "here/m"\n', ""))
        lab.cli("run", file, cwd=lab.place)
    summary = " ".join(lab.look("summarize", "bench").stdout.split())
    assert "here/m 0 %, warm/m 40 %" in summary and "sum of cost without cache" in summary
    compared = " ".join(lab.look("compare", "bench", code=None).stdout.split())
    assert "caches of the provider saved unequal shares of cost" in compared and "warm/m 36 %, here/m 0 %" in compared
    plain = lab.look("compare", "bench", "--metric", "cost_uncached", code=None).stdout
    assert "caches of the provider" not in plain
