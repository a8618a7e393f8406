"""The `gridworld` workload: one run trains one policy by PPO, or lets a reference walker play the held-out rooms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel

from bakeoff.errors import Problem, UsageError, install
from bakeoff.spec.workload import Outcome, RunContext, Scalar
from bakeoff.workloads.gridworld.capacity import TRAINED, capacity
from bakeoff.workloads.gridworld.levels import find_level
from bakeoff.workloads.gridworld.params import GridworldParams

if TYPE_CHECKING:
    from bakeoff.spec.plan import Cell, Plan
    from bakeoff.workloads.gridworld.evaluation import Evaluation, HeldOut

HELD_OUT_METRICS = ("heldout_hearts", "heldout_solved", "in_context_gain", "normalised_score")


class GridworldWorkload:
    """The interface to the rest of bakeoff; see `spec/workload.py`."""

    kind: ClassVar[str] = "gridworld"
    revision: ClassVar[str] = "2"
    Params: ClassVar[type[BaseModel]] = GridworldParams
    directions: ClassVar[Mapping[str, Literal["maximize", "minimize"]]] = dict.fromkeys(
        ("policy_loss", "value_loss", "processor_s"), "minimize",
    )  # fmt: skip
    analysis: ClassVar[Mapping[str, Any]] = {
        "metric": "heldout_hearts",
        "summary": {"type": "final", "last": 1},
        "failure_score": 0.0,
        "matched": {"parameters": 0.02},
    }
    """The original compares the reward while training, under a curriculum that adapts to the agent: arms are then measured
    on different rooms."""

    def check(self, params: GridworldParams, base: Path) -> None:
        """Raise UsageError if a package is missing."""
        for package in ("numba", "torch"):
            if find_spec(package) is None:
                raise UsageError(f"the gridworld needs the package {package}: {install('gridworld')}")

    def check_plan(self, plan: Plan, env: Mapping[str, str]) -> Iterator[Problem]:
        """Policies that cannot be found, evaluations that are missing, and arms that are not of the same size."""
        from bakeoff.spec.expand import origin
        from bakeoff.workloads.functions import Call, flaws

        analysis = plan.experiment.analysis
        largest: tuple[int, Cell] | None = None
        matched = analysis.matched
        tolerance = matched["parameters"] if isinstance(matched, dict) and "parameters" in matched else None
        for cell in plan.cells:
            params = GridworldParams.model_validate(cell.params)
            if not params.held_out and analysis.metric in HELD_OUT_METRICS:
                yield Problem(
                    origin(plan.experiment, cell.arm, cell.task, "held_out"),
                    f"held_out = 0: there is no evaluation, and the experiment is judged by {analysis.metric}",
                    "set held_out, or judge the training: analysis.metric = 'train_hearts' and analysis.summary = 'final'",
                )
            if ":" in params.policy:
                for _, message, fix in flaws([Call(params.policy, ("width",))], plan.base, env)[0]:
                    yield Problem(origin(plan.experiment, cell.arm, cell.task, "policy"), message, fix)
            if params.policy in TRAINED and tolerance is not None:
                size = capacity(params.policy, params.width).parameters
                if largest is None:
                    largest = size, cell
                elif abs(size - largest[0]) > tolerance * max(size, largest[0]):
                    yield Problem(
                        origin(plan.experiment, cell.arm, cell.task, "width"),
                        f"{cell.arm.name} has {size:,} parameters and {largest[1].arm.name} has {largest[0]:,}: they "
                        f"differ by more than {100 * tolerance:g} %, so the comparison would not be fair",
                        "give both the same width, or allow it with analysis.matched = []",
                    )

    def run(self, params: GridworldParams, ctx: RunContext) -> Outcome:
        """Train and evaluate, and leave the files of `outputs`. A gradient that is not a number fails the run."""
        import torch

        from bakeoff.workloads.gridworld.evaluation import HeldOut

        torch.set_num_threads(
            1
        )  # the matrices are small: a second thread would wait, and runs in parallel use the cores
        level = find_level(params.level, params.horizon)
        held_out = HeldOut(level, params.held_out, ctx.rng) if params.held_out else None
        metrics: dict[str, Scalar] = {}
        if held_out is not None:
            for name, evaluation in held_out.walkers.items():
                metrics[f"{name}_hearts"] = float(evaluation.scores.hearts.mean())
        if not params.is_reference:
            return _train(params, ctx, held_out, metrics)
        assert held_out is not None  # params check it
        evaluation = held_out.walkers[params.policy]
        row = {"step": params.updates * params.envs * params.unroll, **held_out.metrics(evaluation)}
        (ctx.directory / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        _leave_evaluation(params, ctx, held_out, evaluation)
        return Outcome(metrics)


def _train(params: GridworldParams, ctx: RunContext, held_out: HeldOut | None, metrics: dict[str, Scalar]) -> Outcome:
    """Train a policy, from its last checkpoint on, and leave the files of `outputs`."""
    from bakeoff.workloads.gridworld.outputs import make_policy, save_policy
    from bakeoff.workloads.gridworld.ppo import PPO, seed_torch
    from bakeoff.workloads.training.files import METRICS, MODEL, Checkpoint
    from bakeoff.workloads.training.flat import Diverged

    seed_torch(ctx.rng("weights", own=not params.shared_start))
    policy = make_policy(params.policy, params.width)
    policy.initialise(lambda name: ctx.rng(name, own=not params.shared_start))
    metrics |= {"parameters": policy.size, "flops_per_step": policy.flops}
    ppo = PPO(params, policy, ctx.rng, lambda name: ctx.rng(name, own=params.own_sampling))
    checkpoint = Checkpoint(ctx.directory, ctx.checkpoint)
    if checkpoint.state:
        ppo.restore(checkpoint.state["ppo"])
    checkpoint.open({METRICS: checkpoint.state.get("length", 0)})
    while ppo.updates < params.updates:
        try:
            row = ppo.update()
        except Diverged as error:
            checkpoint.close(finished=True)
            return Outcome(metrics, "failed", str(error))
        if held_out is not None and (ppo.updates % params.eval_every == 0 or ppo.updates == params.updates):
            row |= held_out.metrics(held_out.evaluate(policy))
        checkpoint.add(row)
        stopped = ctx.cancelled
        if stopped or ppo.updates % params.save_every == 0:
            checkpoint.save({"ppo": ppo.state(), "length": checkpoint.sync()[METRICS]})
        if stopped:
            checkpoint.close(finished=False)
            return Outcome(metrics, "failed", f"stopped after {ppo.steps:,} steps")
    save_policy(ctx.directory / MODEL, params, policy)
    if held_out is not None:
        _leave_evaluation(params, ctx, held_out, held_out.evaluate(policy))
    checkpoint.close(finished=True)
    return Outcome(metrics | {"processor_s": ppo.processor_s})


def _leave_evaluation(params: GridworldParams, ctx: RunContext, held_out: HeldOut, evaluation: Evaluation) -> None:
    from bakeoff.workloads.gridworld.episode import HELD_OUT

    content = held_out.as_json(evaluation, policy=params.policy, arm=ctx.arm, seed=ctx.seed)
    (ctx.directory / HELD_OUT).write_text(json.dumps(content) + "\n")
