"""`bakeoff run FILE`: do the runs that are missing, show progress, and end with an exit code for scripts."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli import print_note
from bakeoff.cli.display import print_json
from bakeoff.cli.options import json_option, only_experiment_file, results_root, root_option, set_option
from bakeoff.text import flat

if TYPE_CHECKING:
    from bakeoff.engine.scheduler import Observer, SessionSummary
    from bakeoff.engine.session import Options, Session
    from bakeoff.records.layout import EditionPaths
    from bakeoff.records.run import Attempt, FailureGroup, RunRecord, Unscored
    from bakeoff.spec.plan import Plan
    from bakeoff.verdicts.sequential.evidence_path import SequentialReport

MANY_RUNS = 10_000
"""A plan with more runs needs a confirmation at a terminal."""
MOST_NOTES = 10
MAX_GROUPS = 5
"""Messages of failures that are shown."""
RUN_OPTIONS = "bakeoff.run_options"
"""The entry-point group of tables by which workloads add options: option name to (metavar, help), under their kind."""


@dataclass(frozen=True, slots=True)
class WorkloadOption:
    kinds: tuple[str, ...]
    """The workloads that have it."""
    metavar: str
    help: str


class RunCommand(click.Command):
    """`bakeoff run` with the options of installed workloads, whose values `Configurable.configure` gets."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        added = [
            click.Option([f"--{name}"], metavar=option.metavar, help=option.help)
            for name, option in workload_options().items()
        ]
        *own, help_option = super().get_params(ctx)
        return [*own, *added, help_option]


@cache
def workload_options() -> dict[str, WorkloadOption]:
    """The options that installed workloads add, by name. Several workloads may share one."""
    from bakeoff.plugins import load_all

    options: dict[str, WorkloadOption] = {}
    for kind, table in load_all(RUN_OPTIONS, report=print_note):
        for name, (metavar, text) in table.items():
            others = options[name].kinds if name in options else ()
            options[name] = WorkloadOption((*others, kind), metavar, text)
    return options


@click.command(name="run", cls=RunCommand)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--config", type=click.Path(path_type=Path), help="The experiment file, under the sweep runner's name.")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Runs at a time (default: the file's `jobs`, else all cores)."
)
@click.option("--fail-fast", "--fail_fast", is_flag=True, help="At the first failure, kill what is running and stop.")
@click.option("--fresh", is_flag=True, help="Start a new edition, even when one is unfinished.")
@click.option("--resume", is_flag=True, help="Do only what is missing. This is the default.")
@click.option("--retry-failed", is_flag=True, help="Also repeat runs that failed because of their arm.")
@click.option("--set-aside", multiple=True, metavar="NODE", help="First discard all results of this node, of every arm, once; verdicts count that as a look.")  # fmt: skip
@click.option("--only", multiple=True, metavar="EXPR", help="Only runs that match, such as arm=full or 'seed < 5'.")
@set_option
@click.option("--executor", metavar="NAME", help="Where runs are executed: local, slurm or another that is installed.")
@click.option("--until-decided", is_flag=True, help="Add seeds in blocks until an anytime-valid test has decided.")
@click.option("--max-seeds", type=click.IntRange(min=1), help="With --until-decided: most seeds, 7 or more (default: the file's).")  # fmt: skip
@click.option("--block", type=click.IntRange(min=1), help="With --until-decided: seeds between two looks.")
@click.option("--exp_name", "name", metavar="NAME", help="Give the experiment another name.")
@click.option("--dry-run", "--dry_run", is_flag=True, help="Show what would run; create nothing.")
@click.option(
    "--allow-code-change", is_flag=True, help="Resume although the code has changed since the edition started."
)
@click.option("--wait", is_flag=True, help="When another process runs this edition, wait for it.")
@click.option("-v", "verbosity", count=True, help="-v: one line for each run; -vv: also what the runs write.")
@click.option("--yes", is_flag=True, help="Answer yes to every question.")
@click.option("--out_root", type=click.Path(path_type=Path), help="--root, under the sweep runner's name.")
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
    executor: str | None,
    only: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    yes: bool,
    verbosity: int,
    **how: Any,
) -> None:
    """Run what FILE asks for and is not done yet. In a directory with one experiment file, FILE may be left out.

    The same command again does only what is missing. Ctrl-C once starts nothing more and lets running ones finish;
    twice kills them too. A result that was reported is never lost.

    \b
    Exit code: 0 every run succeeded; 1 runs failed or are missing; 2 the call or the file is wrong;
    130 interrupted, and resumable. With --until-decided: 0 decided; 3 not enough evidence.
    """
    from bakeoff.engine import require_linux

    require_linux("`bakeoff run`")
    from bakeoff.engine.session import Options, check_plan
    from bakeoff.spec.load import load_plan
    from bakeoff.spec.select import expression

    source = file or config or only_experiment_file()
    with quiet_stdout(as_json):
        plan = load_plan(source, (*overrides, f"name={name}") if name else overrides, executor)
        for note in plan.notes:
            print_note(note)
        options = Options(
            root=out_root or results_root(ctx, root, plan),
            stream=verbosity > 1,
            only=[expression(text, plan.names | {"run_id"}) for text in only],
            source=source,
            **{
                key: how[key]
                for key in ("jobs", "fresh", "fail_fast", "retry_failed", "set_aside", "allow_code_change", "wait")
            },
        )
        plan = _sequential(plan, options, how)
        # A dry run starts nothing, so at a terminal nobody is asked; what a script would be refused, it is refused too.
        _prepare(plan, {name: how[name] for name in workload_options()}, yes or (dry_run and sys.stdin.isatty()))
        if dry_run:
            _print_notes(check_plan(plan, options))
        else:
            report = _run(plan, options, verbosity, root)
    if dry_run:
        from bakeoff.cli.dry_run import show_plan

        show_plan(plan, options, as_json=as_json, verbose=verbosity > 0)
        ctx.exit()
    print_json(report.facts()) if as_json else _show(report)
    ctx.exit(report.exit_code)


@contextmanager
def quiet_stdout(active: bool) -> Iterator[None]:
    """Send standard output to standard error, so that only the JSON reaches it.

    It works on the file descriptor: workloads and libraries in this process, and their children, may print too.
    """
    if not active:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _sequential(plan: Plan, options: Options, how: dict[str, Any]) -> Plan:
    """The plan as far as the sequential test has planned it, when the flag or the file asks for such a test."""
    if not how["until_decided"] and plan.experiment.sequential is None:
        if how["max_seeds"] or how["block"]:
            raise click.UsageError("--max-seeds and --block need --until-decided")
        return plan
    from bakeoff.verdicts.sequential.until_decided import prepare, sequential

    experiment = sequential(plan.experiment, how["max_seeds"], how["block"])
    return prepare(replace(plan, experiment=experiment), options)


def _prepare(plan: Plan, options: dict[str, str | None], yes: bool) -> None:
    """Ask before a very large plan, pass the workload its options, and ask about the risks that it names.

    Raises click.UsageError for an option of another workload, and for a risk that nobody can be asked about.
    """
    from bakeoff.spec import registry
    from bakeoff.spec.workload import Configurable

    if not yes and sys.stdin.isatty() and len(plan) > MANY_RUNS:
        click.confirm(f"This plan has {len(plan):,} runs. Start?", default=True, abort=True, err=True)
    kind = plan.experiment.workload
    values = {name: value for name, value in options.items() if value is not None}
    for name in values:
        kinds = workload_options()[name].kinds
        if kind not in kinds:
            raise click.UsageError(f"--{name} is an option of {' or '.join(kinds)}, not of workload {kind!r}")

    def accept(risk: str) -> None:
        if yes:
            return
        if not sys.stdin.isatty():
            raise click.UsageError(f"{risk}; --yes accepts that")
        click.confirm(f"{risk[0].upper()}{risk[1:]}. Continue?", abort=True, err=True)

    workload = registry.workload(kind)
    if isinstance(workload, Configurable):
        workload.configure(values, accept)


def _run(plan: Plan, options: Options, verbosity: int, root: Path) -> RunReport:
    """Do what is missing. Returns how it ended. `root` is where other verbs look for the experiment."""
    from bakeoff.records.layout import link_experiment

    with opened(plan, options) as session:
        link_experiment(session.edition.paths, root)
        return RunReport.of(session, *do_runs(session, verbosity))


@contextmanager
def opened(plan: Plan, options: Options) -> Iterator[Session]:
    """Open the session that does the plan's missing runs, say what it notes, and close it in the end."""
    from bakeoff.engine.session import open_session

    session = open_session(plan, options)
    try:
        _print_notes(session.notes)
        if session.grown:
            click.echo(f"the plan grew by {session.grown} runs since this edition started", err=True)
        yield session
    finally:
        session.close()


def do_runs(
    session: Session, verbosity: int, watching: Sequence[Observer] = ()
) -> tuple[SessionSummary, SequentialReport | None]:
    """Do what is missing, with progress on standard error; what the sequential test says at its end, if there is one.

    `watching` are further observers, called before the displays.
    """
    from bakeoff.cli.progress import observers
    from bakeoff.spec import registry

    source = None
    if session.plan.experiment.sequential is not None:
        from bakeoff.verdicts.sequential.until_decided import UntilDecided

        source = UntilDecided(session)
    with Interrupts(session) as interrupts:
        files = registry.dialect(session.plan.dialect).observers(session)
        shown = observers(session, verbosity, source)
        summary = session.run([interrupts, *files, *watching, *shown], source)
    return summary, None if source is None else source.look()


def failure_lines(groups: Sequence[FailureGroup]) -> list[str]:
    """Return a line for each message with which runs failed, with the command that prints what one of them wrote."""
    from bakeoff.records.secrets import hide

    lines = []
    for group in groups[:MAX_GROUPS]:
        arms = ", ".join(f"{arm} {count}" for arm, count in list(group.arms.items())[:4])
        message = flat(hide(group.message), 200) or "no error was recorded"
        runs = f"{len(group.runs)} run{'s' if len(group.runs) > 1 else ''}"
        lines.append(f"{runs} {group.status} ({arms}): {message}; see bakeoff logs {group.runs[0]}")
    if len(groups) > MAX_GROUPS:
        rest = sum(len(group.runs) for group in groups[MAX_GROUPS:])
        lines.append(f"... and {rest} more with {len(groups) - MAX_GROUPS} other messages")
    return lines


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes[:MOST_NOTES]:
        print_note(note)
    if len(notes) > MOST_NOTES:
        print_note(f"and {len(notes) - MOST_NOTES} more")


class Interrupts:
    """Turns Ctrl-C and SIGTERM into presses of the session's switch, instead of an exception inside its loop.

    It is an observer as well: a signal may arrive while something is being printed, so the message waits for a tick.
    """

    def __init__(self, session: Session) -> None:
        self._switch = session.switch
        self._before: dict[signal.Signals, Any] = {}
        self._pressed = self._announced = 0

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._press)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _press(self, number: int, frame: FrameType | None) -> None:
        self._pressed += 1
        self._switch.press()

    def finished(self, attempt: Attempt) -> None:
        """Nothing to do: only ticks announce."""

    def tick(self, running: Sequence[Attempt]) -> None:
        if self._announced == self._pressed:
            return
        self._announced = self._pressed
        if self._switch.state == "drain":
            text = f"starting nothing more; {len(running)} running may finish. Ctrl-C again kills them"
        else:
            text = f"killing {len(running)} that are running"
        click.echo(text, err=True)

    def close(self) -> None:
        """Nothing to do: `__exit__` gives the signals back."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a session ended, and the state of the runs that were asked for: all, or those that --only chose.

    Statuses are those of the records. A run that succeeded without a value of the declared metric has succeeded:
    that its analysis needs more is said beside it.
    """

    paths: EditionPaths
    counts: Counter[str]
    """Number of runs by status."""
    metric: str | None
    unscored: Sequence[tuple[RunRecord, Unscored]]
    last_failure: Mapping[str, Any] | None
    summary: SessionSummary
    decision: SequentialReport | None
    """What the sequential test says, if there is one."""

    @classmethod
    def of(cls, session: Session, summary: SessionSummary, decision: SequentialReport | None) -> RunReport:
        from bakeoff.records.run import failures, unscored

        edition, only = session.edition, session.selected()
        if only is None:
            counts = Counter(edition.counts())
        else:
            counts = Counter(run.status for run in edition.runs() if only(run))
        return cls(
            edition.paths,
            counts,
            edition.facts()["spec"]["analysis"]["metric"],
            [(run, reason) for run, reason in unscored(edition) if only is None or only(run)],
            next(iter(failures(edition, 1)), None),
            summary,
            decision,
        )

    @property
    def succeeded(self) -> int:
        return self.counts["succeeded"]

    @property
    def failed(self) -> int:
        return self.counts["failed"] + self.counts["timeout"]

    @property
    def missing(self) -> int:
        return self.counts.total() - self.succeeded - self.failed

    @property
    def exit_code(self) -> int:
        """0 every run succeeded, or the test decided; 1 runs failed or are missing; 3 undecided; 130 interrupted."""
        reason = self.summary.stopped.reason if self.summary.stopped else None
        if self.decision is None:
            if reason == "interrupted" and self.missing:
                return 130
            return 1 if self.failed or self.missing or not self.counts else 0
        if reason == "interrupted" and not self.decision.stopped:
            return 130
        return 1 if reason in ("first failure", "failures") else 0 if self.decision.decided else 3

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        summary, last = self.summary, self.last_failure
        first = f"{self.unscored[0][0].run_id}: {self.unscored[0][1].why}" if self.unscored else None
        return {
            "experiment": self.paths.experiment,
            "edition": self.paths.name,
            "directory": str(self.paths.directory),
            "runs": self.counts.total(),
            "succeeded": self.succeeded,
            "failed": self.failed,
            "metric": self.metric,
            "unscored": len(self.unscored),
            "missing": self.missing,
            "done_now": summary.statuses.total(),
            "attempts_now": summary.attempts,
            "left_out": summary.left_out,
            "stopped": summary.stopped.text if summary.stopped else None,
            "complete": summary.complete,
            "why_unscored": first,
            "last_failure": {key: last[key] for key in ("run_id", "status", "error")} if last else None,
            "exit_code": self.exit_code,
            **({"sequential": self.decision.facts()} if self.decision is not None else {}),
        }


def _show(report: RunReport) -> None:
    """Print how the session ended, the means, why runs failed, and the next command. Means that were shown are a look."""
    from bakeoff.records.recorded import Recorded
    from bakeoff.records.run import failure_groups

    summary, paths = report.summary, report.paths
    counts = f"{report.succeeded} succeeded, {report.failed} failed, {report.missing} missing"
    name = f"{paths.experiment}/{paths.name}"
    if summary.stopped:
        click.echo(f"{name}: {summary.stopped.text}; {counts}")
    elif not summary.statuses and summary.complete:
        click.echo(f"{name}: complete already; {counts}. --fresh starts a new edition")
    else:
        click.echo(f"{name}: {counts}" + (f"; {summary.left_out} left out by --only" if summary.left_out else ""))
    click.echo(f"results: {paths.directory}")
    for sentence in report.decision.sentences if report.decision is not None else ():
        click.echo(sentence)
    if report.exit_code == 130:
        click.echo("the same command continues from here")
        return
    with closing(Recorded.open(paths)) as edition:
        runs = list(edition.runs())
        if report.succeeded and report.decision is None:
            from bakeoff.cli.status import arm_facts, show_arms
            from bakeoff.records.looks import record_means

            show_arms(arm_facts(edition, runs), report.metric, len(report.unscored))
            record_means(edition, "run")
        for line in failure_lines(failure_groups(runs)):
            click.echo(line)
        arms = len({run.arm for run in runs})
    if report.unscored:
        run, reason = report.unscored[0]
        metric = f"the metric {report.metric!r} ({run.run_id}: {reason.why})"
        click.echo(f"{len(report.unscored)} of the {report.succeeded} that succeeded have no number for {metric}")
    if report.failed or report.missing:
        click.echo(f"see why: bakeoff status {paths.experiment}")
    if report.failed and not report.missing and report.decision is None:
        click.echo("try the failed ones again: the same command with --retry-failed")
    if report.missing:
        click.echo("next: the same command, which does what is missing")
    elif report.succeeded:
        click.echo(f"next: bakeoff {'compare' if arms > 1 else 'report'} {paths.experiment}")
