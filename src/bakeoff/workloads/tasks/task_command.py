"""`bakeoff task`: make tasks, look at them, and prove that they can be solved before they cost money."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bakeoff.cli import display
from bakeoff.cli.options import json_option
from bakeoff.errors import BakeoffError, SpecError, UsageError
from bakeoff.text import NOTHING, printable

if TYPE_CHECKING:
    from bakeoff.sandbox.base import Sandbox
    from bakeoff.workloads.tasks.model import Task
    from bakeoff.workloads.tasks.network import HostLists
    from bakeoff.workloads.tasks.results import Verification

F = TypeVar("F", bound=Callable[..., Any])
_MARKS = {True: "ok", False: "FAILED", None: "note"}
_SHOWN = ("id", "title", "format", "digest", "tags", "repository", "commit", "image", "workdir", "limits", "agent_seconds",
          "verifier_seconds", "verifier", "variables", "subdir", "sparse", "removed", "overlays", "hidden", "isolation", "honeypots", "reference")  # fmt: skip


def _overrides_options(function: F) -> F:
    file = click.option(
        "--overrides",
        "overrides_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Overrides instead of the task's own overrides.json.",
    )
    without = click.option("--no-overrides", is_flag=True, help="Ignore the task's own overrides.json.")
    return file(without(function))


@dataclass(frozen=True)
class Proof:
    """What the verbs that run a task's tests work with."""

    directories: Sequence[Path]
    sandbox: Sandbox
    logs: Path
    load: Callable[[Path], Task]


def _proof_command(function: Callable[..., None]) -> Callable[..., None]:
    """A verb that runs the tests of TASK...: the function gets the context, a `Proof`, whether to print JSON, and options
    of its own."""

    @click.argument("places", metavar="TASK...", nargs=-1, required=True, type=click.Path(path_type=Path))
    @_overrides_options
    @click.option(
        "--sandbox",
        "backend",
        metavar="NAME",
        help="bubblewrap, docker, podman, modal or none (default: SANDBOX_BACKEND, else bubblewrap).",
    )
    @click.option(
        "--network", is_flag=True, help="Give sandboxes a network, unless the task asks for none (default: no network)."
    )
    @click.option(
        "--hosts",
        "lists",
        multiple=True,
        metavar="PHASE=HOST,...",
        help="Hosts that build, agent or verify may reach, as in `params.network` of an experiment. Can be repeated.",
    )
    @click.option(
        "--logs",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Keep what tests print in this directory.",
    )
    @json_option
    @click.pass_context
    def verb(
        ctx: click.Context,
        /,
        places: tuple[Path, ...],
        overrides_file: Path | None,
        no_overrides: bool,
        backend: str | None,
        network: bool,
        lists: tuple[str, ...],
        logs: Path | None,
        as_json: bool,
        **own: Any,
    ) -> None:
        from bakeoff.sandbox.cache import scratch
        from bakeoff.workloads.tasks.loading import find_tasks
        from bakeoff.workloads.tasks.network import granted

        if network and lists:
            raise UsageError("--network and --hosts exclude each other\n  fix: give one of them")
        grant = _host_lists(lists) if lists else network

        def load(place: Path) -> Task:
            return granted(_load(place, overrides_file, no_overrides), grant)

        directories = [task for place in places for task in find_tasks(place)]
        if not directories:
            raise UsageError(f"{', '.join(map(str, places))}: there are no tasks in it\n  fix: give a task's directory")
        sandbox = _sandbox(backend)  # before anything runs, because it may ask
        if logs is not None:  # for this user alone, because hidden tests print what they expect
            logs.parent.mkdir(parents=True, exist_ok=True)
            logs.mkdir(exist_ok=True, mode=0o700)
        with scratch("logs") if logs is None else nullcontext(logs.absolute()) as folder:
            function(ctx, Proof(directories, sandbox, folder, load), as_json, **own)

    verb.__doc__, verb.__name__ = function.__doc__, function.__name__
    return verb


@click.group(name="task")
def command() -> None:
    """Make tasks for coding agents, and prove that they work.

    TASK is a directory with tb_meta.json (prepared), task.toml (Harbor) or task.yaml (terminal-bench), or one that holds
    such directories.
    """


@command.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--repo", required=True, metavar="PATH|URL", help="The repository; a local one is copied as a bundle.")
@click.option("--from", "start", required=True, metavar="COMMIT", help="Where agents start.")
@click.option("--to", "end", required=True, metavar="COMMIT", help="Where the reference ends.")
@click.option("--title", required=True, help="A line that says what is wanted.")
@click.option(
    "--test",
    "tests",
    multiple=True,
    metavar="PATH",
    help="A file, directory or glob of the range that is a hidden test (default: by name). Can be repeated.",
)
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="A word to find the task by. Can be repeated.")
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
    instruction. Rewrite the instruction, then prove the task with `bakeoff task check`.
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
            "hidden tests": ", ".join(made.tests) or NOTHING,
            "hidden files": ", ".join(made.support) or NOTHING,
            "rubrics": "tests, weight 1" if made.tests else NOTHING,
            "launcher": f"imports {', '.join(made.modules)}" if made.modules else NOTHING,
        }
    )
    for note in made.notes:
        click.echo(f"note: {printable(note)}")
    click.echo(f"next: rewrite {directory / 'LM_INSTRUCTIONS.md'}, then bakeoff task check {directory}")


@command.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the task goes (default: data/tasks/prepared/NAME).",
)
@json_option
def prepare(directory: Path, out: Path | None, as_json: bool) -> None:
    """Make a prepared task of a created one.

    DIRECTORY stays as it is. Rubrics and tests are never made up: if some are missing, this says so and writes nothing.
    """
    from bakeoff.workloads.tasks import authoring

    target = out or Path("data/tasks/prepared") / authoring.prepared_name(directory)
    task = authoring.prepare(directory, target)
    if as_json:
        display.print_json({"directory": target, "id": task.id, "digest": task.digest})
    else:
        click.echo(f"prepared {target}\nnext: bakeoff task check {target}")


@command.command()
@click.option(
    "--launcher",
    "set_up",
    is_flag=True,
    help="Write a launcher into tasks whose tests can call the work through one (docs/tasks.md).",
)
@_proof_command
def check(ctx: click.Context, proof: Proof, as_json: bool, set_up: bool) -> None:
    """Check tasks: complete, the reference passes, doing nothing and cheating fail.

    \b
    Exit code: 0 all hold; 1 one does not; 2 a task cannot be read.
    """
    from bakeoff.workloads.tasks import check as checking

    worst, report = 0, []
    for place in proof.directories:
        findings: list[checking.Finding] = []
        if not as_json:
            click.echo(printable(str(place)))
        try:
            for finding in checking.check(
                proof.load(place), proof.sandbox, proof.logs / place.absolute().name, set_up=set_up
            ):
                findings.append(finding)
                _show_finding(finding, as_json)
        except BakeoffError as error:
            name = "valid" if isinstance(error, SpecError) else "can be run"
            # A task that cannot be read is a finding: the others are checked all the same.
            findings.append(checking.Finding(name, False, str(error)))
            _show_finding(findings[-1], as_json)
            worst = max(worst, error.exit_code)
        good = not any(finding.ok is False for finding in findings)
        worst = max(worst, 0 if good else 1)
        report.append({"task": place, "ok": good, "findings": [asdict(finding) for finding in findings]})
    if as_json:
        display.print_json(report)
    ctx.exit(worst)


def _show_finding(finding: Any, as_json: bool) -> None:
    """Print a finding as soon as it is made: proving a task takes a while."""
    if not as_json:
        named = finding.ok is not None and finding.message
        text = f"{finding.name}: {finding.message}" if named else finding.message or finding.name
        click.echo(f"  {_MARKS[finding.ok]:<7} {printable(text)}")


@command.command()
@_proof_command
def oracle(ctx: click.Context, proof: Proof, as_json: bool) -> None:
    """Run the reference solution and its tests.

    \b
    Exit code: 0 it passes; 1 it does not; 2 a task cannot be read or has no reference.
    """
    from bakeoff.workloads.tasks.check import reference

    passed, report = True, []
    for place in proof.directories:
        verification = reference(proof.load(place), proof.sandbox, proof.logs / place.absolute().name)
        passed = passed and verification.passed
        report.append({"task": place, "passed": verification.passed, **asdict(verification)})
        if not as_json:
            _show_verification(place, verification)
    if as_json:
        display.print_json(report)
    ctx.exit(0 if passed else 1)


def _show_verification(place: Path, verification: Verification) -> None:
    """Print the result of a reference, with the end of the output of every script or step that failed."""
    score = NOTHING if verification.score is None else f"{verification.score:g}"
    passes = "passes" if verification.passed else "does not pass"
    click.echo(f"{printable(str(place))}: {passes}, score {score}, {verification.seconds:.1f} s")
    if verification.error:
        click.echo(f"  {printable(verification.error)}")
    for script in verification.scripts:
        good = sum(case.outcome == "passed" for case in script.cases)
        outcome = f"{good} of {len(script.cases)} tests passed" if script.cases else f"exit code {script.code}"
        click.echo(f"  {'ok' if script.passed else 'FAILED':<7} {script.path}: {outcome}")
        if not script.passed:
            click.echo("\n".join(f"      {printable(line)}" for line in script.output.splitlines()[-30:]))
    for step in verification.steps:
        click.echo(f"  {step.name}: {json.dumps(dict(step.rewards)) if step.rewards else step.error}")
        if not verification.passed:
            click.echo("\n".join(f"      {printable(line)}" for line in step.output.splitlines()[-30:]))


@command.command()
@click.argument("place", metavar="TASK", type=click.Path(path_type=Path))
@_overrides_options
@json_option
def show(place: Path, overrides_file: Path | None, no_overrides: bool, as_json: bool) -> None:
    """Show a task: its instruction, where it starts, and how it is verified."""
    from bakeoff.workloads.tasks.check import described

    task = _load(place, overrides_file, no_overrides)
    facts = described(task)
    if as_json:
        display.print_json(facts)
        return
    display.print_facts({name: _text(facts[name]) for name in _SHOWN if facts.get(name) not in (None, [], {}, "")})
    for step in facts["steps"]:
        click.echo(f"\n{'instruction' if len(task.steps) == 1 else step['name']}\n")
        click.echo("\n".join(f"    {printable(line)}".rstrip() for line in step["instruction"].splitlines()))
    if task.rubrics:
        click.echo()
        rows = []
        for rubric in task.rubrics:
            tests = sum(script.rubric_id == rubric.id for script in task.scripts)
            rows.append([rubric.id, f"{rubric.weight:g}", str(tests), rubric.criterion])
        display.print_table(["rubric", "weight", "tests", "criterion"], rows, right=["weight", "tests"])
    for note in task.notes:
        click.echo(f"note: {printable(note)}")


def _text(value: Any) -> str:
    """A value of `check.described` on one line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:g}" for name, number in value.items())
    return ", ".join(str(entry) for entry in value) if isinstance(value, list) else str(value)


def _load(place: Path, overrides_file: Path | None, no_overrides: bool) -> Task:
    """The task with the overrides that the options select."""
    from bakeoff.workloads.tasks.loading import load_task

    if overrides_file is not None and no_overrides:
        raise UsageError("--overrides and --no-overrides exclude each other\n  fix: give one of them")
    return load_task(place, overrides_file=overrides_file, apply_overrides=not no_overrides)


def _host_lists(texts: Sequence[str]) -> HostLists:
    """What `--hosts` grants. The hosts of a phase that is named twice are added up; `build=` is an empty list."""
    from bakeoff.workloads.tasks.network import HostLists
    from bakeoff.workloads.tasks.proxy.egress import checked_hosts

    lists: dict[str, tuple[str, ...]] = {}
    for text in texts:
        phase, equals, hosts = text.partition("=")
        if not equals or phase not in HostLists.model_fields:
            raise UsageError(f"--hosts {text}: write build=HOST, agent=HOST or verify=HOST")
        try:
            lists[phase] = lists.get(phase, ()) + checked_hosts(filter(None, hosts.split(",")))
        except ValueError as error:
            raise UsageError(f"--hosts {text}: {error}") from error
    return HostLists(**lists)


def _sandbox(name: str | None) -> Sandbox:
    """The sandbox, if it works here. `none` asks first."""
    from bakeoff.sandbox.base import VARIABLE, choose

    accepted = False
    if (name or os.environ.get(VARIABLE)) == "none":
        accepted = click.confirm("none isolates nothing: the tests run as you, on this machine. Continue?", err=True)
    sandbox = choose(name, accepted=accepted)
    reason = sandbox.missing()
    if reason is not None:
        raise UsageError(reason)
    return sandbox
