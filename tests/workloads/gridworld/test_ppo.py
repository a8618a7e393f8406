"""PPO against closed forms, Stable-Baselines3's buffer and CleanRL's loss; learning; checkpoints."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bakeoff.workloads.gridworld.params import GridworldParams
from bakeoff.workloads.gridworld.policies import POLICIES
from bakeoff.workloads.gridworld.ppo import PPO, gae, ppo_loss
from bakeoff.workloads.training.flat import Diverged
from workloads.gridworld.small import SMALL


def rng(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def training(policy: str = "vit_reset", **changes: Any) -> PPO:
    torch.set_num_threads(1)
    params = GridworldParams(**{**SMALL, "policy": policy, **changes})
    made = POLICIES[policy](params.width)
    made.initialise(rng)
    return PPO(params, made, rng)


def rollout(steps: int = 24, envs: int = 6) -> tuple[Any, ...]:
    draws = rng("rollout")
    rewards, values = draws.standard_normal((2, steps, envs), dtype=np.float32)
    return rewards, values, draws.random((steps, envs)) < 0.15, draws.standard_normal(envs, dtype=np.float32)


def test_advantages_are_the_sum_of_discounted_errors_up_to_the_end_of_the_episode() -> None:
    rewards, values, done, last = rollout()
    advantages, returns = gae(rewards, values, done, last, 0.97, 0.95)
    following = np.concatenate((values[1:], last[None]))
    errors = rewards + 0.97 * following * ~done - values
    for env in range(rewards.shape[1]):
        for step in range(len(rewards)):
            end = step + int(np.argmax(done[step:, env])) if done[step:, env].any() else len(rewards) - 1
            closed = sum((0.97 * 0.95) ** (k - step) * errors[k, env] for k in range(step, end + 1))
            assert advantages[step, env] == pytest.approx(closed, abs=1e-5)
    assert np.allclose(returns, advantages + values)


def test_advantages_are_those_of_stable_baselines() -> None:
    """`RolloutBuffer.compute_returns_and_advantage` of stable-baselines3 2.7, line by line."""
    rewards, values, done, last_values = rollout()
    buffer_size, gamma, gae_lambda = len(rewards), 0.97, 0.95
    episode_starts = np.concatenate((np.zeros((1, rewards.shape[1])), done[:-1])).astype(np.float32)
    advantages, last_gae_lam = np.zeros_like(rewards), 0
    for step in reversed(range(buffer_size)):
        if step == buffer_size - 1:
            next_non_terminal, next_values = 1.0 - done[-1].astype(np.float32), last_values
        else:
            next_non_terminal, next_values = 1.0 - episode_starts[step + 1], values[step + 1]
        delta = rewards[step] + gamma * next_values * next_non_terminal - values[step]
        last_gae_lam = delta + gamma * gae_lambda * next_non_terminal * last_gae_lam
        advantages[step] = last_gae_lam
    assert np.allclose(gae(rewards, values, done, last_values, gamma, gae_lambda)[0], advantages, atol=1e-6)


def test_the_loss_and_its_gradient_are_cleanrls() -> None:
    """The update of CleanRL's ppo.py on a fixed minibatch, with its names."""
    draws = torch.Generator().manual_seed(3)
    size, clip_coef, ent_coef, vf_coef = 64, 0.2, 0.02, 0.5
    logits = torch.randn(size, 5, generator=draws, requires_grad=True)
    newvalue = torch.randn(size, generator=draws, requires_grad=True)
    b_actions = torch.randint(0, 5, (size,), generator=draws)
    b_logprobs = (logits.detach() + 0.3 * torch.randn(size, 5, generator=draws)).log_softmax(-1)[range(size), b_actions]
    b_values, b_returns, mb_advantages = torch.randn(3, size, generator=draws)
    ours = ppo_loss(
        logits, newvalue, b_actions, b_logprobs, b_values, mb_advantages, b_returns,
        clip=clip_coef, entropy_weight=ent_coef, value_weight=vf_coef,
    )  # fmt: skip

    probs = torch.distributions.Categorical(logits=logits)
    newlogprob, entropy = probs.log_prob(b_actions), probs.entropy()
    logratio = newlogprob - b_logprobs
    ratio = logratio.exp()
    approx_kl = ((ratio - 1) - logratio).mean()
    clipfracs = ((ratio - 1.0).abs() > clip_coef).float().mean()
    mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
    pg_loss1 = -mb_advantages * ratio
    pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
    pg_loss = torch.max(pg_loss1, pg_loss2).mean()
    v_loss_unclipped = (newvalue - b_returns) ** 2
    v_clipped = b_values + torch.clamp(newvalue - b_values, -clip_coef, clip_coef)
    v_loss = 0.5 * torch.max(v_loss_unclipped, (v_clipped - b_returns) ** 2).mean()
    loss = pg_loss - ent_coef * entropy.mean() + v_loss * vf_coef

    theirs = (loss, pg_loss, v_loss, entropy.mean(), approx_kl, clipfracs)
    for name, expected in zip(("total", "policy", "value", "entropy", "kl", "clip_fraction"), theirs, strict=True):
        assert torch.allclose(getattr(ours, name), expected, atol=1e-6), name
    gradients = [torch.autograd.grad(each, (logits, newvalue)) for each in (ours.total, loss)]
    assert all(torch.allclose(one, two, atol=1e-7) for one, two in zip(*gradients, strict=True))


def test_the_flat_optimizer_is_adam() -> None:
    ppo = training()
    weight = nn.Parameter(ppo.policy.flat.clone())
    theirs = torch.optim.Adam([weight], lr=1e-3, eps=1e-5)
    for number in range(3):
        gradient = torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
        ppo.policy.flat_gradient.copy_(gradient)
        weight.grad = gradient
        ppo.optimizer.step(1e-3)
        theirs.step()
    assert torch.allclose(ppo.policy.flat, weight, atol=1e-6)
    assert not ppo.policy.flat_gradient.any()


@pytest.mark.parametrize("policy", ["vit_reset", "trxl", "memoryless"])
def test_before_the_first_update_new_and_old_probabilities_are_equal(policy: str) -> None:
    ppo = training(policy)
    ppo.update()
    rollout = ppo.collect()  # in the middle of episodes, with memory
    with torch.no_grad():
        logits, values, _ = ppo.policy.unroll(rollout.inputs, rollout.past)
    logprobs = logits.log_softmax(-1).gather(-1, torch.from_numpy(rollout.actions)[..., None])[..., 0]
    assert np.allclose(logprobs, rollout.logprobs, atol=1e-5)
    assert np.allclose(values, rollout.values, atol=1e-5)


@pytest.mark.parametrize("curriculum", ["uniform", "learning_progress", "staged", "fixed"])
def test_a_training_that_is_restored_goes_on_to_the_same_weights(curriculum: str) -> None:
    options = {"curriculum": curriculum, "level": "level_1", "policy": "trxl", "steps": 1024}
    straight, first, second = training(**options), training(**options), training(**options)
    rows = [straight.update() for _ in range(14)]
    for _ in range(9):
        first.update()
    second.restore(first.state())
    later = [second.update() for _ in range(5)]
    assert torch.equal(straight.policy.flat, second.policy.flat)
    for one, two in zip(rows[9:], later, strict=True):
        assert {k: v for k, v in one.items() if k not in ("steps_per_s", "processor_s")} == {
            k: v for k, v in two.items() if k not in ("steps_per_s", "processor_s")
        }


def test_rooms_do_not_depend_on_the_policy() -> None:
    one, two = training(steps=2048), training("memoryless", steps=2048)
    for _ in range(20):
        one.update()
        two.update()
        assert np.array_equal(one.worlds.tasks, two.worlds.tasks)
    assert (one.worlds.tasks % 2 == 0).all(), "odd numbers are held out"


def test_a_gradient_that_is_not_a_number_names_its_update() -> None:
    ppo = training()
    ppo.update()
    ppo.policy.flat_gradient[0] = np.inf
    with pytest.raises(Diverged, match="in update 1; try a lower learning_rate"):
        ppo.update()


@pytest.mark.slow
def test_a_recurrent_policy_learns_to_make_hearts() -> None:
    defaults = GridworldParams(steps=131_072)
    ppo = training(**defaults.model_dump())
    hearts = [ppo.update().get("train_hearts", 0.0) for _ in range(defaults.updates)]
    assert np.mean(hearts[-4:]) > 0.5, "random walking makes 0.23"
