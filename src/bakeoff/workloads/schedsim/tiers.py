"""The tables of providers, pools and latencies: `tiers.toml` beside this module, or a user's own file."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bakeoff.errors import SpecError, UsageError
from bakeoff.spec.problems import problems
from bakeoff.workloads.schedsim.world import KINDS, PROVIDERS

DEFAULT = Path(__file__).with_name("tiers.toml")
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TierTable(Table):
    provider: Literal["embed_provider", "llm_provider"]
    id: Annotated[int, Field(ge=0)]
    concurrency: Annotated[int, Field(ge=1)]
    rate: Positive
    burst: Annotated[int, Field(ge=1)]
    price: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    p_fail: Share
    timeout_ms: Positive
    max_retries: Annotated[int, Field(ge=0)]
    speed: Positive = 1.0


class Pools(Table):
    cpu: Annotated[int, Field(ge=1)]
    io: Annotated[int, Field(ge=1)]


class Slow(Table):
    slow_prob: Share = 0.0
    slow_factor: Positive = 1.0


class Lognormal(Slow):
    law: Literal["lognormal"]
    mu: float
    sigma: Annotated[float, Field(ge=0)]
    per_token: float = 0.0


class Gamma(Slow):
    law: Literal["gamma"]
    shape: Annotated[int, Field(ge=1, le=12)]
    """A whole number: the draw is a sum of that many exponential ones."""
    scale: Positive


class Linear(Slow):
    law: Literal["linear"]
    base: float
    per_unit: float = 0.0
    units: float = 0.0
    spread: Annotated[float, Field(ge=0)] = 0.0


Law = Annotated[Lognormal | Gamma | Linear, Field(discriminator="law")]


class Tables(Table):
    pools: Pools
    tiers: Annotated[list[TierTable], Field(min_length=2)]
    latency: dict[str, Law]

    @model_validator(mode="after")
    def _complete(self) -> Tables:
        names = [(tier.provider, tier.id) for tier in self.tiers]
        if len(set(names)) != len(names):
            raise ValueError("two tiers have the same provider and id")
        if missing := [provider for provider in PROVIDERS if provider not in {name for name, _ in names}]:
            raise ValueError(f"no tier of {missing[0]}")
        if set(self.latency) != set(KINDS):
            raise ValueError(f"latency needs exactly {', '.join(KINDS)}")
        return self


@cache
def load_tables(path: Path | None = None) -> Tables:
    """From TOML or JSON."""
    path = path or DEFAULT
    try:
        text = path.read_text(encoding="utf-8")
        tree = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    try:
        return Tables.model_validate(tree)
    except ValidationError as error:
        raise SpecError(problems(error, Tables, given=tree), path) from error
