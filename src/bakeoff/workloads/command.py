"""The `command` workload: an argv template or a shell string, spawned as it is, and metrics read from what it leaves."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from bakeoff.spec.experiment import flatten
from bakeoff.spec.workload import Command, Exit, Outcome, RunFacts, Scalar

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.]*)\}")
_CONTEXT = ("seed", "rollout", "arm", "task", "run_id", "dir", "out")
AUTO = ("metrics.json", "out/metrics.json", "out/summary.csv", "stdout")
TAIL = 65536


class Source(BaseModel):
    """A CSV file with several rows: `name` says what each value is called, from the row's columns and `{column}`."""

    model_config = ConfigDict(extra="forbid")
    file: str
    name: str


class CommandParams(BaseModel):
    model_config = ConfigDict(extra="allow")
    settings: ClassVar[frozenset[str]] = frozenset({"command", "metrics", "cwd", "infra_exit_codes"})

    command: list[str] | str
    """An argv as a list, or one string for the shell. `{name}` is a parameter, `{seed}`, `{arm}`, `{task}`,
    `{rollout}`, `{run_id}`, `{dir}` (the run's directory), `{out}` (its `out/`), or `{flags}` (all other parameters as
    `--name value`, then the arm's flags)."""
    metrics: list[str | Source] | str = "auto"
    """Files in the run's directory (`.json`, `.csv`, `.jsonl`), or `stdout` for its last JSON line."""
    cwd: str = "."
    """Where it runs, from the experiment file's directory."""
    infra_exit_codes: list[int] = [75]
    """Exit codes that mean that the machine failed and not the arm; 75 is `EX_TEMPFAIL`."""

    @field_validator("command")
    @classmethod
    def _not_empty(cls, value: list[str] | str) -> list[str] | str:
        if not value or (isinstance(value, str) and not value.strip()):
            raise ValueError("command is empty")
        return value

    @model_validator(mode="after")
    def _placeholders_are_known(self) -> CommandParams:
        known = {*self.values(), *_CONTEXT, "flags"}
        for name in sorted(placeholders(self.command) - known):
            raise ValueError(f"command: {{{name}}} is not a parameter; known: {', '.join(sorted(known))}")
        return self

    def values(self) -> dict[str, Any]:
        return flatten(dict(self.model_extra or {}))


def placeholders(command: list[str] | str) -> set[str]:
    text = command if isinstance(command, str) else "\0".join(command)
    return {match[1] for match in _PLACEHOLDER.finditer(text) if match[1]}


class CommandWorkload:
    kind: ClassVar[str] = "command"
    revision: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = CommandParams

    def command(self, params: CommandParams, ctx: RunFacts) -> Command:
        used = placeholders(params.command)
        values = params.values()
        known: dict[str, Any] = {**values, "seed": ctx.seed, "rollout": ctx.rollout, "arm": ctx.arm, "task": ctx.task, "run_id": ctx.run_id}
        env = {f"BAKEOFF_PARAM_{re.sub(r'[^A-Z0-9_]', '_', key.upper())}": as_text(value) for key, value in values.items()}
        places = {"dir": ctx.path, "out": ctx.path / "out"}
        known |= places
        flags = [*as_flags({k: v for k, v in values.items() if k not in used}), *ctx.flags]
        argv = _argv(params.command, known, flags if "flags" in used else list(ctx.flags), "flags" in used)
        needed = tuple(path for name, path in places.items() if name in used)
        return Command(tuple(argv), ctx.base / params.cwd, env, needed)

    def outcome(self, params: CommandParams, ctx: RunFacts, exit: Exit) -> Outcome:
        if exit.code in params.infra_exit_codes:
            return Outcome(status="infra_error", error=f"exit code {exit.code} (a temporary failure, not the arm's)")
        metrics, problem = read_metrics(params.metrics, ctx.path, exit.stdout)
        if exit.code != 0:
            return Outcome(metrics, "failed", f"exit code {exit.code}")
        return Outcome(metrics, "failed" if problem else "succeeded", problem)


def _argv(command: list[str] | str, known: Mapping[str, Any], flags: list[str], placed: bool) -> list[str]:
    if isinstance(command, str):
        text = fill(command, {k: shlex.quote(as_text(v)) for k, v in known.items()} | {"flags": shlex.join(flags)})
        return ["/bin/sh", "-c", text if placed or not flags else f"{text} {shlex.join(flags)}"]
    argv: list[str] = []
    texts = {key: as_text(value) for key, value in known.items()}
    for part in command:
        argv += flags if part == "{flags}" else [fill(part, texts)]
    return argv if placed else [*argv, *flags]


def fill(template: str, values: Mapping[str, str]) -> str:
    """`{name}` replaced where it is a known name; `{{` and `}}` are braces; any other brace stays as it is."""

    def replace(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else values.get(match[1], match[0])

    return _PLACEHOLDER.sub(replace, template)


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """`--name value` for each parameter; true is the bare flag, false and none are left out."""
    flags: list[str] = []
    for name, value in values.items():
        if value is True:
            flags.append(f"--{name}")
        elif value is not None and value is not False:
            flags += [f"--{name}", as_text(value)]
    return flags


def read_metrics(
    sources: list[str | Source] | str, directory: Path, stdout: Path | None
) -> tuple[dict[str, Scalar], str | None]:
    """Metrics, and what is wrong with them: a file that was asked for by name has to be there."""
    automatic = sources == "auto"
    wanted: list[str | Source] = (list(AUTO) if directory.exists() else ["stdout"]) if automatic else [sources] if isinstance(sources, str) else sources
    metrics: dict[str, Scalar] = {}
    for source in wanted:
        name = source if isinstance(source, str) else source.file
        try:
            if name == "stdout":
                found = _last_json_line(stdout)
            elif automatic and not os.path.exists(directory / name):
                continue
            else:
                found = _read_file(directory / name, source)
        except FileNotFoundError:
            return metrics, f"{name}: the command wrote no such file"
        except (ValueError, KeyError, OSError, csv.Error) as error:
            return metrics, f"{name}: cannot be read: {error}"
        if found is None and not automatic:
            return metrics, f"{name}: no metrics in it"
        metrics |= found or {}
    return metrics, None


def _read_file(path: Path, source: str | Source) -> dict[str, Scalar] | None:
    text = path.read_text(errors="replace")
    if path.suffix == ".csv":
        rows = list(csv.DictReader(text.splitlines()))
        if isinstance(source, Source):
            return {
                fill(source.name, {**row, "column": column}): as_number(value)
                for row in rows
                for column, value in row.items()
                if f"{{{column}}}" not in source.name
            }
        return {key: as_number(value) for key, value in rows[-1].items()} if rows else None
    if path.suffix == ".jsonl":
        lines = [line for line in text.splitlines() if line.strip()]
        return _table(json.loads(lines[-1])) if lines else None
    return _table(json.loads(text))


def _table(value: Any) -> dict[str, Scalar]:
    if not isinstance(value, dict):
        raise ValueError("a table of metrics was expected")
    flat = flatten(value)
    return {key: item for key, item in flat.items() if item is None or isinstance(item, bool | int | float | str)}


def _last_json_line(stdout: Path | None) -> dict[str, Scalar] | None:
    if stdout is None:
        return None
    with stdout.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - TAIL))
        lines = file.read().decode(errors="replace").splitlines()
    for line in reversed(lines):
        line = line.strip()
        if line.startswith("{") and line.endswith("}"):
            try:
                return _table(json.loads(line))
            except ValueError:
                continue
    return None


def as_number(text: str | None) -> Scalar:
    if text is None or text == "":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
