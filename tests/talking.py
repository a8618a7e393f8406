"""An experiment whose runs leave trajectories of every kind: with a language model's messages, tool calls and tokens,
with contexts that start anew, without a language model, and one that breaks.
"""

from __future__ import annotations

from pathlib import Path

from lab import Lab

EXPERIMENT = """
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
        lab.experiment(EXPERIMENT, "talks", talker=TALKER)
        lab.run("talks")
        return lab.root
