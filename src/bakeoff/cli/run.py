"""`bakeoff run FILE`: do what is missing, show it, and end with a code that a script can trust."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bakeoff.cli.display import print_json
from bakeoff.cli.options import json_option, root_option

if TYPE_CHECKING:
    from bakeoff.engine.scheduler import Summary
    from bakeoff.engine.session import Options, Session
    from bakeoff.spec.plan import Plan
    from bakeoff.spec.select import Test

_MANY = 10_000


@click.command(name="run")
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
    130 interrupted, and resumable.
    """
    from bakeoff.spec.load import load_plan

    source = file or config
    if source is None:
        raise click.UsageError("name an experiment file; `bakeoff init` writes one to start from")
    plan = load_plan(source, [*overrides, *([f"name={name}"] if name else [])])
    for note in plan.notes:
        click.echo(f"note: {note}", err=True)
    given = ctx.get_parameter_source("root") is not ParameterSource.DEFAULT
    root = out_root or (root if given or plan.root is None else plan.root)
    if dry_run:
        from bakeoff.cli.dry_run import show_plan

        ctx.exit(show_plan(plan, root, _tests(how["only"]), fresh=how["fresh"], as_json=as_json, verbose=verbosity > 0))
    _confirm(plan, yes)
    ctx.exit(_run(plan, _options(source, root, verbosity, how), verbosity, as_json))


def _tests(only: tuple[str, ...]) -> list[Test]:
    from bakeoff.spec.select import expression

    return [expression(text) for text in only]


def _options(source: Path, root: Path, verbosity: int, how: dict[str, Any]) -> Options:
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
        only=_tests(how["only"]),
        source=source,
    )


def _confirm(plan: Plan, yes: bool) -> None:
    """A matrix multiplies quickly; somebody at a terminal is asked before a very long night."""
    if not yes and sys.stdin.isatty() and len(plan) > _MANY:
        click.confirm(f"This plan has {len(plan):,} runs. Start?", default=True, abort=True, err=True)


def _run(plan: Plan, options: Options, verbosity: int, as_json: bool) -> int:
    from bakeoff.cli.progress import observers
    from bakeoff.engine.session import open_session

    session = open_session(plan, options)
    try:
        if session.grown:
            click.echo(f"the plan grew by {session.grown} runs since this edition began", err=True)
        with _Interrupts(session):
            summary = session.run(observers(session, verbosity))
        counts = _counts(session)
        report = _report(session, summary, counts)
        if as_json:
            print_json(report)
        else:
            _tell(report)
        return int(report["exit_code"])
    finally:
        session.close()


class _Interrupts:
    """Ctrl-C and SIGTERM press the session's switch instead of tearing through the loop."""

    def __init__(self, session: Session) -> None:
        self._switch = session.switch
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._pressed)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        self._switch.press()
        if self._switch.state == "drain":
            click.echo("\nstarting nothing more; running ones may finish. Once more ends them too", err=True)

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _counts(session: Session) -> Counter[str]:
    """Statuses of the runs that were asked for: all of them, or those that --only chose."""
    only = session.selected()
    if only is None:
        return Counter(session.edition.counts())
    chosen = (status for run, status in session.edition.statuses() if only(run))
    return Counter(chosen)


def _report(session: Session, summary: Summary, counts: Counter[str]) -> dict[str, Any]:
    failed = counts["failed"] + counts["timeout"]
    missing = sum(counts[status] for status in ("planned", "running", "cancelled", "infra_error"))
    interrupted = summary.stopped == "interrupted"
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
    if report["exit_code"] == 130:
        click.echo("the same command goes on from here")
    elif report["failed"] or report["missing"]:
        click.echo(f"see why: bakeoff status {report['experiment']}")
