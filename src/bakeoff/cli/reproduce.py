"""`bakeoff reproduce`: the exact command of one run, printed or executed.

A run that was a command gets that command again, with the environment that the engine gave it. A run inside a worker
has no command: it gets `bakeoff run` for that run alone, in another root.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import json_option, root_option, run_argument
from bakeoff.errors import UsageError
from bakeoff.records.lookup import find_run
from bakeoff.records.provenance import code_change, git, git_state
from bakeoff.records.recorded import Recorded
from bakeoff.records.run import RunRecord
from bakeoff.records.rundir import read_meta
from bakeoff.records.secrets import REDACTED, frozen_copy
from bakeoff.text import printable

OTHER_ROOT = "bakeoff-reproduced"
SUFFIXES = (".toml", ".yaml", ".yml", ".json")
_REFERENCE = re.compile(r"\$\$|(\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\})|([\\\"`$])")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to call, where, and what to add to the environment."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """What the engine adds for this run."""
    named: Mapping[str, str] = field(default_factory=dict)
    """The experiment's own variables. `${NAME}` in their values is filled in when the run starts."""
    directory: Path | None = None
    """The run's own directory, where it occurs in argv and env."""
    notes: tuple[str, ...] = ()

    def shell(self) -> str:
        """The recipe as text for a POSIX shell."""
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
    (bakeoff-reproduced), so that the recorded results stay unchanged.
    """
    edition, position = find_run(run, root)
    with closing(edition):
        record = edition.run(position)
        # The session that made the attempt that counts knows the code; an imported edition has no session.
        sessions = {session["session"]: session["provenance"] for session in edition.sessions()}
        attempts = edition.attempts(position)
        number = attempts[-1]["session"] if attempts else max(sessions, default=0)
        provenance: dict[str, Any] = sessions.get(number, {})
        if record.command is None:
            recipe = _in_process_recipe(edition, record, provenance)
        elif provenance:
            recipe = _command_recipe(edition, record, record.command, provenance)
        else:  # only its command is known and, from its directory, where it was started
            cwd = (read_meta(edition.paths.run(record.run_id)) or {}).get("cwd")
            note = "imported: the environment that it ran in is not recorded" + ("" if cwd else ", nor the directory")
            recipe = Recipe(tuple(shlex.split(record.command)), Path(cwd or "."), notes=(note,))
    secret = any(REDACTED in text for text in (*recipe.argv, *recipe.env.values(), *recipe.named.values()))
    if secret and execute:
        raise UsageError(
            f"{record.run_id}: a secret in its command is not recorded; print it without --exec and fill it in"
        )
    hint = [f"a secret is not recorded: fill it in where {REDACTED} stands"] if secret else []
    notes = [*recipe.notes, *hint, *_code_notes(provenance, record.run_id)]
    if as_json and not execute:
        print_json(
            {
                "run_id": record.run_id,
                "shell": recipe.shell(),
                "argv": recipe.argv,
                "cwd": recipe.cwd,
                "env": {**recipe.named, **recipe.env},
                "code": provenance.get("git"),
                "notes": notes,
            }
        )
        return
    for note in notes:
        click.echo(printable(f"# {note}").replace("\n", " "), err=execute)
    if execute:
        ctx.exit(_execute(recipe))
    # On a terminal, what is shown must be all there is: an escape could hide a part of it.
    click.echo(printable(recipe.shell()) if sys.stdout.isatty() else recipe.shell())


def _command_recipe(edition: Recorded, run: RunRecord, command: str, provenance: Mapping[str, Any]) -> Recipe:
    """The recorded command, with the environment and the working directory that the engine gave it."""
    from bakeoff.engine.node.context import Context
    from bakeoff.spec import registry
    from bakeoff.spec.workload import CommandWorkload

    facts, cell = edition.facts(), edition.cells(run.cell)[0]
    base = Path(provenance.get("base") or provenance["cwd"])
    workload = registry.workload(facts["workload"])
    if not isinstance(workload, CommandWorkload):
        raise UsageError(
            f"workload {facts['workload']!r} is installed in another version, which does not start commands"
        )
    attempt = run.next_attempt(flags=tuple(cell.flags))
    attempt.number = run.attempts
    with tempfile.TemporaryDirectory() as elsewhere:  # a workload may make directories for its command
        context = Context(attempt, base, Path(elsewhere))
        started = workload.command(workload.Params.model_validate(cell.params), context)
    settings = registry.settings(facts["workload"])
    params = json.dumps({key: value for key, value in cell.params.items() if key not in settings})
    directory = edition.paths.run(run.run_id)
    env = {**started.env, **Context(attempt, base, directory).environment(params)}
    return Recipe(tuple(shlex.split(command)), started.cwd, env, facts["spec"]["env"], directory)


def _in_process_recipe(edition: Recorded, run: RunRecord, provenance: Mapping[str, Any]) -> Recipe:
    """One run of a new edition in another root, from the experiment file that was used or else from its frozen copy."""
    frozen = next((path for suffix in SUFFIXES if (path := edition.paths.frozen(suffix)).is_file()), None)
    if frozen is None:
        raise UsageError(f"{edition.paths.directory}: has no experiment file, so the run cannot be repeated")
    notes = []
    source = Path(provenance.get("experiment") or frozen)
    if source == frozen or not source.is_file() or frozen_copy(source) != frozen.read_bytes():
        source = frozen
        notes.append(
            "the experiment file has changed or moved: this is the frozen copy, and relative paths in it start there"
        )
    overrides = provenance.get("set", ())
    changed = [part for override in overrides for part in ("--set", override)]
    only = ["--only", f"run_id={run.run_id}"]
    argv = ("bakeoff", "run", str(source), *changed, *only, "--fresh", "--root", OTHER_ROOT)
    return Recipe(argv, Path.cwd(), notes=tuple(notes))


def _code_notes(provenance: Mapping[str, Any], run_id: str) -> list[str]:
    """Which code the run ran on, how to get it, and whether the code here differs from it."""
    state = provenance.get("git")
    if not state:
        why = ": it was not in a git repository" if provenance else ""
        return [f"the code it ran on is not recorded{why}"]
    notes = [f"code: commit {state['commit']} on {state['branch']}"]
    if state["dirty"]:
        notes.append(f"with uncommitted changes: bakeoff reproduce {run_id} --json | jq -r .code.diff | git apply")
    base = Path(provenance.get("base") or ".")
    # The edition may be somebody else's and name a repository of theirs, whose settings make git start programs.
    # `rev-parse` starts none; for the rest, git is asked only about the repository that the reader works in.
    top = git(base, "rev-parse", "--show-toplevel")
    if top is None:
        return notes
    if top != git(Path.cwd(), "rev-parse", "--show-toplevel"):
        return [*notes, f"for changes since, call this inside the repository of {base}"]
    change = code_change(provenance, {"git": git_state(base)})
    return [*notes, f"the code here has changed since: {change}"] if change else notes


def _execute(recipe: Recipe) -> int:
    """Run the recipe, with a fresh directory in place of the run's own. Returns its exit code, 128 + a signal's number."""
    from bakeoff.spec.formats import expand_tree, variables

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
    """Quoted for a shell. `${NAME}` stays a reference, so that no secret is printed."""
    if "${" not in value and "$$" not in value:
        return shlex.quote(value)

    def escape(match: re.Match[str]) -> str:
        return match[1] or ("\\$" if match[0] == "$$" else f"\\{match[0]}")

    return f'"{_REFERENCE.sub(escape, value)}"'
