"""The `language` workload: one run is one training of a small language model from a warm start."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel

from bakeoff.errors import UsageError, install
from bakeoff.spec.workload import Outcome, RunContext, Scalar
from bakeoff.workloads.language.params import LanguageParams
from bakeoff.workloads.language.tasks import Task

if TYPE_CHECKING:
    from bakeoff.workloads.language.pretrain import WarmStart


class LanguageWorkload:
    """The interface to the rest of bakeoff; see `spec/workload.py`."""

    kind: ClassVar[str] = "language"
    revision: ClassVar[str] = "2"
    Params: ClassVar[type[BaseModel]] = LanguageParams
    directions: ClassVar[Mapping[str, Literal["maximize", "minimize"]]] = dict.fromkeys(
        ("loss", "step_time_s", "processor_s"), "minimize",
    )  # fmt: skip
    analysis: ClassVar[Mapping[str, Any]] = {
        "metric": "heldout_accuracy",
        "primary": ["heldout_greedy"],
        "summary": {"type": "final", "last": 1},
        "bounds": [0.0, 1.0],
        "failure_score": 0.0,
        "given": "from this warm start",
    }
    """The rate of right answers on training prompts, which retrain compares, ranks conditions differently: a policy can
    raise it at the cost of prompts that it never saw. Accuracy of sampled answers rises when a model only becomes surer
    of what it would have answered anyway, so the most likely answer is judged beside them."""

    def check(self, params: LanguageParams, base: Path) -> list[str]:
        """Raise UsageError for what would fail in every run: torch, a file or a phrase that is missing, too few prompts."""
        need_torch()
        task = Task(params.task)
        task.check_phrases(params.phrases)
        heldout = len(task.prompts("heldout"))
        if params.eval_prompts > heldout:
            raise UsageError(
                f"eval_prompts: {params.task} has {heldout} held-out prompts, and {params.eval_prompts} are asked for"
            )
        if params.planning == "semantic":
            from bakeoff.workloads.language.planning import embedding_directory

            embedding_directory(params.planning_model)
        if params.model is not None:
            from bakeoff.workloads.language.pretrained import check

            check(base / params.model)
        if params.warm_start is not None:
            from bakeoff.workloads.language.pretrain import load

            load(base / params.warm_start, task)
        if params.wandb_project is not None and find_spec("wandb") is None:
            raise UsageError(f"wandb_project needs the package wandb: {install('wandb')}")
        return (
            ["back pressure follows the machine's speed: these runs do not repeat bit for bit"]
            if params.bp_enabled
            else []
        )

    def run(self, params: LanguageParams, ctx: RunContext) -> Outcome:
        """Train, and leave the files of `outputs`. A loss that is not a number fails the run and names the step."""
        import torch

        from bakeoff.workloads.language import tracking
        from bakeoff.workloads.language.outputs import DIRECTORY, Outputs
        from bakeoff.workloads.language.pretrain import WarmStart, save
        from bakeoff.workloads.language.pretrained import Pretrained, Subwords
        from bakeoff.workloads.language.trainer import START, Trainer
        from bakeoff.workloads.training.files import MODEL
        from bakeoff.workloads.training.flat import Diverged

        torch.set_num_threads(1)  # two threads take five times the processor time, and runs in parallel use the cores
        task = Task(params.task)
        start = warm_start(params, task, ctx.base)
        sampling = partial(ctx.rng, own=params.own_sampling)
        trainer = Trainer(params, task, start.model, ctx.rng, sampling, start.codec)
        outputs = Outputs(ctx.directory, ctx.checkpoint, trainer)
        trainer.start = trainer.start or trainer.evaluate()
        metrics: dict[str, Scalar] = {
            "formula": params.formula,
            "warm_start": start.digest,
            "parameters": start.model.size,
            **{name.replace("heldout_", START): value for name, value in trainer.start.items()},
        }
        tracked = tracking.begin(params, ctx.seed, ctx.directory) if params.wandb_project else None
        last: dict[str, float] = {}
        problem = None
        try:
            while trainer.step < max(params.steps, 1):
                row, batch = trainer.advance()
                if trainer.step >= params.steps or trainer.step % params.eval_every == 0:
                    row |= (last := trainer.evaluate() if params.steps else trainer.start)
                outputs.add(row, batch)
                if tracked is not None:
                    tracking.log(tracked, row)
                stopped = ctx.cancelled
                if stopped or trainer.step % params.save_every == 0:
                    outputs.save()
                if stopped:
                    return Outcome(metrics, "failed", f"stopped after step {row['step']}")
        except Diverged as error:
            problem = str(error)
        finally:
            if tracked is not None:
                tracked.finish()
        outputs.close()
        if isinstance(start.model, Pretrained) and isinstance(start.codec, Subwords):
            start.codec.save(start.model, ctx.directory / DIRECTORY)
        else:
            save(WarmStart(start.model, "", last), task, ctx.directory / MODEL)
        metrics |= trainer.totals
        if trainer.warning:
            metrics["warning"] = trainer.warning
            print(f"warning: {trainer.warning}", flush=True)
        return Outcome(metrics, "failed", problem) if problem else Outcome(metrics)


def warm_start(params: LanguageParams, task: Task, base: Path) -> WarmStart:
    """The model that a run starts from."""
    from bakeoff.workloads.language.pretrain import WarmStart, cached, load, shape_of

    if params.model is not None:
        from bakeoff.workloads.language import pretrained

        model, codec, digest = pretrained.load(base / params.model, task, params.shots)
        return WarmStart(model, digest, {}, codec)
    if params.warm_start is not None:
        return load(base / params.warm_start, task)
    shape = shape_of(task, params.width, params.layers, params.heads)
    return cached(task, shape, params.warm_steps or task.rules.warm_steps, params.warm_seed)


def need_torch() -> None:
    """Raise UsageError if torch is not installed. Found without importing it, which takes a second."""
    if find_spec("torch") is None:
        raise UsageError(f"training language models needs the package torch: {install('train')}")
