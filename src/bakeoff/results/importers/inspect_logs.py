"""Logs of Inspect AI: `.eval` (a zip) and `.json`, format versions 1 and 2.

Of a zip only the header and the summaries of samples are read, or its journal while there is no header yet. An entry below
`samples/` is read when somebody opens that sample. Newer formats are read through the package `inspect_ai`, where it is installed.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from sys import intern
from typing import Any, BinaryIO, TypeVar

import msgspec

from bakeoff.errors import UsageError
from bakeoff.results.importers.files import first_bytes, seconds
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
from bakeoff.results.importers.transcripts import conversation, latest, message_of
from bakeoff.spec.experiment import Analysis
from bakeoff.spec.workload import Scalar
from bakeoff.trees import walk

T = TypeVar("T")
TOOL = "Inspect"
MAX_VERSION = 2
"""The newest format that is read without the package."""
MARK = "bakeoff"
"""The key of `eval.metadata` that holds a `Marker`."""
NAMED = re.compile(r"\d{4}-\d\d-\d\dT.*\.json$")
"""Names of JSON logs: their time comes first, whatever the pattern of the rest."""
FIRST = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:\s*"')
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""What Inspect's own `value_to_float` makes of the values that its scorers give."""
LIMITS = (
    "message_limit", "token_limit", "token_limit_type", "turn_limit", "time_limit", "working_limit", "cost_limit",
    "retry_on_error",
)  # fmt: skip
"""Settings of an evaluation that change what an arm can do. Others say how it was run and logged."""
ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32})")
"""What stands in a sample for a long text or an image, which are in its `attachments`."""
_LOCAL_HEADER = struct.Struct("<26xHH")


class Score(msgspec.Struct):
    """One scorer's value for a sample."""

    value: Any = None


class SampleSummary(msgspec.Struct):
    """What is read of a sample: `EvalSampleSummary`, or the same fields of an `EvalSample`."""

    id: int | str
    epoch: int = 1
    scores: dict[str, Score] | None = None
    error: Any = None
    retries: int | None = None
    error_retries: list[Any] | None = None
    """Errors of earlier tries: their number in a summary, all of them in a sample."""
    metadata: dict[str, Any] = {}  # msgspec copies it


class Place(msgspec.Struct, frozen=True):
    """Where in its experiment a run of ours stands."""

    task: str
    seed: int | None
    rollout: int


class Marker(msgspec.Struct, frozen=True):
    """What `bakeoff export` writes into `eval.metadata` of a log: how the edition judges its runs."""

    experiment: str
    edition: str
    arm: str
    version: str
    analysis: dict[str, Any]
    """Fields of `Analysis` that are not the default."""
    absent: list[Place]
    """Runs without an outcome."""
    sequential: bool
    """Verdicts of the edition allow for results that were seen before its plan grew or ended; none of that is in the log."""


class Contents(msgspec.Struct):
    """What is read of a log: `EvalLog`."""

    version: int
    eval: dict[str, Any]
    status: str = "started"
    plan: dict[str, Any] = {}  # msgspec copies it
    results: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    invalidated: bool = False
    samples: list[SampleSummary] | None = None


class InspectLogs:
    """A log, or all logs below a directory."""

    name = "Inspect"

    def claims(self, path: Path) -> list[Path]:
        if path.is_dir():
            # Below the directory only names with a time are opened: a job of another tool has thousands of JSON files.
            return sorted({*_logs_below(path), *filter(_begins_like_a_log, path.glob("*.json"))})
        return [path] if path.suffix == ".eval" or (path.suffix == ".json" and _begins_like_a_log(path)) else []

    def misses(self, path: Path) -> str | None:
        """Say why a path that could be a log is none."""
        if path.is_file() and path.suffix == ".json":
            return 'a log in JSON begins with "version" and "status"'
        return "there is no .eval file below it" if path.is_dir() else None

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        totals = _Totals()
        shared: dict[tuple[tuple[str, float], ...], Mapping[str, Scalar]] = {}
        for path in paths:
            contents = read_log(path)
            yield from _runs(path, contents, totals, shared)
        yield totals.reading()


class _Totals:
    """What all logs together say: a metric's range is known only if every log says the same."""

    def __init__(self) -> None:
        self.versions: set[str] = set()
        self.order: dict[str, None] = {}
        self.measures: dict[str, set[Measure]] = {}
        self.beyond_unit: set[str] = set()
        """Metrics with a value that is not between 0 and 1: `accuracy` may be the mean of any numbers."""
        self.means: list[Mean] = []
        self.remarks: Counter[str] = Counter()
        """Numbers of samples."""
        self.remarks_of_logs: Counter[str] = Counter()
        self.notes: list[str] = []
        self.editions: dict[str, None] = {}
        self.analyses: list[dict[str, Any] | None] = []
        """How each log's edition judges its runs; None for a log of Inspect's own."""

    def reading(self) -> Reading:
        metrics = {
            name: next(iter(found)) if len(found := self.measures[name]) == 1 else Measure() for name in self.order
        }
        names = list(metrics)
        remarks = [f"{_counted(number, 'sample')} {text}" for text, number in self.remarks.items()]
        remarks += [f"{_counted(number, 'log')} {text}" for text, number in self.remarks_of_logs.items()]
        if self.editions:
            remarks.append(f"exported from {', '.join(self.editions)}")
        if len(names) > 1:
            remarks.append(f"scored by {names[0]} (--metric for {', '.join(names[1:])})")
        version = " and ".join(sorted(self.versions))
        return Reading(
            TOOL, version, metrics, self.means, self.notes, analysis=self._analysis(), unit="sample", remarks=remarks
        )

    def _analysis(self) -> Analysis | None:
        """Return how the editions that the logs were exported from judge their runs, where that is one way."""
        first = self.analyses[0] if self.analyses else None
        if first is None or any(each != first for each in self.analyses):
            if any(each is not None for each in self.analyses):
                self.notes.append(
                    "the logs were exported from editions with other settings, or not all of them; none are used"
                )
            return None
        return Analysis.model_validate(first)


def _logs_below(directory: Path) -> Iterator[Path]:
    for place, below, names in walk(directory):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in names:
            path = Path(place, name)
            if name.endswith(".eval") or (NAMED.match(name) and _begins_like_a_log(path)):
                yield path


def _begins_like_a_log(path: Path) -> bool:
    return FIRST.match(first_bytes(path, 200)) is not None


# -- one file


def read_log(path: Path) -> Contents:
    """Read a log's header and samples. Raises UsageError of one line, with the reason."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise UsageError(
                    f"{path}: is empty; {TOOL} has not written anything into it, or it was not copied whole"
                )
            contents = _read_json(file.read()) if path.suffix == ".json" else _read_zip(file)
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError) as error:
        raise UsageError(
            f"{path}: is not a whole {TOOL} log: {error}. It was cut off, or is being written: copy it again"
        ) from error
    except (msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: is not an {TOOL} log: {_line(error)}") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    return contents if contents.version <= MAX_VERSION else _read_with_package(path, contents.version)


def _line(error: Exception) -> str:
    text = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
    return text.splitlines()[0] if text else type(error).__name__


def _read_json(data: bytes) -> Contents:
    contents = _decode(data, Contents)
    if contents.samples is None and contents.results is not None and contents.results.get("total_samples"):
        raise ValueError("it has no samples (it was written with log_samples=false, or is a header alone)")
    return contents


def _read_zip(file: BinaryIO) -> Contents:
    with zipfile.ZipFile(file) as archive:
        # A sample that ran again has a second entry under the same name; the last one counts.
        entries = {entry.filename: entry for entry in archive.infolist()}
        if "header.json" in entries:
            contents = _decode(_entry(file, entries["header.json"]), Contents)
        elif "_journal/start.json" in entries:
            contents = _decode(_entry(file, entries["_journal/start.json"]), Contents)
        else:
            raise ValueError("the zip has neither header.json nor _journal/start.json")
        if contents.version > MAX_VERSION:
            return contents
        if "summaries.json" in entries:
            names = ["summaries.json"]
        else:
            names = sorted(
                (name for name in entries if re.fullmatch(r"_journal/summaries/\d+\.json", name)),
                key=lambda name: int(Path(name).stem),
            )
        contents.samples = [
            sample for name in names for sample in _decode(_entry(file, entries[name]), list[SampleSummary])
        ]
    return contents


def _entry(file: BinaryIO, entry: zipfile.ZipInfo) -> bytes:
    """Read one entry of a zip. Raises BadZipFile."""
    file.seek(entry.header_offset)
    header = file.read(30)
    if header[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"no entry {entry.filename} where the directory says")
    name, extra = _LOCAL_HEADER.unpack(header)
    file.seek(name + extra, os.SEEK_CUR)
    data = file.read(entry.compress_size)
    match entry.compress_type:
        case zipfile.ZIP_DEFLATED:
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, entry.file_size or 1)
        case 93:  # zstd, which Python's `zipfile` knows from 3.14 on
            data = unzstd(data, entry.file_size)
        case method if method != zipfile.ZIP_STORED:
            raise zipfile.BadZipFile(f"{entry.filename} is compressed by method {method}, which Inspect does not use")
    if zlib.crc32(data) != entry.CRC:
        raise zipfile.BadZipFile(f"the checksum of {entry.filename} is wrong")
    return data


def unzstd(data: bytes, size: int) -> bytes:
    """Decompress a zstd frame of a known size. Raises BadZipFile."""
    from bakeoff.zstd import ZstdError, decompress

    try:
        return decompress(data, size)
    except ZstdError as error:
        raise zipfile.BadZipFile(str(error)) from error


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError:
        if b"NaN" not in data and b"Infinity" not in data:  # which Inspect writes and JSON has not
            raise
        return msgspec.convert(json.loads(data), type=kind)


def _read_with_package(path: Path, version: int) -> Contents:
    """Read a format that we do not know. Raises UsageError where the package is not installed or does not know it."""
    try:
        from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries  # type: ignore[import-not-found]
    except ImportError as error:
        raise UsageError(
            f"{path}: is an {TOOL} log of version {version}, and versions up to {MAX_VERSION} are read; `pip install "
            "inspect_ai` in this environment reads newer ones"
        ) from error
    try:
        header = read_eval_log(str(path), header_only=True).model_dump(mode="json")
        samples = [each.model_dump(mode="json") for each in read_eval_log_sample_summaries(str(path))]
        return msgspec.convert({**header, "version": version, "samples": samples}, Contents)
    except Exception as error:  # another package's
        raise UsageError(
            f"{path}: is an {TOOL} log of version {version}, which the installed inspect_ai cannot read: {_line(error)}"
        ) from error


# -- what was said in a sample


def transcript(source: Source) -> Sequence[Message]:
    """Read the messages of one sample; none where the log was written without samples."""
    sample = _samples(source.path)(source.member or "")
    if sample is None:
        return []
    attachments = sample.get("attachments") or {}
    messages = [message_of(each) for each in sample.get("messages") or ()]
    if not messages:  # it ended before the first message
        messages = conversation(sample.get("input"), "user")
    return [
        message._replace(content=ATTACHMENT.sub(lambda match: attachments.get(match[1], match[0]), message.content))
        for message in messages
    ]


@latest
def _samples(path: Path) -> Callable[[str], dict[str, Any] | None]:
    """Return what finds a sample of a log by its id and epoch. Of a zip only that sample's entry is read."""
    if path.suffix == ".json":
        log = json.loads(path.read_bytes())
        known = {f"{each['id']}_epoch_{each['epoch']}": each for each in log.get("samples") or ()}
        return known.get if log["version"] <= MAX_VERSION else partial(_sample_with_package, path)
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        start = entries.get("header.json") or entries["_journal/start.json"]
        if _decode(_entry(file, start), Contents).version > MAX_VERSION:
            return partial(_sample_with_package, path)

    def read(member: str) -> dict[str, Any] | None:
        entry = entries.get(f"samples/{member}.json")
        if entry is None:
            return None
        with path.open("rb") as file:
            sample: dict[str, Any] = json.loads(_entry(file, entry))
        return sample

    return read


def _sample_with_package(path: Path, member: str) -> dict[str, Any]:
    from inspect_ai.log import read_eval_log_sample

    identifier, _, epoch = member.rpartition("_epoch_")
    sample: dict[str, Any] = read_eval_log_sample(str(path), identifier, int(epoch)).model_dump(mode="json")
    return sample


# -- runs


def _runs(
    path: Path, contents: Contents, totals: _Totals, shared: dict[tuple[tuple[str, float], ...], Mapping[str, Scalar]]
) -> Iterator[ForeignRun]:
    spec = contents.eval
    task = str(spec.get("task", "task"))
    totals.versions.add(str((spec.get("packages") or {}).get("inspect_ai") or ""))
    log = Log(path, seconds(spec.get("created")), str(spec.get("eval_id") or ""))
    labels, header = _labels(path, contents), {**spec, "plan": contents.plan, "status": contents.status}
    marker = _marker(path, contents)
    totals.analyses.append(None if marker is None else marker.analysis)
    if marker is not None:
        labels = {"arm": marker.arm, **labels}
        totals.editions[f"{marker.experiment}/{marker.edition}"] = None
        if marker.sequential:
            totals.notes.append(
                f"{path}: results of {marker.experiment}/{marker.edition} had been seen when its plan grew or ended; only "
                f"`bakeoff compare {marker.experiment}` allows for that"
            )
    if contents.status != "success":
        reason = f" ({_line(ValueError(contents.error.get('message', '')))})" if contents.error else ""
        totals.notes.append(f"{path}: the log's status is {contents.status}{reason}")
        totals.remarks_of_logs[f"with status {contents.status}"] += 1
    if not contents.samples and (spec.get("config") or {}).get("log_samples") is False:
        totals.remarks_of_logs["without samples (log_samples is off), which only has means over all of them"] += 1
    if contents.invalidated:
        totals.notes.append(f"{path}: samples of this log were invalidated by hand; its summaries do not say which")
    samples = {(sample.id, sample.epoch): sample for sample in contents.samples or ()}
    if marker is None and not any(sample.scores or sample.error is not None for sample in samples.values()) and samples:
        raise UsageError(f"{path}: no sample was scored, and none failed; score the log first: `inspect score {path}`")
    exact: dict[str, bool] = {}
    for sample in samples.values():
        values, letters = _values(sample, totals)
        for name, is_letter in letters.items():
            exact[name] = exact.get(name, True) and is_letter
            if not 0 <= values[name] <= 1:
                totals.beyond_unit.add(name)
        key = tuple(values.items())
        metrics = shared.setdefault(key, values) if len(shared) < 10_000 else shared.get(key, values)
        error = None if sample.error is None else _message(sample.error)
        if sample.retries or sample.error_retries:
            totals.remarks["run again after an error (retry_on_error), and the last try counts"] += 1
        outcome: Outcome | None = "scored" if values else "failed"
        if marker is not None and sample.metadata.get("status") == "":
            outcome = None  # an imported run whose source does not say how it ended
        if outcome == "failed" and contents.status != "success" and (error or "").startswith("CancelledError("):
            outcome = "missing"  # Inspect cancels the samples that are running when it ends early
        yield ForeignRun(
            labels=labels, source=Source(path, intern(f"{sample.id}_epoch_{sample.epoch}")), header=header, log=log,
            **_identity(task, sample, is_ours=marker is not None), outcome=outcome, error=error, metrics=metrics,
            transcript=transcript,
        )  # fmt: skip
    for sample in _absent(contents, samples, marker):
        yield ForeignRun(
            labels=labels, source=Source(path, f"{sample.id}_epoch_{sample.epoch}"), header=header, log=log,
            **_identity(task, sample, is_ours=marker is not None), outcome="missing",
        )  # fmt: skip
    _measure(path, contents, exact, totals, with_means=marker is None)


def _identity(task: str, sample: SampleSummary, *, is_ours: bool) -> dict[str, Any]:
    """Return task, group, seed and repeat of a sample: those of the edition in a log that was exported from one."""
    if is_ours:
        place = msgspec.convert(sample.metadata, Place)
        return {"task": intern(place.task), "seed": place.seed, "repeat": place.rollout}
    return {"task": intern(f"{task}/{sample.id}"), "group": task, "repeat": sample.epoch - 1}


def _marker(path: Path, contents: Contents) -> Marker | None:
    """Return what `bakeoff export` wrote into the header, if it wrote the log. Raises UsageError for a changed one."""
    table = (contents.eval.get("metadata") or {}).get(MARK)
    if table is None:
        return None
    try:
        marker = msgspec.convert(table, Marker)
        Analysis.model_validate(marker.analysis)
        for sample in contents.samples or ():
            msgspec.convert(sample.metadata, Place)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(
            f"{path}: what `bakeoff export` wrote into it was changed, or a newer version wrote it: {_line(error)}"
        ) from error
    return marker


def _absent(
    contents: Contents, samples: Mapping[tuple[int | str, int], SampleSummary], marker: Marker | None
) -> Iterator[SampleSummary]:
    """Yield planned samples that the log does not have."""
    if marker is not None:
        for place in marker.absent:
            identifier = place.task if place.seed is None else f"{place.task}__s{place.seed}"
            yield SampleSummary(identifier, place.rollout + 1, metadata=msgspec.to_builtins(place))
        return
    config = contents.eval.get("config") or {}
    planned = (contents.eval.get("dataset") or {}).get("sample_ids") or []
    match config.get("limit"):
        case int(limit) if limit < len(planned):
            planned = planned[:limit]
        case [int(first), int(end)] if end - first < len(planned):
            planned = planned[first:end]
    known = {(str(identifier), epoch) for identifier, epoch in samples}
    for identifier in planned:
        for epoch in range(1, (config.get("epochs") or 1) + 1):
            if (str(identifier), epoch) not in known:
                yield SampleSummary(identifier, epoch)


def _values(sample: SampleSummary, totals: _Totals) -> tuple[dict[str, float], dict[str, bool]]:
    """Return a sample's numbers by metric, and whether each is a value that only lies between 0 and 1."""
    values: dict[str, float] = {}
    exact: dict[str, bool] = {}
    for name, score in (sample.scores or {}).items():
        parts = score.value.items() if isinstance(score.value, dict) else [("", score.value)]
        for key, value in parts:
            metric = intern(f"{name}/{key}" if key else name)
            number, is_letter = _number(value)
            if number is None:
                if isinstance(value, list | str):
                    totals.remarks[f"with a value of {metric} that is not a number (no score)"] += 1
                continue
            values[metric], exact[metric] = number, is_letter
    return values, exact


def _number(value: Any) -> tuple[float | None, bool]:
    match value:
        case bool():
            return float(value), True
        case int() | float():
            return (float(value), False) if not math.isnan(value) else (None, False)
        case str():
            text = value.strip()
            known = _LETTERS.get(text, _WORDS.get(text.lower()))
            if known is not None:
                return known, True
            with suppress(ValueError):
                return float(text), False
    return None, False


def _measure(path: Path, contents: Contents, exact: Mapping[str, bool], totals: _Totals, *, with_means: bool) -> None:
    """Note which metrics the log has, their ranges, and its own means."""
    results = contents.results or {}
    own: dict[str, set[str]] = {}
    for score in results.get("scores") or []:
        name, scorer = str(score.get("name")), str(score.get("scorer") or score.get("name"))
        metric = name if name in exact else f"{scorer}/{name}"
        known = score.get("metrics") or {}
        own.setdefault(metric, set()).update(known)
        if not with_means:
            continue
        reducer = score.get("reducer") or "mean"
        for kind in ("accuracy", "mean"):
            value = (known.get(kind) or {}).get("value")
            if isinstance(value, int | float) and metric in exact:
                of_metric = f" of {metric}" if len(exact) > 1 else ""
                of_epochs = "" if reducer == "mean" else f" of {reducer} over epochs"
                totals.means.append(Mean(metric, float(value), log=path, name=f"{kind}{of_metric}{of_epochs}"))
                break
    headline = results.get("headline") or {}
    main = (str(headline.get("score")), f"{headline.get('scorer')}/{headline.get('score')}")
    first = [metric for metric in main if metric in exact]
    for metric in (*first, *exact):
        totals.order.setdefault(metric)
        unit = exact[metric] or ("accuracy" in own.get(metric, ()) and metric not in totals.beyond_unit)
        totals.measures.setdefault(metric, set()).add(Measure("maximize", (0, 1)) if unit else Measure())


def _labels(path: Path, contents: Contents) -> dict[str, Any]:
    """Return what an arm can be told apart by. A sampling seed is no arm: `--seed-from` takes it."""
    spec, plan = contents.eval, contents.plan
    steps = [str(step.get("solver")) for step in plan.get("steps") or []]
    config = {**(spec.get("model_generate_config") or {}), **(plan.get("config") or {})}
    config |= {name: value for name, value in (spec.get("config") or {}).items() if name in LIMITS}
    config.pop("seed", None)
    labels: dict[str, Any] = {"model": spec.get("model")}
    for name, table in (
        ("task_args", spec.get("task_args")), ("model_args", spec.get("model_args")),
        ("model_roles", {role: (each or {}).get("model") for role, each in (spec.get("model_roles") or {}).items()}),
        ("config", config),
    ):  # fmt: skip
        labels |= {f"{name}.{key}": _flat(value) for key, value in sorted((table or {}).items())}
    labels["solver"] = spec.get("solver") or " > ".join(steps)
    labels |= {f"solver_args.{key}": _flat(value) for key, value in sorted((spec.get("solver_args") or {}).items())}
    labels["task_version"] = spec.get("task_version")
    return {key: value for key, value in labels.items() if value is not None} | {DIRECTORY: path.parent.name}


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _flat(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def _message(error: Any) -> str:
    return str(error.get("message", "error")) if isinstance(error, dict) else str(error)
