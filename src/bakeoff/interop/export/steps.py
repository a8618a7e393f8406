"""`jsonl` and `parquet`: one row for each step, as it was recorded. Nothing is held but one step, or one batch of rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from bakeoff.interop.export.job import Job, to_json

if TYPE_CHECKING:
    import polars as pl

BATCH = 1024
"""Rows that are turned into columns at a time."""
ROW_GROUP = 16_384
_NESTED = ("observation", "action", "messages", "tool_calls", "info", "truth")


def write_jsonl(job: Job) -> None:
    with job.lines(job.place) as emit:
        for row in _rows(job):
            emit(row)


def _rows(job: Job) -> Iterator[dict[str, Any]]:
    for group in job.groups:
        for rollout in group:
            job.count(rollout)
            about = {**rollout.label, "status": rollout.status, "return": rollout.reward, "success": rollout.success}
            for number, step in enumerate(rollout.steps()):
                row = {**about, "step": number, **{name: getattr(step, name) for name in step.__struct_fields__}}
                row["tokens"] = None if step.tokens is None else msgspec.structs.asdict(step.tokens)
                if not job.with_truth:
                    del row["truth"]
                yield row


def write_parquet(job: Job) -> None:
    """Lists of tokens are lists; other nested values are JSON text, since their shape differs from step to step."""
    from polars.io.plugins import register_io_source

    schema = _schema(job.with_truth)

    def batches(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        rows = _rows(job)
        while batch := list(islice(rows, BATCH)):
            job.rows += len(batch)
            yield _frame(batch, schema)

    register_io_source(batches, schema=schema).sink_parquet(
        job.place, compression="zstd", row_group_size=ROW_GROUP, maintain_order=True
    )


def _frame(rows: list[dict[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    import polars as pl

    flat = []
    for row in rows:
        tokens = row.pop("tokens") or {}
        texts = {name: to_json(row[name]) for name in _NESTED if name in row}
        flat.append(
            {**row, **texts, **{name: tokens.get(name) for name in ("prompt_ids", "completion_ids", "logprobs")}}
        )
    return pl.DataFrame(flat, schema=schema, strict=False)


def _schema(with_truth: bool) -> pl.Schema:
    import polars as pl

    text, whole, number = pl.String(), pl.Int64(), pl.Float64()
    columns: dict[str, pl.DataType] = {
        "run_id": text, "arm": text, "task": text, "seed": whole, "rollout": whole, "group": text, "status": text,
        "return": number, "success": pl.Boolean(), "step": whole, "observation": text, "action": text,
        "reward": number, "done": pl.Boolean(), "time_s": number, "messages": text, "tool_calls": text,
        "prompt_ids": pl.List(pl.Int64), "completion_ids": pl.List(pl.Int64), "logprobs": pl.List(pl.Float64),
        "agent": text, "policy_version": text, "info": text,
    }  # fmt: skip
    return pl.Schema({**columns, "truth": text} if with_truth else columns)
