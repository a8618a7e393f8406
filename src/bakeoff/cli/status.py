"""`bakeoff status`: one edition on one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bakeoff.cli import display
from bakeoff.cli.options import edition_argument, find_edition, json_option, root_option
from bakeoff.records.claims import arms_by_kind, list_claims, list_nodes
from bakeoff.records.conditions import Conditions, find_differences, read_shares
from bakeoff.records.looks import record_means
from bakeoff.records.recorded import Recorded
from bakeoff.records.run import (
    FAILED,
    RunRecord,
    Uncounted,
    by_arm,
    failures,
    list_runs,
    run_notes,
    uncounted,
    unscored,
)
from bakeoff.text import NOTHING, duration, flat, number, one_line

STATUSES = ("planned", "running", "succeeded", "failed", "timeout", "cancelled", "infra_error")
MOST_ARMS, MOST_FAILURES, MOST_RUNNING = 24, 5, 4
NOT_A_VERDICT = "Plain means over succeeded runs, not a verdict; failed and missing runs are counted, not averaged."
WRITTEN_BY_THE_WORK = (
    "* is self-reported: the work ran where its tests ran, so it could have written its own score (docs/tasks.md)."
)


@click.command()
@edition_argument
@click.option("--runs", "each_run", is_flag=True, help="List the runs, one line each.")
@click.option("--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="List only runs with this status. Can be repeated.")  # fmt: skip
@root_option
@json_option
def command(name: str, each_run: bool, statuses: tuple[str, ...], root: Path, as_json: bool) -> None:
    """Show the progress of an edition: runs by status and arm, last failures, plain means, and where its files are.

    EXPERIMENT is a name, name/edition, a path, or `latest` (the default).
    """
    with closing(Recorded.open(find_edition(name, root))) as edition:
        if each_run or statuses:
            listed = list_runs(edition, statuses)
            display.print_json(listed) if as_json else _show_runs(listed)
        else:
            arms = uncounted(edition)
            facts = gather(edition, arms)
            record_means(edition, "status")
            display.print_json(facts) if as_json else _show(facts, arms)


def gather(edition: Recorded, arms: Mapping[str, Uncounted]) -> dict[str, Any]:
    """Everything `status` says about an edition, as `--json` prints it. `arms` have the tries that do not count."""
    facts, sessions = edition.facts(), edition.sessions()
    spec = facts["spec"]
    metric = spec["analysis"]["metric"]
    common = display.edition_facts(edition)
    runs = list(edition.runs())
    scoreless = unscored(edition)
    limits, used = spec["budget"], {}
    if limits["runs"] is not None:
        used["runs"] = {"used": common["succeeded"] + common["failed"], "limit": limits["runs"]}
    if limits["time"] is not None:
        used["time"] = {"used": edition.time_spent(), "limit": limits["time"]}
    if limits["cost"] is not None:
        used[limits["cost_metric"]] = {"used": edition.spent(limits["cost_metric"]), "limit": limits["cost"]}
    if limits.get("tokens") is not None:  # an older edition has no such key
        used["tokens"] = {"used": edition.spent("tokens"), "limit": limits["tokens"]}
    # Kinds of nodes have an entry of their own.
    conditions = Conditions([each for each in find_differences(read_shares(edition, sessions)) if each.what != "nodes"])
    return {
        **common,
        "description": spec["description"],
        "workload": facts["workload"],
        "sessions": len(sessions),
        "order_seed": edition.order_seed(),
        "time_s": edition.time_spent(),
        "counts": edition.counts(),
        "metric": metric,
        "arms": arm_facts(edition, runs),
        "running": [run.run_id for run in runs if run.status == "running"],
        "failures": failures(edition, MOST_FAILURES),
        "source": next((s["provenance"]["experiment"] for s in sessions if s["provenance"].get("experiment")), None),
        "unscored": [{"run_id": run.run_id, **reason._asdict()} for run, reason in scoreless],
        "notes": run_notes((run.run_id, run.status, run.error) for run in runs),
        "budget": used,
        "retries": _retries(arms),
        "nodes": _nodes(edition),
        "kinds_of_nodes": arms_by_kind(edition),
        "conditions": {**conditions.facts(), "sentence": conditions.sentence} if conditions.differences else {},
        "database": edition.database.label,
    }


def arm_facts(edition: Recorded, runs: Iterable[RunRecord]) -> dict[str, dict[str, Any]]:
    """By arm, how many of its `runs` have which outcome, and the mean of each declared metric (or of the first few)."""
    analysis = edition.facts()["spec"]["analysis"]
    metrics = [analysis["metric"], *analysis["primary"]] if analysis["metric"] else []
    return {
        arm: {
            **{count: getattr(entry.tally, count) for count in display.TALLY},
            "counts": entry.counts,
            "means": {
                name: {"mean": mean, "n": n, "self_reported": name in entry.self_reported}
                for name, (mean, n) in entry.means.items()
            },
        }
        for arm, entry in by_arm(runs, metrics).items()
    }


def _nodes(edition: Recorded) -> list[dict[str, Any]]:
    """One entry for each machine that ran attempts, in the order in which they came."""
    ended, held = edition.attempts_by_node(), Counter(claim.pilot for claim in list_claims(edition))
    hosts: dict[tuple[str, str, str], dict[str, Any]] = {}
    for node in list_nodes(edition):
        entry = hosts.setdefault(
            (node.executor, node.host, node.kind),
            {
                "host": node.host, "executor": node.executor, "kind": node.kind, "code": node.code, "attempts": 0,
                "failed": 0, "infra": 0, "holds": 0, "lost": 0, "late": 0, "refused": "",
            },
        )  # fmt: skip
        counts = ended.get(node.node, Counter())
        entry["attempts"] += counts.total()
        entry["failed"] += sum(counts[status] for status in FAILED)
        entry["infra"] += counts["infra_error"]
        entry["holds"] += held[node.node]
        entry["lost"] += node.lost
        entry["late"] += node.late
        entry["refused"] = node.refused or entry["refused"]
    return list(hosts.values())


def _show_nodes(nodes: list[dict[str, Any]], kinds: dict[str, dict[str, int]]) -> None:
    """A table of the nodes unless there is only this machine, and a warning when they are of several kinds."""
    if any(node["executor"] != "local" for node in nodes) or len(nodes) > 1:
        click.echo()
        click.secho("Nodes", bold=True)
        headers = ["host", "executor", "attempts", "failed", "infra", "holds", "lost", "late", "kind"]
        rows = [[str(node[name]) for name in headers] for node in nodes]
        display.print_table(headers, rows, right=("attempts", "failed", "infra", "holds", "lost", "late"))
        for node in nodes:
            if node["refused"]:
                click.echo(f"{node['host']} got no more runs: {node['refused']}")
    if len(kinds) > 1:
        shares = "; ".join(
            f"{kind}: {', '.join(f'{arm} {n}' for arm, n in arms.items())}" for kind, arms in kinds.items()
        )
        click.echo(
            f"warning: arms ran on different kinds of nodes, so times and rates may differ for that reason ({shares})"
        )


def _retries(arms: Mapping[str, Uncounted]) -> dict[str, Any]:
    """By arm, the tries that do not count, and warnings where they may bend a verdict."""
    if not any(entry.affected for entry in arms.values()):
        return {"arms": {arm: asdict(entry) for arm, entry in arms.items()}, "warnings": []}
    from bakeoff.verdicts.questions.retries import retry_facts  # statistics, which take a moment to import

    return retry_facts(arms)


def _show(facts: dict[str, Any], arms: Mapping[str, Uncounted]) -> None:
    click.secho(f"{facts['experiment']}/{facts['edition']}", bold=True, nl=False)
    click.echo(f"  {facts['workload']}, {facts['state']}, started {display.ago(facts['created_at'])}", nl=False)
    click.echo(f", {duration(facts['time_s'])} of work" if facts["time_s"] else "")
    if facts["description"]:
        click.echo(one_line(facts["description"].partition("\n")[0], 120))
    # `12 runs planned: 10 succeeded, 1 failed, 1 missing (infra_error 1)`
    others = [f"{status} {n}" for status, n in facts["counts"].items() if status not in ("succeeded", "failed")]
    click.echo(
        f"{facts['planned']} runs planned: {facts['succeeded']} succeeded, {facts['failed']} failed, "
        f"{facts['missing']} missing" + (f" ({', '.join(others)})" if others else "")
    )
    for name, budget in facts["budget"].items():
        click.echo(f"budget: {name} {number(budget['used'])} of {number(budget['limit'])}")
    if facts["running"]:
        more = " ..." if len(facts["running"]) > MOST_RUNNING else ""
        click.echo(f"running: {', '.join(facts['running'][:MOST_RUNNING])}{more}")
    click.echo()
    show_arms(facts["arms"], facts["metric"], unscored=len(facts["unscored"]))
    retried = {arm: entry for arm, entry in arms.items() if entry.affected}
    if retried:
        from bakeoff.verdicts.questions.retries import retry_table

        table = retry_table(retried)
        assert table is not None
        click.echo()
        click.secho(table.title, bold=True)
        display.print_table(table.headers, table.rows, right=table.right)
        for warning in facts["retries"]["warnings"]:
            click.echo(f"warning: {warning}")
    _show_nodes(facts["nodes"], facts["kinds_of_nodes"])
    if facts["conditions"]:
        click.echo(f"warning: {facts['conditions']['sentence']}")
    for note in facts["notes"][:MOST_FAILURES]:
        click.echo(f"note: {one_line(note, 200)}")
    if len(facts["notes"]) > MOST_FAILURES:
        click.echo(f"... and {len(facts['notes']) - MOST_FAILURES} more notes; --json has all of them")
    if facts["failures"]:
        click.echo()
        click.secho("Last failures", bold=True)
    for run in facts["failures"]:
        click.echo(f"  {run['run_id']}  {run['status']}: {flat(run['error'], 200) or 'no error was recorded'}")
        if run["log"]:
            click.echo(f"    {run['log']}")
    if facts["state"] == "complete" and facts["failed"]:
        click.echo(f"  try the failed ones again: bakeoff run {facts['source'] or 'FILE'} --retry-failed")
    if facts["unscored"]:
        click.echo()
        click.secho(f"Succeeded without a number for {facts['metric']!r}: {len(facts['unscored'])}", bold=True)
    for run in facts["unscored"][:MOST_FAILURES]:
        click.echo(f"  {run['run_id']}  {flat(run['why'], 200)}")
    click.echo()
    drawn = {} if facts["order_seed"] is None else {"order seed": str(facts["order_seed"])}
    display.print_facts({"directory": str(facts["directory"]), "database": facts["database"], **drawn})


def show_arms(arms: dict[str, Any], metric: str | None, unscored: int) -> None:
    """One line for each arm: its run counts and the mean of each metric."""
    metrics = list(dict.fromkeys(name for entry in arms.values() for name in entry["means"]))
    headers = ["arm", *display.TALLY, *(f"mean {name}" for name in metrics)]
    rows = []
    for arm, entry in list(arms.items())[:MOST_ARMS]:
        row = [arm, *(str(entry[count]) for count in display.TALLY)]
        for name in metrics:
            mean = entry["means"].get(name)
            if mean is None:
                row.append(NOTHING)
            else:  # a succeeded run need not report every metric
                some = "" if mean["n"] == entry["succeeded"] else f" (of {mean['n']})"
                row.append(f"{number(mean['mean'])}{'*' * mean['self_reported']}{some}")
        rows.append(row)
    display.print_table(headers, rows, right=headers[1:])
    if len(arms) > MOST_ARMS:
        click.echo(f"... and {len(arms) - MOST_ARMS} more arms; --json has all of them")
    if metrics:
        click.echo(NOT_A_VERDICT)
    if any(mean["self_reported"] for entry in arms.values() for mean in entry["means"].values()):
        click.echo(WRITTEN_BY_THE_WORK)
    if metric and metric not in metrics:
        if sum(entry["succeeded"] for entry in arms.values()) > unscored:
            click.echo(f"{metric!r}, the metric of the analysis, is a series; `bakeoff compare` summarizes it.")
        else:
            click.echo(f"No succeeded run reported a number called {metric!r}, the metric of the analysis.")


def _show_runs(listed: list[dict[str, Any]]) -> None:
    """One line for each run. Columns that say nothing in this edition are left out."""
    columns: dict[str, list[str]] = {
        "run": [run["run_id"] for run in listed],
        "arm": [run["arm"] for run in listed],
        "task": [run["task"] for run in listed],
        "seed": [str(run["seed"]) for run in listed],
        "rollout": [str(run["rollout"]) for run in listed],
        "status": [run["status"] for run in listed],
        "took": [
            duration(None if None in (run["started_at"], run["ended_at"]) else run["ended_at"] - run["started_at"])
            for run in listed
        ],
        "error": [flat(run["error"], 60) for run in listed],
    }
    for name, default in (("task", "default"), ("rollout", "0"), ("error", "")):
        if set(columns[name]) <= {default}:
            del columns[name]
    display.print_table(list(columns), list(zip(*columns.values(), strict=True)), right=("seed", "rollout", "took"))
