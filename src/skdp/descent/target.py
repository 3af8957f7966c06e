"""Estimate the target's location and spread before the first step.

This spends a small share of the budget (of μ²) on one histogram of the target. The
histogram gives the constant model, which makes the same prediction for every row. For a
numeric target, it also gives the spread of the target around that prediction. The
descent starts at the constant model, and weights are shrunk towards it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skdp.models.losses import Loss
from skdp.privacy import queries
from skdp.privacy.grid import FEATURE_BITS
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray

#: Number of equal bins for a numeric target.
N_BINS = 32
#: Prior guesses, which decide how noisy estimates are shrunk. CLASS_VARIANCE and
#: MEAN_VARIANCE are the variances of a class's share, and of the mean of a target in
#: [-1, 1], from table to table. USUAL_SCALE is the usual mean absolute deviation of a
#: target in [-1, 1].
CLASS_VARIANCE, MEAN_VARIANCE, USUAL_SCALE = 0.08, 0.1, 0.25
#: Spread of the residuals relative to the spread of the target, if the model explains
#: two thirds of the target's variance.
RESIDUAL = 0.6
#: If the estimated distribution function of the target has this error, the estimated
#: scale and the prior guess get equal weight.
DOUBTFUL = 0.15


@dataclass(frozen=True, eq=False)
class ConstantModel:
    """A model that makes the same prediction for every row.

    `margins` has one entry per output of the loss. `scale` estimates the mean
    absolute deviation of a numeric target from the prediction. It is 1 for classes.
    """

    margins: FloatArray
    scale: float


def release_constant(
    engine: queries.Engine,
    loss: Loss,
    neighbours: queries.Neighbours,
    n_rows: float,
    release: Callable[[queries.BoundedSum], Released],
) -> ConstantModel:
    """Release the target's histogram and fit a constant model to it."""
    if loss.n_classes:
        total = queries.counts(engine, loss.n_classes, neighbours)
        return fit_constant(release(total), loss, n_rows)
    fine = engine.counts((1 << FEATURE_BITS) + 1)
    fine[-2] += fine[-1]  # the largest value belongs to the last bin
    starts = np.arange(0, 1 << FEATURE_BITS, (1 << FEATURE_BITS) // N_BINS)
    counts = np.add.reduceat(fine[:-1], starts)
    query = f"histogram of the target, {N_BINS} bins"
    one = engine.records.one
    total = queries.histogram(counts, 1, neighbours, query, one)
    return fit_constant(release(total), loss, n_rows)


def fit_constant(released: Released, loss: Loss, n_rows: float) -> ConstantModel:
    """Fit a constant model to a released histogram."""
    if loss.n_classes:
        return ConstantModel(loss.constant(_shares(released, n_rows)), 1.0)
    mean, scale = _location_and_scale(released, n_rows)
    return ConstantModel(loss.constant(np.array([(1.0 + mean) / 2.0])), scale)


def estimate_variance(released: Released, n_rows: float) -> tuple[float, float]:
    """Estimate the variance of a target in [-1, 1].

    Also return the standard deviation of the estimate's noise. Unlike
    `ConstantModel.scale`, the estimate is not shrunk to a prior guess. Rounding values
    to the midpoints of bins adds the variance of a uniform distribution within a bin,
    so this variance is subtracted.
    """
    shares, middles = _rising_shares(released, n_rows)
    squares = (middles - shares @ middles) ** 2
    found = float(shares @ squares) - (2.0 / N_BINS) ** 2 / 12.0
    away = squares - squares.mean()  # shares add up to one
    return max(found, 0.0), _error(released, n_rows) * float(np.linalg.norm(away))


def _error(released: Released, n_rows: float) -> float:
    """Return the standard deviation of the noise in the share of one bin."""
    return float(np.max(released.noise_std)) / n_rows


def _shares(released: Released, n_rows: float) -> FloatArray:
    """Estimate the share of each class.

    The more noise there is, the more the estimates are shrunk to equal shares.
    """
    error = _error(released, n_rows)
    equal = 1.0 / released.values.size
    trust = CLASS_VARIANCE / (CLASS_VARIANCE + error**2)
    shares = equal + trust * (released.values.ravel() / n_rows - equal)
    shares = np.maximum(shares, min(max(error, 1e-4), equal))
    return np.asarray(shares / shares.sum())


def _location_and_scale(released: Released, n_rows: float) -> tuple[float, float]:
    """Estimate the mean and the mean absolute deviation of a target in [-1, 1].

    The noisier the estimates are, the more they are shrunk to prior guesses.
    """
    error = _error(released, n_rows)
    shares, middles = _rising_shares(released, n_rows)
    mean = float(shares @ middles)
    off = error * math.sqrt(N_BINS / 3.0)
    mean *= MEAN_VARIANCE / (MEAN_VARIANCE + off**2)
    # At least half a bin, because the histogram resolves nothing finer.
    scale = max(float(shares @ np.abs(middles - mean)), 1.0 / N_BINS)
    doubt = (error * math.sqrt(N_BINS) / 2.0 / DOUBTFUL) ** 2
    log_scale = (math.log(scale) + doubt * math.log(USUAL_SCALE)) / (1.0 + doubt)
    return mean, math.exp(log_scale)


def _rising_shares(released: Released, n_rows: float) -> tuple[FloatArray, FloatArray]:
    """Return each bin's share of the rows, and the midpoints of the bins.

    The shares are adjusted to sum to one. Isotonic regression then makes their
    cumulative sums nondecreasing, so no share is negative.
    """
    shares = released.values.ravel() / n_rows
    shares = shares + (1.0 - shares.sum()) / N_BINS
    from sklearn.isotonic import isotonic_regression  # slow to import

    rising = isotonic_regression(np.cumsum(shares), y_min=0.0, y_max=1.0)
    rising[-1] = 1.0
    shares = np.diff(rising, prepend=0.0)
    return shares, (np.arange(N_BINS) + 0.5) * 2.0 / N_BINS - 1.0
