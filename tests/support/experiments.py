"""Experiments that the real engine has run, for tests that look at results; and what takes long to make, made once."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.processes import Lab


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A directory of this test session that `make(directory)` has filled, in the first worker that asks for it.

    Other workers wait for it, and make it themselves if that fails.
    """
    base = factory.getbasetemp()
    if base.name.startswith("popen-"):  # a worker of xdist; its siblings are beside it
        base = base.parent
    place, done = base / name, base / f"{name}.done"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            place.mkdir(exist_ok=True)
            make(place)
            done.touch()
    return place


# -- bench: arms of different skill on tasks of different difficulty, scored 0 or 1; train: curves that two recipes reach

BENCH_AND_TRAIN_CODE = '''
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
function = "bench_and_train:solve"
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
function = "bench_and_train:train"
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


def run_bench_and_train(place: Path) -> Path:
    """Both experiments, run; the root of their results."""
    (place / "bench_and_train.py").write_text(BENCH_AND_TRAIN_CODE)
    for name, text in (("bench", BENCH), ("train", TRAIN)):
        (place / f"{name}.toml").write_text(text)
        subprocess.run(
            [sys.executable, "-m", "bakeoff", "run", f"{name}.toml", "--root", str(place / "runs")],
            cwd=place,
            check=True,
            capture_output=True,
        )
    return place / "runs"


# -- talks: trajectories of every kind: with a language model's messages, tool calls and tokens, with contexts that start
#    anew, without a language model, and one that breaks

TALKS = """
name = "talks"
workload = "python"
seeds = [1, 2]
rollouts = 3
params = { function = "talker:play" }
analysis = { metric = "score", failure_score = -5.0 }

[[arms]]
name = "chat"
params = { kind = "chat" }
[[arms]]
name = "twin"
params = { kind = "chat" }
[[arms]]
name = "forgetful"
params = { kind = "forgetful" }
[[arms]]
name = "numeric"
params = { kind = "numeric" }

[[tasks]]
name = "add"
params = { word = "add" }
[[tasks]]
name = "sub"
params = { word = "sub" }
"""

TALKER = '''
from bakeoff import Step
from bakeoff.spec.workload import Tokens

TOOLS = [{"type": "function", "function": {"name": "calc", "description": "Calculate.",
          "parameters": {"type": "object", "properties": {"x": {"type": "number"}}}}}]
SYSTEM = {"role": "system", "content": "You calculate. Zahlen: \\u00fc \\u2192 \\U0001f600"}


def play(ctx, kind, word, seed):
    quality = (ctx.rollout - 1) * (1.0 if word == "add" else 10.0) * (0.0 if (word, seed) == ("sub", 2) else 1.0)
    if ctx.arm == "chat" and (word, seed, ctx.rollout) == ("add", 2, 2):
        question = {"role": "user", "content": f"{word} in world {seed}"}
        ctx.trajectory(Step(reward=99.0, messages=[SYSTEM, question, {"role": "assistant", "content": "oh"}],
                            agent="talker", policy_version="7"))
        raise RuntimeError("broke")
    {"chat": chat, "forgetful": forgetful, "numeric": numeric}[kind](ctx, word, quality)
    return {"score": quality, "note": "text"}


def chat(ctx, word, quality):
    """Whole conversations, with a tool in between; the tokens of each prompt go on from the last reply."""
    question = {"role": "user", "content": f"{word} in world {ctx.seed}"}
    asked = {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "calc", "arguments": '{"x": %d}' % ctx.rollout}}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "42"}
    answer = {"role": "assistant", "content": f"answer {ctx.rollout}"}
    ctx.trajectory(Step(
        observation={"tick": 0}, action={"call": "calc"}, reward=quality / 2, messages=[SYSTEM, question, asked],
        tokens=Tokens([1, 2, 3], [4, 5], [-0.25, -0.5]), agent="talker", policy_version="7",
        info={"model": "tiny/1", "tools": TOOLS}, truth={"secret": "theta"}))
    ctx.trajectory(Step(
        observation={"tick": 1}, action={"say": 1}, reward=quality / 2, done=True,
        messages=[SYSTEM, question, asked, result, answer],
        tokens=Tokens([1, 2, 3, 4, 5, 6, 7], [8], [-0.125]), agent="talker", policy_version="7", truth={"secret": "theta"}))


def forgetful(ctx, word, quality):
    """Every step is a conversation of its own; tool calls stand beside the messages; an example is in the prompt."""
    example = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]
    for tick in range(3):
        ctx.trajectory(Step(
            observation=tick, action=tick, reward=quality / 3,
            messages=[SYSTEM, *example, {"role": "user", "content": f"{word} {tick}"},
                      {"role": "assistant", "content": [{"type": "text", "text": f"tick {tick} by {ctx.rollout}"}]}],
            tool_calls=[{"name": "calc", "arguments": {"x": tick}}] if tick == 1 else []))


def numeric(ctx, word, quality):
    for tick in range(2):
        ctx.trajectory(Step(observation={"price": [1.5, float("nan")]}, action=[tick, -1], reward=quality / 2,
                            truth={"secret": "theta"}))
'''


def run_talks(place: Path) -> Path:
    """The root of results."""
    with Lab(place) as lab:
        lab.experiment(TALKS, "talks", talker=TALKER)
        lab.run("talks")
        return lab.root


# -- trouble: everything that a report has to show: failures, retries, ablations, costs, series, files

TROUBLE_CODE = r"""
import math
import sys


def work(ctx, skill, cost=1.0, hedge=True, retry=True):
    # `retry` is never looked at: an ablation that changes nothing.
    world, own = ctx.rng("world").normal(), ctx.rng(f"noise of {skill}").normal()
    score = 5 + skill + world + 0.2 * own - (0 if hedge else 0.6 + 0.1 * world)
    print("\x1b[31mred\x1b[0m <b>not bold</b>")
    if skill > 0.9 and ctx.seed % 4 == 3:
        print("<script>alert(1)</script>", file=sys.stderr)
        raise ValueError(f"the <b>model</b> said no on seed {ctx.seed}")
    for step in range(30):
        ctx.log(step, score=score * (1 - math.exp(-step / 9)))
    (ctx.directory / "artifacts").mkdir(exist_ok=True)
    (ctx.directory / "artifacts" / "model & notes.txt").write_text("weights")
    return {"score": score, "cost_usd": cost * (1 + 0.1 * abs(own)), "tokens": int(1000 * cost)}
"""

TROUBLE = """
name = "trouble"
description = "Agents with <i>failures</i>, costs and ablations"
workload = "python"
seeds = 8

[params]
function = "trouble_work:work"

[[arms]]
name = "plain & simple"
params = { skill = 0.0 }

[[arms]]
name = "clever <v2>"
params = { skill = 0.9, cost = 1.6 }

[[arms]]
name = "wild"
params = { skill = 1.0, cost = 2.5 }

[[ablations]]
name = "no_hedge"
params = { hedge = false }

[[ablations]]
name = "no_retry"
params = { retry = false }

[retries]
failed = 1
backoff = 0.01

[analysis]
metric = "score"
control = "plain & simple"
bounds = [-5.0, 15.0]
"""
