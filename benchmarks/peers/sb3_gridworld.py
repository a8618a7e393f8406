"""RecurrentPPO of SB3-contrib in the gridworld: `sb3_gridworld.py UPDATES` prints processor seconds for each update.

The same world, number of environments, steps and minibatches as ours, and a network of about the same size: the same
encoder, then an LSTM. It needs torch, numba and sb3-contrib: benchmarks/gridworld.py says which Python runs it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv

from bakeoff.workloads.gridworld.curricula import make_curriculum
from bakeoff.workloads.gridworld.levels import find_level
from bakeoff.workloads.gridworld.world import Worlds

ENVS, STEPS, WIDTH, HIDDEN = 128, 32, 64, 50


class Rooms(VecEnv):
    """`Worlds` as a vector environment: cells as codes, then what is carried, the last action and whether it gave a heart."""

    def __init__(self) -> None:
        super().__init__(ENVS, spaces.Box(0, 27, (60,), np.uint8), spaces.Discrete(5))
        level = find_level("level_0")
        self.curriculum = make_curriculum("uniform", level, ENVS, np.random.default_rng(0))
        self.worlds = Worlds(level, self.curriculum.tasks)
        self.infos: list[dict[str, Any]] = [{} for _ in range(ENVS)]

    def _codes(self, actions: np.ndarray) -> np.ndarray:
        seen, goes_on = self.worlds.observations, ~self.worlds.done
        cells = (2 * seen[..., 0] + seen[..., 1]).reshape(ENVS, 49)
        last = np.stack(((actions + 1) * goes_on, (self.worlds.rewards >= 1) & goes_on), 1)
        return np.concatenate((cells, self.worlds.inventory, last), 1).astype(np.uint8)

    def reset(self) -> np.ndarray:
        self.worlds.reset(self.curriculum.tasks)
        return self._codes(np.full(ENVS, -1))

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        self.worlds.step(self.actions, self.curriculum.next_tasks)
        self.curriculum.finish(self.worlds.done, self.worlds.hearts)
        return self._codes(self.actions), self.worlds.rewards.copy(), self.worlds.done.copy(), self.infos

    def close(self) -> None: ...

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * ENVS

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None: ...

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return [None] * ENVS

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * ENVS


class Encoder(BaseFeaturesExtractor):
    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, WIDTH)
        self.glyphs = torch.nn.Embedding(28, 8)
        self.last = torch.nn.Embedding(6, 8)
        self.linear = torch.nn.Linear(49 * 8 + 10 + 8, WIDTH)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        whole = codes.long()
        parts = (self.glyphs(whole[:, :49]).flatten(1), codes[:, 49:58], codes[:, 59:], self.last(whole[:, 58]))
        return torch.relu(self.linear(torch.cat(parts, 1)))


class Clock(BaseCallback):
    """Processor time at the start of each rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.ticks: list[float] = []

    def _on_rollout_start(self) -> None:
        self.ticks.append(time.process_time())

    def _on_step(self) -> bool:
        return True


def main() -> None:
    updates, epochs = map(int, sys.argv[1:3])
    torch.set_num_threads(1)
    model = RecurrentPPO(
        "MlpLstmPolicy", Rooms(), learning_rate=2e-3, n_steps=STEPS, batch_size=ENVS * STEPS // 4, n_epochs=epochs,
        gamma=0.97, gae_lambda=0.95, ent_coef=0.02, device="cpu",
        policy_kwargs={
            "features_extractor_class": Encoder, "net_arch": [], "lstm_hidden_size": HIDDEN, "shared_lstm": True,
            "enable_critic_lstm": False, "normalize_images": False,
        },
    )  # fmt: skip
    clock = Clock()
    model.learn((updates + 1) * ENVS * STEPS, callback=clock)
    taken = [end - begin for begin, end in zip(clock.ticks, clock.ticks[1:], strict=False)]
    parameters = sum(weight.numel() for weight in model.policy.parameters())
    print(json.dumps({"parameters": parameters, "seconds": taken}))


if __name__ == "__main__":
    main()
