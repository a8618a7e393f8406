"""Experiments that the real engine has run, for verbs that look at results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MODULE = [sys.executable, "-m", "bakeoff"]

CODE = '''
import math


def solve(ctx, skill, difficulty):
    """0 or 1, and a score, both more often high where skill is above difficulty."""
    noise = ctx.rng("noise", own=True)
    chance = 1 / (1 + math.exp(difficulty - skill))
    return {"solved": int(noise.random() < chance), "score": chance + noise.normal(0, 0.05), "top": difficulty + 10}


def train(ctx, level):
    """A curve that rises to its level; the world's part of the noise is shared between arms."""
    world, own = ctx.rng("world"), ctx.rng("own", own=True)
    reach = level + world.normal(0, 0.05) + own.normal(0, 0.01)
    for step in range(0, 200, 10):
        ctx.log(step, **{"overview/reward": reach * (1 - math.exp(-step / 40)), "total_count": 16})
    return {"final": reach}
'''

BENCH = """
name = "bench"
workload = "python"
seeds = [0]
rollouts = 4
[params]
function = "laboratory_code:solve"
[[arms]]
name = "weak"
params = { skill = -1.0 }
[[arms]]
name = "middle"
params = { skill = 0.5 }
[[arms]]
name = "strong"
params = { skill = 2.0 }
[[tasks]]
name = "easy"
params = { difficulty = -1.0 }
[[tasks]]
name = "fair"
params = { difficulty = 0.0 }
[[tasks]]
name = "hard"
params = { difficulty = 1.0 }
[[tasks]]
name = "harder"
params = { difficulty = 1.5 }
[[tasks]]
name = "hardest"
params = { difficulty = 2.5 }
[analysis]
metric = "solved"
bounds = [0.0, 1.0]
"""

TRAIN = """
name = "train"
workload = "python"
seeds = "1..10"
[params]
function = "laboratory_code:train"
[[arms]]
name = "old"
params = { level = 1.0 }
[[arms]]
name = "new"
params = { level = 1.1 }
[analysis]
metric = "final"
control = "old"
"""


def run_all(place: Path) -> Path:
    """Both experiments, run; the root of their results."""
    (place / "laboratory_code.py").write_text(CODE)
    for name, text in (("bench", BENCH), ("train", TRAIN)):
        (place / f"{name}.toml").write_text(text)
        subprocess.run(
            [*MODULE, "run", f"{name}.toml", "--root", str(place / "runs")], cwd=place, check=True, capture_output=True
        )
    return place / "runs"
