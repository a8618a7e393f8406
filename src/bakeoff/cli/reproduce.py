"""`bakeoff reproduce`: the exact command of one run, printed or executed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import json_option, root_option, run_argument
from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition, find_run
from bakeoff.records.provenance import REDACTED, code_change, git_state
from bakeoff.records.run import CellRecord, RunRecord
from bakeoff.records.rundir import read_meta

OTHER_ROOT = "bakeoff-reproduced"
_REFERENCE = re.compile(r"\$\$|(\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\})|([\\\"`$])")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to call, where, and what to add to the environment."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    named: Mapping[str, str]
    """The experiment's own variables, in which `${NAME}` is filled in only when a run starts."""
    directory: Path | None = None
    """The run's own directory, where it occurs in argv and env."""
    notes: tuple[str, ...] = ()

    def shell(self) -> str:
        variables = [f"{name}={_quoted(value)}" for name, value in self.named.items()]
        variables += [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        prefix = "".join(f"  {variable} \\\n" for variable in variables)
        return (
            f"cd {shlex.quote(str(self.cwd))} &&\n" + (f"env \\\n{prefix}  " if prefix else "") + shlex.join(self.argv)
        )


@click.command()
@run_argument
@click.option("--exec", "execute", is_flag=True, help="Execute it, and exit with its exit code.")
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, run: str, execute: bool, root: Path, as_json: bool) -> None:
    """Print the shell command that does RUN again, with the code it ran on.

    With --exec, a command writes into a fresh directory and an in-process run goes to another root
    (bakeoff-reproduced), so that what is recorded stays as it is.
    """
    edition, position = find_run(run, root)
    try:
        provenance = _provenance(edition, position)
        recipe = recipe_of(edition, position, provenance)
        run_id = edition.run(position).run_id
    finally:
        edition.close()
    notes = [*recipe.notes, *_code_notes(provenance, run_id)]
    if as_json and not execute:
        print_json(_facts(recipe, run_id, provenance, notes))
        return
    for note in notes:
        click.echo(f"# {note}", err=execute)
    if execute:
        ctx.exit(_execute(recipe))
    click.echo(recipe.shell())


def _facts(recipe: Recipe, run_id: str, provenance: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "shell": recipe.shell(),
        "argv": recipe.argv,
        "cwd": recipe.cwd,
        "env": {**recipe.named, **recipe.env},
        "code": provenance.get("git"),
        "notes": notes,
    }


def recipe_of(edition: Edition, position: int, provenance: Mapping[str, Any]) -> Recipe:
    run, spec = edition.run(position), edition.facts()["spec"]
    if run.command is None:
        return _in_process(edition, run, provenance)
    directory = edition.paths.run(run.run_id)
    if not provenance:
        return _imported(run.command, directory)
    base = Path(provenance.get("base") or provenance["cwd"])
    env, cwd = _environment(run, edition.cell(run.cell), edition.facts()["workload"], base, directory)
    return Recipe(tuple(shlex.split(run.command)), cwd, env, spec["env"], directory)


def _imported(command: str, directory: Path) -> Recipe:
    """Of a run from elsewhere only its command and, in its directory, where it was started are known."""
    cwd = (read_meta(directory) or {}).get("cwd")
    note = "imported: the environment that it ran in is not recorded" + ("" if cwd else ", nor the directory")
    return Recipe(tuple(shlex.split(command)), Path(cwd or "."), {}, {}, notes=(note,))


def _environment(
    run: RunRecord, cell: CellRecord, kind: str, base: Path, directory: Path
) -> tuple[dict[str, str], Path]:
    """What the engine adds for this run, and where it starts it."""
    from bakeoff.engine.node.context import Context
    from bakeoff.spec import registry
    from bakeoff.spec.workload import CommandWorkload

    workload = registry.workload(kind)
    if not isinstance(workload, CommandWorkload):
        raise UsageError(f"workload {kind!r} is installed in another version, which does not start commands")
    attempt = run.next_attempt(flags=tuple(cell.flags))
    attempt.number = run.attempts
    with tempfile.TemporaryDirectory() as elsewhere:  # a workload may make directories for its command
        facts = Context(attempt, base, Path(elsewhere))
        started = workload.command(workload.Params.model_validate(cell.params), facts)
    settings = registry.settings(kind)
    params = {key: value for key, value in cell.params.items() if key not in settings}
    return {**started.env, **Context(attempt, base, directory).environment(json.dumps(params))}, started.cwd


def _in_process(edition: Edition, run: RunRecord, provenance: Mapping[str, Any]) -> Recipe:
    """One run of a new edition, in a root of its own."""
    source, notes = _source(edition, provenance.get("experiment"))
    overrides = provenance.get("set", ())
    if any(REDACTED in part for part in overrides):
        notes = (*notes, "a --set value was secret and is not recorded: fill it in")
    changed = [part for override in overrides for part in ("--set", override)]
    only = ["--only", f"run_id={run.run_id}"]
    argv = ("bakeoff", "run", str(source), *changed, *only, "--fresh", "--root", OTHER_ROOT)
    return Recipe(argv, Path.cwd(), {}, {}, notes=notes)


def _source(edition: Edition, recorded: str | None) -> tuple[Path, tuple[str, ...]]:
    """The file that was given, while it is still the same; else the frozen copy."""
    frozen = [
        path for suffix in (".toml", ".yaml", ".yml", ".json") if (path := edition.paths.frozen(suffix)).is_file()
    ]
    if not frozen:
        raise UsageError(f"{edition.paths.directory}: no experiment file is kept here, so the run cannot be done again")
    given = Path(recorded) if recorded else frozen[0]
    if given != frozen[0] and given.is_file() and given.read_bytes() == frozen[0].read_bytes():
        return given, ()
    return frozen[0], (
        "the experiment file has changed or moved: this is the frozen copy, and relative paths in it start there",
    )


def _provenance(edition: Edition, position: int) -> dict[str, Any]:
    """Of the session that made the attempt that counts."""
    sessions = {session["session"]: session["provenance"] for session in edition.sessions()}
    tries = edition.attempts(position)
    number = tries[-1]["session"] if tries else max(sessions, default=0)
    found: dict[str, Any] = sessions.get(number, {})
    return found


def _code_notes(provenance: Mapping[str, Any], run_id: str) -> list[str]:
    git = provenance.get("git")
    if not git:
        why = ": it was not in a git repository" if provenance else ""
        return [f"the code it ran on is not recorded{why}"]
    notes = [f"code: commit {git['commit']} on {git['branch']}"]
    if git["dirty"]:
        notes.append(f"with uncommitted changes: bakeoff reproduce {run_id} --json | jq -r .code.diff | git apply")
    base = Path(provenance.get("base") or ".")
    change = code_change(provenance, {"git": git_state(base)}) if base.is_dir() else None
    return [*notes, f"the code here is another one now: {change}"] if change else notes


def _execute(recipe: Recipe) -> int:
    from bakeoff.spec.variables import expand_tree, variables

    argv, env = list(recipe.argv), dict(recipe.env)
    if recipe.directory is not None:
        fresh = tempfile.mkdtemp(prefix="bakeoff-reproduce-")
        Path(fresh, "out").mkdir()
        click.echo(f"# writes into {fresh}", err=True)
        argv = [part.replace(str(recipe.directory), fresh) for part in argv]
        env = {name: value.replace(str(recipe.directory), fresh) for name, value in env.items()}
    named = expand_tree(dict(recipe.named), variables())
    try:
        code = subprocess.run(argv, cwd=recipe.cwd, env={**os.environ, **named, **env}).returncode
    except OSError as error:
        raise UsageError(f"cannot start {argv[0]}: {error.strerror}") from error
    return code if code >= 0 else 128 - code


def _quoted(value: str) -> str:
    """For the shell; `${NAME}` stays a reference, so that no secret is printed."""
    if "${" not in value and "$$" not in value:
        return shlex.quote(value)

    def escape(match: re.Match[str]) -> str:
        return match[1] or ("\\$" if match[0] == "$$" else f"\\{match[0]}")

    return f'"{_REFERENCE.sub(escape, value)}"'
