"""The parameters of one training run. This module does not import torch: experiment files are checked without it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from bakeoff.workloads.language.advantages import FORMULAS as ADVANTAGES
from bakeoff.workloads.language.advantages import Advantage
from bakeoff.workloads.language.tasks import TaskName
from bakeoff.workloads.language.transforms import FORMULAS as TRANSFORMS
from bakeoff.workloads.language.transforms import Transform
from bakeoff.workloads.training.params import Count, Rate, Share, Weight

COMPLETIONS = "completions.parquet"
"""The file with a run's answers."""


class LanguageParams(BaseModel):
    """One training of a small language model by policy gradients on a task with a verifier."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    settings: ClassVar[frozenset[str]] = frozenset({"save_every", "completions", "generations_every", "wandb_project"})
    measured_by: ClassVar[frozenset[str]] = frozenset({"task", "eval_temperature", "eval_prompts", "eval_samples"})

    task: TaskName = "countdown"
    model: str | None = None
    """A directory of a Hugging Face causal language model to start from (extra `hf`); otherwise a small GPT is trained, whose
    size and warm start the next parameters set."""
    shots: Annotated[int, Field(ge=0, le=64)] = 4
    """With `model`: solved examples in front of each prompt."""
    width: Annotated[int, Field(ge=8, le=1024)] = 64
    layers: Annotated[int, Field(ge=1, le=24)] = 2
    heads: Count = 4
    warm_start: str | None = None
    """A file of `bakeoff language pretrain` (default: one is trained once and cached)."""
    warm_steps: Count | None = None
    """Steps of the cached warm start's training (default: the task's, 700 for most)."""
    warm_seed: int = 0

    advantage: Advantage = "maxrl"
    """`grpo`, `dr_grpo` (what retrain calls grpo), `maxrl` or `reinforce`."""
    transform: Transform = "none"
    """`none`, `gtpo` (or `entropy_weighted`), `gtpo_hicra` or `gtpo_sepa`."""
    beta: Weight = 0.1
    """Strength of the weighting by surprisal."""
    alpha: Weight = 0.2
    """What `gtpo_hicra` adds on planning tokens."""
    sepa_schedule: Literal["linear", "auto"] = "linear"
    sepa_steps: Annotated[int, Field(ge=0)] = 500
    sepa_delay: Annotated[int, Field(ge=0)] = 50
    sepa_gate: float = 0.1
    """Lambda stays 0 until a step's correct rate reaches this; 0 for no gate."""
    planning: Literal["exact", "phrases", "semantic"] = "exact"
    """How planning tokens are found: from the task's construction, by retrain's search for phrases, or by retrain's
    embeddings of sentences (extra `semantic`)."""
    phrases: list[str] = []
    """For `phrases` (default: the task's own plans)."""
    planning_threshold: Annotated[float, Field(allow_inf_nan=False)] = 0.02
    """For `semantic`: how much more similar to planning than to execution a sentence must be."""
    planning_model: str | None = None
    """For `semantic`: a directory of another embedding model."""

    steps: Annotated[int, Field(ge=0)] = 120
    """Updates. With 0 one batch is sampled and measured, and nothing is trained."""
    batch_size: Count = 16
    """Prompts of a step."""
    group_size: Annotated[int, Field(ge=2)] = 16
    """Answers to each prompt. One answer has no group to be compared with."""
    learning_rate: Rate = 5e-4
    weight_decay: Weight = 0.0
    temperature: Rate = 1.0
    """Of sampling while training, and of the probabilities that are trained: the ratio of both is 1. Evaluations use
    `eval_temperature`."""
    max_tokens: Count | None = None
    """Longest answer while training (default: that of the task's longest right answer, which evaluations always use)."""
    wrong_reward: Annotated[float, Field(le=0.5, allow_inf_nan=False)] = 0.0
    """Reward of a wrong answer; a right one gets 1."""
    loss_tokens: Literal["informative", "batch"] = "informative"
    """The loss is divided by the answer tokens of informative groups (retrain), or of the whole batch (TRL's dapo)."""
    own_sampling: bool = False
    """Draw answers from the arm's own random numbers. Otherwise arms with equal seeds use equal numbers, and an arm with
    equal parameters would be a copy."""

    eval_every: Count = 20
    eval_prompts: Count = 256
    """Held-out prompts of an evaluation, drawn by seed."""
    eval_samples: Annotated[int, Field(ge=4)] = 8
    """Sampled answers to each of them. Evaluations add the most likely one (greedy)."""
    eval_temperature: Rate = 1.0
    """Of the sampled answers of evaluations, the same for all arms: a lower one raises the accuracy of any model."""

    bp_enabled: bool = False
    """Let back pressure choose the batch size."""
    bp_warmup_steps: Annotated[int, Field(ge=0)] = 10
    bp_throttle_margin: Share = 0.85
    bp_increase_margin: Share = 0.5
    bp_min_batch_size: Count = 1
    bp_max_batch_size: Count = 64

    save_every: Count = 20
    """Steps between two checkpoints. What a killed run repeats has the same results."""
    completions: bool = True
    """Write completions.parquet, one row for each answer."""
    generations_every: Count = 10
    """Steps between two that are written to emergence/generations.jsonl."""
    wandb_project: str | None = None
    """Log to Weights & Biases (package wandb); WANDB_MODE=offline needs no account."""

    @field_validator("transform", mode="before")
    @classmethod
    def _other_name(cls, value: Any) -> Any:
        return "gtpo" if value == "entropy_weighted" else value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be divided into {self.heads} heads")
        if self.advantage == "maxrl" and self.wrong_reward < 0:
            raise ValueError(
                "maxrl needs rewards of 0 or more: with a negative wrong_reward it trains nothing, or the wrong way; "
                "use wrong_reward = 0 or advantage = 'dr_grpo'"
            )
        if self.phrases and self.planning != "phrases":
            raise ValueError("phrases are used with planning = 'phrases' only")
        if self.model is None and self.shots != type(self).model_fields["shots"].default:
            raise ValueError("shots are for a model by path; set model, or leave shots out")
        for name in ("width", "layers", "heads", "warm_start", "warm_steps", "warm_seed"):
            if self.model is not None and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is for the small GPT; leave it out with model = {self.model!r}")
        if self.bp_min_batch_size > self.bp_max_batch_size:
            raise ValueError("bp_min_batch_size is above bp_max_batch_size")
        return self

    @property
    def condition(self) -> str:
        """As retrain labels it."""
        return f"{self.advantage}+{self.transform}"

    @property
    def formula(self) -> str:
        """Everything that decides a token's advantage, with its constants."""
        transform = TRANSFORMS[self.transform].format(beta=self.beta, alpha=self.alpha)
        return f"A = {ADVANTAGES[self.advantage]}; token: {transform}; loss over {self.loss_tokens} tokens"
