"""A gradient bandit: all the code that the quickstart runs."""

import math


def play(ctx, steps: int, step_size: float, gap: float) -> dict[str, float]:
    """Play `steps` pulls; the better arm pays with probability 0.5 + gap / 2, the other one with 0.5 - gap / 2."""
    world = ctx.rng("world")  # the same numbers for every arm
    better = int(world.integers(2))
    luck = world.random((steps, 2))
    choices = ctx.rng("choices").random(steps)
    preference, baseline, total = 0.0, 0.0, 0.0
    for step in range(steps):
        probability = 1 / (1 + math.exp(-preference))
        arm = int(choices[step] < probability)
        pays = 0.5 + gap / 2 if arm == better else 0.5 - gap / 2
        reward = float(luck[step, arm] < pays)
        baseline += 0.05 * (reward - baseline)
        preference += step_size * (reward - baseline) * (arm - probability)
        total += reward
        if step % 20 == 19:
            ctx.log(step + 1, reward=total / (step + 1))
    return {"reward": total / steps, "found": float((preference > 0) == (better == 1))}
