"""Measure the speed of the market world as a ratio to one Gymnasium CartPole in the same run.

Many worlds at once, and one world with an agent. Also how long it takes to write a scenario file, and the first use on
a machine, which compiles the kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import BAKEOFF, Options, check, in_turns, machine, options, publish, say, seconds, versions, workspace

WORLDS, MARKETS, PERPETUALS, AGENTS = 1024, 8, 5, 8
METHOD = (
    "One core, processor time of the stepping alone, best of the rounds, in turns. All speeds are ratios to one "
    "CartPole-v1 of Gymnasium in the same process, because absolute figures differ between machines by half. "
    "Vectorised: 1,024 worlds of 8 markets and 5 perpetuals with 8 background traders, impact, fees, funding, "
    "margin, liquidation and feed. A world-step is one tick of one world. Seats that trade change their wanted "
    "position in one market or perpetual each tick (13 instruments in turn, drawn beforehand), and every step "
    "with a seat returns 106 observed numbers and the change of equity of each world. Before anything is timed, "
    "worlds of the batch are compared bit for bit with single worlds that get the same actions. Single: an "
    "episode of the null agent through the real play loop. CartPole takes random actions drawn beforehand; the "
    "JSON also has Gymnasium's vector CartPole (1,024 in NumPy). Generating: 30 minutes of world time in "
    "60-second ticks, in this process, and as a whole process with compiled kernels in the cache. Compiling: a "
    "whole process with an empty cache."
)


def scenario(ticks: int) -> Any:
    from bakeoff.workloads.market.scenario import Scenario

    return Scenario(duration_minutes=ticks, markets=MARKETS, perpetuals=PERPETUALS, agents=AGENTS)


def wanted(ticks: int, worlds: int) -> np.ndarray:
    """Target positions of shape [tick, world, instrument]; one instrument changes in each tick."""
    draws = np.random.default_rng(1)
    targets = np.zeros((ticks, worlds, MARKETS + PERPETUALS), np.int8)
    for tick in range(1, ticks):
        targets[tick] = targets[tick - 1]
        targets[tick, :, tick % (MARKETS + PERPETUALS)] = draws.integers(-1, 2, worlds)
    return targets


def same_as_single(ticks: int) -> None:
    """Exit unless the worlds of a batch are bit for bit the single worlds."""
    from bakeoff.workloads.market.world.advance import MarketBatch

    targets = wanted(ticks, WORLDS)
    batch = MarketBatch(scenario(ticks), range(WORLDS))
    alone = {world: MarketBatch(scenario(ticks), [world]) for world in (0, 1, 511, WORLDS - 1)}
    for actions in targets:
        seen, reward, _ = batch.step(actions)
        for world, single in alone.items():
            ours = single.step(actions[world : world + 1])
            if not (ours[0][0] == seen[world]).all() or ours[1][0] != reward[world]:
                raise SystemExit(f"world {world} of the batch is not the single world")
    for world, single in alone.items():
        if not (single.state.ints[0] == batch.state.ints[world]).all():
            raise SystemExit(f"world {world} of the batch ends otherwise than the single world")


def batched(ticks: int, *, acting: bool) -> Callable[[], float]:
    from bakeoff.workloads.market.world.advance import MarketBatch

    targets = wanted(ticks, WORLDS)
    if not acting:
        targets[:] = 0
    batch = MarketBatch(scenario(ticks), range(WORLDS))

    def side() -> float:
        seen = batch.reset()
        began = time.process_time()
        for actions in targets:
            batch.step(actions, out=seen)
        return (time.process_time() - began) / (ticks * WORLDS)

    return side


def alone(ticks: int) -> Callable[[], float]:
    """Step the worlds with everything that happens in them, but without players and observations."""
    from bakeoff.workloads.market.world.advance import NOBODY, MarketBatch, advance

    batch = MarketBatch(scenario(ticks), range(WORLDS))

    def side() -> float:
        batch.reset()
        began = time.process_time()
        for _ in range(ticks):
            advance(batch.state.ints, batch.state.floats, batch.r, *NOBODY)
        return (time.process_time() - began) / (ticks * WORLDS)

    return side


def single(ticks: int) -> Callable[[], float]:
    from bakeoff.workloads.market.agents.baselines import Null
    from bakeoff.workloads.market.play import Episode
    from bakeoff.workloads.market.world.world import World

    def side() -> float:
        world = World.create(scenario(ticks), 1)
        episode = Episode(world, [Null()], record=False)
        began = time.process_time()
        episode.run()
        return (time.process_time() - began) / ticks

    return side


def cartpole(steps: int) -> Callable[[], float]:
    import gymnasium

    env = gymnasium.make("CartPole-v1")
    actions = np.random.default_rng(1).integers(0, 2, steps).tolist()

    def side() -> float:
        env.reset(seed=1)
        began = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return (time.process_time() - began) / steps

    return side


def cartpoles(steps: int) -> Callable[[], float]:
    import gymnasium

    env = gymnasium.make_vec("CartPole-v1", num_envs=WORLDS, vectorization_mode="vector_entry_point")
    actions = np.random.default_rng(1).integers(0, 2, (steps, WORLDS))

    def side() -> float:
        env.reset(seed=1)
        began = time.process_time()
        for each in actions:
            env.step(each)
        return (time.process_time() - began) / (steps * WORLDS)

    return side


def stepping(given: Options) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    ticks, rounds, patience = (60, 2, 0.0) if given.quick else (400, 12, 5.0)
    same_as_single(60)
    sides = {
        "market, 1,024 worlds, nobody plays": alone(ticks),
        "market, 1,024 worlds, seats observe": batched(ticks, acting=False),
        "market, 1,024 worlds, seats trade": batched(ticks, acting=True),
        "market, one world, null agent": single(50 * ticks),
        "CartPole, one": cartpole(25 * ticks),
        "CartPole, 1,024": cartpoles(ticks),
    }
    for side in sides.values():
        side()
    times = in_turns(sides, rounds, patience)
    rates = {name: 1.0 / turns.best for name, turns in times.items()}
    pole = rates["CartPole, one"]
    for name, rate in rates.items():
        say(f"  {name}: {rate:,.0f} steps/s, {rate / pole:.2f}x CartPole")
    vectorised = "market world, 1,024 worlds on one core, nobody plays: world-steps against CartPole's"
    bars = {
        "market, 1,024 worlds, nobody plays": (vectorised, 7),
        "market, 1,024 worlds, seats observe": ("the same, with a seat that observes 106 numbers in every tick", 5),
        "market, 1,024 worlds, seats trade": ("the same, with the seat trading in every tick", 4),
        "market, one world, null agent": (
            "market world, one world with a null agent: ticks against CartPole's steps",
            1,
        ),
    }
    lines = [
        check(what, f"{rates[name]:,.0f}/s", f"{pole:,.0f}/s", rates[name] / pole, bar)
        for name, (what, bar) in bars.items()
    ]
    return lines, {"steps_per_s": rates, "times": times}


def generating(given: Options, directory: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    from bakeoff.workloads.market.scenario import Scenario
    from bakeoff.workloads.market.snapshot import generate

    took = []
    for seed in range(3 if given.quick else 20):
        began = time.perf_counter()
        generate(Scenario(), seed, directory / f"{seed}.json")
        took.append(time.perf_counter() - began)
    whole = min(
        seconds([*BAKEOFF, "market", "generate", "--output", str(directory / f"whole-{n}.json")], directory)
        for n in range(2 if given.quick else 5)
    )
    say(f"  30 minutes of world time: {1000 * min(took):.1f} ms, as a whole process {whole:.2f} s")
    line = check(
        "30 minutes of world time generated and written, seconds (whole process beside it)",
        f"{min(took):.3f} s", f"{whole:.2f} s", min(took), 0.5, "under", unit="s",
    )  # fmt: skip
    return [line], {"generate_s": min(took), "generate_process_s": whole}


def compiling(directory: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    import os

    cache = directory / "cache"
    argv = [*BAKEOFF, "market", "generate", "--force", "--output", str(directory / "cold.json")]
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
    try:
        cold = seconds(argv, directory)
    finally:
        del os.environ["NUMBA_CACHE_DIR"]
    say(f"  whole process with nothing compiled: {cold:.1f} s")
    line = check(
        "first use on a machine: `bakeoff market generate` with nothing compiled, seconds",
        f"{cold:.1f} s", "-", cold, 20, "under", unit="s",
    )  # fmt: skip
    return [line], {"cold_process_s": cold}


def main() -> None:
    given = options(__doc__ or "")
    with workspace() as directory:
        facts = machine(directory)
        speed, rates = stepping(given)
        files, durations = generating(given, directory)
        first, cold = compiling(directory)
    publish(
        "market", given, [*speed, *files, *first], {**rates, **durations, **cold},
        method=METHOD, facts=facts, programs=versions("numba", "numpy", "gymnasium"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
