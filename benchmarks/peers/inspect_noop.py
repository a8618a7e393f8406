"""Run N samples of Inspect AI with its mock model: inspect_noop.py N CONCURRENCY LOG_DIR. Started by overhead.py."""

from __future__ import annotations

import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import exact
from inspect_ai.solver import generate


def answer(*_: object, **__: object) -> ModelOutput:
    """An answer with token usage. Without it the mock model would download a tokenizer to count tokens."""
    output = ModelOutput.from_content("mockllm/model", "ok")
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output


def main() -> None:
    samples, concurrency, log_dir = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    task = Task(
        dataset=MemoryDataset([Sample(id=number, input="say ok", target="ok") for number in range(1, samples + 1)]),
        solver=generate(),
        scorer=exact(),
    )
    model = get_model("mockllm/model", custom_outputs=answer)
    (log,) = eval(
        task, model=model, display="none", max_samples=concurrency, max_connections=concurrency, log_dir=log_dir
    )
    if log.status != "success" or log.results is None or log.results.completed_samples != samples:
        raise SystemExit(f"Inspect AI did not finish: {log.status} {log.error}")


if __name__ == "__main__":
    main()
