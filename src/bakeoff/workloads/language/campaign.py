"""retrain's campaign files as experiments of this workload.

    [training]
    batch_size = 8
    [campaign]
    seeds = [42, 101]
    max_steps = 100
    [[campaign.conditions]]
    advantage_mode = "maxrl"
    transform_mode = "gtpo_sepa"
    lr = 1e-3

Without conditions there are retrain's five. A condition may change any key that is understood. `grpo` of retrain has no standard deviation, so it becomes `dr_grpo`. Keys
about a large model, its adapter and its servers have no meaning here; `read` lists them as notes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bakeoff.errors import Problem, SpecError
from bakeoff.spec.experiment import parse_seeds
from bakeoff.spec.load import parse, read_text
from bakeoff.spec.problems import problems
from bakeoff.workloads.language.params import LanguageParams

SEEDS = [42, 101, 202, 303, 404, 505, 606, 707]
CONDITIONS = [
    ("grpo", "none"), ("maxrl", "none"), ("maxrl", "gtpo"), ("maxrl", "gtpo_hicra"), ("maxrl", "gtpo_sepa"),
]  # fmt: skip
"""retrain's five, where a file names none."""
MOST_STEPS = 500
KEYS = {
    "algorithm.advantage_mode": "advantage",
    "algorithm.transform_mode": "transform",
    "training.batch_size": "batch_size",
    "training.group_size": "group_size",
    "training.max_steps": "steps",
    "training.lr": "learning_rate",
    "training.weight_decay": "weight_decay",
    "training.temperature": "temperature",
    "training.save_every": "save_every",
    "gtpo.beta": "beta",
    "hicra.alpha": "alpha",
    "sepa.steps": "sepa_steps",
    "sepa.schedule": "sepa_schedule",
    "sepa.delay_steps": "sepa_delay",
    "sepa.correct_rate_gate": "sepa_gate",
    "backpressure.enabled": "bp_enabled",
    "backpressure.warmup_steps": "bp_warmup_steps",
    "backpressure.throttle_margin": "bp_throttle_margin",
    "backpressure.increase_margin": "bp_increase_margin",
    "backpressure.min_batch_size": "bp_min_batch_size",
    "backpressure.max_batch_size": "bp_max_batch_size",
    "planning.detector": "planning",
    "planning.threshold": "planning_threshold",
    "logging.strategic_grams": "phrases",
    "logging.wandb_project": "wandb_project",
}
"""Where retrain has a setting, and the parameter that it is here."""
_FIELDS: dict[str, str] = {
    **{name: name for name in LanguageParams.model_fields},
    **{place.replace(".", "_"): name for place, name in KEYS.items()},
    **{
        place.partition(".")[2]: name
        for place, name in KEYS.items()
        if place.startswith(("algorithm", "training", "logging"))
    },
}
"""The names that conditions use: retrain's flat ones, and ours."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """An experiment as a table, and what of the file has no meaning here."""

    experiment: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def runs(self) -> list[tuple[str, int]]:
        """(condition, seed), in the order of the manifest."""
        return [(arm["name"], seed) for arm in self.experiment["arms"] for seed in self.experiment["seeds"]]


def _ours(name: str, value: Any) -> Any:
    """A value of retrain as this workload writes it."""
    if name == "planning" and value == "regex":
        return "phrases"
    if name == "phrases" and isinstance(value, str):  # a JSON list, or a list with commas
        return json.loads(value) if value.startswith("[") else [part.strip() for part in value.split(",")]
    return value


def read(
    path: Path | None,
    *,
    max_steps: int | None = None,
    seeds: str | None = None,
    project: str | None = None,
    base: bool = False,
) -> Campaign:
    """Read a campaign file, or one with the settings of its runs only (`base`). None stands for an empty one.

    Raises SpecError with the keys that are wrong.
    """
    tree = parse(read_text(path), path) if path is not None else {}
    campaign = tree.pop("campaign", {} if base or path is None else None)
    if not isinstance(campaign, Mapping):
        raise SpecError([Problem("campaign", "this file has no section [campaign]", "see docs/language.md")], path)
    params: dict[str, Any] = dict(tree.pop("language", {}))  # our own parameters, such as the task
    notes = []
    for section, table in tree.items():
        for key, value in table.items() if isinstance(table, Mapping) else [("", table)]:
            place = f"{section}.{key}".rstrip(".")
            if place in KEYS:
                if value != "":  # an empty text keeps the default, as in retrain
                    params[KEYS[place]] = _ours(KEYS[place], value)
            else:
                notes.append(f"{place} has no meaning here")
    if project:
        params["wandb_project"] = project
    params["steps"] = max_steps or campaign.get("max_steps") or params.get("steps", MOST_STEPS)
    usual = {"advantage": "maxrl", "transform": "none", **params}
    if params.get("advantage") == "grpo":
        params["advantage"] = "dr_grpo"
    entries: list[Any] = campaign.get("conditions") or [
        {"advantage_mode": a, "transform_mode": t} for a, t in CONDITIONS
    ]
    arms: list[dict[str, Any]] = []
    wrong: list[Problem] = []
    for number, entry in enumerate(entries):
        own: dict[str, Any] = {}
        for key, value in entry.items():
            if key not in _FIELDS:
                wrong.append(Problem(f"campaign.conditions.{number}.{key}", "is not a setting of this workload"))
            name = _FIELDS.get(str(key), str(key))
            own[name] = _ours(name, value)
        label = "+".join(str({**usual, **own}[name]) for name in ("advantage", "transform"))
        changes = ",".join(f"{key}={value}" for key, value in entry.items() if not key.endswith("_mode"))
        if own.get("advantage") == "grpo":
            own["advantage"] = "dr_grpo"
        try:
            if not wrong:
                LanguageParams.model_validate({**params, **own})
        except ValidationError as error:
            wrong += problems(error, LanguageParams, given={**params, **own})
        arms.append({"name": f"{label}~{changes}" if changes else label, "params": own})
    try:
        chosen = parse_seeds([int(seed) for seed in seeds.split(",")] if seeds else campaign.get("seeds", SEEDS))
    except ValueError as error:
        wrong.append(Problem("campaign.seeds", str(error)))
    if wrong:
        raise SpecError(wrong, path)
    if any(arm["params"].get("advantage") == "dr_grpo" for arm in arms):
        notes.append("grpo of retrain is r - mean: it is called dr_grpo here")
    return Campaign(
        {
            "name": path.stem if path else "campaign",
            "workload": "language",
            "seeds": chosen,
            "params": params,
            "arms": arms,
        },
        tuple(notes),
    )
