"""`bakeoff compare`: is B better than A, and how sure are we."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

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
from bakeoff.verdicts.question import Compare


@click.command(cls=SeveralValues)
@run_options
@question_options(
    Compare, "metric", "control", "arms", *JUDGING, "margin", "relative_margin", "alpha", "simultaneous", "editions", "expect",
    "methods", "covariate", "explore", "resamples",
)  # fmt: skip
@click.option("--csv", "--output.csv_path", "csv_path", type=FILE, metavar="FILE", help="Write the units and the result as CSV.")  # fmt: skip
@click.option("--markdown", type=FILE, metavar="FILE", help="Write a report as Markdown.")
@click.option("--output", type=FILE, metavar="FILE", help="Write what --json prints into a file.")
@click.option("--certificate", type=FILE, metavar="FILE", help="Write rows, question and decisions, for scripts/verify.py (docs/certificates.md).")  # fmt: skip
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="Show everything: effect sizes, tests, other p-values and intervals, settings.",
)
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, root: Path, as_json: bool, verbose: bool, **options: Any) -> None:
    """Say of every arm whether it is better than the control, worse, equivalent, or undecided.

    SOURCE is an experiment (default: the newest), `A:arm B:arm` for arms of two, a table (.csv, .tsv, .parquet, .jsonl),
    directories with metrics.jsonl, a campaign, or files of other tools as they lie on disk, such as Inspect, Harbor,
    lm-eval, W&B or TensorBoard (docs/other-tools.md). Exits with 0 when everything is decided and with 3 when not. With
    --expect, 1 means decided, but not as expected.
    """
    from bakeoff.results.editions import open_all_editions
    from bakeoff.verdicts.answer import answer
    from bakeoff.verdicts.certificate import write_certificate

    question = ask(Compare, options)
    opened = open_all_editions(options["names"], root) if question.editions else open_runs(options, root)
    with closing(opened) as results:
        comparison = answer(results, question)
        write_answer(comparison, csv=options["csv_path"], markdown=options["markdown"], json=options["output"])
        if options["certificate"] is not None:
            write_certificate(results, comparison, options["certificate"])
        print_answer(comparison, as_json, verbose=verbose)
    ctx.exit(comparison.exit_code)
