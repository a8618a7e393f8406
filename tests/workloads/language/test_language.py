"""The workload through the engine and the command line: files, determinism, kills, bad input, campaigns."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from bakeoff.errors import UsageError, install
from bakeoff.records.rundir import set_aside
from bakeoff.spec.workload import Outcome
from bakeoff.workloads.language.params import LanguageParams
from bakeoff.workloads.language.trainer import Trainer
from bakeoff.workloads.language.workload import LanguageWorkload
from support.processes import Lab
from workloads.language.small import SMALL, context

TIMES = ("step_time_s", "processor_s")


def toml(**changes: Any) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in {**SMALL, **changes}.items())


def lines(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def left_behind(directory: Path) -> dict[str, Any]:
    """Everything that a run wrote, without times."""
    return {
        "metrics": lines(directory / "metrics.jsonl"),
        "steps": lines(directory / "emergence" / "steps.jsonl"),
        "generations": lines(directory / "emergence" / "generations.jsonl"),
        "completions": pl.read_parquet(directory / "completions.parquet").to_dicts(),
        "weights": torch.load(directory / "model.pt", weights_only=True)["weights"].numpy().tobytes(),
    }


DOOMED = """
import json, os, signal, sys
from pathlib import Path
from bakeoff.workloads.language.trainer import Trainer
from bakeoff.workloads.language.workload import LanguageParams, LanguageWorkload
from workloads.language.small import context
advance = Trainer.advance
def die(self):
    if self.step == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return advance(self)
Trainer.advance = die
LanguageWorkload().run(LanguageParams(**json.loads(sys.argv[1])), context(Path(sys.argv[2])))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_a_run_that_is_killed_at_any_step_ends_like_one_that_was_not(tmp_path: Path) -> None:
    values = {**SMALL, "transform": "gtpo_sepa", "sepa_delay": 2, "sepa_steps": 8}
    params = LanguageParams(**values)
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    assert LanguageWorkload().run(params, context(quiet)).status == "succeeded"
    for attempt, fatal in enumerate((2, 7), 1):  # before the first checkpoint, and between two
        done = subprocess.run(
            [sys.executable, "-c", DOOMED, json.dumps(values), str(killed), str(fatal)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert done.returncode == -signal.SIGKILL
        set_aside(killed / "run", attempt, checkpoint=True)
    assert LanguageWorkload().run(params, context(killed, 3)).status == "succeeded"
    expected = left_behind(quiet / "run")
    assert left_behind(killed / "run") == expected
    assert [row["step"] for row in expected["metrics"]] == list(range(12))
    assert len(expected["completions"]) == 12 * 4 * 8
    assert not list((killed / "run" / "checkpoint").iterdir()), "a finished run needs no checkpoint"


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_jobs_and_the_originals_scripts_read_them(lab: Lab) -> None:
    text = f"""
workload = "language"
seeds = 2
[params]
{toml()}
[[arms]]
name = "start"
params = {{ steps = 0 }}
[[arms]]
name = "dr_grpo"
params = {{ advantage = "dr_grpo" }}
[[arms]]
name = "again"
params = {{ advantage = "dr_grpo", own_sampling = true }}
[[arms]]
name = "copy"
params = {{ advantage = "dr_grpo", generations_every = 5 }}
"""
    for name in ("one", "two"):
        lab.experiment(text, name)
        lab.cli("run", f"{name}.toml", "--jobs", "1" if name == "one" else "2")
        assert lab.statuses(name) == {"succeeded": 8}
    results = {
        name: {(row["arm"], row["seed"]): left_behind(lab.run_directory(row["run_id"], name)) for row in lab.rows(name)}
        for name in ("one", "two")
    }
    assert results["one"] == results["two"]
    first = results["one"]
    assert first["dr_grpo", 0]["weights"] == first["copy", 0]["weights"], "arms share random numbers"
    assert first["dr_grpo", 0]["weights"] != first["again", 0]["weights"], "this one has its own"
    assert len(first["start", 0]["metrics"]) == 1 and first["start", 0]["weights"] == first["start", 1]["weights"]

    # The series is what compare reads: the workload's own analysis, without a line in the file.
    row = lab.of_arm("dr_grpo", "one")[0]
    assert [step for step, _ in lab.series(row["run_id"], "one")["heldout_accuracy"]] == [5, 11]
    answer = json.loads(lab.cli("compare", "one", "--json", code=None).stdout)
    assert "heldout_accuracy" in json.dumps(answer)
    assert "for seeds like these, from this warm start (unit: seed" in json.dumps(answer)
    assert row["formula"].startswith("A = r - mean; token: A;") and row["parameters"] > 10_000

    # Every answer is a rollout with its own id, and its advantage is that of its group.
    for form in ("trl-grpo", "verifiers", "art"):
        lab.cli("export", "one", "--format", form, "--arms", "dr_grpo", "-o", f"as-{form}")
    exported = [json.loads(line) for line in (lab.place / "as-trl-grpo").read_text().splitlines()]
    answers = {
        (seed, f"step{row['step']}__g{row['group']}__{row['sample']}"): row
        for seed in (0, 1)
        for row in first["dr_grpo", seed]["completions"]
    }
    assert len(exported) == len({row["run_id"] for row in exported}) == len(answers) == 2 * 12 * 4 * 8
    for row in exported:
        answer = answers[row["seed"], row["run_id"][row["run_id"].index("step") :]]
        assert (row["completion"][0]["content"], row["reward"]) == (answer["completion"], answer["reward"])
        assert row["tokens"][0]["completion_ids"] == answer["ids"]
        assert row["advantage"] == 0 or (row["advantage"] > 0) == (answer["advantage"] > 0)
    assert len((lab.place / "as-art").read_text().splitlines()) == 2 * 12 * 4

    # The functions of the original's research guide, unchanged.
    guide = """
import json, sys
from pathlib import Path
from collections import defaultdict
def load_metrics(run_dir):
    path = Path(run_dir) / "metrics.jsonl"
    with open(path) as f:
        return [json.loads(line) for line in f if line.strip()]
def load_emergence(run_dir):
    root = Path(run_dir) / "emergence"
    steps = []
    with open(root / "steps.jsonl") as f:
        for line in f:
            if line.strip():
                steps.append(json.loads(line))
    generations = []
    with open(root / "generations.jsonl") as f:
        for line in f:
            if line.strip():
                generations.append(json.loads(line))
    return {"steps": steps, "generations": generations}
by_condition = defaultdict(list)
for run_dir in sorted((Path(sys.argv[1]) / "runs").iterdir()):
    metrics = load_metrics(str(run_dir))
    by_condition[metrics[0]["condition"]].append([m["correct_rate"] for m in metrics])
    emergence = load_emergence(str(run_dir))
    assert emergence["steps"] and emergence["generations"]
    assert {"step", "prompt", "completion", "reward", "num_tokens"} <= set(emergence["generations"][0])
print(sorted(by_condition))
"""
    done = subprocess.run(
        [sys.executable, "-c", guide, lab.directory("one")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['dr_grpo+none', 'maxrl+none']"


@pytest.mark.usefixtures("warm")
def test_a_loss_that_is_not_a_number_fails_the_run_and_keeps_what_it_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Trainer.advance

    def spoilt(self: Trainer) -> Any:
        if self.step == 4:
            self.model.flat_gradient[0] = float("nan")
        return advance(self)

    monkeypatch.setattr(Trainer, "advance", spoilt)
    outcome: Outcome = LanguageWorkload().run(LanguageParams(**{**SMALL, "batch_size": 16}), context(tmp_path))
    assert outcome.status == "failed" and "at step 4" in (outcome.error or "")
    assert [row["step"] for row in lines(tmp_path / "run" / "metrics.jsonl")] == [0, 1, 2, 3]
    assert pl.read_parquet(tmp_path / "run" / "completions.parquet")["step"].max() == 3


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"planning": "phrases", "phrases": ["let me check"]}, "cannot spell 'let me check'"),
        ({"eval_prompts": 100_000}, "held-out prompts, and 100000 are asked for"),
        ({"warm_start": "nowhere.pt"}, "nowhere.pt: no such warm start"),
    ],
)
def test_what_would_fail_in_every_run_is_found_before(tmp_path: Path, params: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LanguageWorkload().check(LanguageParams(**{**SMALL, **params}), tmp_path)


def test_bad_input_is_reported_before_anything_runs(lab: Lab) -> None:
    lab.experiment(f'workload = "language"\n[params]\n{toml(wrong_reward=-1, group_size=1)}')
    done = lab.cli("run", "trial.toml", code=2)
    assert "trial.toml" in done.stderr and "group_size" in done.stderr
    lab.experiment(f'workload = "language"\n[params]\n{toml(wrong_reward=-1)}')
    assert "maxrl needs rewards of 0 or more" in lab.cli("run", "trial.toml", code=2).stderr


@pytest.mark.slow
def test_an_arm_cannot_choose_how_it_is_evaluated(lab: Lab) -> None:
    text = f"""
workload = "language"
seeds = 2
[params]
{toml(steps=0)}
[[arms]]
name = "start"
[[arms]]
name = "sharp"
params = {{ temperature = 0.2, max_tokens = 2 }}
"""
    lab.experiment(text)
    lab.cli("run", "trial.toml")
    names = ("heldout_accuracy", "heldout_greedy", "heldout_pass_at_4")
    ends = {
        arm: [[lab.series(row["run_id"])[name][-1] for name in names] for row in lab.of_arm(arm)]
        for arm in ("start", "sharp")
    }
    assert ends["start"] == ends["sharp"], "a temperature of the training is not one of the evaluation"
    for row in lab.rows():
        evaluated = {name: lab.series(row["run_id"])[name][-1][1] for name in names}
        assert {f"heldout_{name}": row[f"start_{name}"] for name in ("accuracy", "greedy", "pass_at_4")} == evaluated
    compared = json.loads(lab.cli("compare", "trial", "--json", code=None).stdout)
    assert "heldout_greedy" in json.dumps(compared), "greedy is judged beside sampled answers"

    for key, value in (("eval_temperature", 0.2), ("eval_samples", 5), ("task", '"modular"')):
        lab.experiment(text + f'[[arms]]\nname = "own"\nparams = {{ {key} = {value} }}\n', "refused")
        error = lab.cli("run", "refused.toml", code=2).stderr
        assert f"arms.2.params.{key}" in error and "'own' with" in error and f"set {key} once for all arms" in error
        assert not (lab.root / "refused").exists()


def test_without_torch_the_extra_is_named(lab: Lab) -> None:
    hide = "import sys\nsys.modules['torch'] = None\nimport importlib.util as u\nreal = u.find_spec\n"
    hide += "u.find_spec = lambda name, *rest: None if name == 'torch' else real(name, *rest)\n"
    lab.write("hidden/sitecustomize.py", hide)
    lab.environment["PYTHONPATH"] = str(lab.place / "hidden")
    lab.experiment(f'workload = "language"\n[params]\n{toml()}')
    assert install("train") in lab.cli("run", "trial.toml", code=2).stderr
    assert install("train") in lab.cli("language", "pretrain", code=2).stderr


@pytest.mark.slow
def test_a_model_is_trained_written_and_played(lab: Lab) -> None:
    small = ("--task", "strings", "--width", "32", "--steps", "120")
    facts = json.loads(lab.cli("language", "pretrain", *small, "--output", "warm.pt", "--json").stdout)
    assert facts["task"] == "strings" and 0 <= facts["heldout_accuracy"] <= 1
    shown = lab.cli("language", "play", "warm.pt", "--prompt", "a b c d > d c b a :", "--greedy").stdout
    assert "a b c d > d c b a : [apply " in shown and "% of 1 greedy answers are right" in shown
    both = lab.cli("language", "play", "warm.pt", "--prompts", "2", "--answers", "3").stdout
    assert re.search(r"% of 6 sampled answers and [\d.]+% of 2 greedy answers are right", both)
    assert "is not a prompt of strings" in lab.cli("language", "play", "warm.pt", "--prompt", "x", code=2).stderr


CAMPAIGN = f"""
[model]
model = "Qwen/Qwen3-4B-Instruct-2507"
[training]
batch_size = 4
group_size = 8
lr = 5e-4
[sepa]
steps = 8
delay_steps = 0
[language]
task = "strings"
width = 32
warm_steps = {SMALL["warm_steps"]}
eval_prompts = 32
eval_samples = 4
[campaign]
seeds = [42, 101]
max_steps = 9
[[campaign.conditions]]
advantage_mode = "grpo"
transform_mode = "none"
[[campaign.conditions]]
advantage_mode = "maxrl"
transform_mode = "gtpo_sepa"
beta = 0.2
"""


@pytest.mark.slow
def test_a_campaign_of_the_original_becomes_an_experiment(lab: Lab) -> None:
    lab.write("sepa.toml", CAMPAIGN)
    planned = lab.cli("language", "campaign", "sepa.toml", "--output", "logs/c")
    assert "4 runs: 2 conditions, 2 seeds" in planned.stdout and "nothing was run" in planned.stdout
    assert "model.model has no meaning here" in planned.stderr and "it is called dr_grpo here" in planned.stderr
    manifest = json.loads((lab.place / "logs/c/manifest.json").read_text())
    assert manifest["conditions"] == ["grpo+none", "maxrl+gtpo_sepa~beta=0.2"]
    assert (manifest["num_runs"], manifest["max_steps"], manifest["runs"][0]["status"]) == (4, 9, "planned")

    lab.cli("language", "campaign", "sepa.toml", "--output", "logs/c", "--max-steps", "10", "--execute")
    manifest = json.loads((lab.place / "logs/c/manifest.json").read_text())
    assert {run["status"] for run in manifest["runs"]} == {"succeeded"}
    base, other = (
        [str(lab.place / run["log_dir"]) for run in manifest["runs"] if run["condition"] == condition]
        for condition in manifest["conditions"]
    )
    assert len(lines(Path(base[0]) / "metrics.jsonl")) == 10
    arguments = ("--baseline", *base, "--candidate", *other, "--json")
    compared = lab.cli("compare", *arguments, "--metric", "correct_rate", code=None)
    assert compared.returncode in (0, 3), compared.stderr
    assert json.loads(compared.stdout)
    judged = lab.cli("litmus", *arguments, code=None)
    assert judged.returncode in (0, 1, 3), judged.stderr
    assert "gram_entropy_delta" in judged.stdout


def test_a_campaign_without_a_file_has_the_five_conditions_of_the_original(lab: Lab) -> None:
    lab.write(
        "base.toml",
        '[training]\nbatch_size = 4\n[planning]\ndetector = "regex"\n[logging]\nstrategic_grams = "first add, first divide"\n',
    )
    given = ("--max-steps", "100", "--seeds", "42,101,202", "--wandb-project", "test-sweep")
    planned = lab.cli("language", "campaign", "--config", "base.toml", *given, "--output", "logs/c")
    assert "15 runs: 5 conditions, 3 seeds" in planned.stdout
    written = json.loads((lab.place / "logs/c/experiment.json").read_text())
    assert written["params"] == {
        "batch_size": 4, "planning": "phrases", "phrases": ["first add", "first divide"], "wandb_project": "test-sweep", "steps": 100,
    }  # fmt: skip
    assert [arm["name"] for arm in written["arms"]][::4] == ["grpo+none", "maxrl+gtpo_sepa"]
    lab.cli("language", "campaign", "--output", "logs/d")


def test_a_campaign_file_that_is_wrong_names_the_key(lab: Lab) -> None:
    lab.write("bad.toml", "[campaign]\nseeds = [1, 1]\n[[campaign.conditions]]\nadvantage_mod = 'grpo'\n")
    error = lab.cli("language", "campaign", "bad.toml", code=2).stderr
    assert "campaign.conditions.0.advantage_mod" in error and "campaign.seeds: a seed stands twice" in error
    lab.write("none.toml", "x = 1\n")
    assert "no section [campaign]" in lab.cli("language", "campaign", "none.toml", code=2).stderr
