"""`bakeoff eval`: score stored rollouts again, without running an agent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bakeoff.cli import display
from bakeoff.cli.options import json_option, root_option
from bakeoff.cli.summarize import edition_name
from bakeoff.records.layout import atomic_write, find_edition

if TYPE_CHECKING:
    from bakeoff.records.layout import EditionPaths
    from bakeoff.workloads.tasks.rescore import Rescored


@click.command()
@click.argument("name", metavar="[EXPERIMENT]", default="latest")
@click.option("--latest", is_flag=True, help="The newest edition. This is what is taken anyway.")
@click.option("--rollout", metavar="STAMP", help="Another edition, such as 20250824__12-34-56.")
@click.option(
    "--judge",
    "judge_model",
    metavar="MODEL",
    help="Let this model judge the rubrics; the file's other settings of a judge stay.",
)
@click.option("--judge-url", metavar="URL", help="Where the judge's chat completions are.")
@click.option("--votes", type=click.IntRange(1, 64), help="Votes for each rubric.")
@click.option("--sandbox", metavar="NAME", help="Where tests run: bubblewrap, docker, podman; else SANDBOX_BACKEND.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Rollouts at a time; else the cores.")
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    name: str,
    latest: bool,
    rollout: str | None,
    judge_model: str | None,
    judge_url: str | None,
    votes: int | None,
    sandbox: str | None,
    jobs: int | None,
    root: Path,
    as_json: bool,
) -> None:
    """Score the diffs that agents left with the tests, metrics and judge as they are now.

    Earlier scores stay on record as earlier tries. Exit code: 0 everything was scored; 1 something could not be.
    """
    from bakeoff.sandbox.base import choose
    from bakeoff.workloads.tasks.rescore import rescore
    from bakeoff.workloads.tasks.workload import available

    if latest and rollout:
        raise click.UsageError("--latest and --rollout name two editions; give one")
    if judge_model is None and (judge_url or votes):
        raise click.UsageError("--judge-url and --votes go with --judge")
    paths = find_edition(edition_name(name, rollout), root)
    given = {"model": judge_model, "base_url": judge_url, "votes": votes}
    judge = {key: value for key, value in given.items() if value is not None} or None
    found = rescore(paths, available(choose(sandbox)), jobs=jobs or os.cpu_count() or 1, judge=judge, told=_tell)
    _write_manifest(found, paths)
    failed = sum(one.status != "succeeded" for one in found)
    if as_json:
        display.print_json({"edition": str(paths.directory), "results": [_row(one) for one in found], "failed": failed})
    else:
        click.echo(f"{paths.experiment}/{paths.name}: {len(found) - failed} scored again, {failed} could not be")
        click.echo(f"see: bakeoff summarize {paths.experiment}/{paths.name}")
    ctx.exit(1 if failed else 0)


def _tell(one: Rescored) -> None:
    change = f"{display.number(one.before)} -> {display.number(one.after)}"
    click.echo(f"{one.status:<11} {one.run_id}  {change}" + (f"  {one.error}" if one.error else ""), err=True)


def _row(one: Rescored) -> dict[str, object]:
    return {
        "run_id": one.run_id,
        "run_dir": str(one.directory),
        "task_dir": one.task_dir,
        "status": one.status,
        "before": one.before,
        "after": one.after,
        "error": one.error,
    }


def _write_manifest(found: list[Rescored], paths: EditionPaths) -> None:
    """eval_manifest.json beside the benchmark's manifest, where it has one."""
    import time

    from bakeoff.workloads.tasks.rollouts import DATA, stamp_of

    folder = DATA / "rollouts" / paths.experiment / stamp_of(paths.name)
    if not folder.is_dir():
        return
    rows = [
        {
            "run_dir": str(one.directory),
            "task_dir": one.task_dir,
            "eval_rc": 0 if one.status == "succeeded" else 1,
            "status": "ok" if one.status == "succeeded" else "eval_failed",
        }
        for one in found
    ]
    stamp = time.strftime("%Y%m%d__%H-%M-%S", time.gmtime())
    atomic_write(folder / "eval_manifest.json", json.dumps({"evaluated_at": stamp, "results": rows}, indent=2))
