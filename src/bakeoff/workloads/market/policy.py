"""A policy: a small network for each kind of instrument that chooses short, flat or long from its features.

Its file is JSON, so that it can be read, compared and mailed; `policy_version` is a digest of everything that decides
how it plays.

`features` has what an instrument looks like as numbers, one row for each market and each perpetual. Only what every
seat may see goes in. `Sight` is the raw material for n worlds: `see` reads it from the rows of a batch, `Reader` from
a seat's views. A test checks that both ways give the same features.

`PolicyAgent` is the agent `policy:FILE`, for a file that `bakeoff market train` wrote. It reads public views only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.spec.identity import canonical_json
from bakeoff.workloads.market.agents.base import Brief, Seat, attempt
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.layout import MICRO, NO_NEWS, POSTS_KEPT, Floats, Ints
from bakeoff.workloads.market.world.rules import KINDS
from bakeoff.workloads.market.world.seats import BET, LEVERAGE, SIZE
from bakeoff.workloads.market.world.views import MarketView, PerpView, PositionsView

FORMAT = "bakeoff-market-policy-1"
TARGETS = 3
"""Short or NO, nothing, long or YES: the target is the choice less one."""
FLAT = 1
"""The choice that holds nothing."""


@dataclass(slots=True)
class Network:
    """A network with one hidden layer in NumPy. Also anything of its shape: a gradient, or a moment of one."""

    inward: Floats  # [features, hidden]
    hidden: Floats  # [hidden]
    outward: Floats  # [hidden, TARGETS]
    output: Floats  # [TARGETS]

    @classmethod
    def start(cls, features: int, hidden: int, rng: np.random.Generator) -> Network:
        """All choices are equally likely: the outward weights are 0, so only training gives the network an opinion."""
        inward = rng.normal(0.0, 1 / np.sqrt(features), (features, hidden))
        return cls(inward, np.zeros(hidden), np.zeros((hidden, TARGETS)), np.zeros(TARGETS))

    @property
    def arrays(self) -> list[Floats]:
        """All weights, in the order of the fields."""
        return [getattr(self, field.name) for field in fields(self)]

    def zeros(self) -> Network:
        return Network(*(np.zeros_like(array) for array in self.arrays))

    def logits(self, features: Floats) -> Floats:
        """[..., features] -> [..., TARGETS]"""
        return np.asarray(np.tanh(features @ self.inward + self.hidden) @ self.outward + self.output)

    def gradient(self, features: Floats, downstream: Floats) -> Network:
        """Of a loss whose gradient by the logits [n, TARGETS] is `downstream`, for features [n, features]."""
        active = np.tanh(features @ self.inward + self.hidden)
        back = (downstream @ self.outward.T) * (1 - active * active)
        return Network(features.T @ back, back.sum(axis=0), active.T @ downstream, downstream.sum(axis=0))


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities over the last axis. The maximum is subtracted first, so that exp does not overflow."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@dataclass(frozen=True, slots=True)
class Stakes:
    """The size of a choice in dollars: shares bought for a YES or NO, and the notional of a long or short.

    These are the sizes of a batch's targets. They are kept with the policy, which has learnt with them.
    """

    market: float = BET / MICRO
    perp: float = SIZE / MICRO
    leverage: float = LEVERAGE


@dataclass(slots=True)
class Policy:
    """Networks with the names of their inputs and the stakes of their choices."""

    networks: dict[str, Network]
    """By kind of instrument, "market" and "perp"."""
    features: Mapping[str, Sequence[str]]
    """The names of each kind's features, in the order of its network's inputs."""
    stakes: Stakes = Stakes()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """How it was trained; this does not decide how it plays."""

    @classmethod
    def start(cls, features: Mapping[str, Sequence[str]], hidden: int, seed: int) -> Policy:
        """A policy without an opinion."""
        rng = np.random.default_rng([seed, 0])
        return cls({kind: Network.start(len(names), hidden, rng) for kind, names in features.items()}, features)

    def sample(self, kind: str, features: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """For each row of features a choice, drawn by its probability, and the logarithm of that probability."""
        chances = log_softmax(self.networks[kind].logits(features))
        # Inverse transform sampling; rounding may leave the last sum below 1, hence the minimum.
        drawn = rng.random(chances.shape[:-1])[..., None]
        choices = np.minimum((np.exp(chances).cumsum(axis=-1) < drawn).sum(axis=-1), TARGETS - 1)
        return choices, np.take_along_axis(chances, choices[..., None], axis=-1)[..., 0]

    def best(self, kind: str, features: Floats) -> Ints:
        """The likeliest choice; flat unless another one is likelier."""
        logits = self.networks[kind].logits(features)
        best = logits.argmax(axis=-1)
        undecided = np.take_along_axis(logits, best[..., None], axis=-1)[..., 0] <= logits[..., FLAT]
        return np.where(undecided, FLAT, best)

    @property
    def version(self) -> str:
        """Twelve hex digits of a digest over everything that decides how it plays."""
        return hashlib.sha256(canonical_json(self._plays()).encode()).hexdigest()[:12]

    def _plays(self) -> dict[str, Any]:
        weights = {
            kind: {part.name: getattr(network, part.name).tolist() for part in fields(network)}
            for kind, network in self.networks.items()
        }
        names = {kind: list(names) for kind, names in self.features.items()}
        return {"features": names, "stakes": asdict(self.stakes), "weights": weights}

    def save(self, path: Path) -> None:
        """Write the policy as JSON; `load` reads it."""
        content = {"format": FORMAT, "policy_version": self.version, "facts": dict(self.facts), **self._plays()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Raises UsageError, with the path and the fix, when the file is not a policy."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise UsageError(f"{path}: a policy of format {content['format']!r}; this bakeoff reads {FORMAT!r}")
            networks = {
                kind: Network(**{part.name: np.array(weights[part.name], dtype=np.float64) for part in fields(Network)})
                for kind, weights in content["weights"].items()
            }
            return cls(networks, content["features"], Stakes(**content["stakes"]), content["facts"])
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}: not a policy; `bakeoff market train` writes one ({error!r})") from error


# -- features

STORY_FEATURES = ("news_up_down", "news_up_flat", "news_down_flat", "move", "move_scaled")
FEATURES: dict[str, tuple[str, ...]] = {
    "market": (
        *STORY_FEATURES, "ticks_left", "price", "opening_price", "distance", "held", "at_announcement",
        "is_above", "is_event", "is_rise", "news_if_above", "news_if_event", "news_if_rise",
    ),
    "perp": (*STORY_FEATURES, "ticks_left", "age", "held", *(f"regime_{name}" for name in KINDS)),
}  # fmt: skip
TYPICAL_LENGTH = 16.0
"""Of a story, in ticks."""
TYPICAL_MOVE = 0.003
"""Of an index in one tick."""
FAIR = 0.5
"""Reliability of a source before it has a record; it weighs as much as two claims."""


class Sight(NamedTuple):
    """Assets are [n, A], markets [n, M], sources [n, S]; times are in ticks from now."""

    heard: Ints  # [n, A, S]: what each source last said about the running story: -1, 0, 1, or NO_NEWS
    right: Ints  # [n, S]: claims on past stories that were true
    claims: Ints  # [n, S]: all of them
    regime: Ints
    left: Ints
    age: Ints
    price: Floats  # of the index
    began: Floats  # its price when the story began
    position: Ints  # -1, 0, 1: the sign of the perpetual position
    asset: Ints  # [n, M]
    kind: Ints
    market_left: Ints
    yes_price: Floats
    opening_price: Floats
    strike: Floats  # 0 where the question has none
    holding: Ints  # -1, 0, 1: the side of the shares


def see(state: at.State, tick: int) -> Sight:
    """What seat 0 of each world sees. Slots without an open question hold old numbers, which nobody may use."""
    record = state.header[:, at.RECORD : at.RECORD + 2 * at.SOURCES].reshape(-1, at.SOURCES, 2)
    assets, indices, markets, prices = state.assets, state.indices, state.markets, state.prices
    shares = state.shares[:, :, 0]
    return Sight(
        heard=state.heard,
        right=record[..., 0],
        claims=record[..., 1],
        regime=assets[:, :, at.REGIME],
        left=assets[:, :, at.DUE_TICK] - tick,
        age=tick - assets[:, :, at.START],
        price=indices[:, :, at.PRICE],
        began=indices[:, :, at.BEGAN],
        position=np.sign(state.positions[:, :, 0, at.UNITS]),
        asset=markets[:, :, at.ASSET],
        kind=markets[:, :, at.KIND],
        market_left=markets[:, :, at.DUE] - tick,
        yes_price=prices[:, :, at.PRICE_YES],
        opening_price=1.0 / (1.0 + np.exp(-prices[:, :, at.OFFSET])),
        strike=prices[:, :, at.STRIKE],
        holding=np.sign(shares[..., at.YES] - shares[..., at.NO]),
    )


def features(sight: Sight) -> dict[str, Floats]:
    """Inputs of the networks, "market" and "perp": [n, instruments, features], in the order of FEATURES."""
    # A source's claim weighs as much as its record says, in log-odds against the two other directions.
    reliability = (sight.right + 2 * FAIR) / (sight.claims + 2.0)
    weight = np.log(2 * reliability / (1 - reliability))[:, None]
    down, flat, up = (np.where(sight.heard == claim, weight, 0.0).sum(axis=-1) for claim in (-1, 0, 1))
    move = np.log(sight.price / sight.began) / (TYPICAL_MOVE * np.sqrt(TYPICAL_LENGTH))
    scaled = move * np.sqrt(TYPICAL_LENGTH / np.maximum(sight.age, 1))
    story = np.stack([up - down, up - flat, down - flat, move, scaled], axis=-1)
    single = np.stack([sight.left / TYPICAL_LENGTH, sight.age / TYPICAL_LENGTH, sight.position], axis=-1)
    perp = np.concatenate([story, single, np.eye(len(KINDS))[sight.regime]], axis=-1)
    return {"market": _market(sight, story), "perp": perp}


def _market(sight: Sight, story: Floats) -> Floats:
    """The features of the story that a question is about, and the question's own."""
    rows = np.arange(len(story))[:, None]
    about, kind = story[rows, sight.asset], np.eye(len(at.QUESTION_KINDS))[sight.kind]
    price = sight.price[rows, sight.asset]
    strike = np.where(sight.strike > 0, sight.strike, price)
    spread = TYPICAL_MOVE * np.sqrt(np.maximum(sight.market_left, 1))
    distance = np.clip(np.log(price / strike) / spread, -3, 3)
    single = np.stack(
        [
            sight.market_left / TYPICAL_LENGTH,
            4 * sight.yes_price - 2,
            4 * sight.opening_price - 2,
            distance,
            sight.holding,
            sight.market_left == sight.left[rows, sight.asset],
        ],
        axis=-1,
    )
    return np.concatenate([about, single, kind, kind * about[..., :1]], axis=-1)


# -- as an agent

_QUESTIONS = ("above", "event", "rise")


class PolicyAgent:
    """Plays the policy in a file, which gives each market and perpetual a target: -1, 0 or 1."""

    def __init__(self, path: str | Path, sample: bool = False, name: str = "") -> None:
        """With `sample` it draws its choices by their probabilities, as in training; else it takes the likeliest."""
        self.policy = Policy.load(Path(path))
        self.policy_version = self.policy.version
        self.name = name or f"policy:{Path(path).name}"
        self._sample = sample

    def reset(self, brief: Brief) -> None:
        self._rng = brief.rng
        self._reader = Reader()

    def act(self, seat: Seat) -> None:
        perps = seat.perpetuals()
        if not perps:
            return  # its features are about perpetuals; a world without them tells it nothing
        tickers = {perp.ticker for perp in perps}
        markets = [market for market in seat.markets() if market.ticker in tickers]
        held = seat.positions()
        sight = self._reader.see(seat, perps, markets, held)
        inputs = features(sight)
        stakes = self.policy.stakes
        shares = {(view.market_id, view.side): view.shares for view in held.markets}
        for market, target in zip(markets, self._targets("market", inputs["market"][0]), strict=True):
            wanted = {1: "YES", -1: "NO"}.get(target)
            for side in ("YES", "NO"):
                if side != wanted and (count := shares.get((market.id, side), 0.0)) > 0:
                    attempt(seat.sell, market.id, side, count)
            if wanted and not shares.get((market.id, wanted)):
                attempt(seat.buy, market.id, wanted, stakes.market)
        for perp, sign, target in zip(perps, sight.position[0], self._targets("perp", inputs["perp"][0]), strict=True):
            # A position on the wrong side is closed before the other side is opened.
            if sign and target != sign:
                attempt(seat.close, perp.ticker)
            if target and target != sign:
                attempt(seat.open, perp.ticker, "LONG" if target > 0 else "SHORT", stakes.perp, stakes.leverage)

    def _targets(self, kind: str, rows: np.ndarray) -> list[int]:
        """Return the policy's target for each row of features."""
        if not len(rows):
            return []
        choices = self.policy.sample(kind, rows, self._rng)[0] if self._sample else self.policy.best(kind, rows)
        return [int(choice) - 1 for choice in choices]


class Reader:
    """Remembers from tick to tick what each source last claimed and where each story began."""

    def __init__(self) -> None:
        self._story: dict[str, int] = {}
        self._began: dict[str, float] = {}
        self._heard: dict[str, dict[str, int]] = {}
        self._read: set[str] = set()

    def see(self, seat: Seat, perps: list[PerpView], markets: list[MarketView], held: PositionsView) -> Sight:
        """Return what the policy's features are made of. One world, so every first axis has length 1."""
        sources = seat.call("a2a.getOrganizations")["organizations"]
        self._listen(seat, perps)
        signs = {view.ticker: 1 if view.side == "LONG" else -1 for view in held.perps}
        sides = {view.market_id: 1 if view.side == "YES" else -1 for view in held.markets if view.shares > 0}
        assets = {perp.ticker: number for number, perp in enumerate(perps)}
        heard = [[self._heard[perp.ticker].get(source["id"], NO_NEWS) for source in sources] for perp in perps]
        tick = seat.tick
        return Sight(
            heard=np.array([heard]),
            right=np.array([[source["right"] for source in sources]]),
            claims=np.array([[source["claims"] for source in sources]]),
            regime=np.array([[KINDS.index(perp.regime) for perp in perps]]),
            left=np.array([[perp.announcement_tick - tick for perp in perps]]),
            age=np.array([[tick - perp.story_tick for perp in perps]]),
            price=np.array([[perp.index_price for perp in perps]]),
            began=np.array([[self._began[perp.ticker] for perp in perps]]),
            position=np.array([[signs.get(perp.ticker, 0) for perp in perps]]),
            asset=np.array([[assets[market.ticker] for market in markets]], dtype=np.int64),
            kind=np.array([[_QUESTIONS.index(market.kind) for market in markets]], dtype=np.int64),
            market_left=np.array([[market.resolve_tick - tick for market in markets]], dtype=np.int64),
            yes_price=np.array([[market.yes_price for market in markets]], dtype=np.float64),
            opening_price=np.array([[market.opening_price for market in markets]], dtype=np.float64),
            strike=np.array([[market.strike for market in markets]], dtype=np.float64),
            holding=np.array([[sides.get(market.id, 0) for market in markets]], dtype=np.int64),
        )

    def _listen(self, seat: Seat, perps: list[PerpView]) -> None:
        """Take note of stories that began, and of claims that were not read before."""
        for perp in perps:
            if self._story.get(perp.ticker) != perp.story:
                self._story[perp.ticker], self._began[perp.ticker] = perp.story, perp.index_price
                self._heard[perp.ticker] = {}
        began = {perp.ticker: perp.story_tick for perp in perps}
        for post in reversed(seat.posts(POSTS_KEPT)):  # oldest first: the latest claim of a source counts
            if post.kind != "source" or post.ticker is None or post.claim is None or post.id in self._read:
                continue
            self._read.add(post.id)
            if post.tick >= began.get(post.ticker, post.tick + 1):
                self._heard[post.ticker][post.author_id] = post.claim
