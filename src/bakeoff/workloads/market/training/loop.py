"""The loop: play worlds in groups, learn from what did better than its group, and log what came of it.

Every iteration draws fresh worlds and its own chance from (seed, iteration) alone, so a training that was stopped goes on as
if it had not been. The training worlds lie far from the seeds that experiments use: held-out worlds stay unseen.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from bakeoff.errors import UsageError
from bakeoff.records.layout import atomic_write
from bakeoff.stats.advantages import group_relative, varies
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.training.features import FEATURES
from bakeoff.workloads.market.training.learner import Adam, Decisions, surrogate_gradient
from bakeoff.workloads.market.training.network import Network
from bakeoff.workloads.market.training.policy import Policy
from bakeoff.workloads.market.training.rollouts import Played, play

FIRST_WORLD = 2**40
"""Seeds of training worlds start here; experiments count from 0."""
WORLDS_A_TRAINING = 2**20
CHECKPOINT = "checkpoint.npz"
LOG = "metrics.jsonl"
ANEW = "name another --output, or give --fresh to start anew"


@dataclass(frozen=True, slots=True)
class Settings:
    scenario: Scenario
    iterations: int = 10
    windows: int = 256
    """Worlds in each iteration."""
    rollouts: int = 5
    """Of each world, by the same policy: a group."""
    learning_rate: float = 0.02
    epochs: int = 4
    """How often each batch is gone through."""
    batches: int = 4
    """Parts that an epoch is cut into, one step each."""
    clip: float = 0.2
    entropy: float = 0.002
    hidden: int = 16
    seed: int = 0

    @property
    def identity(self) -> str:
        """What must not change between a training and its continuation; it may go on for longer."""
        told = {**asdict(self), "scenario": self.scenario.model_dump(mode="json")}
        del told["iterations"]
        return json.dumps(told, sort_keys=True)


class Training:
    """`for facts in Training(settings, directory)` trains; each iteration is on disk before its facts are told."""

    def __init__(self, settings: Settings, directory: Path, *, fresh: bool = False) -> None:
        """Goes on with the training that is in `directory`, unless a fresh one is wanted."""
        self.settings = settings
        self.directory = directory
        if not settings.scenario.perpetuals:
            raise UsageError("--perpetuals 0: the policy reads the news through perpetuals; give at least one")
        self.start = Policy.start(FEATURES, settings.hidden, settings.seed)
        self.policy = Policy.start(FEATURES, settings.hidden, settings.seed)
        self.adam = Adam(settings.learning_rate)
        self.done = 0
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / CHECKPOINT).exists() and not fresh:
            try:
                self._resume()
            except (OSError, ValueError, KeyError, BadZipFile) as error:
                raise UsageError(f"{directory}: cannot go on from {CHECKPOINT} and {LOG} ({error}); {ANEW}") from error
        else:
            (directory / CHECKPOINT).unlink(missing_ok=True)
            (directory / LOG).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[dict[str, float]]:
        while self.done < self.settings.iterations:
            yield self._iterate()

    def _iterate(self) -> dict[str, float]:
        settings = self.settings
        rng = np.random.default_rng([settings.seed, 1, self.done])
        first = FIRST_WORLD + settings.seed * WORLDS_A_TRAINING + self.done * settings.windows
        worlds = np.arange(first, first + settings.windows, dtype=np.int64)
        played = play(self.policy, settings.scenario, np.repeat(worlds, settings.rollouts), rng)
        rewards = played.rewards.reshape(settings.windows, settings.rollouts)
        learnt = self._learn(played, rewards, rng)
        greedy = play(self.policy, settings.scenario, worlds, None)
        self.done += 1
        facts = {
            "reward": float(rewards.mean()),
            "reward_sd": float(rewards.std(ddof=1)),
            "groups": float(varies(rewards).sum()),
            **learnt,
            "greedy_reward": float(greedy.rewards.mean()),
            "worlds": float(self.done * settings.windows),
            "world_steps": float(self.done * settings.windows * settings.rollouts * settings.scenario.ticks),
        }
        self._save(facts)
        return {"step": self.done, **facts}

    def _learn(self, played: Played, rewards: npt.NDArray[np.float64], rng: np.random.Generator) -> dict[str, float]:
        """Go through the decisions of groups whose rewards differ; the others say nothing."""
        settings = self.settings
        advantages = group_relative(rewards).ravel()
        useful = np.repeat(varies(rewards), settings.rollouts)
        made = {kind: played.decisions(kind, advantages, useful) for kind in FEATURES}
        ratios = []
        for _ in range(settings.epochs):
            parts = {kind: _parts(one, settings.batches, rng) for kind, one in made.items()}
            for number in range(settings.batches):
                gradients = {}
                for kind, network in self.policy.networks.items():
                    gradients[kind], ratio = surrogate_gradient(
                        network, parts[kind][number], settings.clip, settings.entropy
                    )
                    ratios.append(ratio)
                self.adam.descend(self.policy.networks, gradients)
        moved = np.concatenate(ratios)
        return {"clipped": float((abs(moved - 1) > settings.clip).mean()) if len(moved) else 0.0}

    # -- on disk

    def log(self) -> list[dict[str, float]]:
        """One table for each iteration."""
        return [json.loads(line) for line in (self.directory / LOG).read_text().splitlines()]

    def write(self) -> None:
        """The policy, its starting point and the learning curve."""
        from bakeoff.report.write import write
        from bakeoff.workloads.market.training.curve import curve

        told = {
            **asdict(self.settings),
            "scenario": self.settings.scenario.model_dump(mode="json"),
            "trained": self.done,
        }
        self.policy.facts, self.start.facts = told, {**told, "trained": 0}
        self.policy.save(self.directory / "policy.json")
        self.start.save(self.directory / "start.json")
        write(curve(self.log(), self.settings.windows), self.directory / "learning.png")

    def _save(self, facts: Mapping[str, float]) -> None:
        arrays: dict[str, Any] = {"done": self.done, "steps": self.adam.steps, "identity": self.settings.identity}
        owners = {"weights": self.policy.networks, "first": self.adam.first, "second": self.adam.second}
        for owner, networks in owners.items():
            for kind, network in networks.items():
                arrays |= {f"{owner}/{kind}/{at}": array for at, array in enumerate(network.arrays)}
        with (self.directory / LOG).open("a", encoding="utf-8") as log:
            log.write(json.dumps({"step": self.done, **facts}) + "\n")
        saved = io.BytesIO()
        np.savez(saved, **arrays)
        atomic_write(self.directory / CHECKPOINT, saved.getvalue())

    def _resume(self) -> None:
        path = self.directory / CHECKPOINT
        with path.open("rb") as file, np.load(file) as saved:
            if str(saved["identity"]) != self.settings.identity:
                raise UsageError(f"{path}: was trained with other settings; {ANEW}")
            self.done, self.adam.steps = int(saved["done"]), int(saved["steps"])
            if self.done > self.settings.iterations:
                raise UsageError(f"{path}: has {self.done} iterations already; ask for as many, {ANEW}")
            owners = {"weights": self.policy.networks, "first": self.adam.first, "second": self.adam.second}
            for owner, networks in owners.items():
                for kind in FEATURES:
                    networks[kind] = Network(*(saved[f"{owner}/{kind}/{at}"] for at in range(4)))
        self._forget_what_was_not_saved()

    def _forget_what_was_not_saved(self) -> None:
        """A line may be there of an iteration whose checkpoint never came to be."""
        kept = [
            line for line in (self.directory / LOG).read_text().splitlines() if json.loads(line)["step"] <= self.done
        ]
        (self.directory / LOG).write_text("".join(f"{line}\n" for line in kept))


def _parts(made: Decisions, count: int, rng: np.random.Generator) -> list[Decisions]:
    order = rng.permutation(len(made.choices))
    return [
        Decisions(made.features[rows], made.choices[rows], made.log_chance[rows], made.advantages[rows])
        for rows in np.array_split(order, count)
    ]
