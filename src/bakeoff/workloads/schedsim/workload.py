"""The `schedsim` workload and its parameters, which are also the options of `bakeoff schedsim`.

A run is one simulation in a warm worker: its figures become metrics, and its files are written when `outputs` is set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bakeoff.errors import UsageError
from bakeoff.spec.workload import Command, Outcome, RunContext, RunFacts
from bakeoff.workloads.schedsim import outputs
from bakeoff.workloads.schedsim.dialect import DIRECTIONS, PARAMETERS
from bakeoff.workloads.schedsim.draws import load_tables
from bakeoff.workloads.schedsim.engine import Engine, Model
from bakeoff.workloads.schedsim.outputs import TraceFormat
from bakeoff.workloads.schedsim.policies import Options, check_name, policy_class
from bakeoff.workloads.schedsim.world import MILLION, shape

Count = Annotated[int, Field(gt=0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SchedsimParams(BaseModel):
    """One simulation. A field's docstring is the help text of its option."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    settings: ClassVar[frozenset[str]] = frozenset({"outputs", "trace_format"})

    workflows: Count = 100
    """Workflows. All of them arrive at time 0."""
    pdfs: Count = 10
    """PDFs in each iteration of a workflow."""
    iters: Count = 3
    """Iterations of a workflow, at most."""
    subqueries: Annotated[int, Field(ge=0)] = 4
    """Subqueries for each PDF."""
    policy: Annotated[str, AfterValidator(check_name)] = "full"
    """fifo_cheapest, dag_cheapest, dag_escalation, full, critical_path, restart_stragglers, or module:Class."""
    time_scale: Count = 50
    """Accepted, and changes nothing: time is virtual."""
    heavy_tail_prob: Finite = 0.02
    """Chance that an attempt takes heavy_tail_mult times as long."""
    heavy_tail_mult: Finite = 50.0
    """How many times as long such an attempt takes."""
    enable_model_routing: bool = False
    """Let the policy choose tiers. Without it any tier with room is taken, and there is no escalation or hedging."""
    disable_hedging: bool = False
    """No duplicates and no restarts of stragglers."""
    disable_escalation: bool = False
    """No escalation to more expensive tiers."""
    disable_dag_priority: bool = False
    """The oldest workflow first, whatever the order of the policy."""
    spill: bool = False
    """Policies of the cheapest tier also use more expensive ones that have room."""
    hedge_stretch: NotNegative = 1.5
    """full: a straggler takes longer than this many times the 95th percentile."""
    hedges_per_node: Annotated[int, Field(ge=0)] = 1
    """Duplicates of one node, at most."""
    escalation_threshold: NotNegative = 0.5
    """Escalate from this many milliseconds gained for each unit of price."""
    budget: NotNegative = 10.0
    """What each workflow may spend; it ends as over_budget when no tier is affordable."""
    max_in_flight: Count = 200
    """Attempts that may run at a time, over all tiers and pools."""
    legacy_timeout: bool = False
    """Check timeouts before the heavy tail, as older versions of this model did."""
    mixed_evidence: bool = False
    """Mix the seed before evidence is hashed, so that neighbouring seeds do not share it."""
    tiers: str | None = None
    """A TOML or JSON file with tiers, pools and latencies, instead of the built-in tables."""
    trace_format: TraceFormat = "json"
    """trace.json, a timeline for chrome://tracing and ui.perfetto.dev in trace.perfetto.json, both or none."""
    outputs: bool = False
    """In an experiment: also write the files of `bakeoff schedsim` into the run's out/."""

    def with_flags(self, flags: Sequence[str]) -> SchedsimParams:
        """The parameters as command-line flags change them: `--name`, `--name value` or `--name=value`.

        Raises UsageError for an unknown flag and for a value that is not allowed.
        """
        changes: dict[str, Any] = {}
        rest = list(flags)
        while rest:
            name, equals, value = rest.pop(0).partition("=")
            field = type(self).model_fields.get(name.removeprefix("--"))
            if not name.startswith("--") or field is None:
                raise UsageError(f"the simulator has no flag {name!r}; `bakeoff schedsim --help` lists them")
            if not equals and field.annotation is not bool:
                if not rest:
                    raise UsageError(f"flag {name} needs a value")
                value = rest.pop(0)
            changes[name.removeprefix("--")] = value if value or equals else True
        try:
            return SchedsimParams.model_validate({**self.model_dump(), **changes}) if changes else self
        except ValidationError as error:
            problems = [f"--{problem['loc'][0]}: {problem['msg']}" for problem in error.errors()]
            raise UsageError("; ".join(problems)) from error

    def as_flags(self, seed: int, *more: str) -> list[str]:
        """The options that repeat this run: those that the sweep runner writes, then others that are not defaults."""
        values: dict[str, Any] = {name: seed if name == "seed" else getattr(self, name) for name in PARAMETERS}
        values |= {name: value for name, value in self.model_dump(exclude_defaults=True).items() if name not in values}
        values.pop("outputs", None)
        words: list[str] = []
        for name, value in values.items():
            words.append(f"--{name}")
            if value is not True:
                words.append(f"{value:g}" if isinstance(value, float) else str(value))
        return [*words, *more]

    def printed(self, seed: int, out_dir: Path) -> dict[str, Any]:
        """The settings that a run prints, in the order of the sweep runner's simulator."""
        first = ("workflows", "pdfs", "iters", "subqueries", "policy")
        last = ("enable_model_routing", "disable_hedging", "disable_escalation", "disable_dag_priority")
        return {
            **{name: getattr(self, name) for name in first},
            "seed": seed,
            "time_scale": self.time_scale,
            "out_dir": out_dir,
            **{name: getattr(self, name) for name in last},
        }


def simulate(params: SchedsimParams, seed: int, base: Path, *, trace: bool = False) -> Engine:
    """Run one simulation to its end. `base` is where a relative `tiers` starts.

    Raises UsageError for a policy that cannot be imported and for tables that cannot be read.
    """
    model = Model(
        shape=shape(params.pdfs, params.subqueries),
        tables=load_tables(base / params.tiers if params.tiers else None),
        workflows=params.workflows,
        iterations=params.iters,
        seed=seed,
        heavy_tail_prob=params.heavy_tail_prob,
        heavy_tail_mult=params.heavy_tail_mult,
        legacy_timeout=params.legacy_timeout,
        budget=round(params.budget * MILLION),
        max_in_flight=params.max_in_flight,
        mixed_evidence=params.mixed_evidence,
    )
    options = Options(
        routing=params.enable_model_routing,
        hedging=not params.disable_hedging,
        escalation=not params.disable_escalation,
        dag_priority=not params.disable_dag_priority,
        spill=params.spill,
        hedge_stretch=params.hedge_stretch,
        hedges_per_node=params.hedges_per_node,
        escalation_threshold=params.escalation_threshold,
    )
    sim = Engine(model, policy_class(params.policy)(options), trace=trace)
    sim.run()
    return sim


class SchedsimWorkload:
    """The workload; see `spec/workload.py` for the interface."""

    kind: ClassVar[str] = "schedsim"
    revision: ClassVar[str] = "2"
    Params: ClassVar[type[BaseModel]] = SchedsimParams
    directions: ClassVar[Mapping[str, Literal["maximize", "minimize"]]] = DIRECTIONS
    analysis: ClassVar[Mapping[str, Any]] = {"metric": "flow_time_mean_ms", "direction": "minimize", "tasks": "fixed"}
    """As sweep files are judged when this simulator runs them (`sweep_plan.py`)."""

    def run(self, params: SchedsimParams, ctx: RunContext) -> Outcome:
        """Simulate, write files if asked to, and fail when no workflow succeeded."""
        params = params.with_flags(ctx.flags)
        trace = params.outputs and params.trace_format != "none"
        sim = simulate(params, ctx.seed, ctx.base, trace=trace)
        figures = outputs.metrics(sim)
        if params.outputs:
            out = ctx.directory / "out"
            files = outputs.write(sim, out, params.trace_format)
            print(*outputs.printed(params.printed(ctx.seed, out), figures, files), sep="\n", flush=True)
        if not figures["workflows_succeeded"]:
            return Outcome(figures, "failed", f"no workflow succeeded: {sim.done[0].status}")
        return Outcome(figures)

    def equivalent(self, params: SchedsimParams, ctx: RunFacts) -> Command:
        """The command line that writes the same files."""
        params = params.with_flags(ctx.flags)
        flags = params.as_flags(ctx.seed, "--out_dir", str(ctx.path / "out"))
        return Command(("bakeoff", "schedsim", *flags), ctx.base)
