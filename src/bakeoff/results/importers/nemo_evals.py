"""Evals of NeMo Evaluator 0.3: `results.jsonl`, one attempt at one problem on each line, beside the bundle `eval-*.json` with the model.

An attempt with an error has a reward of 0.0, whoever caused it. `infra_error` (the model's server) and an error of the judge are missing.
Every other cause is failed: `graceful` is the agent's own, and `system` is any exception, also one that an answer provoked.

`results.yml` of 0.2 has only scores over all problems, so it is not read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
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

RESULTS, BUNDLE = "results.jsonl", "eval-*.json"
REWARD = "reward"
LOST = ("infra_error",)
"""Categories of errors that the agent cannot cause."""
NOT_SETTINGS = (
    "benchmark",
    "model",
    "base_url",
    "repeats",
    "max_problems",
    "shuffle",
    "shuffle_seed",
    "shard",
    "shard_range",
    "n_shards",
)
"""Keys of a bundle's configuration that are no setting of the agent: addresses, and which problems were attempted."""


class NemoEvaluator:
    """A `results.jsonl`, the bundle beside it, or directories of evals at any of three levels below.

    Shards (`shard_0/BENCHMARK`) are left out where they have been merged (`BENCHMARK` beside them).
    """

    name = "nemo-evaluator"

    def claims(self, path: Path) -> list[Path]:
        if path.is_file():
            files = [path.with_name(RESULTS)] if path.match(BUNDLE) and _is_bundle(path) else [path]
        else:
            files = [file for depth in range(4) for file in sorted(path.glob("*/" * depth + RESULTS))]
        evals = [file for file in files if file.name == RESULTS and _bundle_of(file) is not None]
        return [file for file in evals if not _is_merged(file, evals)]

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        counts: Counter[str] = Counter()
        for path in paths:
            bundle = read_whole_json(_bundle_of(path) or path, "NeMo Evaluator")
            attempts, torn = read_whole_lines(path)
            try:
                if torn or len(attempts) != bundle["n_results"]:
                    raise UsageError(
                        f"{path}: has {len(attempts)} whole lines, and {_bundle_of(path)} counts {bundle['n_results']} results; is it cut off?"
                    )
                if not attempts:
                    raise UsageError(f"{path}: has no attempt; scores over all problems cannot be judged")
                labels, log = _labels(bundle["config"], path), _log(path, bundle)
                for line, attempt in enumerate(attempts, 1):
                    run = _run(path, line, attempt, labels, log, str(bundle["benchmark"]["name"]), bundle["config"])
                    counts.update(("attempts", str(run.outcome)))
                    yield run
                scores = bundle["benchmark"]["scores"].get("summary") or {}
                means = [Mean(REWARD, scores["mean"], labels, log=path)] if scores.get("mean") is not None else []
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise UsageError(f"{path}: is not an eval of NeMo Evaluator 0.3: {error!r}") from error
            yield Reading(
                "NeMo Evaluator",
                str(bundle.get("sdk_version", "")),
                {REWARD: Measure("maximize")},
                means,
                unit="attempt",
            )
        if errors := counts["failed"] + counts["missing"]:
            yield Reading(
                notes=[
                    f"{errors} of {counts['attempts']} attempts have an error and a reward of 0: {counts['failed']} failed, "
                    f"{counts['missing']} missing because of the model's server or the judge"
                ]
            )


def _is_bundle(path: Path) -> bool:
    start = first_bytes(path, 1 << 12)
    return b'"run_id"' in start and b'"config_hash"' in start and b'"sdk_version"' in start


def _bundle_of(results: Path) -> Path | None:
    """Return the newest bundle beside a `results.jsonl`: an eval into the same directory replaces only the results."""
    return max(filter(_is_bundle, results.parent.glob(BUNDLE)), default=None)


def _is_shard(directory: Path) -> bool:
    return directory.name.startswith("shard_")


def _is_merged(path: Path, evals: Sequence[Path]) -> bool:
    shard = path.parent.parent
    return _is_shard(shard) and shard.parent / path.parent.name / RESULTS in evals


def _labels(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    eval_directory = path.parent.parent
    settings = {name: value for name, value in config.items() if name not in NOT_SETTINGS and not name.startswith("_")}
    return {
        "model": config.get("model"),
        **{name: json.dumps(value, sort_keys=True) for name, value in settings.items() if value is not None},
        DIRECTORY: (eval_directory.parent if _is_shard(eval_directory) else eval_directory).name,
    }


def _log(path: Path, bundle: Mapping[str, Any]) -> Log | None:
    """Return the eval; shards are parts of one, and not reruns."""
    if "shard" in bundle["config"] and "n_shards" not in bundle["config"]:
        return None
    return Log(
        path, datetime.fromisoformat(bundle["timestamp"]).timestamp(), f"{bundle['run_id']} {bundle['config_hash']}"
    )


def _run(
    path: Path, line: int, attempt: Mapping[str, Any], labels: Mapping[str, Any], log: Log | None, benchmark: str,
    config: Mapping[str, Any],
) -> ForeignRun:  # fmt: skip
    details = attempt.get("scoring_details") or {}
    outcome, error = _outcome(details)
    scored = outcome is None
    others: dict[str, Scalar] = dict(attempt.get("scorer_rewards") or {})
    return ForeignRun(
        labels=labels,
        source=Source(path, member=str(line)),
        header={"config": config},
        log=log,
        task=f"{benchmark}/{attempt['problem_idx']}",
        group=benchmark,
        outcome=outcome,
        error=error,
        metrics={REWARD: attempt[REWARD], **others} if scored and attempt.get(REWARD) is not None else {},
        transcript=transcript,
    )


def transcript(source: Source) -> Sequence[Message]:
    attempt = _attempts(source.path)[int(source.member or 0) - 1]
    return [*conversation(attempt.get("prompt"), "user"), *conversation(attempt.get("model_response"), "assistant")]


@latest
def _attempts(path: Path) -> list[dict[str, Any]]:
    return read_whole_lines(path)[0]


def _outcome(details: Mapping[str, Any]) -> tuple[Outcome | None, str | None]:
    """Decide who caused an error, and return it; None, None where there was none."""
    if category := details.get("error_category"):
        return "missing" if category in LOST else "failed", f"{category}: {details.get('error')}"
    judge = details.get("judge")
    if isinstance(judge, Mapping) and judge.get("error"):
        return "missing", f"judge: {judge['error']}"
    return None, None
