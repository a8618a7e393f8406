"""Evals of verifiers 0.4: `traces.jsonl` in the directory of an eval, one episode on each line.

The arm is the model and the harness of the agent. The reward is the weighted sum of the rewards of the agent's trace; an episode with
several agents that train has a reward for each, `NAME/reward`.

An episode with a reward is scored, also where it had an error. Else its last error decides: causes in `NOT_THE_ARM` are missing, and
every other one is failed, because the agent can cause it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.importers.files import first_bytes, read_json, read_whole_lines
from bakeoff.results.importers.foreign import (
    DIRECTORY,
    ForeignRun,
    Item,
    Log,
    Measure,
    Message,
    Outcome,
    Reading,
    Source,
)
from bakeoff.results.importers.transcripts import conversation, latest, message_of
from bakeoff.spec.workload import Scalar

TRACES = "traces.jsonl"
REWARD = "reward"
NOT_THE_ARM = ("ProviderError", "SandboxError", "InterceptionError", "TunnelError", "ToolsetError", "EnvError")
REQUEST_ERRORS = (400, 413, 422)
"""HTTP status of a request that the model's server refuses because of its content, such as one that is too long."""
MAX_VERSION = 1
"""The newest version of a trace that is read."""


class Verifiers:
    """A `traces.jsonl` of verifiers, the directory of an eval, or a directory with evals at one or two levels."""

    name = "verifiers"

    def claims(self, path: Path) -> list[Path]:
        places = (TRACES, f"*/{TRACES}", f"*/*/{TRACES}")
        files = [path] if path.is_file() else [file for place in places for file in sorted(path.glob(place))]
        return [file for file in files if file.suffix == ".jsonl" and _is_eval(file)]

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        counts: Counter[str] = Counter()
        for path in paths:
            episodes, torn = read_whole_lines(path)
            if not episodes:
                raise UsageError(f"{path}: no episode has ended yet")
            default = _model_of_eval(path)
            versions: set[str] = set()
            for line, episode in enumerate(episodes, 1):
                try:
                    run = _run(path, episode, default)
                    versions |= {trace["verifiers"]["version"] for trace in episode["traces"]}
                except (KeyError, TypeError, AttributeError) as error:
                    raise UsageError(f"{path}, line {line}: is not an episode of verifiers 0.4: {error!r}") from error
                counts.update(("episodes", str(run.outcome)))
                yield run
            notes = [f"{path}: the last line is not whole and was left out; is the eval still running?"] if torn else []
            yield Reading("verifiers", ", ".join(sorted(versions)), {REWARD: Measure("maximize")}, notes=notes)
        if errors := counts["failed"] + counts["missing"]:
            yield Reading(
                notes=[
                    f"{errors} of {counts['episodes']} episodes have an error and no reward: {counts['failed']} failed, "
                    f"{counts['missing']} missing because of the model's server or the infrastructure"
                ]
            )


def _is_eval(path: Path) -> bool:
    """Whether a file has episodes; an eval that has only just started has an empty one."""
    line = first_bytes(path, 1 << 16).partition(b"\n")[0]
    return (b'"env"' in line and b'"traces"' in line) or (not line and path.name == TRACES)


def _model_of_eval(path: Path) -> str | None:
    """Return the model that agents without a model of their own use, from the eval's configuration."""
    config = read_json(str(path.parent / "configs" / "eval.json")) or {}
    model = config.get("model")
    return str(model) if model is not None else None


def _run(path: Path, episode: Mapping[str, Any], default: str | None) -> ForeignRun:
    for trace in episode["traces"]:
        if trace["version"] > MAX_VERSION:
            raise UsageError(f"{path}: has traces of version {trace['version']}; up to {MAX_VERSION} can be read")
    rewards, metrics = _scores(episode["traces"])
    errors = [*episode["errors"], *(error for trace in episode["traces"] for error in trace["errors"])]
    outcome = "scored" if rewards else outcome_of(episode, errors)
    task = episode["task"]
    name = next(
        (task["data"][key] for key in ("name", "id", "idx") if task["data"].get(key) is not None), task.get("key")
    )
    environment = str(episode["env"].get("id") or task["type"])
    return ForeignRun(
        labels={**_agent(episode["traces"], default), DIRECTORY: path.parent.name},
        source=Source(path, member=episode["id"]),
        log=Log(path),
        task=f"{environment}/{name}",
        group=environment,
        run=episode["id"],
        outcome=outcome,
        error=None
        if outcome == "scored"
        else f"{errors[-1]['type']}: {errors[-1]['message']}"
        if errors
        else "no reward",
        metrics={**rewards, **metrics},
        transcript=transcript,
    )


def transcript(source: Source) -> Sequence[Message]:
    """Read the messages of an episode's traces, each once, in the order in which they came: forks share their beginning.

    An episode that ended before the first call to a model has its prompt alone.
    """
    episode = _episodes(source.path)[source.member or ""]
    messages = [message_of(node["message"]) for trace in episode["traces"] for node in trace.get("nodes") or ()]
    return messages or conversation(episode["task"]["data"].get("prompt"), "user")


@latest
def _episodes(path: Path) -> dict[str, dict[str, Any]]:
    return {episode["id"]: episode for episode in read_whole_lines(path)[0]}


def outcome_of(episode: Mapping[str, Any], errors: Sequence[Mapping[str, Any]]) -> Outcome:
    """Decide who caused the end of an episode without a reward."""
    if not errors or episode.get("is_timeout") or any(trace.get("is_timeout") for trace in episode["traces"]):
        return "failed"
    last = errors[-1]
    refused = last["type"] == "ProviderError" and last.get("status_code") in REQUEST_ERRORS
    return "missing" if last["type"] in NOT_THE_ARM and not refused else "failed"


def _scores(traces: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Scalar], dict[str, Scalar]]:
    """Return rewards and metrics of the traces of agents that train."""
    trained = [trace for trace in traces if trace["agent"].get("trainable", True)]
    rewards: dict[str, Scalar] = {}
    metrics: dict[str, Scalar] = {}
    for trace in trained:
        prefix = "" if len(trained) == 1 else f"{trace['agent']['name']}/"
        known = {name: reward for name, reward in trace["rewards"].items() if reward is not None}
        if known:
            rewards[prefix + REWARD] = sum(reward["score"] * reward["weight"] for reward in known.values())
        metrics |= {f"{prefix}{REWARD}/{name}": reward["score"] for name, reward in known.items()}
        metrics |= {f"{prefix}{name}": value for name, value in trace["metrics"].items() if value is not None}
    return rewards, metrics


def _agent(traces: Sequence[Mapping[str, Any]], default: str | None) -> dict[str, Any]:
    for trace in traces:
        config = trace["agent"]["config"]
        if trace["agent"].get("trainable", True):
            called = next((call["model"] for call in trace["calls"] if call.get("model")), None)
            harness = (config.get("harness") or {}).get("id")
            return {"model": config.get("model") or default or called, **({"harness": harness} if harness else {})}
    return {"model": default}
