"""A learner that pulls one of two levers, again and again: replace this with your own function."""

import math


def play(ctx, steps: int, step_size: float, gap: float) -> dict[str, float]:
    """Return the mean reward of `steps` pulls. The better lever pays with probability 0.5 + gap / 2."""
    luck = ctx.rng("luck").random((steps, 2))  # keyed by task and seed: the same numbers for every arm
    choices = ctx.rng("choices").random(steps)
    preference, total = 0.0, 0.0
    for step in range(steps):
        probability = 1 / (1 + math.exp(-preference))
        right = choices[step] < probability
        reward = float(luck[step, int(right)] < 0.5 + (gap if right else -gap) / 2)
        preference += step_size * (reward - 0.5) * (right - probability)
        total += reward
        if step % 20 == 19:
            ctx.log(step + 1, reward=total / (step + 1))  # a point of the learning curve
    return {"reward": total / steps}
