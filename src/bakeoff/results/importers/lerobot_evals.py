"""`eval_info.json` of `lerobot-eval`: successes and rewards of each episode, by suite and task.

The file does not name the policy, so the arm is the directory without the time that `lerobot-eval` puts before its name. Since 0.4 it does
not have the seeds of episodes: episodes of a task are repeats. Files of older versions, with one task only, are not read.

The file is written when the eval has ended, so it has no errors: an episode that ran out of steps is no success.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.importers.files import first_bytes, read_whole_json
from bakeoff.results.importers.foreign import DIRECTORY, ForeignRun, Item, Log, Mean, Measure, Reading, Source

INFO = "eval_info.json"
SUCCESS, SUM_REWARD, MAX_REWARD = "success", "sum_reward", "max_reward"
_START = re.compile(rb'\s*\{\s*"per_task"\s*:\s*\[')
_TIME = re.compile(r"\d\d-\d\d-\d\d_(?=.)")


class LeRobot:
    """An `eval_info.json` of LeRobot, whatever its name is now, or a directory with such files at any of three levels below."""

    name = "lerobot"

    def claims(self, path: Path) -> list[Path]:
        places = [INFO, *("*/" * depth + INFO for depth in (1, 2, 3))]
        files = [path] if path.is_file() else [file for place in places for file in sorted(path.glob(place))]
        return [file for file in files if file.suffix == ".json" and _START.match(first_bytes(file, 1 << 12))]

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        for path in paths:
            info = read_whole_json(path, "LeRobot")
            labels = {DIRECTORY: _TIME.sub("", path.parent.name) if path.name == INFO else path.stem}
            runs = 0
            try:
                for run in _episodes(path, info, labels):
                    runs += 1
                    yield run
                rate = info["overall"]["pc_success"] / 100
                mean = Mean(SUCCESS, rate, labels, log=path, name="pc_success / 100")
            except (KeyError, TypeError, AttributeError) as error:
                raise UsageError(f"{path}: is not an {INFO} of LeRobot: {error!r}") from error
            if not runs:
                raise UsageError(f"{path}: has no episode")
            better = Measure("maximize")
            measures = {SUCCESS: Measure("maximize", (0, 1)), SUM_REWARD: better, MAX_REWARD: better}
            yield Reading("LeRobot", "", measures, [mean], unit="episode")


def _episodes(path: Path, info: Mapping[str, Any], labels: Mapping[str, Any]) -> Iterator[ForeignRun]:
    log = Log(path)
    for task in info["per_task"]:
        suite, metrics = str(task["task_group"]), task["metrics"]
        name = f"{suite}/{task['task_id']}"
        lists = [
            metrics[f"{metric}s" if metric != SUCCESS else "successes"] for metric in (SUCCESS, SUM_REWARD, MAX_REWARD)
        ]
        if not all(isinstance(values, list) for values in lists) or len({len(values) for values in lists}) > 1:
            raise UsageError(
                f"{path}: {name} has no value for each episode in `successes`, `sum_rewards` and `max_rewards`"
            )
        for number, (success, total, largest) in enumerate(zip(*lists, strict=True)):
            yield ForeignRun(
                labels=labels,
                source=Source(path, member=f"{name}:{number}"),
                log=log,
                task=name,
                group=suite,
                metrics=_metrics(success, total, largest),
            )


def _metrics(success: bool | None, total: float | None, largest: float | None) -> dict[str, Any]:
    values = {SUCCESS: None if success is None else float(success), SUM_REWARD: total, MAX_REWARD: largest}
    return {name: value for name, value in values.items() if value is not None}
