"""The parameters of a run, which are also the options of `bakeoff schedsim`: written down once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bakeoff.errors import UsageError
from bakeoff.workloads.schedsim.model import Model
from bakeoff.workloads.schedsim.outputs import TraceFormat
from bakeoff.workloads.schedsim.policies import check_name
from bakeoff.workloads.schedsim.policies.interface import Options
from bakeoff.workloads.schedsim.resources import MILLION
from bakeoff.workloads.schedsim.tiers import load_tables
from bakeoff.workloads.schedsim.workflow import shape

Count = Annotated[int, Field(gt=0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SchedsimParams(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    settings: ClassVar[frozenset[str]] = frozenset({"outputs", "trace_format"})

    workflows: Count = 100
    """Workflows, all of which arrive at time 0."""
    pdfs: Count = 10
    """PDFs in each iteration of a workflow."""
    iters: Count = 3
    """Most iterations of a workflow."""
    subqueries: Annotated[int, Field(ge=0)] = 4
    """Subqueries for each PDF."""
    policy: Annotated[str, AfterValidator(check_name)] = "full"
    """fifo_cheapest, dag_cheapest, dag_escalation, full, critical_path, restart_stragglers, or module:Class."""
    time_scale: Count = 50
    """Accepted, and changes nothing: time is virtual."""
    heavy_tail_prob: Finite = 0.02
    """Chance that an attempt takes heavy_tail_mult times as long."""
    heavy_tail_mult: Finite = 50.0
    """How much longer it takes then."""
    enable_model_routing: bool = False
    """Let the policy choose tiers. Without it any tier with room is taken, and there is no escalation or hedging."""
    disable_hedging: bool = False
    """No duplicates and no restarts of stragglers."""
    disable_escalation: bool = False
    """No escalation to dearer tiers."""
    disable_dag_priority: bool = False
    """The oldest workflow first, whatever the policy's own order."""
    spill: bool = False
    """Policies of the cheapest tier also use dearer ones that have room."""
    hedge_stretch: NotNegative = 1.5
    """full: a straggler takes longer than this many times the 95th percentile."""
    hedges_per_node: Annotated[int, Field(ge=0)] = 1
    """Most duplicates of one node."""
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

    def model(self, seed: int, base: Path) -> Model:
        return Model(
            shape=shape(self.pdfs, self.subqueries),
            tables=load_tables(base / self.tiers if self.tiers else None),
            workflows=self.workflows,
            iterations=self.iters,
            seed=seed,
            heavy_tail_prob=self.heavy_tail_prob,
            heavy_tail_mult=self.heavy_tail_mult,
            legacy_timeout=self.legacy_timeout,
            budget=round(self.budget * MILLION),
            max_in_flight=self.max_in_flight,
            mixed_evidence=self.mixed_evidence,
        )

    def options(self) -> Options:
        return Options(
            routing=self.enable_model_routing,
            hedging=not self.disable_hedging,
            escalation=not self.disable_escalation,
            dag_priority=not self.disable_dag_priority,
            spill=self.spill,
            hedge_stretch=self.hedge_stretch,
            hedges_per_node=self.hedges_per_node,
            escalation_threshold=self.escalation_threshold,
        )

    def with_flags(self, flags: Sequence[str]) -> SchedsimParams:
        """Changed as by these command-line flags: `--name`, `--name value` or `--name=value`."""
        given, rest = {}, list(flags)
        while rest:
            name, equals, value = rest.pop(0).partition("=")
            field = type(self).model_fields.get(name.removeprefix("--"))
            if not name.startswith("--") or field is None:
                raise UsageError(f"the simulator has no flag {name!r}; `bakeoff schedsim --help` lists them")
            if not equals and field.annotation is not bool:
                if not rest:
                    raise UsageError(f"flag {name} needs a value")
                value = rest.pop(0)
            given[name.removeprefix("--")] = value if value or equals else True
        try:
            return SchedsimParams.model_validate({**self.model_dump(), **given}) if given else self
        except ValidationError as error:
            raise UsageError(
                "; ".join(f"--{problem['loc'][0]}: {problem['msg']}" for problem in error.errors())
            ) from error

    def as_flags(self, seed: int, *also: str) -> list[str]:
        """The options that make the same run: those that the sweep runner writes, then others that differ from the default."""
        values: dict[str, Any] = {**{name: getattr(self, name) for name in WRITTEN[:5]}, "seed": seed}
        values |= {name: getattr(self, name) for name in WRITTEN[5:]}
        values |= {name: value for name, value in self.model_dump(exclude_defaults=True).items() if name not in values}
        values.pop("outputs", None)
        words: list[str] = []
        for name, value in values.items():
            words += (
                [f"--{name}"]
                if value is True
                else [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
            )
        return [*words, *also]


WRITTEN = (
    "workflows", "pdfs", "iters", "subqueries", "policy", "time_scale", "heavy_tail_prob", "heavy_tail_mult",
)  # fmt: skip
