"""Training by policy gradients, one step at a time: sample groups, verify, weigh, update.

A step is on-policy with one update, so the ratio of new to old probabilities is 1 up to rounding; `ratio_deviation` shows it.
Random numbers of step n are a function of the seed and n. So there is no generator whose state a checkpoint would have to
keep, and the state of a training is its weights, the optimizer's moments, the controllers and a few counters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bakeoff.errors import UsageError
from bakeoff.workloads.language.advantages import Floats, advantages, expected_informative, informative
from bakeoff.workloads.language.backpressure import BackPressure
from bakeoff.workloads.language.model import Policy, Sampled, adam, sample
from bakeoff.workloads.language.params import LanguageParams
from bakeoff.workloads.language.planning import detector
from bakeoff.workloads.language.tasks import Codec, Prompt, Task
from bakeoff.workloads.language.transforms import Pooling, row_variances, spread, token_advantages
from bakeoff.workloads.training.flat import Diverged

Rng = Callable[[str], np.random.Generator]
PASS_AT = 4
START = "start_"
"""A run's metrics have the evaluation before the training with this instead of `heldout_` in front."""
DESTROYED = 0.5
"""Nats that the first update may move the distribution of a token, on average, before the learning rate is called too high."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The answers of one step, [rows, ...]; rows of a group stand together."""

    prompts: list[Prompt]
    ids: npt.NDArray[np.int64]
    logprobs: Floats
    written: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    """[rows]: answers that were cut off."""
    planning: npt.NDArray[np.bool_]
    rewards: Floats
    """[groups, group size]"""
    advantages: Floats
    """[groups, group size], before the transform."""
    informative: npt.NDArray[np.bool_]
    """[groups]"""


class Trainer:
    """`rng(name)` is a fresh random generator of that name, the same at every call; `model` is trained in place."""

    def __init__(
        self,
        params: LanguageParams,
        task: Task,
        model: Policy,
        rng: Rng,
        sampling: Rng | None = None,
        codec: Codec | None = None,
    ) -> None:
        self.params = params
        self.task = task
        self.codec: Codec = codec or task
        self.model = model
        self._sampling = sampling or rng
        self._detect = detector(params, task, self.codec)
        self._train = task.prompts("train")
        self._order = rng("prompts").permutation(len(self._train))
        heldout = task.prompts("heldout")
        if params.eval_prompts > len(heldout):
            raise UsageError(
                f"eval_prompts: {task.name} has {len(heldout)} held-out prompts, and {params.eval_prompts} are asked for"
            )
        picked = rng("evaluation prompts").choice(len(heldout), params.eval_prompts, replace=False)
        self._heldout = [heldout[number] for number in picked]
        self._draws = rng("evaluation").random(
            (self.codec.longest_answer, params.eval_prompts * params.eval_samples), dtype=np.float32
        )
        self.optimizer = adam(model, params.weight_decay)
        self.pooling = Pooling(params.sepa_schedule, params.sepa_steps, params.sepa_delay, params.sepa_gate)
        self.pressure = BackPressure(
            params.bp_enabled, params.group_size, params.bp_warmup_steps,
            throttle_margin=params.bp_throttle_margin, increase_margin=params.bp_increase_margin,
            smallest=params.bp_min_batch_size, largest=params.bp_max_batch_size,
        )  # fmt: skip
        self.step = 0
        self.batch_size = params.batch_size
        self._next_prompt = 0
        self._correct = self._answers = self._tokens = 0
        self._processor_s = 0.0
        self.warning: str | None = None
        self.start: dict[str, float] = {}
        """The evaluation of the model that the training starts from."""

    @property
    def totals(self) -> dict[str, float]:
        return {"tokens": self._tokens, "processor_s": self._processor_s, "answers": self._answers}

    def advance(self) -> tuple[dict[str, Any], Batch]:
        """One step: its row of metrics, and its answers. Raises Diverged."""
        wall, processor = time.monotonic(), time.process_time()
        params, size = self.params, self.batch_size
        prompts = [self._train[self._order[(self._next_prompt + n) % len(self._order)]] for n in range(size)]
        self._next_prompt = (self._next_prompt + size) % len(self._order)
        questions = torch.tensor(self.codec.questions(prompts))
        longest = min(params.max_tokens or self.codec.longest_answer, self.codec.longest_answer)
        draws = self._sampling(f"answers {self.step}").random((longest, size * params.group_size), dtype=np.float32)
        drawn = sample(self.model, questions, params.group_size, longest, draws, params.temperature)
        batch = self._judged(prompts, drawn)
        pooling = self.pooling.at(self.step) if params.transform == "gtpo_sepa" else 0.0
        row, numbers = self._observed(batch, drawn, pooling)
        # A batch baseline gives every group an advantage.
        kept = batch.advantages.any(axis=1) if params.advantage == "reinforce" else batch.informative
        trained = np.asarray(kept) if params.steps else np.zeros(size, dtype=bool)
        row |= {
            "loss": 0.0,
            "grad_norm": 0.0,
            "ratio_deviation": 0.0,
            "num_datums": int(trained.sum()) * params.group_size,
        }
        if trained.any():
            row |= self._update(batch, drawn, questions, trained, pooling)
        self.pooling.observe(row["correct_rate"], row_variances(numbers, batch.written & ~batch.planning))
        seconds = time.process_time() - processor
        tokens = int(batch.written.sum())
        self.batch_size = self.pressure.observe(size, tokens if trained.any() else 0, seconds)
        self._tokens += tokens
        self._processor_s += seconds
        row |= {
            "tokens": self._tokens,
            "processor_s": round(self._processor_s, 4),
            "step_time_s": round(time.monotonic() - wall, 4),
            "batch_size": self.batch_size,
            "group_size": params.group_size,
            **self.pressure.logged(),
        }
        self.step += 1
        return row, batch

    def _judged(self, prompts: list[Prompt], drawn: Sampled) -> Batch:
        params, group = self.params, self.params.group_size
        ids = drawn.ids.numpy()
        right = [self.codec.reward(prompts[row // group], answer) for row, answer in enumerate(ids.tolist())]
        rewards = np.where(np.array(right) > 0.5, 1.0, params.wrong_reward).reshape(len(prompts), group)
        written = drawn.mask.numpy() > 0
        ended = self.model.ending[drawn.ids[:, -1]].numpy()
        return Batch(
            prompts,
            ids,
            drawn.logprobs.numpy().astype(np.float64),
            written,
            written[:, -1] & ~ended,
            self._detect(ids) & written,
            rewards,
            advantages(params.advantage, rewards),
            informative(rewards),
        )

    def _observed(self, batch: Batch, drawn: Sampled, pooling: float) -> tuple[dict[str, Any], Floats]:
        """The row so far, and surprisal, whose values after the end of an answer mean nothing."""
        params, rewards = self.params, batch.rewards
        correct = rewards > 0.5
        self._correct += int(correct.sum())
        self._answers += correct.size
        surprisal = np.minimum(-batch.logprobs, 50.0)
        row: dict[str, Any] = {
            "step": self.step,
            "advantage_mode": params.advantage,
            "transform_mode": params.transform,
            "condition": params.condition,
            "mean_reward": float(rewards.mean()),
            "correct_rate": float(correct.mean()),
            "correct_count": int(correct.sum()),
            "total_count": correct.size,
            "running_correct_rate": self._correct / self._answers,
            "sepa_lambda": pooling,
            "sepa_gate_open": self.pooling.is_open,
            "max_token_hit_rate": float(batch.truncated.mean()),
            "informative_groups": float(batch.informative.mean()),
            "informative_groups_expected": expected_informative(rewards),
            "shannon_entropy": float(drawn.entropy.sum() / drawn.mask.sum()),
            "planning_token_ratio": float(batch.planning.sum() / batch.written.sum()),
        }
        execution = batch.written & ~batch.planning
        group = params.group_size
        kinds = {"exec": execution, "plan": batch.planning}
        for kind, where in kinds.items():
            # By group, then a plain mean over groups, before pooling: so the original computes them.
            parts = [
                values
                for number in np.flatnonzero(batch.informative)
                if (
                    values := spread(
                        surprisal[number * group : (number + 1) * group], where[number * group : (number + 1) * group]
                    )
                )
            ]
            if parts:
                row[f"{kind}_entropy_mean"], row[f"{kind}_entropy_var"] = map(float, np.mean(parts, axis=0))
        both = batch.planning.any(axis=1) & execution.any(axis=1)
        if both.any():
            on, off = (float(surprisal[both][where[both]].mean()) for where in (batch.planning, execution))
            row |= {"gram_entropy_delta": on - off, "gram_entropy_pair_count": int(both.sum())}
        return row, surprisal

    def _update(
        self, batch: Batch, drawn: Sampled, questions: torch.Tensor, trained: npt.NDArray[np.bool_], pooling: float
    ) -> dict[str, float]:
        """One step of the optimizer on the groups in `trained`: the loss is -sum(ratio * advantage) / tokens."""
        params = self.params
        rows = np.repeat(trained, params.group_size)
        weights = token_advantages(
            params.transform,
            batch.advantages.reshape(-1)[rows],
            np.minimum(-batch.logprobs[rows], 50.0),
            batch.written[rows],
            batch.planning[rows],
            beta=params.beta,
            alpha=params.alpha,
            pooling=pooling,
        )
        counted = batch.written[rows] if params.loss_tokens == "informative" else batch.written
        kept, values = torch.from_numpy(rows), torch.from_numpy(weights.astype(np.float32))
        ids, old, written = drawn.ids[kept], drawn.logprobs[kept], drawn.mask[kept]
        asked = questions[torch.from_numpy(trained)]
        value, deviation = 0.0, 0.0
        for groups, part in self._parts(len(asked)):
            ratio = ((self._logprobs(asked[groups], ids[part]) - old[part]) * written[part]).exp()
            loss = -(ratio * values[part]).sum() / int(counted.sum())
            loss.backward()  # type: ignore[no-untyped-call]
            value += loss.item()
            deviation = max(deviation, float((ratio.detach() - 1).abs().max()))
        norm = self.model.flat_gradient.norm().item()
        if not (math.isfinite(value) and math.isfinite(norm)):
            raise Diverged(f"the loss is {value} at step {self.step}; try a lower learning_rate")
        self.optimizer.step(params.learning_rate)
        if self.step == 0:
            self._probe(questions, drawn)
        return {"loss": value, "grad_norm": norm, "ratio_deviation": deviation}

    def _logprobs(self, questions: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of answers, at the temperature of sampling."""
        scores = self.model.answer_logits(questions, ids) / self.params.temperature
        return scores.log_softmax(-1).gather(2, ids[:, :, None])[:, :, 0]

    def _parts(self, groups: int) -> Iterator[tuple[slice, slice]]:
        """(groups, their rows) that fit into memory together; one part for small models."""
        size = self.params.group_size
        at_once = max(1, self.model.rows_at_once // size) if self.model.rows_at_once else groups
        for start in range(0, groups, at_once):
            yield slice(start, start + at_once), slice(start * size, (start + at_once) * size)

    @torch.no_grad()
    def _probe(self, questions: torch.Tensor, drawn: Sampled) -> None:
        """Warn if the first update moved the policy so far that little of the warm start can be left."""
        now = torch.cat([self._logprobs(questions[of], drawn.ids[part]) for of, part in self._parts(len(questions))])
        moved = (drawn.logprobs - now * drawn.mask).sum() / drawn.mask.sum()
        if not float(moved) < DESTROYED:
            self.warning = (
                f"the first update moved the policy by {float(moved):.2f} nats a token: learning_rate = "
                f"{self.params.learning_rate:g} destroys the warm start; try a tenth of it"
            )

    def evaluate(self) -> dict[str, float]:
        """Accuracy on the held-out prompts: sampled, greedy, and the chance that one of four answers is right.

        Nothing that an arm may choose is used: neither its temperature nor its longest answer.
        """
        params, reward, longest = self.params, self.codec.reward, self.codec.longest_answer
        questions = torch.tensor(self.codec.questions(self._heldout))
        drawn = sample(self.model, questions, params.eval_samples, longest, self._draws, params.eval_temperature)
        greedy = sample(self.model, questions, 1, longest, None)
        right = np.array(
            [reward(self._heldout[row // params.eval_samples], ids) for row, ids in enumerate(drawn.ids.tolist())]
        ).reshape(len(self._heldout), params.eval_samples)
        best = [reward(prompt, ids) for prompt, ids in zip(self._heldout, greedy.ids.tolist(), strict=True)]
        return {
            "heldout_accuracy": float(right.mean()),
            "heldout_greedy": float(np.mean(best)),
            f"heldout_pass_at_{PASS_AT}": pass_at(right, PASS_AT),
        }

    # -- checkpoints

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {
            "weights": self.model.flat,
            "mean": self.optimizer.mean,
            "square": self.optimizer.square,
            "updates": self.optimizer.steps,
            "step": self.step,
            "batch_size": self.batch_size,
            "counters": [self._next_prompt, self._correct, self._answers, self._tokens],
            "processor_s": self._processor_s,
            "pooling": asdict(self.pooling),
            "pressure": asdict(self.pressure),
            "warning": self.warning,
            "start": self.start,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.flat.copy_(state["weights"])
        self.optimizer.restore(state["mean"], state["square"], state["updates"])
        self.step, self.batch_size = state["step"], state["batch_size"]
        self._next_prompt, self._correct, self._answers, self._tokens = state["counters"]
        self._processor_s = state["processor_s"]
        self.pooling = Pooling(**state["pooling"])
        self.pressure = BackPressure(**state["pressure"])
        self.warning, self.start = state["warning"], state["start"]


def pass_at(right: Floats, k: int) -> float:
    """The unbiased estimate 1 - C(n - c, k) / C(n, k) for c right of n answers, averaged over prompts (Chen et al., 2021)."""
    n = right.shape[1]
    return float(np.mean([1 - math.comb(n - int(c), k) / math.comb(n, k) for c in right.sum(axis=1)]))
