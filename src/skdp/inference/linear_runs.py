"""Describe a run near its optimum as a linear recursion.

The recursion gives the covariances of the released weights, one for each cause of
error. It also gives `Learning`, which computes standard errors that allow for noise in
the Hessian. This is post-processing, because no record is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import ncx2

from skdp.descent.matrix import Space
from skdp.inference.capped_slopes import (
    Law,
    Weighting,
    add_up,
    average_slopes,
    find_bias,
)
from skdp.inference.plausible import EFFECT_ROOM, Learning, solve_recursion
from skdp.inference.surrogate_rows import Moments
from skdp.planning.plan import Plan
from skdp.schema import FloatArray, Layout


@dataclass(frozen=True, kw_only=True, eq=False)
class Covariances:
    """Covariances and bias of the released weights around the true weights, by cause.

    They are computed as if the released moments were exact. Here d is the number of
    weights of all outputs together, listed output by output.

    Attributes
    ----------
    noise : float64 (d, d)
        Due to the privacy noise.
    sampling : float64 (d, d)
        Due to sampling the records.
    shrinkage : float64 (d, d)
        Due to shrinkage and early stopping. Both depend on the distance of the true
        weights from the start, which is estimated from the released weights.
    bias : float64 (d,)
        Due to capped slopes. Noise in the metric adds to the bias in directions that
        change no prediction, such as raising all levels of a column and lowering the
        intercept as much.
    """

    noise: FloatArray
    sampling: FloatArray
    shrinkage: FloatArray
    bias: FloatArray

    def noise_std(self, maps: FloatArray) -> FloatArray:
        """Return the standard deviation (m,) of `maps` @ weights due to privacy."""
        return _compute_deviation(maps, self.noise)

    def sampling_std(self, maps: FloatArray) -> FloatArray:
        """Return the standard deviation (m,) of `maps` @ weights due to sampling."""
        return _compute_deviation(maps, self.sampling)

    def std(self, maps: FloatArray) -> FloatArray:
        """Return the standard error (m,) of `maps` @ weights.

        ±1.96 standard errors cover 95 %. Let s be the standard deviation and b the
        bias. The standard error is s times the 95 % quantile of |N(b/s, 1)|, divided by
        the 95 % quantile of |N(0, 1)|.
        """
        each = _compute_deviation(maps, self.noise + self.sampling + self.shrinkage)
        shift = (maps @ self.bias / np.maximum(each, 1e-300)) ** 2
        wide = np.sqrt(ncx2.ppf(0.95, 1, np.clip(shift, 1e-9, 1e6)))
        return np.asarray(each * wide / math.sqrt(ncx2.ppf(0.95, 1, 1e-9)))


def _compute_deviation(maps: FloatArray, covariance: FloatArray) -> FloatArray:
    variance = np.einsum("md,md->m", maps @ covariance, maps)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def linearise(
    plan: Plan,
    space: Space,
    known: Moments,
    rows: FloatArray,
    weights: FloatArray,
    noise_std: float,
    law: Law,
    weighting: Weighting,
) -> tuple[Covariances, Learning]:
    """Return the covariances of a run's result, and the `Learning` of the run.

    `noise_std` is the standard deviation of a step's noise, divided by the number of
    rows. The surrogate `rows` (n, d) have roughly the `known` moments.
    """
    k, n_rows = weights.shape[1], plan.n_rows
    curvature = plan.loss.curvature * weighting.most
    caps = space.radius / np.maximum(
        np.linalg.norm(rows @ space.white.root.T, axis=1), 1e-12
    )
    caps = np.minimum(caps, plan.loss.slope_bound * weighting.most)
    slopes = average_slopes(law, weighting, rows @ weights, caps)
    recoloured = rows @ _make_recolouring(space.white.root, rows, known)
    second = np.kron(np.eye(k), recoloured.T @ recoloured)
    hessian, squares = (
        add_up(recoloured, part) for part in (slopes.curvature, slopes.square)
    )
    root = np.kron(np.eye(k), space.white.root)
    strength = np.tile(plan.penalty.quadratic(np.arange(len(weights))), k)
    forces = root @ (hessian + np.diag(strength)) @ root.T
    values, vectors = np.linalg.eigh((forces + forces.T) / 2)
    values = np.clip(values, 0.0, curvature)  # as steps of 1/β assume
    shares = plan.average(plan.n_steps)
    noise, response = solve_recursion(values, curvature, space.pull, shares)
    back = root.T @ vectors  # maps the basis of S's eigenvectors to weights
    reply = (back * response) @ back.T  # response of weights to a constant force
    sampling = reply @ squares @ reply / n_rows
    noises = noise_std**2 * (back * noise) @ back.T
    # The distance that the run has left to the optimum: (1 - response·S)(u* - u⁰).
    inside = np.linalg.inv(back)
    away = inside @ (weights - space.start).T.ravel()
    left = 1.0 - response * values
    expected = noise_std**2 * noise + np.diag(inside @ sampling @ inside.T)
    seen = _project_seen(root @ hessian @ root.T, vectors)
    reached = float(((1.0 - left) ** 2 * np.diag(seen)).sum())
    gap = max(0.0, float((seen @ away) @ away - np.diag(seen) @ expected))
    prior = gap / reached if reached > 0 else 0.0  # then nothing is known
    bias = np.stack(
        [
            _compute_placing(plan.layout, known.complete, space, w, w0)
            for w, w0 in zip(weights.T, space.start.T, strict=True)
        ],
        axis=1,
    )
    bias = (bias + find_bias(law, weighting, rows, weights, caps)).T.ravel()
    usual = Covariances(
        noise=noises,
        sampling=sampling,
        shrinkage=prior * (back * left) @ seen @ (back * left).T,
        bias=bias,
    )
    learning = Learning(
        values=values,
        back=back,
        second=np.asarray(second / len(rows), np.float64),
        hessian=hessian,
        squares=squares / n_rows,
        ridge=strength,
        away=away,
        prior=prior,
        bias=bias,
        effect_room=EFFECT_ROOM
        * bool((caps < plan.loss.slope_bound * weighting.most).any()),
        noise_std=noise_std,
        curvature=curvature,
        pull=space.pull,
        shares=shares,
    )
    return usual, learning


def _make_recolouring(root: FloatArray, rows: FloatArray, known: Moments) -> FloatArray:
    """Return a matrix M (d, d) such that rows @ M have exactly the known moments.

    Surrogate rows have only roughly these moments, and not even roughly if some columns
    nearly determine others.
    """
    wanted = known.covariance + np.outer(known.mean, known.mean)
    power = _raise_power(root @ (rows.T @ rows / len(rows)) @ root.T, -0.5)
    power = power @ _raise_power(root @ wanted @ root.T, 0.5)
    return np.asarray(root.T @ power @ np.linalg.inv(root).T)


def _raise_power(matrix: FloatArray, exponent: float) -> FloatArray:
    """Return a power of a symmetric matrix, where zero eigenvalues stay zero."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > 1e-9 * values[-1]
    powers = np.where(kept, np.where(kept, values, 1.0) ** exponent, 0.0)
    return np.asarray((vectors * powers) @ vectors.T)


def _project_seen(forces: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the projection matrix onto the directions in which rows vary.

    The matrix is in the basis `vectors`. Rows do not determine the true weights in the
    other directions, so the bias of the weights is not defined there. An example is the
    direction that raises the weights of all levels of a column and lowers the
    intercept.
    """
    values, own = np.linalg.eigh((forces + forces.T) / 2)
    kept = vectors.T @ own[:, values > 1e-9 * values[-1]]
    return np.asarray(kept @ kept.T)


def _compute_placing(
    layout: Layout,
    complete: Sequence[bool],
    space: Space,
    w: FloatArray,
    start: FloatArray,
) -> FloatArray:
    """Return the offset of weights along directions in which rows do not vary.

    Such a direction v is 1 on the levels of a column and -1 on the intercept. Steps in
    the metric A keep vᵀA(w - w⁰) at zero. The true weights, however, are defined so
    that the levels of a column sum to zero. The true weights plus the offset are the
    equivalent weights that satisfy the condition of the steps.
    """
    groups = [g for g, whole in zip(layout.groups, complete, strict=True) if whole]
    if not groups:
        return np.zeros_like(w)
    free = np.zeros((len(w), len(groups)))
    level = w.copy()
    for j, group in enumerate(groups):
        free[group.coordinates, j], free[-1, j] = 1.0, -1.0
        level -= w[group.coordinates].mean() * free[:, j]
    inverse = np.linalg.inv(space.white.root)
    across = inverse.T @ free  # in whitened coordinates A is the identity
    away = inverse.T @ (level - start)
    return np.asarray(-free @ np.linalg.lstsq(across, away, rcond=None)[0])
