"""`bakeoff gate`: may this be released. For CI: Markdown on standard output, JUnit XML, and an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import FILE, F, SeveralValues, json_option, root_option
from bakeoff.cli.questions import JUDGING, WAYS, ask, open_runs, question_options, run_options
from bakeoff.errors import UsageError
from bakeoff.text import printable
from bakeoff.verdicts.question import Gate

if TYPE_CHECKING:
    from bakeoff.verdicts.questions.gate import Policy


_RULES = [
    click.option("--policy", "file", type=FILE, metavar="FILE", help="Rules in a TOML file: [metrics.NAME] with max_regression and must_improve."),
    click.option("--max-regression", multiple=True, metavar="METRIC=AMOUNT", help="METRIC may get worse by less than AMOUNT: 0.02, or a share of the control such as 5%. Can be repeated."),
    click.option("--must-improve", multiple=True, metavar="METRIC[=AMOUNT]", help="METRIC has to get better, by more than AMOUNT if given. Can be repeated."),
]  # fmt: skip


def policy_options(function: F) -> F:
    """The ways to state the rules of a gate; `policy_of` reads them."""
    for option in reversed(_RULES):
        function = option(function)
    return function


@click.command(cls=SeveralValues)
@run_options
@policy_options
@question_options(Gate, "control", "arms", *JUDGING, "alpha")
@click.option("--junit", type=FILE, metavar="FILE", help="Write the rules as test cases in JUnit XML.")
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, root: Path, as_json: bool, **options: Any) -> None:
    """Check that no metric regressed by more than it may, and that those improved that must.

    SOURCE is what `bakeoff compare` takes, and has to be named: nothing passes CI because it was the newest. Prints a summary in GitHub's Markdown. Exits with 0 when every rule holds, 1
    when one is broken, and 3 when there is not enough evidence for either.
    """
    from bakeoff.verdicts.answer import answer, as_markdown
    from bakeoff.verdicts.questions.gate import as_junit

    rules = policy_of(options)
    if rules is None:
        raise UsageError("no rules: give --policy FILE, --max-regression METRIC=AMOUNT or --must-improve METRIC")
    if not any(options[way] for way in WAYS):
        raise UsageError(
            "name what is judged: a gate takes no experiment by default, because the newest may be another one"
        )
    question = ask(Gate, options, policy=rules, policy_name=str(options["file"]) if options["file"] else "flags")
    with closing(open_runs(options, root)) as results:
        verdict = answer(results, question)
    if options["junit"] is not None:
        options["junit"].write_text(as_junit(verdict))
    if as_json:
        print_json(verdict.facts())
    else:
        click.echo(printable(as_markdown(verdict)), nl=False)
    ctx.exit(verdict.exit_code)


def policy_of(options: Mapping[str, Any]) -> Policy | None:
    """Return the rules from a file, or from flags that say the same; None where the options state none."""
    from bakeoff.spec.load import read_model
    from bakeoff.verdicts.questions.gate import Policy, policy

    flags = {"max_regression": options["max_regression"], "must_improve": options["must_improve"]}
    if options["file"] is not None:
        if any(flags.values()):
            raise UsageError("give rules in a file or by flags, not both")
        return read_model(options["file"], Policy)
    metrics: dict[str, dict[str, Any]] = {}
    for rule, texts in flags.items():
        for text in texts:
            metric, equals, size = text.rpartition("=") if "=" in text else (text, "", "")
            if not equals and rule == "max_regression":
                raise UsageError(f"--max-regression {text}: by how much? write {text}=0.02 or {text}=5%")
            metrics.setdefault(metric, {})[rule] = size if equals else True
    return policy({"metrics": metrics}) if metrics else None
