"""`bakeoff launch FILE --to TARGET`: write and start a job that runs the experiment elsewhere, and bring results home."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.options import only_experiment_file, results_root, root_option, set_option

if TYPE_CHECKING:
    from bakeoff.engine.launch.job import Target

TARGETS = ("sky", "kuberay", "slurm")


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--to", required=True, type=click.Choice(TARGETS), help="Where the job runs.")
@click.option("--dry-run", is_flag=True, help="Print the job's file and the commands; write and start nothing.")
@click.option("--detach", is_flag=True, help="Return when the job is started; bring no results home.")
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Machines that runs use.")
@click.option(
    "--cpus", type=click.IntRange(min=1), metavar="N", help="Of each machine (default: `jobs` times `resources.cpus`)."
)
@click.option(
    "--gpus", type=click.IntRange(min=0), metavar="N", help="Of each machine (default: `jobs` times `resources.gpus`)."
)
@click.option(
    "--memory", metavar="SIZE", help="Of each machine, such as 32GB (default: `jobs` times `resources.memory`)."
)
@click.option("--time", "duration", metavar="TIME", help="How long the job may take, such as 4h.")
@click.option("--image", metavar="IMAGE", help="The container image (required for kuberay).")
@click.option("--setup", multiple=True, metavar="LINE", help="A shell line before the run, such as 'module load cuda'.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of the job's own format: partition=gpu, resources.infra=aws, spec.ttlSecondsAfterFinished=60.",
)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Where to write the job's file.")
@set_option
@root_option
@click.pass_context
def command(
    ctx: click.Context,
    file: Path | None,
    to: str,
    dry_run: bool,
    detach: bool,
    nodes: int,
    cpus: int | None,
    gpus: int | None,
    memory: str | None,
    duration: str | None,
    image: str | None,
    setup: tuple[str, ...],
    options: tuple[str, ...],
    output: Path | None,
    overrides: tuple[str, ...],
    root: Path,
) -> None:
    """Run FILE as a job of SkyPilot, KubeRay or Slurm, and bring its results home.

    On more than one node the job starts a Ray cluster of its own. The same command again goes on with what is missing.
    Exits with the job's result: 0 when it ended well.
    """
    from pydantic import TypeAdapter, ValidationError

    from bakeoff.engine.launch.job import make_job
    from bakeoff.records.layout import atomic_write
    from bakeoff.spec.experiment import Duration, Size
    from bakeoff.spec.load import load_plan

    def read(kind: Any, text: str | None, option: str) -> float | None:
        try:
            return None if text is None else float(TypeAdapter[Any](kind).validate_python(text))
        except ValidationError as error:
            raise click.BadParameter(
                error.errors()[0]["msg"].removeprefix("Value error, "), param_hint=option
            ) from error

    size, seconds = read(Size, memory, "--memory"), read(Duration, duration, "--time")
    file = file or only_experiment_file()
    plan = load_plan(file, overrides)
    root = results_root(ctx, root, plan)
    job = make_job(
        plan, file, root, nodes=nodes, cpus=cpus, gpus=gpus, memory=int(size) if size else None, seconds=seconds,
        image=image, setup=setup, overrides=overrides, options=options,
    )  # fmt: skip
    target = _target(to)
    text = target.write(job)
    path = output or job.place / target.file
    if dry_run:
        click.echo(text, nl=False)
        click.echo(
            "\n".join(
                ["", "would write the file above and call:", *(f"  {line}" for line in target.commands(job, path))]
            ),
            err=True,
        )
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text)
    click.echo(f"wrote {path}")
    code = target.start(job, path, click.echo, detach=detach)
    if not detach:
        click.echo(f"results: {job.home}")
    ctx.exit(code)


def _target(name: str) -> Target:
    if name == "sky":
        from bakeoff.engine.launch.sky import Sky

        return Sky()
    if name == "kuberay":
        from bakeoff.engine.launch.kuberay import KubeRay

        return KubeRay()
    from bakeoff.engine.launch.slurm import Slurm

    return Slurm()
