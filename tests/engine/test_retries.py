"""Infrastructure failures are tried again, later each time, and every attempt is kept; the arm's own are not."""

from __future__ import annotations

from itertools import pairwise

import pytest

from support.processes import Lab


@pytest.mark.slow
def test_infrastructure_failures_are_tried_again_with_growing_pauses(lab: Lab) -> None:
    lab.experiment(
        """
retries = { infra = 3, backoff = 0.3 }
[params]
infra_exit_codes = [75]
command = '''echo "try $(ls ../results/trial/latest/runs/*/attempts 2>/dev/null | wc -l)"; mkdir -p {out}; echo x > {out}/file
[ $(ls {dir}/attempts 2>/dev/null | wc -l) = 2 ] && exit 0; exit 75'''
"""
    )
    summary = lab.run()
    assert (summary.statuses, summary.attempts) == ({"succeeded": 1}, 3)
    (row,) = lab.rows()
    tried = lab.attempts(row["run_id"])
    assert [entry["status"] for entry in tried] == ["infra_error", "infra_error", "succeeded"]
    assert [entry["exit_code"] for entry in tried] == [75, 75, 0]
    assert "exit code 75" in tried[0]["error"]
    pauses = [b["started_at"] - a["ended_at"] for a, b in pairwise(tried)]
    assert pauses[0] >= 0.3 and pauses[1] >= 0.6
    directory = lab.run_directory(row["run_id"])
    for attempt in ("1", "2"):
        assert (directory / "attempts" / attempt / "stdout.txt").exists()
        assert (directory / "attempts" / attempt / "out" / "file").exists()
    assert (directory / "stdout.txt").exists() and (directory / "meta.json").exists()


def test_what_still_fails_after_its_retries_is_missing_and_tried_by_the_next_call(lab: Lab) -> None:
    lab.experiment(
        'retries = { infra = 1, backoff = 0.05 }\nparams = { command = "test -e flag || exit 75", infra_exit_codes = [75] }'
    )
    summary = lab.run()
    assert (summary.statuses, summary.complete) == ({"infra_error": 1}, False)
    lab.write("flag", "")
    assert lab.run().statuses == {"succeeded": 1}
    assert [entry["status"] for entry in lab.attempts(lab.rows()[0]["run_id"])] == [
        "infra_error",
        "infra_error",
        "succeeded",
    ]


def test_other_exit_codes_can_mean_infrastructure_too(lab: Lab) -> None:
    lab.experiment('retries = { infra = 0 }\nparams = { command = "exit 99", infra_exit_codes = [99] }')
    assert lab.run().statuses == {"infra_error": 1}


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "attempts"), [(0, 1), (2, 3)])
def test_failures_of_the_arm_are_tried_again_only_when_asked(lab: Lab, asked: int, attempts: int) -> None:
    lab.experiment(
        f"""
retries = {{ failed = {asked}, backoff = 0.05 }}
limits = {{ time = 0.3, grace = 0.2 }}
[[arms]]
name = "fails"
params = {{ command = "exit 1" }}
[[arms]]
name = "hangs"
params = {{ command = "sleep 600" }}
"""
    )
    lab.run()
    assert [(row["status"], row["attempts"]) for row in lab.rows()] == [("failed", attempts), ("timeout", attempts)]


SHAKY = """
from pydantic import BaseModel
from bakeoff import InfraError, Outcome

class Params(BaseModel): pass

class Shaky:
    kind, revision, Params = "shaky", "1", Params

    def run(self, params, ctx):
        ctx.log(1, seen=ctx.attempt)
        if ctx.attempt < 3: raise InfraError(f"try {ctx.attempt}")
        return Outcome()
"""


@pytest.mark.slow
def test_a_workload_says_infra_error_by_raising_it(lab: Lab) -> None:
    lab.write("plugin/shaky.py", SHAKY)
    lab.write("plugin/shaky-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: shaky\nVersion: 1\n")
    lab.write("plugin/shaky-1.dist-info/entry_points.txt", "[bakeoff.workloads]\nshaky = shaky:Shaky\n")
    lab.environment["PYTHONPATH"] = str(lab.place / "plugin")
    lab.experiment('workload = "shaky"\nretries = { backoff = 0.05 }')
    lab.cli("run", "trial.toml")
    (row,) = lab.rows()
    assert [entry["error"] for entry in lab.attempts(row["run_id"])] == ["try 1", "try 2", None]
    assert lab.series(row["run_id"]) == {"seen": [(1, 3.0)]}


@pytest.mark.slow
def test_retry_failed_does_failures_again_and_keeps_what_they_were(lab: Lab) -> None:
    code = """
def run(ctx):
    if not (ctx.base / "fixed").exists() and ctx.seed == 1:
        ctx.log(1, loss=9.0); print("first"); ctx.finish(score=-1); raise ValueError("broken")
    print("second"); return {"score": 1}
"""
    lab.experiment('workload = "python"\nseeds = 2\nparams = { function = "late:run" }', late=code)
    assert lab.run().statuses == {"succeeded": 1, "failed": 1}
    assert lab.rows()[1]["score"] == -1
    lab.write("fixed", "")
    assert lab.run().statuses == {}
    assert lab.run(retry_failed=True).statuses == {"succeeded": 1}
    row = lab.rows()[1]
    assert (row["status"], row["score"], row["attempts"], row["error"]) == ("succeeded", 1, 2, None)
    assert [entry["status"] for entry in lab.attempts(row["run_id"])] == ["failed", "succeeded"]
    assert lab.series(row["run_id"]) == {}, "the series was the failed attempt's"
    directory = lab.run_directory(row["run_id"])
    assert (directory / "attempts" / "1" / "stdout.txt").read_text() == "first\n"
    assert (directory / "stdout.txt").read_text() == "second\n"
