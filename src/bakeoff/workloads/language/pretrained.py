"""Models of Hugging Face: a directory with a causal language model and its tokenizer (package transformers).

A prompt is text: a few solved examples, one on each line, and then the task's own words. The model's answer ends with the
line. It is verified as text, so it does not matter how the tokenizer cuts it. Limits: one process, the CPU, 32-bit floats,
all weights trained. A run needs four times the size of the weights for weights, gradients and the optimizer, and an update
computes at most `ROWS` answers at once.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bakeoff.errors import UsageError, install
from bakeoff.workloads.language.model import Policy
from bakeoff.workloads.language.tasks import PAD, Prompt, Task

ROWS = 64
NOTES = "bakeoff.json"
"""Beside the weights of a trained model: the task and the number of examples."""


@dataclass(slots=True)
class Past:
    """The cache of a model, and which of its positions are tokens."""

    layers: Any
    mask: Tensor


class Pretrained(Policy):
    """A model of transformers. It is never in training mode: dropout would make old and new probabilities differ."""

    rows_at_once = ROWS

    def __init__(self, module: Any, ending: Sequence[bool]) -> None:
        super().__init__()
        self.module = module.float().eval()
        self._body, self._head = module.base_model, module.get_output_embeddings()
        self.register_buffer("ending", torch.zeros(self._head.weight.shape[0], dtype=torch.bool), persistent=False)
        self.ending[: len(ending)] = torch.tensor(ending)
        self.flatten()

    def extend(self, tokens: Tensor, cache: Past | None = None) -> tuple[Tensor, Past]:
        from transformers import DynamicCache

        mask = tokens != PAD
        if cache is not None:
            mask = torch.cat((cache.mask, mask), 1)
        places = (mask.cumsum(1) - 1).clamp_min(0)[:, -tokens.shape[1] :]
        read = self._body(
            input_ids=tokens.clamp_min(0),
            attention_mask=mask.long(),
            position_ids=places,
            past_key_values=cache.layers if cache else DynamicCache(config=self.module.config),
            use_cache=True,
        )
        return read.last_hidden_state, Past(read.past_key_values, mask)

    def logits(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self._head(hidden)
        return scores

    def repeated(self, cache: Past, times: int) -> Past:
        cache.layers.batch_repeat_interleave(times)
        return Past(cache.layers, cache.mask.repeat_interleave(times, 0))

    @torch.no_grad()
    def check(self) -> None:
        """Raise UsageError for an architecture whose logits are not its output layer's, because they are scaled or capped."""
        tokens = torch.arange(1, 6)[None] % self.ending.numel()
        own = self.module(tokens).logits
        if not torch.allclose(self.logits(self.extend(tokens)[0]), own, atol=1e-3):
            raise UsageError(
                f"{type(self.module).__name__}: this architecture changes its logits after its output layer"
            )


class Subwords:
    """Prompts and answers of a task as text, in the tokens of a model."""

    def __init__(self, task: Task, tokenizer: Any, shots: int) -> None:
        self._task, self._tokenizer, self.shots = task, tokenizer, shots
        self._examples = "".join(f"{prompt.id} {answer}\n" for prompt, answer in examples(task, shots))

    @cached_property
    def ending(self) -> list[bool]:
        """The end of the text, and every token with a line break."""
        pieces = self._tokenizer.batch_decode([[number] for number in range(len(self._tokenizer))])
        last = self._tokenizer.eos_token_id
        return ["\n" in piece or number == last for number, piece in enumerate(pieces)]

    @cached_property
    def longest_answer(self) -> int:
        answers = [
            " " + " ".join(words) for prompt in self._task.prompts("train") for words, _ in self._task.answers(prompt)
        ]
        return 1 + max(map(len, self._tokenizer(answers, add_special_tokens=False)["input_ids"]))

    def questions(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        read: list[list[int]] = self._tokenizer([self._examples + prompt.id for prompt in prompts])["input_ids"]
        longest = max(map(len, read))
        return [[PAD] * (longest - len(row)) + row for row in read]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        own, pieces, length = self._written(ids), [], 0
        for end in range(1, len(own) + 1):
            text = self._text(own[:end])
            # A part of a character is decoded as U+FFFD: the token that completes it gets the whole character.
            complete = text if end == len(own) else text.rstrip("\ufffd")
            pieces.append(complete[length:])
            length = max(length, len(complete))
        return pieces

    def decode(self, ids: Sequence[int]) -> str:
        return self._text(self._written(ids)).strip()

    def reward(self, prompt: Prompt, ids: Sequence[int]) -> float:
        written = self._written(ids)
        return 0.0 if len(written) == len(ids) else float(self._task.accepts(prompt, self._text(written).split()))

    def _written(self, ids: Sequence[int]) -> list[int]:
        ending = self.ending
        return list(itertools.takewhile(lambda number: number >= len(ending) or not ending[number], ids))

    def _text(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def save(self, model: Pretrained, directory: Path) -> None:
        """A directory that transformers, `bakeoff language play` and the parameter `model` read."""
        weights: dict[str, Tensor] = {}
        for name, value in model.module.state_dict().items():  # all are views of one vector; a tied one is written once
            if not any(value.data_ptr() == other.data_ptr() for other in weights.values()):
                weights[name] = value
        weights = {name: value.clone() for name, value in weights.items()}
        model.module.save_pretrained(directory, state_dict=weights)
        self._tokenizer.save_pretrained(directory)
        (directory / NOTES).write_text(json.dumps({"task": self._task.name, "shots": self.shots}) + "\n")


def examples(task: Task, number: int) -> list[tuple[Prompt, str]]:
    """Solved training prompts, the same for every run, with strategies in turn."""
    solved: list[tuple[Prompt, str]] = []
    for prompt in task.prompts("train")[7::97]:  # they are sorted: neighbours are alike
        answers = task.answers(prompt)
        words, right = answers[len(solved) % len(answers)]
        if len(solved) < number and right:
            solved.append((prompt, " ".join(words)))
    return solved


def notes(path: Path) -> dict[str, Any]:
    """The task and the number of examples that a model was trained with; empty for models from elsewhere."""
    file = path / NOTES
    return dict(json.loads(file.read_text())) if file.is_file() else {}


def check(path: Path) -> None:
    """Raise UsageError unless there is a causal language model. Reads no weights."""
    if find_spec("transformers") is None:  # found without importing it, which takes seconds
        raise UsageError(f"a model by path needs the package transformers: {install('hf')}")
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if not (path / "config.json").is_file():
        what = "no such directory" if not path.is_dir() else "no config.json in it"
        raise UsageError(f"model: {path} is not a directory of a Hugging Face model ({what})")
    try:
        kind = AutoConfig.from_pretrained(path, local_files_only=True).model_type
    except (ValueError, OSError) as error:
        raise UsageError(f"model: {path}/config.json: {str(error).splitlines()[0]}") from error
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise UsageError(f"model: {path} is a model of type {kind!r}, which is not a causal language model")


def load(path: Path, task: Task, shots: int) -> tuple[Pretrained, Subwords, str]:
    """The model, its codec and a digest of its weights. Raises UsageError."""
    check(path)
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        module = AutoModelForCausalLM.from_pretrained(path, local_files_only=True, dtype=torch.float32)
    except (ValueError, OSError, ImportError) as error:
        raise UsageError(f"model: {path} cannot be loaded: {str(error).splitlines()[0]}") from error
    codec = Subwords(task, tokenizer, shots)
    if len(tokenizer) > module.get_output_embeddings().weight.shape[0]:
        raise UsageError(f"model: {path}: its tokenizer has more tokens than the model")
    model = Pretrained(module, codec.ending)
    model.check()
    return model, codec, hashlib.sha256(memoryview(model.flat.numpy())).hexdigest()[:12]  # type: ignore[arg-type]
