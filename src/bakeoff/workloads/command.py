"""The `command` workload: spawn an argv template or a shell string, and read metrics from what it leaves."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bakeoff.errors import Problem, did_you_mean
from bakeoff.records.files import open_inside
from bakeoff.records.rundir import STDERR, STDOUT
from bakeoff.records.secrets import hide
from bakeoff.spec.expand import origin
from bakeoff.spec.identity import flatten
from bakeoff.spec.plan import Cell, Plan
from bakeoff.spec.workload import LONGEST_VARIABLE, Command, Exit, Outcome, RunFacts
from bakeoff.text import flat, printable
from bakeoff.workloads.metrics import PRINTED, WALL_TIME, Source, read_metrics, read_printed
from bakeoff.workloads.program import Flaw, flaw, leading_words, scripts
from bakeoff.workloads.template import Argument, as_flags, as_text, fill_argv, fill_shell, placeholders

CONTEXT = {
    "seed": "BAKEOFF_SEED",
    "rollout": "BAKEOFF_ROLLOUT",
    "arm": "BAKEOFF_ARM",
    "task": "BAKEOFF_TASK",
    "run_id": "BAKEOFF_RUN_ID",
    "dir": "BAKEOFF_RUN_DIR",
    "out": "BAKEOFF_OUT_DIR",
    "checkpoint": "BAKEOFF_CHECKPOINT_DIR",
}
"""What a template can name besides parameters, and the environment variable with the same value in every run."""
_PLACES = {"dir": ".", "out": "out", "checkpoint": "checkpoint"}
"""Placeholders that are directories, which are made before the command starts: where they are in the run's."""
_EACH_RUN = frozenset({"seed", "rollout", "run_id"})
"""Placeholders that differ between the runs of a cell."""
_TAIL = 8 * 1024
"""Bytes of a log in which the last line is looked for."""
_LONGEST_LINE = 300
_MOST_LAUNCHES = 100_000
"""Runs whose own programs are looked for."""
_LONGEST_COMMAND = 800_000
"""Bytes of all arguments, or all variables, together. Linux allows a quarter of the stack's limit, 2 MB by default, for
both with the user's own environment (execve(2))."""


class CommandParams(BaseModel):
    model_config = ConfigDict(extra="allow")
    settings: ClassVar[frozenset[str]] = frozenset(
        {"command", "metrics", "log", "expect_steps", "cwd", "infra_exit_codes"}
    )

    free_numbers: ClassVar[bool] = True

    command: (
        Annotated[list[Annotated[str, Field(min_length=1)] | int | float], Field(min_length=1)]
        | Annotated[str, Field(pattern=r"\S")]
    )
    """An argv as a list, or one string for the shell. `{name}` is a parameter, `{seed}`, `{arm}`, `{task}`,
    `{rollout}`, `{run_id}`, `{dir}` (the run's directory), `{out}` (its `out/`), `{checkpoint}` (a directory that
    outlives attempts), or `{flags}` (all other parameters as `--name value`, then the arm's flags)."""
    metrics: list[str | Source] | str = "auto"
    """Files in the run's directory (`.json`, `.csv`, `.jsonl`), or `stdout` for its last JSON line. `printed` also reads
    lines such as `score: 0.9`, and adds `wall_time_s`."""
    log: str | None = None
    """Where the command's trainer logs its curve, as `FORMAT:PATH` with a path in the run's directory: `trl:checkpoint`,
    `verl:out/metrics.jsonl`, `prime-rl:out`, `retrain:out`, `tensorboard:out`."""
    expect_steps: Annotated[int, Field(ge=1)] | None = None
    """The last step that a complete run logs. A run that exits with 0 before it has failed."""
    cwd: str = "."
    """Where it runs, from the experiment file's directory."""
    infra_exit_codes: tuple[int, ...] = ()
    """Exit codes that mean that the machine failed and not the arm, such as 75, `EX_TEMPFAIL` (sysexits.h). None by
    default: a command that exits with one of them is tried again, and can choose that."""

    @model_validator(mode="after")
    def _names_are_known(self) -> CommandParams:
        command = self.command if isinstance(self.command, str) else tuple(self.command)
        values = self.values()
        if problem := _problem(command, tuple(values)) or _too_long(command, values):
            raise ValueError(problem)
        if self.log is not None:
            from bakeoff.records.logs import problem_with_log

            if problem := problem_with_log(self.log):
                raise ValueError(f"log: {problem}")
        return self

    def values(self) -> dict[str, Any]:
        """The user's parameters; nested tables become dotted names."""
        return flatten(self.__pydantic_extra__ or {})


@lru_cache(maxsize=512)
def _problem(command: tuple[Argument, ...] | str, names: tuple[str, ...]) -> str | None:
    """What is wrong with a template and the names of its parameters; None when nothing is.

    Cached, because a plan validates every cell, and cells mostly differ in values only.
    """
    for name in names:
        if name in CONTEXT or name == "flags":
            return f"{name} cannot be a parameter: {{{name}}} already has a meaning in commands"
    known = {*names, *CONTEXT, "flags"}
    for name in sorted(placeholders(command) - known):
        listed = sorted(known)
        hint = did_you_mean(name, listed, f"known: {', '.join(listed)}")
        return f"command: {{{name}}} is not a parameter ({hint}); write {{{{{name}}}}} for braces"
    if not isinstance(command, str):
        for part in command:
            if part != "{flags}" and "flags" in placeholders(str(part)):
                return f"command: {{flags}} is several arguments, so it must be an argument alone, not part of {part!r}"
    variables = [variable(name) for name in names]
    for name, other in zip(names, variables, strict=True):
        if variables.count(other) > 1:
            return f"two parameters would become the environment variable {other}; rename {name}"
    return None


def _too_long(command: tuple[Argument, ...] | str, values: Mapping[str, Any]) -> str | None:
    """What the kernel would refuse as an argument of the command; None when nothing is too long.

    Parameters that are not arguments may have any length: they are in the file that BAKEOFF_PARAMS_FILE names.
    """
    used, text = placeholders(command), isinstance(command, str)
    sizes = {
        name: len((shlex.quote(as_text(value)) if text else as_text(value)).encode())
        for name, value in values.items()
        if (name in used or "flags" in used) and isinstance(value, str | list | dict)
    }
    for name, size in sizes.items():
        if size > LONGEST_VARIABLE:
            return (
                f"{name}: its {size:,} bytes are too many for an argument of a command (at most {LONGEST_VARIABLE:,}); "
                "leave it out of the command, and read it from the JSON file that BAKEOFF_PARAMS_FILE names"
            )
    # One text for the shell is one argument; a list may be as long as all arguments together.
    most = LONGEST_VARIABLE if text else _LONGEST_COMMAND
    size = sum(sizes.values()) + _own_size(command)
    if size > most:
        longest = max(sizes, key=lambda name: sizes[name], default="")
        named = f"with its parameters ({longest} is the longest) " if longest else ""
        return f"command: {named}it has {size:,} bytes, and the system allows {most:,}; put its content into a file"
    return None


@lru_cache(maxsize=512)  # asked for every cell
def _own_size(command: tuple[Argument, ...] | str) -> int:
    """Return the bytes of the command's own text."""
    return sum(len(str(part).encode()) for part in ((command,) if isinstance(command, str) else command))


def variable(name: str) -> str:
    """The environment variable that carries a parameter."""
    return f"BAKEOFF_PARAM_{re.sub(r'[^A-Z0-9_]', '_', name.upper())}"


def last_line(directory: Path) -> str:
    """The last line that a run wrote to standard error, or else to standard output; without escapes and secrets.

    Empty when it wrote nothing, or only metrics.
    """
    for name in (STDERR, STDOUT):
        try:
            with open_inside(directory, name) as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
                lines = re.split(r"[\r\n]+", file.read().decode(errors="replace"))  # \r: progress bars
        except OSError:
            continue
        shown = hide("\n".join(map(printable, lines)))  # together: some secrets have several lines
        for line in reversed(shown.split("\n")):
            if line.strip() and not (name == STDOUT and line.lstrip().startswith("{")):
                return flat(line, _LONGEST_LINE)
    return ""


def _launches(plan: Plan) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """A cell of each command and, where the program depends on the cell or on the run, every one of them."""
    by_run = set()
    fixed: set[tuple[object, ...]] = set()
    for cell in plan.cells:
        command = cell.params["command"]
        template = (cell.params.get("cwd", "."), *((None, command) if isinstance(command, str) else command))
        if template in fixed:  # most cells differ in parameters only
            continue
        words = leading_words(command)
        if placeholders(words) & _EACH_RUN:
            by_run.add(cell.index)
            continue
        if not any("{" in word for word in words):
            fixed.add(template)
        yield cell, {}
    for run in islice(plan, _MOST_LAUNCHES) if by_run else ():
        if run.cell.index in by_run:
            yield run.cell, {"seed": run.seed, "rollout": run.rollout, "run_id": run.run_id}


class CommandWorkload:
    kind: ClassVar[str] = "command"
    revision: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = CommandParams

    def command(self, params: CommandParams, ctx: RunFacts) -> Command:
        """The template filled in. Flags of the arm go to `{flags}`, or to the end where the template has no place."""
        used = placeholders(params.command)
        values = params.values()
        known = {
            **values,
            "seed": ctx.seed,
            "rollout": ctx.rollout,
            "arm": ctx.arm,
            "task": ctx.task,
            "run_id": ctx.run_id,
        }
        places = {name: ctx.path / below for name, below in _PLACES.items() if name in used}
        known |= places
        unused = {name: value for name, value in values.items() if name not in used}
        flags = [*(as_flags(unused) if "flags" in used else ()), *ctx.flags]
        texts = {name: as_text(value) for name, value in values.items() if value is not None}
        if sum(map(len, texts.values())) > _LONGEST_COMMAND:  # the kernel counts variables and arguments together
            texts = {}
        env = {variable(name): text for name, text in texts.items() if len(text.encode()) <= LONGEST_VARIABLE}
        if not isinstance(params.command, str):
            template = params.command if "flags" in used or not flags else [*params.command, "{flags}"]
            argv = tuple(fill_argv(template, known, flags))
            return Command(argv, ctx.base / params.cwd, env, tuple(places.values()), params.log, params.expect_steps)
        text = params.command if "flags" in used or not flags else f"{params.command.rstrip()} {{flags}}"
        names = {**{name: variable(name) for name in values}, **CONTEXT}
        text, needed = fill_shell(text, known, flags, names)
        argv, env = ("/bin/sh", "-c", text), {**env, **needed}
        return Command(argv, ctx.base / params.cwd, env, tuple(places.values()), params.log, params.expect_steps)

    def reads(self, cells: Sequence[Cell], base: Path) -> list[frozenset[str] | None]:
        """Return the placeholders of each command, and what it, or a script that it starts from here, takes from variables."""
        variables: dict[tuple[object, ...], frozenset[str]] = {}
        reads: list[frozenset[str] | None] = []
        for cell in cells:
            command, directory = cell.params["command"], base / cell.params.get("cwd", ".")
            names = {name.partition(".")[0] for name in placeholders(command)}
            key = (directory, *([command] if isinstance(command, str) else command))
            if key not in variables:
                variables[key] = frozenset(re.findall(r"BAKEOFF_\w*", scripts(command, directory)))
            mentioned = variables[key]
            if "flags" in names:
                names |= cell.params.keys()
            if mentioned & {"BAKEOFF_PARAMS_FILE", "BAKEOFF_PARAM_", "BAKEOFF_"}:  # all, or a name that is put together
                names |= {*cell.params, "seed", "arm"}
            names |= {name for name in cell.params if any(each.startswith(variable(name)) for each in mentioned)}
            reads.append(frozenset(names | {name for name, each in CONTEXT.items() if each in mentioned}))
        return reads

    def unused(self, name: str) -> str:
        return f"the command has no {{{name}}}, and no script here reads the variable {CONTEXT.get(name) or variable(name)}"

    def check_plan(self, plan: Plan, env: Mapping[str, str]) -> Iterator[Problem]:
        """Directories that do not exist and programs that cannot be started, each once."""
        checked: set[tuple[object, ...]] = set()
        for cell, known in _launches(plan):
            command, directory = cell.params["command"], plan.base / cell.params.get("cwd", ".")
            words = leading_words(command)
            if any("{" in word for word in words):
                values = {name: value for name, value in cell.params.items() if name not in CommandParams.settings}
                known = {**flatten(values), "arm": cell.arm.name, "task": cell.task.name, **known}
                # What a word with another placeholder will be, such as the run's directory, is not known yet.
                unknown = next((n for n, word in enumerate(words) if placeholders(word) - known.keys()), len(words))
                words = tuple(fill_argv(words[:unknown], known, ()))
            case = (isinstance(command, str), directory, *words)
            if case in checked:
                continue
            checked.add(case)
            problem, key = None, "command"
            if not directory.is_dir():
                problem, key = Flaw(f"{directory}: no such directory", "make it, or write another one"), "cwd"
            elif words:
                problem = flaw(words, directory, env.get("PATH", os.defpath), shell=isinstance(command, str))
            if problem is not None:
                yield Problem(origin(plan.experiment, cell.arm, cell.task, key), *problem)

    def outcome(self, params: CommandParams, ctx: RunFacts, exit: Exit) -> Outcome:
        """Metrics are kept whatever the exit code; a missing metric file fails a run that exited with 0."""
        notes: list[str] = []
        if params.metrics == PRINTED:
            metrics, problem, _ = read_printed(ctx.path, exit.stdout, notes)
            metrics.setdefault(WALL_TIME, exit.seconds)
        else:
            metrics, problem = read_metrics(params.metrics, ctx.path, exit.stdout, notes)
        if exit.code in params.infra_exit_codes:  # what it spent is charged all the same
            return Outcome(metrics, "infra_error", f"exit code {exit.code}: a temporary failure of the machine")
        if exit.code != 0:
            said = last_line(ctx.path)
            return Outcome(metrics, "failed", f"exit code {exit.code}" + (f": {said}" if said else ""))
        return Outcome(metrics, "failed" if problem else "succeeded", problem or "; ".join(notes) or None)
