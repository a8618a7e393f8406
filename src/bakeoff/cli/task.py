"""`bakeoff task`: make tasks, look at them, and prove that they can be solved before anyone spends money on them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bakeoff.cli import display
from bakeoff.cli.options import json_option
from bakeoff.errors import BakeoffError, SpecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bakeoff.sandbox.base import Sandbox
    from bakeoff.workloads.tasks.model import Task
    from bakeoff.workloads.tasks.results import Verification

F = TypeVar("F", bound=Callable[..., Any])
_MARKS = {True: "ok", False: "FAILED", None: "note"}


def _tasks_argument(function: F) -> F:
    return click.argument("places", metavar="TASK...", nargs=-1, required=True, type=click.Path(path_type=Path))(
        function
    )


def _overrides_options(function: F) -> F:
    file = click.option("--overrides", "overrides_file", type=click.Path(path_type=Path), metavar="FILE", help="Overrides in place of the task's own overrides.json.")  # fmt: skip
    without = click.option("--no-overrides", is_flag=True, help="Leave the task's own overrides.json alone.")
    return file(without(function))


def _sandbox_options(function: F) -> F:
    which = click.option("--sandbox", "backend", metavar="NAME", help="bubblewrap, docker, podman, modal or none; SANDBOX_BACKEND or bubblewrap when left out.")  # fmt: skip
    network = click.option("--network", is_flag=True, help="Give boxes a network, unless the task asks for none; they have none when left out.")  # fmt: skip
    where = click.option("--logs", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep what tests print there.")  # fmt: skip
    return which(network(where(function)))


@click.group(name="task")
def command() -> None:
    """Make tasks for coding agents, and prove that they work.

    TASK is a directory with tb_meta.json (prepared), task.toml (Harbor) or task.yaml (terminal-bench), or one that holds
    such directories.
    """


@command.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--repo", required=True, metavar="PATH|URL", help="The repository; one on this machine goes along as a bundle.")  # fmt: skip
@click.option("--from", "start", required=True, metavar="COMMIT", help="Where agents start.")
@click.option("--to", "end", required=True, metavar="COMMIT", help="Where the reference ends.")
@click.option("--title", required=True, help="A line that says what is wanted.")
@click.option("--test", "tests", multiple=True, metavar="PATH", help="A file, directory or glob of the range that is a hidden test; by name when left out. Can be repeated.")  # fmt: skip
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="A word to find the task by; can be repeated.")
@json_option
def new(
    directory: Path,
    repo: str,
    start: str,
    end: str,
    title: str,
    tests: tuple[str, ...],
    tags: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a task in DIRECTORY from a range of commits.

    The changes of the range are the reference, its tests are hidden, and its commit messages are a first draft of the
    instruction, which is yours to rewrite. `bakeoff task check` then proves the task.
    """
    from bakeoff.workloads.tasks.authoring import new_task

    made = new_task(directory, repo=repo, start=start, end=end, title=title, tests=tests, tags=tags)
    if as_json:
        display.print_json(asdict(made))
        return
    click.echo(f"made {directory}")
    display.print_facts(
        {
            "reference": ", ".join(made.changed),
            "hidden tests": ", ".join(made.tests) or display.NOTHING,
            "hidden files": ", ".join(made.support) or display.NOTHING,
            "rubrics": "tests, weight 1" if made.tests else display.NOTHING,
        }
    )
    for note in made.notes:
        click.echo(f"note: {display.printable(note)}")
    click.echo(f"next: rewrite {directory / 'LM_INSTRUCTIONS.md'}, then bakeoff task check {directory}")


@command.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Where the task goes; data/tasks/prepared/NAME when left out.")  # fmt: skip
@json_option
def prepare(directory: Path, out: Path | None, as_json: bool) -> None:
    """Make a prepared task of a created one.

    DIRECTORY stays as it is. Rubrics and tests are never made up: what is missing is told, and nothing is written.
    """
    from bakeoff.workloads.tasks.authoring import prepare as make
    from bakeoff.workloads.tasks.authoring import prepared_name

    target = out or Path("data/tasks/prepared") / prepared_name(directory)
    task = make(directory, target)
    if as_json:
        display.print_json({"directory": target, "id": task.id, "digest": task.digest})
    else:
        click.echo(f"prepared {target}\nnext: bakeoff task check {target}")


@command.command()
@_tasks_argument
@_overrides_options
@_sandbox_options
@json_option
@click.pass_context
def check(
    ctx: click.Context,
    places: tuple[Path, ...],
    overrides_file: Path | None,
    no_overrides: bool,
    backend: str | None,
    network: bool,
    logs: Path | None,
    as_json: bool,
) -> None:
    """Check tasks: complete, the reference passes, doing nothing fails.

    \b
    Exit code: 0 all hold; 1 one does not; 2 a task cannot be read.
    """
    from bakeoff.workloads.tasks.check import Finding
    from bakeoff.workloads.tasks.check import check as look

    sandbox = _sandbox(backend)
    worst, report = 0, []
    with _logs(logs) as folder:
        for place in _each(places):
            findings: list[Finding] = []
            if not as_json:
                click.echo(display.printable(str(place)))
            try:
                task = _load(place, overrides_file, no_overrides)
                for finding in look(task.with_network() if network else task, sandbox, folder / place.absolute().name):
                    findings.append(finding)
                    _tell(finding, as_json)
            except BakeoffError as error:
                findings.append(Finding("valid" if isinstance(error, SpecError) else "can be run", False, str(error)))
                _tell(findings[-1], as_json)
                worst = max(worst, error.exit_code)
            good = not any(finding.ok is False for finding in findings)
            worst = max(worst, 0 if good else 1)
            report.append({"task": place, "ok": good, "findings": [asdict(finding) for finding in findings]})
    if as_json:
        display.print_json(report)
    ctx.exit(worst)


@command.command()
@_tasks_argument
@_overrides_options
@_sandbox_options
@json_option
@click.pass_context
def oracle(
    ctx: click.Context,
    places: tuple[Path, ...],
    overrides_file: Path | None,
    no_overrides: bool,
    backend: str | None,
    network: bool,
    logs: Path | None,
    as_json: bool,
) -> None:
    """Run the reference solution and its tests.

    \b
    Exit code: 0 it passes; 1 it does not; 2 a task cannot be read or has no reference.
    """
    from bakeoff.workloads.tasks.proof import reference

    sandbox = _sandbox(backend)
    passed, report = True, []
    with _logs(logs) as folder:
        for place in _each(places):
            task = _load(place, overrides_file, no_overrides)
            found = reference(task.with_network() if network else task, sandbox, folder / place.absolute().name)
            passed = passed and found.passed
            report.append({"task": place, "passed": found.passed, **asdict(found)})
            if not as_json:
                _show_verification(place, found)
    if as_json:
        display.print_json(report)
    ctx.exit(0 if passed else 1)


@command.command()
@click.argument("place", metavar="TASK", type=click.Path(path_type=Path))
@_overrides_options
@json_option
def show(place: Path, overrides_file: Path | None, no_overrides: bool, as_json: bool) -> None:
    """Show a task: its instruction, where it starts, and how it is verified."""
    from bakeoff.workloads.tasks.describe import described

    task = _load(place, overrides_file, no_overrides)
    facts = described(task)
    if as_json:
        display.print_json(facts)
        return
    display.print_facts({name: _text(facts[name]) for name in _SHOWN if facts.get(name) not in (None, [], {}, "")})
    for step in facts["steps"]:
        click.echo(f"\n{'instruction' if len(task.steps) == 1 else step['name']}\n")
        click.echo("\n".join(f"    {display.printable(line)}".rstrip() for line in step["instruction"].splitlines()))
    if task.rubrics:
        click.echo()
        rows = [[rubric.id, f"{rubric.weight:g}", str(sum(one.rubric_id == rubric.id for one in task.scripts)), rubric.criterion] for rubric in task.rubrics]  # fmt: skip
        display.print_table(["rubric", "weight", "tests", "criterion"], rows, right=["weight", "tests"])
    for note in task.notes:
        click.echo(f"note: {display.printable(note)}")


_SHOWN = ("id", "title", "format", "digest", "tags", "repository", "commit", "image", "workdir", "limits", "agent_seconds",
          "verifier_seconds", "verifier", "variables", "subdir", "sparse", "removed", "overlays", "hidden", "reference")  # fmt: skip


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {one:g}" for name, one in value.items())
    return ", ".join(str(one) for one in value) if isinstance(value, list) else str(value)


def _load(place: Path, overrides_file: Path | None, no_overrides: bool) -> Task:
    from bakeoff.workloads.tasks.loading import load_task

    if overrides_file is not None and no_overrides:
        raise UsageError("--overrides and --no-overrides say opposite things\n  fix: give one of them")
    return load_task(place, overrides_file=overrides_file, apply_overrides=not no_overrides)


def _each(places: tuple[Path, ...]) -> list[Path]:
    from bakeoff.workloads.tasks.loading import find_tasks

    found = [task for place in places for task in find_tasks(place)]
    if not found:
        raise UsageError(f"{', '.join(map(str, places))}: there are no tasks in it\n  fix: give a task's directory")
    return found


def _sandbox(name: str | None) -> Sandbox:
    """The sandbox, if it can be had. `none` asks first."""
    from bakeoff.sandbox.base import VARIABLE, choose

    accepted = False
    if (name or os.environ.get(VARIABLE)) == "none":
        accepted = click.confirm("none isolates nothing: the tests run as you, on this machine. Go on?", err=True)
    sandbox = choose(name, accepted=accepted)
    why = sandbox.missing()
    if why is not None:
        raise UsageError(why)
    return sandbox


@contextmanager
def _logs(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given.absolute()
        return
    from bakeoff.sandbox.cache import scratch

    with scratch("logs") as here:
        yield here


def _tell(finding: Any, as_json: bool) -> None:
    if not as_json:
        told = f"{finding.name}: {finding.message}" if finding.ok is not None and finding.message else finding.message or finding.name  # fmt: skip
        click.echo(f"  {_MARKS[finding.ok]:<7} {display.printable(told)}")


def _show_verification(place: Path, found: Verification) -> None:
    score = display.NOTHING if found.score is None else f"{found.score:g}"
    click.echo(f"{display.printable(str(place))}: {'passes' if found.passed else 'does not pass'}, score {score}, {found.seconds:.1f} s")  # fmt: skip
    if found.error:
        click.echo(f"  {display.printable(found.error)}")
    for script in found.scripts:
        good = sum(case.outcome == "passed" for case in script.cases)
        told = f"{good} of {len(script.cases)} tests passed" if script.cases else f"exit code {script.code}"
        click.echo(f"  {'ok' if script.passed else 'FAILED':<7} {script.path}: {told}")
        if not script.passed:
            click.echo("\n".join(f"      {display.printable(line)}" for line in script.output.splitlines()[-30:]))
    for step in found.steps:
        click.echo(f"  {step.name}: {json.dumps(dict(step.rewards)) if step.rewards else step.error}")
        if not found.passed:
            click.echo("\n".join(f"      {display.printable(line)}" for line in step.output.splitlines()[-30:]))
