"""What can break in a rollout, and what becomes of the run: the one table that docs/tasks.md and docs/rollouts.md show.

`Reason` is the metric `failure` of a run that failed. `scripts/failure_table.py` writes `table()` into the pages.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Reason = Literal["provider", "sandbox", "verification", "timeout", "patch_failed", "judge", "record"]


class Cause(NamedTuple):
    """Something that breaks."""

    phase: str
    breaks: str
    follows: str
    reason: Reason | None = None
    """None if the run has not failed for it."""


_AGAIN = (
    "repeated in a fresh sandbox on the recorded work, twice, after 1 and 5 seconds, without the agent; then `failed`"
)
CAUSES = (
    Cause(
        "preparation, until the agent's command has been started",
        "image, sandbox, proxy, the agent's program",
        "`infra_error`: tried again (`retries.infra`), then missing",
    ),
    Cause(
        "the agent works",
        "its provider fails",
        "the proxy repeats the call for `provider_patience` seconds (default 900); then `failed`, whatever its score",
        "provider",
    ),
    Cause("the agent works", "the sandbox is gone", "`failed`", "sandbox"),
    Cause("the agent works", "it crashes, is out of time, memory or budget", "what it left is scored"),
    Cause(
        "collecting",
        "pipes, sockets, devices, names that git refuses, files that are too large, vanish or cannot be read",
        "left out and listed in `left_out`; the rest is scored",
    ),
    Cause("collecting", "anything else", "repeated; then `failed`", "sandbox"),
    Cause(
        "verification", "a sandbox, an image, the tests' own tools, a missing reward", _AGAIN, "verification"
    ),
    Cause("verification", "tests of a Harbor task take longer than `timeout_sec`", "`failed`", "timeout"),
    Cause("verification", "the recorded diff does not apply to the start state", "`failed`", "patch_failed"),
    Cause("judge", "its endpoint, if the judge alone scores the task", _AGAIN, "judge"),
    Cause("custom metrics", "a script or function", "repeated; then the metric is missing and the run says why"),
    Cause("recording", "calls or results cannot be written", "`failed`", "record"),
)  # fmt: skip


def table() -> str:
    """The causes as a Markdown table."""
    rows = ["| phase | what breaks | what happens | reason |", "|---|---|---|---|"]
    before = ""
    for cause in CAUSES:
        phase = "" if cause.phase == before else cause.phase
        reason = f"`{cause.reason}`" if cause.reason else ""
        rows.append(f"| {phase} | {cause.breaks} | {cause.follows} | {reason} |".replace("|  |", "| |"))
        before = cause.phase
    return "\n".join(rows) + "\n"
