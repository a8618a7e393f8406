"""One step of a trajectory: what the agent saw, what it did, what it got. The unit of training data."""

from __future__ import annotations

from typing import Any

import msgspec


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the model really read and wrote, where the client tells: ids and log-probabilities, one per token."""

    prompt_ids: list[int] = []
    completion_ids: list[int] = []
    logprobs: list[float] = []


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """`reward` is what this step earned (not a running sum). `truth` is what the agent could not see."""

    observation: Any = None
    action: Any = None
    reward: float | None = None
    done: bool = False
    time_s: float | None = None
    """Seconds since the run began, on the run's own clock (simulated where there is one)."""
    messages: list[dict[str, Any]] = []
    tool_calls: list[dict[str, Any]] = []
    tokens: Tokens | None = None
    agent: str | None = None
    policy_version: str | None = None
    info: dict[str, Any] = {}
    truth: Any = None
