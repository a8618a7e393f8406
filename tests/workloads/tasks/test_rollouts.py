"""Task rollouts through the command line: files, scores, limits, resuming and scoring again, all in real boxes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from bakeoff.workloads.tasks.workload import NO_NETWORK, SCORED_BY_THE_WORK
from support.processes import Lab, eventually
from support.reports import parts_of_runs
from workloads.tasks.scripted import ScriptedModel, Use, say, shell
from workloads.tasks.small import MEND, RIGHT, TEST, write_task

pytestmark = [pytest.mark.apt, pytest.mark.slow]  # git and bubblewrap

BENCHMARK = """
name = "bench"
parallel = 2
agent = "{agent}"

[[tasks]]
prepared_dir = "tasks/sums"
model = "m"
rollouts = {rollouts}
{more}
"""


def benchmark(lab: Lab, agent: str = "oracle", rollouts: int = 1, more: str = "") -> Path:
    if not (lab.place / "tasks" / "sums").exists():
        write_task(lab.place / "tasks" / "sums")
    return lab.write("bench.toml", BENCHMARK.format(agent=agent, rollouts=rollouts, more=more))


def only(lab: Lab, name: str = "bench") -> dict[str, object]:
    (row,) = lab.rows(name)
    return row


def results(lab: Lab, name: str = "bench") -> dict[str, object]:
    """evaluation_results.json of the only run."""
    (file,) = lab.directory(name).glob("runs/*/evaluation_results.json")
    found: dict[str, object] = json.loads(file.read_text())
    return found


def test_a_benchmark_leaves_the_files_that_its_users_read(lab: Lab) -> None:
    lab.cli("run", benchmark(lab, rollouts=2), cwd=lab.place)
    (folder,) = (lab.place / "data/rollouts/bench").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["created_at"] == folder.name
    assert [row["status"] for row in manifest["results"]] == ["succeeded"] * 2
    for row in manifest["results"]:
        run = lab.place / row["run_dir"]
        assert json.loads((run / "evaluation_results.json").read_text())["total_score"] == 1.0
        assert "+    return a + b" in (run / "artifacts/diff.patch").read_text()
        assert json.loads((run / "artifacts/repo_info.json").read_text())["touched_files"] == ["sums.py"]
        for name in ("artifacts/notes.md", "scoring_results.md", "logs/eval.log"):
            assert (run / name).read_text().strip()
    assert (folder / "runs.txt").read_text().split() == [row["run_dir"] for row in manifest["results"]]
    assert {file.stem for file in (folder / "task_results").iterdir()} == {row["run_id"] for row in manifest["results"]}
    index = json.loads((lab.place / f"data/rollouts/temp/rollout_bench__{folder.name}.json").read_text())
    assert index["tasks"] == ["tasks/sums"] and len(index["runs"]) == 2


def test_a_finished_benchmark_run_again_is_a_new_edition_with_a_new_stamp(lab: Lab) -> None:
    file = benchmark(lab)
    lab.cli("run", file, cwd=lab.place)
    lab.cli("run", file, cwd=lab.place)
    assert len(list((lab.place / "data/rollouts/bench").iterdir())) == 2
    assert len(list((lab.place / "data/runs").iterdir())) == 2


def test_doing_nothing_scores_nothing_and_notes_are_printed_and_the_task_stays_unchanged(lab: Lab) -> None:
    write_task(lab.place / "tasks" / "sums", environment={"network_mode": "public"}, odd=1)
    file = benchmark(lab, agent="nop")
    (lab.place / "tasks/sums/repo/host").symlink_to("/etc/hostname")  # which a box has and a copy of it may not follow
    before = {path: path.read_bytes() for path in (lab.place / "tasks").rglob("*") if path.is_file()}
    said = lab.cli("run", file, cwd=lab.place).stderr
    assert [line for line in said.splitlines() if line.startswith("note: ")] == [
        "note: sums: tb_meta.json: odd: unknown key, not used",
        f"note: {SCORED_BY_THE_WORK}",
        f"note: {NO_NETWORK}",
    ]
    assert only(lab)["total_score"] == 0.0
    (run,) = lab.directory("bench").glob("runs/*")
    assert (run / "artifacts/diff.patch").read_bytes() == b""
    assert {path: path.read_bytes() for path in (lab.place / "tasks").rglob("*") if path.is_file()} == before


def test_the_agent_sees_its_variables_and_neither_tests_nor_reference(lab: Lab) -> None:
    look = (
        "env > env.txt; find / -xdev -name 'diff.patch' -o -xdev -name 'tb_meta*' -o -xdev -name 'test_adds*' > names.txt; "
        "grep -rls 'test_adds' /app /tmp /home /root /var /solution /tests /metrics /opt /srv /mnt > found.txt; true"
    )
    more = 'environment_variables = { COLOUR = "green" }\n[agents.spy]\nwire = "none"\ncommand = """' + look + '"""'
    lab.cli("run", benchmark(lab, agent="spy", more=more), cwd=lab.place)
    (run,) = lab.directory("bench").glob("runs/*")
    diff = (run / "artifacts/diff.patch").read_text(errors="replace")
    assert "+COLOUR=green" in diff
    assert "b/names.txt" in diff and "b/found.txt" in diff
    assert "+/" not in diff.replace("+++ b/", "").replace("+PATH=/", "").replace("+HOME=/", "").replace("+PWD=/", "")


def test_what_an_agent_did_before_its_time_was_up_is_collected_and_scored(lab: Lab) -> None:
    more = (
        'environment_variables = { TIMEOUT_SEC = "2" }\n'
        f'[agents.slow]\nwire = "none"\ncommand = {json.dumps(MEND + "; sleep 600")}'
    )
    lab.cli("run", benchmark(lab, agent="slow", more=more), cwd=lab.place)
    row = only(lab)
    assert row["agent_status"] == "timeout" and row["total_score"] == 1.0
    assert 1.5 < float(str(row["seconds"])) < 30


ASK = (
    """python3 -c "import json, urllib.request as u; u.urlopen(u.Request('{base_url}/chat/completions', """
    """json.dumps(dict(model='m', messages=[])).encode(), {{'authorization': 'Bearer {api_key}'}}))" """
)


def test_an_agent_that_crashes_is_scored_by_what_it_left_and_what_it_says_can_be_watched(lab: Lab) -> None:
    with ScriptedModel([say("Mend it.")]) as model:
        more = f'[providers.here]\nbase_url = "{model.url}/v1"\nmodels = {{ m = "m" }}\n[agents.crash]\nwire = "chat"\n'
        more += f"command = {json.dumps(ASK + '&& ' + MEND + '; echo oh no; no-such-program')}"
        ended = lab.cli("run", benchmark(lab, agent="crash", more=more), "-vv", cwd=lab.place)
    assert " | oh no\n" in ended.stderr
    assert only(lab)["agent_status"] == "error" and only(lab)["total_score"] == 1.0
    assert results(lab)["agent_metrics"]["exit_code"] == [127]  # type: ignore[index]


def test_the_builtin_agent_works_through_the_proxy_and_its_tokens_are_counted(lab: Lab) -> None:
    turns = [shell(MEND, use=Use(input=120, output=30)), say("Done.", use=Use(input=180, output=5))]
    with ScriptedModel(turns) as model:
        more = f'[providers.here]\nbase_url = "{model.url}/v1"\nenv_key = "HERE_KEY"\nmodels = {{ m = "real-m" }}'
        lab.environment["HERE_KEY"] = "the-real-key"
        lab.cli("run", benchmark(lab, agent="builtin", more=more), cwd=lab.place)
        assert {request.body["model"] for request in model.requests} == {"real-m"}
        assert {request.headers["authorization"] for request in model.requests} == {"Bearer the-real-key"}
    row = only(lab)
    assert row["total_score"] == 1.0
    assert (row["tokens"], row["input_tokens"], row["output_tokens"], row["model_calls"]) == (335, 300, 35, 2)
    kept = b"".join(path.read_bytes() for path in lab.directory("bench").rglob("*") if path.is_file())
    assert b"the-real-key" not in kept


def test_a_token_budget_ends_the_calls_and_the_work_so_far_is_scored(lab: Lab) -> None:
    turns = [shell(MEND, use=Use(input=900, output=50)), shell("true", use=Use(input=900, output=50)), say("Done.")]
    with ScriptedModel(turns) as model:
        more = f'token_budget = 1000\n[providers.here]\nbase_url = "{model.url}/v1"\nmodels = {{ m = "m" }}'
        lab.cli("run", benchmark(lab, agent="builtin", more=more), cwd=lab.place)
    row = only(lab)
    assert row["budget_hit"] == "tokens" and row["total_score"] == 1.0 and int(str(row["model_calls"])) == 1


def test_a_model_that_cannot_be_reached_fails_the_run_for_its_provider(lab: Lab) -> None:
    ask = (
        "import json, urllib.request as r; body = json.dumps(dict(model='m', messages=[])).encode(); "
        "r.urlopen(r.Request('{base_url}/chat/completions', body, dict(authorization='Bearer {api_key}')))"
    )
    write_task(lab.place / "tasks" / "sums")
    file = (
        'name = "bench"\nworkload = "tasks"\nretries.infra = 0\ntasks = [{ name = "sums", path = "tasks/sums" }]\n'
        '[params]\nagent = "asks"\nmodel = "gone/m"\n'
        '[params.providers.gone]\nbase_url = "http://127.0.0.1:9/v1"\nretries = 0\n'
        f"[params.agents.asks]\ncommand = {json.dumps(['python3', '-c', ask])}"
    )
    lab.cli("run", lab.write("bench.toml", file), cwd=lab.place, code=1)
    assert (only(lab)["status"], only(lab)["failure"], only(lab)["attempts"]) == ("failed", "provider", 1)


def test_a_missing_key_is_reported_before_anything_starts(lab: Lab) -> None:
    more = '[providers.here]\nbase_url = "http://127.0.0.1:9/v1"\nenv_key = "NO_SUCH_KEY"\nmodels = { m = "m" }'
    ended = lab.cli("run", benchmark(lab, agent="builtin", more=more), cwd=lab.place, code=2)
    assert "NO_SUCH_KEY is not set" in ended.stderr
    assert not (lab.place / "data").exists()


def test_running_without_a_sandbox_has_to_be_accepted_and_works(lab: Lab) -> None:
    with ScriptedModel([shell(MEND), say("Done.")]) as model:
        entry = '[[tasks]]\nprepared_dir = "tasks/sums"\nmodel = "m"\nagent = "builtin"\nrollouts = 2\n'
        file = benchmark(lab, more=f'{entry}[providers.here]\nbase_url = "{model.url}/v1"')
        ended = lab.cli("run", file, "--sandbox", "none", cwd=lab.place, code=2)
        assert "--yes" in ended.stderr
        lab.cli("run", file, "--sandbox", "none", "--yes", cwd=lab.place)
    scores = sorted((row["arm"], row["total_score"]) for row in lab.rows("bench"))
    assert scores == [("builtin/m", 1.0), ("builtin/m", 1.0), ("oracle/m", 1.0)]


def test_killed_in_the_middle_and_resumed_it_gives_the_same_table_and_leaves_nothing(lab: Lab) -> None:
    write_task(lab.place / "tasks" / "sums")
    text = """
name = "cross"
workload = "tasks"
rollouts = 6
matrix.agent = ["oracle", "nop"]
[analysis]
metric = "total_score"
bounds = [0, 1]
[[tasks]]
name = "sums"
path = "tasks/sums"
"""
    lab.environment["BAKEOFF_CACHE"] = str(lab.place / "cache")
    file = lab.write("cross.toml", text)
    process = lab.start("run", file, "-j2", cwd=lab.place)
    eventually(lambda: lab.statuses("cross")["succeeded"] >= 3, "three rollouts done")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    lab.cli("run", file, "-j2", cwd=lab.place)
    scores = {(row["arm"], row["total_score"]) for row in lab.rows("cross")}
    assert scores == {("oracle", 1.0), ("nop", 0.0)} and len(lab.rows("cross")) == 12
    boxes = [path for path in (lab.place / "cache" / "boxes").iterdir() if path.is_dir()]
    assert boxes == []


def test_changed_tests_are_applied_to_stored_work_without_an_agent(lab: Lab) -> None:
    file = benchmark(lab)
    lab.cli("run", file, cwd=lab.place)
    task = lab.place / "tasks" / "sums" / "tb_meta.json"
    task.write_text(task.read_text().replace("== 5", "== 6"))
    (folder,) = (lab.place / "data/rollouts/bench").iterdir()
    other = lab.place / "data/rollouts/other" / folder.name
    other.mkdir(parents=True)  # of another benchmark, begun in the same second
    ended = lab.cli("eval", "bench", "--latest", "--json", cwd=lab.place)
    (row,) = json.loads(ended.stdout)["results"]
    assert (row["before"], row["after"]) == (1.0, 0.0)
    assert only(lab)["total_score"] == 0.0
    assert [one["status"] for one in lab.attempts(str(only(lab)["run_id"]), "bench")] == ["succeeded"] * 2
    retries = json.loads(lab.look("status", "bench", "--json").stdout)["retries"]
    assert [arm["affected"] for arm in retries["arms"].values()] == [0], "scoring again is no try"
    (kept,) = lab.directory("bench").glob("runs/*/attempts/1/evaluation_results.json")
    assert json.loads(kept.read_text())["total_score"] == 1.0
    assert json.loads((folder / "eval_manifest.json").read_text())["results"][0]["status"] == "ok"
    assert list(other.iterdir()) == []
    task.parent.rename(lab.place / "away")
    ended = lab.cli("eval", "bench", "--latest", "--json", cwd=lab.place, code=1)
    (row,) = json.loads(ended.stdout)["results"]
    assert (row["status"], row["before"], row["after"]) == ("infra_error", 0.0, 0.0)
    assert only(lab)["total_score"] == 0.0  # what cannot be scored again keeps its score


def test_summaries_count_passes_by_task_and_arm_and_a_report_has_a_page_for_each_rollout(lab: Lab) -> None:
    lab.cli("run", benchmark(lab, rollouts=3), cwd=lab.place)
    (folder,) = (lab.place / "data/rollouts/bench").iterdir()
    ended = lab.look("summarize", "bench", "--rollout", folder.name, "--json")
    found = json.loads(ended.stdout)
    (one,) = found["by_task"]
    assert (one["task"], one["tries"], one["mean"], one["passed"]) == ("sums", 3, 1.0, 3)
    assert [(row["k"], row["at"]["value"], row["all"]["value"]) for row in found["passing"]] == [
        (1, 1.0, 1.0),
        (2, 1.0, 1.0),
        (3, 1.0, 1.0),
    ]
    lab.look("report", "bench")
    report = lab.directory("bench") / "report"
    pages = {page.name: page.read_text() for page in report.glob("*.html")}
    assert '<a href="task-0-sums.html">sums</a></th><td class="r">1* <small>3 of 3</small>' in pages["tasks.html"]
    assert "does not add. Mend it." in pages["task-0-sums.html"]
    runs = parts_of_runs(report)
    assert len(runs) == 3
    for run, parts in runs.items():
        assert f'href="run.html#{run}"' in pages["task-0-sums.html"]
        assert '<span class="add">+    return a + b</span>' in parts["Diff"] and "<td>passed</td>" in parts["Tests"]


JUDGED = """
name = "bench"
workload = "tasks"
retries.infra = 0
params = {{ agent = "oracle", judge = {{ model = "j", base_url = "{url}/v1", env_key = "JUDGE_KEY", votes = 2 }} }}
tasks = [{{ name = "sums", path = "tasks/sums" }}, {{ name = "prose", path = "tasks/prose" }}]
"""


def test_a_judge_votes_on_rubrics_and_one_that_fails_is_missing_until_it_is_asked_again(lab: Lab) -> None:
    write_task(lab.place / "tasks" / "sums", tests={"adds": TEST, "reads well": ""})
    write_task(lab.place / "tasks" / "prose", tests={"reads well": ""})
    good = say(json.dumps({"score": 0.75, "reasoning": "plain"}))
    lab.environment["JUDGE_KEY"] = "k"
    with ScriptedModel([], scripts={"It adds": [good], "It reads well": [say("no idea")]}, side=None) as model:
        lab.cli("run", lab.write("bench.toml", JUDGED.format(url=model.url)), cwd=lab.place, code=1)
        asked = json.dumps([request.body["messages"] for request in model.requests])
    assert "return a + b" in asked
    row, prose = lab.rows("bench")
    assert (row["judge_score"], row["judge_agreement"], row["total_score"]) == (0.75, 1.0, 1.0)
    assert (prose["status"], prose["failure"]) == ("failed", "judge")
    (file,) = lab.directory("bench").glob("runs/*sums*/evaluation_results.json")
    found = json.loads(file.read_text())
    by_rubric = {one["rubric_id"]: one for one in found["lm_evaluation"]["rubric_scores"]}
    assert by_rubric["reads well"]["score"] is None and by_rubric["reads well"]["missing"] == 2
    assert found["evaluation"]["untested"] == ["reads well"]
    with ScriptedModel([say('{"score": 0.5}')], side=None) as model:
        lab.cli("eval", "bench", "--judge", "better", "--judge-url", f"{model.url}/v1", cwd=lab.place)
        told = {(request.body["model"], request.headers["authorization"]) for request in model.requests}
    assert told == {("better", "Bearer k")}
    assert [(row["status"], row["judge_score"]) for row in lab.rows("bench")] == [("succeeded", 0.5)] * 2


def test_custom_metrics_come_from_scripts_in_the_task_and_from_a_function(lab: Lab) -> None:
    task = write_task(lab.place / "tasks" / "sums")
    (task / "metrics").mkdir()
    script = "import json, sys\nrun = json.load(sys.stdin)\nprint(json.dumps({'letters': len(open('sums.py').read()), 'tokens': 5}))\n"
    (task / "metrics" / "size.py").write_text(script)
    (task / "metrics" / "words.py").write_text("raise SystemExit(3)")
    lab.write("mine.py", "def added(run):\n    return {'plus_lines': run['diff'].count('\\n+') - 1}\n")
    head = 'metrics = ["mine:added"]\n'
    file = benchmark(lab)
    file.write_text(head + file.read_text())
    lab.environment["PYTHONPATH"] = str(lab.place)
    lab.cli("run", file, cwd=lab.place)
    row = only(lab)
    assert (row["plus_lines"], row["letters"]) == (1.0, len(RIGHT))
    missing = results(lab)["custom_metrics"]["missing"]  # type: ignore[index]
    assert list(missing) == ["size.py: tokens", "words.py"] and "ended with 3" in missing["words.py"]
    assert "every run has" in missing["size.py: tokens"] and "tokens" not in row
