"""Training by group-relative policy gradient: decisions of rollouts that did better than their group become likelier.

`play` rolls a policy out in many worlds at once and keeps every decision. A decision gets its rollout's advantage
over the group, the other rollouts of the same world (Shao et al. 2024, DeepSeekMath: GRPO); there is no critic.
`surrogate_gradient` clips the ratio of new to old probability (Schulman et al. 2017, PPO), so one batch serves
several steps. `Training` is the loop around it.

Every iteration draws fresh worlds and its own randomness from (seed, iteration) alone, so a training that was
interrupted continues exactly as if it had not been. The training worlds lie far from the seeds that experiments use,
so held-out worlds stay unseen.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from bakeoff.errors import UsageError
from bakeoff.records.layout import atomic_write
from bakeoff.spec.identity import canonical_json
from bakeoff.stats.effects import group_relative, varies
from bakeoff.workloads.market.policy import FEATURES, Network, Policy, features, log_softmax, see
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world.advance import MarketBatch
from bakeoff.workloads.market.world.layout import OPEN, Floats, Ints

if TYPE_CHECKING:
    from bakeoff.web.figure import Figure

FIRST_WORLD = 2**40
"""Seeds of training worlds start here; experiments count from 0."""
WORLDS_A_TRAINING = 2**20
CHECKPOINT = "checkpoint.npz"
LOG = "metrics.jsonl"
METRIC = "total_pnl"
START, TRAINED, MOMENTUM = "start", "trained", "momentum"
RIVALS = (START, MOMENTUM)
"""The arms that the trained policy has to beat."""
RESTART = "name another --output, or give --fresh to start again"
CURVES = {"greedy_reward": "likeliest choices", "reward": "drawn choices, as in training"}


# -- playing and learning


@dataclass(frozen=True, slots=True)
class Decisions:
    """What was decided for the instruments of one kind, one row each."""

    features: Floats  # [n, features]
    choices: Ints  # [n]
    log_chance: Floats  # [n]: of the choice, under the policy that made it
    advantages: Floats  # [n]: of the rollout it belongs to

    def at(self, rows: Ints) -> Decisions:
        """The decisions in these rows."""
        return Decisions(self.features[rows], self.choices[rows], self.log_chance[rows], self.advantages[rows])


@dataclass(frozen=True, slots=True)
class Played:
    """n rollouts from the first tick to the last; what was decided is kept by kind of instrument."""

    rewards: Floats  # [n]: change of equity, in dollars
    features: dict[str, Floats]  # [ticks, n, instruments, features]
    choices: dict[str, Ints]  # [ticks, n, instruments]
    log_chances: dict[str, Floats]
    present: dict[str, NDArray[np.bool_]]
    """Whether there was anything to decide: a market slot can be between two questions."""

    def decisions(self, kind: str, advantages: Floats, useful: NDArray[np.bool_]) -> Decisions:
        """Those of the useful rollouts [n], each with its rollout's advantage [n]."""
        chosen = self.present[kind] & useful[None, :, None]
        spread = np.broadcast_to(advantages[None, :, None], chosen.shape)
        return Decisions(
            self.features[kind][chosen], self.choices[kind][chosen], self.log_chances[kind][chosen], spread[chosen]
        )


def play(policy: Policy, scenario: Scenario, seeds: Ints, rng: np.random.Generator | None) -> Played:
    """One rollout for each seed; equal seeds are the same world. Without `rng` the likeliest choices are made."""
    batch = MarketBatch(scenario, seeds)
    total = np.zeros(len(seeds))
    kept: dict[str, list[list[NDArray[np.generic]]]] = {kind: [] for kind in FEATURES}
    for tick in range(scenario.ticks):
        targets = []
        for kind, inputs in features(see(batch.state, tick)).items():
            if rng is None:
                choices, chances = policy.best(kind, inputs), np.zeros(inputs.shape[:-1])
            else:
                choices, chances = policy.sample(kind, inputs, rng)
            is_open = batch.state.markets[:, :, OPEN] > 0
            present = is_open if kind == "market" else np.ones(choices.shape, dtype=bool)
            targets.append(choices - 1)
            kept[kind].append([inputs, choices, chances, present])
        _, reward, _ = batch.step(np.concatenate(targets, axis=1).astype(np.int8))
        total += reward
    columns = {kind: [np.stack(parts) for parts in zip(*rows, strict=True)] for kind, rows in kept.items()}
    return Played(total, *({kind: parts[number] for kind, parts in columns.items()} for number in range(4)))


def surrogate_gradient(network: Network, made: Decisions, clip: float, entropy: float) -> tuple[Network, Floats]:
    """Gradient of the clipped surrogate loss, and the ratio of new to old probability of each choice.

    The loss is the negative mean over decisions of min(ratio * A, clip(ratio) * A) + entropy * (entropy of the
    policy). Where the clipped term is the smaller one, it does not depend on the weights and the gradient is 0.
    """
    chances = log_softmax(network.logits(made.features))
    rows = np.arange(len(made.choices))
    ratio = np.exp(chances[rows, made.choices] - made.log_chance)
    # Where clipping does not bind: the ratio may still grow (or shrink, for a negative advantage).
    free = np.where(made.advantages >= 0, ratio < 1 + clip, ratio > 1 - clip)
    pull = np.where(free, ratio * made.advantages, 0.0)
    share = np.exp(chances)
    # d log p(choice) / d logits = one_hot(choice) - share, times -ratio * advantage.
    downstream = share * pull[:, None]
    downstream[rows, made.choices] -= pull
    disorder = -(share * chances).sum(axis=-1, keepdims=True)
    downstream += entropy * share * (chances + disorder)
    return network.gradient(made.features, downstream / len(rows)), ratio


@dataclass(slots=True)
class Adam:
    """Adam (Kingma and Ba 2015) with the usual decay rates 0.9 and 0.999; `first` and `second` are its moments."""

    rate: float
    steps: int = 0
    first: dict[str, Network] = field(default_factory=dict)
    second: dict[str, Network] = field(default_factory=dict)

    def descend(self, networks: Mapping[str, Network], gradients: Mapping[str, Network]) -> None:
        """One step against the gradients, in place."""
        self.steps += 1
        for name, network in networks.items():
            first = self.first.setdefault(name, network.zeros())
            second = self.second.setdefault(name, network.zeros())
            parts = zip(network.arrays, gradients[name].arrays, first.arrays, second.arrays, strict=True)
            for weights, gradient, mean, square in parts:
                # Moments start at 0; the denominators below correct that bias.
                mean += 0.1 * (gradient - mean)
                square += 0.001 * (gradient * gradient - square)
                scale = np.sqrt(square / (1 - 0.999**self.steps)) + 1e-8
                weights -= self.rate * mean / (1 - 0.9**self.steps) / scale


# -- the loop


@dataclass(frozen=True, slots=True)
class Settings:
    """What decides how a training goes. The same settings give the same policy on the same machine."""

    scenario: Scenario
    iterations: int = 10
    windows: int = 256
    """Worlds in each iteration."""
    rollouts: int = 5
    """Of each world, by the same policy; they form a group."""
    learning_rate: float = 0.02
    epochs: int = 4
    """Passes over the decisions of an iteration."""
    batches: int = 4
    """Parts of an epoch, one step of Adam each."""
    clip: float = 0.2
    entropy: float = 0.002
    """Weight of the policy's entropy in the loss: it keeps the policy exploring."""
    hidden: int = 16
    """Width of the hidden layer."""
    seed: int = 0

    @property
    def identity(self) -> str:
        """Everything that must stay the same when a training continues; only the number of iterations may grow."""
        content = self.as_json()
        del content["iterations"]
        return json.dumps(content, sort_keys=True)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "scenario": self.scenario.model_dump(mode="json")}


class Training:
    """A training in a directory. Iterating over it trains and yields the metrics of each iteration:

        for metrics in Training(Settings(Scenario()), Path("market-training")):
            print(metrics["step"], metrics["reward"])

    Each iteration is on disk before its metrics are yielded.
    """

    def __init__(self, settings: Settings, directory: Path, *, fresh: bool = False) -> None:
        """Continues the training in `directory`, if there is one and `fresh` is not set.

        Raises UsageError when it was trained with other settings, is longer than asked for, or cannot be read.
        """
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
                raise UsageError(
                    f"{directory}: cannot continue from {CHECKPOINT} and {LOG} ({error}); {RESTART}"
                ) from error
        else:
            (directory / CHECKPOINT).unlink(missing_ok=True)
            (directory / LOG).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[dict[str, float]]:
        """Train until `settings.iterations` are done."""
        while self.done < self.settings.iterations:
            yield self._iterate()

    def _iterate(self) -> dict[str, float]:
        """Play fresh worlds, learn, play the same worlds greedily, save. Returns the metrics of the iteration."""
        settings = self.settings
        # [seed, 0] has drawn the starting weights.
        rng = np.random.default_rng([settings.seed, 1, self.done])
        first = FIRST_WORLD + settings.seed * WORLDS_A_TRAINING + self.done * settings.windows
        worlds = np.arange(first, first + settings.windows, dtype=np.int64)
        played = play(self.policy, settings.scenario, np.repeat(worlds, settings.rollouts), rng)
        rewards = played.rewards.reshape(settings.windows, settings.rollouts)
        learnt = self._learn(played, rewards, rng)
        greedy = play(self.policy, settings.scenario, worlds, None)
        self.done += 1
        metrics = {
            "reward": float(rewards.mean()),
            "reward_sd": float(rewards.std(ddof=1)),
            "groups": float(varies(rewards).sum()),
            **learnt,
            "greedy_reward": float(greedy.rewards.mean()),
            "worlds": float(self.done * settings.windows),
            "world_steps": float(self.done * settings.windows * settings.rollouts * settings.scenario.ticks),
        }
        self._save(metrics)
        return {"step": self.done, **metrics}

    def _learn(self, played: Played, rewards: Floats, rng: np.random.Generator) -> dict[str, float]:
        """Several steps on the decisions of groups whose rewards differ; the others carry no information."""
        settings = self.settings
        advantages = group_relative(rewards).ravel()
        useful = np.repeat(varies(rewards), settings.rollouts)
        made = {kind: played.decisions(kind, advantages, useful) for kind in FEATURES}
        ratios = []
        for _ in range(settings.epochs):
            # The decisions in random order, in parts of about the same size.
            parts = {
                kind: np.array_split(rng.permutation(len(decisions.choices)), settings.batches)
                for kind, decisions in made.items()
            }
            for number in range(settings.batches):
                gradients = {}
                for kind, network in self.policy.networks.items():
                    gradients[kind], ratio = surrogate_gradient(
                        network, made[kind].at(parts[kind][number]), settings.clip, settings.entropy
                    )
                    ratios.append(ratio)
                self.adam.descend(self.policy.networks, gradients)
        moved = np.concatenate(ratios)
        return {"clipped": float((abs(moved - 1) > settings.clip).mean()) if len(moved) else 0.0}

    # -- on disk

    def log(self) -> list[dict[str, float]]:
        """The metrics of every iteration so far."""
        return [json.loads(line) for line in (self.directory / LOG).read_text().splitlines()]

    def write(self) -> None:
        """Write the policy, its starting point and the learning curve."""
        from bakeoff.web.drawing import write

        facts = {**self.settings.as_json(), "trained": self.done}
        self.policy.facts, self.start.facts = facts, {**facts, "trained": 0}
        self.policy.save(self.directory / "policy.json")
        self.start.save(self.directory / "start.json")
        write(learning_curve(self.log(), self.settings.windows), self.directory / "learning.svg")

    def write_experiment(self, worlds: int) -> Path:
        """Write the experiment that decides: trained policy, starting point and `momentum` in unseen worlds.

        Returns the experiment file. The experiment's name and the policies' files contain the policy's version, so
        another policy is another experiment.
        """
        agents = {MOMENTUM: MOMENTUM}
        for arm, policy in ((START, self.start), (TRAINED, self.policy)):
            file = f"policy-{policy.version}.json"
            policy.save(self.directory / file)
            agents[arm] = f"policy:{file}"
        lines = [
            f'name = "market-train-{self.policy.version}"',
            'description = "A trained policy against its starting point and momentum, in worlds that training never saw."',
            'workload = "market"',
            f'seeds = "1..{worlds}"',
            "",
            "[params]",
        ]
        scenario = self.settings.scenario.model_dump(mode="json")
        lines += [f"{key} = {canonical_json(value)}" for key, value in scenario.items()] + [""]
        for arm in (START, TRAINED, MOMENTUM):
            lines += ["[[arms]]", f'name = "{arm}"', f'params = {{ agent = "{agents[arm]}" }}', ""]
        lines += ["[analysis]", f'metric = "{METRIC}"', f'control = "{START}"']
        path = self.directory / "benchmark.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def _save(self, metrics: Mapping[str, float]) -> None:
        """Log first, checkpoint second: `_resume` drops log lines that have no checkpoint."""
        arrays: dict[str, Any] = {"done": self.done, "steps": self.adam.steps, "identity": self.settings.identity}
        for owner, networks in self._networks().items():
            for kind, network in networks.items():
                arrays |= {f"{owner}/{kind}/{number}": array for number, array in enumerate(network.arrays)}
        with (self.directory / LOG).open("a", encoding="utf-8") as log:
            log.write(json.dumps({"step": self.done, **metrics}) + "\n")
        saved = io.BytesIO()
        np.savez(saved, **arrays)
        atomic_write(self.directory / CHECKPOINT, saved.getvalue())

    def _resume(self) -> None:
        """Read the checkpoint, and drop log lines of an iteration whose checkpoint was never written."""
        path = self.directory / CHECKPOINT
        with path.open("rb") as file, np.load(file) as saved:
            if str(saved["identity"]) != self.settings.identity:
                raise UsageError(f"{path}: was trained with other settings; {RESTART}")
            self.done, self.adam.steps = int(saved["done"]), int(saved["steps"])
            if self.done > self.settings.iterations:
                raise UsageError(f"{path}: has {self.done} iterations already; ask for at least as many, or {RESTART}")
            for owner, networks in self._networks().items():
                for kind in FEATURES:
                    networks[kind] = Network(*(saved[f"{owner}/{kind}/{number}"] for number in range(4)))
        lines = (self.directory / LOG).read_text().splitlines()
        kept = [line for line in lines if json.loads(line)["step"] <= self.done]
        (self.directory / LOG).write_text("".join(f"{line}\n" for line in kept))

    def _networks(self) -> dict[str, dict[str, Network]]:
        """Everything of the checkpoint that has the shape of a network."""
        return {"weights": self.policy.networks, "first": self.adam.first, "second": self.adam.second}


def learning_curve(log: Sequence[Mapping[str, float]], worlds: int) -> Figure:
    """Mean reward by iteration; `worlds` is their number in each iteration."""
    from bakeoff.web.figure import Figure, Line, Panel, Rule

    steps = np.array([metrics["step"] for metrics in log])
    lines = [
        Line(steps, np.array([metrics[name] for metrics in log]), number, label)
        for number, (name, label) in enumerate(CURVES.items())
    ]
    return Figure(
        "Reward in training",
        f"Mean change of equity over the {worlds} worlds of each iteration. Drawn choices: before learning from them; "
        "likeliest choices: afterwards, in the same worlds. Held-out worlds decide, not this curve.",
        [Panel("iteration", "dollars per world", (*lines, Rule("y", 0.0)))],
    )
