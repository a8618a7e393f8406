"""Warm starts: a model that carries out any plan and mostly does not know which plan fits.

It is trained on the answers of all plans to each training prompt. Strategies that lead to a right answer get some of the
probability (`Plan.known`) and the rest is spread evenly, so about 30 to 40 % of sampled answers are right, almost all of the
uncertainty is in the plans, and there is something left to learn by reinforcement.

A warm start that is not finished collapses under normal learning rates; `execution_surprisal` shows whether it is. Runs share
warm starts through a cache directory. The name of a file is a digest of everything that decides its weights.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bakeoff.errors import UsageError
from bakeoff.spec.identity import canonical_json
from bakeoff.workloads.language.model import GPT, Policy, Shape, adam, sample
from bakeoff.workloads.language.tasks import END, Codec, Prompt, Task
from bakeoff.workloads.training.files import read_tensors, save_tensors

FORMAT = "bakeoff-language-model-1"
BATCH = 160
"""Answers of a step, all of each prompt's."""
PEAK_RATE = 4e-3
LONGEST_NORM = 1.0
SAMPLE = 256
"""Prompts of each split in the measurement afterwards, with four answers each."""


@dataclass(frozen=True, slots=True)
class WarmStart:
    """A model to start from, with what was measured right after its training."""

    model: Policy
    digest: str
    facts: dict[str, float]
    codec: Codec | None = None
    """How a model by path reads and writes; None for words."""


def shape_of(task: Task, width: int, layers: int, heads: int) -> Shape:
    return Shape(len(task.vocabulary), task.prompt_length + task.longest_answer, width, layers, heads)


def train(task: Task, shape: Shape, steps: int, seed: int) -> WarmStart:
    """Train from random weights. Same arguments, same weights to the bit."""
    began = time.process_time()
    model = GPT(shape, torch.Generator().manual_seed(seed))
    rng = np.random.Generator(np.random.Philox(key=seed))
    prompts = task.prompts("train")
    questions = torch.tensor([task.encode(prompt.words) for prompt in prompts])
    longest = task.longest_answer
    solved = [task.answers(prompt) for prompt in prompts]
    encoded = [[task.encode([*words, END]) for words, _ in of_prompt] for of_prompt in solved]
    answers = torch.tensor([[ids + [0] * (longest - len(ids)) for ids in of_prompt] for of_prompt in encoded])
    right = torch.tensor([[float(is_right) for _, is_right in of_prompt] for of_prompt in solved])
    places, weights = choices(task, answers, right)
    optimizer = adam(model)
    size = BATCH // answers.shape[1]
    for step in range(steps):
        chosen = torch.from_numpy(rng.integers(0, len(prompts), size))
        rows = answers[chosen].flatten(0, 1)
        logprobs = model.answer_logits(questions[chosen], rows).log_softmax(-1).gather(2, rows[:, :, None])[:, :, 0]
        written = torch.cat((torch.ones(len(rows), 1), (rows[:, :-1] != 0).float()), 1)
        # Only strategies are choices: each is weighted by its probability, the rest follows from it.
        written.scatter_(1, places[chosen].flatten(0, 1), weights[chosen].flatten(0, 1))
        loss = -(logprobs * written).sum(1).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        model.flat_gradient.mul_(min(1.0, LONGEST_NORM / (float(model.flat_gradient.norm()) + 1e-6)))
        progress = step / steps
        optimizer.step(PEAK_RATE * min(1.0, (step + 1) / 50) * (0.5 + 0.5 * math.cos(math.pi * progress)) + 1e-5)
    facts = {"processor_s": time.process_time() - began, "parameters": float(model.size)}
    for split in ("train", "heldout"):
        own = task.prompts(split)
        picked = [own[number] for number in rng.choice(len(own), min(SAMPLE, len(own)), replace=False)]
        facts |= {f"{split}_{name}": value for name, value in measure(model, task, picked, rng).items()}
    return WarmStart(model, "", facts)


def choices(task: Task, answers: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Where the strategies stand in `answers` [prompts, answers, tokens], and their weights in the loss.

    Both are [prompts, answers, plans]. A weight is the probability that a warm start should give to the strategy after the
    ones before it, times the number of strategies, because the mean over all answers is taken.
    """
    plans = task.rules.plans
    tree = right.view(-1, *(len(plan.strategies) for plan in plans))
    weights = []
    for depth, plan in enumerate(plans, 1):
        later = tuple(range(depth + 1, tree.dim()))
        leads = tree.amax(later, keepdim=True) if later else tree  # 1 if a right answer can still be reached
        total, number = leads.sum(depth, keepdim=True), len(plan.strategies)
        aimed = (1 - plan.known) / number + plan.known * leads / total
        weights.append(number * torch.where(total > 0, aimed, torch.tensor(1 / number)).expand_as(tree).flatten(1))
    starts = torch.tensor([task.ids[plan.word] for plan in plans])
    # A plan's word comes right before its strategy, and occurs once.
    places = (answers[:, :, :, None] == starts).int().argmax(2) + 1
    return places, torch.stack(weights, 2)


def measure(model: Policy, task: Task, prompts: Sequence[Prompt], rng: np.random.Generator) -> dict[str, float]:
    """Accuracy, sampled (four answers to each prompt) and greedy, and the surprisal of execution and plan tokens."""
    questions = torch.tensor([task.encode(prompt.words) for prompt in prompts])
    group, longest = 4, task.longest_answer
    drawn = sample(model, questions, group, longest, rng.random((longest, group * len(prompts)), dtype=np.float32))
    greedy = sample(model, questions, 1, longest, None)
    planning = torch.isin(drawn.ids, torch.tensor(task.planning_ids)) & (drawn.mask > 0)
    execution = ~planning & (drawn.mask > 0)
    rewards = [task.reward(prompts[row // group], ids) for row, ids in enumerate(drawn.ids.tolist())]
    return {
        "accuracy": float(np.mean(rewards)),
        "greedy": float(np.mean([task.reward(p, ids) for p, ids in zip(prompts, greedy.ids.tolist(), strict=True)])),
        "execution_surprisal": -float(drawn.logprobs[execution].mean()) if execution.any() else math.nan,
        "plan_surprisal": -float(drawn.logprobs[planning].mean()) if planning.any() else math.nan,
    }


# -- files


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bakeoff" / "language"


def cached(task: Task, shape: Shape, steps: int, seed: int) -> WarmStart:
    """The warm start of these arguments, trained when the cache does not have it.

    Runs in parallel wait for the first: a lock, which the kernel releases when its holder dies, guards the training.
    """
    identity = [
        FORMAT,
        task.digest,
        asdict(shape),
        steps,
        seed,
        [plan.known for plan in task.rules.plans],
        BATCH,
        PEAK_RATE,
        torch.__version__,
    ]
    path = cache_directory() / f"{hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:16]}.pt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                save(train(task, shape, steps, seed), task, path)
    return load(path, task)


def save(start: WarmStart, task: Task, path: Path) -> None:
    """Write the model atomically."""
    assert isinstance(start.model, GPT)
    content = {
        "format": FORMAT,
        "task": task.name,
        "vocabulary": task.digest,
        "shape": asdict(start.model.shape),
        "weights": start.model.flat,
        "facts": start.facts,
    }
    save_tensors(path, content)


def _read(path: Path) -> dict[str, Any]:
    missing = "no such warm start; `bakeoff language pretrain --output FILE` writes one"
    return read_tensors(path, (FORMAT,), "a warm start of `bakeoff language pretrain`", missing)


def task_of(path: Path) -> str:
    """The name of the task that a model was trained on. Raises UsageError."""
    return str(_read(path)["task"])


def load(path: Path, task: Task) -> WarmStart:
    """Read a model. Raises UsageError for another file, and for a model of another task."""
    content = _read(path)
    if content["vocabulary"] != task.digest:
        raise UsageError(
            f"{path}: a warm start of the task {content['task']!r} with another vocabulary; the run's task is "
            f"{task.name!r}. Train one with `bakeoff language pretrain --task {task.name} --output FILE`"
        )
    model = GPT(Shape(**content["shape"]), torch.Generator())
    model.flat.copy_(content["weights"])
    digest = hashlib.sha256(model.flat.numpy().tobytes()).hexdigest()[:12]
    return WarmStart(model, digest, content["facts"])
