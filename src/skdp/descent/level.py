"""Correct the intercept after the descent, to make predictions right on average.

Steps cap the slopes of records. If the target is skewed, caps cut more from one side
than from the other, and predictions are too low on average. A rare class is predicted
too rarely, and predicted counts are too small. After the descent, the sum of all slopes
is therefore released. The caps of the steps do not apply to this sum. The sum says
how far predictions are off on average, and the intercept is moved accordingly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import least_squares
from scipy.special import ndtri
from scipy.stats import qmc

from skdp.models.losses import Loss
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray

#: Prior standard deviation of the average error of predictions, divided by the spread
#: of the residuals (1 for classes). The second value is for counts. It is larger,
#: because caps cut more from the long tails of counts.
USUAL_ERROR, COUNT_ERROR = 0.07, 0.1
#: Largest distance by which the intercept is moved.
FARTHEST = 2.0
#: Number of points that represent the distribution of margins.
N_POINTS = 256
QUERY = "sum of slopes"


def release_level(
    engine: queries.Engine,
    slopes: queries.Slopes,
    weights: FloatArray,
    neighbours: queries.Neighbours,
    cap: float,
    release: Callable[[queries.BoundedSum], Released],
) -> Released:
    """Release the sum (1, k) of all slopes, each capped at `cap`."""
    last = np.zeros((1, len(weights)))
    last[0, -1] = 1.0
    capped = queries.cap_slopes(engine, slopes, queries.Metric.of(last, cap))
    total = queries.mapped_gradient(engine, capped, weights, neighbours)
    return release(replace(total, query=QUERY))


def find_shift(
    loss: Loss,
    mean: FloatArray,
    covariance: FloatArray,
    error: FloatArray,
    noise_std: float,
    spread: float,
) -> FloatArray:
    """Return the shift of the intercepts (k,) that makes predictions right on average.

    Parameters
    ----------
    loss : Loss
        A loss whose slope is the prediction minus the target.
    mean, covariance : float64 (k,) and (k, k)
        Mean and covariance of the margins. Margins are assumed to be normal, which only
        affects how far a shift moves predictions.
    error : float64 (k,)
        The released mean of the slopes, that is, how much too high predictions are on
        average.
    noise_std : float
        The standard deviation of the noise in `error`. The larger this noise is, the
        more `error` is shrunk to zero.
    spread : float
        The spread of the residuals, or 1 for classes.
    """
    usual = COUNT_ERROR if loss.target_law == "poisson" else USUAL_ERROR
    prior = (usual * spread) ** 2
    wanted = error * prior / (prior + noise_std**2)
    margins = mean + _make_normal_points(len(mean)) @ _root(covariance).T
    target = np.zeros(len(margins))  # the target cancels in differences of slopes
    before = loss.slope(margins, target).mean(axis=0)

    def miss(shift: FloatArray) -> FloatArray:
        after = loss.slope(margins + shift, target).mean(axis=0)
        return np.asarray(after - before + wanted)

    start = np.zeros(len(mean))
    return np.asarray(least_squares(miss, start, bounds=(-FARTHEST, FARTHEST)).x)


def _make_normal_points(k: int) -> FloatArray:
    """Return fixed points (N_POINTS, k) with nearly a standard normal distribution."""
    even = qmc.Sobol(k, scramble=False).random(N_POINTS)
    return np.asarray(ndtri(even + 0.5 / N_POINTS))


def _root(covariance: FloatArray) -> FloatArray:
    """Return R with R Rᵀ = covariance, whose negative eigenvalues are set to zero."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
