"""`bakeoff market generate`, `run` and `train`.

`generate` writes a scenario as files. `run` lets agents play one world. `train` plays, learns, plays worlds that training
never saw, and decides by a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.display import print_json, print_table
from bakeoff.cli.options import json_option, root_option
from bakeoff.errors import UsageError
from bakeoff.text import NOTHING, number, printable
from bakeoff.workloads.market.cli import (
    DEFAULT_SEED,
    DIRECTORY,
    SECONDS,
    ChosenWorld,
    chosen_scenario,
    chosen_secret,
    chosen_world,
    demo_option,
    scenario_options,
    world_options,
)
from bakeoff.workloads.market.scenario import LARGEST_SEED, draw_secret, secret_label, secret_warning

if TYPE_CHECKING:
    from bakeoff.verdicts.comparison import Verdict
    from bakeoff.workloads.market.agents.program import Access
    from bakeoff.workloads.market.outputs import Run
    from bakeoff.workloads.market.training import Training


SHOWN = ("total_pnl", "prediction_accuracy", "perp_win_rate", "brier_edge", "max_drawdown", "regret", "optimality")


@click.command()
@scenario_options
@click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    default=DEFAULT_SEED,
    show_default=True,
    help="Which of the scenario's worlds; it is not in the public file.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The public file, or a directory for it.  [default: benchmarks/benchmark-{id}.json]",
)
@click.option("--force", is_flag=True, help="Replace another snapshot that is at that path.")
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A line of random text that draws the worlds.  [default: $BAKEOFF_MARKET_SECRET, else a new random secret]",
)
@demo_option
@json_option
def generate(seed: int, output: Path | None, force: bool, as_json: bool, **choice: Any) -> None:
    """Write a market scenario: a public snapshot, and the truth in a private file beside it.

    Without a secret a random one is drawn, and kept in the private file. The same options, seed and secret give the same
    bytes. Give agents the public file only.

    \b
    Exit code: 0 the files are there; 2 the call is wrong.
    """
    from bakeoff.workloads.market import snapshot

    scenario, named = chosen_scenario(choice), chosen_secret(choice)
    secret = named or draw_secret()
    written = snapshot.generate(scenario, seed, output, secret=secret, keep=named is None, force=force)
    if warning := secret_warning(secret):
        click.echo(f"warning: {warning}", err=as_json)
    if as_json:
        print_json(
            {
                "id": written.id,
                "public": str(written.public),
                "private": str(written.private),
                "fresh": written.fresh,
                "secret": secret_label(secret),
                "ticks": scenario.ticks,
                "config": scenario.model_dump(mode="json"),
            }
        )
        return
    state = "wrote" if written.fresh else "already there:"
    click.echo(f"{state} {written.public} ({scenario.ticks} ticks)\n{state} {written.private} (keep it from agents)")


@click.command()
@world_options
@click.option("--agent", "agents_named", multiple=True, default=("random",), show_default=True, metavar="AGENT", help="A shipped agent, module:Class, file.py:Class, process:..., cmd:PROGRAM, llm:MODEL or policy:FILE. Several are compared.")  # fmt: skip
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1, 100_000), help="Runs of each agent in the same world. The seed of the agent's own generator counts up from --seed.")  # fmt: skip
@click.option("--response-timeout", default=30.0, show_default=True, type=SECONDS, metavar="SECONDS", help="Time for a turn; what an agent does later is refused.")  # fmt: skip
@click.option("--save-trajectories", is_flag=True, help="Write trajectory.json: what the agent saw, did and earned in each tick.")  # fmt: skip
@click.option("--mount", "mounts", multiple=True, metavar="PATH", help="A file or directory that cmd: and process: agents may read beyond their own.")  # fmt: skip
@click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="A variable of cmd: and process: agents.  [default: PATH, LANG, LC_*, TZ]")  # fmt: skip
@click.option("--network", is_flag=True, help="Give cmd: and process: agents a network.")
@click.option("--unsandboxed", is_flag=True, help="Run cmd: and process: agents without a sandbox, as you: they can read the secret and your files.")  # fmt: skip
@click.option("--margin", type=click.FloatRange(0, min_open=True), help="Difference in dollars that does not matter, for the verdict `equivalent`.")  # fmt: skip
@click.option("-o", "--output", type=DIRECTORY, metavar="DIR", help="Directory of the results.  [default: benchmark-results/<time>]")  # fmt: skip
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    agents_named: tuple[str, ...],
    runs: int,
    response_timeout: float,
    save_trajectories: bool,
    mounts: tuple[str, ...],
    env: tuple[str, ...],
    network: bool,
    unsandboxed: bool,
    margin: float | None,
    output: Path | None,
    as_json: bool,
    **choice: Any,
) -> None:
    """Run agents on one world and write what they did.

    Each of several runs has a directory run-1, run-2 ... with result.json, metrics.json, actions.csv and more, below the
    agent's name when there are several agents; what was hidden from the agent is in truth.json. comparison.json and
    metrics.csv are about all of them, and so are the pages: open index.html. With several agents the first is the control
    of a verdict. Its population is this world only: use `bakeoff run` on an experiment file to compare agents over many
    worlds.

    \b
    Exit code: 0 every agent played; 1 an agent never acted; 2 the call or a file is wrong.
    """
    from bakeoff.workloads.market import outputs
    from bakeoff.workloads.market.agents.base import in_process_warning
    from bakeoff.workloads.market.agents.program import Access, without_sandbox
    from bakeoff.workloads.market.pages import write_campaign

    directory = output or Path("benchmark-results") / str(time.time_ns() // 1_000_000)
    world = chosen_world(choice)
    if world.warning:
        click.echo(world.warning, err=as_json)
    else:
        for warning in filter(None, map(in_process_warning, agents_named)):
            click.echo(f"warning: {warning}", err=as_json)
    private = [path for path in (choice["benchmark"], choice["secret_file"]) if path is not None]
    access = Access(mounts, env, network, (Path("benchmark-results"), directory, *private))
    seeds = range(choice["seed"], choice["seed"] + runs)
    with without_sandbox() if unsandboxed else nullcontext():
        played = _play(agents_named, world, seeds, response_timeout, access)
    kept = []
    for name, each in played.items():
        parent = directory / name if len(played) > 1 else directory
        kept += [(name, one, parent / f"run-{one.number}" if runs > 1 else parent) for one in each]
    outputs.remove_earlier(directory)  # only now: a call that fails leaves the results of the last one alone
    files = [file for _, one, own in kept for file in outputs.write_run(one, own, trajectory=save_trajectories)]
    comparison = _comparison(world, played, margin)
    # With the names of the runs' files, so that a later campaign can remove them.
    names = [file.relative_to(directory).as_posix() for file in files]
    outputs.write_json(directory / "comparison.json", {**comparison, "files": names})
    metrics = list(kept[0][1].rollout.metrics)
    rows = [[name, one.number, one.seed, *map(one.rollout.metrics.get, metrics)] for name, one, _ in kept]
    outputs.write_csv(directory / "metrics.csv", ["agent", "run", "seed", *metrics], rows)
    write_campaign(kept, comparison, directory)
    if as_json:
        print_json({**comparison, "output": str(directory)})
    else:
        _show(comparison, directory)
    absent = [agent for agent in comparison["agents"].values() if agent["neverActed"]]
    for agent in absent:
        click.echo(printable(f"error: {agent['agent']}: {agent['note']}"), err=True)
    ctx.exit(1 if absent else 0)


def _play(
    agents: Sequence[str], world: ChosenWorld, seeds: range, timeout: float, access: Access
) -> dict[str, list[Run]]:
    """Return the runs of every agent by a name for its directory.

    All agents are loaded once before any of them plays, so that a wrong name raises UsageError at once.
    """
    from bakeoff.workloads.market.agents.base import load
    from bakeoff.workloads.market.outputs import Run
    from bakeoff.workloads.market.play import roll_out

    names: dict[str, str] = {}
    for agent in agents:
        letters = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in agent)
        name = letters.strip("-.") or "agent"
        if name in names:
            raise UsageError(f"--agent {agent}: given twice; repeat one agent with --runs")
        load(agent, access=access)
        names[name] = agent
    return {
        name: [
            Run(
                number=number,
                seed=seed,
                agent=agent,
                benchmark=world.id,
                secret=world.secret,
                rollout=roll_out(
                    world.scenario, world.key, load(agent, access=access), seed=seed, response_timeout=timeout
                ),
            )
            for number, seed in enumerate(seeds, 1)
        ]
        for name, agent in names.items()
    }


def _comparison(world: ChosenWorld, played: dict[str, list[Run]], margin: float | None) -> dict[str, Any]:
    """Return what comparison.json has: a summary of each agent, and verdicts against the first one that acted."""
    from bakeoff.api import compare
    from bakeoff.version import __version__
    from bakeoff.workloads.market.outputs import summary

    agents = {name: summary(runs) for name, runs in played.items()}
    comparison: dict[str, Any] = {
        "version": __version__,
        "benchmarkId": world.id,
        "secret": world.secret,
        "warning": world.warning,
        "agents": agents,
    }
    acting = [name for name in played if not agents[name]["neverActed"]]
    if len(acting) < 2:
        return comparison
    # Runs of two agents share the world and nothing else, so they are two samples.
    rows = [
        {"arm": name, "rollout": one.number, "total_pnl": one.rollout.metrics["total_pnl"]}
        for name in acting
        for one in played[name]
    ]
    comparison["verdicts"] = [
        {
            "agent": verdict.candidate,
            "control": verdict.control,
            "verdict": verdict.verdict,
            "reason": verdict.reason,
            "effect": verdict.effect,
            "p": verdict.p,
            "sentence": verdict.sentence,
        }
        for verdict in compare(rows, metric="total_pnl", control=acting[0], margin=margin, unpaired=True)
    ]
    return comparison


def _show(comparison: dict[str, Any], directory: Path) -> None:
    """Print the comparison for people."""
    rows = []
    for name, agent in comparison["agents"].items():
        cells = []
        for metric in SHOWN:
            mean, sd = agent["metrics"][metric]["mean"], agent["metrics"][metric]["sd"]
            cells.append(NOTHING if mean is None else number(mean) + (f" ± {number(sd)}" if sd else ""))
        rows.append([name, str(agent["runs"]), *cells])
    print_table(["agent", "runs", *SHOWN], rows, right=["runs", *SHOWN])
    for name, agent in comparison["agents"].items():
        if agent["runs"] > 1 and not agent["neverActed"]:
            click.echo(f"{name}: {agent['note']}")
    for verdict in comparison.get("verdicts", ()):
        click.echo(verdict["sentence"])
    click.echo(f"written to {directory}")


# -- training

ALPHA = 0.05


@click.command()
@click.option("--min-agents", "rollouts", default=5, show_default=True, type=click.IntRange(min=2), help="Rollouts of each world by the same policy: the size of a group.")  # fmt: skip
@click.option("--iterations", default=10, show_default=True, type=click.IntRange(min=1), help="How often to play and learn.")  # fmt: skip
@click.option("--windows-per-iteration", "windows", default=256, show_default=True, type=click.IntRange(min=1), help="Worlds in each iteration, new ones every time.")  # fmt: skip
@click.option("--learning-rate", default=0.03, show_default=True, type=click.FloatRange(0, min_open=True), help="Learning rate of Adam.")  # fmt: skip
@click.option("--held-out", default=64, show_default=True, type=click.IntRange(min=7), help="Worlds to decide on, which training never sees.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**20), help="Draws the starting point, the training worlds and the policy's choices.")  # fmt: skip
@scenario_options
@click.option("-o", "--output", type=DIRECTORY, default="market-training", show_default=True, metavar="DIR", help="Directory of policies, log and checkpoint; a training in it is continued.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Start again instead of continuing.")
@root_option
@json_option
@click.pass_context
def train(
    ctx: click.Context,
    /,
    rollouts: int,
    iterations: int,
    windows: int,
    learning_rate: float,
    held_out: int,
    seed: int,
    output: Path,
    fresh: bool,
    root: Path,
    as_json: bool,
    **size: Any,
) -> None:
    """Train a small policy and find out whether it has become better.

    In each iteration the policy plays new worlds, several times each. Rollouts that earned more than the others of their
    world make their decisions likelier: advantage = (reward - mean) / std of the group; groups whose rewards are all equal
    are dropped. Then the trained policy, its starting point and `momentum` meet as arms of an experiment on held-out worlds.
    policy.json can be played anywhere as agent `policy:FILE`.

    \b
    Exit code: 0 better than both; 1 not better than one of them; 3 not decided; 2 the call is wrong.
    """
    from bakeoff import api
    from bakeoff.workloads.market.training import RIVALS, TRAINED, Settings, Training

    settings = Settings(
        scenario=chosen_scenario(size),
        iterations=iterations,
        windows=windows,
        rollouts=rollouts,
        learning_rate=learning_rate,
        seed=seed,
    )
    training = Training(settings, output, fresh=fresh)

    def say(text: str) -> None:
        if not as_json:
            click.echo(text)

    if training.done:
        say(f"continuing after iteration {training.done} in {output}")
    for facts in training:
        say(
            f"iteration {facts['step']:.0f}/{settings.iterations}: sampled {facts['reward']:+.1f}, "
            f"greedy {facts['greedy_reward']:+.1f} dollars a world; {facts['groups']:.0f} groups"
        )
    say(f"playing {held_out} worlds that training never saw")
    training.write()
    experiment = api.load(training.write_experiment(held_out), root=root)
    experiment.run()
    # The two comparisons are one family, so each gets half of alpha (Bonferroni).
    share = ALPHA / len(RIVALS)
    verdicts = [
        verdict for rival in RIVALS for verdict in api.compare(experiment, control=rival, arms=[TRAINED], alpha=share)
    ]
    if as_json:
        print_json(_report(training, verdicts))
    say("")
    for verdict in verdicts:
        say(printable(verdict.sentence))
    say("")
    say(f"policy: {output / 'policy.json'} (version {training.policy.version})")
    say(f"curve:  {output / 'learning.svg'}")
    say(f"more:   bakeoff report market-train-{training.policy.version}")
    words = {verdict.decision.verdict for verdict in verdicts}
    ctx.exit(0 if words == {"better"} else 3 if "undecided" in words else 1)


def _report(training: Training, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "settings": training.settings.as_json(),
        "policy": training.directory / "policy.json",
        "policy_version": training.policy.version,
        "iterations": training.log(),
        "experiment": f"market-train-{training.policy.version}",
        "verdicts": [
            {
                "candidate": verdict.candidate,
                "control": verdict.control,
                "metric": verdict.metric,
                "verdict": verdict.decision.verdict,
                "effect": verdict.effect,
                "interval": None if verdict.interval is None else [verdict.interval.low, verdict.interval.high],
                "p": verdict.decision.p,
                "units": verdict.units,
                "sentence": verdict.sentence,
            }
            for verdict in verdicts
        ],
    }
