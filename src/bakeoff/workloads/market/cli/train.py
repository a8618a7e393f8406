"""`bakeoff market train`: play, learn, play worlds that training never saw, and decide by a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.display import print_json, printable
from bakeoff.cli.options import json_option, root_option
from bakeoff.workloads.market.cli import DIRECTORY, chosen_scenario, scenario_options

if TYPE_CHECKING:
    from bakeoff.verdicts.compare import Verdict
    from bakeoff.workloads.market.training.loop import Training

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
    from bakeoff.workloads.market.training.loop import RIVALS, TRAINED, Settings, Training

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
    say(f"curve:  {output / 'learning.png'}")
    say(f"more:   bakeoff report market-train-{training.policy.version}")
    words = {verdict.decision.verdict for verdict in verdicts}
    ctx.exit(0 if words == {"better"} else 3 if "undecided" in words else 1)


def _report(training: Training, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return what `--json` prints."""
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
