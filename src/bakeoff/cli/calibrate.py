"""`bakeoff calibrate`: how often these runs would lead to a wrong verdict."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.gate import policy_of, policy_options
from bakeoff.cli.options import FILE, SeveralValues, json_option, root_option
from bakeoff.cli.questions import (
    JUDGING,
    ask,
    open_runs,
    print_answer,
    question_options,
    run_options,
    write_answer,
)
from bakeoff.verdicts.question import Calibrate


@click.command(cls=SeveralValues)
@run_options
@question_options(
    Calibrate, "metric", "control", "arms", *JUDGING, "margin", "relative_margin", "alpha", "blocks", "replicates", "seed",
)  # fmt: skip
@policy_options
@click.option("--csv", type=FILE, metavar="FILE", help="Write the rates as CSV.")
@click.option("--markdown", type=FILE, metavar="FILE", help="Write a report as Markdown.")
@click.option("--output", type=FILE, metavar="FILE", help="Write what --json prints into a file.")
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, root: Path, as_json: bool, **options: Any) -> None:
    """Measure error rates of the declared analysis on your own runs.

    Labels of the arms are exchanged for whole tasks and for whole seeds, so that there is no effect, and every such
    experiment is judged as `compare` would. SOURCE is what `compare` takes. It shows no effect, so it may be asked before
    the runs are finished. Exits with 0 when alpha holds within the error of the simulation, with 1 when wrong verdicts
    are more frequent (the unit is wrong: the answer says what to change), and with 3 when there is too little data. With
    the rules of a gate, it also says how often that gate would fail if nothing had changed.
    """
    from bakeoff.verdicts.answer import answer

    question = ask(Calibrate, options, policy=policy_of(options))
    with closing(open_runs(options, root)) as results:
        calibration = answer(results, question)
    write_answer(calibration, csv=options["csv"], markdown=options["markdown"], json=options["output"])
    print_answer(calibration, as_json)
    ctx.exit(calibration.exit_code)
