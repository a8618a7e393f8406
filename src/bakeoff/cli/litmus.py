"""`bakeoff litmus`: confirmed, failed or inconclusive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import click

from bakeoff.cli import display
from bakeoff.cli.options import Several, SeveralValues, json_option, root_option
from bakeoff.errors import UsageError
from bakeoff.interop import sources
from bakeoff.interop.source import Runs
from bakeoff.spec.formats import SUFFIXES
from bakeoff.verdicts import litmus_rules, runlogs
from bakeoff.verdicts.compare import Options
from bakeoff.verdicts.litmus import Arm, Check, Litmus, judge
from bakeoff.verdicts.litmus_rules import Rules
from bakeoff.verdicts.runlogs import Logs
from bakeoff.version import __version__

EXITS = {"CONFIRMED": 0, "FAILED": 1, "INCONCLUSIVE": 3}
COLOURS = {"CONFIRMED": "green", "FAILED": "red", "INCONCLUSIVE": "yellow"}
BASELINE, CANDIDATE = "baseline", "candidate"


@click.command(cls=SeveralValues)
@click.argument("places", nargs=-1, metavar="[FILE] [EXPERIMENT]")
@click.option("--baseline", cls=Several, metavar="RUN...", help="Directories (or ids) of the baseline's runs; with an EXPERIMENT, the arm's name.")  # fmt: skip
@click.option("--candidate", cls=Several, metavar="RUN...", help="Directories (or ids) of the candidate's runs; with an EXPERIMENT, the arm's name.")  # fmt: skip
@click.option("--tasks", "population", type=click.Choice(["sample", "fixed"]), help="For rules with a verdict: about tasks like these, or about these only.")  # fmt: skip
@click.option("--unpaired", is_flag=True, help="For rules with a verdict: ignore that runs share seeds.")
@click.option("--intersect", is_flag=True, help="For rules with a verdict: use only tasks and seeds that both arms have.")  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the result as JSON.")  # fmt: skip
@click.option("--markdown", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the result as Markdown.")  # fmt: skip
@click.option("--print-profile", is_flag=True, help="Print the built-in rules as a file to start from, and exit.")
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    places: tuple[str, ...],
    baseline: tuple[str, ...],
    candidate: tuple[str, ...],
    population: Literal["sample", "fixed"] | None,
    unpaired: bool,
    intersect: bool,
    output: Path | None,
    markdown: Path | None,
    print_profile: bool,
    root: Path,
    as_json: bool,
) -> None:
    """Check rules about a candidate and its baseline: CONFIRMED, FAILED or INCONCLUSIVE.

    FILE (TOML, YAML or JSON) has the rules, their thresholds and how much evidence they need; without it the built-in
    profile for training campaigns is used. Runs come from an EXPERIMENT (or a campaign's directory), or from
    directories after --baseline and --candidate. Exits with 0 when confirmed, 1 when failed, 3 when there is too little evidence.
    """
    if print_profile:
        click.echo(litmus_rules.PROFILE, nl=False)
        return
    rules, experiment = _places(places)
    logs, names = _runs(experiment, baseline, candidate, root)
    options = Options(tasks=population, unpaired=unpaired, intersect=intersect)
    found = judge(logs, names[0], names[1], rules, options)
    facts = as_table(found, logs)
    if output is not None:
        output.write_text(json.dumps(display.standard(facts), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    if markdown is not None:
        markdown.write_text(as_markdown(found), encoding="utf-8")
    display.print_json(facts) if as_json else _show(found, logs)
    ctx.exit(EXITS[found.status])


def _places(places: tuple[str, ...]) -> tuple[Rules, str | None]:
    files = [place for place in places if Path(place).suffix.lower() in SUFFIXES and not Path(place).is_dir()]
    others = [place for place in places if place not in files]
    if len(files) > 1 or len(others) > 1:
        raise UsageError(f"one file of rules and one experiment at most; got {', '.join(places)}")
    rules = litmus_rules.load(Path(files[0])) if files else litmus_rules.built_in()
    return rules, others[0] if others else None


def _runs(
    experiment: str | None, baseline: tuple[str, ...], candidate: tuple[str, ...], root: Path
) -> tuple[Logs, tuple[str, str]]:
    if experiment is None:
        if not baseline or not candidate:
            raise UsageError("which runs? name an EXPERIMENT, or directories after --baseline and after --candidate")
        sides = sources.open_sides(baseline, candidate, root, (BASELINE, CANDIDATE), as_samples=False)
        return Logs(sides.logs, sides.analysis), (BASELINE, CANDIDATE)
    logs = _open(experiment, root)
    if len(baseline) > 1 or len(candidate) > 1:
        raise UsageError("with an experiment, --baseline and --candidate name one arm each")
    first = baseline[0] if baseline else logs.analysis.control or logs.arms[0]
    others = [arm for arm in logs.arms if arm != first]
    if not candidate and len(others) != 1:
        raise UsageError(f"which arm is the candidate? --candidate takes one of {', '.join(others) or 'none'}")
    second = candidate[0] if candidate else others[0]
    for name in (first, second):
        if name not in logs.arms:
            raise UsageError(f"no arm called {name!r}; there are {', '.join(logs.arms)}")
    if first == second:
        raise UsageError(f"{first!r} cannot be baseline and candidate at once")
    return logs, (first, second)


def _open(name: str, root: Path) -> Logs:
    """An edition of ours, or a campaign's directory."""
    found = sources.open_source([name], root)
    if isinstance(found, Runs):
        return Logs(found.logs, found.analysis, found.label)
    return runlogs.open_experiment(name, root)


def as_table(found: Litmus, logs: Logs) -> dict[str, Any]:
    """The result as JSON has it."""
    return {
        "version": __version__,
        "status": found.status,
        "source": logs.source or None,
        "rules": found.rules.model_dump(),
        "baseline": _arm(found.baseline),
        "candidate": _arm(found.candidate),
        "checks": [_check(check) for check in found.checks],
        "evidence_ok": not found.evidence_failures,
        "evidence_failures": list(found.evidence_failures),
        "notes": list(found.notes),
        "baseline_runs": _arm_runs(found.baseline),
        "candidate_runs": _arm_runs(found.candidate),
    }


def _check(check: Check) -> dict[str, Any]:
    keys = ("name", "metric", "baseline", "candidate", "delta", "wanted", "passed", "verdict", "sentence")
    return {key: getattr(check, key) for key in keys}


def _arm(arm: Arm) -> dict[str, Any]:
    return {"arm": arm.name, "run_count": len(arm.runs), "total_steps": arm.steps, "total_completions": arm.completions}


def _arm_runs(arm: Arm) -> list[dict[str, Any]]:
    return [{"run": r.name, "status": r.status, "steps": r.steps, "completions": r.completions} for r in arm.runs]


def as_markdown(found: Litmus) -> str:
    """The same for people: the answer, the checks, what is missing."""
    lines = [f"# Litmus `{found.rules.name}`: {found.status}", ""]
    if found.rules.description:
        lines += [found.rules.description, ""]
    for arm in (found.baseline, found.candidate):
        lines.append(f"- {_told(arm)}")
    lines += ["", "| rule | baseline | candidate | change | wanted | holds |", "|---|---|---|---|---|---|"]
    for check in found.checks:
        cells = [check.name, *(display.number(value) for value in (check.baseline, check.candidate, check.delta))]
        lines.append("| " + " | ".join(_cell(cell) for cell in (*cells, check.wanted, _holds(check))) + " |")
    for title, sentences in (("Evidence that is missing", found.evidence_failures), ("Notes", found.notes)):
        if sentences:
            lines += ["", f"## {title}", *(f"- {display.printable(sentence)}" for sentence in sentences)]
    lines += ["", f"alpha {found.rules.alpha:g}; bakeoff {__version__}"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return display.printable(text).replace("|", "\\|").replace("\n", " ")


def _told(arm: Arm) -> str:
    completions = "" if arm.completions is None else f", {arm.completions:g} completions"
    return f"{arm.name}: {len(arm.runs)} runs, {arm.steps} steps{completions}"


def _holds(check: Check) -> str:
    return {True: "yes", False: "no", None: "open"}[check.passed]


def _show(found: Litmus, logs: Logs) -> None:
    click.secho(found.status, fg=COLOURS[found.status], bold=True, nl=False)
    click.echo(f"  {found.rules.name}{f', {logs.source}' if logs.source else ''}")
    click.echo(f"{_told(found.baseline)}; {_told(found.candidate)}")
    click.echo()
    for check in found.checks:
        click.echo(f"{_holds(check):>4}  {display.printable(check.sentence)}")
    for sentence in found.evidence_failures:
        click.echo(f"evidence: {display.printable(sentence)}")
    for note in found.notes:
        click.echo(f"note: {display.printable(note)}")
