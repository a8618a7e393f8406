"""The `market` workload: one agent in one world. The seed draws the world, so every arm meets the same worlds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bakeoff.spec.workload import Outcome, RunContext, Scalar
from bakeoff.workloads.market.scenario import (
    Scenario,
    read_secret,
    scenario,
    secret_label,
    secret_warning,
    world_key,
)  # fmt: skip

if TYPE_CHECKING:
    from bakeoff.workloads.market.agents.program import Access

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class MarketParams(Scenario):
    """A scenario, and the agent that plays it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    settings: ClassVar[frozenset[str]] = frozenset({"save_trajectories", "outputs", "response_timeout", "secret_file"})

    agent: str = "null"
    """A shipped agent, `module:Class`, `file.py:Class`, `process:file.py:Class`, `cmd:PROGRAM`, `llm:MODEL` or `policy:FILE`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the agent's constructor."""
    benchmark: str | None = None
    """A file of `bakeoff market generate`: its world is played, and the seed drives only the agent."""
    mounts: list[str] = Field(default_factory=list)
    """Files and directories that a `cmd:` or `process:` agent may read beyond its own."""
    env: list[str] = Field(default_factory=list)
    """Variables of such an agent: `NAME=value`, or `NAME` for the value that bakeoff has."""
    network: bool = False
    """Whether such an agent has a network."""
    secret_file: str | None = None
    """A file with the secret that draws the worlds (default: the variable BAKEOFF_MARKET_SECRET, or the published one)."""
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
        if self.benchmark is not None and (self.scenario != scenario() or self.secret_file is not None):
            raise ValueError(
                "a benchmark file brings its own scenario: leave duration_minutes, markets, regime, secret_file ... out"
            )
        return self

    @property
    def scenario(self) -> Scenario:
        return Scenario.model_validate({name: getattr(self, name) for name in Scenario.model_fields})

    def access(self, base: Path, results: Path | None = None) -> Access:
        """Return what a program of the agent may see; never `results`, the secret or what belongs to the benchmark."""
        from bakeoff.workloads.market.agents.program import Access

        hidden = [base / name for name in (self.secret_file, self.benchmark) if name is not None]
        hidden += [results] if results is not None else []
        return Access(tuple(self.mounts), tuple(self.env), self.network, tuple(hidden))

    def world(self, seed: int, base: Path) -> Drawn:
        """Return the world that the parameters and the seed draw. Raises UsageError."""
        if self.benchmark is None:
            secret = read_secret(base / self.secret_file if self.secret_file else None)
            return Drawn(self.scenario, world_key(self.scenario, seed, secret), secret_label(secret))
        from bakeoff.workloads.market.snapshot import load

        snapshot = load(base / self.benchmark)
        return Drawn(snapshot.scenario, snapshot.key, snapshot.secret)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The world of one run."""

    scenario: Scenario
    key: bytes
    secret: str
    """How results name the secret that drew it (`scenario.secret_label`)."""


CLOCKED = frozenset({"think_ms_mean", "think_ms_max"})
"""Metrics of the machine's clock: they differ between runs that are otherwise the same."""


class MarketWorkload:
    """The interface to the rest of bakeoff; see `spec/workload.py`."""

    kind: ClassVar[str] = "market"
    revision: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = MarketParams
    directions: ClassVar[Mapping[str, Literal["maximize", "minimize"]]] = dict.fromkeys(
        ("brier", "cost", "cost_usd", "regret", "think_ms_mean", "think_ms_max", "errors"), "minimize",
    )  # fmt: skip
    analysis: ClassVar[Mapping[str, Any]] = {"metric": "total_pnl", "direction": "maximize", "failure_score": -10_000.0}
    """An agent that fails has lost its stake (`world/layout.py`: STAKE, which only runs import)."""

    def configure(self, options: Mapping[str, str], accept: Callable[[str], None]) -> None:
        """Take `--sandbox` of `bakeoff run`."""
        from bakeoff.sandbox.base import choose_for_workers

        risk = "without a sandbox agents run as you: they can read the secret that draws the worlds, and your files"
        choose_for_workers(options.get("sandbox"), accept, risk)

    def check(self, params: MarketParams, base: Path) -> list[str]:
        """Return what the user should know about the secret, and who can reach it.

        Raises UsageError for names and files that do not exist, and for a sandbox that is needed and missing. An agent's
        own code is not loaded here.
        """
        from bakeoff.errors import UsageError, install
        from bakeoff.workloads.market.agents.base import BASELINES, agent_class, in_process_warning

        # Found without importing it, which takes most of a second. Else every run would fail, as if its arm had.
        if find_spec("numba") is None:
            raise UsageError(f"the market world needs the package numba: {install('market')}")
        if ":" not in params.agent and params.agent not in BASELINES:
            agent_class(params.agent, base)
        policy = params.agent.removeprefix("policy:") if params.agent.startswith("policy:") else None
        files = {"benchmark": params.benchmark, "secret_file": params.secret_file, "agent = policy:FILE": policy}
        for name, file in files.items():
            if file is not None and not (base / file).is_file():
                raise UsageError(f"{name}: there is no file {base / file}")
        if params.agent.startswith(("cmd:", "process:")):
            from bakeoff.workloads.market.agents.program import environment, usable_sandbox

            usable_sandbox()
            environment(params.access(base))
        notes = [in_process_warning(params.agent)]
        if params.benchmark is None:
            secret = read_secret(base / params.secret_file if params.secret_file else None)
            notes = [secret_warning(secret) or notes[0]]  # nobody needs to steal a secret that everyone knows
        return [note for note in notes if note]

    def run(self, params: MarketParams, ctx: RunContext) -> Outcome:
        """Play one agent in one world. A run in which the agent never acted has failed."""
        from bakeoff.workloads.market import outputs
        from bakeoff.workloads.market.agents.base import load
        from bakeoff.workloads.market.metrics import drawdowns
        from bakeoff.workloads.market.play import Prices, roll_out

        world = params.world(ctx.seed, ctx.base)
        rollout = roll_out(
            world.scenario,
            world.key,
            load(
                params.agent,
                params.options,
                base=ctx.base,
                access=params.access(ctx.base, _results(ctx.path, ctx.base)),
            ),
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
        metrics: dict[str, Scalar] = {name: value for name, value in rollout.metrics.items() if value is not None}
        metrics["secret"] = world.secret
        if rollout.never_acted:
            return Outcome(metrics, "failed", f"the agent never acted: {rollout.trouble}")
        return Outcome(metrics)


def _results(run: Path, base: Path) -> Path:
    """Return the directory of all results, given that of a run: ROOT/EXPERIMENT/EDITION/runs/RUN.

    If the experiment's file is below the root, it is the directory of the experiment's results.
    """
    root = run.absolute().parents[3]
    return run.absolute().parents[2] if base.absolute().is_relative_to(root) else root
