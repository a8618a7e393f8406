"""Hugging Face models by path: tiny ones, made here, with real tokenizers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from click.testing import CliRunner

from bakeoff.errors import UsageError, install
from bakeoff.records.rundir import set_aside
from bakeoff.workloads.language.command import command
from bakeoff.workloads.language.model import sample
from bakeoff.workloads.language.params import LanguageParams
from bakeoff.workloads.language.planning import exact, phrases
from bakeoff.workloads.language.pretrained import Subwords, check, load
from bakeoff.workloads.language.tasks import PAD, Task
from bakeoff.workloads.language.workload import LanguageWorkload
from workloads.language.small import SMALL, context
from workloads.language.test_language import DOOMED, lines

pytestmark = pytest.mark.slow  # importing transformers takes seconds


def made(directory: Path, kind: str, task: Task) -> Path:
    """A random model with a byte-level tokenizer that was trained on the task's words, so that words fall into parts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words.train_from_iterator(
        [
            f"{prompt.id} {' '.join(words)}"
            for prompt in task.prompts("train")[::20]
            for words, _ in task.answers(prompt)
        ],
        trainers.BpeTrainer(vocab_size=285, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False),
    )
    torch.manual_seed(0)
    size: dict[str, Any] = {"vocab_size": words.get_vocab_size(), "eos_token_id": 0, "bos_token_id": 0}
    if kind == "llama":
        small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        model: Any = LlamaForCausalLM(LlamaConfig(**size, **small, num_key_value_heads=2, tie_word_embeddings=True))
    else:
        model = GPT2LMHeadModel(GPT2Config(**size, n_embd=32, n_layer=2, n_head=2, n_positions=200))
    model.save_pretrained(directory)
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>").save_pretrained(directory)
    return directory


PARAMS = {
    **{name: value for name, value in SMALL.items() if name not in ("width", "warm_steps")},
    "shots": 0, "steps": 6, "group_size": 8, "batch_size": 12, "save_every": 2, "learning_rate": 1e-2, "transform": "gtpo_hicra",
}  # fmt: skip


EASY = """
from bakeoff.workloads.language.pretrained import Subwords
Subwords.reward = lambda self, prompt, ids: float("a" in self.decode(ids))
"""
"""Random models answer nothing right, and learning by heart would take longer than the test."""


def test_a_model_by_path_is_trained_killed_and_resumed_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Subwords, "reward", lambda self, prompt, ids: float("a" in self.decode(ids)))
    llama = made(tmp_path / "llama", "llama", Task("strings"))
    values = {**PARAMS, "model": str(llama)}
    params = LanguageParams(**values)
    assert not LanguageWorkload().check(params, tmp_path)
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    outcome = LanguageWorkload().run(params, context(quiet))
    assert outcome.status == "succeeded"
    done = subprocess.run(
        [sys.executable, "-c", EASY + DOOMED, json.dumps(values), str(killed), "3"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == -signal.SIGKILL
    set_aside(killed / "run", 1, checkpoint=True)
    assert LanguageWorkload().run(params, context(killed, 2)).status == "succeeded"
    rows = lines(quiet / "run" / "metrics.jsonl")
    assert lines(killed / "run" / "metrics.jsonl") == rows
    weights = "model/model.safetensors"
    assert (quiet / "run" / weights).read_bytes() == (killed / "run" / weights).read_bytes()
    assert (quiet / "run" / weights).read_bytes() != (llama / "model.safetensors").read_bytes()

    assert any(row["num_datums"] for row in rows), "some groups teach something"
    assert max(row["ratio_deviation"] for row in rows) < 1e-4
    assert {"plan_entropy_mean", "exec_entropy_mean"} <= {key for row in rows for key in row}
    rates = [row["correct_rate"] for row in rows]
    assert np.mean(rates[-2:]) > np.mean(rates[:2]) + 0.1, "it learns what is rewarded"
    answers = pl.read_parquet(quiet / "run" / "completions.parquet")
    assert all("".join(row["pieces"]).strip() == row["completion"] for row in answers.head(20).to_dicts())
    assert (answers["ids"].list.len() == answers["tokens"]).all()

    played = CliRunner().invoke(command, ["play", str(quiet / "run"), "--prompts", "2", "-n", "3", "--json"])
    assert len(json.loads(played.stdout)) == 6, played.output
    assert "which task?" in str(CliRunner().invoke(command, ["play", str(llama)]).exception)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_prompts_of_different_lengths_do_not_disturb_each_other(kind: str, tmp_path: Path) -> None:
    """The shorter prompt gives the same answers alone, and as full text without a cache."""
    task = Task("countdown")
    model, codec, _ = load(made(tmp_path / kind, kind, task), task, 1)
    chosen = sorted(task.prompts("train"), key=lambda prompt: len(prompt.id))
    both = torch.tensor(codec.questions([chosen[0], chosen[-1]]))
    assert both[0, 0] == PAD and both[1, 0] != PAD
    draws = np.random.default_rng(0).random((9, 6), dtype=np.float32)
    together = sample(model, both, 3, 9, draws, temperature=0.8)
    alone = sample(model, torch.tensor(codec.questions(chosen[:1])), 3, 9, draws[:, :3], temperature=0.8)
    length = alone.ids.shape[1]
    assert torch.equal(alone.ids, together.ids[:3, :length])
    assert torch.allclose(alone.logprobs, together.logprobs[:3, :length], atol=1e-4)
    text = torch.cat((both[:1][both[:1] != PAD].expand(3, -1), together.ids[:3]), 1)
    full = (model.module(text).logits[:, -10:-1] / 0.8).log_softmax(-1)
    own = full.gather(2, together.ids[:3, :, None])[:, :, 0] * together.mask[:3]
    assert torch.allclose(own, together.logprobs[:3], atol=1e-4)
    trained = (model.answer_logits(both, together.ids) / 0.8).log_softmax(-1)
    again = trained.gather(2, together.ids[:, :, None])[:, :, 0] * together.mask
    assert torch.allclose(again, together.logprobs, atol=1e-4)


def test_answers_are_judged_as_text_and_plans_found_in_parts_of_words(tmp_path: Path) -> None:
    task = Task("countdown")
    _, codec, _ = load(made(tmp_path / "gpt2", "gpt2", task), task, 2)
    prompt = next(p for split in ("train", "heldout") for p in task.prompts(split) if p.facts == (9, 1, 8))
    ids = codec._tokenizer(" first subtract 9 - 1 = 8\n")["input_ids"]
    assert codec.reward(prompt, ids) == 1 and codec.reward(prompt, [*ids, 0, 0]) == 1
    assert codec.reward(prompt, ids[:-1]) == 0, "an answer that does not end is wrong"
    assert codec.decode(ids) == "first subtract 9 - 1 = 8"
    assert codec.longest_answer > task.longest_answer
    marked = exact(task, codec)(np.array([ids]))[0]
    planned = "".join(piece for piece, plan in zip(codec.pieces(ids), marked, strict=False) if plan)
    assert planned.replace(" ", "") == "firstsubtract" and 2 < marked.sum() < len(ids) - 8
    assert not phrases(task, codec, ["first add"])(np.array([ids])).any()
    lines = codec._examples.splitlines()
    assert len(lines) == 2
    for line in lines:
        asked, answer = line.split(" : ")
        own = next(p for p in task.prompts("train") if p.id == f"{asked} :")
        assert task.accepts(own, answer.split())


def test_what_is_not_a_causal_language_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content, message in (
        (None, "no such directory"),
        ("{}", "config.json"),
        ('{"model_type": "vit"}', "is not a causal language model"),
    ):
        place = tmp_path / str(message)
        if content is not None:
            place.mkdir()
            (place / "config.json").write_text(content)
        with pytest.raises(UsageError, match=message):
            check(place)
    monkeypatch.setattr("bakeoff.workloads.language.pretrained.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=re.escape(install("hf"))):
        check(tmp_path)
