"""`bakeoff gate`: may this go out. For CI: Markdown on standard output, JUnit XML, and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli import inputs
from bakeoff.cli.display import NOTHING, print_json, printable
from bakeoff.cli.options import Several, SeveralValues, json_option, root_option
from bakeoff.errors import UsageError

if TYPE_CHECKING:
    from bakeoff.interop.source import Source
    from bakeoff.verdicts.compare import Options
    from bakeoff.verdicts.gate import Check, Policy
    from bakeoff.verdicts.observations import Observations

CODES = {"pass": 0, "fail": 1, "undecided": 3}
TITLES = {"pass": "passed", "fail": "failed", "undecided": "not enough evidence"}


@click.command(cls=SeveralValues)
@inputs.run_options
@click.option("--policy", "file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Rules in a TOML file: [metrics.NAME] with max_regression and must_improve.")  # fmt: skip
@click.option("--max-regression", multiple=True, metavar="METRIC=AMOUNT", help="METRIC may get worse by less than AMOUNT: 0.02, or a share of the control such as 5%. Can be repeated.")  # fmt: skip
@click.option("--must-improve", multiple=True, metavar="METRIC[=AMOUNT]", help="METRIC has to get better, by more than AMOUNT if given. Can be repeated.")  # fmt: skip
@click.option("--control", metavar="ARM", help="The arm that is out already; the declared control, or the first.")
@click.option("--arms", "candidates", cls=Several, metavar="ARM...", help="The arms that want to go out; all others when left out.")  # fmt: skip
@inputs.judging_options
@click.option("--alpha", type=click.FloatRange(0, 0.5, min_open=True, max_open=True), help="Error rate of each rule; the policy's, the declared one, or 0.05.")  # fmt: skip
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the rules as test cases in JUnit XML.")  # fmt: skip
@root_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, root: Path, as_json: bool, **asked: Any) -> None:
    """Check that no metric regressed by more than it may, and that those improved that must.

    SOURCE is what `bakeoff compare` takes. Prints a summary in GitHub's Markdown. Exits with 0 when every rule holds, 1
    when one is broken, and 3 when there is not enough evidence for either.
    """
    from bakeoff.verdicts.gate import check, outcome

    rules = _policy(asked)
    with closing(inputs.open_runs(asked, root)) as source:
        observed, label = _observe(source, rules, asked), source.label
        options = _options(rules, source, asked)
    checks = check(observed, rules, options, asked["alpha"])
    settings = _settings(observed[0], rules, asked)
    if asked["junit"] is not None:
        asked["junit"].write_text(junit(checks, settings))
    if as_json:
        print_json({"outcome": outcome(checks), "source": label, "settings": settings, "checks": _json(checks)})
    else:
        click.echo(printable(markdown(checks, label, settings)))
    ctx.exit(CODES[outcome(checks)])


def _policy(asked: dict[str, Any]) -> Policy:
    """A file, or flags that say the same."""
    from bakeoff.verdicts.gate import policy, read_policy

    flags = {"max_regression": asked["max_regression"], "must_improve": asked["must_improve"]}
    if asked["file"] is not None:
        if any(flags.values()):
            raise UsageError("give rules in a file or by flags, not both")
        return read_policy(asked["file"])
    metrics: dict[str, dict[str, Any]] = {}
    for rule, texts in flags.items():
        for text in texts:
            metric, equals, size = text.rpartition("=") if "=" in text else (text, "", "")
            if not equals and rule == "max_regression":
                raise UsageError(f"--max-regression {text}: by how much? write {text}=0.02 or {text}=5%")
            metrics.setdefault(metric, {})[rule] = size if equals else True
    if not metrics:
        raise UsageError("no rules: give --policy FILE, --max-regression METRIC=AMOUNT or --must-improve METRIC")
    return policy({"metrics": metrics})


def _observe(source: Source, rules: Policy, asked: dict[str, Any]) -> list[Observations]:
    """The policy's metrics, each judged as its rule, the flags and the source say, in this order."""
    from bakeoff.interop.asking import judged, refuse_sequential

    refuse_sequential(source, "gate")
    directions = inputs.directions(asked)
    found = []
    for name, rule in rules.metrics.items():
        mine = rule.model_dump(include={"direction", "bounds", "failure_score", "summary"}, exclude_none=True)
        flags = {key: value for key, value in inputs.changes(asked).items() if value not in (None, {})}
        where = {key: value for key, value in {"tasks": rules.tasks, "seeds": rules.seeds}.items() if value}
        chosen = {"direction": directions[name]} if name in directions else {}
        found.append(source.observe(name, judged(source.analysis.about(name), {**where, **flags, **mine, **chosen})))
    return found


def _options(rules: Policy, source: Source, asked: dict[str, Any]) -> Options:
    from bakeoff.verdicts.compare import Options

    return Options(
        control=asked["control"] or rules.control,
        candidates=asked["candidates"] or ([rules.candidate] if rules.candidate else []),
        tasks=asked["tasks"] or rules.tasks,
        unpaired=asked["unpaired"] or source.unpaired,
        intersect=asked["intersect"],
    )


def _settings(seen: Observations, rules: Policy, asked: dict[str, Any]) -> dict[str, Any]:
    from bakeoff.verdicts.compare import SEED
    from bakeoff.version import __version__

    alpha = asked["alpha"] or rules.alpha or seen.analysis.alpha
    policy = str(asked["file"]) if asked["file"] else "flags"
    return {"policy": policy, "alpha": alpha, "seeds": seen.analysis.seeds, "seed": SEED, "version": __version__}


def _json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    names = (
        "metric",
        "control",
        "candidate",
        "rule",
        "outcome",
        "reason",
        "effect",
        "holds_above",
        "p_holds",
        "p_broken",
    )
    return [
        {
            **{name: getattr(one, name) for name in names},
            "lower": one.interval.low if one.interval else None,
            "upper": one.interval.high if one.interval else None,
            "population": one.population,
            "method": one.method,
        }
        for one in checks
    ]


def markdown(checks: Sequence[Check], source: str, settings: dict[str, Any]) -> str:
    """GitHub's dialect, for a job summary or a comment."""
    from bakeoff.cli.answers import table_lines
    from bakeoff.verdicts.gate import outcome

    rows = [
        [one.metric, one.candidate, one.rule, _signed(one.effect), _bounds(one), TITLES[one.outcome] + _reason(one)]
        for one in checks
    ]
    headers = ["metric", "arm", "rule", "effect", "interval", "outcome"]
    about = "; ".join(dict.fromkeys(f"{one.metric}: {one.population}" for one in checks))
    told = ", ".join(f"{key} {value}" for key, value in settings.items())
    return "\n".join(
        [
            f"## Gate: {TITLES[outcome(checks)]}",
            "",
            *table_lines(headers, rows),
            "",
            f"Against {checks[0].control}, {about}. Intervals are turned so that larger is better; those of a share are of B minus that share of A.",
            "",
            f"<sub>{source}; {told}</sub>",
        ]
    )


def _reason(one: Check) -> str:
    return f" ({one.reason})" if one.reason and one.reason != TITLES[one.outcome] else ""


def _signed(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.4g}"


def _bounds(one: Check) -> str:
    if one.interval is None:
        return NOTHING
    found = f"above {one.interval.low:.4g}" if one.outcome != "fail" else f"below {one.interval.high:.4g}"
    return f"needed above {one.holds_above:.4g}, found {found}"


def junit(checks: Sequence[Check], settings: dict[str, Any]) -> str:
    """A broken rule is a failure; a lack of evidence is an error, because nobody may take it for a pass."""
    from xml.etree import ElementTree

    failed, unclear = (sum(one.outcome == word for one in checks) for word in ("fail", "undecided"))
    counts = {"tests": str(len(checks)), "failures": str(failed), "errors": str(unclear)}
    suites = ElementTree.Element("testsuites", {"name": "bakeoff gate", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "gate", **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in settings.items():
        ElementTree.SubElement(properties, "property", name=name, value=printable(str(value)))
    for one in checks:
        name = f"{one.candidate}: {one.metric} {one.rule}"
        case = ElementTree.SubElement(suite, "testcase", classname=f"gate.{one.metric}", name=printable(name))
        message = printable(f"effect {_signed(one.effect)}; {_bounds(one)}; {one.population}{_reason(one)}")
        if one.outcome == "fail":
            ElementTree.SubElement(case, "failure", message=message, type="regression")
        elif one.outcome == "undecided":
            ElementTree.SubElement(case, "error", message=message, type="not enough evidence")
        else:
            ElementTree.SubElement(case, "system-out").text = message
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"
