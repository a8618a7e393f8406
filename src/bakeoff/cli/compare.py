"""`bakeoff compare`: is B better than A, and how sure are we."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli import inputs
from bakeoff.cli.display import print_json, standard
from bakeoff.cli.options import Several, SeveralValues, json_option, root_option

if TYPE_CHECKING:
    from bakeoff.interop.asking import Answer

METHODS = (
    "t", "welch", "signflip", "permutation", "bootstrap", "studentized", "percentile", "bca", "mcnemar", "fisher",
    "wilcoxon", "mannwhitney", "tost", "cluster", "hierarchical",
)  # fmt: skip
EXPECTED = {
    "better": ("better",),
    "worse": ("worse",),
    "equivalent": ("equivalent",),
    "not-worse": ("better", "equivalent"),
}
FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=SeveralValues)
@inputs.run_options
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="What gets a verdict; can be repeated, and all of them are one family. The declared ones when left out.")  # fmt: skip
@click.option("--control", metavar="ARM", help="The arm that the others are compared with; the declared one, or the first.")  # fmt: skip
@click.option("--arms", "candidates", cls=Several, metavar="ARM...", help="Compare only these arms with the control; several may follow.")  # fmt: skip
@inputs.judging_options
@click.option("--margin", type=click.FloatRange(0, min_open=True), help="Differences below this do not matter; needed for the verdict `equivalent`.")  # fmt: skip
@click.option("--relative-margin", type=click.FloatRange(0, 1, min_open=True, max_open=True), help="The margin as a share of the control's mean.")  # fmt: skip
@click.option("--alpha", type=click.FloatRange(0, 0.5, min_open=True, max_open=True), help="Chance of any false verdict in the family; 0.05 unless declared.")  # fmt: skip
@click.option("--simultaneous", is_flag=True, help="Decision intervals that hold for all comparisons at once; wider than the verdicts need.")  # fmt: skip
@click.option("--expect", type=click.Choice(list(EXPECTED)), help="Exit with 1 when a verdict is another one.")
@click.option("--method", "methods", multiple=True, type=click.Choice(METHODS), help="One more method beside the verdict's own, which alone votes; can be repeated.")  # fmt: skip
@click.option("--covariate", metavar="NAME", help="Something measured before the arms could act: adds a line with its share removed (CUPED).")  # fmt: skip
@click.option("--explore", is_flag=True, help="Show every other metric too: BH-adjusted, exploratory, no verdict.")
@click.option("--resamples", "--bootstrap.n_resamples", "resamples", type=click.IntRange(min=100), default=9_999, show_default=True, help="Of every bootstrap; the verdict itself has none.")  # fmt: skip
@click.option("--csv", "--output.csv_path", "csv_path", type=FILE, metavar="FILE", help="Write the units and the result as CSV.")  # fmt: skip
@click.option("--markdown", type=FILE, metavar="FILE", help="Write a report as Markdown.")
@click.option("--output", type=FILE, metavar="FILE", help="Write what --json prints into a file.")
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, root: Path, as_json: bool, **asked: Any) -> None:
    """Say of every arm whether it is better than the control, worse, equivalent, or undecided.

    SOURCE is an experiment (the newest when left out), `A:arm B:arm` for arms of two, a table (.csv, .tsv, .parquet,
    .jsonl), directories with metrics.jsonl, a campaign, or W&B runs. Exits with 0 when everything is decided and with 3
    when not; --expect adds 1.
    """
    from bakeoff.cli import answers
    from bakeoff.interop.asking import Asked, answer
    from bakeoff.verdicts.compare import Options

    options = Options(
        control=asked["control"],
        candidates=asked["candidates"],
        tasks=asked["tasks"],
        unpaired=asked["unpaired"],
        intersect=asked["intersect"],
        simultaneous=asked["simultaneous"],
        methods=asked["methods"],
        resamples=asked["resamples"],
    )
    question = Asked(
        metrics=asked["metrics"],
        changes=inputs.changes(asked),
        directions=inputs.directions(asked),
        options=options,
        covariate=asked["covariate"],
        explore=asked["explore"],
    )
    with closing(inputs.open_runs(asked, root)) as source:
        found = answer(source, question)
    _write(found, asked)
    print_json(answers.as_json(found)) if as_json else answers.show(found)
    ctx.exit(exit_code(found, asked["expect"]))


def _write(found: Answer, asked: dict[str, Any]) -> None:
    from bakeoff.cli import answers

    if asked["csv_path"] is not None:
        asked["csv_path"].write_text(answers.csv_text(found))
    if asked["markdown"] is not None:
        asked["markdown"].write_text(answers.markdown(found))
    if asked["output"] is not None:
        import json

        text = json.dumps(standard(answers.as_json(found)), indent=2, ensure_ascii=False, allow_nan=False)
        asked["output"].write_text(text + "\n")


def exit_code(found: Answer, expect: str | None) -> int:
    """0 decided (as expected), 1 decided otherwise than expected, 3 undecided."""
    told = found.sequential.comparisons if found.sequential is not None else found.comparisons
    verdicts = [one.verdict for one in told]
    if expect is not None and any(v not in (*EXPECTED[expect], "undecided") for v in verdicts):
        return 1
    return 3 if "undecided" in verdicts else 0
