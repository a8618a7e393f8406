"""Train a tiny language model with TRL's GRPOTrainer, from nothing, without a network: `examples/trl-grpo.toml` runs it.

    pip install torch==2.13.0 trl==1.16.0

The model is a random Llama of 40,000 parameters over single letters. A completion earns the share of its letters that
are vowels. Replace `model`, `tokenizer`, `dataset` and `vowels` by your own; what bakeoff needs is in `main`: the seed,
the output directory, and to continue from the last checkpoint in it.
"""

from __future__ import annotations

import argparse
import os
import string

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from datasets import Dataset
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig, GRPOTrainer

LETTERS = ["<pad>", "<end>", "<unknown>", *string.ascii_lowercase]


def vowels(completions: list[str], **_: object) -> list[float]:
    """The share of vowels in each completion."""
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]


def tokenizer() -> PreTrainedTokenizerFast:
    letters = Tokenizer(models.WordLevel({letter: number for number, letter in enumerate(LETTERS)}, "<unknown>"))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>", padding_side="left"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    given = parser.parse_args()
    set_seed(given.seed)
    config = LlamaConfig(
        vocab_size=len(LETTERS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )  # fmt: skip
    trainer = GRPOTrainer(
        LlamaForCausalLM(config),
        reward_funcs=vowels,
        args=GRPOConfig(
            output_dir=given.output,
            max_steps=given.steps,
            learning_rate=given.learning_rate,
            seed=given.seed,
            per_device_train_batch_size=16,
            num_generations=8,
            max_completion_length=8,
            logging_steps=1,
            save_steps=5,
            save_total_limit=2,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": [letter * 2 for letter in string.ascii_lowercase]}),
        processing_class=tokenizer(),
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(given.output))
    trainer.save_state()  # the steps after the last checkpoint


if __name__ == "__main__":
    main()
