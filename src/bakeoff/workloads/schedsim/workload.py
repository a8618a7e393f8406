"""The `schedsim` workload: one simulation in a warm worker, its figures as metrics, its files when asked for."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from bakeoff.spec.workload import Command, Outcome, RunContext, RunFacts
from bakeoff.workloads.schedsim import outputs, summary
from bakeoff.workloads.schedsim.console import told
from bakeoff.workloads.schedsim.engine import Engine
from bakeoff.workloads.schedsim.params import SchedsimParams
from bakeoff.workloads.schedsim.policies import policy_class


def simulate(params: SchedsimParams, seed: int, base: Path, *, trace: bool = False) -> Engine:
    """Run it to the end. `base` is where a relative `tiers` starts."""
    sim = Engine(params.model(seed, base), policy_class(params.policy)(params.options()), trace=trace)
    sim.run()
    return sim


class SchedsimWorkload:
    kind: ClassVar[str] = "schedsim"
    revision: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = SchedsimParams

    def run(self, params: SchedsimParams, ctx: RunContext) -> Outcome:
        params = params.with_flags(ctx.flags)
        trace = params.outputs and params.trace_format != "none"
        sim = simulate(params, ctx.seed, ctx.base, trace=trace)
        figures = summary.metrics(sim)
        if params.outputs:
            out = ctx.directory / "out"
            files = outputs.write(sim, out, params.trace_format)
            print(*told(params, ctx.seed, out, figures, files), sep="\n", flush=True)
        if not figures["workflows_succeeded"]:
            return Outcome(figures, "failed", f"no workflow succeeded: {sim.done[0].status}")
        return Outcome(figures)

    def equivalent(self, params: SchedsimParams, ctx: RunFacts) -> Command:
        """The command line that makes the same files."""
        params = params.with_flags(ctx.flags)
        flags = params.as_flags(ctx.seed, "--out_dir", str(ctx.path / "out"))
        return Command(("bakeoff", "schedsim", *flags), ctx.base)
