"""Distributions of scores. A world is what the arms of one seed share; a run is one draw in its world.

Arrays have the shape (replicates, tasks, seeds, rollouts) throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Shape = tuple[int, ...]
Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class Law:
    """`world(rng, shape)` is shared by the arms; `run(rng, world, shape)` is an arm's draw in that world."""

    name: str
    world: Callable[[Rng, Shape], Array]
    run: Callable[[Rng, Array, Shape], Array]
    normal: bool = False

    def arms(self, rng: Rng, worlds: Shape, *shapes: Shape) -> list[Array]:
        """One array for each shape, all in the same worlds: arms that do not differ."""
        world = self.world(rng, worlds)
        return [self.run(rng, world, shape) for shape in shapes]


def _standard(rng: Rng, shape: Shape) -> Array:
    return rng.normal(size=shape)


def _chance(rng: Rng, shape: Shape) -> Array:
    """The probability that a run in this world succeeds: between 0 and 1, mostly in the middle."""
    return rng.beta(2.0, 2.0, size=shape)


NORMAL = Law("normal", _standard, lambda rng, world, shape: world + rng.normal(size=shape), normal=True)
QUARTERS = Law(
    "scores in quarters", _chance, lambda rng, world, shape: rng.binomial(4, np.broadcast_to(world, shape)) / 4.0
)
TENTHS = Law(
    "scores in tenths", _chance, lambda rng, world, shape: rng.binomial(10, np.broadcast_to(world, shape)) / 10.0
)
LOGNORMAL = Law("lognormal", _standard, lambda rng, world, shape: np.exp(0.5 * world + rng.normal(size=shape)))
HEAVY = Law("t with 2 df", _standard, lambda rng, world, shape: world + rng.standard_t(2.0, size=shape))
BINARY = Law("binary", _chance, lambda rng, world, shape: (rng.random(shape) < world).astype(np.float64))
LAWS = (NORMAL, QUARTERS, TENTHS, LOGNORMAL, HEAVY, BINARY)


def exponential(rng: Rng, shape: Shape) -> Array:
    """Mean 0, skewed to the right."""
    return rng.exponential(size=shape) - 1.0


def lognormal(rng: Rng, shape: Shape) -> Array:
    """Mean 0, strongly skewed to the right."""
    return rng.lognormal(size=shape) - float(np.exp(0.5))


def one_win_in_ten(rng: Rng, shape: Shape) -> Array:
    """Mean 0: nine small losses and one large win."""
    return np.where(rng.random(shape) < 0.1, 9.0, -1.0)


SKEWED: dict[str, Callable[[Rng, Shape], Array]] = {
    "exponential": exponential,
    "lognormal": lognormal,
    "one win in ten": one_win_in_ten,
}


def standard_normal(rng: Rng, shape: Shape) -> Array:
    return rng.normal(size=shape)


def mild_lognormal(rng: Rng, shape: Shape) -> Array:
    """Mean 0, sd 1, sigma 0.5: about as skewed as an exponential."""
    return _standardised_lognormal(rng, shape, 0.5)


def strong_lognormal(rng: Rng, shape: Shape) -> Array:
    """Mean 0, sd 1, sigma 1."""
    return _standardised_lognormal(rng, shape, 1.0)


def _standardised_lognormal(rng: Rng, shape: Shape, sigma: float) -> Array:
    mean, spread = np.exp(sigma**2 / 2.0), np.sqrt((np.exp(sigma**2) - 1.0) * np.exp(sigma**2))
    return (rng.lognormal(sigma=sigma, size=shape) - mean) / spread


TO_THE_RIGHT: dict[str, Callable[[Rng, Shape], Array]] = {
    "normal": standard_normal,
    "exponential": exponential,
    "lognormal, sigma 0.5": mild_lognormal,
    "lognormal, sigma 1": strong_lognormal,
}
"""Mean 0 and sd 1, with a long tail to the right or none."""
