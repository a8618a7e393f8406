"""Simulated learners: reward climbs along a noisy curve whose pace and height depend on the arm and on the world."""

import math


def train(ctx, steps: int, pace: float, height: float, difficulty: float) -> dict[str, float]:
    """One training run. `world` is the same for all arms on a seed; `own` differs between runs."""
    world, own = ctx.rng("world"), ctx.rng("own", own=True)
    ceiling = height - difficulty + 0.06 * world.normal() + 0.05 * own.normal()
    delay = 8.0 * abs(world.normal())
    reward = 0.0
    for step in range(0, steps + 1, 5):
        expected = ceiling / (1.0 + math.exp(-pace * (step - 40.0 - delay) / 20.0))
        reward = max(0.0, expected + 0.03 * own.normal())
        ctx.log(step, reward=reward)
    return {
        "reward": reward,
        "seconds": 20.0 / pace + own.gamma(2.0),
        "stability": max(0.0, 1.0 - 0.2 * abs(own.normal())),
    }
