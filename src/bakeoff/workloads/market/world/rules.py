"""The laws of a scenario as numbers: regimes, tiers, kinds of traders, and tables of how a story moves an index.

All of it is public. In a story with hidden direction theta the index has grown, after k of its n ticks, by

    exp(drift[theta] * exposure[k] + noise + (jump[theta] if k == n)) / Z[k]

where Z makes the mean over the prior of theta exactly 1 at every k. So the index is a martingale for everyone who knows
only the prior, and nobody earns by being long.

`rules_of` gives the laws by name for Python, `packed_rules` the same as the flat array `r` for kernels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from bakeoff.workloads.market.scenario import REGIMES, Scenario
from bakeoff.workloads.market.world.jit import kernel
from bakeoff.workloads.market.world.layout import CHATS, Floats

SHORTEST, LONGEST = 8, 24
"""Story lengths in ticks, drawn evenly. The law knows nothing of the scenario's end, so a longer world begins like a
shorter one."""

GRID = 5
"""How many reliabilities a tier draws from."""

MOST_ASSETS = 32
CHAT_GATES = (45.0, 50.0, 55.0)
"""The reputation that an invitation to each chat needs."""

KINDS = tuple(name for name in REGIMES if name != "mixed")

# The rules as kernels read them: single numbers first, in the order of `Rules`, then tables.
CLAIM_RATE, TIP_RATE, FEE, PERP_FEE, LIQUIDITY_B, DEPTH, LINEAR, ROOT, RELAX, MAX_LEVERAGE = range(10)
MAINTENANCE, PENALTY, FUNDING_SHARE, FUNDING_CAP, FUNDING_EVERY, HOUR, KINDS_DRAWN = range(10, 17)
CHAT_GATE = 17
SOURCE_GRID = CHAT_GATE + CHATS
CHAT_GRID = SOURCE_GRID + GRID
DRAWN = CHAT_GRID + GRID  # which regimes stories are drawn from
FIRST_PRICES = DRAWN + len(KINDS)
REGIME_TABLE = FIRST_PRICES + MOST_ASSETS

# A row of the regime table: three numbers for theta = -1, 0, +1 each, then single ones.
PRIOR, DRIFT, JUMP, LOG_PRIOR, LIQUIDITY, GAP, PUMP, REGIME_ROW = 0, 3, 6, 9, 12, 13, 14, 15

# The story table is indexed by regime, length and tick of the story. EXPOSURE, VARIANCE and LOG_Z are sums up to that
# tick; SIGMA, STEP (of the exposure), FALL (what is taken off the log-price) and PRECISION (1 / sigma^2) are its own.
STORY_TABLE = REGIME_TABLE + len(KINDS) * REGIME_ROW
EXPOSURE, VARIANCE, LOG_Z, SIGMA, STEP, FALL, PRECISION, STORY_ROW = range(8)
STORY_TICKS = LONGEST + 1
TRADER_TABLE = STORY_TABLE + len(KINDS) * STORY_TICKS * STORY_TICKS * STORY_ROW

# A row of the trader table.
WAKE, BELIEF, MOMENTUM, FEELING, NOISE, PREMIUM, CAP, MANIPULATES, TRADER_ROW = range(9)


@kernel
def regime_row(kind: int) -> int:
    """Index in `r` of a regime: PRIOR ... PUMP."""
    return REGIME_TABLE + kind * REGIME_ROW


@kernel
def story_row(kind: int, length: int, tick: int) -> int:
    """Index in `r` of tick `tick` of a story of that regime and length: EXPOSURE ... PRECISION."""
    return STORY_TABLE + ((kind * STORY_TICKS + length) * STORY_TICKS + tick) * STORY_ROW


@kernel
def trader_row(trader: int) -> int:
    """Index in `r` of a background trader: WAKE ... MANIPULATES."""
    return TRADER_TABLE + trader * TRADER_ROW


class Regime(NamedTuple):
    """How stories of one kind unfold. Triples are for theta = -1, 0, 1, stages for the thirds of a story."""

    prior: tuple[float, float, float]
    drift: tuple[float, float, float]
    jump: tuple[float, float, float]
    """Growth per tick of exposure, and at the announcement."""
    sigma: float
    """Standard deviation of the log-price per tick."""
    drift_stages: tuple[float, float, float] = (1.0, 1.0, 1.0)
    sigma_stages: tuple[float, float, float] = (1.0, 1.0, 1.0)
    liquidity: float = 1.0
    """Factor on the markets' b and on the perpetuals' depth."""
    pump: float = 1.0
    """Factor on the bets of manipulators."""


REGIME_LAWS: dict[str, Regime] = {
    "calm": Regime((0.30, 0.40, 0.30), (-0.0003, 0.0, 0.0003), (-0.020, 0.0, 0.020), 0.0020),
    "trend": Regime((0.40, 0.20, 0.40), (-0.0012, 0.0, 0.0012), (-0.010, 0.0, 0.010), 0.0030),
    "crash": Regime((0.15, 0.25, 0.60), (-0.0006, 0.0, 0.0002), (-0.120, 0.0, 0.025), 0.0030),
    "scandal": Regime(
        (0.40, 0.25, 0.35), (-0.0006, 0.0, 0.0006), (-0.080, 0.0, 0.070), 0.0035, (0.3, 1.0, 1.7), (0.7, 1.0, 1.6)
    ),
    "pump-and-dump": Regime((0.15, 0.70, 0.15), (-0.0004, 0.0, 0.0004), (-0.030, 0.0, 0.030), 0.0030, pump=4.0),
    "drought": Regime((0.30, 0.40, 0.30), (-0.0004, 0.0, 0.0004), (-0.025, 0.0, 0.025), 0.0030, liquidity=0.25),
}


class Tier(NamedTuple):
    """How clear the news and how expensive the trading is.

    A reliability is the chance that a claim is true: 1/3 is chance, and a source below it misleads.
    """

    sources: tuple[float, ...]
    """The reliabilities that a world draws for its sources."""
    chats: tuple[float, ...]
    claim_rate: float
    """Chance of a claim for each asset in a tick."""
    tip_rate: float
    """Chance of a tip in each chat in a tick."""
    fee: float
    perp_fee: float
    liquidity: float
    """The b of the markets' scoring rule, in dollars."""
    depth: float
    """Of each perpetual, in dollars."""
    max_leverage: float
    traders: tuple[str, ...]
    """Kinds of the background traders, in turn."""


TIER_LAWS: dict[str, Tier] = {
    "easy": Tier(
        (0.25, 0.55, 0.70, 0.80, 0.90), (0.10, 0.70, 0.80, 0.90, 0.95), 0.35, 0.30, 0.002, 0.0002, 500.0, 200_000.0, 10.0,
        ("informed", "noise", "noise", "momentum", "noise", "maker", "contrarian", "manipulator"),
    ),
    "normal": Tier(
        (0.15, 0.40, 0.55, 0.70, 0.80), (0.05, 0.55, 0.70, 0.80, 0.90), 0.25, 0.20, 0.005, 0.0004, 400.0, 100_000.0, 10.0,
        ("informed", "noise", "momentum", "contrarian", "maker", "manipulator", "noise", "informed"),
    ),
    "hard": Tier(
        (0.10, 0.25, 0.40, 0.50, 0.65), (0.05, 0.20, 0.50, 0.65, 0.80), 0.15, 0.12, 0.010, 0.0008, 250.0, 60_000.0, 5.0,
        ("informed", "informed", "noise", "maker", "informed", "momentum", "contrarian", "manipulator"),
    ),
}  # fmt: skip

ARCHETYPES: dict[str, tuple[float, ...]] = {
    #              wake  belief momentum feeling noise premium cap manipulates
    "informed": (0.20, 6.0, 0.0, 0.00, 0.15, 1.0, 100.0, 0.0),
    "noise": (0.12, 0.0, 0.0, 0.40, 0.45, 0.0, 40.0, 0.0),
    "momentum": (0.12, 0.0, 5.0, 0.20, 0.10, 0.0, 40.0, 0.0),
    "contrarian": (0.12, 0.0, -5.0, 0.00, 0.10, 1.0, 40.0, 0.0),
    "maker": (0.15, 0.0, -3.0, 0.00, 0.00, 4.0, 40.0, 0.0),
    "manipulator": (0.15, 0.0, 0.0, 0.00, 0.05, 0.0, 60.0, 1.0),
}
"""How often each kind of trader wakes, and how strongly it leans on the exact public belief, the trend, the feed's
sentiment, chance, and the perpetual's premium. `cap` is its largest bet in dollars; perpetual orders are `PERP_SCALE`
times as large."""

PERP_SCALE = 20.0

TICKERS: tuple[tuple[str, float], ...] = (
    ("BTCX", 64000.0), ("ETHX", 3200.0), ("SOLX", 140.0), ("AVLX", 35.0), ("MATX", 0.9), ("TSLO", 240.0),
    ("NVDO", 120.0), ("APLO", 210.0), ("GLDX", 2400.0), ("OILX", 78.0), ("WHTX", 5.6), ("COFX", 2.3),
    ("ROBO", 52.0), ("FUSN", 18.0), ("QBIT", 410.0), ("ORBT", 66.0),
)  # fmt: skip


class Rules(NamedTuple):
    """The laws of a scenario by name. The order of the numbers is that of CLAIM_RATE ... HOUR above."""

    claim_rate: float
    tip_rate: float
    fee: float
    perp_fee: float
    liquidity: float
    depth: float
    linear: float
    root: float
    """Premium of a perpetual's mark at push u: linear * u + root * sign(u) * sqrt|u|."""
    relax: float
    """What is left of a push after one tick."""
    max_leverage: float
    maintenance: float
    """Least margin for each dollar of position."""
    penalty: float
    """Of a liquidation, for each dollar of position."""
    funding_share: float
    """Of the premium."""
    funding_cap: float
    funding_every: int
    """Ticks."""
    hour: int
    """Ticks."""
    regime: Floats
    """[kind, REGIME_ROW]"""
    story: Floats
    """[kind, length, tick, STORY_ROW]"""


@lru_cache(maxsize=64)
def rules_of(scenario: Scenario) -> Rules:
    """The laws of a scenario by name.

    Fees, liquidity and leverage come from its tier; the rest is the same in all scenarios.
    """
    tier = TIER_LAWS[scenario.tier]._asdict()
    return Rules(
        **{name: tier[name] for name in Rules._fields if name in tier},
        linear=0.03,
        root=0.006,
        relax=0.8,
        maintenance=0.03,
        penalty=0.005,
        funding_share=0.25,
        funding_cap=0.002,
        funding_every=8,
        hour=max(1, 3600 // scenario.tick_interval),
        regime=_regime_table(),
        story=_story_table(),
    )


@lru_cache(maxsize=64)
def packed_rules(scenario: Scenario) -> Floats:
    """The laws of a scenario as kernels read them, in one flat array: `r[FEE]`, `r[regime_row(kind) + DRIFT]`."""
    rules, tier = rules_of(scenario), TIER_LAWS[scenario.tier]
    drawn = range(len(KINDS)) if scenario.regime == "mixed" else [KINDS.index(scenario.regime)]
    r = np.zeros(TRADER_TABLE + scenario.agents * TRADER_ROW)
    r[: len(rules) - 2] = rules[:-2]
    r[KINDS_DRAWN] = len(drawn)
    r[CHAT_GATE : CHAT_GATE + CHATS] = CHAT_GATES
    r[SOURCE_GRID : SOURCE_GRID + GRID] = tier.sources
    r[CHAT_GRID : CHAT_GRID + GRID] = tier.chats
    r[DRAWN : DRAWN + len(drawn)] = drawn
    prices = [TICKERS[asset % len(TICKERS)][1] for asset in range(scenario.assets)]
    r[FIRST_PRICES : FIRST_PRICES + scenario.assets] = prices
    r[REGIME_TABLE:STORY_TABLE] = rules.regime.ravel()
    r[STORY_TABLE:TRADER_TABLE] = rules.story.ravel()
    r[TRADER_TABLE:] = np.ravel([ARCHETYPES[archetype(scenario, agent)] for agent in range(scenario.agents)])
    return r


def archetype(scenario: Scenario, agent: int) -> str:
    """The kind of a background trader, one of ARCHETYPES."""
    traders = TIER_LAWS[scenario.tier].traders
    return traders[agent % len(traders)]


def ticker_of(asset: int) -> str:
    """The ticker of an asset. Beyond the named ones they are numbered: BTCX, ..., ORBT, BTCX2, ..."""
    name, _ = TICKERS[asset % len(TICKERS)]
    again = asset // len(TICKERS)
    return f"{name}{again + 1}" if again else name


@lru_cache(maxsize=1)
def _regime_table() -> Floats:
    """[kind, REGIME_ROW]"""
    table = np.zeros((len(KINDS), REGIME_ROW))
    for row, name in zip(table, KINDS, strict=True):
        law = REGIME_LAWS[name]
        worst = law.sigma * max(law.sigma_stages)
        row[PRIOR : PRIOR + 3] = law.prior
        row[LOG_PRIOR : LOG_PRIOR + 3] = np.log(law.prior)
        row[DRIFT : DRIFT + 3] = law.drift
        row[JUMP : JUMP + 3] = law.jump
        row[LIQUIDITY] = law.liquidity
        # The margin that survives the largest jump together with six standard deviations of noise.
        row[GAP] = np.expm1(max(abs(jump) for jump in law.jump)) + 6 * worst
        row[PUMP] = law.pump
    return table


@lru_cache(maxsize=1)
def _story_table() -> Floats:
    """[kind, length, tick, STORY_ROW]; rows of tick 0 and of lengths that do not occur are zero."""
    table = np.zeros((len(KINDS), STORY_TICKS, STORY_TICKS, STORY_ROW))
    for kind, name in enumerate(KINDS):
        law = REGIME_LAWS[name]
        for length in range(SHORTEST, LONGEST + 1):
            stage = np.minimum(2, 3 * np.arange(length) // length)
            sigma = law.sigma * np.array(law.sigma_stages)[stage]
            rows = table[kind, length]
            rows[1 : length + 1, SIGMA] = sigma
            rows[1 : length + 1, EXPOSURE] = np.cumsum(np.array(law.drift_stages)[stage])
            rows[1 : length + 1, VARIANCE] = np.cumsum(sigma**2)
            # ln Z is the logarithm of the mean growth over the prior. The noise contributes sigma^2 / 2 per tick.
            growth = np.outer(rows[: length + 1, EXPOSURE], law.drift)
            growth[length] += law.jump
            rows[: length + 1, LOG_Z] = np.log(np.exp(growth) @ np.array(law.prior))
            rows[1 : length + 1, STEP] = np.diff(rows[: length + 1, EXPOSURE])
            rows[1 : length + 1, FALL] = np.diff(rows[: length + 1, LOG_Z]) + sigma**2 / 2
            rows[1 : length + 1, PRECISION] = sigma**-2.0
    return table
