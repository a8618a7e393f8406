"""`bakeoff market run`: agents on the world of one scenario file, several times, with files and a verdict."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from bakeoff.cli.display import NOTHING, number, print_json, print_table, printable
from bakeoff.cli.market_options import asked_scenario, asked_snapshot, world_options
from bakeoff.cli.options import json_option

if TYPE_CHECKING:
    from bakeoff.workloads.market.campaign import Run
    from bakeoff.workloads.market.scenario import Scenario

SHOWN = ("total_pnl", "prediction_accuracy", "perp_win_rate", "brier_edge", "max_drawdown", "regret", "optimality")


@click.command(name="run")
@world_options
@click.option("--agent", "agents_named", multiple=True, default=("random",), show_default=True, metavar="AGENT", help="One that ships with bakeoff, module:Class, file.py:Class, process:..., cmd:PROGRAM, llm:MODEL or policy:FILE. Several are compared.")  # fmt: skip
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1, 100_000), help="Runs of each agent. All meet the same world; the agent's own chance counts on from --seed.")  # fmt: skip
@click.option("--response-timeout", default=30.0, show_default=True, type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Time for a turn; an agent that takes longer has done nothing more in it.")  # fmt: skip
@click.option("--save-trajectories", is_flag=True, help="Write trajectory.json: what the agent saw, did and got in each tick.")  # fmt: skip
@click.option("--margin", type=click.FloatRange(0, min_open=True), help="Dollars of difference that do not matter, for the verdict `equivalent`.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Where files go; benchmark-results/<time> when left out.")  # fmt: skip
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    agents_named: tuple[str, ...],
    runs: int,
    response_timeout: float,
    save_trajectories: bool,
    margin: float | None,
    output: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run agents on one world and write what they did.

    Each of several runs has a directory run-1, run-2 ... with result.json, metrics.json, actions.csv and more, below the
    agent's name when there are several agents; what was hidden from the agent is in truth.json. comparison.json and metrics.csv are about all of
    them, and so are the pages: open index.html. With several agents the first is the control of a verdict. Its population is this world only: use
    `bakeoff run` on an experiment file to compare agents over many worlds.

    \b
    Exit code: 0 every agent played; 1 an agent never acted; 2 the call or a file is wrong.
    """
    from bakeoff.workloads.market import campaign, outputs
    from bakeoff.workloads.market.pages import alone

    directory = output or Path("benchmark-results") / str(time.time_ns() // 1_000_000)
    place = _place(given)
    seeds = range(given["seed"], given["seed"] + runs)
    names = _names(agents_named)
    played = {name: _play(agent, seeds, place, response_timeout) for name, agent in names.items()}
    kept = list(_shelved(played, directory, several=runs > 1))
    campaign.remove_earlier(directory)
    files = [file for _, run, own in kept for file in campaign.write_run(run, own, trajectory=save_trajectories)]
    told = _told(place.id, played, margin)
    campaign.write_comparison(told, files, directory)
    outputs.write_csv(directory / "metrics.csv", *_table(played))
    alone.write(kept, told, directory)
    print_json({**told, "output": str(directory)}) if as_json else _show(told, directory)
    ctx.exit(_complained(told["agents"]))


class _Place(NamedTuple):
    """The world that all runs meet."""

    id: str
    scenario: Scenario
    key: bytes


def _place(given: dict[str, Any]) -> _Place:
    if (found := asked_snapshot(given)) is not None:
        return _Place(found.id, found.scenario, found.key)
    from bakeoff.workloads.market.scenario import read_secret, world_key

    scenario, seed = asked_scenario(given), given["seed"]
    return _Place(
        f"{scenario.digest[:16]}-{seed}", scenario, world_key(scenario, seed, read_secret(given["secret_file"]))
    )


def _shelved(played: dict[str, list[Run]], directory: Path, *, several: bool) -> Iterator[tuple[str, Run, Path]]:
    """Every run with its directory."""
    for name, each in played.items():
        shelf = directory / name if len(played) > 1 else directory
        for run in each:
            yield name, run, shelf / f"run-{run.number}" if several else shelf


def _names(agents: Sequence[str]) -> dict[str, str]:
    """Agents by a name that can be a directory's. One that cannot be loaded is told before any of them plays."""
    from bakeoff.errors import UsageError
    from bakeoff.workloads.market.agents.load import load

    found: dict[str, str] = {}
    for agent in agents:
        name = (
            "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in agent).strip("-.") or "agent"
        )
        if name in found:
            raise UsageError(f"--agent {agent}: given twice; one agent's repeats are --runs")
        load(agent)
        found[name] = agent
    return found


def _play(agent: str, seeds: range, place: _Place, timeout: float) -> list[Run]:
    from bakeoff.workloads.market.agents.load import load
    from bakeoff.workloads.market.campaign import Run
    from bakeoff.workloads.market.rollout import roll_out

    return [
        Run(
            number=each,
            seed=seed,
            agent=agent,
            benchmark=place.id,
            rollout=roll_out(place.scenario, place.key, load(agent), seed=seed, response_timeout=timeout),
        )
        for each, seed in enumerate(seeds, 1)
    ]


def _told(identity: str, played: dict[str, list[Run]], margin: float | None) -> dict[str, Any]:
    from bakeoff.version import __version__
    from bakeoff.workloads.market import campaign

    found: dict[str, Any] = {
        "version": __version__,
        "benchmarkId": identity,
        "agents": {name: campaign.summary(runs) for name, runs in played.items()},
    }
    acting = {name: runs for name, runs in played.items() if not found["agents"][name]["neverActed"]}
    if len(acting) > 1:
        found["verdicts"] = _verdicts(acting, margin)
    return found


def _verdicts(played: dict[str, list[Run]], margin: float | None) -> list[dict[str, Any]]:
    """Runs of two agents share the world and nothing else, so they are compared as two samples."""
    from bakeoff.api import compare

    rows = [
        {"arm": name, "rollout": run.number, "total_pnl": run.rollout.metrics["total_pnl"]}
        for name, runs in played.items()
        for run in runs
    ]
    verdicts = compare(rows, metric="total_pnl", control=next(iter(played)), margin=margin, unpaired=True)
    return [
        {
            "agent": one.candidate,
            "control": one.control,
            "verdict": one.verdict,
            "reason": one.reason,
            "effect": one.effect,
            "p": one.p,
            "sentence": one.sentence,
        }
        for one in verdicts
    ]


def _table(played: dict[str, list[Run]]) -> tuple[Sequence[str], list[list[Any]]]:
    """One row for each run."""
    metrics = list(next(iter(played.values()))[0].rollout.metrics)
    rows = [
        [
            name,
            run.number,
            run.seed,
            *("" if run.rollout.metrics[each] is None else run.rollout.metrics[each] for each in metrics),
        ]
        for name, runs in played.items()
        for run in runs
    ]
    return ["agent", "run", "seed", *metrics], rows


def _show(told: dict[str, Any], directory: Path) -> None:
    rows = [
        [name, str(found["runs"]), *(_mean(found["metrics"][each]) for each in SHOWN)]
        for name, found in told["agents"].items()
    ]
    print_table(["agent", "runs", *SHOWN], rows, right=["runs", *SHOWN])
    for name, found in told["agents"].items():
        if found["runs"] > 1 and not found["neverActed"]:
            click.echo(f"{name}: {found['note']}")
    for verdict in told.get("verdicts", ()):
        click.echo(verdict["sentence"])
    click.echo(f"written to {directory}")


def _complained(agents: dict[str, dict[str, Any]]) -> int:
    """Says which agents never acted, and why; the exit code."""
    absent = [found for found in agents.values() if found["neverActed"]]
    for found in absent:
        click.echo(printable(f"error: {found['agent']}: {found['note']}"), err=True)
    return 1 if absent else 0


def _mean(summary: dict[str, Any]) -> str:
    if summary["mean"] is None:
        return NOTHING
    return number(summary["mean"]) + (f" ± {number(summary['sd'])}" if summary["sd"] else "")
