"""`bakeoff market train`: play, learn, play worlds that were never seen, and let a verdict decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.display import print_json, printable
from bakeoff.cli.market_options import asked_scenario, scenario_options
from bakeoff.cli.options import json_option, root_option

if TYPE_CHECKING:
    from bakeoff.verdicts.compare import Verdict
    from bakeoff.workloads.market.training.loop import Settings, Training

ALPHA = 0.05


@click.command(name="train")
@click.option("--min-agents", "rollouts", default=5, show_default=True, type=click.IntRange(min=2), help="Rollouts of each world by the same policy: what a group is made of.")  # fmt: skip
@click.option("--iterations", default=10, show_default=True, type=click.IntRange(min=1), help="How often to play and learn.")  # fmt: skip
@click.option("--windows-per-iteration", "windows", default=256, show_default=True, type=click.IntRange(min=1), help="Worlds in each iteration, fresh ones every time.")  # fmt: skip
@click.option("--learning-rate", default=0.03, show_default=True, type=click.FloatRange(0, min_open=True), help="Of Adam.")  # fmt: skip
@click.option("--held-out", default=64, show_default=True, type=click.IntRange(min=7), help="Worlds to decide on, which training never sees.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**20), help="Draws the starting point, the training worlds and the policy's chance.")  # fmt: skip
@scenario_options
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), default="market-training", show_default=True, metavar="DIR", help="Where policies, the log and the checkpoint go; a training that is there is gone on with.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Start anew instead of going on with what is there.")
@root_option
@json_option
@click.pass_context
def command(
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

    In each iteration the policy plays fresh worlds, several times each. Rollouts that earned more than the others of their
    world make their decisions likelier: advantage = (reward - mean) / std of the group; groups whose rewards are all equal
    are dropped. Then the trained policy, its starting point and `momentum` meet as arms of an experiment on held-out worlds.
    policy.json can be played anywhere as agent `policy:FILE`.

    \b
    Exit code: 0 better than both; 1 not better than one of them; 3 not decided; 2 the call is wrong.
    """
    from bakeoff.workloads.market.training.loop import Settings, Training

    settings = Settings(
        scenario=asked_scenario(size),
        iterations=iterations,
        windows=windows,
        rollouts=rollouts,
        learning_rate=learning_rate,
        seed=seed,
    )
    training = Training(settings, output, fresh=fresh)
    if training.done and not as_json:
        click.echo(f"going on after iteration {training.done} in {output}")
    for facts in training:
        if not as_json:
            click.echo(_line(facts, settings))
    if not as_json:
        click.echo(f"playing {held_out} worlds that training never saw")
    verdicts = _decide(training, held_out, root)
    if as_json:
        print_json(_told(training, verdicts))
    else:
        _show(training, verdicts)
    ctx.exit(_code(verdicts))


def _line(facts: dict[str, float], settings: Settings) -> str:
    return (
        f"iteration {facts['step']:.0f}/{settings.iterations}: sampled {facts['reward']:+.1f}, "
        f"greedy {facts['greedy_reward']:+.1f} dollars a world; {facts['groups']:.0f} groups"
    )


def _decide(training: Training, held_out: int, root: Path) -> list[Verdict]:
    """Run the experiment that is not done yet, and compare the trained policy with each rival.

    The two comparisons are one family: each gets half of alpha.
    """
    from bakeoff import api
    from bakeoff.workloads.market.training import benchmark

    training.write()
    scenario, start, trained = training.settings.scenario, training.start, training.policy
    experiment = api.load(benchmark.write_experiment(training.directory, scenario, start, trained, held_out), root=root)
    experiment.run()
    share = ALPHA / len(benchmark.RIVALS)
    return [
        verdict
        for rival in benchmark.RIVALS
        for verdict in api.compare(experiment, control=rival, arms=[benchmark.TRAINED], alpha=share)
    ]


def _show(training: Training, verdicts: Sequence[Verdict]) -> None:
    click.echo()
    for verdict in verdicts:
        click.echo(printable(verdict.sentence))
    click.echo()
    click.echo(f"policy: {training.directory / 'policy.json'} (version {training.policy.version})")
    click.echo(f"curve:  {training.directory / 'learning.png'}")
    click.echo(f"more:   bakeoff report market-train-{training.policy.version}")


def _told(training: Training, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "settings": {**asdict(training.settings), "scenario": training.settings.scenario.model_dump(mode="json")},
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


def _code(verdicts: Sequence[Verdict]) -> int:
    found = {verdict.decision.verdict for verdict in verdicts}
    if found == {"better"}:
        return 0
    return 3 if "undecided" in found else 1
