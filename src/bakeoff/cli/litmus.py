"""`bakeoff litmus`: confirmed, failed or inconclusive."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.options import FILE, Several, SeveralValues, json_option, root_option
from bakeoff.cli.questions import ask, print_answer, question_options, write_answer
from bakeoff.errors import UsageError
from bakeoff.spec.formats import SUFFIXES
from bakeoff.verdicts.question import Litmus

BASELINE, CANDIDATE = "baseline", "candidate"


@click.command(cls=SeveralValues)
@click.argument("places", nargs=-1, metavar="[FILE] [EXPERIMENT]")
@click.option("--baseline", cls=Several, metavar="RUN...", help="Directories (or ids) of the baseline's runs; with an EXPERIMENT, the arm's name.")  # fmt: skip
@click.option("--candidate", cls=Several, metavar="RUN...", help="Directories (or ids) of the candidate's runs; with an EXPERIMENT, the arm's name.")  # fmt: skip
@question_options(Litmus, "tasks", "copies", "unpaired", "intersect")
@click.option("--output", type=FILE, metavar="FILE", help="Write the result as JSON.")
@click.option("--markdown", type=FILE, metavar="FILE", help="Write the result as Markdown.")
@click.option("--print-profile", is_flag=True, help="Print the built-in rules as a file to start from, and exit.")
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    places: tuple[str, ...],
    baseline: tuple[str, ...],
    candidate: tuple[str, ...],
    output: Path | None,
    markdown: Path | None,
    print_profile: bool,
    root: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Check rules about a candidate and its baseline: CONFIRMED, FAILED or INCONCLUSIVE.

    FILE (TOML, YAML or JSON) has the rules, their thresholds and how much evidence they need (default: the built-in
    profile for training campaigns). Runs come from an EXPERIMENT (or a campaign's directory), or from directories after
    --baseline and --candidate. Exits with 0 when confirmed, 1 when failed, 3 when there is too little evidence.
    """
    from bakeoff.results import sources
    from bakeoff.verdicts.answer import answer
    from bakeoff.verdicts.questions import litmus

    if print_profile:
        click.echo(litmus.PROFILE, nl=False)
        return
    files = [place for place in places if Path(place).suffix.lower() in SUFFIXES and not Path(place).is_dir()]
    others = [place for place in places if place not in files]
    if len(files) > 1 or len(others) > 1:
        raise UsageError(f"give at most one file of rules and one experiment; got {', '.join(places)}")
    rules = litmus.load_rules(Path(files[0])) if files else litmus.built_in()
    if others:
        if len(baseline) > 1 or len(candidate) > 1:
            raise UsageError("with an experiment, --baseline and --candidate name one arm each")
        arms = {"baseline": next(iter(baseline), None), "candidate": next(iter(candidate), None)}
        opened = sources.open_results(others, root)
    else:
        if not baseline or not candidate:
            raise UsageError("which runs? name an EXPERIMENT, or directories after --baseline and after --candidate")
        arms = {"baseline": BASELINE, "candidate": CANDIDATE}
        opened = sources.open_sides(baseline, candidate, root, (BASELINE, CANDIDATE), as_samples=False)
    with closing(opened) as results:
        verdict = answer(results, ask(Litmus, options, rules=rules, **arms))
    write_answer(verdict, json=output, markdown=markdown)
    print_answer(verdict, as_json)
    ctx.exit(verdict.exit_code)
