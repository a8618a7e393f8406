"""Runs in Weights & Biases, with the names that retrain uses there: group = condition, tags = condition and seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from bakeoff.workloads.language.params import LanguageParams

_NAMES = {
    "loss": "train/loss",
    **{name: f"train/rewards/{name}" for name in ("mean_reward", "correct_rate", "running_correct_rate")},
    **{
        name: f"train/{name}"
        for name in (
            "sepa_lambda", "sepa_gate_open", "max_token_hit_rate", "num_datums", "step_time_s", "batch_size", "group_size",
            "informative_groups", "grad_norm",
        )
    },
    **{f"{k}_entropy_{s}": f"train/entropy/{k}_{s}" for k in ("exec", "plan") for s in ("mean", "var")},
    **{
        f"bp_{name}": f"train/backpressure/{name}"
        for name in ("action", "regime", "p_star", "sigma", "kappa", "utilization", "throughput", "warmup")
    },
    **{name: f"heldout/{name.removeprefix('heldout_')}" for name in ("heldout_accuracy", "heldout_greedy", "heldout_pass_at_4")},
}  # fmt: skip


class Tracked(Protocol):
    def log(self, values: dict[str, Any], step: int) -> None: ...
    def finish(self) -> None: ...


def begin(params: LanguageParams, seed: int, directory: Path) -> Tracked:
    """Open a run of `params.wandb_project`; its files go into the run's directory. WANDB_MODE=offline needs no account."""
    import wandb

    tracked: Tracked = wandb.init(
        project=params.wandb_project,
        name=f"{params.condition}_s{seed}",
        group=params.condition,
        tags=[params.condition, f"seed{seed}"],
        config={**params.model_dump(), "condition": params.condition, "seed": seed},
        dir=directory,
        reinit="create_new",
    )
    return tracked


def log(tracked: Tracked, row: dict[str, Any]) -> None:
    """One step."""
    tracked.log({_NAMES[name]: value for name, value in row.items() if name in _NAMES}, step=row["step"])
