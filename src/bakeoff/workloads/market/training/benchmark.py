"""The experiment that decides: the trained policy, its starting point and `momentum` in worlds that training never saw."""

from __future__ import annotations

from pathlib import Path

from bakeoff.spec.identity import canonical_json
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.training.policy import Policy

METRIC = "total_pnl"
START, TRAINED, MOMENTUM = "start", "trained", "momentum"
RIVALS = (START, MOMENTUM)
"""What the trained policy has to beat."""


def write_experiment(directory: Path, scenario: Scenario, start: Policy, trained: Policy, worlds: int) -> Path:
    """The policies and the experiment file, whose name holds the policy's version: another policy is another experiment."""
    for policy in (start, trained):
        policy.save(directory / policy_file(policy))
    name = f"market-train-{trained.version}"
    arms = {START: f"policy:{policy_file(start)}", TRAINED: f"policy:{policy_file(trained)}", MOMENTUM: MOMENTUM}
    lines = [
        f'name = "{name}"',
        'description = "A trained policy against its starting point and momentum, in worlds that training never saw."',
        'workload = "market"',
        f'seeds = "1..{worlds}"',
        "",
        "[params]",
        *(f"{key} = {canonical_json(value)}" for key, value in scenario.model_dump(mode="json").items()),
        "",
        *(line for arm, agent in arms.items() for line in _arm(arm, agent)),
        "[analysis]",
        f'metric = "{METRIC}"',
        f'control = "{START}"',
    ]
    path = directory / "benchmark.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _arm(name: str, agent: str) -> list[str]:
    return ["[[arms]]", f'name = "{name}"', f'params = {{ agent = "{agent}" }}', ""]


def policy_file(policy: Policy) -> str:
    return f"policy-{policy.version}.json"
