"""W&B runs: what a run wrote offline, read without the `wandb` package, and runs on a server, which need it.

Offline files are LevelDB logs of protocol buffers (wandb_internal.proto). From a server one key is asked for at a time, because
asking for several returns only the rows that have all of them.

The arm is `condition` or `arm` of the configuration, else the group, else the name without its seed.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.errors import UsageError, install
from bakeoff.records.protobuf import fields
from bakeoff.results.importers import ONLINE
from bakeoff.results.importers.foreign import ForeignRun, Item, Outcome, Reading, Source
from bakeoff.results.importers.identity import Tracked, arm_label
from bakeoff.results.table import Series as Column

MAGIC = b":W&B"
BLOCK = 32_768
HEADER = struct.Struct("<IHB")
"""Checksum, length and kind of a piece of a record."""
FILE_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
STATES: Mapping[str, Outcome] = {"finished": "scored", "failed": "failed", "crashed": "missing", "killed": "missing"}
"""Outcomes of W&B's states. A crashed run lost its connection to the server, which is not the arm's fault."""
_STEP = "_step"


def _package() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise UsageError(f"reading W&B runs from a server needs the wandb package: {install('wandb')}") from error
    return wandb


# -- offline


class Wandb:
    """A `.wandb` file, the directory that an offline run left behind, a directory of those, or runs on a server."""

    name = "wandb"

    def claims(self, path: Path) -> list[Path]:
        if str(path).startswith(ONLINE) or path.suffix == ".wandb":
            return [path]
        # Runs have directories run-* and offline-run-*; latest-run is a link to one of them.
        places = ("*.wandb", "*run-*/*.wandb", "wandb/*run-*/*.wandb")
        return next((files for place in places if (files := sorted(path.glob(place)))), [])

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        logs: dict[str, list[Log]] = {}
        for path in paths:
            if str(path).startswith(ONLINE):
                yield from online(str(path).removeprefix(ONLINE))
            else:
                log = read_log(path)
                logs.setdefault(log.run_id, []).append(log)
        runs = [(resumed(parts), len(parts)) for parts in logs.values()]
        for log, _ in runs:
            yield log.as_run()
        if runs:
            versions = ", ".join(sorted({log.version for log, _ in runs}))
            labels = arm_label(Tracked.of(log.config, log.name, log.group) for log, _ in runs)
            yield Reading("W&B", versions, notes=_notes(runs), labels=labels)


@dataclass(slots=True)
class Log:
    """What one `.wandb` file says about a run."""

    path: Path
    run_id: str = ""
    name: str = ""
    group: str = ""
    job_type: str = ""
    version: str = ""
    started_at: float = 0.0
    exit_code: int | None = None
    """None: the run was killed, or is still running."""
    config: dict[str, Any] = field(default_factory=dict)
    series: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    summary: dict[str, float] = field(default_factory=dict)

    def as_run(self) -> ForeignRun:
        columns = {key: (np.array(steps), np.array(values)) for key, (steps, values) in self.series.items()}
        numbers = {key: value for key, value in self.summary.items() if key not in columns and not key.startswith("_")}
        state = {None: "crashed", 0: "finished"}.get(self.exit_code, "failed")
        called = {"name": self.name, "group": self.group, "job_type": self.job_type}
        return _run(Source(self.path), str(self.path), called, state, columns, numbers, self.config)


def read_log(path: Path) -> Log:
    """Read a file that wandb wrote. Raises UsageError where it is none, or is damaged before its end."""
    log = Log(path, run_id=str(path))
    try:
        for data in _records(path):
            for number, content in fields(data):
                if isinstance(content, bytes):
                    _add(log, number, content)
    except (ValueError, IndexError, struct.error) as error:
        raise UsageError(f"{path}: a record of the run cannot be read: {error}") from error
    if not log.name:
        raise UsageError(f"{path}: has no run in it; was it cut off, or has the run only just started?")
    return log


def resumed(parts: Sequence[Log]) -> Log:
    """Join the files of one run: each later one counts from its first step on, and says how the run ended."""
    first, *later = sorted(parts, key=lambda log: (log.started_at, log.path.parts))
    for log in later:
        start = min((step for steps, _ in log.series.values() for step in steps), default=math.inf)
        for key, (steps, values) in first.series.items():
            kept = [(step, value) for step, value in zip(steps, values, strict=True) if step < start]
            more_steps, more_values = log.series.get(key, ([], []))
            log.series[key] = ([step for step, _ in kept] + more_steps, [value for _, value in kept] + more_values)
        log.config, log.summary = first.config | log.config, first.summary | log.summary
        first = log
    return first


def _notes(runs: Sequence[tuple[Log, int]]) -> list[str]:
    notes = []
    if unfinished := [log for log, _ in runs if log.exit_code is None]:
        notes.append(
            f"{len(unfinished)} of {len(runs)} runs have no exit record, so they are still running or were killed, and count as "
            f"missing: {unfinished[0].path}"
        )
    if again := [log for log, parts in runs if parts > 1]:
        notes.append(
            f"{len(again)} of {len(runs)} runs were resumed; of steps that two files have, the last written counts: {again[0].path}"
        )
    return notes


def _records(path: Path) -> Iterator[bytes]:
    """Whole records, put together from the pieces that the log's blocks cut them into. A torn end is left out."""
    data = path.read_bytes()
    if data[: len(MAGIC)] != MAGIC:
        raise UsageError(f"{path}: not a file that wandb wrote")
    position = FILE_HEADER
    pieces: list[bytes] = []
    while position + HEADER.size <= len(data):
        left = BLOCK - position % BLOCK
        if left < HEADER.size:
            position += left
            continue
        checksum, length, kind = HEADER.unpack_from(data, position)
        start = position + HEADER.size
        piece = data[start : start + length]
        if len(piece) < length or not any(data[position : position + HEADER.size]):
            return
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or zlib.crc32(bytes((kind,)) + piece) != checksum:
            raise UsageError(f"{path}: is damaged at byte {position}: a checksum does not match")
        position = start + length
        pieces = [piece] if kind in (_FULL, _FIRST) else [*pieces, piece]
        if kind in (_FULL, _LAST):
            yield b"".join(pieces)


def _add(log: Log, number: int, content: bytes) -> None:
    """Add one field of a `Record` to what is known of the run: header, run, config, history, summary or exit."""
    match number:
        case 21:  # header: version_info (1), producer (1)
            log.version = _text(dict(fields(_bytes(dict(fields(content)), 1))), 1).partition("+")[0]
        case 17:  # run: run_id (1), config (4), run_group (6), job_type (7), display_name (8), start_time (17)
            run = dict(fields(content))
            log.run_id = _text(run, 1) or log.run_id
            log.name, log.group = _text(run, 8) or log.run_id, _text(run, 6) or log.group
            log.job_type = _text(run, 7) or log.job_type
            log.config |= _config(_bytes(run, 4))
            time = dict(fields(_bytes(run, 17)))  # seconds (1), nanoseconds (2)
            log.started_at = float(time.get(1, 0)) + float(time.get(2, 0)) / 1e9
        case 5:
            log.config |= _config(content)
        case 2:
            _add_step(content, log.series)
        case 3:
            log.summary |= _numbers(_items(content, 1))
        case 18:  # exit: exit_code (1), not_complete (3)
            ended = dict(fields(content))
            code = ended.get(1, 0)
            log.exit_code = code if isinstance(code, int) and not ended.get(3) else None


def _bytes(message: Mapping[int, Any], number: int) -> bytes:
    content = message.get(number, b"")
    return content if isinstance(content, bytes) else b""


def _text(message: Mapping[int, Any], number: int) -> str:
    return _bytes(message, number).decode(errors="replace")


def _items(content: bytes, number: int) -> dict[str, Any]:
    """Values by key of the items in a record: key (1) or nested_key (2), and value_json (16) or a value of one type."""
    items = {}
    for place, item in fields(content):
        if place != number or not isinstance(item, bytes):
            continue
        keys: list[str] = []
        value: Any = None
        for inner, part in fields(item):
            match inner, part:
                case ((1 | 2), bytes()):
                    keys.append(part.decode(errors="replace"))
                case ((8 | 16), bytes()):
                    value = json.loads(part)
                case 4, int():
                    value = bool(part)
                case 5, int():
                    unsigned = part & (1 << 64) - 1
                    value = (unsigned >> 1) ^ -(unsigned & 1)
                case 6, float():
                    value = part
                case 7, bytes():
                    value = part.decode(errors="replace")
        items["/".join(filter(None, keys))] = value
    return items


def _config(content: bytes) -> dict[str, Any]:
    return {
        key: value["value"] if isinstance(value, dict) and set(value) == {"value"} else value
        for key, value in _items(content, 1).items()
    }


def _numbers(items: Mapping[str, Any]) -> dict[str, float]:
    numbers = {}
    for key, value in items.items():
        if value in ("NaN", "Infinity", "-Infinity") or isinstance(value, int | float):
            numbers[key] = float(value)
    return numbers


def _add_step(content: bytes, series: dict[str, tuple[list[float], list[float]]]) -> None:
    values = _numbers(_items(content, 1))
    number = dict(fields(_bytes(dict(fields(content)), 2))).get(1)  # step (2), num (1)
    step = values.pop(_STEP, float(number) if isinstance(number, int) else None)
    for key, value in values.items():
        if not key.startswith("_"):
            steps, column = series.setdefault(key, ([], []))
            steps.append(float(len(steps)) if step is None else step)
            column.append(value)


# -- on a server


class History(Mapping[str, Column]):
    """Series of a run on a server, each fetched whole when it is first asked for."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._names = [key for key, value in dict(run.summary).items() if _is_metric(key, value)]
        self._column = cache(self._fetch)

    def _fetch(self, name: str) -> Column:
        rows = [row for row in self._run.scan_history(keys=[_STEP, name]) if row.get(name) is not None]
        return np.array([float(row[_STEP]) for row in rows]), np.array([float(row[name]) for row in rows])

    def __getitem__(self, name: str) -> Column:
        if name not in self._names:
            raise KeyError(name)
        return self._column(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _is_metric(key: str, value: object) -> bool:
    return not key.startswith("_") and (isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity"))


def online(name: str) -> Iterator[ForeignRun]:
    """Yield `ENTITY/PROJECT/RUN`, or every run of `ENTITY/PROJECT`."""
    wandb = _package()
    parts = name.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise UsageError(f"wandb:{name}: write wandb:ENTITY/PROJECT/RUN, or wandb:ENTITY/PROJECT for all of its runs")
    try:
        api = wandb.Api(timeout=60)
        runs = [api.run(name)] if len(parts) == 3 else list(api.runs(name))
    except Exception as error:  # the client raises many kinds, its own and those of the libraries below it
        raise UsageError(f"wandb:{name}: {error}") from error
    yield from map(of_api, runs)


def of_api(run: Any) -> ForeignRun:
    """A run as the client gives it: `state`, `config`, `summary` and `scan_history`."""
    label = "/".join(run.path)
    return _run(
        Source(Path(f"{ONLINE}{label}")),
        label,
        {"name": run.name, **{key: str(getattr(run, key, None) or "") for key in ("group", "job_type")}},
        run.state,
        History(run),
        {},
        dict(run.config),
    )


def _run(
    source: Source,
    label: str,
    called: Mapping[str, str],
    state: str,
    series: Mapping[str, Column],
    metrics: Mapping[str, float],
    config: Mapping[str, Any],
) -> ForeignRun:
    """Return a run whose arm, task and seed are from its configuration, else from what it is called: group and name."""
    tracked = Tracked.of(config, called["name"], called["group"])
    return ForeignRun(
        labels={"arm": tracked.arm},
        source=source,
        header={**{key: value or None for key, value in called.items()}, "config": config},
        task=tracked.task,
        seed=tracked.seed,
        run=label,
        outcome=STATES.get(state, "running"),
        error=None if state == "finished" else state,
        metrics=metrics,
        series=series,
    )
