"""The files of a training run.

    metrics.jsonl               one line for each step, with the keys of retrain and more; the engine reads its numbers
    emergence/steps.jsonl       rewards, counts and entropies by step
    emergence/generations.jsonl answers as text, of every tenth step
    completions.parquet         one row for each answer: group, prompt, reward, advantage, ids, log-probabilities, plan
    model.pt                    the trained model, for `bakeoff language play`; a Hugging Face model is a directory `model`

While the run goes on, all but metrics.jsonl grow inside its checkpoint. `state.pt` says how long each file was when it was
written; a run that goes on after a kill cuts them to that length, so no step is in them twice.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from bakeoff.workloads.flat import save_tensors
from bakeoff.workloads.language.params import COMPLETIONS
from bakeoff.workloads.language.trainer import Batch, Trainer

METRICS = "metrics.jsonl"
STEPS = "steps.jsonl"
GENERATIONS = "generations.jsonl"
STATE = "state.pt"
MODEL = "model.pt"
DIRECTORY = "model"
_STEP_KEYS = (
    "step", "mean_reward", "correct_count", "total_count", "condition", "exec_entropy_mean", "exec_entropy_var",
    "plan_entropy_mean", "plan_entropy_var", "gram_entropy_delta", "gram_entropy_pair_count", "planning_token_ratio",
    "sepa_lambda", "max_token_hit_rate",
)  # fmt: skip


class Outputs:
    """What a run writes. `directory` is the run's, `checkpoint` the one that outlives attempts."""

    def __init__(self, directory: Path, checkpoint: Path, trainer: Trainer) -> None:
        self._directory, self._checkpoint, self._trainer = directory, checkpoint, trainer
        self._pending: list[pl.DataFrame] = []
        self._resume()
        self._files = {name: open(checkpoint / name, "a") for name in (METRICS, STEPS, GENERATIONS)}  # noqa: SIM115
        shutil.copyfile(checkpoint / METRICS, directory / METRICS)
        self._live = open(directory / METRICS, "a")  # noqa: SIM115 - open for the run's life

    def _resume(self) -> None:
        """Go on from the last checkpoint, or from the beginning."""
        state: dict[str, Any] = {}
        if (self._checkpoint / STATE).exists():
            state = torch.load(self._checkpoint / STATE, weights_only=True)
            self._trainer.restore(state["trainer"])
        lengths = state.get("lengths", {})
        for name in (METRICS, STEPS, GENERATIONS):
            with open(self._checkpoint / name, "ab") as file:
                file.truncate(lengths.get(name, 0))
        for part in self._checkpoint.glob("part-*"):
            if part.name not in state.get("parts", ()):
                part.unlink()

    def add(self, row: dict[str, Any], batch: Batch) -> None:
        """One step."""
        params, step = self._trainer.params, row["step"]
        line = json.dumps(row) + "\n"
        self._files[METRICS].write(line)
        self._live.write(line)
        self._live.flush()
        self._files[STEPS].write(json.dumps({key: row[key] for key in _STEP_KEYS if key in row}) + "\n")
        if step % params.generations_every == 0:
            self._files[GENERATIONS].writelines(json.dumps(line) + "\n" for line in self._generations(step, batch))
        if params.completions:
            self._pending.append(self._frame(step, batch))

    def _generations(self, step: int, batch: Batch) -> list[dict[str, Any]]:
        size, decode = self._trainer.params.group_size, self._trainer.codec.decode
        return [
            {
                "step": step,
                "prompt": batch.prompts[row // size].id[:200],
                "completion": decode(ids)[:500],
                "reward": float(batch.rewards.flat[row]),
                "num_tokens": int(batch.written[row].sum()),
                "group": row // size,
                "metadata": {"correctness": bool(batch.rewards.flat[row] > 0.5)},
            }
            for row, ids in enumerate(batch.ids.tolist())
        ]

    def _frame(self, step: int, batch: Batch) -> pl.DataFrame:
        size, rows = self._trainer.params.group_size, len(batch.ids)
        lengths = batch.written.sum(axis=1)
        frame = pl.DataFrame(
            {
                "step": np.full(rows, step, dtype=np.int32),
                "group": np.repeat(np.arange(len(batch.prompts), dtype=np.int32), size),
                "sample": np.tile(np.arange(size, dtype=np.int32), len(batch.prompts)),
                "prompt_id": [prompt.id for prompt in batch.prompts for _ in range(size)],
                "completion": [self._trainer.codec.decode(ids) for ids in batch.ids.tolist()],
                "reward": batch.rewards.reshape(-1),
                "advantage": batch.advantages.reshape(-1),
                "informative": np.repeat(batch.informative, size),
                "tokens": lengths.astype(np.int32),
                "truncated": batch.truncated,
            }
        )
        lists = {
            "ids": batch.ids.astype(np.int32),
            "logprobs": batch.logprobs.astype(np.float32),
            "planning": batch.planning,
        }
        if self._trainer.codec is not self._trainer.task:  # a token is not a word, so its text is kept, too
            texts = [self._trainer.codec.pieces(ids) for ids in batch.ids.tolist()]
            frame = frame.with_columns(pl.Series("pieces", texts, dtype=pl.List(pl.String)))
        own = [
            pl.Series(name, values).cast(pl.List(pl.Series(values[0]).dtype)).rename(name)
            for name, values in lists.items()
        ]
        return frame.with_columns(own).with_columns(pl.col(name).list.head(pl.col("tokens")) for name in lists)

    def save(self) -> None:
        """A checkpoint: all files first, then the state that names them."""
        if self._pending:
            part = self._checkpoint / f"part-{self._trainer.step:08}.parquet"
            pl.concat(self._pending).write_parquet(part)
            self._pending = []
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        parts = sorted(part.name for part in self._checkpoint.glob("part-*"))
        lengths = {name: file.tell() for name, file in self._files.items()}
        save_tensors(self._checkpoint / STATE, {"trainer": self._trainer.state(), "lengths": lengths, "parts": parts})

    def close(self) -> None:
        """Move everything into the run's directory. Also called when the training failed: nothing is lost."""
        if self._pending:
            self.save()
        for file in (*self._files.values(), self._live):
            file.close()
        emergence = self._directory / "emergence"
        emergence.mkdir(exist_ok=True)
        for name in (STEPS, GENERATIONS):
            shutil.copyfile(self._checkpoint / name, emergence / name)
        parts = sorted(self._checkpoint.glob("part-*"))
        if parts:
            pl.concat([pl.read_parquet(part) for part in parts]).write_parquet(self._directory / COMPLETIONS)
        for path in self._checkpoint.iterdir():
            path.unlink()
