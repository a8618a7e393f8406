"""`bakeoff status`: one edition on one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bakeoff.cli import display
from bakeoff.cli.options import edition_argument, json_option, root_option
from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from bakeoff.records.lease import is_held
from bakeoff.records.overview import ArmMeans, Tally, by_arm, failures, time_spent
from bakeoff.records.overview import list_runs as runs

STATUSES = ("planned", "running", "succeeded", "failed", "timeout", "cancelled", "infra_error")
MOST_ARMS, MOST_FAILURES = 24, 5
NOT_A_VERDICT = "Plain means over succeeded runs, not a verdict; failed and missing runs are counted, not averaged."


@click.command()
@edition_argument
@click.option("--runs", "list_runs", is_flag=True, help="List the runs, one line each.")
@click.option("--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="List only runs with this status; can be repeated.")  # fmt: skip
@root_option
@json_option
def command(name: str, list_runs: bool, statuses: tuple[str, ...], root: Path, as_json: bool) -> None:
    """Show how far an edition is: runs by status and arm, last failures, plain means, and where things are.

    EXPERIMENT is a name, name/edition, a path, or `latest` (the default).
    """
    edition = Edition.open(find_edition(name, root))
    try:
        if list_runs or statuses:
            _show_runs(runs(edition, statuses), as_json)
        else:
            facts = gather(edition)
            display.print_json(facts) if as_json else _show(facts)
    finally:
        edition.close()


def gather(edition: Edition) -> dict[str, Any]:
    """Everything `status` says, as JSON has it."""
    facts, paths = edition.facts(), edition.paths
    spec = facts["spec"]
    metric = spec["analysis"]["metric"]
    counts = edition.counts()
    arms = by_arm(edition, [metric, *spec["analysis"]["primary"]] if metric else [])
    return {
        "experiment": paths.experiment,
        "edition": paths.name,
        "description": spec["description"],
        "workload": facts["workload"],
        "state": "running" if is_held(paths.lease) else "complete" if facts["complete"] else "unfinished",
        "created_at": facts["created_at"],
        "sessions": len(edition.sessions()),
        "time_s": time_spent(edition),
        "counts": counts,
        **_tally(Tally.of(counts)),
        "metric": metric,
        "arms": {arm: _arm(entry) for arm, entry in arms.items()},
        "running": [run["run_id"] for run in runs(edition, ["running"])],
        "failures": failures(edition, MOST_FAILURES),
        "budget": _budget(edition, spec["budget"]),
        "directory": paths.directory,
        "database": edition.database.label,
    }


def _tally(tally: Tally) -> dict[str, int]:
    return {name: getattr(tally, name) for name in ("planned", "succeeded", "failed", "missing")}


def _arm(entry: ArmMeans) -> dict[str, Any]:
    means = {metric: {"mean": mean, "n": n} for metric, (mean, n) in entry.means.items()}
    return {**_tally(entry.tally), "counts": entry.counts, "means": means}


def _budget(edition: Edition, budget: dict[str, Any]) -> dict[str, dict[str, float]]:
    """For each limit that is set, what is used of it."""
    used = {}
    if budget["runs"] is not None:
        tally = Tally.of(edition.counts())
        used["runs"] = {"used": tally.succeeded + tally.failed, "limit": budget["runs"]}
    if budget["time"] is not None:
        used["time"] = {"used": time_spent(edition), "limit": budget["time"]}
    if budget["cost"] is not None:
        used[budget["cost_metric"]] = {"used": edition.spent(budget["cost_metric"]), "limit": budget["cost"]}
    return used


def _show(facts: dict[str, Any]) -> None:
    click.secho(f"{facts['experiment']}/{facts['edition']}", bold=True, nl=False)
    click.echo(f"  {facts['workload']}, {facts['state']}, begun {display.ago(facts['created_at'])}", nl=False)
    click.echo(f", {display.duration(facts['time_s'])} of work" if facts["time_s"] else "")
    if facts["description"]:
        click.echo(display.one_line(facts["description"].partition("\n")[0], 120))
    click.echo(_sentence(facts))
    for name, budget in facts["budget"].items():
        click.echo(f"budget: {name} {display.number(budget['used'])} of {display.number(budget['limit'])}")
    if facts["running"]:
        click.echo(f"running: {', '.join(facts['running'][:4])}{' ...' if len(facts['running']) > 4 else ''}")
    click.echo()
    _show_arms(facts["arms"], facts["metric"])
    _show_failures(facts)
    click.echo()
    display.print_facts({"directory": str(facts["directory"]), "database": facts["database"]})


def _sentence(facts: dict[str, Any]) -> str:
    """`12 runs planned: 10 succeeded, 1 failed, 1 missing (infra_error 1)`."""
    told = ("succeeded", "failed")
    details = [f"{status} {n}" for status, n in facts["counts"].items() if status not in told]
    done = f"{facts['succeeded']} succeeded, {facts['failed']} failed, {facts['missing']} missing"
    return f"{facts['planned']} runs planned: {done}" + (f" ({', '.join(details)})" if details else "")


def _show_arms(arms: dict[str, Any], metric: str | None) -> None:
    metrics = list(dict.fromkeys(name for entry in arms.values() for name in entry["means"]))
    headers = ["arm", "planned", "succeeded", "failed", "missing", *(f"mean {name}" for name in metrics)]
    rows = []
    for arm, entry in list(arms.items())[:MOST_ARMS]:
        tally = [str(entry[name]) for name in headers[1:5]]
        rows.append([arm, *tally, *(_mean(entry, name) for name in metrics)])
    display.print_table(headers, rows, right=headers[1:])
    if len(arms) > MOST_ARMS:
        click.echo(f"... and {len(arms) - MOST_ARMS} more arms; --json has all of them")
    if metrics:
        click.echo(NOT_A_VERDICT)
    if metric and metric not in metrics:
        click.echo(f"No succeeded run reported a number called {metric!r}, the metric of the analysis.")


def _mean(entry: dict[str, Any], metric: str) -> str:
    found = entry["means"].get(metric)
    if found is None:
        return display.NOTHING
    text = f"{found['mean']:.4g}"
    return text if found["n"] == entry["succeeded"] else f"{text} (of {found['n']})"


def _show_failures(facts: dict[str, Any]) -> None:
    if not facts["failures"]:
        return
    click.echo()
    click.secho("Last failures", bold=True)
    for run in facts["failures"]:
        click.echo(f"  {run['run_id']}  {run['status']}: {display.one_line(run['error']) or 'no error was recorded'}")
        if run["log"]:
            click.echo(f"    {run['log']}")


def _show_runs(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        display.print_json(found)
        return
    columns = {
        "run": [run["run_id"] for run in found],
        "arm": [run["arm"] for run in found],
        "task": [run["task"] for run in found],
        "seed": [str(run["seed"]) for run in found],
        "rollout": [str(run["rollout"]) for run in found],
        "status": [run["status"] for run in found],
        "took": [display.duration(_took(run)) for run in found],
        "error": [display.one_line(run["error"], 60) for run in found],
    }
    for name, default in (("task", "default"), ("rollout", "0"), ("error", "")):
        if set(columns[name]) <= {default}:
            del columns[name]
    display.print_table(list(columns), list(zip(*columns.values(), strict=True)), right=("seed", "rollout", "took"))


def _took(run: dict[str, Any]) -> float | None:
    if run["started_at"] is None or run["ended_at"] is None:
        return None
    return float(run["ended_at"] - run["started_at"])
