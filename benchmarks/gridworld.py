"""Measure the gridworld: steps a second of its rooms, against a plain Gymnasium loop over the same rooms in the same run."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import BAKEOFF, Options, check, in_turns, machine, options, publish, say, seconds, versions, workspace

ENVS = 256
LEVELS = ("level_0", "terrain_2", "full")
METHOD = (
    "World: one core, processor time, best of the rounds, in turns. 256 rooms at once; actions are random and drawn "
    "beforehand. A step of ours moves the agent, uses stations, cools them down, writes the 7x7 view, the inventory and the "
    "reward of every room, and at the end of an episode draws the next room and keeps the last view. The plain loop is one "
    "environment of gymnasium.make over the same kernels, with Gymnasium's environment checker switched off, reset at "
    "the end of each episode. Before anything is timed, rooms of the batch are compared with single environments, step by "
    "step. Drawing a room is measured alone by `Worlds.reset`. Compiling: `bakeoff gridworld bench` as a whole process "
    "with an empty cache. Walkers: mean hearts of one episode in each of 1,000 held-out rooms."
)

Section = tuple[list[dict[str, Any]], dict[str, Any]]


def batch(level: str, envs: int = ENVS) -> Any:
    from bakeoff.workloads.gridworld.levels import find_level
    from bakeoff.workloads.gridworld.world import Worlds, task_numbers

    return Worlds(find_level(level), task_numbers(np.random.default_rng(1), envs, "train"))


def same_as_single(level: str, steps: int) -> None:
    """Exit unless rooms of the batch do what single environments do with the same actions."""
    from bakeoff.workloads.gridworld.envs import GridworldEnv

    worlds = batch(level)
    chosen = {room: GridworldEnv(level) for room in (0, 1, ENVS - 1)}
    for room, env in chosen.items():
        env.reset(options={"task": int(worlds.tasks[room])})
    actions = np.random.default_rng(2).integers(0, 5, (steps, ENVS))
    for choice in actions:
        worlds.step(choice, worlds.tasks)
        for room, env in chosen.items():
            seen, reward, _, cut, _ = env.step(int(choice[room]))
            if cut:
                seen, _ = env.reset(options={"task": int(worlds.tasks[room])})
            if (seen["view"] != worlds.observations[room]).any() or reward != worlds.rewards[room]:
                raise SystemExit(f"{level}: room {room} of the batch is not the single environment")


def batched(level: str, steps: int) -> Callable[[], float]:
    worlds = batch(level)
    actions = np.random.default_rng(2).integers(0, 5, (64, ENVS))

    def side() -> float:
        tasks = worlds.tasks.copy()
        began = time.process_time()
        for number in range(steps):
            worlds.step(actions[number % 64], tasks)
            if number % 64 == 0:
                tasks += np.uint64(2)
        return (time.process_time() - began) / (steps * ENVS)

    return side


def drawn(level: str, rounds: int) -> Callable[[], float]:
    worlds = batch(level)

    def side() -> float:
        tasks = worlds.tasks.copy()
        began = time.process_time()
        for _ in range(rounds):
            tasks += np.uint64(2)
            worlds.reset(tasks)
        return (time.process_time() - began) / (rounds * ENVS)

    return side


def plain(level: str, steps: int) -> Callable[[], float]:
    import gymnasium

    import bakeoff.workloads.gridworld.envs

    env = gymnasium.make(bakeoff.workloads.gridworld.envs.ENV_ID, level=level, disable_env_checker=True)
    actions = np.random.default_rng(2).integers(0, 5, steps).tolist()

    def side() -> float:
        env.reset(seed=1)
        began = time.process_time()
        for action in actions:
            _, _, terminated, cut, _ = env.step(action)
            if terminated or cut:
                env.reset()
        return (time.process_time() - began) / steps

    return side


def vector(level: str, steps: int) -> Callable[[], float]:
    import gymnasium

    import bakeoff.workloads.gridworld.envs

    env = gymnasium.make_vec(
        bakeoff.workloads.gridworld.envs.ENV_ID, ENVS, vectorization_mode="vector_entry_point", level=level
    )
    actions = np.random.default_rng(2).integers(0, 5, (64, ENVS))

    def side() -> float:
        env.reset(seed=1)
        began = time.process_time()
        for number in range(steps):
            env.step(actions[number % 64])
        return (time.process_time() - began) / (steps * ENVS)

    return side


def world(given: Options, directory: Path) -> Section:
    steps, rounds, patience = (200, 2, 0.0) if given.quick else (4000, 8, 5.0)
    sides: dict[str, Callable[[], float]] = {}
    for level in LEVELS:
        same_as_single(level, 300)
        sides[f"{level}, {ENVS} rooms at once"] = batched(level, steps)
        sides[f"{level}, drawing a room"] = drawn(level, steps // 50)
    sides["level_0, Gymnasium's vector interface"] = vector("level_0", steps // 10)
    sides["level_0, plain Gymnasium loop"] = plain("level_0", steps * 5)
    for side in sides.values():
        side()
    times = in_turns(sides, rounds, patience)
    rates = {name: 1.0 / turns.best for name, turns in times.items()}
    for name, rate in rates.items():
        say(f"  {name}: {rate:,.0f}/s")
    loop = rates["level_0, plain Gymnasium loop"]
    lines = [
        check(
            f"rooms of {level}, {ENVS} at once on one core, with observations: million steps a second of processor time",
            f"{rates[f'{level}, {ENVS} rooms at once']:,.0f}/s", "-", rates[f"{level}, {ENVS} rooms at once"] / 1e6, 4,
            unit="M/s",
        )
        for level in LEVELS
    ]  # fmt: skip
    ours = rates[f"level_0, {ENVS} rooms at once"]
    lines.append(
        check(
            "the same for level_0, against a plain Gymnasium loop", f"{ours:,.0f}/s", f"{loop:,.0f}/s", ours / loop, 20
        )
    )
    os.environ["NUMBA_CACHE_DIR"] = str(directory / "cache")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    try:
        seconds([*BAKEOFF, "gridworld", "bench", "--seconds", "0.1"], directory)
    finally:
        del os.environ["NUMBA_CACHE_DIR"]
    cold = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    what = "first use on a machine: `bakeoff gridworld bench` with nothing compiled, seconds of processor time"
    lines.append(check(what, f"{cold:.1f} s", "-", cold, 15, "under", unit="s"))
    return lines, {"world": {"per_s": rates, "times": times, "cold_process_s": cold}}


def walkers(given: Options) -> Section:
    """Mean hearts of both walkers in held-out rooms of every level: the same figures on every machine."""
    from bakeoff.workloads.gridworld.levels import LEVELS as ALL
    from bakeoff.workloads.gridworld.walkers import WALKERS, make_walker, walk
    from bakeoff.workloads.gridworld.world import task_numbers

    hearts: dict[str, dict[str, float]] = {}
    for name, level in ALL.items():
        tasks = task_numbers(np.random.default_rng(0), 50 if given.quick else 1000, "held_out")
        scores = {each: walk(level, tasks, make_walker(each, np.random.default_rng(0))) for each in WALKERS}
        hearts[name] = {each: float(score.hearts.mean()) for each, score in scores.items()}
        hearts[name]["steps"] = float(scores["random"].steps.mean())
        say(f"  {name}: " + ", ".join(f"{key} {value:.3g}" for key, value in hearts[name].items()))
    least = min(row["clairvoyant"] - row["random"] for row in hearts.values())
    line = check(
        "clairvoyant walker above the random one, hearts, least of all levels", "-", "-", least, 5, unit="hearts"
    )
    return [line], {"walkers": hearts}


def main() -> None:
    given = options(__doc__ or "")
    with workspace() as directory:
        facts = machine(directory)
        speed, rates = world(given, directory)
    floor, hearts = walkers(given)
    publish(
        "gridworld",
        given,
        [*speed, *floor],
        {**rates, **hearts},
        method=METHOD,
        facts=facts,
        programs=versions("numba", "numpy", "gymnasium"),
    )


if __name__ == "__main__":
    main()
