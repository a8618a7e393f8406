"""The `market` workload: one agent in one world. The seed draws the world, so every arm meets the same worlds."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bakeoff.spec.workload import Outcome, RunContext
from bakeoff.workloads.market.scenario import Scenario, scenario, world_key

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class MarketParams(Scenario):
    """A scenario, and the agent that plays it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    settings: ClassVar[frozenset[str]] = frozenset({"save_trajectories", "outputs", "response_timeout"})

    agent: str = "null"
    """A shipped agent, `module:Class`, `file.py:Class`, `process:file.py:Class`, `cmd:PROGRAM`, `llm:MODEL` or `policy:FILE`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the agent's constructor."""
    benchmark: str | None = None
    """A file of `bakeoff market generate`: its world is played, and the seed drives only the agent."""
    response_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 30.0
    """Seconds for a turn; what an agent does later is refused."""
    save_trajectories: bool = False
    """Keep what the agent saw and did, step by step, for training."""
    outputs: bool = False
    """Write actions.csv, equity.csv, prices.csv and more into the run's out/, with what was hidden in truth.json."""
    prompt_price: NotNegative = 0.0
    """Dollars for a million prompt tokens, for `cost_usd`."""
    completion_price: NotNegative = 0.0
    """Dollars for a million completion tokens."""

    @model_validator(mode="after")
    def _has_one_world(self) -> Self:
        if self.benchmark is not None and self.scenario != scenario():
            raise ValueError(
                "a benchmark file brings its own scenario: leave duration_minutes, markets, regime ... out"
            )
        return self

    @property
    def scenario(self) -> Scenario:
        return Scenario.model_validate({name: getattr(self, name) for name in Scenario.model_fields})

    def world(self, seed: int, base: Path) -> tuple[Scenario, bytes]:
        """Return the scenario, and the key that draws its world."""
        if self.benchmark is None:
            return self.scenario, world_key(self.scenario, seed)
        from bakeoff.workloads.market.snapshot import load

        snapshot = load(base / self.benchmark)
        return snapshot.scenario, snapshot.key


class MarketWorkload:
    """The interface to the rest of bakeoff; see `spec/workload.py`."""

    kind: ClassVar[str] = "market"
    revision: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = MarketParams

    def check(self, params: MarketParams, base: Path) -> None:
        """Raise UsageError for names and files that do not exist. An agent's own code is not loaded here."""
        from bakeoff.errors import UsageError
        from bakeoff.workloads.market.agents.base import BASELINES, agent_class

        # Found without importing it, which takes most of a second. Else every run would fail, as if its arm had.
        if find_spec("numba") is None:
            raise UsageError("the market world needs the package numba: pip install 'bakeoff[market]'")
        if ":" not in params.agent and params.agent not in BASELINES:
            agent_class(params.agent, base)
        policy = params.agent.removeprefix("policy:") if params.agent.startswith("policy:") else None
        for name, file in (("benchmark", params.benchmark), ("agent = policy:FILE", policy)):
            if file is not None and not (base / file).is_file():
                raise UsageError(f"{name}: there is no file {base / file}")

    def run(self, params: MarketParams, ctx: RunContext) -> Outcome:
        """Play one agent in one world. A run in which the agent never acted has failed."""
        from bakeoff.workloads.market import outputs
        from bakeoff.workloads.market.agents.base import load
        from bakeoff.workloads.market.metrics import drawdowns
        from bakeoff.workloads.market.play import Prices, roll_out

        scenario, key = params.world(ctx.seed, ctx.base)
        rollout = roll_out(
            scenario,
            key,
            load(params.agent, params.options, base=ctx.base),
            # Own chance: two arms in one world draw different numbers, and so do two rollouts of one arm.
            seed=int(ctx.rng("agent", own=True).integers(2**63)),
            response_timeout=params.response_timeout,
            prices=Prices(params.prompt_price, params.completion_price),
            stop=lambda: ctx.cancelled,
        )
        result = rollout.result
        falls = drawdowns(result.equity)
        for tick, (equity, cash, drawdown) in enumerate(zip(result.equity, result.cash, falls, strict=True)):
            ctx.log(tick, equity=equity, cash=cash, drawdown=drawdown)
        if params.save_trajectories:
            for step in rollout.steps():
                ctx.trajectory(step)
        if params.outputs:
            outputs.write(rollout, ctx.directory / "out")
        metrics = {name: value for name, value in rollout.metrics.items() if value is not None}
        if rollout.never_acted:
            return Outcome(metrics, "failed", f"the agent never acted: {rollout.trouble}")
        return Outcome(metrics)
