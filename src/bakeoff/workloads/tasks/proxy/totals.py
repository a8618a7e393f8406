"""What a run's calls add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bakeoff.workloads.tasks.proxy.calls import Call, ToolSet


@dataclass(frozen=True, slots=True)
class Totals:
    calls: int = 0
    """Answered by the model."""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = 0.0
    """Dollars; None when the price of any call is unknown."""
    tool_calls: int = 0
    estimated: bool = False
    """A provider did not count tokens; some are guessed."""
    limit: str | None = None
    """The budget that ended a call, if one did."""
    broken: str | None = None
    """The provider failed and no later call was answered: the run could not be tried, and must not be scored."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def add_up(records: Iterable[Call | ToolSet]) -> Totals:
    calls = [record for record in records if isinstance(record, Call)]
    answered = [call for call in calls if call.end == "answered"]
    used = [call for call in calls if call.usage is not None]
    usages = [call.usage for call in used if call.usage is not None]
    costs = [call.cost for call in used]
    return Totals(
        calls=len(answered),
        input_tokens=sum(usage.input for usage in usages),
        cached_tokens=sum(usage.cached for usage in usages),
        output_tokens=sum(usage.output for usage in usages),
        reasoning_tokens=sum(usage.reasoning for usage in usages),
        cost=None if None in costs else sum((cost for cost in costs if cost is not None), 0.0),
        tool_calls=sum(len(call.reply.get("tool_calls", ())) for call in answered if call.reply),
        estimated=any(usage.estimated for usage in usages),
        limit=next((call.limit for call in calls if call.limit), None),
        broken=_broken(calls),
    )


def _broken(calls: list[Call]) -> str | None:
    for call in reversed(calls):
        if call.end == "answered":
            return None
        if call.end == "upstream":
            return call.error or f"the provider answered {call.status}"
    return None
