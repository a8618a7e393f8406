"""Answers of a training run: `completions.parquet` in a run's directory, one row for each answer.

Such a run has no trajectory of its own. Each answer is a rollout of one step, with an id of its own; answers to one prompt
in one step of the training are a group. Columns: `step`, `group`, `sample`, `prompt_id` (the prompt's text), `completion`,
`reward`, `ids`, `logprobs`; further ones are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bakeoff.errors import Damaged
from bakeoff.export.rollouts import ANSWERS, Rollout
from bakeoff.records.files import open_inside
from bakeoff.results.table import Row
from bakeoff.spec.workload import Step, Tokens

COLUMNS = ("step", "group", "sample", "prompt_id", "completion", "reward", "ids", "logprobs")


@dataclass(frozen=True, slots=True)
class Answer(Rollout):
    """One row of the file."""

    row: dict[str, Any]

    def steps(self) -> Iterator[Step]:
        row = self.row
        messages = [{"role": "user", "content": row["prompt_id"]}, {"role": "assistant", "content": row["completion"]}]
        tokens = Tokens(completion_ids=row["ids"], logprobs=row["logprobs"])
        yield Step(
            messages=messages, tokens=tokens, reward=row["reward"], done=True, policy_version=self.policy_version
        )


def read_answers(run: Row, home: Path) -> Iterator[Answer]:
    """All answers of a run in the order of its file. Raises Damaged when that is not what a run writes."""
    import polars as pl

    try:
        with open_inside(home, ANSWERS) as file:
            frame = pl.read_parquet(file, columns=list(COLUMNS))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise Damaged(home, f"{ANSWERS} of run {run.run_id!r} cannot be read: {error}") from error
    for row in frame.iter_rows(named=True):
        group = f"{run.run_id}__step{row['step']}__g{row['group']}"
        own = replace(run, run_id=f"{group}__{row['sample']}", rollout=row["sample"])
        version = f"step-{row['step']}"
        yield Answer(own, home / ANSWERS, home, 1, row["reward"], row["reward"] > 0, group, None, version, row)
