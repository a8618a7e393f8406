"""Play the same bandit, with one pull in ten at random: `python new.py --seed 3` prints its score."""

import argparse
import random

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, required=True)
seed = parser.parse_args().seed

world, choice = random.Random(seed), random.Random(-1 - seed)
means = [world.gauss(0, 1) for _ in range(10)]
estimates, pulls, total = [0.0] * 10, [0] * 10, 0.0
for _ in range(1000):
    arm = choice.randrange(10) if choice.random() < 0.1 else max(range(10), key=estimates.__getitem__)
    reward = world.gauss(means[arm], 1)
    pulls[arm] += 1
    estimates[arm] += (reward - estimates[arm]) / pulls[arm]
    total += reward
print("score:", round(total / 1000, 4))
