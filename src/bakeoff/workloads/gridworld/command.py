"""`bakeoff gridworld`: watch agents in a room, and measure the speed of the world."""

from __future__ import annotations

import sys
import time
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import json_option
from bakeoff.errors import UsageError, did_you_mean
from bakeoff.workloads.gridworld.levels import find_level

if TYPE_CHECKING:
    from bakeoff.workloads.gridworld.episode import Episode

SUFFIXES = (".gif", ".html", ".json")
LARGEST_TASK = 2**64 - 1
level_option = click.option("--level", metavar="NAME", help="Such as level_0 or terrain_2 (default: level_0).")


@click.group(name="gridworld")
def command() -> None:
    """Rooms in which agents have to find out what the stations do."""


@command.command()
@click.argument("agents", nargs=-1, metavar="[AGENT]...")
@level_option
@click.option(
    "--task", type=click.IntRange(0, LARGEST_TASK), help="The room's task number (default: drawn with --seed)."
)
@click.option("--room", type=click.IntRange(0), default=0, show_default=True, help="Which held-out room of a run.")
@click.option("--horizon", type=click.IntRange(1), help="Steps at most (default: the level's).")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Draws the room and random actions.")
@click.option("--fps", type=click.IntRange(1, 60), default=8, show_default=True, help="Steps a second.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a replay instead: FILE.gif, FILE.html or FILE.json.",
)
@json_option
def play(
    agents: tuple[str, ...],
    level: str | None,
    task: int | None,
    room: int,
    horizon: int | None,
    seed: int,
    fps: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Watch AGENTs play the same room: random, clairvoyant (default), or the directory of a run.

    A run replays its last evaluation (held_out.json). With --task, --level or --horizon it plays that room with its
    trained policy (model.pt) instead.
    """
    from bakeoff.workloads.gridworld.replay import write_gif, write_html

    if output is not None and output.suffix not in SUFFIXES:
        raise UsageError(f"--output {output}: use a name that ends with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    episodes = _play(agents or ("clairvoyant",), level, task, room, horizon, seed)
    if output is not None:
        if output.suffix == ".gif":
            write_gif(episodes, output, fps)
        elif output.suffix == ".html":
            write_html(episodes, output)
        else:
            import json

            output.write_text(json.dumps([episode.as_json() for episode in episodes]) + "\n", encoding="utf-8")
    if as_json:
        print_json([episode.as_json() for episode in episodes])
        return
    if output is None:
        _show(episodes, fps)
    for episode in episodes:
        click.echo(f"{episode.agent}: {episode.hearts} hearts in {episode.horizon} steps")
    click.echo(f"{episodes[0].level}, task {episodes[0].task}" + (f"; wrote {output}" if output else ""))


def _play(
    agents: tuple[str, ...], level: str | None, task: int | None, room: int, horizon: int | None, seed: int
) -> list[Episode]:
    """The episodes of all agents in one room: that of a run's evaluation, or any other that the options name."""
    import numpy as np

    from bakeoff.workloads.gridworld.episode import play, read_recording
    from bakeoff.workloads.gridworld.walkers import WALKERS, Walker, make_walker
    from bakeoff.workloads.gridworld.world import task_numbers

    runs = [agent for agent in agents if agent not in WALKERS]
    for agent in runs:
        if not Path(agent).exists():
            hint = did_you_mean(agent, WALKERS, f"give {', '.join(WALKERS)} or the directory of a run")
            raise UsageError(f"there is no agent {agent!r}; {hint}")
    walkers: dict[str, Walker] = {name: make_walker(name, np.random.default_rng(seed)) for name in WALKERS}
    chosen = find_level(level or "level_0", horizon)
    if runs and (task, level, horizon) == (None, None, None):
        recordings = {agent: read_recording(Path(agent)) for agent in runs}
        first = recordings[runs[0]]
        if room >= len(first.rooms):
            raise UsageError(f"--room {room}: {runs[0]} was evaluated in {len(first.rooms)} rooms, counted from 0")
        task, chosen = list(first.rooms)[room], first.level
        for agent, recording in recordings.items():
            if recording.level != chosen:
                raise UsageError(
                    f"{agent} was evaluated on {recording.level.name} and {runs[0]} on {chosen.name}; choose a --level"
                )
        return [
            recordings[agent].replay(task, _label(agent))
            if agent in runs
            else play(chosen, task, walkers[agent], agent)
            for agent in agents
        ]
    if runs:
        from bakeoff.workloads.gridworld.evaluation import Player
        from bakeoff.workloads.gridworld.outputs import load_policy
        from bakeoff.workloads.training.files import MODEL

        for agent in runs:
            policy, facts = load_policy(Path(agent) / MODEL if Path(agent).is_dir() else Path(agent))
            walkers[agent] = Player(policy, 1, np.random.default_rng(seed))
            if level is None and agent == runs[0]:
                chosen = find_level(facts["level"], horizon or facts["horizon"])
    if task is None:
        task = int(task_numbers(np.random.default_rng(seed), 1, "held_out")[0])
    return [play(chosen, task, walkers[agent], _label(agent)) for agent in agents]


def _label(agent: str) -> str:
    """How a replay names an agent: a walker by its name, a run by that of its directory."""
    return Path(agent).resolve().name


def _show(episodes: list[Episode], fps: int) -> None:
    """Play episodes side by side in the terminal. Without a terminal, only their last frames are printed."""
    from bakeoff.workloads.gridworld.episode import as_text

    def frame(number: int) -> str:
        texts = []
        for episode in episodes:
            lines = [episode.agent, *as_text(episode, min(number, len(episode.frames) - 1)).splitlines()]
            width = max(len(line) for line in lines) + 4
            texts.append([line.ljust(max(width, 44)) for line in lines])
        blank = [" " * len(lines[0]) for lines in texts]
        rows = zip_longest(*texts)
        return "\n".join(
            "".join(line or empty for line, empty in zip(row, blank, strict=True)).rstrip() for row in rows
        )

    last = max(len(episode.frames) for episode in episodes) - 1
    if not sys.stdout.isatty():
        click.echo(frame(last))
        return
    click.echo("\x1b[2J\x1b[?25l", nl=False)  # clear the screen, hide the cursor
    try:
        for number in range(last + 1):
            text = frame(number).replace("\n", "\x1b[K\n")  # clear what is left of longer lines
            click.echo(f"\x1b[H{text}\x1b[K\x1b[J")
            time.sleep(1 / fps)
    finally:
        click.echo("\x1b[?25h", nl=False)


@command.command()
@level_option
@click.option("--envs", type=click.IntRange(1, 1_000_000), default=256, show_default=True, help="Rooms at once.")
@click.option(
    "--seconds", type=click.FloatRange(0.01, 600), default=2.0, show_default=True, help="How long to measure."
)
@json_option
def bench(level: str | None, envs: int, seconds: float, as_json: bool) -> None:
    """Measure steps a second of the world on one core, with random actions, observations and new rooms at each end."""
    import numpy as np

    from bakeoff.workloads.gridworld.world import ACTIONS, Worlds, task_numbers

    chosen = find_level(level or "level_0")
    rng = np.random.default_rng(0)
    worlds = Worlds(chosen, task_numbers(rng, envs, "train"))
    actions = rng.integers(0, ACTIONS, (64, envs))
    tasks = task_numbers(rng, envs, "train")
    steps, began, busy = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        for choice in actions:
            worlds.step(choice, tasks)
        tasks += np.uint64(2)  # other rooms, still of the training half
        steps += len(actions) * envs
    wall, processor = time.perf_counter() - began, time.process_time() - busy
    figures = {
        "level": chosen.name,
        "envs": envs,
        "steps": steps,
        "steps_per_second": steps / wall,
        "steps_per_processor_second": steps / processor,
    }
    if as_json:
        print_json(figures)
        return
    click.echo(
        f"{chosen.name}, {envs} rooms at once: {steps / wall / 1e6:.2f} M steps/s, "
        f"{steps / processor / 1e6:.2f} M in a second of processor time"
    )
