"""Logs of Inspect AI, format version 2: one `.eval` file for each arm, which `inspect view` and `bakeoff compare` open.

A sample is a task and a seed, an epoch is a rollout. Every metric is a score. A run that failed because of its arm has an
error and no score; a run without an outcome has no sample. `metadata.bakeoff` of the header (`Marker`) says how the
experiment judges its runs, so that `compare` gives the same verdict on the logs as on the edition.
"""

from __future__ import annotations

import hashlib
import math
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec

from bakeoff.errors import UsageError
from bakeoff.export.dialogue import Dialogue, Message, NotAConversation, arguments_of, read_dialogue, to_json
from bakeoff.export.rollouts import ANSWERS, Rollout
from bakeoff.records.run import FAILED
from bakeoff.results.importers.inspect_logs import MARK, Marker, Place
from bakeoff.results.table import Results, Row, is_number
from bakeoff.spec.experiment import Analysis
from bakeoff.spec.identity import run_id_in, slug
from bakeoff.verdicts.observations import observe
from bakeoff.version import __version__

if TYPE_CHECKING:
    from bakeoff.export.exporting import Job
    from bakeoff.export.exporting import Row as Table

MAX_INPUT = 1000
"""Characters of a sample's input in the list of samples."""
NO_MODEL = "none/none"
"""What Inspect calls the model of an evaluation that has none."""
ROLES = ("system", "user", "assistant", "tool")


@dataclass(slots=True)
class ArmRuns:
    """The runs of one arm, as recorded and as verdicts read them."""

    name: str
    judged: JudgedRuns
    runs: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JudgedRuns:
    """An edition's runs, and how its verdicts read them."""

    results: Results
    analysis: Analysis
    reduced: Mapping[str, Mapping[str, float]]
    """Metrics that a summary makes one number of: the numbers by run id."""
    failure_score: float | None
    sequential: bool

    def scores(self, row: Row) -> dict[str, Any]:
        """Return a run's numbers by metric, the declared one first."""
        values: dict[str, Any] = {name: value for name, value in row.metrics.items() if is_number(value)}
        for metric, numbers in self.reduced.items():
            values.pop(metric, None)
            values |= {metric: numbers[row.run_id]} if row.run_id in numbers else {}
        return {name: values[name] for name in sorted(values, key=lambda name: name != self.analysis.metric)}


def logs(job: Job) -> Iterator[Table]:
    """Yield `{"arm": ArmRuns}` for each log to write.

    Raises UsageError for filters that leave out runs by how they ended: the log would have another mean.
    """
    filters = job.filters
    for option, is_set in (
        ("--success", filters.success),
        ("--reward-quantile", filters.quantile is not None),
        ("--min-group", filters.min_group > 1),
    ):
        if is_set:
            raise UsageError(f"{option}: a log of Inspect holds every run of its arm; leave the option out")
    judged = _judged(job.results)
    arms: dict[str, ArmRuns] = {}
    for row in judged.results.rows:
        if (filters.arms and row.arm not in filters.arms) or (filters.tasks and row.task not in filters.tasks):
            continue
        arms.setdefault(row.arm, ArmRuns(row.arm, judged)).runs.append(row)
    for arm in arms.values():
        yield {"arm": arm}


def _judged(results: Results) -> JudgedRuns:
    """Reduce what a verdict reduces, and fix what `compare` would otherwise take from the edition."""
    analysis = results.analysis
    try:
        metrics = results.primary()
    except UsageError:  # several and none declared: `compare` has to be told as well
        metrics = []
    reduced: dict[str, dict[str, float]] = {}
    settings: dict[str, Any] = {"control": analysis.control or next(iter(results.arms), None), "summary": None}
    if results.fixed_tasks and analysis.tasks is None:
        settings["tasks"] = "fixed"
    failure = None
    for metric in metrics:
        observations = observe(results, metric)
        failure = observations.failure_score if metric == metrics[0] else failure
        if observations.analysis.summary is None:
            continue
        reduced[metric] = {
            row.run_id: row.value for row in observations.rows if row.state == "scored"
        }  # fmt: skip
        settings["bounds"] = observations.bounds
        settings["directions"] = {
            **analysis.directions,
            **settings.get("directions", {}),
            metric: "maximize" if observations.larger_is_better else "minimize",
        }
    if metrics:
        settings |= {"metric": metrics[0], "primary": list(metrics[1:])}
    facts = results.edition.facts() if results.edition is not None else {"spec": {}}
    return JudgedRuns(
        results=results,
        analysis=analysis.model_copy(update=settings),
        reduced=reduced,
        failure_score=failure,
        sequential=bool(facts["spec"].get("sequential")) or any(row.stage for row in results.rows),
    )


def write_logs(job: Job, rows: Iterator[Table]) -> None:
    """Write a log for each arm into the directory `job.place`, with one sample in memory at a time."""
    created = float(job.source.facts()["created_at"])
    stamp = time.strftime("%Y-%m-%dT%H-%M-%S-00-00", time.gmtime(created))
    for each in rows:
        arm: ArmRuns = each["arm"]
        # Inspect splits names of logs at underscores: time, task, id.
        stem = "_".join([stamp, *(slug(text).replace("_", "-") for text in (job.experiment, arm.name))])
        names = (stem if number == 0 else f"{stem}-{number}" for number in count())
        path = next(path for name in names if not (path := job.place / f"{name}.eval").exists())
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            _write_log(job, archive, arm, created)
        job.rows += 1


def _write_log(job: Job, archive: zipfile.ZipFile, arm: ArmRuns, created: float) -> None:
    def write(name: str, value: Any) -> None:
        entry = zipfile.ZipInfo(name, time.gmtime(max(created, 315_532_800.0))[:6])  # a zip's time begins in 1980
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, to_json(value))

    recorded = job.source.trajectories()
    summaries: list[dict[str, Any]] = []
    absent: list[Place] = []
    scores: dict[str, list[float]] = defaultdict(list)
    model = None
    failed = 0
    for row in arm.runs:
        if row.status not in ("succeeded", "", *FAILED):
            absent.append(Place(row.task, row.seed, row.rollout))
            job.dropped[f"no outcome ({row.status})"] += 1
            continue
        home = job.source.paths.run(run_id_in(job.source.paths.directory, row.run_id))
        conversation = _conversation(row, home, recorded.get(row.position))
        model = model or conversation.model
        sample = _sample(row, conversation, arm.judged.scores(row))
        write(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", sample)
        summaries.append(_summary(sample))
        failed += "error" in sample
        for name, score in sample.get("scores", {}).items():
            scores[name].append(float(score["value"]))
        job.rollouts += 1
        job.kept.add(sample["id"])
    header = _header(job, arm, created, model or NO_MODEL, absent)
    results = _results(arm, scores, failed, len(summaries) - failed)
    write("_journal/start.json", {key: header[key] for key in ("version", "eval", "plan")})
    write("summaries.json", summaries)
    write("header.json", {**header, "results": results})


def _header(job: Job, arm: ArmRuns, created: float, model: str, absent: list[Place]) -> dict[str, Any]:
    judged, rows = arm.judged, arm.runs
    shared = dict(rows[0].params)
    for row in rows:
        shared = {key: value for key, value in shared.items() if key in row.params and row.params[key] == value}
    identifiers = list(dict.fromkeys(map(_sample_id, rows)))
    analysis = judged.analysis
    marker = Marker(
        experiment=job.experiment, edition=job.edition, arm=arm.name, version=__version__,
        analysis=analysis.model_dump(mode="json", exclude_defaults=True), absent=absent, sequential=judged.sequential,
    )  # fmt: skip
    begun = [row.started_at for row in rows if row.started_at is not None]
    ended = [row.ended_at for row in rows if row.ended_at is not None]
    return {
        "version": 2,
        "status": "success" if judged.results.final else "cancelled",
        "eval": {
            "eval_id": _digest(job.experiment, job.edition, arm.name),
            "run_id": _digest(job.experiment, job.edition),
            "created": _iso(created),
            "task": job.experiment,
            "task_id": _digest(job.experiment, arm.name),
            "task_args": {"arm": arm.name, **shared},
            "solver": arm.name,
            "dataset": {"name": job.experiment, "samples": len(identifiers), "sample_ids": identifiers},
            "model": model,
            "config": {"epochs": max(row.rollout for row in rows) + 1, "fail_on_error": False},
            "packages": {"bakeoff": __version__},
            "metadata": {MARK: msgspec.to_builtins(marker)},
        },
        "plan": {"name": "plan", "steps": [{"solver": arm.name, "params": {}}]},
        "stats": {
            "started_at": _iso(min(begun, default=created)),
            "completed_at": _iso(max(ended, default=created)),
            "model_usage": {},
        },
    }


def _results(arm: ArmRuns, scores: Mapping[str, Sequence[float]], failed: int, scored: int) -> dict[str, Any]:
    """Means of scores. A failed run counts as in a verdict; where nothing says what, the mean is called `mean_scored`."""
    tables = []
    for name, values in scores.items():
        failure = arm.judged.failure_score if name == arm.judged.analysis.metric else None
        known = [value for value in values if math.isfinite(value)]
        lost = failed + len(values) - len(known)
        if lost and failure is not None:
            mean, kind = fmean([*known, *[failure] * lost]), "mean"
        elif known:
            mean, kind = fmean(known), "mean_scored" if lost else "mean"
        else:
            continue
        tables.append(
            {
                "name": name, "scorer": name, "params": {}, "metrics": {kind: {"name": kind, "value": mean}},
                "scored_samples": len(known), "unscored_samples": failed + scored - len(known),
            }
        )  # fmt: skip
    return {"total_samples": len(arm.runs), "completed_samples": scored, "scores": tables}


# -- samples


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said in a run, as Inspect holds it."""

    messages: list[Message] = field(default_factory=list)
    opening: int = 0
    """How many messages come before the first one that the policy wrote."""
    model: str | None = None
    note: str | None = None
    """What is not here, or what the messages are."""


def _conversation(run: Row, home: Path, index: Any) -> Conversation:
    if index is not None and (home / index.path).exists():
        rollout = Rollout(run, home / index.path, home, index.steps, None, False, "", None, None)
        try:
            return _of_dialogue(read_dialogue(rollout.steps(), render=True))
        except NotAConversation as reason:
            return Conversation(note=str(reason))
    if (home / ANSWERS).exists():
        return _of_answers(run, home)
    return Conversation(note="the file of the trajectory is missing" if index is not None else None)


def _of_dialogue(dialogue: Dialogue) -> Conversation:
    messages = [message for context in dialogue.contexts for message in context.messages]
    notes = []
    if len(dialogue.contexts) > 1:
        notes.append(f"{len(dialogue.contexts)} conversations, one after the other")
    if not dialogue.by_model:
        notes.append("observations and actions of a policy without a language model")
    return Conversation(messages, dialogue.contexts[0].opening, dialogue.model, "; ".join(notes) or None)


def _of_answers(run: Row, home: Path) -> Conversation:
    """Show the answers of a training's last step; all of them would be thousands."""
    from bakeoff.export.completions import read_answers

    last: list[Any] = []
    for answer in read_answers(run, home):
        if last and last[-1].row["step"] != answer.row["step"]:
            last = []
        last.append(answer)
    messages = [message for answer in last for step in answer.steps() for message in step.messages]
    return Conversation(messages, 1, None, f"answers of step {last[0].row['step']}, the last one" if last else None)


def _sample(row: Row, conversation: Conversation, scores: Mapping[str, Any]) -> dict[str, Any]:
    model = conversation.model or NO_MODEL
    messages = [_message(message, model) for message in conversation.messages]
    replies = [message for message in messages if message["role"] == "assistant"]
    said = {"transcript": conversation.note} if conversation.note is not None else {}
    failed = row.status in FAILED
    rest = {name: value for name, value in row.metrics.items() if failed or name not in scores}
    sample: dict[str, Any] = {
        "id": _sample_id(row),
        "epoch": row.rollout + 1,
        "input": messages[: conversation.opening] or _sample_id(row),
        "target": "",
        "messages": messages,
        "output": {
            "model": model,
            "choices": [{"message": message, "stop_reason": "stop"} for message in replies[-1:]],
        },
        "metadata": {
            "run_id": row.run_id, "task": row.task, "seed": row.seed, "rollout": row.rollout, "status": row.status,
            **said, **({"metrics": rest} if rest else {}),
        },
        "store": {},
        "events": [],
        "model_usage": {},
        "uuid": _digest(row.run_id),
    }  # fmt: skip
    if row.started_at is not None and row.ended_at is not None:
        sample |= {"started_at": _iso(row.started_at), "completed_at": _iso(row.ended_at)}
        sample["total_time"] = max(0.0, row.ended_at - row.started_at)
    if failed:
        code = "" if row.exit_code is None else f", exit code {row.exit_code}"
        message = f"{row.status}{code}" + (f": {row.error}" if row.error else "")
        sample["error"] = {"message": message, "traceback": "", "traceback_ansi": ""}
    else:
        # JSON has no NaN; Inspect and `compare` read it from text.
        sample["scores"] = {
            name: {"value": value if math.isfinite(value) else str(value)} for name, value in scores.items()
        }
    return sample


def _summary(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the list of samples shows, and what `compare` reads."""
    kept = ("id", "epoch", "target", "scores", "model_usage", "started_at", "completed_at", "total_time", "uuid")
    text = sample["input"]
    if not isinstance(text, str):
        text = next((each["content"] for each in reversed(text) if each["role"] == "user"), "")
    metadata = {key: value for key, value in sample["metadata"].items() if key != "metrics"}
    error = {"error": sample["error"]["message"]} if "error" in sample else {}
    return {
        **{key: sample[key] for key in kept if key in sample},
        "input": text[:MAX_INPUT],
        "metadata": metadata,
        **error,
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _message(message: Message, model: str) -> dict[str, Any]:
    role = message["role"] if message["role"] in ROLES else "user"
    content: Any = message["content"]
    if message.get("reasoning_content"):
        content = [
            {"type": "reasoning", "reasoning": message["reasoning_content"]},
            {"type": "text", "text": content},
        ]
    made: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        made |= {"model": model, "source": "generate"}
        if message.get("tool_calls"):
            made["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    elif role == "tool":
        made |= {"tool_call_id": message.get("tool_call_id"), "function": message.get("name")}
    return made


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments, function = arguments_of(call), call["function"]
    made = {"id": call["id"], "function": function["name"], "arguments": arguments or {}, "type": "function"}
    if arguments is None:
        made["parse_error"] = f"the arguments are not a table: {function['arguments']}"
    return made


def _sample_id(row: Row) -> str:
    return row.task if row.seed is None else f"{row.task}__s{row.seed}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:22]


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(seconds))
