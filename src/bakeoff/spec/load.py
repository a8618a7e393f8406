"""An experiment file (TOML, YAML or JSON, ours or another tool's) becomes a validated `Experiment` and its `Plan`."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bakeoff.errors import Problem, SpecError, UsageError
from bakeoff.spec import variables as env
from bakeoff.spec.dialects import sweep, tasks
from bakeoff.spec.expand import expand
from bakeoff.spec.experiment import Experiment
from bakeoff.spec.locate import KeyPath, find_line
from bakeoff.spec.plan import Plan
from bakeoff.spec.problems import problems

_SUFFIXES = (".toml", ".yaml", ".yml", ".json")


def load_plan(path: Path, overrides: Sequence[str] = ()) -> Plan:
    """Read, override, fill in variables, validate and expand. Every problem is a SpecError with file, line and key."""
    text = read_text(path)
    tree = parse(text, path)
    for override in overrides:
        apply_override(tree, override)
    base = path.resolve().parent
    try:
        if sweep.recognises(tree):
            return sweep.plan(tree, path)
        if tasks.recognises(tree):
            return tasks.plan(_fill_in(tree, text, path), path)
        return expand(validate(_fill_in(tree, text, path), text, path), base=base)
    except SpecError as error:
        located = [_with_line(problem, text, path) for problem in error.problems]
        raise SpecError(located, path) from error


def read_text(path: Path) -> str:
    if path.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"{path}: an experiment file ends in {', '.join(_SUFFIXES)}")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*")], n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise UsageError(f"{path}: no such file{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def parse(text: str, path: Path) -> dict[str, Any]:
    """The file as nested tables; syntax errors name the line."""
    try:
        match path.suffix.lower():
            case ".toml":
                tree = tomllib.loads(text)
            case ".json":
                tree = json.loads(text)
            case _:
                import yaml

                tree = yaml.safe_load(text)
    except json.JSONDecodeError as error:
        raise SpecError([Problem("", f"not valid JSON: {error.msg}", line=error.lineno)], path) from error
    except tomllib.TOMLDecodeError as error:
        raise SpecError([Problem("", f"not valid TOML: {error}")], path) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        mark = getattr(error, "problem_mark", None)
        message = f"not valid YAML: {getattr(error, 'problem', error)}"
        raise SpecError([Problem("", message, line=mark.line + 1 if mark else None)], path) from error
    if not isinstance(tree, dict):
        raise SpecError([Problem("", "an experiment file is a table of keys and values")], path)
    return tree


def apply_override(tree: dict[str, Any], override: str) -> None:
    """`key.path=value`: the value is read as TOML, or else as text. Entries of lists go by name or number."""
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {override!r}: write key.path=value")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    *parents, last = key.strip().split(".")
    here: Any = tree
    for part in parents:
        here = _entry(here, part, override) if isinstance(here, list) else here.setdefault(part, {})
        if not isinstance(here, dict | list):
            raise UsageError(f"--set {override!r}: {part!r} is not a table")
    if isinstance(here, list):
        raise UsageError(f"--set {override!r}: name a key of the entry {last!r}")
    here[last] = parsed


def _entry(entries: list[Any], part: str, override: str) -> Any:
    for entry in entries:
        if isinstance(entry, dict) and entry.get("name") == part:
            return entry
    if part.isdigit() and int(part) < len(entries):
        return entries[int(part)]
    names = [entry["name"] for entry in entries if isinstance(entry, dict) and "name" in entry]
    raise UsageError(f"--set {override!r}: no entry called {part!r}; there are {', '.join(names) or len(entries)}")


def _fill_in(tree: dict[str, Any], text: str, path: Path) -> dict[str, Any]:
    """`${VAR}` everywhere except in `env`, which keeps names so that no secret is stored."""
    known = env.variables()
    filled = {}
    for key, value in tree.items():
        try:
            filled[key] = value if key == "env" else env.expand_tree(value, known)
        except env.MissingVariable as missing:
            name = missing.args[0]
            fix = f"export {name}=..., put it into .env, or write ${{{name}:-default}}"
            raise SpecError([Problem(key, f"${{{name}}} is not set", fix)], path) from missing
    return filled


def validate(tree: dict[str, Any], text: str, path: Path | None) -> Experiment:
    if path is not None:
        tree = {"name": path.stem, **tree}
    try:
        return Experiment.model_validate(tree)
    except ValidationError as error:
        raise SpecError(problems(error, Experiment), path) from error


def _with_line(problem: Problem, text: str, path: Path) -> Problem:
    if problem.line is not None or not problem.key:
        return problem
    key: KeyPath = tuple(int(part) if part.isdigit() else part for part in problem.key.split("."))
    return Problem(problem.key, problem.message, problem.fix, find_line(text, path.suffix.lower(), key))


