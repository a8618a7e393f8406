"""Measure training of language models: against TRL's GRPOTrainer, against matrix multiplication, and sampling.

TRL needs a Python with torch and trl. BENCH_TRL_PYTHON names it; without it, a virtual environment is made in build/.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import REPOSITORY, Options, check, machine, options, publish, say, versions, workspace

BARS = {64: (2, 2.0), 128: (4, 1.4)}
"""Width -> (layers, how many times as many steps per processor second as TRL)."""
METHOD = (
    "One thread on both sides. A step: 256 answers of at most 8 tokens to 16 prompts, verified, and one update. Median processor "
    "time of a step, in turns with TRL's; both models are random, so that answers have full length. TRL without reference "
    "model, one update a batch. Training alone: 6 operations for each parameter and token, tokens of shared prompts counted "
    "once, relative to torch's own product of two 512 x 512 float32 matrices. Sampling: tokens of answers at 512 rows. Warm "
    "start: `bakeoff language pretrain` from nothing."
)


def trainer(width: int, layers: int) -> Any:
    """A training from random weights. It gives rewards by chance, as TRL's side does: both must update in each step."""
    import torch

    from bakeoff.workloads.language.model import GPT
    from bakeoff.workloads.language.params import LanguageParams
    from bakeoff.workloads.language.pretrain import shape_of
    from bakeoff.workloads.language.tasks import Task
    from bakeoff.workloads.language.trainer import Trainer

    task = Task("countdown")
    task.reward = lambda prompt, ids: float(hash(tuple(ids)) % 3 == 0)  # type: ignore[method-assign]
    params = LanguageParams(advantage="grpo", width=width, layers=layers, learning_rate=1e-4)
    model = GPT(shape_of(task, width, layers, 4), torch.Generator().manual_seed(0))
    return Trainer(params, task, model, lambda name: np.random.default_rng(abs(hash(name))))


def steps(made: Any, number: int) -> list[float]:
    taken = []
    for _ in range(number):
        began = time.process_time()
        made.advance()
        taken.append(time.process_time() - began)
    return taken


def trl_python() -> str:
    if chosen := os.environ.get("BENCH_TRL_PYTHON"):
        return chosen
    place = REPOSITORY / "build" / "trl"
    if not (place / "bin" / "python").exists():
        say("installing torch and trl for the comparison (once)")
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        wanted = ["torch==2.13.0", "trl==1.16.0"]
        subprocess.run([place / "bin" / "python", "-m", "pip", "install", "--quiet", *wanted], check=True)
    return str(place / "bin" / "python")


def against_trl(given: Options, width: int, layers: int, bar: float) -> tuple[dict[str, Any], dict[str, Any]]:
    made = trainer(width, layers)
    words = list(made.task.vocabulary)
    prompts = [prompt.id for prompt in made.task.prompts("train")]
    number, rounds = (4, 1) if given.quick else (20, 3)
    ours, theirs, size = [], [], 0
    steps(made, 2)
    script = Path(__file__).parent / "peers" / "trl_countdown.py"
    for _ in range(rounds):
        ours += steps(made, number)
        done = subprocess.run(
            [trl_python(), script, str(width), str(layers), str(number + 2)],
            input=json.dumps([words, prompts]), capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        answer = json.loads(done.stdout.splitlines()[-1])
        theirs += answer["seconds"][1:]
        size = answer["parameters"]
    rates = {"bakeoff": 1 / float(np.median(ours)), "TRL": 1 / float(np.median(theirs))}
    line = check(
        f"language: steps per processor second at {made.model.size / 1e6:.2g} M parameters against TRL's GRPOTrainer",
        f"{rates['bakeoff']:.3g}/s", f"{rates['TRL']:.3g}/s", rates["bakeoff"] / rates["TRL"], bar,
    )  # fmt: skip
    return line, {"steps_per_s": rates, "parameters": {"bakeoff": made.model.size, "TRL": size}}


def of_matmul(given: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """Operations of the update alone, as a share of what the processor does in a matrix product."""
    import torch

    made = trainer(64, 2)
    model, optimizer = made.model, made.optimizer
    prompts = torch.tensor([made.task.encode(prompt.words) for prompt in made.task.prompts("train")[:16]])
    ids = torch.randint(1, len(made.task.vocabulary), (256, 8), generator=torch.Generator().manual_seed(1))
    matrix = torch.randn(512, 512, generator=torch.Generator().manual_seed(2))

    def update() -> None:
        logprobs = model.answer_logits(prompts, ids).log_softmax(-1).gather(2, ids[:, :, None])
        (-(logprobs - logprobs.detach()).exp().mean()).backward()
        optimizer.step(1e-4)

    def product() -> None:
        for _ in range(10):
            matrix @ matrix

    times: dict[str, list[float]] = {"update": [], "product": []}
    for _ in range(5 if given.quick else 40):
        for name, work in (("update", update), ("product", product)):
            began = time.process_time()
            work()
            times[name].append(time.process_time() - began)
    tokens = 16 * made.task.prompt_length + 256 * 7
    rates = {
        "training": 6 * model.size * tokens / float(np.median(times["update"])),
        "sgemm": 10 * 2 * 512**3 / float(np.median(times["product"])),
    }
    line = check(
        "language: training as a share of sgemm, 0.11 M parameters", f"{rates['training'] / 1e9:.3g} GFLOP/s",
        f"{rates['sgemm'] / 1e9:.3g} GFLOP/s", rates["training"] / rates["sgemm"], 0.2,
    )  # fmt: skip
    return line, {"flops": rates}


def sampling(given: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    import torch

    from bakeoff.workloads.language.model import sample

    made = trainer(64, 2)
    prompts = torch.tensor([made.task.encode(prompt.words) for prompt in made.task.prompts("train")[:32]])
    draws = np.random.default_rng(0).random((8, 512), dtype=np.float32)
    rates = []
    for _ in range(5 if given.quick else 40):
        began = time.process_time()
        drawn = sample(made.model, prompts, 16, 8, draws)
        rates.append(float(drawn.mask.sum()) / (time.process_time() - began))
    rate = float(np.median(rates))
    return check("language: sampled tokens/s at 512 rows", f"{rate:,.0f}/s", "", rate, 40_000), {"tokens_per_s": rate}


def warm_start() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    from bakeoff.workloads.language.pretrain import shape_of, train
    from bakeoff.workloads.language.tasks import Task

    task = Task("countdown")
    facts = train(task, shape_of(task, 64, 2, 4), 700, 0).facts
    lines = [
        check("language: warm start, processor seconds", f"{facts['processor_s']:.3g} s", "", facts["processor_s"], 40, "under"),
        check("language: warm start, sampled accuracy", f"{facts['train_accuracy']:.3f}", "", facts["train_accuracy"], 0.25),
        check("language: warm start, execution surprisal", f"{facts['train_execution_surprisal']:.3f}", "", facts["train_execution_surprisal"], 0.15, "under"),
    ]  # fmt: skip
    return lines, {"warm_start": facts}


def main() -> None:
    import torch

    given = options(__doc__ or "")
    torch.set_num_threads(1)
    with workspace() as directory:
        facts = machine(directory)
    lines, measured = [], {}
    for width, (layers, bar) in BARS.items():
        line, rates = against_trl(given, width, layers, bar)
        lines.append(line)
        measured[f"width_{width}"] = rates
    for part in (of_matmul, sampling):
        line, rates = part(given)
        lines.append(line)
        measured |= rates
    if not given.quick:
        warm, start = warm_start()
        lines += warm
        measured |= start
    publish("language", given, lines, measured, method=METHOD, facts=facts, programs=versions("torch", "numpy"))


if __name__ == "__main__":
    main()
