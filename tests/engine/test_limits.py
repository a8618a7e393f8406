"""Limits on concurrency, budgets, and the choice of runs."""

from __future__ import annotations

import sys
from collections import deque
from types import FrameType

import pytest

import bakeoff
from bakeoff.engine.queue import Queue
from bakeoff.engine.session import Options, open_session
from bakeoff.records.run import Attempt
from bakeoff.spec.load import load_plan
from support.processes import Lab

SPANS = """
import time
def run(ctx, model):
    began = time.time()
    time.sleep(0.03)
    return {"began": began, "over": time.time()}
"""


def _most_at_once(spans: list[tuple[float, float]]) -> int:
    moments = sorted([(began, 1) for began, _ in spans] + [(over, -1) for _, over in spans])
    most = now = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["python", "command"])
def test_concurrency_limits_hold_and_starve_nobody(lab: Lab, kind: str) -> None:
    text = """
jobs = 4
seeds = 12
concurrency = [{ by = "model", values = ["large"], limit = 1 }]
[matrix]
model = ["large", "small"]
"""
    if kind == "python":
        lab.experiment('workload = "python"\nparams = { function = "spans:run" }' + text, spans=SPANS)
    else:
        command = """date +'{{"began": %s.%N}}' > {dir}/metrics.json; sleep 0.05; date +'{{"over": %s.%N}}'"""
        lab.experiment(f"params = {{ command = '''mkdir -p {{dir}}; {command}''' }}" + text)
    lab.run()
    rows = lab.rows()
    assert {row["status"] for row in rows} == {"succeeded"}
    spans = {
        model: [(row["began"], row["over"]) for row in rows if row["model"] == model] for model in ("large", "small")
    }
    assert _most_at_once(spans["large"]) == 1
    assert _most_at_once([*spans["large"], *spans["small"]]) <= 4
    assert max(over for _, over in spans["small"]) < max(over for _, over in spans["large"]), "small ones go past"


@pytest.mark.slow
def test_a_limit_for_each_value_of_a_parameter(lab: Lab) -> None:
    lab.experiment(
        """
workload = "python"
jobs = 4
seeds = 5
params = { function = "spans:run" }
concurrency = [{ by = "arm", limit = 1 }, { by = "task", limit = 3 }]
[matrix]
model = ["a", "b", "c", "d"]
""",
        spans=SPANS,
    )
    lab.run()
    rows = lab.rows()
    for arm in "abcd":
        assert _most_at_once([(row["began"], row["over"]) for row in rows if row["arm"] == arm]) == 1
    assert _most_at_once([(row["began"], row["over"]) for row in rows]) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 3])
def test_jobs_is_how_many_run_at_once(lab: Lab, jobs: int) -> None:
    code = """
import time
def run(ctx, together):
    began = time.time()
    (ctx.base / f"began-{ctx.seed}").touch()
    while len(list(ctx.base.glob("began-*"))) < together: time.sleep(0.01)
    return {"began": began, "over": time.time()}
"""
    lab.experiment(
        f'workload = "python"\nseeds = 9\nparams = {{ function = "spans:run", together = {jobs} }}\njobs = 2',
        spans=code,
    )
    lab.run(jobs=jobs)
    assert _most_at_once([(row["began"], row["over"]) for row in lab.rows()]) == jobs


def _calls_to_take_all(lab: Lab, limits: str) -> int:
    """Function calls until the queue has given out 10,000 runs of 2,000 arms, with eight of them running at any time."""
    arms = ", ".join(f'"m{number}"' for number in range(2000))
    path = lab.experiment(
        f"seeds = 5\nparams = {{ command = 'true' }}\nconcurrency = [{limits}]\n[matrix]\nmodel = [{arms}]"
    )
    session = open_session(load_plan(path), Options(lab.root, fresh=True))
    try:
        calls = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        queue = Queue(session.plan, session.edition, order_seed=0)
        running: deque[Attempt] = deque()
        taken = 0
        while running or not queue.empty():
            while len(running) < 8 and (attempt := queue.take()) is not None:
                running.append(attempt)
                taken += 1
            queue.ended(running.popleft())
        sys.setprofile(None)
        assert taken == 10_000
        return calls
    finally:
        sys.setprofile(None)
        session.close()


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    "limits",
    [
        '{ by = "model", limit = 1 }',
        '{ by = "model", limit = 1 }, { by = "task", limit = 4 }',
        '{ by = "model", values = ["m0", "m1"], limit = 1 }',
    ],
)
def test_limits_over_2000_arms_cost_no_more_than_none(lab: Lab, limits: str) -> None:
    free, limited = _calls_to_take_all(lab, ""), _calls_to_take_all(lab, limits)
    assert limited < 3 * free, (limited, free)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["python", "command"])
def test_a_budget_of_runs_is_used_up_exactly(lab: Lab, kind: str) -> None:
    text = "seeds = 100\njobs = 3\nbudget = { runs = 37 }\n"
    if kind == "python":
        lab.experiment(text + 'workload = "python"\nparams = { function = "nothing:run" }', nothing="def run(): pass")
    else:
        lab.experiment(text + 'params = { command = "true" }')
    summary = lab.run()
    assert (
        summary.statuses == {"succeeded": 37}
        and summary.stopped
        and summary.stopped.text == "budget of 37 runs used up"
    )
    assert not summary.complete
    assert lab.run().statuses == {}
    assert lab.run(overrides=("budget.runs=40",)).statuses == {"succeeded": 3}


@pytest.mark.slow
def test_a_budget_of_runs_leaves_room_for_retries(lab: Lab) -> None:
    command = "[ -e {dir}/attempts ] || {{ touch {dir}/tried; exit 75; }}"
    lab.experiment(
        "seeds = 10\nbudget = { runs = 4 }\nretries = { backoff = 0.05 }\n"
        f"params = {{ command = '{command}', infra_exit_codes = [75] }}"
    )
    assert lab.run().statuses == {"succeeded": 4}


@pytest.mark.slow
def test_a_time_budget_counts_over_all_sessions(lab: Lab) -> None:
    lab.experiment('seeds = 100\njobs = 1\nbudget = { time = 2.5 }\nparams = { command = "sleep 0.1" }')
    summary = lab.run()
    assert summary.stopped and summary.stopped.text == "time budget of 2.5 s used up"
    assert 0 < summary.statuses["succeeded"] <= 25
    assert lab.run().statuses.total() <= 1, "nothing is left of it"


def test_a_cost_budget_is_charged_with_what_runs_report(lab: Lab) -> None:
    lab.experiment(
        """
seeds = 50
jobs = 1
budget = { cost = 1.0, cost_metric = "usd" }
[params]
command = '''echo '{{"usd": 0.1875}}' '''
"""
    )
    summary = lab.run()
    assert summary.statuses == {"succeeded": 6}
    assert summary.stopped and summary.stopped.text == "budget of 1 usd used up (1.125)"
    assert lab.run().statuses == {}


def test_a_cost_budget_is_charged_with_tries_that_have_to_be_done_again(lab: Lab) -> None:
    lab.experiment(
        """
seeds = 50
jobs = 1
budget = { cost = 1.0, cost_metric = "usd" }
retries = { failed = 1, backoff = 0 }
[params]
command = '''echo '{{"usd": 0.25}}'; exit 1'''
"""
    )
    summary = lab.run()
    assert (summary.statuses, summary.attempts) == ({"failed": 2}, 4)
    assert summary.stopped and summary.stopped.text == "budget of 1 usd used up (1)"
    assert lab.run(retry_failed=True).attempts == 0, "the next session knows of it"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["python", "command"])
def test_a_cost_that_nobody_reports_ends_the_experiment(lab: Lab, kind: str) -> None:
    text = "seeds = 50\njobs = 2\nbudget = { cost = 1.0 }\n"
    if kind == "python":
        lab.experiment(
            text + 'workload = "python"\nparams = { function = "free:run" }',
            free="import time\ndef run(seed): time.sleep(0.0 if seed == 0 else 600)",
        )
    else:
        lab.experiment(text + 'params = { command = "test {seed} = 0 || sleep 600" }')
    with pytest.raises(bakeoff.BakeoffError, match="reports no 'cost_usd', so the cost budget cannot be kept"):
        lab.run()
    assert lab.statuses()["succeeded"] == 1, "what was done is recorded"
    assert lab.processes() == []
    done = lab.cli("run", "trial.toml", "--only", "seed=0", code=0)
    assert "1 succeeded" in done.stdout


def test_only_chooses_runs(lab: Lab) -> None:
    lab.experiment('seeds = 5\nparams = { command = "true" }\n[[arms]]\nname = "a"\n[[arms]]\nname = "b"')
    summary = lab.run(only="arm=a and seed<3")
    assert (summary.statuses, summary.left_out, summary.complete) == ({"succeeded": 3}, 7, False)
    assert {(row["arm"], row["seed"]) for row in lab.rows() if row["status"] == "succeeded"} == {
        ("a", 0), ("a", 1), ("a", 2),
    }  # fmt: skip
    assert lab.run().statuses == {"succeeded": 7}
