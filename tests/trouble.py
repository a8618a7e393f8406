"""An experiment with everything that a report has to show: failures, retries, ablations, costs, series, files."""

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
