"""Proximal policy optimisation in one file, to be read from top to bottom: rollout, advantages, minibatches, loss.

The details are those of CleanRL's ppo_atari_lstm.py: minibatches are whole environments, so that memory is unrolled from
where the rollout began; advantages are normalised in each minibatch; losses of policy and value are clipped.

Random numbers of update n are a function of the seed and n, so a checkpoint holds no generator, and an update that is
repeated after a kill gives the same weights to the bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bakeoff.workloads.gridworld import kernels
from bakeoff.workloads.gridworld.capacity import CELLS, COLUMNS
from bakeoff.workloads.gridworld.curricula import LearningProgress, make_curriculum
from bakeoff.workloads.gridworld.levels import LEVELS, RESOURCES, find_level
from bakeoff.workloads.gridworld.params import GridworldParams
from bakeoff.workloads.gridworld.policies import Inputs, Past, Policy, past_of
from bakeoff.workloads.gridworld.world import Worlds
from bakeoff.workloads.training.flat import Adam, Diverged

Rng = Callable[[str], np.random.Generator]
Floats = NDArray[np.float32]
SNAPSHOT = ("grid", "rooms", "tasks", "observations", "inventory", "rewards", "done")
"""The arrays that are the state of `Worlds`."""


def seed_torch(rng: np.random.Generator) -> None:
    """Seed torch's own generator, from which policies draw initial weights and dropout."""
    torch.manual_seed(int(rng.integers(2**63)))


class Senses:
    """What the agents of a batch of worlds are told: its views, and what their last action did."""

    def __init__(self, envs: int) -> None:
        self.codes = np.zeros((envs, COLUMNS), np.uint8)
        self.starts = np.ones(envs, np.bool_)

    def read(self, worlds: Worlds, actions: NDArray[np.int64] | None = None) -> Inputs:
        """After `actions`, or before the first ones. The inputs are views: the next call overwrites them."""
        seen = worlds.observations
        self.codes[:, :CELLS] = (2 * seen[..., 0] + seen[..., 1]).reshape(len(seen), CELLS)
        self.codes[:, CELLS : CELLS + RESOURCES] = worlds.inventory
        if actions is not None:
            goes_on = ~worlds.done
            self.starts[:] = worlds.done
            self.codes[:, -2] = (actions + 1) * goes_on
            self.codes[:, -1] = (worlds.rewards >= 1.0) & goes_on
        return self.inputs

    @property
    def inputs(self) -> Inputs:
        """One step, as a policy reads it."""
        return Inputs(torch.from_numpy(self.codes)[None], torch.from_numpy(self.starts)[None])


@dataclass(frozen=True, slots=True)
class Rollout:
    """Some steps of all environments, [steps, envs]."""

    inputs: Inputs
    past: Past
    """The policy's memory before the first step."""
    actions: NDArray[np.int64]
    logprobs: Floats
    values: Floats
    rewards: Floats
    done: NDArray[np.bool_]
    next_values: Floats
    """[envs]: after the last step."""
    hearts: NDArray[np.int32]
    """Of the episodes that ended."""


def gae(
    rewards: Floats, values: Floats, done: NDArray[np.bool_], next_values: Floats, gamma: float, lam: float
) -> tuple[Floats, Floats]:
    """Generalised advantage estimation (arXiv:1506.02438): advantages and returns [steps, envs].

    done[t] says that the episode ended with step t, so nothing after it counts.
    """
    advantages = np.zeros_like(rewards)
    following, value = np.zeros_like(next_values), next_values
    for step in reversed(range(len(rewards))):
        goes_on = np.float32(1) - done[step]
        delta = rewards[step] + np.float32(gamma) * value * goes_on - values[step]
        advantages[step] = following = delta + np.float32(gamma * lam) * goes_on * following
        value = values[step]
    return advantages, advantages + values


@dataclass(frozen=True, slots=True)
class Losses:
    """Of one minibatch."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor
    """(r - 1) - log r: Schulman's estimate of the divergence of the new policy from the old one, low in variance."""
    clip_fraction: Tensor


def ppo_loss(
    logits: Tensor, values: Tensor, actions: Tensor, old_logprobs: Tensor, old_values: Tensor, advantages: Tensor,
    returns: Tensor, *, clip: float, entropy_weight: float, value_weight: float,
) -> Losses:  # fmt: skip
    """The clipped loss of a minibatch; tensors of any one shape, `logits` with one more dimension."""
    scores = logits.log_softmax(-1)
    entropy = -(scores.exp() * scores).sum(-1).mean()
    log_ratio = scores.gather(-1, actions[..., None])[..., 0] - old_logprobs
    ratio = log_ratio.exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - clip, 1 + clip)).mean()
    clipped = old_values + (values - old_values).clamp(-clip, clip)
    value = 0.5 * torch.max((values - returns) ** 2, (clipped - returns) ** 2).mean()
    with torch.no_grad():
        kl = ((ratio - 1) - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > clip).float().mean()
    total = policy - entropy_weight * entropy + value_weight * value
    return Losses(total, policy, value, entropy, kl, clip_fraction)


class PPO:
    """One training. `rng(name)` is a fresh random generator of that name, the same at every call. Rooms come from it, and
    so do actions unless `sampling` is another one. `policy` is trained in place."""

    def __init__(self, params: GridworldParams, policy: Policy, rng: Rng, sampling: Rng | None = None) -> None:
        self.params, self.policy = params, policy
        self._sampling = sampling or rng
        level = find_level(params.level, params.horizon)
        self.curriculum = make_curriculum(params.curriculum, level, params.envs, rng("curriculum"))
        self.worlds = Worlds(level, self.curriculum.tasks, shaping=params.shaping)
        self.worlds.level = self.curriculum.level_at(0.0)
        self.worlds.reset(self.curriculum.tasks)
        self.optimizer = Adam(policy, forgetting=0.001, epsilon=1e-5)  # as in CleanRL
        self.past = policy.initial(params.envs)
        self.senses = Senses(params.envs)
        self.senses.read(self.worlds)
        self.updates = 0
        self.processor_s = 0.0

    @property
    def steps(self) -> int:
        """Steps of all environments so far."""
        return self.updates * self.params.envs * self.params.unroll

    def collect(self) -> Rollout:
        """Act for `unroll` steps in all environments."""
        params, worlds, curriculum = self.params, self.worlds, self.curriculum
        shape = (params.unroll, params.envs)
        worlds.level = curriculum.level_at(self.updates / params.updates)
        draws = self._sampling(f"actions {self.updates}").random(shape, dtype=np.float32)
        codes, starts = np.empty((*shape, COLUMNS), np.uint8), np.empty(shape, np.bool_)
        actions, done = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        logprobs, values, rewards = (np.empty(shape, np.float32) for _ in range(3))
        hearts = []
        self.policy.eval()
        past, actor = self.past, self.policy.actor(self.past)
        for step in range(params.unroll):
            codes[step], starts[step] = self.senses.codes, self.senses.starts
            logits, value = actor.act(self.senses.inputs)
            kernels.choose(logits.float().contiguous().numpy(), draws[step], actions[step], logprobs[step])
            values[step] = value.numpy()
            worlds.step(actions[step], curriculum.next_tasks)
            rewards[step], done[step] = worlds.rewards, worlds.done
            hearts.append(worlds.hearts[worlds.done])
            curriculum.finish(worlds.done, worlds.hearts)
            self.senses.read(worlds, actions[step])
        self.past = actor.past
        _, next_values = actor.act(self.senses.inputs)
        inputs = Inputs(torch.from_numpy(codes), torch.from_numpy(starts))
        return Rollout(
            inputs, past, actions, logprobs, values, rewards, done, next_values.float().numpy(), np.concatenate(hearts)
        )

    def update(self) -> dict[str, float]:
        """Collect a rollout and train on it: the update's row of metrics. Raises Diverged."""
        params, wall, processor = self.params, time.monotonic(), time.process_time()
        seed_torch(self._sampling(f"torch {self.updates}"))
        rollout = self.collect()
        self.policy.train()
        advantages, returns = gae(
            rollout.rewards, rollout.values, rollout.done, rollout.next_values, params.gamma, params.gae_lambda
        )
        batch = [
            torch.from_numpy(array)
            for array in (rollout.actions, rollout.logprobs, rollout.values, advantages, returns)
        ]
        progress = self.updates / params.updates
        rate = params.learning_rate * (1 - progress if params.anneal else 1.0)
        order = self._sampling(f"minibatches {self.updates}")
        losses, norm = [], 0.0
        for _ in range(params.epochs):
            for part in np.split(order.permutation(params.envs), params.minibatches):
                envs = torch.from_numpy(part)
                logits, values, _ = self.policy.unroll(rollout.inputs.of(envs), past_of(rollout.past, envs))
                loss = ppo_loss(
                    logits, values, *(tensor[:, envs] for tensor in batch),
                    clip=params.clip, entropy_weight=params.entropy, value_weight=params.value_weight,
                )  # fmt: skip
                loss.total.backward()  # type: ignore[no-untyped-call]
                norm = float(self.policy.flat_gradient.norm())
                if not math.isfinite(norm):
                    raise Diverged(f"the gradient is {norm} in update {self.updates}; try a lower learning_rate")
                if norm > params.max_gradient:
                    self.policy.flat_gradient.mul_(params.max_gradient / norm)
                self.optimizer.step(rate)
                losses.append(loss)
        if not self.policy.is_flat:
            raise Diverged(
                f"update {self.updates} moved a parameter or its gradient out of the vectors that are trained; a policy "
                "must not replace parameters or set gradients to None after flatten()"
            )
        self.updates += 1
        used = time.process_time() - processor
        self.processor_s += used
        row = {
            "step": self.steps,
            "update": self.updates,
            "train_reward": float(rollout.rewards.mean()),
            "episodes": len(rollout.hearts),
            "policy_loss": float(np.mean([float(loss.policy.detach()) for loss in losses])),
            "value_loss": float(np.mean([float(loss.value.detach()) for loss in losses])),
            "entropy": float(np.mean([float(loss.entropy.detach()) for loss in losses])),
            "kl": float(losses[-1].kl),
            "clip_fraction": float(np.mean([float(loss.clip_fraction) for loss in losses])),
            "grad_norm": norm,
            "learning_rate": rate,
            "steps_per_s": params.envs * params.unroll / max(time.monotonic() - wall, 1e-9),
            "processor_s": used,
            "level_number": list(LEVELS).index(self.worlds.level.name),
        }
        if len(rollout.hearts):
            row |= {"train_hearts": float(rollout.hearts.mean()), "train_solved": float((rollout.hearts > 0).mean())}
        if spread := float(returns.var()):
            row["explained_variance"] = 1 - float((returns - rollout.values).var()) / spread
        if isinstance(self.curriculum, LearningProgress):
            row["curriculum_rooms"] = float(1 / np.square(self.curriculum.weights()).sum())
        return row

    # -- checkpoints

    def state(self) -> dict[str, Any]:
        """Everything that the next update depends on."""
        return {
            "policy": self.policy.state_dict(),
            "buffers": dict(self.policy.named_buffers()),
            "mean": self.optimizer.mean,
            "square": self.optimizer.square,
            "optimizer_steps": self.optimizer.steps,
            "updates": self.updates,
            "processor_s": self.processor_s,
            "past": self.past,
            "codes": torch.from_numpy(self.senses.codes),
            "starts": torch.from_numpy(self.senses.starts),
            "worlds": {name: torch.from_numpy(getattr(self.worlds, name)) for name in SNAPSHOT},
            "curriculum": {name: torch.from_numpy(values) for name, values in self.curriculum.state().items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        for name, buffer in self.policy.named_buffers():  # also those that state_dict leaves out
            buffer.copy_(state["buffers"][name])
        self.optimizer.restore(state["mean"], state["square"], state["optimizer_steps"])
        self.updates = state["updates"]
        self.processor_s = state["processor_s"]
        self.past = state["past"]
        self.senses.codes[:] = state["codes"].numpy()
        self.senses.starts[:] = state["starts"].numpy()
        for name, values in state["worlds"].items():
            getattr(self.worlds, name)[...] = values.numpy()
        self.curriculum.restore({name: values.numpy() for name, values in state["curriculum"].items()})
