"""Warm starts: a model that carries out any plan and mostly does not know which plan fits.

It is trained on all four answers to each training prompt. The right plan gets `KNOWN` of the probability and the rest is
spread evenly, so about 30 to 40 % of sampled answers are right, almost all of the uncertainty is in the plans, and there
is something left to learn by reinforcement.

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

from bakeoff.errors import UsageError
from bakeoff.spec.identity import canonical_json
from bakeoff.workloads.language.model import GPT, Adam, Shape, sample
from bakeoff.workloads.language.tasks import Prompt, Task

FORMAT = "bakeoff-language-model-1"
KNOWN = 0.2
"""How much of a plan's probability goes to the right one; the rest is spread evenly."""
BATCH = 40
"""Prompts of a step, each with its four answers."""
PEAK_RATE = 4e-3
LONGEST_NORM = 1.0
SAMPLE = 256
"""Prompts of each split in the measurement afterwards, with four answers each."""


@dataclass(frozen=True, slots=True)
class WarmStart:
    """A model to start from, with what was measured right after its training."""

    model: GPT
    digest: str
    facts: dict[str, float]


def shape_of(task: Task, width: int, layers: int, heads: int) -> Shape:
    return Shape(len(task.vocabulary), task.prompt_length + task.longest_answer, width, layers, heads)


def train(task: Task, shape: Shape, steps: int, seed: int) -> WarmStart:
    """Train from random weights. Same arguments, same weights to the bit."""
    began = time.process_time()
    model = GPT(shape, torch.Generator().manual_seed(seed))
    rng = np.random.Generator(np.random.Philox(key=seed))
    prompts = task.prompts("train")
    questions = torch.tensor([task.encode(prompt.words) for prompt in prompts])
    solved = [task.answers(prompt) for prompt in prompts]
    longest = task.longest_answer
    answers = torch.tensor([[ids + [0] * (longest - len(ids)) for ids, _ in of_prompt] for of_prompt in solved])
    right = torch.tensor([[float(is_right) for _, is_right in of_prompt] for of_prompt in solved])
    choices = right.shape[1]
    weights = (1 - KNOWN) / choices + KNOWN * right / right.sum(1, keepdim=True)
    optimizer = Adam(model)
    for step in range(steps):
        chosen = torch.from_numpy(rng.integers(0, len(prompts), BATCH))
        rows = answers[chosen].reshape(BATCH * choices, longest)
        logprobs = model.answer_logits(questions[chosen], rows).log_softmax(-1).gather(2, rows[:, :, None])[:, :, 0]
        written = torch.cat((torch.ones(len(rows), 1), (rows[:, :-1] != 0).float()), 1)
        # Only the second word, the strategy, is a choice: it is weighted by its probability, the rest follows from it.
        written[:, 1] = choices * weights[chosen].reshape(-1)
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


def measure(model: GPT, task: Task, prompts: Sequence[Prompt], rng: np.random.Generator) -> dict[str, float]:
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
    identity = [FORMAT, task.digest, asdict(shape), steps, seed, KNOWN, BATCH, PEAK_RATE, torch.__version__]
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
    content = {
        "format": FORMAT,
        "task": task.name,
        "vocabulary": task.digest,
        "shape": asdict(start.model.shape),
        "weights": start.model.flat,
        "facts": start.facts,
    }
    write(path, content)


def write(path: Path, content: dict[str, Any]) -> None:
    """`torch.save` so that after a crash the file is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = torch.load(path, weights_only=True)
        if content["format"] != FORMAT:
            raise ValueError(content["format"])
        return content
    except FileNotFoundError:
        raise UsageError(f"{path}: no such warm start; `bakeoff language pretrain --output FILE` writes one") from None
    except Exception as error:
        raise UsageError(
            f"{path}: not a warm start of `bakeoff language pretrain` ({type(error).__name__}: {str(error)[:80]})"
        ) from error


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
