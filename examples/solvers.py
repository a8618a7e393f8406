"""Solvers of different skill on tasks of different difficulty: the function behind `bench.toml`."""

import math


def solve(ctx, skill: float, difficulty: float) -> dict[str, int]:
    """1 if the task is solved, which is the more likely the further skill is above difficulty."""
    chance = 1 / (1 + math.exp(difficulty - skill))
    return {"solved": int(ctx.rng("noise", own=True).random() < chance)}
