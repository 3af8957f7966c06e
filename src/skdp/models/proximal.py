"""Compute proximal maps of penalties that couple coordinates, exactly.

The proximal map of ψ at w, in a metric with positive numbers q, is
argmin_u ½ Σ_j q_j (u_j - w_j)² + ψ(u). Each function here computes one such map by a
finite algorithm, or by one search for a root. `iterate` computes the map in a metric
that is a matrix. All of these functions read only released values.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq, isotonic_regression

from skdp.schema import FloatArray

#: `iterate` stops when no coordinate moves by more than `TOLERANCE`, relative to the
#: largest coordinate, and in any case after `MOST_ITERATIONS` iterations.
TOLERANCE, MOST_ITERATIONS = 1e-10, 20_000


def shrink_norm(weights: FloatArray, metric: FloatArray, strength: float) -> FloatArray:
    """Return the proximal map of strength·‖u‖ at weights w (m, k), metric q (m,).

    The norm is over all m·k numbers. If the result is not zero, it is
    u_j = q_j w_j τ/(q_j τ + strength), where τ = ‖u‖ solves
    Σ_j ‖q_j w_j‖²/(q_j τ + strength)² = 1. The left side decreases in τ.
    """
    pulls = metric * np.linalg.norm(weights, axis=1)
    total = float(np.linalg.norm(pulls))
    if total <= strength:
        return np.zeros_like(weights)
    low, high = ((total - strength) / q for q in (metric.max(), metric.min()))

    def excess(norm: float) -> float:
        return float(np.square(pulls / (metric * norm + strength)).sum()) - 1.0

    norm = float(low)
    if high - low > 1e-15 * high and excess(low) > 0 > excess(high):
        norm = brentq(excess, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps)
    kept = metric * norm / (metric * norm + strength)
    return np.asarray(kept[:, None] * weights)


def fuse(weights: FloatArray, metric: FloatArray, strength: float) -> FloatArray:
    """Return the proximal map of strength·Σ_i |u_{i+1} - u_i| at weights (m,).

    This is the dynamic program of N. Johnson, "A dynamic programming algorithm for the
    fused lasso and L0-segmentation", Journal of Computational and Graphical Statistics
    22 (2013), extended to a diagonal metric. Let
    c_i(b) be the least cost of u_1, …, u_i given u_i = b. The program computes the
    derivative of each c_i, clipped to ±strength. It is piecewise linear in b, and is
    stored as a list of knots. At each knot, the list has the changes of the slope and
    of the constant term.
    """
    m = len(weights)
    if m == 1 or strength == 0:
        return weights.copy()
    y, q = weights.tolist(), metric.tolist()
    knots, slopes, levels = ([0.0] * (2 * m) for _ in range(3))
    lower, upper = [0.0] * (m - 1), [0.0] * (m - 1)
    left, right = m, m - 1  # no knots yet
    for i in range(m - 1):
        cut = strength if i else 0.0
        slope, level = q[i], -q[i] * y[i] - cut
        at = left
        while at <= right and slope * knots[at] + level <= -strength:
            slope, level, at = slope + slopes[at], level + levels[at], at + 1
        lower[i] = (-strength - level) / slope
        first = (slope, level + strength)
        slope, level = -q[i], q[i] * y[i] - cut
        end = right
        while end >= at and -slope * knots[end] - level >= strength:
            slope, level, end = slope + slopes[end], level + levels[end], end - 1
        upper[i] = (strength + level) / -slope
        left, right = at - 1, end + 1
        knots[left], (slopes[left], levels[left]) = lower[i], first
        knots[right], slopes[right], levels[right] = upper[i], slope, level + strength
    slope, level, at = q[-1], -q[-1] * y[-1] - strength, left
    while at <= right and slope * knots[at] + level <= 0:
        slope, level, at = slope + slopes[at], level + levels[at], at + 1
    found = [-level / slope]
    for low, high in zip(reversed(lower), reversed(upper), strict=True):
        found.append(min(max(found[-1], low), high))
    return np.array(found[::-1])


def sort_up(weights: FloatArray, metric: FloatArray) -> FloatArray:
    """Return the increasing sequence that is nearest to weights (m,), in the metric.

    The algorithm is pool adjacent violators.
    """
    return np.asarray(isotonic_regression(weights, weights=metric).x)


def project_simplex(
    weights: FloatArray, metric: FloatArray, total: float
) -> FloatArray:
    """Project weights w (m,) to the simplex u ≥ 0, Σ_j u_j = total, in the metric q.

    The result is u_j = max(0, w_j - τ/q_j). The coordinates with the largest
    q_j w_j are the positive ones, so τ follows from sorting (Held, Wolfe and Crowder
    1974).
    """
    order = np.argsort(-(metric * weights), kind="stable")
    sums, spread = np.cumsum(weights[order]), np.cumsum(1.0 / metric[order])
    shifts = (sums - total) / spread
    last = np.flatnonzero((metric * weights)[order] > shifts)[-1]
    return np.asarray(np.maximum(weights - shifts[last] / metric, 0.0))


def shrink_singular_values(weights: FloatArray, threshold: float) -> FloatArray:
    """Return the weights (m, k) with each singular value lowered by `threshold`."""
    left, values, right = np.linalg.svd(weights, full_matrices=False)
    return np.asarray((left * np.maximum(values - threshold, 0.0)) @ right)


def iterate(
    prox: Callable[[FloatArray], FloatArray],
    step: FloatArray,
    metric: FloatArray,
    weights: FloatArray,
    start: FloatArray,
) -> FloatArray:
    """Return argmin_u ½ ‖u - weights‖² + ψ(u), in the norm of the matrix `metric`.

    This is FISTA (Beck and Teboulle 2009) with restarts. `prox` is the proximal map of
    ψ in the diagonal metric 1/step, and Diag(1/step) ⪰ metric is required.

    Parameters
    ----------
    prox : callable (m, k) -> (m, k)
        The proximal map in the diagonal metric.
    step : float64 (m, 1)
        The step of each coordinate.
    metric : float64 (m, m)
        The matrix.
    weights, start : float64 (m, k)
        The point at which the map is computed, and the start of the iterations.
    """
    found = ahead = start
    speed = 1.0
    for _ in range(MOST_ITERATIONS):
        reached = prox(ahead - step * (metric @ (ahead - weights)))
        move = reached - found
        if float(((ahead - reached) * move / step).sum()) > 0:
            speed = 1.0
        following = (1.0 + math.sqrt(1.0 + 4.0 * speed**2)) / 2.0
        residual = float(np.abs(reached - ahead).max())
        ahead = reached + (speed - 1.0) / following * move
        found, speed = reached, following
        if residual <= TOLERANCE * (1.0 + float(np.abs(found).max())):
            break
    return found
