"""JSON of `hyperfine --export-json`: each of `times` is a run of a command, and times of two commands are not paired.

With parameters (`-L n 1,2 'old {n}' 'new {n}'`) the arm is the command with its parameters put back, and the task is their values. Where
commands do not all have the same values, or there is one command only, each command line is an arm. A run with another exit code than 0 failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.importers.files import first_bytes, read_whole_json
from bakeoff.results.importers.foreign import BY_FILE, DIRECTORY, ForeignRun, Item, Log, Mean, Measure, Reading, Source

TIME = "time_s"
_START = re.compile(rb'\s*\{\s*"results"\s*:\s*\[\s*\{\s*"command"\s*:')


class Hyperfine:
    """A JSON file of hyperfine, or a directory with such files."""

    name = "hyperfine"

    def claims(self, path: Path) -> list[Path]:
        files = [path] if path.is_file() else sorted(path.glob("*.json"))
        return [file for file in files if file.suffix == ".json" and _START.match(first_bytes(file, 1 << 12))]

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        results = [(path, result) for path in paths for result in _results(path)]
        crossed = _is_crossed([result for _, result in results])
        seen: dict[tuple[Path, str], int] = {}
        for path, result in results:
            values = _values(result)
            labels = {"command": _template(result) if crossed else result["command"], DIRECTORY: path.name}
            task = values if values and crossed else "default"
            place = f"{result['command']} {values}".strip()
            number = seen[path, place] = seen.get((path, place), -1) + 1
            place += f" #{number + 1}" if number else ""
            yield from _runs(path, place, result, labels, task)
            means = [Mean(TIME, result["mean"], labels, log=path)] if task == "default" and not number else []
            yield Reading(
                "hyperfine", "", {TIME: Measure("minimize")}, means, _notes(path, place, result), labels=BY_FILE
            )


def _results(path: Path) -> list[dict[str, Any]]:
    results = read_whole_json(path, "hyperfine")["results"]
    for result in results:
        if not isinstance(result.get("times"), list):
            raise UsageError(
                f"{path}: {result.get('command')!r} has no `times`, only their summary; nothing can be judged by that"
            )
    return list(results)


def _template(result: Mapping[str, Any]) -> str:
    """Return the command with its parameters' names where their values are: as whole words, else anywhere."""
    command = str(result["command"])
    for name, value in (result.get("parameters") or {}).items():
        mark, text = f"{{{name}}}", re.escape(str(value))
        words = re.sub(rf"(?<![\w.]){text}(?![\w.])", mark.replace("\\", r"\\"), command)
        command = words if words != command else command.replace(str(value), mark)
    return command


def _values(result: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in (result.get("parameters") or {}).items())


def _is_crossed(results: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are several commands, and each was run with the same values of its parameters."""
    values: dict[str, set[str]] = {}
    for result in results:
        values.setdefault(_template(result), set()).add(_values(result))
    return len(values) > 1 and len({frozenset(each) for each in values.values()}) == 1


def _runs(
    path: Path, place: str, result: Mapping[str, Any], labels: Mapping[str, str], task: str
) -> Iterator[ForeignRun]:
    codes = result.get("exit_codes") or [0] * len(result["times"])  # before 1.11 hyperfine stopped at the first failure
    if len(codes) != len(result["times"]):
        raise UsageError(f"{path}: {place!r} has {len(result['times'])} times and {len(codes)} exit codes")
    for number, (time, code) in enumerate(zip(result["times"], codes, strict=True)):
        ended = "killed by a signal" if code is None else f"exit code {code}"
        yield ForeignRun(
            labels=labels,
            header={"parameters": result.get("parameters") or {}},
            source=Source(path, member=f"{place}:{number}"),
            log=Log(path),
            task=task,
            outcome="scored" if code == 0 else "failed",
            error=None if code == 0 else ended,
            metrics={TIME: time} if code == 0 else {},
        )


def _notes(path: Path, place: str, result: Mapping[str, Any]) -> list[str]:
    zeros = sum(time == 0 for time in result["times"])
    if not zeros:
        return []
    return [
        f"{path}: {zeros} of {len(result['times'])} times of {place!r} are 0, because hyperfine takes off the shell's own time; measure "
        "with `hyperfine -N`"
    ]
