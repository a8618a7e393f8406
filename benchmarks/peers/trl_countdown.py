"""TRL's GRPOTrainer on the countdown task: `trl_countdown.py WIDTH LAYERS STEPS` prints processor seconds for each step.

The model is a random Llama of about the same size as ours, with the same vocabulary, batch, group and length of answers.
It needs torch and trl: scripts in benchmarks/language.py say which Python runs it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

GROUP, BATCH, LONGEST = 16, 256, 8


class Clock(TrainerCallback):
    """Processor time at the end of each step."""

    def __init__(self) -> None:
        self.ticks: list[float] = []

    def on_step_end(self, *_: object, **__: object) -> None:
        self.ticks.append(time.process_time())


def main() -> None:
    width, layers, steps = map(int, sys.argv[1:4])
    words, prompts = json.load(sys.stdin)
    torch.set_num_threads(1)
    words = ["<pad>", "<unk>", *words]
    own = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "<unk>"))
    own.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=own, pad_token="<pad>", eos_token="<end>", unk_token="<unk>", padding_side="left"
    )
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=width, intermediate_size=8 * width // 3, num_hidden_layers=layers,
        num_attention_heads=4, max_position_embeddings=32, tie_word_embeddings=True, pad_token_id=0,
        eos_token_id=words.index("<end>"), bos_token_id=words.index("<end>"),
    )  # fmt: skip
    model = LlamaForCausalLM(config)

    def reward(completions: list[str], **_: object) -> list[float]:
        return [float(hash(text) % 3 == 0) for text in completions]

    clock = Clock()
    with tempfile.TemporaryDirectory() as directory:
        trainer = GRPOTrainer(
            model,
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=directory, max_steps=steps, learning_rate=1e-4, per_device_train_batch_size=BATCH,
                num_generations=GROUP, max_completion_length=LONGEST, beta=0.0, logging_steps=1000, save_strategy="no",
                report_to=[], disable_tqdm=True, use_cpu=True, bf16=False, gradient_checkpointing=False,
            ),
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer,
            callbacks=[clock],
        )  # fmt: skip
        trainer.train()
    taken = [end - begin for begin, end in zip(clock.ticks, clock.ticks[1:], strict=False)]
    print(json.dumps({"parameters": model.num_parameters(), "seconds": taken}))


if __name__ == "__main__":
    main()
