"""What a market scenario is: its size, regime and tier, the key that draws a world from it, and its rules in words.

A scenario is public. A secret and a seed decide which of its worlds is played; `world_key` turns all three into the
key of the random draws (see `world.philox`).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bakeoff.errors import UsageError
from bakeoff.spec.identity import canonical_json

Regime = Literal["mixed", "calm", "trend", "crash", "scandal", "pump-and-dump", "drought"]
Tier = Literal["easy", "normal", "hard"]
Tape = Literal["anonymous", "named"]
REGIMES: tuple[str, ...] = get_args(Regime)
TIERS: tuple[str, ...] = get_args(Tier)

SECRET_VARIABLE = "BAKEOFF_MARKET_SECRET"
PUBLISHED_SECRET = "bakeoff-market-published-secret"
"""Draws the worlds of experiments and demos that set no secret. Anyone can find such a world by trying seeds."""
CALIBRATION_SECRET = "bakeoff-market-calibration"
"""Draws the worlds that scores are calibrated with (`play.bayes_gain`), so that they are not among anyone's test worlds."""
SHORTEST_SECRET = 16
"""Characters. A shorter secret may be found by trying."""

PUBLISHED = "published"
"""The label of secrets that everyone knows."""
PUBLISHED_WARNING = (
    "this world is drawn with the published secret, so an agent can find it by trying seeds and know "
    f"everything that will happen; for a contest set {SECRET_VARIABLE}, or name a secret file"
)

LARGEST_SEED = 2**63 - 1
MOST_TICKS = 2**31 - 1
"""Posts keep the tick in 32 signed bits."""


class Scenario(BaseModel):
    """The public parameters of a world."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    duration_minutes: int = Field(default=30, ge=1, description="World time, in minutes.")
    tick_interval: int = Field(default=60, ge=1, description="World seconds between two ticks.")
    markets: int = Field(default=5, ge=0, le=64, description="Prediction markets open at a time.")
    perpetuals: int = Field(default=3, ge=0, le=32, description="Perpetual futures.")
    agents: int = Field(default=8, ge=0, le=256, description="Background traders.")
    regime: Regime = Field(default="mixed", description="How stories unfold; `mixed` draws a regime for each story.")
    tier: Tier = Field(default="normal", description="How clear the news and how expensive the trading is.")

    tape: Tape = Field(default="anonymous", description="Whether the list of all trades names the traders.")

    @model_validator(mode="after")
    def _has_something_to_do(self) -> Self:
        if self.markets == 0 and self.perpetuals == 0:
            raise ValueError("there is nothing to trade: give at least one market or one perpetual")
        if self.ticks < 1:
            raise ValueError(
                f"{self.duration_minutes} minutes hold no tick of {self.tick_interval} seconds: "
                "make the duration longer or the interval shorter"
            )
        if self.ticks > MOST_TICKS:
            raise ValueError(f"{self.ticks} ticks are more than {MOST_TICKS}: make the duration shorter")
        return self

    @property
    def ticks(self) -> int:
        """Whole ticks in the duration; a rest shorter than one interval is left out."""
        return self.duration_minutes * 60 // self.tick_interval

    @property
    def assets(self) -> int:
        """Every perpetual has an asset; a world without perpetuals still has one that its questions are about."""
        return max(1, self.perpetuals)

    @property
    def digest(self) -> str:
        """SHA-256 over the scenario's canonical JSON. The usual tape is left out, so older digests stay."""
        usual = {"tape"} if self.tape == "anonymous" else None
        return hashlib.sha256(canonical_json(self.model_dump(mode="json", exclude=usual)).encode()).hexdigest()

    @property
    def law(self) -> str:
        """What decides how a world unfolds.

        The duration does not, so a longer world begins like a shorter one; nor does what the tape shows.
        """
        return canonical_json(self.model_dump(mode="json", exclude={"duration_minutes", "tape"}))


PRESETS: Mapping[str, Scenario] = {
    "default": Scenario(),
    "quick": Scenario(duration_minutes=10, markets=3, perpetuals=2, agents=6),
    "bench": Scenario(duration_minutes=60, markets=8, perpetuals=5, agents=8),
    **{name: Scenario(regime=name) for name in get_args(Regime) if name != "mixed"},
    **{name: Scenario(tier=name) for name in get_args(Tier)},
}
"""Scenarios by name."""


def scenario(**values: Any) -> Scenario:
    """A scenario from loose values. Raises UsageError with the first key that is wrong."""
    try:
        return Scenario.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"scenario: {key}: {message}" if key else f"scenario: {message}") from error


def read_secret(file: Path | None = None) -> str:
    """The secret that draws worlds: from the file, else from the environment, else the published one."""
    if file is None:
        return os.environ.get(SECRET_VARIABLE) or PUBLISHED_SECRET
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read as a secret: {error}") from error
    if not secret:
        raise UsageError(f"{file}: the secret is empty; write one line of random text into it")
    return secret


def draw_secret() -> str:
    """A new secret of 256 random bits."""
    return secrets.token_urlsafe(32)


def keep_secret(file: Path) -> str:
    """The secret that `file` holds. The first call draws it and writes the file, which only its owner can read.

    Raises UsageError when the file cannot be read or written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        try:
            return str(json.loads(file.read_text(encoding="utf-8"))["secret"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{file}: holds no secret ({error}); remove it to draw another world") from error
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
    secret = draw_secret()
    with os.fdopen(opened, "w", encoding="utf-8") as written:
        json.dump({"secret": secret}, written)
    return secret


def secret_label(secret: str) -> str:
    """How results name a secret without revealing it: `published`, or the beginning of a SHA-256.

    The digest has its own prefix, so that it says nothing about `world_key`.
    """
    if secret in (PUBLISHED_SECRET, CALIBRATION_SECRET):
        return PUBLISHED
    return "sha256:" + hashlib.sha256(b"bakeoff-market-secret-label\0" + secret.encode()).hexdigest()[:16]


def secret_warning(secret: str) -> str | None:
    """Return what to tell the owner about a secret that agents know or may guess; None for a good one."""
    if secret_label(secret) == PUBLISHED:
        return PUBLISHED_WARNING
    if len(secret) < SHORTEST_SECRET:
        return (
            f"the secret has fewer than {SHORTEST_SECRET} characters, so an agent may guess it and know "
            "everything that will happen; use a longer one"
        )
    return None


def world_key(scenario: Scenario, seed: int, secret: str | None = None) -> bytes:
    """The 16 bytes that key every draw of a world. `secret` defaults to that of `read_secret()`."""
    if not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"seed {seed} is not in the range 0 to {LARGEST_SEED}")
    parts = ("bakeoff-market-1", secret if secret is not None else read_secret(), scenario.law, str(seed))
    return hashlib.sha256(canonical_json(parts).encode()).digest()[:16]


# -- the rules, for agents that read

_RULES = """\
You trade in a simulated world. Time moves in {ticks} ticks. In each tick you may look around and act up to \
{budget} times; then you end your turn and time moves on.{deadline} Your score is the growth of your equity: cash and \
what everything you hold would bring if it were sold now.

Prediction markets: each asks a question about an asset and resolves YES or NO at a known tick. A share of the \
right side then pays 1 dollar, the other nothing. Your own orders move the price, and every order pays a fee.

Perpetual futures: go long or short in an asset. `size` is the notional value in dollars; size / leverage is taken as \
margin. You cannot lose more than the margin, and the position is liquidated when too little of it is left. Funding is \
paid from time to time: longs pay shorts when the price is above the index. Announcements come at known ticks \
and may move the price at once.

News: sources post claims about what the next announcement will say. Some sources are right more often than chance, \
some less; you are not told which, but announcements show who was right. Group chats invite traders with a good \
reputation and bring further claims, some of them meant to deceive. Other traders may push prices or spread rumours.

Reputation: when you post a probability for a market, it is scored when the market resolves."""


def rules_text(model: Mapping[str, Any], action_budget: int, response_timeout: float | None) -> str:
    """How the world works, in words, with the scenario's public numbers.

    `model` is `World.public_model()`. `play` puts the text into the brief of every agent, `serve.mcp` offers it as a
    resource.
    """
    deadline = ""
    if response_timeout is not None:
        deadline = f" You have {response_timeout:g} seconds; calls after that are ignored."
    text = _RULES.format(ticks=model["ticks"], budget=action_budget, deadline=deadline)
    facts = "\n".join(f"- {name}: {value}" for name, value in model.items() if isinstance(value, str | int | float))
    return f"{text}\n\nThis scenario:\n{facts}"
