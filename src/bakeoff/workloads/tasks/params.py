"""The parameters of one task rollout."""

from __future__ import annotations

from typing import ClassVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from bakeoff.spec.dialects.tasks import Variables
from bakeoff.workloads.tasks.agents.registry import AgentEntry
from bakeoff.workloads.tasks.proxy.providers import Provider
from bakeoff.workloads.tasks.scoring.judge import JudgeSettings

TIMEOUT_VARIABLE, TOKENS_VARIABLE = "TIMEOUT_SEC", "TOKEN_LIMIT"
"""Variables by which a benchmark file limits its runs; they go into the box as all others do."""


class TasksParams(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    settings: ClassVar[frozenset[str]] = frozenset({"path", "agents", "providers", "judge", "metrics"})

    path: str = Field(
        validation_alias=AliasChoices("path", "prepared_dir"), min_length=1,
        description="The task's directory; a task's own `path` in an experiment file is taken by itself.",
    )  # fmt: skip
    agent: str = Field(
        "codex", min_length=1, description="Who works: a shipped agent, one of `agents`, or module:Class."
    )
    model: str = Field("", description="The model that it uses, as `providers` knows it.")
    effort: str | None = Field(None, description="Reasoning effort, for agents and models that know one.")
    max_turns: int | None = Field(None, ge=1, description="Model calls at most, for agents that count them.")
    overrides: str | None = Field(None, description="An overrides file in place of the task's own overrides.json.")
    apply_overrides: bool = Field(True, description="False: the task as it stands.")
    environment_variables: Variables = Field({}, description="Variables in the box.")
    network: bool = Field(False, description="Give boxes a network, where the task asks for one.")
    timeout: float | None = Field(
        None, gt=0, description="Seconds for the agent; else TIMEOUT_SEC, else the task's own."
    )
    token_budget: int | None = Field(None, ge=1, description="Tokens that a rollout may use; else TOKEN_LIMIT.")
    cost_budget: float | None = Field(None, gt=0, description="Dollars that a rollout may use.")
    call_budget: int | None = Field(None, ge=1, description="Model calls that a rollout may make.")
    agents: dict[str, AgentEntry] = Field({}, description="Agents of one's own, by name.")
    providers: dict[str, Provider] = Field({}, description="Who serves which model.")
    judge: JudgeSettings | None = Field(None, description="A model that judges rubrics.")
    metrics: list[str] = Field([], description="Metrics of one's own: module:function, or a script.")

    @field_validator("environment_variables")
    @classmethod
    def _limits_are_numbers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, kind in ((TIMEOUT_VARIABLE, float), (TOKENS_VARIABLE, int)):
            if name in value and not _positive(value[name], kind):
                raise ValueError(f"the limit {name} must be a number above 0, not {value[name]!r}")
        return value

    def seconds(self) -> float | None:
        """How long the agent may take on each step; None is what the step itself says."""
        told = self.environment_variables.get(TIMEOUT_VARIABLE)
        return self.timeout or (float(told) if told else None)

    def tokens(self) -> int | None:
        told = self.environment_variables.get(TOKENS_VARIABLE)
        return self.token_budget or (int(told) if told else None)


def _positive(text: str, kind: type[float | int]) -> bool:
    try:
        return kind(text) > 0
    except ValueError:
        return False
