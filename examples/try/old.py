"""Play a bandit with ten arms greedily: `python old.py --seed 3` prints its score."""

import argparse
import random

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, required=True)
seed = parser.parse_args().seed

world = random.Random(seed)
means = [world.gauss(0, 1) for _ in range(10)]
estimates, pulls, total = [0.0] * 10, [0] * 10, 0.0
for _ in range(1000):
    arm = max(range(10), key=estimates.__getitem__)
    reward = world.gauss(means[arm], 1)
    pulls[arm] += 1
    estimates[arm] += (reward - estimates[arm]) / pulls[arm]
    total += reward
print("score:", round(total / 1000, 4))
