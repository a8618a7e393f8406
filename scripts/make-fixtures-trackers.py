#!/usr/bin/env python3
"""Write tests/fixtures/<tool>/ with the real tools. Not part of `make test`: its results are committed.

    python3 -m venv /tmp/trackers
    /tmp/trackers/bin/pip install torch==2.13.0 tensorboard stable-baselines3 transformers accelerate wandb optuna \
        pytest-benchmark mlflow-skinny sqlalchemy alembic trackio
    python3 -m venv /tmp/verifiers && /tmp/verifiers/bin/pip install verifiers    # for `verifiers` alone, run with its python
    python3 -m venv /tmp/verifiers01 && /tmp/verifiers01/bin/pip install 'verifiers<0.2'    # for `verifiers01`
    python3.12 -m venv /tmp/nemo && /tmp/nemo/bin/pip install nemo-evaluator scipy            # for `nemo`
    python3.12 -m venv /tmp/lerobot && /tmp/lerobot/bin/pip install "lerobot[evaluation]"     # for `lerobot`
    npm install --prefix /tmp/trackers promptfoo
    apt-get install hyperfine
    /tmp/trackers/bin/python scripts/make-fixtures-trackers.py [TOOL ...]

`TRACKERS` names another directory than /tmp/trackers. Scores are arithmetic of arm, task and repeat, so tests can repeat them
by hand; ids, times and host names are those of the machine that ran this.

The two lines with python3.12 were not run as they stand: the committed files of `nemo` come from its unpacked wheel on Python 3.11,
those of `lerobot` from a copy whose 3.12 syntax was rewritten for 3.11.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRACKERS = Path(os.environ.get("TRACKERS", "/tmp/trackers"))
FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures"

PROVIDER = """
class Adder {
  constructor(options) { this.config = options.config || {}; this.calls = {}; }
  id() { return 'adder'; }
  async callApi(prompt, context) {
    const { a, b } = context.vars;
    const call = (this.calls[a] = (this.calls[a] || 0) + 1);
    if (this.config.down && a === 5) return { error: 'API call error: connect ECONNREFUSED 127.0.0.1:9\\nsecond line' };
    if (this.config.crash && a === 6) throw new Error('cannot add these numbers');
    const wrong = (a + call) % 5 < this.config.slip;
    return { output: String(a + b + (wrong ? 1 : 0)), tokenUsage: { total: 10 + a, prompt: 8, completion: 2 + a }, cost: 0.001 * a };
  }
}
module.exports = Adder;
"""


def promptfoo(target: Path) -> None:
    """Six additions, three repeats, two settings of one provider; one arm loses its connection, the other one throws.

    The first two tests have no description, and the fifth and sixth differ in their assertions and variables.
    """
    work = Path(tempfile.mkdtemp())
    (work / "adder.cjs").write_text(PROVIDER)
    tests: list[dict[str, object]] = []
    for a in range(1, 7):
        test: dict[str, object] = {
            "vars": {"a": a, "b": a % 3},
            "assert": [
                {"type": "equals", "value": str(a + a % 3)},
                {"type": "javascript", "value": "output.length < 4", "metric": "brevity"},
            ],
        }
        if a > 2:
            test["description"] = f"sum {a}" if a < 5 else "large sum"
        tests.append(test)
    providers = [
        {"id": "file://adder.cjs", "label": "careful", "config": {"slip": 1, "down": True}},
        {"id": "file://adder.cjs", "label": "hasty", "config": {"slip": 3, "crash": True}},
    ]
    config = {
        "description": "additions",
        "prompts": [{"raw": "Add {{a}} and {{b}}.", "label": "plain"}],
        "providers": providers,
        "tests": tests,
    }
    (work / "promptfooconfig.json").write_text(json.dumps(config))
    quiet = {f"PROMPTFOO_DISABLE_{what}": "1" for what in ("TELEMETRY", "UPDATE", "REMOTE_GENERATION")}
    program = TRACKERS / "node_modules" / ".bin" / "promptfoo"
    outputs = [argument for name in ("eval.json", "eval.jsonl") for argument in ("-o", str(target / name))]
    subprocess.run(
        [program, "eval", "--repeat", "3", "--no-cache", "--no-progress-bar", "--no-table", *outputs],
        cwd=work, env=os.environ | quiet | {"PROMPTFOO_CONFIG_DIR": str(work / "home")},
    )  # fmt: skip  # exit code 100: some tests failed
    with gzip.open(target / "promptfoo.db.gz", "wb") as file:
        file.write((work / "home" / "promptfoo.db").read_bytes())
    for name in ("eval.json", "eval.jsonl"):  # stack traces have paths of this machine
        path = target / name
        path.write_text(path.read_text().replace(str(work), "/work").replace(str(TRACKERS), "/trackers"))


def wandb(target: Path) -> None:
    """Two groups of four seeds with random names; in `new` seed 3 fails, and in `old` seed 3 is still running.

    `old` with seed 2 is resumed at step 20: its second file has other values from there on.
    """
    import wandb

    os.environ["WANDB_SILENT"] = "true"
    work = Path(tempfile.mkdtemp())
    quiet = {
        "x_disable_stats": True, "x_disable_meta": True, "x_disable_machine_info": True, "console": "off",
        "disable_code": True, "disable_git": True, "host": "host", "username": "user",
    }  # fmt: skip

    def record(arm: str, seed: int, steps: range, shift: float = 0.0, code: int = 0, **options: object) -> None:
        run = wandb.init(
            mode="offline", project="mazes", group=arm, config={"seed": seed, "task": "maze", "optimizer": {"lr": 0.1}},
            dir=work, settings=wandb.Settings(**quiet), **options,
        )  # fmt: skip
        for step in steps:
            loss = float("nan") if step == 30 else 1 / (1 + step)
            run.log(
                {"eval/reward": wandb_reward(arm, seed, step) + shift, "loss": loss, "inner": {"x": step}}, step=step
            )
        if code is None:
            file = next(Path(run.dir).parent.glob("*.wandb"))
            size = -1
            while size != (size := file.stat().st_size) or size < 1000:
                time.sleep(2)  # its own process writes the file
            keep = target / file.parent.name / file.name
            keep.parent.mkdir()
            shutil.copy(file, keep)
        run.finish(exit_code=code or 0)

    for seed in range(4):
        for arm in ("old", "new"):
            resumed = (arm, seed) == ("old", 2)
            code = {("new", 3): 1, ("old", 3): None}.get((arm, seed), 0)
            options = {"id": "resumed1", "resume": "allow"} if resumed else {}
            record(arm, seed, range(0, 50, 10), shift=9.0 if resumed else 0.0, code=code, **options)
            if resumed:
                record(arm, seed, range(20, 50, 10), **options)
    wandb.teardown()
    kept = {path.name for path in target.iterdir()}
    for file in work.glob("wandb/*run-*/*.wandb"):
        if not any(name.endswith(file.stem.removeprefix("run-")) for name in kept):
            (target / file.parent.name).mkdir(exist_ok=True)
            shutil.copy(file, target / file.parent.name / file.name)


def wandb_reward(arm: str, seed: int, step: int) -> float:
    return step / 10 + seed / 4 + (0.5 + seed / 8 if arm == "new" else 0.0)


def tensorboard(target: Path) -> None:
    """Two arms of four seeds, by torch's writer: return 10 * step + seed, and `fast` 4 + seed more.

    `fast` with seed 1 is resumed at step 2 (100 more was written before); seed 0 has hyperparameters and `add_scalars`.
    """
    from torch.utils.tensorboard import SummaryWriter

    def write(directory: Path, arm: str, seed: int, steps: range, shift: float = 0.0) -> None:
        with SummaryWriter(str(directory)) as writer:
            for step in steps:
                gain = 4 + seed if arm == "fast" else 0
                writer.add_scalar("charts/episodic_return", 10 * step + seed + gain + shift, step)
                writer.add_scalar("losses/value", 1 / (1 + step), step)
            if seed == 0:
                writer.add_scalars("parts", {"first": 1.0, "second": 2.0}, 0)
                writer.add_hparams({"lr": 0.1, "seed": seed}, {"charts/episodic_return": -1000.0})

    for arm in ("slow", "fast"):
        for seed in range(4):
            directory = target / f"{arm}_s{seed}"
            resumed = (arm, seed) == ("fast", 1)
            write(directory, arm, seed, range(5), 100.0 if resumed else 0.0)
            if resumed:
                time.sleep(1.1)  # the name of the file has the second
                write(directory, arm, seed, range(2, 5))


def sb3(target: Path) -> None:
    """PPO of Stable-Baselines3 in a world where every step of an episode of four gives 1 + seed, and 1 more with `shaped`."""
    import gymnasium
    import numpy as np
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.monitor import Monitor

    class Steps(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,))
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, reward: float = 1.0) -> None:
            self.reward, self.steps = reward, 0

        def reset(self, **_: object) -> tuple[np.ndarray, dict]:
            self.steps = 0
            return np.zeros(1, dtype=np.float32), {}

        def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
            self.steps += 1
            return np.zeros(1, dtype=np.float32), self.reward, self.steps == 4, False, {}

    gymnasium.register("Steps-v0", Steps)
    for arm in ("plain", "shaped"):
        for seed in range(4):
            directory = target / arm / f"seed_{seed}"
            directory.mkdir(parents=True)
            reward = 1.0 + seed + (arm == "shaped")
            monitored = Monitor(gymnasium.make("Steps-v0", reward=reward), str(directory / ""))
            evaluated = Monitor(gymnasium.make("Steps-v0", reward=reward))
            evaluation = EvalCallback(evaluated, eval_freq=16, n_eval_episodes=2, log_path=str(directory), verbose=0)
            PPO("MlpPolicy", monitored, n_steps=16, batch_size=16, n_epochs=1, seed=seed).learn(32, callback=evaluation)


def hf_trainer(target: Path) -> None:
    """Hugging Face's Trainer on a line through five points, six steps, two learning rates, four seeds."""
    import torch
    from transformers import Trainer, TrainingArguments

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": ((self.slope * x - labels) ** 2).mean(), "logits": self.slope * x}

    points = [{"x": torch.tensor([x / 5]), "labels": torch.tensor([2 * x / 5])} for x in range(5)]
    for arm, rate in (("low", 0.01), ("high", 0.1)):
        for seed in range(4):
            work = Path(tempfile.mkdtemp())
            settings = TrainingArguments(
                str(work), max_steps=6, logging_steps=1, save_steps=2, eval_strategy="steps", eval_steps=2, seed=seed,
                learning_rate=rate, report_to=[], disable_tqdm=True, per_device_train_batch_size=2, use_cpu=True,
            )  # fmt: skip
            trainer = Trainer(Line(), settings, train_dataset=points, eval_dataset=points)
            trainer.train()
            trainer.save_state()
            for state in work.rglob("trainer_state.json"):
                copy = target / f"{arm}_seed{seed}" / state.relative_to(work)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(state, copy)


def hyperfine(target: Path) -> None:
    """Two sleeps of two lengths, ten runs each; and a command that fails."""
    scan = ["-L", "n", "1,2", "sleep 0.0{n}", "sleep 0.00{n}", "-r", "10"]
    subprocess.run(["hyperfine", "-N", *scan, "--export-json", target / "sleeps.json"], check=True)
    failing = ["-i", "-r", "3", "true", "false"]
    subprocess.run(["hyperfine", "-N", *failing, "--export-json", target / "failing.json"], check=True)


BENCHMARKS = """
import pytest

@pytest.mark.parametrize("n", range(8))
def test_sum(benchmark, n):
    benchmark.pedantic(sum, (range(FACTOR * 1000 * (n + 1)),), rounds=5)
"""


def pytest_benchmark(target: Path) -> None:
    """Eight sums of a first and of a second commit, which sums five times as much."""
    work = Path(tempfile.mkdtemp())
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=work, check=True)
    for name, factor in (("first", 1), ("second", 5)):
        (work / "test_sums.py").write_text(BENCHMARKS.replace("FACTOR", str(factor)))
        subprocess.run([*git, "add", "test_sums.py"], cwd=work, check=True)
        subprocess.run([*git, "commit", "-qm", name], cwd=work, check=True)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--benchmark-json={target / name}.json",
        ]
        subprocess.run(command, cwd=work, check=True)


def optuna(target: Path) -> None:
    """A grid of four by two in two studies, in a database and in a journal: x, and 2 + x/4 more with `new`.

    In `new` one trial is pruned after it reported 99, one fails, and one is infinite in `wild`, which shares no parameters.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    work = Path(tempfile.mkdtemp())
    storages = [f"sqlite:///{work / 'studies.db'}", JournalStorage(JournalFileBackend(str(target / "studies.log")))]
    grid = {"x": [1, 2, 3, 4], "kind": ["a", "b"]}
    for storage in storages:
        for name in ("old", "new"):

            def score(trial: optuna.Trial, name: str = name) -> float:
                x, kind = trial.suggest_int("x", 1, 4), trial.suggest_categorical("kind", ["a", "b"])
                if (name, x, kind) == ("new", 4, "b"):
                    trial.report(99.0, 0)
                    raise optuna.TrialPruned
                if (name, x, kind) == ("new", 3, "b"):
                    raise ValueError("diverged")
                return x + (2 + x / 4 if name == "new" else 0)

            sampler = optuna.samplers.GridSampler(grid, seed=0)
            study = optuna.create_study(storage=storage, study_name=name, direction="maximize", sampler=sampler)
            study.set_metric_names(["accuracy"])
            study.optimize(score, n_trials=8, catch=(ValueError,))
    with gzip.open(target / "studies.db.gz", "wb") as file:
        file.write((work / "studies.db").read_bytes())
    wild = optuna.create_study(storage=f"sqlite:///{work / 'wild.db'}", study_name="wild")
    wild.optimize(lambda trial: float("inf") if trial.number == 1 else trial.suggest_float("y", 0, 1), n_trials=3)
    with gzip.open(target / "wild.db.gz", "wb") as file:
        file.write((work / "wild.db").read_bytes())


def mlflow(target: Path) -> None:
    """Two arms of four seeds in a database and as files: reward step + seed, `new` has 1 + seed/4 more; `new` with seed 3 fails.

    `old` with seed 2 has NaN at step 1, `old` with seed 0 an infinite `norm`, and `old` with seed 3 was killed.
    """
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    work = Path(tempfile.mkdtemp())
    for store in (f"sqlite:///{work / 'mlflow.db'}", (work / "mlruns").as_uri()):
        mlflow.set_tracking_uri(store)
        mlflow.set_experiment("mazes")
        for arm in ("old", "new"):
            for seed in range(4):
                mlflow.start_run(run_name=f"{arm}_s{seed}")
                mlflow.log_params({"seed": seed, "task": "maze"})
                for step in range(3):
                    reward = step + seed + (1 + seed / 4 if arm == "new" else 0)
                    mlflow.log_metric(
                        "eval/reward", float("nan") if (arm, seed, step) == ("old", 2, 1) else reward, step
                    )
                mlflow.log_metric("norm", float("inf") if (arm, seed) == ("old", 0) else 1.0)
                mlflow.end_run({("new", 3): "FAILED", ("old", 3): "KILLED"}.get((arm, seed), "FINISHED"))
    with gzip.open(target / "mlflow.db.gz", "wb") as file:
        file.write((work / "mlflow.db").read_bytes())
    shutil.copytree(work / "mlruns", target / "mlruns", ignore=shutil.ignore_patterns("tags", ".trash"))


def verifiers(target: Path) -> None:
    """Episodes as verifiers' own models and writer write them: an eval needs a model's server. Two models, six tasks, two rollouts.

    `small` is right on even tasks, `large` on all but the last. Of `small` the first rollout of task 5 lost its server, the second one
    was refused as too long; of `large` the last task's harness crashed.
    """
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.episode import EnvInfo, Episode
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.task import TaskData
    from verifiers.v1.trace import AgentInfo, Error, Reward, Trace, TraceTask
    from verifiers.v1.types import AssistantMessage, UserMessage
    from verifiers.v1.utils.trace_store import write_episode

    for model in ("small", "large"):
        directory = target / f"sums--{model}"
        directory.mkdir()
        for index in range(6):
            for rollout in range(2):
                task = TraceTask(type="Sum", data=TaskData(idx=index, prompt=f"Add {index} and 1."), key=f"sum-{index}")
                error = None
                if (model, index) == ("small", 5):
                    error = Error(type="ProviderError", message="refused", status_code=(503, 400)[rollout])
                elif (model, index) == ("large", 5):
                    error = Error(type="HarnessError", message="exit code 1")
                right = float(model == "large" or index % 2 == 0)
                rewards = (
                    {"right": None} if error else {"right": Reward(score=right), "style": Reward(score=1, weight=0.5)}
                )
                nodes = [MessageNode(message=UserMessage(content=task.data.prompt))]
                if error is None:
                    answer = AssistantMessage(content=str(index + (1 if right else 2)))
                    nodes.append(MessageNode(parent=0, message=answer, sampled=True))
                trace = Trace(
                    nodes=nodes, task=task, agent=AgentInfo(config=AgentConfig(model=model)), rewards=rewards, is_completed=True,
                    metrics={"turns": 1.0 + index}, ok=error is None, errors=[error] if error else [],
                )  # fmt: skip
                episode = Episode(env=EnvInfo(id="sums"), task=task, traces=[trace], ok=error is None)
                write_episode(directory, episode)


def verifiers01(target: Path) -> None:
    """Rollouts as the functions of verifiers 0.1 save them: two models, six examples, two rollouts, scores as in `verifiers`.

    Both rollouts of the last example have an error: ModelError and OverlongPromptError of `small`, ToolCallError of `large`.
    """
    from verifiers import errors
    from verifiers.types import RolloutTiming, State
    from verifiers.utils.save_utils import save_metadata, save_outputs, state_to_output

    for model in ("small", "large"):
        outputs = []
        for example in range(6):
            for rollout in range(2):
                error = None
                if example == 5:
                    kinds = {"small": ("ModelError", "OverlongPromptError"), "large": ("ToolCallError",) * 2}
                    error = getattr(errors, kinds[model][rollout])("no answer")
                right = float(model == "large" or example % 2 == 0)
                answer = {"role": "assistant", "content": str(example + (1 if right else 2))}
                state = State(
                    example_id=example, prompt=[{"role": "user", "content": f"Add {example} and 1."}],
                    completion=[] if error else [answer],
                    reward=0.0 if error else right, metrics={} if error else {"right": right}, timing=RolloutTiming(),
                    is_completed=True, error=error,
                )  # fmt: skip
                outputs.append(state_to_output(state))
        directory = target / f"sums--{model}" / "abc"
        save_outputs(outputs, directory)
        average = sum(output["reward"] for output in outputs) / 12
        metadata = {
            "env_id": "sums", "env_args": {}, "model": model, "base_url": "http://localhost", "num_examples": 6,
            "rollouts_per_example": 2, "sampling_args": {"temperature": 1.0}, "date": "", "time": 1.0, "avg_reward": average,
            "path_to_save": directory,
        }  # fmt: skip
        save_metadata(metadata, directory)


def trackio(target: Path) -> None:
    """Two arms of four seeds in the database of a project: rewards as in `mlflow`, NaN and the infinity, too.

    `new` with seed 3 stops before step 2: trackio does not store how a run ended.
    """
    work = Path(tempfile.mkdtemp())
    os.environ["TRACKIO_DIR"] = str(work)
    import trackio

    for arm in ("old", "new"):
        for seed in range(4):
            config = {"seed": seed, "task": "maze", "net": {"width": 3}}
            trackio.init("mazes", f"{arm}_s{seed}", config=config, embed=False, auto_log_gpu=False, auto_log_cpu=False)
            norm = float("inf") if (arm, seed) == ("old", 0) else 1.0
            trackio.log({"norm": norm, "note": "text", "nested": {"a": 1.0}}, step=0)
            for step in range(2 if (arm, seed) == ("new", 3) else 3):
                reward = step + seed + (1 + seed / 4 if arm == "new" else 0)
                trackio.log({"eval/reward": float("nan") if (arm, seed, step) == ("old", 2, 1) else reward}, step=step)
            trackio.finish()
    with gzip.open(target / "mazes.db.gz", "wb") as file:
        file.write((work / "mazes.db").read_bytes())


def nemo(target: Path) -> None:
    """NeMo Evaluator's own loop and writer, without a model's server: two models, six problems, two attempts, scores as in `verifiers`.

    Of `small` the first attempt at problem 5 lost its server and the second one gave no answer; `large` ran out of turns there.
    """
    from nemo_evaluator.engine.artifacts import write_all
    from nemo_evaluator.engine.eval_loop import run_evaluation
    from nemo_evaluator.environments.base import EvalEnvironment, SeedResult, VerifyResult
    from nemo_evaluator.errors import GracefulError
    from nemo_evaluator.solvers.base import ErrorKind, SolveResult

    class Sums(EvalEnvironment):
        name = "sums"

        async def dataset_size(self) -> int:
            return 6

        async def seed(self, idx: int) -> SeedResult:
            return SeedResult(prompt=f"Add {idx} and 1.", expected_answer=str(idx + 1))

        async def verify(self, response: str, expected: str, sandbox: object = None, **_: object) -> VerifyResult:
            return VerifyResult(float(response == expected), response, {"method": "exact"})

    class Model:
        def __init__(self, name: str) -> None:
            self.name, self.lost = name, False

        async def solve(self, task: SeedResult) -> SolveResult:
            number = int(task.prompt.split()[1])
            if number == 5 and self.name == "large":
                raise GracefulError("turn budget exhausted")
            if number == 5:
                self.lost = not self.lost
                kind, error = (ErrorKind.INFRA, "503") if self.lost else (ErrorKind.GRACEFUL, "no answer")
                return SolveResult("", error=error, error_kind=kind)
            return SolveResult(str(number + 1) if self.name == "large" or number % 2 == 0 else "0")

    for model in ("small", "large"):
        config = {"benchmark": "sums", "model": model, "base_url": "http://localhost", "repeats": 2, "scorers": None}
        bundle = asyncio.run(run_evaluation(Sums(), Model(model), 2, config=config, max_concurrent=1))
        del bundle["_artifacts"]  # trajectories
        write_all(bundle, target / model / "sums")


def lerobot(target: Path) -> None:
    """Episodes with made-up results, put together by LeRobot's own functions: two policies, two suites of four and two tasks, four episodes.

    The first episodes of a task succeed: as many as are listed. The reward is the episode's number, and 10 more with success.
    """
    from lerobot.scripts import lerobot_eval

    class Task:
        def __init__(self, successes: int) -> None:
            self.successes = successes

        def close(self) -> None:
            pass

    class Policy:
        training = False

        def eval(self) -> None:
            pass

        def train(self, mode: bool) -> None:
            pass

    def episodes(env: Task, **_: object) -> dict[str, list[dict[str, object]]]:
        rewards = [float(number + 10 * (number < env.successes)) for number in range(4)]
        return {
            "per_episode": [
                {"sum_reward": reward, "max_reward": reward / 2, "success": reward >= 10, "seed": 1000 + number}
                for number, reward in enumerate(rewards)
            ]
        }

    lerobot_eval.eval_policy = episodes
    counts = {"act": ((1, 1, 2, 2), (1, 1)), "pi0": ((3, 4, 3, 4), (3, 3))}
    steps = dict.fromkeys(("env_preprocessor", "env_postprocessor", "preprocessor", "postprocessor"))
    for policy, suites in counts.items():
        envs = {
            name: {number: Task(count) for number, count in enumerate(tasks)}
            for name, tasks in zip(("libero_spatial", "libero_goal"), suites, strict=True)
        }
        info = lerobot_eval.eval_policy_all(envs, Policy(), n_episodes=4, start_seed=1000, **steps)
        directory = target / "2026-01-01" / f"12-00-00_libero_{policy}"  # as `lerobot-eval` names it
        directory.mkdir(parents=True)
        (directory / "eval_info.json").write_text(json.dumps(info, indent=2))


TOOLS = {
    "promptfoo": promptfoo, "wandb": wandb, "tensorboard": tensorboard, "sb3": sb3, "hf_trainer": hf_trainer,
    "hyperfine": hyperfine, "pytest_benchmark": pytest_benchmark, "optuna": optuna, "mlflow": mlflow, "verifiers": verifiers, "verifiers01": verifiers01,
    "trackio": trackio, "nemo": nemo, "lerobot": lerobot,
}  # fmt: skip


def main() -> None:
    for tool in sys.argv[1:] or TOOLS:
        target = FIXTURES / tool
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        TOOLS[tool](target)
        size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        print(f"{tool}: {size:,} bytes")


if __name__ == "__main__":
    main()
