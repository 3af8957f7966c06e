"""What a run learns of the target before its first step, for a few percent of μ².

From one released histogram: where a constant model would stand, which is where the
descent starts and what it is shrunk to, and how far a number strays from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.isotonic import isotonic_regression

from skdp.models.losses import Loss
from skdp.privacy import queries
from skdp.privacy.grid import FEATURE_BITS
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray

#: Bins of a numeric target, of equal width.
N_BINS = 32
#: What is expected of a target before it is seen: variance of a class's share and of
#: the mean of a number in [-1, 1], and that number's mean distance from its median.
CLASS_VARIANCE, MEAN_VARIANCE, USUAL_SCALE = 0.08, 0.1, 0.25
#: Error of the distribution function at which its scale counts half.
DOUBTFUL = 0.15


@dataclass(frozen=True, eq=False)
class Constant:
    """The constant model, margins (k,), and the spread of the target around it."""

    margins: FloatArray
    scale: float


def constant(
    engine: queries.Engine,
    loss: Loss,
    relation: queries.Relation,
    n_rows: float,
    release: Callable[[queries.BoundedSum], Released],
) -> Constant:
    """Release the target's histogram; return the constant model that it suggests."""
    if loss.n_classes:
        counts = engine.counts(loss.n_classes)
        query = f"counts of {loss.n_classes} classes"
        total = queries.histogram(counts, 1, relation, query)
        return read(release(total), loss, n_rows)
    fine = engine.counts((1 << FEATURE_BITS) + 1)
    fine[-2] += fine[-1]  # the largest value belongs to the last bin
    starts = np.arange(0, 1 << FEATURE_BITS, (1 << FEATURE_BITS) // N_BINS)
    counts = np.add.reduceat(fine[:-1], starts)
    query = f"histogram of the target, {N_BINS} bins"
    return read(release(queries.histogram(counts, 1, relation, query)), loss, n_rows)


def read(released: Released, loss: Loss, n_rows: float) -> Constant:
    """Return the constant model that a released histogram suggests."""
    if loss.n_classes:
        return Constant(loss.constant(_shares(released, n_rows)), 1.0)
    mean, scale = _location_and_scale(released, n_rows)
    return Constant(loss.constant(np.array([(1.0 + mean) / 2.0])), scale)


def variance(released: Released, n_rows: float) -> tuple[float, float]:
    """Variance of a target in [-1, 1] by its released histogram, and its noise std.

    Unlike `Constant.scale` it is drawn to nothing that is usual. The variance within
    bins, as if they were filled evenly, is not counted: the middles have it already.
    """
    shares, middles = _rising_shares(released, n_rows)
    squares = (middles - shares @ middles) ** 2
    found = float(shares @ squares) - (2.0 / N_BINS) ** 2 / 12.0
    away = squares - squares.mean()  # shares add up to one
    return max(found, 0.0), _error(released, n_rows) * float(np.linalg.norm(away))


def _error(released: Released, n_rows: float) -> float:
    """Standard deviation of one bin's share."""
    return float(np.max(released.noise_std)) / n_rows


def _shares(released: Released, n_rows: float) -> FloatArray:
    """Class shares, drawn to equal ones by as much as noise hides them."""
    error = _error(released, n_rows)
    equal = 1.0 / released.values.size
    trust = CLASS_VARIANCE / (CLASS_VARIANCE + error**2)
    shares = equal + trust * (released.values.ravel() / n_rows - equal)
    shares = np.maximum(shares, min(max(error, 1e-4), equal))
    return np.asarray(shares / shares.sum())


def _location_and_scale(released: Released, n_rows: float) -> tuple[float, float]:
    """Mean and mean absolute deviation of a target in [-1, 1].

    What noise hides is replaced by what is usual.
    """
    error = _error(released, n_rows)
    shares, middles = _rising_shares(released, n_rows)
    mean = float(shares @ middles)
    off = error * math.sqrt(N_BINS / 3.0)
    mean *= MEAN_VARIANCE / (MEAN_VARIANCE + off**2)
    # Half a bin wide at least: what is finer cannot be seen.
    scale = max(float(shares @ np.abs(middles - mean)), 1.0 / N_BINS)
    doubt = (error * math.sqrt(N_BINS) / 2.0 / DOUBTFUL) ** 2
    log_scale = (math.log(scale) + doubt * math.log(USUAL_SCALE)) / (1.0 + doubt)
    return mean, math.exp(log_scale)


def _rising_shares(released: Released, n_rows: float) -> tuple[FloatArray, FloatArray]:
    """Shares of the bins and their middles.

    The shares are made to add up to one and to a distribution function that rises
    (isotonic regression).
    """
    shares = released.values.ravel() / n_rows
    shares = shares + (1.0 - shares.sum()) / N_BINS
    rising = isotonic_regression(np.cumsum(shares), y_min=0.0, y_max=1.0)
    rising[-1] = 1.0
    shares = np.diff(rising, prepend=0.0)
    return shares, (np.arange(N_BINS) + 0.5) * 2.0 / N_BINS - 1.0
