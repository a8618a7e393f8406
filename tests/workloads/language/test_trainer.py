"""The model, its gradient, and training for real."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from bakeoff.errors import UsageError
from bakeoff.workloads.language import pretrain
from bakeoff.workloads.language.model import GPT, Shape, adam, sample
from bakeoff.workloads.language.tasks import Task
from bakeoff.workloads.language.trainer import Trainer
from bakeoff.workloads.training.flat import Diverged

Make = Callable[..., Trainer]


def test_cached_log_probabilities_are_those_of_a_full_forward_pass(strings: Task, warm: pretrain.WarmStart) -> None:
    prompts = torch.tensor([strings.encode(prompt.words) for prompt in strings.prompts("train")[:6]])
    draws = np.random.default_rng(1).random((7, 24), dtype=np.float32)
    drawn = sample(warm.model, prompts, 4, 7, draws, temperature=0.7)
    rows = torch.cat((prompts.repeat_interleave(4, 0), drawn.ids), 1)
    hidden, _ = warm.model.extend(rows)
    logprobs = (warm.model.logits(hidden) / 0.7).log_softmax(-1)[:, prompts.shape[1] - 1 : -1]
    full = logprobs.gather(2, drawn.ids[:, :, None])[:, :, 0] * drawn.mask
    assert torch.allclose(full, drawn.logprobs, atol=1e-4)
    entropy = -(logprobs.exp() * logprobs).sum(-1) * drawn.mask
    assert torch.allclose(entropy, drawn.entropy, atol=1e-3)
    again = sample(warm.model, prompts[2:3], 4, 7, draws[:, 8:12], temperature=0.7)
    assert torch.equal(again.ids, drawn.ids[8:12, : again.ids.shape[1]]), "a row depends on its own numbers only"


def test_adam_is_torchs_adamw() -> None:
    model = GPT(Shape(7, 5, 8, 1, 2), torch.Generator().manual_seed(0))
    start = model.flat.clone()
    weight = start.clone().requires_grad_()
    theirs = torch.optim.AdamW([weight], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    ours = adam(model, weight_decay=0.1)
    for seed in range(3):
        gradient = torch.randn(start.numel(), generator=torch.Generator().manual_seed(seed))
        weight.grad = gradient.clone()
        model.flat_gradient.copy_(gradient)
        theirs.step()
        ours.step(0.01)
    assert torch.allclose(model.flat, weight.detach(), atol=1e-6)
    assert not model.flat_gradient.any()


def test_the_gradient_is_that_of_the_success_rate() -> None:
    """Over all answers of one token, the loss with advantage r - mean is -(expected reward) up to a constant."""
    model = GPT(Shape(5, 4, 8, 1, 2), torch.Generator().manual_seed(3)).double()
    prompt, answers = torch.tensor([[1, 2]]), torch.arange(5)[:, None]
    rewards = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0], dtype=torch.float64)

    def expected() -> torch.Tensor:
        logits = model.answer_logits(prompt, answers)[:, 0]
        return (logits.softmax(-1)[0] * rewards).sum()

    logprobs = model.answer_logits(prompt, answers).log_softmax(-1).gather(2, answers[:, :, None])[:, 0, 0]
    chances = logprobs.detach().exp()
    surrogate = (chances * (logprobs - logprobs.detach()).exp() * (rewards - (chances * rewards).sum())).sum()
    weights = list(model.parameters())
    gradient = torch.autograd.grad(surrogate, weights)
    for weight, slope in zip(weights, gradient, strict=True):
        place = tuple(int(axis) // 2 for axis in weight.shape)
        with torch.no_grad():
            kept = weight[place].item()
            ends = []
            for change in (1e-5, -1e-5):
                weight[place] = kept + change
                ends.append(expected().item())
            weight[place] = kept
        assert slope[place].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-7)


def test_one_step_moves_the_success_rate_as_its_gradient_says(trainer: Make) -> None:
    """A finite difference: along the gradient of many answers the success rate rises, against it it falls."""
    made = trainer(advantage="dr_grpo", batch_size=32, group_size=16, learning_rate=1e-9)
    before = made.model.flat.clone()
    made.optimizer.step = lambda rate: None  # type: ignore[method-assign]
    row, batch = made.advance()
    direction = made.model.flat_gradient / made.model.flat_gradient.norm()
    ids, questions = torch.from_numpy(batch.ids), torch.tensor(made.codec.questions(batch.prompts))
    rewards = torch.from_numpy(batch.rewards).reshape(-1)

    def rate(distance: float) -> float:
        """Of the same answers, weighted by how much more likely they are than when they were sampled."""
        made.model.flat.copy_(before - distance * direction)
        with torch.no_grad():
            logprobs = (made._logprobs(questions, ids) * torch.from_numpy(batch.written)).sum(1)
        weight = (logprobs - torch.from_numpy(batch.logprobs).sum(1)).exp()
        return float((weight * rewards).sum() / weight.sum())

    assert rate(0.02) > rate(0.0) > rate(-0.02)
    assert row["ratio_deviation"] < 1e-4


def test_on_policy_the_ratio_is_one_and_rows_have_the_originals_keys(trainer: Make) -> None:
    made = trainer(transform="gtpo_sepa", sepa_delay=0, sepa_steps=4, sepa_gate=0.0, temperature=0.8)
    rows = [made.advance()[0] for _ in range(5)]
    original = (
        "step advantage_mode transform_mode condition loss mean_reward correct_rate running_correct_rate sepa_lambda "
        "sepa_gate_open num_datums max_token_hit_rate step_time_s batch_size group_size bp_warmup bp_action bp_regime "
        "bp_p_star bp_sigma bp_kappa bp_utilization bp_throughput"
    )
    for row in rows:
        assert set(original.split()) <= set(row)
        assert row["ratio_deviation"] < 1e-4
    assert [row["sepa_lambda"] for row in rows] == [0, 0.25, 0.5, 0.75, 1]
    assert any("exec_entropy_var" in row and "plan_entropy_mean" in row for row in rows)


def test_training_raises_the_success_rate(trainer: Make) -> None:
    made = trainer(advantage="dr_grpo", batch_size=16, group_size=16, steps=40, learning_rate=1e-3)
    rates = [made.advance()[0]["correct_rate"] for _ in range(40)]
    assert np.mean(rates[-8:]) > np.mean(rates[:8]) + 0.05


@pytest.mark.parametrize("advantage", ["grpo", "reinforce"])
def test_a_training_that_goes_on_from_its_state_is_the_same_to_the_bit(trainer: Make, advantage: str) -> None:
    whole, first = (trainer(advantage=advantage, transform="gtpo_hicra") for _ in range(2))
    for _ in range(6):
        whole.advance()
    for _ in range(3):
        first.advance()
    state = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in first.state().items()}
    second = trainer(advantage=advantage, transform="gtpo_hicra")
    second.restore(state)
    for _ in range(3):
        row, _ = second.advance()
    assert torch.equal(second.model.flat, whole.model.flat)
    assert torch.equal(second.optimizer.square, whole.optimizer.square)
    assert row["step"] == 5 and second.totals["answers"] == whole.totals["answers"]


def test_steps_without_an_informative_group_are_logged_and_train_nothing(trainer: Make) -> None:
    made = trainer(wrong_reward=0.0)
    made.task.reward = lambda prompt, ids: 0.0  # type: ignore[method-assign]
    try:
        before = made.model.flat.clone()
        row, _ = made.advance()
    finally:
        del made.task.reward
    assert (row["num_datums"], row["loss"], row["informative_groups"]) == (0, 0.0, 0.0)
    assert torch.equal(made.model.flat, before)


def test_a_destructive_learning_rate_is_noticed_after_one_step(trainer: Make) -> None:
    made = trainer(learning_rate=1.0, batch_size=16)
    made.advance()
    assert made.warning is not None and "learning_rate = 1 destroys the warm start" in made.warning
    quiet = trainer(learning_rate=1e-4, batch_size=16)
    quiet.advance()
    assert quiet.warning is None


def test_a_loss_that_is_not_a_number_names_its_step(trainer: Make) -> None:
    made = trainer(batch_size=16)
    made.advance()
    made.model.flat_gradient[0] = math.inf
    with pytest.raises(Diverged, match="at step 1; try a lower learning_rate"):
        made.advance()


def test_more_held_out_prompts_than_there_are_is_an_error(trainer: Make) -> None:
    with pytest.raises(UsageError, match="strings has 1560 held-out prompts, and 9999 are asked for"):
        trainer(eval_prompts=9999)


def test_a_warm_start_of_another_vocabulary_is_refused(
    strings: Task, warm: pretrain.WarmStart, tmp_path: object
) -> None:
    from pathlib import Path

    file = Path(str(tmp_path)) / "warm.pt"
    pretrain.save(warm, strings, file)
    assert torch.equal(pretrain.load(file, strings).model.flat, warm.model.flat)
    with pytest.raises(UsageError, match="a warm start of the task 'strings' with another vocabulary"):
        pretrain.load(file, Task("countdown"))
    file.write_bytes(b"not a model")
    with pytest.raises(UsageError, match="not a warm start"):
        pretrain.load(file, strings)
    with pytest.raises(UsageError, match="no such warm start"):
        pretrain.load(file.with_name("missing.pt"), strings)
