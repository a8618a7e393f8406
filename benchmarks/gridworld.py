"""Measure the gridworld: steps a second of its rooms, against a plain Gymnasium loop over the same rooms in the same run, and
of training, against RecurrentPPO of SB3-contrib and beside a loop that is compiled as a whole by JAX, as in PureJaxRL.

The peers need Pythons of their own. BENCH_SB3_PYTHON and BENCH_JAX_PYTHON name them; without those, virtual environments are
made in build/.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import (
    BAKEOFF,
    REPOSITORY,
    Options,
    check,
    in_turns,
    machine,
    options,
    publish,
    say,
    seconds,
    versions,
    workspace,
)

ENVS = 256
LEVELS = ("level_0", "terrain_2", "full")
BARS = {"vit_reset": 2.5, "trxl": 2.0}
"""Policy -> how many times as many steps of training per processor second as RecurrentPPO."""
PEERS = {"sb3": ["torch==2.13.0", "sb3-contrib==2.7.0", "numba"], "jax": ["jax==0.10.2", "numba"]}
"""What a peer's Python needs."""
BATCH = 128 * 32
TRAINING = 244
"""Updates of a training of a million steps."""
METHOD = (
    "World: one core, processor time, best of the rounds, in turns. 256 rooms at once; actions are random and drawn "
    "beforehand. A step of ours moves the agent, uses stations, cools them down, writes the 7x7 view, the inventory and the "
    "reward of every room, and at the end of an episode draws the next room and keeps the last view. The plain loop is one "
    "environment of gymnasium.make over the same kernels, with Gymnasium's environment checker switched off, reset at "
    "the end of each episode. Before anything is timed, rooms of the batch are compared with single environments, step by "
    "step. Drawing a room is measured alone by `Worlds.reset`. Compiling: `bakeoff gridworld bench` as a whole process "
    "with an empty cache. Walkers: mean hearts of one episode in each of 1,000 held-out rooms. Training: one thread, "
    "processor time of whole updates on level_0, from 128 environments x 32 steps, 3 epochs, 4 minibatches, in turns with "
    "RecurrentPPO over the same rooms with the same encoder and an LSTM, of about the same number of parameters. All updates "
    "count: RecurrentPPO's take longer when more episodes end in them, because it pads sequences. JAX: benchmarks/peers/"
    "jax_gridworld.py, the same rules (compared step by step), encoder and recurrent unit as vit_reset, on one core; rooms come "
    "from a pool that is drawn before. Compiling is the first update minus a later one; a training has 244 updates."
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


def peer(name: str, updates: int) -> dict[str, Any]:
    """What benchmarks/peers/NAME_gridworld.py printed about so many updates, of 3 epochs each."""
    python = os.environ.get(f"BENCH_{name.upper()}_PYTHON")
    if not python:
        place = REPOSITORY / "build" / name
        python = str(place / "bin" / "python")
        if not Path(python).exists():
            say(f"installing {', '.join(PEERS[name])} for the comparison (once)")
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS[name]], check=True)
    script = Path(__file__).parent / "peers" / f"{name}_gridworld.py"
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run([python, script, str(updates), "3"], capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def training(given: Options) -> Section:
    """Steps of training per processor second."""
    import torch

    from bakeoff.workloads.gridworld.params import GridworldParams
    from bakeoff.workloads.gridworld.policies import POLICIES
    from bakeoff.workloads.gridworld.ppo import PPO

    def rng(name: str) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(name.encode()))

    torch.set_num_threads(1)
    number, rounds = (6, 1) if given.quick else (24, 3)
    trainings = {}
    for name in BARS:
        policy = POLICIES[name](64)
        policy.initialise(rng)
        trainings[name] = PPO(GridworldParams(policy=name, epochs=3, minibatches=4), policy, rng)
        trainings[name].update()
    sizes = {name: made.policy.size for name, made in trainings.items()}
    seconds_of: dict[str, list[float]] = {name: [] for name in (*BARS, "RecurrentPPO", "JAX")}
    compiling = []
    for _ in range(rounds):
        for name, made in trainings.items():
            seconds_of[name] += [made.update()["processor_s"] for _ in range(number)]
        for name, key in (("RecurrentPPO", "sb3"), ("JAX", "jax")):
            answer = peer(key, number + 1)
            first, *later = answer["seconds"]
            seconds_of[name] += later
            sizes[name] = answer["parameters"]
        compiling.append(first - float(np.mean(later)))
    rates = {name: BATCH / float(np.mean(taken)) for name, taken in seconds_of.items()}
    for name, rate in rates.items():
        say(f"  {name}: {rate:,.0f} steps per processor second, {sizes[name]:,} parameters")
    whole = {name: TRAINING * BATCH / rates[name] for name in ("vit_reset", "JAX")}
    whole["JAX"] += min(compiling)
    say(
        f"  a million steps: vit_reset {whole['vit_reset']:.1f} s, JAX {whole['JAX']:.1f} s with {min(compiling):.1f} s of compiling"
    )
    lines = [
        check(
            f"training {name}, steps per processor second against RecurrentPPO of SB3-contrib",
            f"{rates[name]:,.0f}/s", f"{rates['RecurrentPPO']:,.0f}/s", rates[name] / rates["RecurrentPPO"], bar,
        )
        for name, bar in BARS.items()
    ]  # fmt: skip
    details = {
        "per_s": rates,
        "seconds": seconds_of,
        "parameters": sizes,
        "jax_compiling_s": compiling,
        "million_s": whole,
    }
    return lines, {"training": details}


def unroll(given: Options) -> Section:
    """The recurrent unit over 32 steps of 32 environments, forward and backward: compiled loops against torch's own."""
    import torch

    from bakeoff.workloads.gridworld.policies import Recurrence

    steps, envs, width = 32, 32, 64
    draws = torch.Generator().manual_seed(0)
    gates = torch.randn(steps, envs, 3 * width, generator=draws, requires_grad=True)
    weight = (0.1 * torch.randn(width, 3 * width, generator=draws)).requires_grad_()
    bias, past, keep = torch.zeros(3 * width), torch.zeros(envs, width), torch.ones(steps, envs)

    def automatic() -> torch.Tensor:
        state, states = past, []
        for step in range(steps):
            part = torch.addmm(bias, state * keep[step][:, None], weight)
            r, z = (gates[step] + part)[:, : 2 * width].sigmoid().chunk(2, 1)
            n = (gates[step][:, 2 * width :] + r * part[:, 2 * width :]).tanh()
            state = n + z * (state - n)
            states.append(state)
        return torch.stack(states)

    sides = {"compiled": lambda: Recurrence.apply(gates, weight, bias, past, keep), "automatic": automatic}
    if not torch.allclose(sides["compiled"](), sides["automatic"](), atol=1e-5):
        raise SystemExit("the compiled recurrent unit is not the plain one")
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(5 if given.quick else 50):
        for name, side in sides.items():
            began = time.process_time()
            side().sum().backward()
            times[name].append(time.process_time() - began)
    taken = {name: float(np.median(values)) for name, values in times.items()}
    line = check(
        "recurrent unit, 32 steps of 32 environments and back, against torch's automatic derivatives",
        f"{1e3 * taken['compiled']:.2g} ms", f"{1e3 * taken['automatic']:.2g} ms",
        taken["automatic"] / taken["compiled"], 3,
    )  # fmt: skip
    return [line], {"unroll": taken}


def main() -> None:
    given = options(__doc__ or "")
    with workspace() as directory:
        facts = machine(directory)
        speed, rates = world(given, directory)
    floor, hearts = walkers(given)
    learning, updates = training(given)
    cell, unrolls = unroll(given)
    publish(
        "gridworld",
        given,
        [*speed, *floor, *learning, *cell],
        {**rates, **hearts, **updates, **unrolls},
        method=METHOD,
        facts=facts,
        programs=versions("numba", "numpy", "gymnasium", "torch"),
    )


if __name__ == "__main__":
    main()
