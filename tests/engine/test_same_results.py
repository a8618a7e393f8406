"""Results depend on the run alone: not on order, on the number of workers, or on who ran before in the same process."""

from __future__ import annotations

from typing import Any

import pytest

from support.processes import Lab

CODE = """
import random

def run(ctx, gain):
    unseeded = random.random()                       # the global generators are used as they are found
    import numpy as np                               # ... and numpy is first imported by whichever run comes first
    shared = ctx.rng("world").normal(size=3)
    own = ctx.rng("exploration", own=True).normal()
    ctx.log(0, noise=float(np.random.random()))
    return {
        "global": unseeded, "numpy": float(np.random.random()), "shared": float(shared.sum()), "own": float(own),
        "again": float(ctx.rng("world").normal()), "other": float(ctx.rng("other").normal()),
        "score": float(shared.sum()) * gain, "hash": hash("text") % 1000,
    }
"""
FILE = """
workload = "python"
seeds = 3
rollouts = 2
params = { function = "draws:run" }
[matrix]
gain = [1.0, 2.0]
[[tasks]]
name = "easy"
[[tasks]]
name = "hard"
"""
DRAWS = ("global", "numpy", "shared", "own", "again", "other", "score", "hash")


def _results(lab: Lab) -> dict[Any, Any]:
    return {
        (row["arm"], row["task"], row["seed"], row["rollout"]): (
            tuple(row[name] for name in DRAWS), lab.series(row["run_id"]),
        )
        for row in lab.rows()
    }  # fmt: skip


@pytest.fixture
def results(lab: Lab) -> dict[Any, Any]:
    lab.experiment(FILE, draws=CODE)
    lab.run(jobs=1)
    return _results(lab)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["4 workers", "fresh processes", "another order"])
def test_results_are_the_same_with(lab: Lab, results: dict[Any, Any], how: str) -> None:
    if how == "4 workers":
        lab.run(jobs=4, fresh=True)
    elif how == "fresh processes":
        lab.run(overrides=('isolation="fresh"',), fresh=True, only="seed<1")
        results = {key: result for key, result in results.items() if key[2] < 1}
    else:
        lab.run(fresh=True, only="seed==2 and task=='hard'")
        lab.run(only="seed==1", jobs=1)
        lab.run(jobs=2)
    found = _results(lab)
    assert {key: found[key] for key in results} == results and len(results) in (8, 24)


@pytest.mark.slow
def test_arms_meet_the_same_world_and_rollouts_do_not_explore_alike(results: dict[Any, Any]) -> None:
    def draw(name: str, *key: Any) -> float:
        return float(results[key][0][DRAWS.index(name)])

    for name in ("shared", "global", "numpy"):
        assert draw(name, "gain=1.0", "easy", 0, 0) == draw(name, "gain=2.0", "easy", 0, 0)
        assert draw(name, "gain=1.0", "easy", 0, 0) != draw(name, "gain=1.0", "easy", 1, 0)
        assert draw(name, "gain=1.0", "easy", 0, 0) != draw(name, "gain=1.0", "hard", 0, 0)
    assert draw("shared", "gain=1.0", "easy", 0, 0) == draw("shared", "gain=1.0", "easy", 0, 1)
    own = {draw("own", arm, task, seed, rollout) for arm, task, seed, rollout in results}
    assert len(own) == len(results)
    assert draw("shared", "gain=1.0", "easy", 0, 0) != draw("other", "gain=1.0", "easy", 0, 0)
