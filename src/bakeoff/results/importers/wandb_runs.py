"""W&B runs: what a run wrote offline, and runs on a server. Both need the `wandb` package (`pip install wandb`).

Offline files are LevelDB logs of protocol buffers. From a server one key is asked for at a time, because asking for
several returns only the rows that have all of them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.importers import ONLINE
from bakeoff.results.importers.directories import name_and_seed
from bakeoff.results.importers.foreign import ForeignRun, Outcome, Source
from bakeoff.results.table import Series as Column

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
        raise UsageError("reading W&B runs needs the wandb package: pip install 'bakeoff[wandb]'") from error
    return wandb


# -- offline


class Wandb:
    """A `.wandb` file, the directory that an offline run left behind, a directory of those, or runs on a server."""

    name = "wandb"

    def claims(self, path: Path) -> list[Path]:
        if str(path).startswith(ONLINE) or path.suffix == ".wandb":
            return [path]
        # Runs have directories run-* and offline-run-*; latest-run is a link to one of them.
        return [*sorted(path.glob("*.wandb")), *sorted(path.glob("*run-*/*.wandb"))]

    def read(self, paths: Sequence[Path]) -> Iterator[ForeignRun]:
        for path in paths:
            yield from online(str(path).removeprefix(ONLINE)) if str(path).startswith(ONLINE) else [read_file(path)]


def read_file(path: Path) -> ForeignRun:
    """The run in a `.wandb` file. One without an exit record was killed, or is still running."""
    _package()
    from wandb.proto import wandb_internal_pb2 as protocol

    series: dict[str, tuple[list[float], list[float]]] = {}
    numbers: dict[str, float] = {}
    config: dict[str, Any] = {}
    name, state = path.stem, "crashed"
    for data in _records(path):
        record = protocol.Record()
        record.ParseFromString(data)
        match record.WhichOneof("record_type"):
            case "run":
                name = record.run.display_name or record.run.run_id
                config |= _config(record.run.config)
            case "config":
                config |= _config(record.config)
            case "history":
                _add_step({_key(item): item.value_json for item in record.history.item}, series)
            case "summary":
                numbers |= _numbers({_key(item): item.value_json for item in record.summary.update})
            case "exit":
                state = "finished" if record.exit.exit_code == 0 else "failed"
    columns = {key: (np.array(steps), np.array(values)) for key, (steps, values) in series.items()}
    numbers = {key: value for key, value in numbers.items() if key not in columns and not key.startswith("_")}
    return _run(Source(path), str(path), name, state, columns, numbers, config)


def _records(path: Path) -> Iterator[bytes]:
    """Whole records, put together from the pieces that the log's blocks cut them into. A torn end is left out."""
    data = path.read_bytes()
    if data[:4] != b":W&B":
        raise UsageError(f"{path}: not a file that wandb wrote")
    position = FILE_HEADER
    pieces: list[bytes] = []
    while position + HEADER.size <= len(data):
        left = BLOCK - position % BLOCK
        if left < HEADER.size:
            position += left
            continue
        _, length, kind = HEADER.unpack_from(data, position)
        position += HEADER.size
        piece = data[position : position + length]
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or len(piece) < length:
            return
        position += length
        pieces = [piece] if kind in (_FULL, _FIRST) else [*pieces, piece]
        if kind in (_FULL, _LAST):
            yield b"".join(pieces)


def _key(item: Any) -> str:
    return item.key or "/".join(item.nested_key)


def _config(config: Any) -> dict[str, Any]:
    settings = {}
    for item in config.update:
        value = json.loads(item.value_json)
        settings[_key(item)] = value["value"] if isinstance(value, dict) and set(value) == {"value"} else value
    return settings


def _numbers(texts: Mapping[str, str]) -> dict[str, float]:
    numbers = {}
    for key, text in texts.items():
        value = json.loads(text)
        if value in ("NaN", "Infinity", "-Infinity"):
            value = float(value)
        if isinstance(value, int | float):
            numbers[key] = float(value)
    return numbers


def _add_step(texts: Mapping[str, str], series: dict[str, tuple[list[float], list[float]]]) -> None:
    values = _numbers(texts)
    step = values.pop(_STEP, None)
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
    return _run(Source(Path(f"{ONLINE}{label}")), label, run.name, run.state, History(run), {}, dict(run.config))


def _run(
    source: Source,
    label: str,
    name: str,
    state: str,
    series: Mapping[str, Column],
    metrics: Mapping[str, float],
    config: Mapping[str, Any],
) -> ForeignRun:
    """Arm, task and seed from the run's configuration, else from its name."""
    arm, seed = name_and_seed(name)
    configured = config.get("seed")
    return ForeignRun(
        labels={"arm": config.get("condition") or config.get("arm") or arm},
        source=source,
        task=str(config.get("task") or "default"),
        seed=int(configured) if isinstance(configured, int | float) and configured >= 0 else seed,
        run=label,
        outcome=STATES.get(state, "running"),
        error=None if state == "finished" else state,
        metrics=metrics,
        series=series,
    )
