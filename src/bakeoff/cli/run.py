"""`bakeoff run FILE`: do what is missing, show it, and end with a code that a script can trust."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bakeoff.cli import print_note
from bakeoff.cli.display import print_json
from bakeoff.cli.options import json_option, root_option

if TYPE_CHECKING:
    from bakeoff.engine.scheduler import Summary
    from bakeoff.engine.session import Options, Session
    from bakeoff.records.run import Attempt
    from bakeoff.spec.plan import Plan
    from bakeoff.spec.select import Test
    from bakeoff.verdicts.until_decided import UntilDecided

_MANY = 10_000
MOST_NOTES = 10


RUN_OPTIONS = "bakeoff.run_options"
"""The entry-point group of tables by which workloads add options: option name to (metavar, help), under their kind."""


@dataclass(frozen=True, slots=True)
class WorkloadOption:
    kinds: tuple[str, ...]
    """The workloads that have it."""
    metavar: str
    help: str


class RunCommand(click.Command):
    """`bakeoff run` with the options of installed workloads, which `Configurable.configure` gets."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        added = [
            click.Option([f"--{name}"], metavar=option.metavar, help=option.help)
            for name, option in workload_options().items()
        ]
        *own, help_option = super().get_params(ctx)
        return [*own, *added, help_option]


@cache
def workload_options() -> dict[str, WorkloadOption]:
    """The options that installed workloads add, by name."""
    from bakeoff.plugins import load_all

    options: dict[str, WorkloadOption] = {}
    for kind, table in load_all(RUN_OPTIONS, report=print_note):
        for name, (metavar, text) in table.items():
            others = options[name].kinds if name in options else ()
            options[name] = WorkloadOption((*others, kind), metavar, text)
    return options


@click.command(name="run", cls=RunCommand)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--config", type=click.Path(path_type=Path), help="The experiment file, as the sweep runner names it.")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Runs at a time; else the file's `jobs`, else the cores."
)
@click.option("--fail-fast", "--fail_fast", is_flag=True, help="At the first failure end what is running and stop.")
@click.option("--fresh", is_flag=True, help="Begin a new edition, also when one is unfinished.")
@click.option("--resume", is_flag=True, help="Do only what is missing. This is what happens anyway.")
@click.option("--retry-failed", is_flag=True, help="Also try runs again that failed by their arm's own doing.")
@click.option("--only", multiple=True, metavar="EXPR", help="Only runs that match, such as arm=full or 'seed < 5'.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the file, such as rollouts=3."
)
@click.option("--until-decided", is_flag=True, help="Add seeds in blocks until an anytime-valid test has decided.")
@click.option("--max-seeds", type=click.IntRange(min=1), help="With --until-decided: most seeds, 7 or more; else the file's.")  # fmt: skip
@click.option("--block", type=click.IntRange(min=1), help="With --until-decided: seeds between two looks.")
@click.option("--exp_name", "name", metavar="NAME", help="Call the experiment by another name.")
@click.option("--dry-run", "--dry_run", is_flag=True, help="Show what would run; create nothing.")
@click.option("--allow-code-change", is_flag=True, help="Resume although the code is not the one that began.")
@click.option("--wait", is_flag=True, help="When another scheduler works on this edition, wait for it.")
@click.option("-v", "verbosity", count=True, help="-v: one line for each run; -vv: also what the runs write.")
@click.option("--yes", is_flag=True, help="Answer every question with yes.")
@click.option("--out_root", type=click.Path(path_type=Path), help="--root, as the sweep runner names it.")
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    file: Path | None,
    config: Path | None,
    root: Path,
    out_root: Path | None,
    overrides: tuple[str, ...],
    name: str | None,
    dry_run: bool,
    as_json: bool,
    yes: bool,
    verbosity: int,
    **how: Any,
) -> None:
    """Run what FILE asks for and is not done yet.

    The same command again does only what is missing. Ctrl-C once starts nothing more and lets running ones finish;
    twice ends them too. Nothing that was reported is ever lost.

    \b
    Exit code: 0 every run succeeded; 1 runs failed or are missing; 2 the call or the file is wrong;
    130 interrupted, and resumable. With --until-decided: 0 decided; 3 not enough evidence.
    """
    source = file or config
    if source is None:
        raise click.UsageError("name an experiment file; `bakeoff init` writes one to start from")
    with _Stdout(as_json) as stdout:
        overrides = (*overrides, *([f"name={name}"] if name else []))
        given = ctx.get_parameter_source("root") is not ParameterSource.DEFAULT
        plan, root = _load(source, overrides, out_root or (root if given else None), root)
        options = _options(source, plan, root, verbosity, how)
        plan = _until_decided(plan, options, how)
        if dry_run:
            from bakeoff.cli.dry_run import show_plan

            stdout.give_back()
            tests = _tests(how["only"], plan)
            ctx.exit(show_plan(plan, root, tests, fresh=how["fresh"], as_json=as_json, verbose=verbosity > 0))
        _confirm(plan, yes)
        _configure(plan, {option: how[option] for option in workload_options()}, yes)
        report = _run(plan, options, verbosity)
    if as_json:
        print_json(report)
    else:
        _tell(report)
    ctx.exit(int(report["exit_code"]))


def _load(source: Path, overrides: Sequence[str], given: Path | None, default: Path) -> tuple[Plan, Path]:
    """The plan, and where its results go: where the user says, or its dialect, or the usual place."""
    from bakeoff.spec.load import load_plan

    plan = load_plan(source, overrides)
    for note in plan.notes:
        print_note(note)
    return plan, given or plan.root or default


class _Stdout:
    """With --json nothing but the JSON may reach standard output, whatever a workload or a library prints."""

    def __init__(self, guarded: bool) -> None:
        self._kept: int | None = None
        self._guarded = guarded

    def __enter__(self) -> _Stdout:
        if self._guarded:
            sys.stdout.flush()
            self._kept = os.dup(1)
            os.dup2(2, 1)
        return self

    def give_back(self) -> None:
        if self._kept is not None:
            sys.stdout.flush()
            os.dup2(self._kept, 1)
            os.close(self._kept)
            self._kept = None

    def __exit__(self, *error: object) -> None:
        self.give_back()


def _tests(only: tuple[str, ...], plan: Plan) -> list[Test]:
    from bakeoff.spec.select import expression

    return [expression(text, plan.names | {"run_id"}) for text in only]


def _options(source: Path, plan: Plan, root: Path, verbosity: int, how: dict[str, Any]) -> Options:
    from bakeoff.engine.session import Options

    return Options(
        root=root,
        jobs=how["jobs"],
        fresh=how["fresh"],
        fail_fast=how["fail_fast"],
        retry_failed=how["retry_failed"],
        allow_code_change=how["allow_code_change"],
        wait=how["wait"],
        stream=verbosity > 1,
        only=_tests(how["only"], plan),
        source=source,
    )


def _until_decided(plan: Plan, options: Options, how: dict[str, Any]) -> Plan:
    """The plan as far as the sequential test goes by now, when the flag or the file asks for one."""
    wanted = how["until_decided"] or plan.experiment.sequential is not None
    if not wanted:
        if how["max_seeds"] or how["block"]:
            raise click.UsageError("--max-seeds and --block go with --until-decided")
        return plan
    from bakeoff.verdicts.until_decided import prepare, sequential

    experiment = sequential(plan.experiment, how["max_seeds"], how["block"])
    return prepare(replace(plan, experiment=experiment), options)


def _confirm(plan: Plan, yes: bool) -> None:
    """A matrix multiplies quickly; somebody at a terminal is asked before a very long night."""
    if not yes and sys.stdin.isatty() and len(plan) > _MANY:
        click.confirm(f"This plan has {len(plan):,} runs. Start?", default=True, abort=True, err=True)


def _configure(plan: Plan, options: dict[str, str | None], yes: bool) -> None:
    """Pass the workload its own options, and ask the user about the risks that it names."""
    from bakeoff.spec import registry
    from bakeoff.spec.workload import Configurable

    kind = plan.experiment.workload
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        kinds = workload_options()[name].kinds
        if kind not in kinds:
            raise click.UsageError(f"--{name} goes with {' or '.join(kinds)}, not with workload {kind!r}")

    def accept(risk: str) -> None:
        if yes:
            return
        if not sys.stdin.isatty():
            raise click.UsageError(f"{risk}; --yes accepts that")
        click.confirm(f"{risk[0].upper()}{risk[1:]}. Continue?", abort=True, err=True)

    workload = registry.workload(kind)
    if isinstance(workload, Configurable):
        workload.configure(given, accept)


def _run(plan: Plan, options: Options, verbosity: int) -> dict[str, Any]:
    from bakeoff.cli.progress import observers
    from bakeoff.engine.session import open_session
    from bakeoff.spec import registry

    session = open_session(plan, options)
    try:
        _note(session.notes)
        if session.grown:
            click.echo(f"the plan grew by {session.grown} runs since this edition began", err=True)
        source = _source(session)
        with _Interrupts(session) as interrupts:
            beside = registry.dialect(plan.dialect).observers(session)
            looking = [interrupts, *beside, *observers(session, verbosity, source)]
            summary = session.run(looking, source)
        report = _report(session, summary, _counts(session))
        return report if source is None else {**report, **_decision(source, summary)}
    finally:
        session.close()


def _note(notes: Sequence[str]) -> None:
    for note in notes[:MOST_NOTES]:
        print_note(note)
    if len(notes) > MOST_NOTES:
        print_note(f"and {len(notes) - MOST_NOTES} more")


def _source(session: Session) -> UntilDecided | None:
    if session.plan.experiment.sequential is None:
        return None
    from bakeoff.verdicts.until_decided import UntilDecided

    return UntilDecided(session)


def _decision(source: UntilDecided, summary: Summary) -> dict[str, Any]:
    """What the sequential test says at the end, and the exit code that goes with it."""
    report = source.look()
    interrupted = summary.stopped == "interrupted" and not report.stopped
    failed_fast = summary.stopped.startswith("stopped at the first failure")
    code = 130 if interrupted else 1 if failed_fast else 0 if report.decided else 3
    return {"sequential": report.facts(), "exit_code": code}


class _Interrupts:
    """Ctrl-C and SIGTERM press the session's switch instead of tearing through the loop.

    An observer too, because a signal may come while something is being printed: what was pressed is said later.
    """

    def __init__(self, session: Session) -> None:
        self._switch = session.switch
        self._before: dict[signal.Signals, Any] = {}
        self._pressed = 0
        self._told = 0

    def __enter__(self) -> _Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._press)
        return self

    def _press(self, number: int, frame: FrameType | None) -> None:
        self._pressed += 1
        self._switch.press()

    def finished(self, attempt: Attempt) -> None:
        return

    def tick(self, running: Sequence[Attempt]) -> None:
        if self._told < self._pressed:
            self._told = self._pressed
            if self._switch.state == "drain":
                text = f"starting nothing more; {len(running)} running may finish. Once more ends them too"
            else:
                text = f"ending {len(running)} that are running"
            click.echo(text, err=True)

    def close(self) -> None:
        return

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _counts(session: Session) -> Counter[str]:
    """Statuses of the runs that were asked for: all of them, or those that --only chose."""
    only = session.selected()
    if only is None:
        return Counter(session.edition.counts())
    chosen = (run.status for run in session.edition.runs() if only(run))
    return Counter(chosen)


def _report(session: Session, summary: Summary, counts: Counter[str]) -> dict[str, Any]:
    failed = counts["failed"] + counts["timeout"]
    missing = sum(counts[status] for status in ("planned", "running", "cancelled", "infra_error"))
    interrupted = summary.stopped == "interrupted" and missing > 0
    return {
        "experiment": session.paths.experiment,
        "edition": session.paths.name,
        "directory": str(session.paths.directory),
        "runs": sum(counts.values()),
        "succeeded": counts["succeeded"],
        "failed": failed,
        "missing": missing,
        "done_now": sum(summary.statuses.values()),
        "attempts_now": summary.attempts,
        "left_out": summary.left_out,
        "stopped": summary.stopped or None,
        "complete": summary.complete,
        "exit_code": 130 if interrupted else 1 if failed or missing or not counts else 0,
    }


def _tell(report: dict[str, Any]) -> None:
    done = f"{report['succeeded']} succeeded, {report['failed']} failed, {report['missing']} missing"
    name = f"{report['experiment']}/{report['edition']}"
    if report["stopped"]:
        click.echo(f"{name}: {report['stopped']}; {done}")
    elif report["done_now"] == 0 and report["complete"]:
        click.echo(f"{name}: complete already; {done}. --fresh begins a new edition")
    else:
        click.echo(f"{name}: {done}" + (f"; {report['left_out']} left out by --only" if report["left_out"] else ""))
    click.echo(f"results: {report['directory']}")
    for one in report.get("sequential", {}).get("comparisons", ()):
        click.echo(one["sentence"])
    if report["exit_code"] == 130:
        click.echo("the same command goes on from here")
    elif report["failed"] or report["missing"]:
        click.echo(f"see why: bakeoff status {report['experiment']}")
