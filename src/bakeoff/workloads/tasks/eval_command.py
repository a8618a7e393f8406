"""`bakeoff eval`: score stored rollouts again, without running an agent."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bakeoff.cli import display
from bakeoff.cli.options import edition_options, find_edition, json_option, root_option
from bakeoff.records.layout import atomic_write
from bakeoff.text import number

if TYPE_CHECKING:
    from bakeoff.records.layout import EditionPaths
    from bakeoff.workloads.tasks.rescore import Rescored


@click.command()
@edition_options
@click.option(
    "--judge",
    "judge_model",
    metavar="MODEL",
    help="Let this model judge the rubrics; other judge settings of the file stay.",
)
@click.option("--judge-url", metavar="URL", help="The endpoint of the judge's chat completions.")
@click.option("--votes", type=click.IntRange(1, 64), help="Votes for each rubric.")
@click.option(
    "--sandbox", metavar="NAME", help="Where tests run: bubblewrap, docker, podman (default: SANDBOX_BACKEND)."
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Rollouts at a time (default: the number of cores).")
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    name: str,
    judge_model: str | None,
    judge_url: str | None,
    votes: int | None,
    sandbox: str | None,
    jobs: int | None,
    root: Path,
    as_json: bool,
) -> None:
    """Score the diffs that agents left with the tests, metrics and judge as they are now.

    Earlier scores stay on record as earlier attempts. Exit code: 0 everything was scored; 1 something could not be.
    """
    from bakeoff.sandbox.base import choose
    from bakeoff.workloads.tasks.rescore import rescore
    from bakeoff.workloads.tasks.workload import available

    if judge_model is None and (judge_url or votes):
        raise click.UsageError("--judge-url and --votes go with --judge")
    paths = find_edition(name, root)
    settings = {"model": judge_model, "base_url": judge_url, "votes": votes}
    judge = {key: value for key, value in settings.items() if value is not None} or None
    rescored = rescore(paths, available(choose(sandbox)), jobs=jobs or os.cpu_count() or 1, judge=judge, report=_report)
    _write_manifest(rescored, paths)
    failed = sum(run.status != "succeeded" for run in rescored)
    if as_json:
        rows = [asdict(run) for run in rescored]
        display.print_json({"edition": str(paths.directory), "results": rows, "failed": failed})
    else:
        click.echo(f"{paths.experiment}/{paths.name}: {len(rescored) - failed} scored again, {failed} could not be")
        click.echo(f"see: bakeoff summarize {paths.experiment}/{paths.name}")
    ctx.exit(1 if failed else 0)


def _report(run: Rescored) -> None:
    change = f"{number(run.before)} -> {number(run.after)}"
    click.echo(f"{run.status:<11} {run.run_id}  {change}" + (f"  {run.error}" if run.error else ""), err=True)


def _write_manifest(rescored: list[Rescored], paths: EditionPaths) -> None:
    """Write eval_manifest.json beside the benchmark's manifest, if there is one."""
    from bakeoff.workloads.tasks.dialect import DATA, stamp_of

    folder = DATA / "rollouts" / paths.experiment / stamp_of(paths.name)
    if not folder.is_dir():
        return
    rows = [
        {
            "run_dir": run.run_dir,
            "task_dir": run.task_dir,
            "eval_rc": 0 if run.status == "succeeded" else 1,
            "status": "ok" if run.status == "succeeded" else "eval_failed",
        }
        for run in rescored
    ]
    stamp = time.strftime("%Y%m%d__%H-%M-%S", time.gmtime())
    atomic_write(folder / "eval_manifest.json", json.dumps({"evaluated_at": stamp, "results": rows}, indent=2))
