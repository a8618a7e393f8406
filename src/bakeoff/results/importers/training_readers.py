"""Curves in the files that trainers leave behind: event files of TensorBoard, `monitor.csv` and `evaluations.npz` of Stable-Baselines3,
`trainer_state.json` of Hugging Face. Nothing is ever unpickled.

A reader adds to a `Log`. Of steps that were written twice, because a run was resumed, the last written count.
"""

from __future__ import annotations

import csv
import json
import math
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.records.event_files import read_events
from bakeoff.results.importers.files import decode_object
from bakeoff.results.importers.foreign import Outcome
from bakeoff.results.table import Series

Points = dict[str, dict[float, float]]
"""Values by metric and step."""


@dataclass(slots=True)
class Log:
    """What the files of one run say."""

    curves: Points = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    task: str | None = None
    """The environment, where a file names it."""
    outcome: Outcome | None = None
    error: str | None = None
    overlaps: bool = False
    """Whether steps were written twice."""
    torn: bool = False
    """Whether a file ends in the middle of a record."""
    started_at: float | None = None

    def add(self, session: Points) -> None:
        """Add what was written later than everything so far: earlier values from its first step on no longer count."""
        for name, points in session.items():
            if not points:
                continue
            first = min(points)
            earlier = self.curves.get(name, {})
            kept = {step: value for step, value in earlier.items() if step < first}
            self.overlaps |= len(kept) < len(earlier)
            self.curves[name] = kept | points

    def series(self) -> dict[str, Series]:
        columns = {}
        for name, points in self.curves.items():
            steps = sorted(points)
            columns[name] = (np.array(steps, dtype=float), np.array([points[step] for step in steps], dtype=float))
        return columns


# -- TensorBoard


def add_events(log: Log, prefixes: Mapping[Path, str], nested: Collection[Path]) -> None:
    """Add scalars of event files, each with the prefix of its metrics. Raises UsageError for a file that is none.

    `nested` are files below a directory of the same run: one with hyperparameters has copies of last values, and is left out.
    """
    sessions: list[tuple[float, Path, Points]] = []
    for path, prefix in prefixes.items():
        session: Points = {}
        time: float | None = None
        settings = False
        with path.open("rb") as file:
            for event in read_events(file):
                if event is None:
                    if time is None:
                        raise UsageError(
                            f"{path}: is not an event file of TensorBoard, or was cut off within its first record"
                        )
                    log.torn = True
                    continue
                time = event.time if time is None else time
                settings |= event.has_settings
                for tag, value in event.values.items():
                    session.setdefault(prefix + tag, {})[float(event.step)] = value
        if not (settings and (path in nested or not session)):
            sessions.append((time or 0.0, path, session))
    for time, _, session in sorted(sessions, key=lambda each: (each[0], str(each[1]))):
        log.started_at = min(log.started_at or time, time) if time else log.started_at
        log.add(session)


# -- Stable-Baselines3


def add_monitors(log: Log, paths: Sequence[Path]) -> None:
    """Add the episodes of a run, one file for each of its environments. Steps are those of all environments together.

    `t` counts from the start of the process. Where it goes back, the run was resumed, and the file was appended to.
    """
    episodes: list[tuple[int, float, float, float]] = []
    for path in paths:
        header, rows = _monitor(path, log)
        log.task = log.task or (str(header["env_id"]) if header.get("env_id") not in (None, "None") else None)
        started = float(header.get("t_start") or 0.0)
        log.started_at = min(log.started_at or started, started) if started else log.started_at
        process, before = 0, -math.inf
        for reward, length, time in rows:
            process += time < before
            before = time
            episodes.append((process, started + time, reward, length))
    if not episodes:
        return
    steps, rewards, lengths = 0.0, {}, {}
    for _, _, reward, length in sorted(episodes, key=lambda episode: episode[:2]):
        steps += length
        rewards[steps], lengths[steps] = reward, length
    log.add({"episode_reward": rewards, "episode_length": lengths})


def _monitor(path: Path, log: Log) -> tuple[dict[str, Any], list[tuple[float, float, float]]]:
    """Return the header and (reward, length, time) of each episode."""
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    if not first.startswith("#"):
        raise UsageError(f'{path}: does not begin with the header of a monitor file, such as #{{"t_start": ...}}')
    try:
        header = decode_object(first.removeprefix("#").encode())
        names, *lines = list(csv.reader(rest.splitlines())) or [[]]
        places = [names.index(name) for name in ("r", "l", "t")]
    except ValueError as error:
        raise UsageError(f"{path}: is not a whole monitor file: {error}") from error
    rows = []
    for number, line in enumerate(lines, 3):
        last = number == len(lines) + 2
        if last and not rest.endswith("\n"):
            log.torn = True  # it is being written; even a whole number may lack digits
            break
        try:
            reward, length, time = (float(line[place]) for place in places)
        except (ValueError, IndexError) as error:
            raise UsageError(f"{path}, line {number}: is not an episode: {','.join(line)!r}") from error
        rows.append((reward, length, time))
    return header, rows


def add_evaluations(log: Log, path: Path) -> None:
    """Add `evaluations.npz`: episodes of an evaluation are averaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {
                name: file[name] for name in ("timesteps", "results", "ep_lengths", "successes") if name in file.files
            }
        steps = [float(step) for step in arrays.pop("timesteps")]
        names = {"results": "eval/mean_reward", "ep_lengths": "eval/mean_ep_length", "successes": "eval/success_rate"}
        for name, table in arrays.items():
            log.add({names[name]: dict(zip(steps, (float(np.mean(row)) for row in table), strict=True))})
    except (ValueError, KeyError, OSError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: is not a file of evaluations: {str(error).splitlines()[0]}") from error


# -- Hugging Face


def add_states(log: Log, paths: Sequence[Path]) -> None:
    """Add the history of a training. Its states are prefixes of one another, so the longest has all of it.

    Where they are not, the run was resumed from an earlier checkpoint: then the state that was written last counts.
    """
    states = {path: _state(path) for path in paths}
    by_length = sorted(paths, key=lambda path: (len(states[path]["log_history"]), len(path.parts) * -1))
    histories = [_by_step(states[path]["log_history"]) for path in by_length]
    chosen = by_length[-1]
    if any(not _is_prefix(short, long) for short, long in pairwise(histories)):
        log.overlaps = True
        chosen = max(paths, key=lambda path: path.stat().st_mtime_ns)
    state = states[chosen]
    points: Points = {}
    for (step, name), value in _by_step(state["log_history"]).items():
        if name.startswith("train_") or name == "total_flos":
            log.metrics[name] = value  # totals, which the trainer logs once
        else:
            points.setdefault(name, {})[step] = value
    log.add(points)
    done, planned, interval = (float(state.get(key) or 0) for key in ("global_step", "max_steps", "save_steps"))
    control = ((state.get("stateful_callbacks") or {}).get("TrainerControl") or {}).get("attributes") or {}
    # With `save_steps` below 1 it is a share of all steps. The last steps of a training may have no checkpoint of their own.
    interval = interval * planned if interval < 1 else interval
    if done < planned and planned - done >= max(interval, 1) and not control.get("should_training_stop"):
        log.outcome, log.error = "missing", f"its last state is of step {done:.0f} of {planned:.0f}"


def _state(path: Path) -> dict[str, Any]:
    try:
        state = decode_object(path.read_bytes())
    except (ValueError, OSError) as error:
        raise UsageError(f"{path}: is not a whole trainer state: {error}") from error
    if not isinstance(state.get("log_history"), list) or "global_step" not in state:
        raise UsageError(f"{path}: is not a trainer state: it has no `log_history` or no `global_step`")
    return state


def _by_step(history: Iterable[Any]) -> dict[tuple[float, str], float]:
    """Values by step and metric; of an entry that is there twice the last one."""
    values = {}
    for entry in history:
        if isinstance(entry, dict) and isinstance(entry.get("step"), int | float):
            for name, value in entry.items():
                if name not in ("step", "epoch") and isinstance(value, int | float):
                    values[float(entry["step"]), name] = float(value)
    return values


def _is_prefix(short: Mapping[tuple[float, str], float], long: Mapping[tuple[float, str], float]) -> bool:
    """Compare values as text: NaN is equal to NaN."""
    return all(key in long and json.dumps(long[key]) == json.dumps(value) for key, value in short.items())
