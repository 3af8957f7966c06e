"""Scores as functions of counts of cells: all of it is post-processing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from skdp.schema import FloatArray

Counts = Mapping[str, FloatArray]
#: Names of the columns of cells.
RIGHT, LOSS, SCORES = "right answers", "log-loss", "scores by class"
SQUARES, SIZES, TARGET = "squared residuals", "absolute residuals", "target"


@dataclass(frozen=True)
class Scale:
    """What one stands for: the largest loss or residual, and the target's width."""

    largest: float
    width: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A score.

    Attributes
    ----------
    columns : tuple of str
        The columns that it is computed from.
    value : callable (counts, n, scale) -> float
        The score.
    spread : callable (counts, n, scale) -> float
        Its standard error over tables of n rows like this one, privacy aside.
    low, high : float
        What it can be.
    """

    columns: tuple[str, ...]
    value: Callable[[Counts, float, Scale], float]
    spread: Callable[[Counts, float, Scale], float]
    low: float = 0.0
    high: float = math.inf


def moment(cells: FloatArray, n: float, power: int) -> float:
    """Mean of tᵖ, p = power, of a t that d + 1 cells hold: Σ_k C(k,p)/C(d,p) b_k."""
    degree = len(cells) - 1
    shares = [math.comb(k, power) / math.comb(degree, power) for k in range(degree + 1)]
    return float(np.array(shares) @ cells) / n


def mean(cells: FloatArray, n: float) -> float:
    """Mean of a number whose moments the cells hold."""
    return moment(cells, n, 1)


def variance(cells: FloatArray, n: float) -> float:
    """Variance of such a number, at least 0."""
    return max(0.0, moment(cells, n, 2) - mean(cells, n) ** 2)


def _share(counts: Counts, n: float, scale: Scale) -> float:
    return float(counts[RIGHT][1]) / n


def _share_spread(counts: Counts, n: float, scale: Scale) -> float:
    share = min(1.0, max(0.0, _share(counts, n, scale)))
    return math.sqrt(share * (1.0 - share) / n)


def _mean_of(column: str, power: int = 1) -> Metric:
    """Scale to a power times the mean of a column that holds moments."""
    return Metric(
        columns=(column,),
        value=lambda counts, n, scale: scale.largest**power * mean(counts[column], n),
        spread=lambda counts, n, scale: (
            scale.largest**power * math.sqrt(variance(counts[column], n) / n)
        ),
    )


def _root(counts: Counts, n: float, scale: Scale) -> float:
    return scale.largest * math.sqrt(max(0.0, mean(counts[SQUARES], n)))


def _root_spread(counts: Counts, n: float, scale: Scale) -> float:
    wide = scale.largest * math.sqrt(variance(counts[SQUARES], n) / n)
    return wide / max(2 * _root(counts, n, Scale(1.0)), 1e-9)


def _explained(counts: Counts, n: float, scale: Scale) -> float:
    total = variance(counts[TARGET], n)
    if total == 0:  # noise hides that the target varies at all
        return math.nan
    return 1.0 - _part(scale) * mean(counts[SQUARES], n) / total


def _part(scale: Scale) -> float:
    """Square of the largest residual over the target's width."""
    return (scale.largest / scale.width) ** 2


def _explained_spread(counts: Counts, n: float, scale: Scale) -> float:
    """Bound on the standard error: standard deviations add up at worst.

    R² = 1 - A/B with A the mean of squared residuals, B the variance of the target u,
    so that a row's influence is (r² - A/B (u - ū)²)/B; how r² and u vary together is
    not released.
    """
    cells = counts[TARGET]
    total = max(variance(cells, n), 1e-12)
    at, two, three, four = (moment(cells, n, power) for power in (1, 2, 3, 4))
    fourth = four - 4 * three * at + 6 * two * at**2 - 3 * at**4
    others = math.sqrt(max(0.0, fourth - total**2))
    own = _part(scale) * math.sqrt(variance(counts[SQUARES], n))
    unexplained = _part(scale) * mean(counts[SQUARES], n) / total
    return (own + abs(unexplained) * others) / total / math.sqrt(n)


def by_class(cells: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows of class 0 and of class 1 in each bin; the last cell has neither."""
    pairs = np.reshape(cells[:-1], (-1, 2))
    return pairs[:, 0], pairs[:, 1]


def _area(counts: Counts, n: float, scale: Scale) -> float:
    """Chance that a row of class 1 is in a higher bin than one of class 0; ties half.

    Within a bin the score is taken to say nothing, which is a little too low.
    """
    zeros, ones = by_class(counts[SCORES])
    below = np.cumsum(zeros) - zeros / 2
    pairs = max(float(zeros.sum()), 1.0) * max(float(ones.sum()), 1.0)
    return float(ones @ below) / pairs


def _area_spread(counts: Counts, n: float, scale: Scale) -> float:
    """Hanley and McNeil's standard error (Radiology 143, 1982)."""
    zeros, ones = (max(float(c.sum()), 1.0) for c in by_class(counts[SCORES]))
    area = min(1.0, max(0.0, _area(counts, n, scale)))
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area)
    spread += (ones - 1) * (one - area**2) + (zeros - 1) * (two - area**2)
    return math.sqrt(max(0.0, spread) / (zeros * ones))


#: Every score, by name.
METRICS: dict[str, Metric] = {
    "accuracy": Metric(columns=(RIGHT,), value=_share, spread=_share_spread, high=1.0),
    "log_loss": _mean_of(LOSS),
    "auc": Metric(columns=(SCORES,), value=_area, spread=_area_spread, high=1.0),
    "r2": Metric(
        columns=(SQUARES, TARGET),
        value=_explained,
        spread=_explained_spread,
        low=-math.inf,
        high=1.0,
    ),
    "mse": _mean_of(SQUARES, power=2),
    "rmse": Metric(columns=(SQUARES,), value=_root, spread=_root_spread),
    "mae": _mean_of(SIZES),
}
