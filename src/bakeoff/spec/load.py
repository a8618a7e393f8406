"""An experiment file (TOML, YAML or JSON, ours or another tool's) becomes a validated `Plan`.

plan = load_plan(Path("experiment.toml"), overrides=["seeds=3", "params.size=10"])
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bakeoff.errors import Problem, SpecError, UsageError, did_you_mean
from bakeoff.spec import formats, registry
from bakeoff.spec.expand import expand
from bakeoff.spec.experiment import ExperimentFile
from bakeoff.spec.plan import Plan
from bakeoff.spec.problems import find_line, problems
from bakeoff.spec.registry import NATIVE

_BY_NAME = re.compile(r"(^|\.)(environment_variables|providers\.[^.]+\.headers)$")
"""Tables whose variables are looked up when a run needs them: they are where secrets go, and no record may hold one."""
_TELLING = frozenset({"workload", "params", "matrix", "arms", "seeds"})
"""Keys that hardly any other file has."""
_TABLES = (".csv", ".tsv", ".parquet", ".jsonl")
_LARGEST = 1 << 20
"""Bytes of a file that may be taken for an experiment file unasked."""
_Model = TypeVar("_Model", bound=BaseModel)


def load_plan(path: Path, overrides: Sequence[str] = (), executor: str | None = None) -> Plan:
    """Read, override, fill in variables, validate and expand.

    `overrides` are `key.path=value`, as `--set` takes them. `executor` is a kind that goes before the file's; the
    settings that the file has for its own kind are left out then. Every problem is a SpecError with file, line and key.
    """
    return plan_of_text(read_text(path), path, overrides, executor)


def plan_of_text(text: str, path: Path, overrides: Sequence[str] = (), executor: str | None = None) -> Plan:
    """As `load_plan`, for the text of a file that need not exist yet; `path` is where it will be."""
    tree = parse(text, path)
    entry = tree.get("executor", {})
    if executor is not None and isinstance(entry, dict) and entry.get("kind", "local") != executor:
        tree["executor"] = {"kind": executor, **{key: entry[key] for key in entry if key == "gpus"}}
    for override in overrides:
        apply_override(tree, override)
    base = path.resolve().parent
    try:  # overrides come before everything else, so that they are validated like the file
        dialect = registry.dialect_of(tree)
        if dialect.variables:
            missing: list[Problem] = []
            known = formats.variables()
            # Environment variables keep the names, so that no secret is stored; so do headers, see _BY_NAME.
            tree = {key: item if key == "env" else _filled(item, key, known, missing) for key, item in tree.items()}
            if missing:
                raise SpecError(missing)
        plan = expand(validate(tree, path), base=base) if dialect is NATIVE else dialect.plan(tree, path)
        return replace(plan, overrides=tuple(overrides), experiment=_with_executor(plan.experiment))
    except SpecError as error:
        raise located(error, path, text) from error


def _with_executor(experiment: ExperimentFile) -> ExperimentFile:
    """The experiment with the settings of its executor checked by the executor. Raises SpecError."""
    entry = experiment.executor
    if entry is None:
        return experiment
    if entry.kind not in registry.executors():
        known = registry.executors()
        fix = did_you_mean(entry.kind, known, f"one of {', '.join(known)}")
        raise SpecError([Problem("executor.kind", f"no executor called {entry.kind!r}", fix)])
    kind = registry.executor(entry.kind)
    table = entry.model_dump()
    try:
        settings = kind.Settings.model_validate(table)
    except ValidationError as error:
        raise SpecError(problems(error, kind.Settings, ("executor",), given=table)) from error
    experiment = experiment.model_copy(update={"executor": settings})
    if wrong := list(kind.check(experiment)):
        raise SpecError(wrong)
    return experiment


def read_model(path: Path, model: type[_Model], **defaults: Any) -> _Model:
    """A file that is not an experiment (a policy, rules), as `model`. Raises SpecError with the line of every problem."""
    text = read_text(path)
    tree = {**defaults, **parse(text, path)}
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise located(SpecError(problems(error, model, given=tree)), path, text) from error


def located(error: SpecError, path: Path, text: str | None = None) -> SpecError:
    """The error with the file, and with the line of each problem where that can be found."""
    text = read_text(path) if text is None else text
    lines = []
    for problem in error.problems:
        line = problem.line
        if line is None and problem.key:
            line = find_line(text, path.suffix.lower(), tuple(problem.key.split(".")))
        lines.append(replace(problem, line=line))
    return SpecError(lines, path)


def read_text(path: Path) -> str:
    """The file's text. Raises UsageError with the name that was probably meant."""
    try:
        if path.suffix.lower() not in formats.SUFFIXES and path.is_file():
            table = f"; tables are for `bakeoff compare {path}`" if path.suffix.lower() in _TABLES else ""
            raise UsageError(f"{path}: an experiment file ends in {', '.join(formats.SUFFIXES)}{table}")
        if path.is_dir():
            names = ", ".join(str(file) for file in experiment_files(path)[:10])
            inside = f"did you mean one of {names}?" if names else "there is no experiment file in it"
            raise UsageError(f"{path}: is a directory; {inside}")
        return path.read_text(encoding="utf-8-sig")  # Windows editors may put a byte order mark first
    except FileNotFoundError:
        beside = list(path.parent.glob("*"))
        near = [p.name for p in beside if p.stem == path.name and p.suffix in formats.SUFFIXES]
        near = near or difflib.get_close_matches(path.name, [p.name for p in beside], n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise UsageError(f"{path}: no such file{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it is not UTF-8 text ({error.reason})"
        raise UsageError(f"{path}: cannot be read: {reason}") from error


def experiment_files(directory: Path) -> list[Path]:
    """The experiment files in a directory, by name: those that a dialect recognises, and those with our keys.

    One with a mistake in it is still found; other TOML, YAML and JSON files (a pyproject.toml, a workflow) are not.
    """
    found = []
    for path in sorted(directory.iterdir()):
        if path.suffix.lower() not in formats.SUFFIXES or not path.is_file() or path.stat().st_size > _LARGEST:
            continue
        try:
            tree = parse(read_text(path), path)
        except UsageError:
            continue
        ours = tree.keys() & ExperimentFile.model_fields.keys()
        native = bool(ours & _TELLING) and 2 * len(ours) > len(tree)
        if native or registry.dialect_of(tree) is not NATIVE:
            found.append(path)
    return found


def parse(text: str, path: Path) -> dict[str, Any]:
    """The file as nested tables. Raises SpecError; syntax errors name the line."""
    suffix = path.suffix.lower()
    if not text.strip():
        raise SpecError(
            [Problem("", "the file is empty", "`bakeoff init` writes an experiment file to start from")], path
        )
    try:
        tree = formats.read(text, suffix)
    except formats.NotReadable as error:
        raise SpecError([Problem("", str(error), _other_format(text, suffix), line=error.line)], path) from error
    if not isinstance(tree, dict):
        message = "an experiment file is a table of keys and values"
        raise SpecError([Problem("", message, _other_format(text, suffix))], path)
    return tree


def _other_format(text: str, suffix: str) -> str:
    """The fix for a file that is a table in another format than its name says; empty when it is none."""
    for other in (".toml", ".json", ".yaml"):  # YAML last: it reads JSON too
        try:
            if not suffix.startswith(other[:3]) and isinstance(formats.read(text, other), dict):
                return f"it is {other[1:].upper()}: give it a name that ends in {other}"
        except formats.NotReadable:
            continue
    return ""


def apply_override(tree: dict[str, Any], override: str) -> None:
    """Set one value in `tree`. `override` is `key.path=value`; entries of lists go by name or number.

    The value is read as TOML, or else as text. Raises UsageError when there is no such place.
    """
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {override!r}: write key.path=value")
    *parents, last = key.strip().split(".")
    here: Any = tree
    for part in parents:
        here = here[_entry(here, part, override)] if isinstance(here, list) else here.setdefault(part, {})
        if not isinstance(here, dict | list):
            raise UsageError(f"--set {override!r}: {part!r} is not a table")
    here[_entry(here, last, override) if isinstance(here, list) else last] = formats.parse_value(value)


def _entry(entries: list[Any], part: str, override: str) -> int:
    """Which entry of a list `part` means: the one with this name, or this number."""
    names = [str(entry.get("name", "")) if isinstance(entry, dict) else "" for entry in entries]
    if part in names:
        return names.index(part)
    if part.isdigit() and int(part) < len(entries):
        return int(part)
    listed = ", ".join(name for name in names if name) or f"{len(entries)} without names, counted from 0"
    raise UsageError(f"--set {override!r}: no entry called {part!r}; there are {listed}")


def _filled(value: Any, key: str, known: Mapping[str, str], missing: list[Problem]) -> Any:
    """The value at the dotted `key`, with variables filled in; those that are not set are added to `missing`."""
    if isinstance(value, dict):
        return {
            name: item if _BY_NAME.search(f"{key}.{name}") else _filled(item, f"{key}.{name}", known, missing)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_filled(item, f"{key}.{number}", known, missing) for number, item in enumerate(value)]
    try:
        return formats.expand(value, known) if isinstance(value, str) and "$" in value else value
    except formats.MissingVariable as error:
        name = error.args[0]
        fix = f"export {name}=..., put it into .env, or write ${{{name}:-default}}"
        missing.append(Problem(key, f"${{{name}}} is not set", fix))
        return value


def validate(tree: dict[str, Any], path: Path | None) -> ExperimentFile:
    """The tree as an `ExperimentFile`, named after the file by default. Raises SpecError with every problem."""
    if path is not None:
        tree = {"name": path.stem, **tree}
    try:
        return ExperimentFile.model_validate(tree)
    except ValidationError as error:
        raise SpecError(problems(error, ExperimentFile, given=tree), path) from error
