"""`bakeoff plot KIND`: an edition's results as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bakeoff.cli import display
from bakeoff.cli.options import json_option, root_option
from bakeoff.version import __version__

KINDS = ("curves", "differences", "bootstrap", "variance", "power", "profiles", "radial", "e-process")


@click.command()
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.argument("name", metavar="[EXPERIMENT]", default="latest")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Where to: .png, .svg or .html; KIND.png when left out.")  # fmt: skip
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="What to draw; the experiment's own metric when left out. Can be repeated for radial.")  # fmt: skip
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Only this arm; can be repeated.")
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="Only this task; can be repeated.")
@click.option("--control", metavar="ARM", help="The arm that others are compared with; the experiment's own when left out.")  # fmt: skip
@click.option("--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True, help="Of bands and bootstrap intervals.")  # fmt: skip
@click.option("--resamples", type=click.IntRange(min=100), default=9_999, show_default=True, help="Of the bootstrap.")
@click.option("--method", type=click.Choice(("studentized", "percentile", "bca")), default="studentized", show_default=True, help="Of the bootstrap's interval.")  # fmt: skip
@click.option("--effect", type=float, help="For power: the effect to find; the margin, or what the runs at hand find.")
@root_option
@json_option
def command(kind: str, name: str, output: Path | None, root: Path, as_json: bool, **asked: Any) -> None:
    """Draw results of an experiment.

    \b
    KIND is one of
      curves       learning curves with confidence bands
      differences  a dot for each pair, the effect and its interval
      bootstrap    bootstrap distribution of the mean difference
      variance     precision of the mean against the number of runs
      power        chance to find an effect against the number of runs
      profiles     share of runs above each score
      radial       arms over tasks or metrics around a circle, with a table
      e-process    evidence of a run --until-decided, pair by pair

    EXPERIMENT is a name, name/edition, a path, or `latest` (the default). HTML opens without a network.
    """
    from bakeoff.records.edition import Edition
    from bakeoff.records.layout import find_edition
    from bakeoff.report.from_edition import Request, draw
    from bakeoff.report.write import check, write

    target = output or Path(f"{kind}.png")
    check(target)
    edition = Edition.open(find_edition(name, root))
    try:
        figure = draw(kind, edition, Request(**asked))
        source = f"{edition.paths.experiment}/{edition.paths.name}"
    finally:
        edition.close()
    write(figure, target)
    facts = {
        "version": __version__,
        "kind": kind,
        "source": source,
        "settings": {key: value for key, value in asked.items() if value not in (None, ())},
        "title": figure.title,
        "caption": figure.caption,
        "plot": target,
    }
    if as_json:
        display.print_json(facts)
    else:
        click.echo(figure.title)
        click.echo(f"plot: {target}")
