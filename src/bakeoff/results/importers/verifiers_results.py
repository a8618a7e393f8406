"""Evals of verifiers 0.1: `results.jsonl`, one rollout on each line, beside `metadata.json` with the model and its settings.

A rollout with an error has a reward of 0.0, whoever caused it. Errors in `NOT_THE_ARM` make it missing, and every other one failed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.importers.files import first_bytes, read_whole_json, read_whole_lines
from bakeoff.results.importers.foreign import (
    DIRECTORY,
    ForeignRun,
    Item,
    Log,
    Mean,
    Measure,
    Message,
    Outcome,
    Reading,
    Source,
)
from bakeoff.results.importers.transcripts import conversation, latest
from bakeoff.spec.workload import Scalar

RESULTS, METADATA = "results.jsonl", "metadata.json"
REWARD = "reward"
NOT_THE_ARM = ("InfraError", "TunnelError", "SandboxError", "BrowserSandboxError", "ModelError")
"""Names of errors of the infrastructure, and of a model's server that did not answer."""


class VerifiersResults:
    """A `results.jsonl` of verifiers, the directory of an eval, or directories of evals at any of three levels below."""

    name = "verifiers 0.1"

    def claims(self, path: Path) -> list[Path]:
        places = [RESULTS, *("*/" * depth + RESULTS for depth in (1, 2, 3))]
        files = [path] if path.is_file() else [file for place in places for file in sorted(path.glob(place))]
        return [
            file
            for file in files
            if file.name == RESULTS and b'"env_id"' in first_bytes(file.with_name(METADATA), 1 << 12)
        ]

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        counts: Counter[str] = Counter()
        for path in paths:
            metadata = read_whole_json(path.with_name(METADATA), "verifiers")
            rollouts, torn = read_whole_lines(path)
            if not rollouts:
                raise UsageError(f"{path}: no rollout has ended yet")
            labels = _labels(metadata, path)
            for line, rollout in enumerate(rollouts, 1):
                try:
                    run = _run(path, line, rollout, labels, metadata)
                except (KeyError, TypeError, AttributeError) as error:
                    raise UsageError(f"{path}, line {line}: is not a rollout of verifiers 0.1: {error!r}") from error
                counts.update(("rollouts", str(run.outcome)))
                yield run
            yield Reading(
                "verifiers",
                str((metadata.get("version_info") or {}).get("vf_version", "0.1")),
                {REWARD: Measure("maximize")},
                [Mean(REWARD, metadata["avg_reward"], labels, log=path)]
                if metadata.get("avg_reward") is not None
                else [],
                _notes(path, metadata, len(rollouts), torn),
            )
        if errors := counts["failed"] + counts["missing"]:
            yield Reading(
                notes=[
                    f"{errors} of {counts['rollouts']} rollouts have an error: {counts['failed']} failed, {counts['missing']} "
                    "missing because of the model's server or the infrastructure"
                ]
            )


def _labels(metadata: Mapping[str, Any], path: Path) -> dict[str, Any]:
    settings = {name: metadata.get(name) for name in ("sampling_args", "env_args")}
    return {
        "model": metadata.get("model"),
        **{name: json.dumps(value, sort_keys=True) for name, value in settings.items() if value},
        DIRECTORY: path.parent.name,
    }


def _run(
    path: Path, line: int, rollout: Mapping[str, Any], labels: Mapping[str, Any], metadata: Mapping[str, Any]
) -> ForeignRun:
    environment = str(metadata["env_id"])
    error = rollout.get("error")
    name = error["error"] if isinstance(error, Mapping) else str(error).partition("(")[0]
    outcome: Outcome = "scored" if error is None else "missing" if name in NOT_THE_ARM else "failed"
    metrics: dict[str, Scalar] = {
        key: value for key, value in (rollout.get("metrics") or {}).items() if value is not None
    }
    return ForeignRun(
        labels=labels,
        header={"metadata": metadata},
        source=Source(path, member=str(line)),
        log=Log(path),
        task=f"{environment}/{rollout['example_id']}",
        group=environment,
        outcome=outcome,
        error=None if error is None else name,
        metrics={REWARD: rollout[REWARD], **metrics} if outcome == "scored" else {},
        transcript=transcript,
    )


def transcript(source: Source) -> Sequence[Message]:
    rollout = _rollouts(source.path)[int(source.member or 0) - 1]
    return [*conversation(rollout.get("prompt"), "user"), *conversation(rollout.get("completion"), "assistant")]


@latest
def _rollouts(path: Path) -> list[dict[str, Any]]:
    return read_whole_lines(path)[0]


def _notes(path: Path, metadata: Mapping[str, Any], rollouts: int, torn: bool) -> list[str]:
    notes = [f"{path}: the last line is not whole and was left out; is the eval still running?"] if torn else []
    planned = (metadata.get("num_examples") or 0) * (metadata.get("rollouts_per_example") or 0)
    if rollouts < planned:
        notes.append(f"{path}: {planned - rollouts} of {planned} planned rollouts are not there")
    return notes
