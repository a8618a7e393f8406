"""The files of a run.

    metrics.jsonl   one line for each update; the engine reads its numbers
    held_out.json   the last evaluation, room by room: task numbers, hearts and actions, so that anybody can replay it
    model.pt        the trained policy

While a run goes on, its checkpoint has a copy of metrics.jsonl, and `state.pt`, which says how long that copy was. A run
that goes on after a kill cuts it to that length, so no update is in it twice.
"""

from __future__ import annotations

import json
import os
import pkgutil
import shutil
from pathlib import Path
from typing import Any

import torch

from bakeoff.errors import UsageError
from bakeoff.workloads.flat import save_tensors
from bakeoff.workloads.gridworld.params import GridworldParams
from bakeoff.workloads.gridworld.policies import POLICIES, Policy
from bakeoff.workloads.gridworld.ppo import PPO

FORMAT = "bakeoff-gridworld-policy-1"
METRICS = "metrics.jsonl"
HELD_OUT = "held_out.json"
MODEL = "model.pt"
STATE = "state.pt"


class Outputs:
    """What a training writes. `directory` is the run's, `checkpoint` the one that outlives attempts."""

    def __init__(self, directory: Path, checkpoint: Path, ppo: PPO) -> None:
        self._checkpoint, self._ppo = checkpoint, ppo
        length = 0
        if (checkpoint / STATE).exists():
            state = torch.load(checkpoint / STATE, weights_only=True)
            ppo.restore(state["ppo"])
            length = state["length"]
        self._kept = open(checkpoint / METRICS, "a")  # noqa: SIM115 - open for the run's life
        self._kept.truncate(length)
        shutil.copyfile(checkpoint / METRICS, directory / METRICS)
        self._live = open(directory / METRICS, "a")  # noqa: SIM115

    def add(self, row: dict[str, Any]) -> None:
        """One update."""
        line = json.dumps(row) + "\n"
        self._kept.write(line)
        self._live.write(line)
        self._live.flush()

    def save(self) -> None:
        """A checkpoint: the rows first, then the state that counts them."""
        self._kept.flush()
        os.fsync(self._kept.fileno())
        save_tensors(self._checkpoint / STATE, {"ppo": self._ppo.state(), "length": self._kept.tell()})

    def close(self, *, finished: bool) -> None:
        """A run that is finished needs no checkpoint any more."""
        self._kept.close()
        self._live.close()
        if finished:
            for path in self._checkpoint.iterdir():
                path.unlink()


def make_policy(name: str, width: int) -> Policy:
    """A built-in policy, or one named as `module:Class`. Its weights are not drawn yet. Raises UsageError."""
    made = POLICIES[name](width) if name in POLICIES else pkgutil.resolve_name(name)(width)
    if not isinstance(made, Policy) or not hasattr(made, "flat"):
        raise UsageError(
            f"policy {name}: make it a subclass of bakeoff.workloads.gridworld.policies.Policy that calls "
            "self.flatten() at the end of __init__"
        )
    return made


def save_policy(path: Path, params: GridworldParams, policy: Policy) -> None:
    content = {
        "format": FORMAT,
        "policy": params.policy,
        "width": params.width,
        "level": params.level,
        "horizon": params.horizon,
        "weights": policy.flat,
    }
    save_tensors(path, content)


def load_policy(path: Path) -> tuple[Policy, dict[str, Any]]:
    """A policy of `model.pt`, and what the file says about it. Raises UsageError for another file."""
    try:
        content: dict[str, Any] = torch.load(path, weights_only=True)
        if content["format"] != FORMAT:
            raise ValueError(content["format"])
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; a run of the workload gridworld writes {MODEL}") from None
    except Exception as error:
        raise UsageError(f"{path}: not a policy of the workload gridworld ({type(error).__name__})") from error
    policy = make_policy(content["policy"], content["width"])
    policy.flat.copy_(content["weights"])
    return policy, content
