"""Results of lm-evaluation-harness with `--log_samples`: `results_TIME.json` and `samples_TASK_TIME.jsonl` beside it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from sys import intern
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.importers.files import read_whole_json
from bakeoff.results.importers.foreign import DIRECTORY, ForeignRun, Item, Log, Mean, Measure, Message, Reading, Source
from bakeoff.results.importers.transcripts import conversation, latest
from bakeoff.results.table import is_number
from bakeoff.trees import walk

TOOL = "lm-eval"
TIME = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?"
SAMPLES = re.compile(rf"samples_(?P<task>.+)_(?P<time>{TIME})\.jsonl$")
RESULTS = re.compile(rf"(?P<stem>.+)_(?P<time>{TIME})\.json$")
UNIT_METRICS = ("acc", "acc_norm", "acc_mutual_info", "exact_match", "em")
"""Metrics that lie between 0 and 1."""
_LABELS = ("model_args", "chat_template_sha", "system_instruction", "system_instruction_sha", "fewshot_as_multiturn")


class LmEvalSamples:
    """A results file, a file of samples, or all of them below a directory."""

    name = "lm-eval"

    def claims(self, path: Path) -> list[Path]:
        if path.is_dir():
            files = [Path(place, name) for place, _, names in walk(path) for name in names if SAMPLES.match(name)]
            return sorted(files)
        if SAMPLES.match(path.name) and path.is_file():
            return [path]
        named = RESULTS.match(path.name)
        return sorted(path.parent.glob(f"samples_*_{named['time']}.jsonl")) if named and path.is_file() else []

    def misses(self, path: Path) -> str | None:
        """Say why a path that could be results is none."""
        if path.is_file() and path.name.startswith("results_") and path.suffix == ".json":
            return "there are no samples_*.jsonl of its time beside it; run lm_eval with --log_samples"
        return None

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        times: dict[Path, list[Path]] = {}
        for path in dict.fromkeys(paths):
            times.setdefault(_results_file(path), []).append(path)
        headers = {path: _header(path) for path in times}
        seeds: dict[str, set[str]] = {}
        for path, files in times.items():
            for file in files:
                own = _labels(file, _task(file), headers[path])
                seeds.setdefault(f"{_task(file)} {own}", set()).add(str(_seed(headers[path])))
        # One seed for everything, which is the default, says nothing.
        seeded = any(len(each) > 1 for each in seeds.values())
        ignored: dict[str, None] = {}
        scored = False
        for path, files in times.items():
            header = headers[path]
            log = Log(path, header.get("date"), "")
            measures: dict[str, Measure] = {}
            for file in files:
                yield from _runs(file, _task(file), header, log, seeded, measures, ignored)
            version = str(header.get("lm_eval_version") or "")
            yield Reading(TOOL, version, measures, _means(path, header, files, measures), unit="sample")
            scored = scored or bool(measures)
        if ignored:
            text = ", ".join(ignored)
            if not scored:
                raise UsageError(f"{paths[0]}: there is no metric with one number a sample, only {text}")
            yield Reading(
                unit="sample",
                remarks=[f"{text} {'is' if len(ignored) == 1 else 'are'} not one number a sample (not read)"],
            )


def _task(samples: Path) -> str:
    match = SAMPLES.match(samples.name)
    return match["task"] if match else ""


def _seed(header: Mapping[str, Any]) -> int | None:
    seed = (header.get("config") or {}).get("random_seed")
    return seed if isinstance(seed, int) else None


def _results_file(samples: Path) -> Path:
    match = SAMPLES.match(samples.name)
    assert match is not None
    beside = sorted(samples.parent.glob(f"*_{match['time']}.json"))
    if not beside:
        raise UsageError(
            f"{samples}: the results file of its time, results_{match['time']}.json, is not beside it; the model and the seed are "
            "in it"
        )
    return beside[0]


def _header(path: Path) -> dict[str, Any]:
    content = read_whole_json(path, TOOL)
    if not isinstance(content.get("results"), dict):
        raise UsageError(f"{path}: is not a results file of {TOOL}: it has no `results`")
    return content


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file of samples. Raises UsageError for a torn one."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                row["doc_hash"], row["metrics"]
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"{path}:{number}: is not a sample of {TOOL}, or was cut off: {error}") from error
            yield number, row


def _runs(
    path: Path, task: str, header: Mapping[str, Any], log: Log, seeded: bool, measures: dict[str, Measure],
    ignored: dict[str, None],
) -> Iterator[ForeignRun]:  # fmt: skip
    """Yield a run for each document, with the metrics of all filters; none where no document has a number."""
    documents: dict[tuple[str, Any], dict[str, float]] = {}
    filters: Counter[str] = Counter()
    higher = (header.get("higher_is_better") or {}).get(task) or {}
    for _, row in _lines(path):
        metrics = documents.setdefault((str(row["doc_hash"]), row.get("doc_id")), {})
        filters[str(row.get("filter", "none"))] += 1
        for name in row["metrics"]:
            value, metric = row.get(name), metric_name(name, str(row.get("filter", "none")))
            if not is_number(value):
                ignored.setdefault(f"{task}: {metric}")
                continue
            metrics[metric] = float(value)  # type: ignore[arg-type]
            if metric not in measures:
                better = higher.get(name)
                direction = None if better is None else "maximize" if better else "minimize"
                measures[metric] = Measure(direction, (0, 1) if name in UNIT_METRICS else None)  # type: ignore[arg-type]
    planned = ((header.get("n-samples") or {}).get(task) or {}).get("effective")
    rows = min(filters.values(), default=0)
    if planned is not None and rows != planned:
        raise UsageError(f"{path}: has {rows} of the {planned} samples that {log.path.name} counts; it was cut off")
    if not any(documents.values()):
        return  # a task that only has aggregates such as perplexities: nothing of it failed
    labels, counts = _labels(path, task, header), dict[str, int]()
    seed = _seed(header) if seeded else None
    for (digest, identifier), metrics in documents.items():
        counts[digest] = number = counts.get(digest, 0) + 1
        name = f"{task}/{digest[:12]}" + (f"#{number}" if number > 1 else "")
        yield ForeignRun(
            labels=labels, source=Source(path, str(identifier)), header=header, log=log, task=intern(name), group=task,
            seed=seed, repeat=0,
            outcome="scored" if metrics else "failed", metrics=metrics, transcript=transcript,
        )  # fmt: skip


def transcript(source: Source) -> Sequence[Message]:
    """Read the requests of one document and their answers. Choices whose likelihood was asked for have the role `choice`."""
    row = _documents(source.path)[source.member or ""]
    arguments, answers = row.get("arguments") or {}, row.get("resps") or []
    requests = [
        list(each.values()) if isinstance(each, dict) else each
        for each in (arguments.values() if isinstance(arguments, dict) else arguments)
    ]
    messages: list[Message] = []
    for request, answer in zip(requests, answers, strict=False):
        prompt, *rest = request
        prompts = conversation(prompt, "user")
        messages += prompts if messages[: len(prompts)] != prompts else []
        if rest and isinstance(rest[0], str):
            messages.append(Message("choice", f"{rest[0]} (log-likelihood {_first(answer)})"))
        else:
            messages += [Message("assistant", each if isinstance(each, str) else json.dumps(each)) for each in answer]
    return messages


def _first(answer: Any) -> str:
    """Return the log-likelihood of `[["-0.46", "False"]]`: one for each repeat, with whether it is the greedy choice."""
    while isinstance(answer, list) and answer:
        answer = answer[0]
    return str(answer)


@latest
def _documents(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of a file by document: all filters of one have the same requests and answers."""
    return {str(row.get("doc_id")): row for _, row in _lines(path)}


def metric_name(name: str, filtered_by: str) -> str:
    """Return a metric's name with its filter, as lm-eval writes it; without one, the name alone."""
    return intern(name if filtered_by == "none" else f"{name},{filtered_by}")


def _labels(path: Path, task: str, header: Mapping[str, Any]) -> dict[str, Any]:
    config = header.get("config") or {}
    labels: dict[str, Any] = {"model": header.get("model_name") or config.get("model")}
    for name in _LABELS:
        value = config.get(name, header.get(name))
        if isinstance(value, dict):
            labels |= {f"{name}.{key}": each for key, each in sorted(value.items())}
        elif value is not None:
            labels[name] = value
    labels["num_fewshot"] = (header.get("n-shot") or {}).get(task)
    labels["gen_kwargs"] = config.get("gen_kwargs")
    labels["task_version"] = (header.get("versions") or {}).get(task)
    return {key: value for key, value in labels.items() if value is not None} | {DIRECTORY: path.parent.name}


def _means(path: Path, header: Mapping[str, Any], files: Sequence[Path], measures: Mapping[str, Measure]) -> list[Mean]:
    """Return lm-eval's own means of the tasks that were read; other aggregates, such as a perplexity, are none."""
    means = []
    for file in files:
        task = _task(file)
        listed = ((header.get("configs") or {}).get(task) or {}).get("metric_list") or []
        averaged = {each.get("metric") for each in listed if each.get("aggregation", "mean") == "mean"}
        for key, value in (header["results"].get(task) or {}).items():
            name, _, filtered_by = str(key).partition(",")
            metric = metric_name(name, filtered_by or "none")
            if is_number(value) and metric in measures and (name in averaged or name in UNIT_METRICS):
                means.append(Mean(metric, float(value), log=path, group=task))
    return means
