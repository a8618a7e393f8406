"""What a model call used and what that costs."""

from __future__ import annotations

import msgspec
from pydantic import BaseModel, ConfigDict, NonNegativeFloat

MILLION = 1_000_000


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one call. `input` contains `cached` and `cache_write`; `output` contains `reasoning`."""

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cost: float | None = None
    """In dollars, where the provider itself says so."""
    estimated: bool = False
    """The provider did not count; this is a guess from the length of the text."""

    @property
    def total(self) -> int:
        return self.input + self.output


class Price(BaseModel):
    """Dollars per million tokens. What is not given costs as much as plain input."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    input: NonNegativeFloat
    output: NonNegativeFloat
    cached: NonNegativeFloat | None = None
    cache_write: NonNegativeFloat | None = None

    def of(self, usage: Usage) -> float:
        plain = max(0, usage.input - usage.cached - usage.cache_write)
        cached = self.input if self.cached is None else self.cached
        cache_write = self.input if self.cache_write is None else self.cache_write
        dollars = plain * self.input + usage.cached * cached + usage.cache_write * cache_write
        return (dollars + usage.output * self.output) / MILLION


def cost(usage: Usage, price: Price | None) -> float | None:
    """The user's price first, then what the provider said; unknown is None and never 0."""
    return usage.cost if price is None else price.of(usage)
