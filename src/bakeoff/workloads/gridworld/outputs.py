"""The files of a run.

metrics.jsonl   one line for each update; the engine reads its numbers
held_out.json   the last evaluation, room by room: task numbers, hearts and actions, so that anybody can replay it
model.pt        the trained policy
"""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.workloads.gridworld.params import GridworldParams
from bakeoff.workloads.gridworld.policies import POLICIES, Policy
from bakeoff.workloads.training.files import MODEL, read_tensors, save_tensors

FORMAT = "bakeoff-gridworld-policy-2"
WITHOUT_BUFFERS = "bakeoff-gridworld-policy-1"
"""The format that had the trained weights only."""


def make_policy(name: str, width: int) -> Policy:
    """A built-in policy, whose weights are not drawn yet, or one named as `module:Class`. Raises UsageError."""
    try:
        made = POLICIES[name](width) if name in POLICIES else pkgutil.resolve_name(name)(width)
    except ValueError as error:
        raise UsageError(f"policy {name}: {error}") from error
    if not isinstance(made, Policy) or not made.is_flat:
        raise UsageError(
            f"policy {name}: make it a subclass of bakeoff.workloads.gridworld.policies.Policy that calls "
            "self.flatten() at the end of __init__; parameters that are made, frozen or moved after that would not be "
            "trained"
        )
    return made


def save_policy(path: Path, params: GridworldParams, policy: Policy) -> None:
    content = {
        "format": FORMAT,
        "policy": params.policy,
        "width": params.width,
        "level": params.level,
        "horizon": params.horizon,
        "state": policy.state_dict(),
    }
    save_tensors(path, content)


def load_policy(path: Path) -> tuple[Policy, dict[str, Any]]:
    """A policy of `model.pt`, and what the file says about it. Raises UsageError for another file."""
    missing = f"no such file; a run of the workload gridworld writes {MODEL}"
    content = read_tensors(path, (FORMAT, WITHOUT_BUFFERS), "a policy of the workload gridworld", missing)
    policy = make_policy(content["policy"], content["width"])
    if content["format"] == WITHOUT_BUFFERS:
        policy.flat.copy_(content["weights"])
    else:
        policy.load_state_dict(content["state"])
    return policy.eval(), content
