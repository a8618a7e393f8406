"""Evaluation on held-out rooms: one episode in each, the same rooms for all arms of a seed and at every evaluation.

Scores are hearts. The random and the clairvoyant walker play the same rooms, so every score has a floor and a ceiling.
`held_out.json` has what is needed to replay an evaluation without the policy: task numbers and actions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.gridworld import kernels
from bakeoff.workloads.gridworld.levels import Level
from bakeoff.workloads.gridworld.policies import Policy
from bakeoff.workloads.gridworld.ppo import Rng, Senses, seed_torch
from bakeoff.workloads.gridworld.walkers import WALKERS, Scores, Walker, make_walker, walk
from bakeoff.workloads.gridworld.world import Tasks, Worlds, task_numbers

FORMAT = "bakeoff-gridworld-held-out-1"


class Player:
    """A walker that a policy steers, with actions drawn from its probabilities."""

    def __init__(self, policy: Policy, envs: int, rng: np.random.Generator) -> None:
        self._actor, self._rng = policy.actor(policy.initial(envs)), rng
        self._senses = Senses(envs)
        self._actions: NDArray[np.int64] | None = None

    def __call__(self, worlds: Worlds) -> NDArray[np.int64]:
        logits, _ = self._actor.act(self._senses.read(worlds, self._actions))
        envs = len(worlds)
        self._actions = np.empty(envs, np.int64)
        draws = self._rng.random(envs, dtype=np.float32)
        kernels.choose(logits.float().contiguous().numpy(), draws, self._actions, np.empty(envs, np.float32))
        return self._actions


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One episode in each held-out room."""

    scores: Scores
    actions: list[str] = field(repr=False)
    """Of each room, one digit for each step."""


class HeldOut:
    """The held-out rooms of a seed, and how the walkers do in them."""

    def __init__(self, level: Level, rooms: int, rng: Rng) -> None:
        self.level = level
        self.tasks: Tasks = task_numbers(rng("held-out rooms"), rooms, "held_out")
        self._rng = rng
        self.walkers = {name: self.play(make_walker(name, rng("random walker"))) for name in WALKERS}

    def play(self, walker: Walker) -> Evaluation:
        """Let a walker play one episode in every room."""
        taken = []

        def recorded(worlds: Worlds) -> NDArray[np.int64]:
            actions = walker(worlds)
            taken.append(actions.astype(np.uint8))
            return actions

        scores = walk(self.level, self.tasks, recorded)
        digits = np.array(taken).T + np.uint8(ord("0"))
        return Evaluation(
            scores, [bytes(row[:length]).decode() for row, length in zip(digits, scores.steps, strict=True)]
        )

    def evaluate(self, policy: Policy) -> Evaluation:
        """Draws are the same at every evaluation and for all arms. Dropout is off, and buffers stay as they are."""
        policy.eval()
        seed_torch(self._rng("evaluation noise"))
        return self.play(Player(policy, len(self.tasks), self._rng("evaluation")))

    def metrics(self, evaluation: Evaluation) -> dict[str, float]:
        """What the curve of a run shows.

        heldout_hearts    mean over the rooms
        heldout_solved    share of rooms with at least one heart
        in_context_gain   hearts in the last third of an episode minus those in the first: what finding out was worth
        normalised_score  0 for the random walker, 1 for the clairvoyant one
        """
        hearts, thirds = evaluation.scores.hearts, evaluation.scores.in_thirds
        floor, ceiling = (float(self.walkers[name].scores.hearts.mean()) for name in ("random", "clairvoyant"))
        return {
            "heldout_hearts": float(hearts.mean()),
            "heldout_solved": float((hearts > 0).mean()),
            "in_context_gain": float((thirds[:, 2] - thirds[:, 0]).mean()),
            "normalised_score": (float(hearts.mean()) - floor) / (ceiling - floor) if ceiling > floor else 0.0,
        }

    def as_json(self, evaluation: Evaluation, **facts: Any) -> dict[str, Any]:
        """The content of `held_out.json`. Task numbers are text, because many readers of JSON round large numbers."""
        scores = evaluation.scores
        return {
            "format": FORMAT,
            **facts,
            "level": self.level.name,
            "horizon": self.level.limit,
            "rooms": [
                {
                    "task": str(task),
                    "hearts": int(scores.hearts[room]),
                    "hearts_in_thirds": scores.in_thirds[room].tolist(),
                    "steps": int(scores.steps[room]),
                    **{name: int(other.scores.hearts[room]) for name, other in self.walkers.items()},
                    "actions": evaluation.actions[room],
                }
                for room, task in enumerate(self.tasks.tolist())
            ],
        }
