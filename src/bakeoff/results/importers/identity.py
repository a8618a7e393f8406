"""Who a run of another tool is: its arm, task and seed by what differs, by its configuration and name, or by what flags say; and
which of its reruns counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from bakeoff.errors import UsageError
from bakeoff.results.importers.foreign import DIRECTORY, ForeignRun, Log

Reruns = Literal["newest", "seeds", "refuse"]
PATH = "path"
"""What `--arm-from` calls the path of a run's log or file; `path:REGEX` is a part of it."""
MAX_FIELDS_SHOWN = 40
_NAME = re.compile(r"(?P<arm>.+?)[_.\-]+(?:seed|s)[_=\-]?(?P<seed>\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Tracked:
    """Who a run of an experiment tracker is."""

    arm: str
    arm_from: str
    """The place of the arm's name, for the reading line."""
    task: str
    seed: int | None

    @classmethod
    def of(cls, config: Mapping[str, Any], name: str, group: Any = None, prefix: str = "config") -> Tracked:
        """Look for the arm in `condition` and `arm` of the configuration, the group and the name without its seed."""
        own_name, seed = name_and_seed(name)
        places = {
            f"{prefix}.condition": config.get("condition"),
            f"{prefix}.arm": config.get("arm"),
            "group": group,
            "name": own_name,
        }
        arm_from = next((place for place, value in places.items() if value not in (None, "")), "name")
        configured = config.get("seed")
        with suppress(TypeError, ValueError, OverflowError):
            if float(configured) == int(float(configured)) >= 0:  # type: ignore[arg-type]  # text in MLflow
                seed = int(float(configured))  # type: ignore[arg-type]
        task = config.get("task")
        return cls(str(places[arm_from]), arm_from, "default" if task in (None, "") else str(task), seed)


def arm_label(runs: Iterable[Tracked]) -> dict[str, str]:
    """Return what the label `arm` is, for `Reading.labels`: `config.arm`, or `group or name` where runs differ in it."""
    places = dict.fromkeys(run.arm_from for run in runs)
    return {"arm": " or ".join(places)} if places else {}


def name_and_seed(name: str) -> tuple[str, int | None]:
    """(`full`, 3) of `full_s3`, `full.seed3` and the like: the arm, and the seed that a run's name ends in."""
    if match := _NAME.fullmatch(name):
        return match["arm"], int(match["seed"])
    if match := re.fullmatch(r"s(?:eed)?_?(\d+)", name):
        return name, int(match[1])
    return name, None


@dataclass(frozen=True, slots=True)
class Arms:
    """The arm of each run, and what names it."""

    names: list[str]
    fields: list[str]
    """Labels that tell the arms apart; none where there is one arm."""
    together: list[str]
    """Labels that differ between arms, too, and tell no more runs apart."""


@dataclass(frozen=True)
class Overrides:
    """What flags say about runs of other tools. Each of the first three is a header field, `path` or `path:REGEX`."""

    arm: str | None = None
    task: str | None = None
    seed: str | None = None
    infra_error: str | None = None
    """Regular expression: a run whose error it matches is missing."""
    reruns: Reruns = "refuse"

    @cached_property
    def is_infrastructure(self) -> Callable[[str], object]:
        """Search an error for `infra_error`. Raises UsageError where that is not a regular expression."""
        return _pattern("--infra-error", self.infra_error or "(?!)").search


def apply(runs: list[ForeignRun], overrides: Overrides) -> None:
    """Change tasks, seeds and outcomes, in place, as flags say. Raises UsageError for a field that is not there."""
    is_infrastructure = overrides.is_infrastructure
    tasks = _values(runs, "--task-from", overrides.task)
    seeds = _values(runs, "--seed-from", overrides.seed)
    for place, run in enumerate(runs):
        changes: dict[str, Any] = {}
        if tasks is not None:
            changes["task"] = _needed(run, tasks[place], "--task-from", overrides.task)
        if seeds is not None:
            text = _needed(run, seeds[place], "--seed-from", overrides.seed)
            if re.fullmatch(r"\d+", text) is None:
                raise UsageError(f"{_place(run)}: --seed-from {overrides.seed} gives {text!r}, not a whole number")
            changes["seed"] = int(text)
        if run.error is not None and is_infrastructure(run.error):
            changes["outcome"] = "missing"
        if changes:
            runs[place] = replace(run, **changes)


def arms_of(runs: Sequence[ForeignRun], overrides: Overrides) -> Arms:
    """Name the arm of each run by what differs, or by `--arm-from`."""
    if overrides.arm is None:
        return _differing(runs)
    values = _values(runs, "--arm-from", overrides.arm)
    assert values is not None
    return Arms([f"no {overrides.arm}" if value is None else value for value in values], [overrides.arm], [])


def _differing(runs: Sequence[ForeignRun]) -> Arms:
    """`name_arms` over a million runs that share a few mappings of labels."""
    places: dict[tuple[int, str | None], int] = {}
    kinds: list[ForeignRun] = []
    numbers = []
    for run in runs:
        number = places.setdefault((id(run.labels), run.group), len(kinds))
        if number == len(kinds):
            kinds.append(run)
        numbers.append(number)
    arms = name_arms([run.labels for run in kinds], [run.group for run in kinds])
    return replace(arms, names=[arms.names[number] for number in numbers])


def name_arms(labels: Sequence[Mapping[str, Any]], groups: Sequence[str | None] | None = None) -> Arms:
    """Name the arm of each run by the labels that differ between runs.

    The first label that differs gives its value alone, and each further one that tells more runs apart is added as
    `temperature=0.5`. `directory` counts only where nothing else differs. Where nothing differs at all there is one arm,
    called by the first label. With `groups`, a label counts where it differs inside a group of tasks: what differs only
    between tasks is no arm.
    """
    texts = [{key: str(value).strip() for key, value in each.items()} for each in labels]
    differing: list[str] = []
    inside: Sequence[str | None] = ()
    for inside in ([groups] if groups is not None and len(set(groups)) > 1 else []) + [[None] * len(labels)]:
        differing = _tell_apart(texts, inside)
        if differing:
            break
    if not differing:
        first = next((text for each in texts[:1] for key, text in each.items() if labels[0][key] is not None), "runs")
        return Arms([first] * len(labels), [], [])
    arms = []
    for each, text in zip(labels, texts, strict=True):
        head, *rest = differing
        parts = [text[head] if each.get(head) is not None else f"no {head}"]
        parts += [f"{key}={text[key]}" if each.get(key) is not None else f"no {key}" for key in rest]
        arms.append(", ".join(parts))
    others = dict.fromkeys(key for each in texts for key in each if key not in (DIRECTORY, *differing))
    return Arms(arms, differing, [key for key in others if _differs_too(texts, inside, key, differing)])


def _differs_too(
    texts: Sequence[Mapping[str, str]], groups: Sequence[str | None], key: str, differing: Sequence[str]
) -> bool:
    """Whether a label has two values inside any group, and is not another name of a label that names arms."""
    if any(all(each.get(key) == each.get(other) for each in texts) for other in differing):
        return False
    first: dict[str | None, str | None] = {}
    values = ((group, each.get(key)) for each, group in zip(texts, groups, strict=True))
    return any(first.setdefault(group, value) != value for group, value in values)


def _tell_apart(texts: Sequence[Mapping[str, str]], groups: Sequence[str | None]) -> list[str]:
    keys = dict.fromkeys(key for each in texts for key in each if key != DIRECTORY)
    differing: list[str] = []
    kinds = len(set(groups))
    for key in (*keys, DIRECTORY):
        if key == DIRECTORY and differing:
            break
        finer = {
            (group, *(each.get(other) for other in (*differing, key)))
            for each, group in zip(texts, groups, strict=True)
        }
        if len(finer) > kinds:
            differing.append(key)
            kinds = len(finer)
    return differing


# -- fields that flags name


def _values(runs: Sequence[ForeignRun], flag: str, name: str | None) -> list[str | None] | None:
    """Return what a flag's field is for each run; None where there is no flag. Raises UsageError if no run has it."""
    if name is None:
        return None
    known: dict[object, str | None] = {}
    values = []
    if is_path(name):
        paths = sorted({run.log.path if run.log is not None else run.source.path for run in runs})
        parts = dict(zip(paths, path_parts(paths, flag, name), strict=True))
        return [parts[run.log.path if run.log is not None else run.source.path] for run in runs]
    for run in runs:
        key = (id(run.labels), id(run.header))
        if key not in known:
            known[key] = _field(run, name)
        values.append(known[key])
    if runs and all(value is None for value in known.values()):
        fields = _fields(runs[0])
        more = f" and {len(fields) - MAX_FIELDS_SHOWN} more" if len(fields) > MAX_FIELDS_SHOWN else ""
        raise UsageError(
            f"{_place(runs[0])}: {flag} {name}: no such field; there are {PATH}, {PATH}:REGEX, "
            f"{', '.join(fields[:MAX_FIELDS_SHOWN])}{more}"
        )
    return values


def is_path(name: str | None) -> bool:
    """Whether a flag names the path of files and not a field."""
    return name is not None and (name == PATH or name.startswith(f"{PATH}:"))


def path_parts(paths: Sequence[Path], flag: str, name: str) -> list[str]:
    """Return the part of each path that `path` or `path:REGEX` means: relative to what all share, or the first group."""
    if name == PATH:
        shared = Path(os.path.commonpath([str(path.parent) for path in paths]))
        return [str(path.relative_to(shared).with_suffix("")) for path in paths]
    pattern = _pattern(flag, name.removeprefix(f"{PATH}:"))
    parts = []
    for path in paths:
        match = pattern.search(str(path))
        if match is None:
            raise UsageError(f"{path}: {flag} {name} does not match this path")
        parts.append((match[1] if pattern.groups else match[0]) or "")
    return parts


def _pattern(flag: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{flag}: {text!r} is not a regular expression: {error}") from error


def _field(run: ForeignRun, name: str) -> str | None:
    """Return a label, or a field of the header by its dotted name, as text."""
    value = run.labels.get(name)
    if value is None:
        value = _nested(run.header, name)
    return None if value is None or isinstance(value, Mapping) else str(value)


def _nested(header: Any, name: str) -> Any:
    """Return the value at a dotted name; the keys of a tool have dots of their own, such as `params` and `model.lr`."""
    if not isinstance(header, Mapping):
        return None
    if name in header:
        return header[name]
    parts = name.split(".")
    heads = (".".join(parts[:end]) for end in range(1, len(parts)))
    values = (_nested(header[head], name[len(head) + 1 :]) for head in heads if head in header)
    return next((value for value in values if value is not None), None)


def _fields(run: ForeignRun) -> list[str]:
    """List what `_field` takes, for an error."""
    names = list(run.labels)
    waiting = [(f"{key}", value) for key, value in run.header.items()]
    while waiting:
        name, value = waiting.pop(0)
        if isinstance(value, Mapping):
            waiting += [(f"{name}.{key}", each) for key, each in value.items()]
        elif value is not None:
            names.append(name)
    return list(dict.fromkeys(names))


def _needed(run: ForeignRun, value: str | None, flag: str, name: str | None) -> str:
    if value is None:
        raise UsageError(f"{_place(run)}: {flag} {name}: this one has no such field")
    return value


def _place(run: ForeignRun) -> Path:
    return run.log.path if run.log is not None else run.source.path


# -- reruns


def settle_reruns(runs: list[ForeignRun], arms: list[str], reruns: Reruns) -> int:
    """Decide about logs that have runs of the same arm, task and seed, in place; return how many runs were left out.

    `newest` keeps those of the newest log that has them, and an older one where the newest lacks a result. `seeds` makes
    each log a seed of its arm. Raises UsageError with both files otherwise, and for copies of one log, which are no seeds.
    """
    shared: dict[tuple[str, str | None, int | None], set[Path]] = {}
    for run, arm in zip(runs, arms, strict=True):
        if run.log is not None:
            shared.setdefault((arm, run.group, run.seed), set()).add(run.log.path)
    if all(len(paths) == 1 for paths in shared.values()):
        return 0
    best: dict[tuple[str, str, int | None], Log] = {}
    twice: tuple[Log, Log, str, str] | None = None
    for run, arm in zip(runs, arms, strict=True):
        if run.log is None or len(shared[arm, run.group, run.seed]) == 1:
            continue
        key = (arm, run.task, run.seed)
        other = best.setdefault(key, run.log)
        if other.path == run.log.path:
            continue
        if reruns == "refuse" or (reruns == "seeds" and run.log.id and run.log.id == other.id):
            _refuse(other, run.log, arm, run.task)
        twice = twice or (other, run.log, arm, run.task)
    if twice is None:
        return 0
    if reruns == "seeds":
        _number_logs(runs, arms)
        return 0
    return _keep_newest(runs, arms)


def _refuse(first: Log, second: Log, arm: str, task: str) -> None:
    if first.id and first.id == second.id:
        raise UsageError(
            f"{first.path} and {second.path} are the same log ({first.id}); name one of them, or say --reruns newest to take "
            "the file that was written last, or --arm-from path if they are two arms"
        )
    raise UsageError(
        f"{first.path} and {second.path} both have runs of {arm!r} on {task!r}: say --reruns newest to take the newest, "
        "--reruns seeds if each is another seed of the arm, or what tells two arms apart: --arm-from FIELD, path or path:REGEX"
    )


def _age(log: Log) -> tuple[float, float, str]:
    return (log.created or 0.0, log.path.stat().st_mtime if log.path.exists() else 0.0, str(log.path))


def _number_logs(runs: list[ForeignRun], arms: Sequence[str]) -> None:
    logs: dict[str, dict[Path, Log]] = {}
    for run, arm in zip(runs, arms, strict=True):
        if run.log is not None:
            logs.setdefault(arm, {})[run.log.path] = run.log
    seeds = {
        (arm, log.path): number
        for arm, each in logs.items()
        for number, log in enumerate(sorted(each.values(), key=_age))
    }
    for place, (run, arm) in enumerate(zip(runs, arms, strict=True)):
        if run.log is not None:
            runs[place] = replace(run, seed=seeds[arm, run.log.path])


def _keep_newest(runs: list[ForeignRun], arms: list[str]) -> int:
    ages: dict[Path, tuple[float, float, str]] = {}
    newest: dict[tuple[str, str, int | None], tuple[bool, tuple[float, float, str]]] = {}
    ranks = []
    for run, arm in zip(runs, arms, strict=True):
        if run.log is not None:
            age = ages.get(run.log.path) or ages.setdefault(run.log.path, _age(run.log))
            rank = (run.outcome not in ("missing", "running"), age)
            key = (arm, run.task, run.seed)
            newest[key] = max(rank, newest.get(key, rank))
            ranks.append(age)
        else:
            ranks.append((0.0, 0.0, ""))
    kept = [
        place
        for place, (run, arm, age) in enumerate(zip(runs, arms, ranks, strict=True))
        if run.log is None or newest[arm, run.task, run.seed][1] == age
    ]
    dropped = len(runs) - len(kept)
    runs[:], arms[:] = [runs[place] for place in kept], [arms[place] for place in kept]
    return dropped
