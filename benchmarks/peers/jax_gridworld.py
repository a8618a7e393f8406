"""PPO in the gridworld as PureJaxRL does it: `jax_gridworld.py UPDATES EPOCHS` prints processor seconds for each update.

World, rollout, advantages and minibatches are one compiled function of JAX, with `vmap` over environments and `scan` over
steps. The rules are those of `Worlds`, which is compared step by step before anything is timed; rooms come from a pool that
`Worlds` has drawn, so drawing them costs nothing here. The network has the same encoder and the same recurrent unit as
`vit_reset`. It needs jax and numba: benchmarks/gridworld.py says which Python runs it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bakeoff.workloads.gridworld import rooms as at
from bakeoff.workloads.gridworld.levels import APPEARANCES, RESOURCES, find_level
from bakeoff.workloads.gridworld.world import Worlds, task_numbers

ENVS, STEPS, WIDTH, MINIBATCHES, POOL = 128, 32, 64, 4, 4096
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, RATE, MAX_GRADIENT, SHAPING = 0.97, 0.95, 0.2, 0.02, 0.5, 2e-3, 0.5, 0.25
CELLS, ACTIONS, DEPTH = 49, 5, 8
Tree = Any


class Room(NamedTuple):
    """What never changes in an episode."""

    glyphs: jax.Array
    fields: jax.Array


class Episode(NamedTuple):
    room: Room
    y: jax.Array
    x: jax.Array
    step: jax.Array
    carried: jax.Array
    ready: jax.Array
    """[stations]: the step from which each can be used again."""


def begin(room: Room) -> Episode:
    zero = jnp.int32(0)
    return Episode(room, room.fields[at.Y], room.fields[at.X], zero, zero, jnp.zeros(APPEARANCES, jnp.int32))


def look(episode: Episode) -> jax.Array:
    """Codes of the 49 cells in view, and what is carried."""
    room = episode.room
    view = lax.dynamic_slice(room.glyphs, (episode.y - at.PAD, episode.x - at.PAD), (at.VIEW, at.VIEW)).ravel()
    appearance = jnp.clip(view.astype(jnp.int32) - at.STATION, 0)
    cooling = (view >= at.STATION) & (episode.ready[room.fields[at.STATION_OF + appearance]] > episode.step)
    place = jnp.arange(RESOURCES)
    has = (place < room.fields[at.CHAIN]) & ((episode.carried >> place) & 1 > 0)
    carried = jnp.zeros(RESOURCES, jnp.int32).at[room.fields[at.RESOURCE + place]].max(has.astype(jnp.int32))
    return jnp.concatenate((2 * view.astype(jnp.int32) + cooling, carried))


def act(episode: Episode, action: jax.Array) -> tuple[Episode, jax.Array, jax.Array]:
    """The episode after an action, the reward, and whether it ended."""
    room, step = episode.room, episode.step + 1
    y = episode.y + (action == 3) - (action == 1)
    x = episode.x + (action == 2) - (action == 4)
    there = room.glyphs[y, x].astype(jnp.int32)
    moves = there == at.FLOOR
    station = room.fields[at.STATION_OF + jnp.clip(there - at.STATION, 0)]
    chain, carried = room.fields[at.CHAIN], episode.carried
    sink = station > chain
    takes, gives = (1 << station) >> 1, 1 << station
    fits = ((station == 0) | (carried & takes > 0)) & ((station == chain) | (carried & gives == 0))
    works = (there >= at.STATION) & (episode.ready[station] <= step) & jnp.where(sink, carried > 0, fits)
    after = jnp.where(sink, 0, (carried & ~takes) | jnp.where(station < chain, gives, 0))
    ready = step + jnp.where(sink, at.SINK_COOLDOWN, room.fields[at.COOLDOWN])
    reward = jnp.where(works & ~sink, jnp.where(station < chain, SHAPING, 1.0), 0.0)
    following = Episode(
        room,
        jnp.where(moves, y, episode.y),
        jnp.where(moves, x, episode.x),
        step,
        jnp.where(works, after, carried),
        episode.ready.at[station].set(jnp.where(works, ready, episode.ready[station])),
    )
    return following, reward.astype(jnp.float32), step >= room.fields[at.HORIZON]


def step_all(episodes: Episode, actions: jax.Array, rooms: Room) -> tuple[Episode, jax.Array, jax.Array]:
    """Act in all environments; those that end start again in their room of `rooms`."""
    following, rewards, done = jax.vmap(act)(episodes, actions)
    fresh = jax.vmap(begin)(rooms)
    mixed = jax.tree.map(
        lambda a, b: jnp.where(done.reshape(-1, *(1,) * (a.ndim - 1)), a, b), fresh, following
    )  # fmt: skip
    return mixed, rewards, done


def take(tree: Tree, chosen: Any) -> Tree:
    """Rows of every array of a tree."""
    return jax.tree.map(lambda array: array[chosen], tree)


def draw_pool() -> tuple[Room, Any]:
    tasks = task_numbers(np.random.default_rng(1), POOL, "train")
    worlds = Worlds(find_level("level_0"), tasks, shaping=SHAPING)
    glyphs = worlds.grid.reshape(POOL, worlds.grid.shape[1], -1, at.CHANNELS)[..., 0]
    return Room(jnp.asarray(glyphs.copy()), jnp.asarray(worlds.rooms.copy())), tasks


def same_as_worlds(pool: Room, tasks: Any, steps: int = 400) -> None:
    """Exit unless this world does what `Worlds` does with the same actions."""
    rng = np.random.default_rng(2)
    worlds = Worlds(find_level("level_0"), tasks[:ENVS], shaping=SHAPING)
    episodes = jax.vmap(begin)(take(pool, slice(ENVS)))
    advance, see = jax.jit(step_all), jax.jit(jax.vmap(look))
    for _ in range(steps):
        actions, chosen = rng.integers(0, ACTIONS, ENVS), rng.integers(0, POOL, ENVS)
        worlds.step(actions, tasks[chosen])
        episodes, rewards, done = advance(episodes, jnp.asarray(actions), take(pool, chosen))
        seen = worlds.observations
        cells = (2 * seen[..., 0].astype(int) + seen[..., 1]).reshape(ENVS, CELLS)
        if (
            (np.asarray(rewards) != worlds.rewards).any()
            or (np.asarray(done) != worlds.done).any()
            or (np.asarray(see(episodes)) != np.concatenate((cells, worlds.inventory), 1)).any()
        ):
            raise SystemExit("the world in JAX is not the one of bakeoff")


# -- the network


def initialise(key: jax.Array) -> dict[str, jax.Array]:
    def normal(scale: float, *shape: int) -> jax.Array:
        nonlocal key
        key, own = jax.random.split(key)
        return scale * jax.random.normal(own, shape)

    fan = DEPTH * CELLS
    return {
        "glyphs": normal(1.0, 2 * (2 + APPEARANCES), DEPTH),
        "view": normal(fan**-0.5, fan, WIDTH),
        "carried": normal(0.3, RESOURCES, WIDTH),
        "action": normal(0.3, ACTIONS + 1, WIDTH),
        "heart": normal(0.3, WIDTH),
        "offset": jnp.zeros(WIDTH),
        "gates": normal(WIDTH**-0.5, WIDTH, 3 * WIDTH),
        "gates_bias": jnp.zeros(3 * WIDTH),
        "state": normal(WIDTH**-0.5, WIDTH, 3 * WIDTH),
        "state_bias": jnp.zeros(3 * WIDTH),
        "head": jnp.asarray([0.01] * ACTIONS + [1.0]) * normal(WIDTH**-0.5, WIDTH, ACTIONS + 1),
        "head_bias": jnp.zeros(ACTIONS + 1),
    }


def encode(weights: Tree, codes: jax.Array) -> jax.Array:
    """[..., cells, carried, last action, last heart] -> the input's part of the gates."""
    cells = weights["glyphs"][codes[..., :CELLS]].reshape(*codes.shape[:-1], CELLS * DEPTH)
    carried = codes[..., CELLS : CELLS + RESOURCES].astype(jnp.float32)
    total = cells @ weights["view"] + carried @ weights["carried"] + weights["action"][codes[..., -2]]
    hidden = jax.nn.relu(total + codes[..., -1:] * weights["heart"] + weights["offset"])
    return hidden @ weights["gates"] + weights["gates_bias"]


def cell(weights: Tree, state: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    gates, starts = inputs
    state = jnp.where(starts[:, None], 0.0, state)
    part = state @ weights["state"] + weights["state_bias"]
    r, z = jnp.split(jax.nn.sigmoid(gates[:, : 2 * WIDTH] + part[:, : 2 * WIDTH]), 2, 1)
    n = jnp.tanh(gates[:, 2 * WIDTH :] + r * part[:, 2 * WIDTH :])
    state = n + z * (state - n)
    return state, state


def unroll(weights: Tree, codes: jax.Array, starts: jax.Array, past: jax.Array) -> tuple[jax.Array, ...]:
    state, hidden = lax.scan(lambda s, i: cell(weights, s, i), past, (encode(weights, codes), starts))
    output = hidden @ weights["head"] + weights["head_bias"]
    return output[..., :ACTIONS], output[..., ACTIONS], state


# -- one update


class Runner(NamedTuple):
    weights: Tree
    mean: Tree
    square: Tree
    count: jax.Array
    episodes: Episode
    codes: jax.Array
    starts: jax.Array
    past: jax.Array
    key: jax.Array


def loss_of(weights: Tree, batch: Tree) -> jax.Array:
    codes, starts, past, actions, old_logprobs, old_values, advantages, returns = batch
    logits, values, _ = unroll(weights, codes, starts, past[0])
    scores = jax.nn.log_softmax(logits)
    entropy = -(jnp.exp(scores) * scores).sum(-1).mean()
    ratio = jnp.exp(jnp.take_along_axis(scores, actions[..., None], -1)[..., 0] - old_logprobs)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy = jnp.maximum(-advantages * ratio, -advantages * ratio.clip(1 - CLIP, 1 + CLIP)).mean()
    clipped = old_values + (values - old_values).clip(-CLIP, CLIP)
    value = 0.5 * jnp.maximum((values - returns) ** 2, (clipped - returns) ** 2).mean()
    return policy - ENTROPY * entropy + VALUE * value


def make_update(pool: Room, epochs: int) -> Any:
    def environment(runner: Runner, _: None) -> tuple[Runner, Tree]:
        key, action_key, room_key = jax.random.split(runner.key, 3)
        logits, values, past = unroll(runner.weights, runner.codes[None], runner.starts[None], runner.past)
        actions = jax.random.categorical(action_key, logits[0])
        logprobs = jnp.take_along_axis(jax.nn.log_softmax(logits[0]), actions[:, None], 1)[:, 0]
        chosen = jax.random.randint(room_key, (ENVS,), 0, POOL)
        episodes, rewards, done = step_all(runner.episodes, actions, take(pool, chosen))
        last = jnp.stack(((actions + 1) * ~done, (rewards >= 1) & ~done), 1).astype(jnp.int32)
        seen = jnp.concatenate((jax.vmap(look)(episodes), last), 1)
        row = (runner.codes, runner.starts, actions, logprobs, values[0], rewards, done)
        return runner._replace(episodes=episodes, codes=seen, starts=done, past=past, key=key), row

    def learn(state: Tree, batch: Tree) -> tuple[Tree, None]:
        weights, mean, square, count = state
        gradient = jax.grad(loss_of)(weights, batch)
        norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradient)))
        gradient = jax.tree.map(lambda g: g * jnp.minimum(1.0, MAX_GRADIENT / norm), gradient)
        count = count + 1
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, square, gradient)
        weights = jax.tree.map(
            lambda w, m, s: w - RATE * m / (1 - 0.9**count) / (jnp.sqrt(s / (1 - 0.999**count)) + 1e-5),
            weights, mean, square,
        )  # fmt: skip
        return (weights, mean, square, count), None

    def update(runner: Runner) -> tuple[Runner, jax.Array]:
        past = runner.past
        runner, (codes, starts, actions, logprobs, values, rewards, done) = lax.scan(
            environment, runner, None, length=STEPS
        )
        _, after, _ = unroll(runner.weights, runner.codes[None], runner.starts[None], runner.past)

        def backwards(carry: Tree, row: Tree) -> tuple[Tree, jax.Array]:
            following, value = carry
            reward, own, ended = row
            delta = reward + GAMMA * value * ~ended - own
            advantage = delta + GAMMA * LAMBDA * following * ~ended
            return (advantage, own), advantage

        start = (jnp.zeros(ENVS), after[0])
        _, advantages = lax.scan(backwards, start, (rewards, values, done), reverse=True)
        batch = (codes, starts, past[None], actions, logprobs, values, advantages, advantages + values)
        state, key = runner[:4], runner.key
        for _ in range(epochs):
            key, own = jax.random.split(key)
            order = jax.random.permutation(own, ENVS).reshape(MINIBATCHES, -1)
            parts = jax.tree.map(lambda array, order=order: jnp.moveaxis(array[:, order], 1, 0), batch)
            state, _ = lax.scan(learn, state, parts)
        return Runner(*state, *runner[4:8], key), (rewards >= 1).sum()

    return jax.jit(update, donate_argnums=0)


def main() -> None:
    updates, epochs = map(int, sys.argv[1:3])
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # XLA reads both when the first array is made
    pool, tasks = draw_pool()
    same_as_worlds(pool, tasks)
    weights = initialise(jax.random.key(0))
    zeros = jax.tree.map(jnp.zeros_like, weights)
    episodes = jax.vmap(begin)(take(pool, slice(ENVS)))
    codes = jnp.concatenate((jax.vmap(look)(episodes), jnp.zeros((ENVS, 2), jnp.int32)), 1)
    runner = Runner(
        weights, zeros, jax.tree.map(jnp.copy, zeros), jnp.int32(0), episodes, codes, jnp.ones(ENVS, bool),
        jnp.zeros((ENVS, WIDTH)), jax.random.key(1),
    )  # fmt: skip
    update, taken, hearts = make_update(pool, epochs), [], []
    for _ in range(updates):
        began = time.process_time()
        runner, gained = update(runner)
        hearts.append(int(gained))
        taken.append(time.process_time() - began)
    parameters = sum(weight.size for weight in jax.tree.leaves(runner.weights))
    print(json.dumps({"parameters": parameters, "seconds": taken, "hearts": hearts}))


if __name__ == "__main__":
    main()
