"""The workload through the engine and the command line: files, determinism, kills, references, bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bakeoff.errors import UsageError, install
from bakeoff.records.rundir import set_aside
from bakeoff.workloads.gridworld.levels import find_level
from bakeoff.workloads.gridworld.outputs import load_policy
from bakeoff.workloads.gridworld.params import GridworldParams
from bakeoff.workloads.gridworld.policies import Policy
from bakeoff.workloads.gridworld.ppo import PPO
from bakeoff.workloads.gridworld.workload import GridworldWorkload
from bakeoff.workloads.gridworld.world import Worlds
from support.processes import Lab
from workloads.gridworld.small import SMALL, context

TIMES = ("steps_per_s", "processor_s")


def toml(**changes: Any) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in {**SMALL, **changes}.items())


def rows(directory: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMES} for row in lines]


def _bytes(model: Path) -> dict[str, bytes]:
    """Parameters and buffers."""
    state = torch.load(model, weights_only=True)["state"]
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}


def left_behind(directory: Path) -> dict[str, Any]:
    """Everything that a run wrote, without times."""
    weights = directory / "model.pt"
    return {
        "metrics": rows(directory),
        "held_out": json.loads((directory / "held_out.json").read_text()),
        "weights": _bytes(weights) if weights.exists() else None,
    }


DOOMED = """
import json, os, signal, sys
from pathlib import Path
from bakeoff.workloads.gridworld.ppo import PPO
from bakeoff.workloads.gridworld.workload import GridworldParams, GridworldWorkload
from workloads.gridworld.small import context
update = PPO.update
def die(self):
    if self.updates == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return update(self)
PPO.update = die
GridworldWorkload().run(GridworldParams(**json.loads(sys.argv[1])), context(Path(sys.argv[2])))
"""


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_update_ends_like_one_that_was_not(tmp_path: Path) -> None:
    values = {**SMALL, "policy": "trxl", "curriculum": "learning_progress", "steps": 1024}
    params = GridworldParams(**values)
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    assert GridworldWorkload().run(params, context(quiet)).status == "succeeded"
    for attempt, fatal in enumerate((1, 11), 1):  # before the first checkpoint, and between two
        done = subprocess.run(
            [sys.executable, "-c", DOOMED, json.dumps(values), str(killed), str(fatal)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert done.returncode == -signal.SIGKILL
        set_aside(killed / "run", attempt, checkpoint=True)
    assert GridworldWorkload().run(params, context(killed, 3)).status == "succeeded"
    expected = left_behind(quiet / "run")
    assert left_behind(killed / "run") == expected
    assert [row["update"] for row in expected["metrics"]] == list(range(1, 17))
    assert not list((killed / "run" / "checkpoint").iterdir()), "a finished run needs no checkpoint"


ODD_POLICY = """
import torch
from torch import nn
from bakeoff.workloads.gridworld.policies import Policy


class Odd(Policy):
    def __init__(self, width):
        super().__init__(width)
        self.cells = nn.Embedding(28, width)
        self.stretch = nn.LayerNorm(width)
        self.spread = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.5)
        self.mixed = nn.Linear(width, width)
        self.again = nn.Linear(width, width)
        self.again.weight = self.mixed.weight
        self.mixed.weight.data = self.mixed.weight.data.t().contiguous().t()
        self.fixed = nn.Parameter(torch.full((width,), 0.5), requires_grad=False)
        self.head = nn.Linear(width, 6)
        self.register_buffer("unrolls", torch.zeros((), dtype=torch.int64), persistent=False)
        self.double()
        self.flatten()

    def initial(self, envs):
        return {"trace": torch.zeros(envs, self.width, dtype=torch.float64), "more": [torch.zeros(envs)]}

    def unroll(self, inputs, past):
        if self.training:
            self.unrolls += 1
        seen = self.stretch(self.cells(inputs.cells.long()).mean(-2))
        trace, hidden = past["trace"], []
        for step, start in zip(seen, inputs.starts):
            trace = 0.5 * trace * ~start[:, None] + step
            hidden.append(trace)
        hidden = torch.stack(hidden)
        hidden = self.drop(self.spread(hidden.flatten(0, 1)).view(hidden.shape) * self.fixed)
        output = self.head(torch.tanh(self.again(torch.tanh(self.mixed(hidden)))) * (1 + 1e-3 * self.unrolls))
        return output[..., :5], output[..., 5], {"trace": trace.detach(), "more": past["more"]}
"""


@pytest.mark.slow
def test_a_policy_of_ones_own_keeps_its_weights_learns_with_all_of_them_and_survives_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.py").write_text(ODD_POLICY)
    monkeypatch.syspath_prepend(tmp_path)
    values = {**SMALL, "policy": "odd:Odd", "steps": 1024}
    params, starts = GridworldParams(**values), []
    monkeypatch.setattr(PPO, "__init__", _noting(starts))
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    assert GridworldWorkload().run(params, context(quiet)).status == "succeeded"
    start, end = starts[0], torch.load(quiet / "run" / "model.pt", weights_only=True)["state"]
    assert (start["stretch.weight"] == 1).all() and start["cells.weight"].std() > 0.8, "as torch draws them"
    assert start["mixed.bias"].abs().sum() > 0
    unchanged = {name for name in end if torch.equal(start[name], end[name])}
    assert unchanged == {"fixed"}, "everything else learnt, and BatchNorm kept its statistics"
    assert torch.equal(end["mixed.weight"], end["again.weight"]) and end["head.weight"].dtype == torch.float64

    done = subprocess.run(
        [sys.executable, "-c", DOOMED, json.dumps(values), str(killed), "11"],
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parents[2]}:{tmp_path}"},
    )
    assert done.returncode == -signal.SIGKILL
    set_aside(killed / "run", 1, checkpoint=True)
    assert GridworldWorkload().run(params, context(killed, 2)).status == "succeeded"
    assert left_behind(killed / "run") == left_behind(quiet / "run")
    policy, _ = load_policy(quiet / "run" / "model.pt")
    assert not policy.training and torch.equal(policy.state_dict()["spread.running_mean"], end["spread.running_mean"])


def _noting(starts: list[dict[str, torch.Tensor]]) -> Any:
    """`PPO.__init__` that copies the weights before the training."""
    real = PPO.__init__

    def noted(self: PPO, params: GridworldParams, policy: Policy, *rest: Any) -> None:
        starts.append({name: tensor.clone() for name, tensor in policy.state_dict().items()})
        real(self, params, policy, *rest)

    return noted


UNTRAINABLE = {
    "late": ("self.late = nn.Linear(2, 2)", "calls self.flatten() at the end"),
    "frozen": ("self.head.weight.requires_grad_(False)", "calls self.flatten() at the end"),
    "cleared": ("self.zero_grad()", "calls self.flatten() at the end"),
    "mixed": (
        "self.head.double(); self.flatten()",
        "parameters must be of one type, not of torch.float32, torch.float64",
    ),
}


def test_policies_that_would_not_be_trained_are_refused(lab: Lab) -> None:
    arms = ""
    for name, (line, _) in UNTRAINABLE.items():
        lab.write(
            f"{name}.py", OWN_POLICY.replace("        self.flatten()\n", f"        self.flatten()\n        {line}\n")
        )
        arms += f'[[arms]]\nname = "{name}"\nparams = {{ policy = "{name}:Shallow" }}\n'
    lab.experiment(f'workload = "gridworld"\n[params]\n{toml()}{arms}[analysis]\nmatched = []\n')
    lab.cli("run", "trial.toml", code=1)
    errors = {row["arm"]: row["error"] for row in lab.rows()}
    for name, (_, message) in UNTRAINABLE.items():
        assert message in errors[name]


def test_arms_that_are_evaluated_in_different_rooms_are_refused(lab: Lab) -> None:
    lab.experiment(
        f'workload = "gridworld"\n[params]\n{toml()}\n[[arms]]\nname = "a"\n[[arms]]\nname = "b"\n'
        'params = { level = "level_1" }\n'
    )
    error = lab.cli("run", "trial.toml", code=2).stderr
    assert "arms.1.params.level" in error and "'a' with 'level_0' and 'b' with 'level_1'" in error


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_jobs_and_compare_reads_them(lab: Lab) -> None:
    lab.write("mine.py", OWN_POLICY)
    text = f"""
workload = "gridworld"
seeds = 2
[params]
{toml()}
[[arms]]
name = "vit_reset"
[[arms]]
name = "again"
params = {{ own_sampling = true }}
[[arms]]
name = "copy"
params = {{ save_every = 100 }}
[[arms]]
name = "mine"
params = {{ policy = "mine:Shallow" }}
[[arms]]
name = "random"
params = {{ policy = "random" }}
[[arms]]
name = "clairvoyant"
params = {{ policy = "clairvoyant" }}
"""
    for name in ("one", "two"):
        lab.experiment(text, name)
        lab.cli("run", f"{name}.toml", "--jobs", "1" if name == "one" else "2")
        assert lab.statuses(name) == {"succeeded": 12}
    results = {
        name: {(row["arm"], row["seed"]): left_behind(lab.run_directory(row["run_id"], name)) for row in lab.rows(name)}
        for name in ("one", "two")
    }
    assert results["one"] == results["two"]
    first = results["one"]
    assert first["vit_reset", 0]["weights"] == first["copy", 0]["weights"], "arms share random numbers"
    assert first["vit_reset", 0]["weights"] != first["again", 0]["weights"], "this one has its own"
    tasks = {arm: [room["task"] for room in first[arm, 0]["held_out"]["rooms"]] for arm in ("again", "mine", "random")}
    assert tasks["again"] == tasks["mine"] == tasks["random"], "all arms of a seed are evaluated in the same rooms"

    row = lab.of_arm("vit_reset", "one")[0]
    assert row["parameters"] == 27_070 and row["flops_per_step"] > 20_000
    assert row["random_hearts"] < row["clairvoyant_hearts"]
    assert [step for step, _ in lab.series(row["run_id"], "one")["heldout_hearts"]] == [256, 512]
    compared = lab.cli("compare", "one", "--control", "random", "--json", code=None)
    assert compared.returncode in (0, 3) and "heldout_hearts" in compared.stdout
    assert "not a fair comparison: parameters must be matched" in compared.stdout, "mine is smaller"


OWN_POLICY = """
import torch
from torch import nn
from bakeoff.workloads.gridworld.policies import Policy

class Shallow(Policy):
    def __init__(self, width):
        super().__init__(width)
        self.cells = nn.Embedding(28, width)
        self.head = nn.Linear(width, 6)
        self.flatten()

    def initial(self, envs):
        return ()

    def unroll(self, inputs, past):
        output = self.head(self.cells(inputs.cells.long()).sum(-2))
        return output[..., :5], output[..., 5], ()
"""


def test_an_evaluation_can_be_replayed_from_its_file(tmp_path: Path) -> None:
    params = GridworldParams(**{**SMALL, "policy": "clairvoyant", "level": "level_1"})
    assert GridworldWorkload().run(params, context(tmp_path)).status == "succeeded"
    content = json.loads((tmp_path / "run" / "held_out.json").read_text())
    assert len(content["rooms"]) == SMALL["held_out"]
    for room in content["rooms"]:
        task = np.array([int(room["task"])], np.uint64)
        assert task[0] % 2 == 1, "held out"
        worlds = Worlds(find_level(content["level"], content["horizon"]), task)
        for action in room["actions"]:
            worlds.step(np.array([int(action)]), task)
        assert worlds.done[0] and worlds.hearts[0] == room["hearts"] == room["clairvoyant"]


def test_a_policy_is_read_from_its_file(tmp_path: Path) -> None:
    GridworldWorkload().run(GridworldParams(**SMALL), context(tmp_path))
    policy, content = load_policy(tmp_path / "run" / "model.pt")
    assert policy.size == 27_070 and content["level"] == "level_0"
    (tmp_path / "other.pt").write_bytes(b"no")
    with pytest.raises(UsageError, match="not a policy of the workload gridworld"):
        load_policy(tmp_path / "other.pt")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"policy": "trlx"}, "there is no policy 'trlx'; did you mean 'trxl'"),
        ({"level": "leve_0"}, "there is no level 'leve_0'; did you mean 'level_0'"),
        ({"curriculum": "stagd"}, "there is no curriculum 'stagd'; did you mean 'staged'"),
        ({"envs": 100, "minibatches": 8}, "100 environments cannot be divided into 8 equal parts; use 5 minibatches"),
        ({"policy": "random", "held_out": 0}, "random is not trained, so there would be nothing to measure"),
        ({"horizon": 3}, "a horizon of 3 steps is too short"),
        ({"width": 16}, "width"),
    ],
)
def test_bad_parameters_are_reported_before_anything_runs(lab: Lab, params: dict[str, Any], message: str) -> None:
    lab.experiment(f'workload = "gridworld"\n[params]\n{toml(**params)}')
    assert message in lab.look("validate", "trial.toml", code=2).stderr


def test_arms_that_cannot_be_compared_are_reported_before_anything_runs(lab: Lab) -> None:
    arms = '[[arms]]\nname = "small"\nparams = {}\n[[arms]]\nname = "large"\nparams = { width = 64, policy = "trxl" }\n'
    lab.experiment(f'workload = "gridworld"\n[params]\n{toml()}{arms}')
    error = lab.look("validate", "trial.toml", code=2).stderr
    assert "large has 52,353 parameters and small has 27,070" in error and "more than 2 %" in error
    lab.experiment(f'workload = "gridworld"\n[params]\n{toml()}{arms}[analysis]\nmatched = []\n')
    lab.look("validate", "trial.toml")
    lab.experiment(f'workload = "gridworld"\n[params]\n{toml(held_out=0)}')
    assert "the experiment is judged by heldout_hearts" in lab.look("validate", "trial.toml", code=2).stderr
    lab.experiment(f'workload = "gridworld"\n[params]\n{toml(held_out=0)}[analysis]\nmetric = "train_hearts"\n')
    lab.look("validate", "trial.toml")
    lab.experiment(f'workload = "gridworld"\n[params]\n{toml(policy="nowhere:Net")}')
    assert "nowhere" in lab.look("validate", "trial.toml", code=2).stderr


@pytest.mark.parametrize("package", ["torch", "numba"])
def test_without_a_package_the_extra_is_named(lab: Lab, package: str) -> None:
    hide = f"import sys\nsys.modules[{package!r}] = None\nimport importlib.util as u\nreal = u.find_spec\n"
    hide += f"u.find_spec = lambda name, *rest: None if name == {package!r} else real(name, *rest)\n"
    lab.write("hidden/sitecustomize.py", hide)
    lab.environment["PYTHONPATH"] = str(lab.place / "hidden")
    lab.experiment(f'workload = "gridworld"\n[params]\n{toml()}')
    assert install("gridworld") in lab.cli("run", "trial.toml", code=2).stderr
