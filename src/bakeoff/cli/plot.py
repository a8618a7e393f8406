"""`bakeoff plot KIND`: results as a picture."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bakeoff.cli import display
from bakeoff.cli.options import FILE, json_option, root_option
from bakeoff.cli.questions import ask, column_options, columns, question_options
from bakeoff.verdicts.question import Plot
from bakeoff.version import __version__

KINDS = ("curves", "differences", "bootstrap", "variance", "power", "profiles", "radial", "e-process")


@click.command()
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.argument("name", metavar="[EXPERIMENT]", default="latest")
@click.option("-o", "--output", type=FILE, metavar="FILE", help="Where to write: .png, .svg or .html (default: KIND.png).")  # fmt: skip
@click.option("--metric", multiple=True, metavar="NAME", help="What to draw (default: the experiment's metric). Can be repeated for radial.")  # fmt: skip
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Only this arm; can be repeated.")
@question_options(Plot, "direction", "only_tasks", "control", "level", "resamples", "method", "effect")
@column_options
@root_option
@json_option
def command(kind: str, name: str, output: Path | None, root: Path, as_json: bool, **options: Any) -> None:
    """Draw results of an experiment.

    \b
    KIND is one of
      curves       learning curves with confidence bands
      differences  a dot for each pair, the effect and its interval
      bootstrap    bootstrap distribution of the mean difference
      variance     precision of the mean against the number of runs
      power        chance to detect an effect against the number of runs
      profiles     share of runs above each score
      radial       arms over tasks or metrics around a circle, with a table
      e-process    evidence of a run --until-decided, pair by pair

    EXPERIMENT is whatever `bakeoff compare` takes as SOURCE (default: `latest`). HTML opens without a network.
    """
    from bakeoff.results.sources import open_results
    from bakeoff.web.drawing import check, write
    from bakeoff.web.pictures import draw

    target = output or Path(f"{kind}.png")
    check(target)
    with closing(open_results([name], root, columns(options))) as results:
        figure = draw(kind, results, ask(Plot, options))
        source = results.label
    write(figure, target)
    named = {"metric": "metrics", "only_tasks": "tasks"}
    facts = {
        "version": __version__,
        "kind": kind,
        "source": source,
        "settings": {
            named.get(key, key): value
            for key, value in options.items()
            if value not in (None, ()) and value is not False
        },
        "title": figure.title,
        "caption": figure.caption,
        "plot": target,
    }
    if as_json:
        display.print_json(facts)
    else:
        click.echo(figure.title)
        click.echo(f"plot: {target}")
