"""Many arms at once: average ranks with a critical difference, and Bradley-Terry strengths from pairwise outcomes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bakeoff.stats.ranks import average_ranks
from bakeoff.stats.special import TINY, chi2_sf, normal_quantile, studentized_range_sf
from bakeoff.stats.vectors import Array, matrix, probability


@dataclass(frozen=True, slots=True)
class AverageRanks:
    """Mean rank of each arm over tasks (1 is best), Friedman's test, and Nemenyi's critical difference at `alpha`.

    Two arms whose mean ranks differ by less than `critical_difference` are not told apart.
    """

    ranks: tuple[float, ...]
    statistic: float
    p: float
    critical_difference: float
    alpha: float


def friedman(scores: ArrayLike, alpha: float = 0.05) -> AverageRanks:
    """scores: (tasks, arms), larger is better, at least 2 tasks and 3 arms (with 2, compare them directly)."""
    x = matrix(scores, "scores", rows=2, columns=3)
    tasks, arms = x.shape
    ranks = np.stack([average_ranks(-row) for row in x])
    totals = ranks.sum(axis=0)
    ties = sum(float((c.astype(float) ** 3 - c).sum()) for c in (np.unique(r, return_counts=True)[1] for r in ranks))
    correction = 1.0 - ties / (tasks * arms * (arms**2 - 1.0))
    spread = 12.0 / (tasks * arms * (arms + 1.0)) * float((totals**2).sum()) - 3.0 * tasks * (arms + 1.0)
    statistic = max(0.0, spread / correction) if correction > 0.0 else 0.0
    p = max(TINY, chi2_sf(arms - 1.0, statistic)) if correction > 0.0 else 1.0
    mean_ranks = tuple(float(r) for r in totals / tasks)
    return AverageRanks(mean_ranks, statistic, p, nemenyi_difference(tasks, arms, alpha), alpha)


def nemenyi_difference(tasks: int, arms: int, alpha: float = 0.05) -> float:
    """Difference of mean ranks above which two of `arms` arms differ at alpha, all pairs considered."""
    probability(alpha, "alpha")
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if studentized_range_sf(middle, arms) > alpha else (low, middle)
    return 0.5 * (low + high) / math.sqrt(2.0) * math.sqrt(arms * (arms + 1.0) / (6.0 * tasks))


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """Log strengths (mean 0) with normal intervals; P(i beats j) = 1 / (1 + exp(s_j - s_i))."""

    strength: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    level: float

    def chance(self, i: int, j: int) -> float:
        """Probability that i beats j."""
        return 1.0 / (1.0 + math.exp(self.strength[j] - self.strength[i]))


def bradley_terry(wins: ArrayLike, prior: float = 0.0, level: float = 0.95) -> BradleyTerry:
    """wins[i, j]: how often i beat j; a tie is half a win for each. Maximum likelihood by Newton's method.

    `prior` adds that many half-won games to every pair. Without it, arms that never lost to (or never met) the rest
    have no finite strength: ValueError. Intervals take games as independent.
    """
    w = matrix(wins, "wins", rows=2, columns=2)
    if w.shape[0] != w.shape[1] or (w < 0.0).any():
        raise ValueError("wins must be a square matrix of numbers >= 0")
    w = w + prior / 2.0
    np.fill_diagonal(w, 0.0)
    if not _strongly_connected(w > 0.0):
        raise ValueError("some arms never lost to, or never met, the others: give a prior, such as 0.5")
    strength, information = _newton(w)
    error = np.sqrt(np.diag(np.linalg.pinv(information, hermitian=True)))
    half = -normal_quantile((1.0 - probability(level, "level")) / 2.0) * error
    columns = (strength, strength - half, strength + half)
    values = [tuple(float(v) for v in column) for column in columns]
    return BradleyTerry(values[0], values[1], values[2], level)


def _newton(w: Array) -> tuple[Array, Array]:
    """Strengths that maximise the likelihood, and the information there (a graph Laplacian)."""
    games = w + w.T
    s = np.zeros(w.shape[0])
    best = _log_likelihood(w, s)
    information = np.zeros_like(w)
    for _ in range(200):
        chance = 1.0 / (1.0 + np.exp(s[None, :] - s[:, None]))
        gradient = w.sum(axis=1) - (games * chance).sum(axis=1)
        weight = games * chance * (1.0 - chance)
        information = np.diag(weight.sum(axis=1)) - weight
        step = np.linalg.pinv(information, hermitian=True) @ gradient
        size = 1.0
        while _log_likelihood(w, s + size * step) < best - 1e-12 * abs(best) and size > 1e-8:
            size /= 2.0
        s = s + size * step
        s -= s.mean()
        best = _log_likelihood(w, s)
        if float(np.abs(size * step).max()) < 1e-12 * max(1.0, float(np.abs(s).max())):
            break
    return s, information


def _log_likelihood(w: Array, s: Array) -> float:
    return -float((w * np.logaddexp(0.0, s[None, :] - s[:, None])).sum())


def _strongly_connected(beats: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> bool:
    """Whether every arm reaches every other along wins: the condition for finite strengths."""
    reach = beats | np.eye(beats.shape[0], dtype=bool)
    for _ in range(max(1, beats.shape[0].bit_length())):
        reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
    return bool(reach.all())
