"""The files of a training run.

    metrics.jsonl               one line for each step, with the keys of retrain and more; the engine reads its numbers
    emergence/steps.jsonl       rewards, counts and entropies by step
    emergence/generations.jsonl answers as text, of every tenth step
    completions.parquet         one row for each answer: group, prompt, reward, advantage, ids, log-probabilities, plan
    model.pt                    the trained model, for `bakeoff language play`; a Hugging Face model is a directory `model`

While the run goes on, all but metrics.jsonl grow inside its checkpoint, answers as one file for each part of the run.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bakeoff.workloads.language.params import COMPLETIONS
from bakeoff.workloads.language.trainer import Batch, Trainer
from bakeoff.workloads.training.files import METRICS, Checkpoint

STEPS = "steps.jsonl"
GENERATIONS = "generations.jsonl"
PARTS = "part-*"
"""Answers since the checkpoint before, in the checkpoint."""
DIRECTORY = "model"
_STEP_KEYS = (
    "step", "mean_reward", "correct_count", "total_count", "condition", "exec_entropy_mean", "exec_entropy_var",
    "plan_entropy_mean", "plan_entropy_var", "gram_entropy_delta", "gram_entropy_pair_count", "planning_token_ratio",
    "sepa_lambda", "max_token_hit_rate",
)  # fmt: skip


class Outputs:
    """What a run writes. `directory` is the run's, `checkpoint` the one that outlives attempts."""

    def __init__(self, directory: Path, checkpoint: Path, trainer: Trainer) -> None:
        self._directory, self._trainer = directory, trainer
        self._checkpoint = Checkpoint(directory, checkpoint)
        self._pending: list[pl.DataFrame] = []
        state = self._checkpoint.state
        if state:
            trainer.restore(state["trainer"])
        lengths = state.get("lengths", {})
        self._checkpoint.open({name: lengths.get(name, 0) for name in (METRICS, STEPS, GENERATIONS)})
        for part in checkpoint.glob(PARTS):
            if part.name not in state.get("parts", ()):
                part.unlink()

    def add(self, row: dict[str, Any], batch: Batch) -> None:
        """Write the row and the answers of one step."""
        params, step = self._trainer.params, row["step"]
        self._checkpoint.add(row)
        self._checkpoint.write(STEPS, {key: row[key] for key in _STEP_KEYS if key in row})
        if step % params.generations_every == 0:
            self._checkpoint.write(GENERATIONS, *self._generations(step, batch))
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
        """Write a checkpoint: all files first, then the state that names them."""
        if self._pending:
            pl.concat(self._pending).write_parquet(self._checkpoint.path / f"part-{self._trainer.step:08}.parquet")
            self._pending = []
        lengths = self._checkpoint.sync()
        parts = sorted(part.name for part in self._checkpoint.path.glob(PARTS))
        self._checkpoint.save({"trainer": self._trainer.state(), "lengths": lengths, "parts": parts})

    def close(self) -> None:
        """Move everything into the run's directory. Also called when the training failed: nothing is lost."""
        if self._pending:
            self.save()
        self._checkpoint.sync()
        emergence = self._directory / "emergence"
        emergence.mkdir(exist_ok=True)
        for name in (STEPS, GENERATIONS):
            shutil.copyfile(self._checkpoint.path / name, emergence / name)
        parts = sorted(self._checkpoint.path.glob(PARTS))
        if parts:
            pl.concat([pl.read_parquet(part) for part in parts]).write_parquet(self._directory / COMPLETIONS)
        self._checkpoint.close(finished=True)
