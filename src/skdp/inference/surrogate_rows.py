"""Make surrogate rows: artificial rows with the moments of a released Gram matrix.

The Gram matrix of the records is known up to noise. The lengths of rows, the capped
slopes and the curvature of a loss cannot be computed from it. They require rows in
which each column has one category, or a number in its range. This module makes such
rows, with the released moments. This is post-processing, because no record is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, ndtri
from scipy.stats import norm

from skdp.descent.gram import fill_gram
from skdp.descent.threads import one_thread
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, Group, Layout

#: Covariances below a threshold are set to zero, because they may be noise. Noise alone
#: exceeds the threshold this many times per column. With a higher threshold, columns
#: that nearly determine each other would seem to be independent.
FALSE_COVARIANCES = 0.5
#: There are `ROWS_PER_COORDINATE` surrogate rows per coordinate, but at least `N_ROWS`.
#: To save time, there are at most `MOST_ROWS`, or 4 per coordinate if that is more.
N_ROWS, ROWS_PER_COORDINATE, MOST_ROWS = 2048, 20, 8192
#: Relative addition to variances before columns are regressed on each other.
RIDGE = 1e-2


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean (d,) and covariance (d, d) of encoded rows, and which groups are complete.

    A group of categories is complete if every row has one of these categories. A group
    of hat functions, which form a curve, is complete if every row lies between its
    knots. The coordinates of a complete group add up to 1, which is also the value of
    the intercept.
    """

    mean: FloatArray
    covariance: FloatArray
    complete: tuple[bool, ...]


def estimate_moments(
    layout: Layout, pattern: queries.GramPattern, released: Released, n_rows: float
) -> Moments:
    """Estimate the moments of rows from a released Gram matrix.

    The layout must have an intercept. The estimate satisfies known facts: the
    categories of a column exclude each other, and variances are positive. Each variance
    is replaced by its posterior mean under a flat prior on positive numbers.
    Covariances of different columns are set to zero if they may be noise. Negative
    eigenvalues are set to zero too.
    """
    gram = fill_gram(layout, pattern, released.values, n_rows) / n_rows
    std = np.broadcast_to(released.noise_std, released.values.shape)
    noise = fill_gram(layout, pattern, np.asarray(std), 0.0) / n_rows
    mean = gram[:, -1].copy()
    mean[-1] = 1.0
    covariance = gram - np.outer(mean, mean)
    visible = float(ndtri(1.0 - FALSE_COVARIANCES / (2.0 * len(mean))))
    covariance[np.abs(covariance) < visible * noise] = 0.0
    mean[:-1] += pattern.shift[:-1] / 2.0
    variances = _estimate_positive(np.diag(gram) - gram[:, -1] ** 2, np.diag(noise))
    complete = []
    for group in layout.groups:
        at = group.coordinates
        complete.append(False)
        if group.kind == "ones":
            covariance[at, :] = covariance[:, at] = 0.0
        elif group.kind in ("code", "hats"):
            doubt = 3.0 * float(np.linalg.norm(noise[at, -1])) + 1e-9
            complete[-1] = 1.0 - float(mean[at].sum()) <= doubt
            mean[at] = _estimate_positive(mean[at], noise[at, -1])
            if complete[-1] or mean[at].sum() > 1.0:
                mean[at] /= mean[at].sum()
            most = np.diag(mean[at]) - np.outer(mean[at], mean[at])
            if group.kind == "code":
                covariance[np.ix_(at, at)] = most
            else:
                covariance[at, at] = np.minimum(variances[at], np.diag(most))
        else:
            covariance[at, at] = variances[at]
            if not group.signed:
                mean[at] = np.clip(mean[at], 1e-3, 1.0 - 1e-3)
                most = 0.9 * mean[at] * (1.0 - mean[at])
                covariance[at, at] = np.minimum(covariance[at, at], most)
    return Moments(mean, _make_valid(covariance, layout, complete), tuple(complete))


def _estimate_positive(value: FloatArray, std: FloatArray) -> FloatArray:
    """Return the posterior mean of a positive number, given its noisy `value`."""
    safe = np.where(std > 0, std, 1.0)
    ratio = np.maximum(value / safe, -20.0)
    raised = safe * (ratio + np.exp(norm.logpdf(ratio) - norm.logcdf(ratio)))
    return np.asarray(np.where(std > 0, raised, np.maximum(value, 1e-12)))


def _make_valid(
    covariance: FloatArray, layout: Layout, complete: list[bool]
) -> FloatArray:
    """Return a valid covariance matrix close to the given one.

    Negative eigenvalues become zero. The sum of a complete group is constant, so its
    variance becomes zero too.
    """
    for group, whole in zip(layout.groups, complete, strict=True):
        if whole:
            at = group.coordinates
            covariance[at] -= covariance[at].mean(axis=0)
            covariance[:, at] -= covariance[:, at].mean(axis=1, keepdims=True)
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    with one_thread(len(scale)):
        values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
        kept = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return np.asarray(kept * np.outer(scale, scale))


def make_rows(layout: Layout, known: Moments) -> FloatArray:
    """Make rows (n, d) with the given moments, column by column.

    The mean of each column, given the previous columns, is a linear regression on them.
    For a column of categories, this mean is the vector of probabilities from which the
    category is drawn. A knot of a curve is drawn in the same way. A number in [0, 1] is
    drawn from a beta distribution with this mean, and signed numbers from a normal
    distribution. Second moments are therefore right, with two exceptions: those of
    knots of the same curve, and where a negative probability was replaced by zero. The
    draws come from a Kronecker sequence, which is the same every time and more even
    than random numbers.
    """
    d = layout.n_features
    n = max(N_ROWS, min(ROWS_PER_COORDINATE * d, MOST_ROWS), 4 * d)
    redundant = np.zeros(d, bool)  # the last coordinate of each complete group
    for group, whole in zip(layout.groups, known.complete, strict=True):
        redundant[group.start + group.width - 1] = whole or group.kind == "ones"
    free = np.flatnonzero(~redundant)
    inner = known.covariance[np.ix_(free, free)]
    ridge = np.diag(RIDGE * np.maximum(np.diag(inner), 1e-9))
    lower = np.zeros((d, d))
    with one_thread(d):
        lower[np.ix_(free, free)] = np.linalg.cholesky(inner + ridge)
    made, innovations = np.empty((n, d)), np.zeros((n, d))
    for group, whole in zip(layout.groups, known.complete, strict=True):
        at = group.coordinates
        if group.kind == "ones":
            made[:, at] = 1.0
            continue
        before = slice(0, group.start)
        expected = known.mean[at] + innovations[:, before] @ lower[at, before].T
        own = at[~redundant[at]]
        block = lower[np.ix_(own, own)]
        if group.kind in ("code", "hats"):
            made[:, at] = _draw_categories(
                expected, _draw_uniforms(n, group.start), whole
            )
        else:
            made[:, at] = _draw_numbers(group, expected, block, n)
        if len(own):
            away = made[:, own] - expected[:, : len(own)]
            innovations[:, own] = np.linalg.solve(block, away.T).T
    return made


def _draw_uniforms(n: int, dimension: int) -> FloatArray:
    """Return one coordinate of a Kronecker sequence, i·√p mod 1 for a prime p."""
    step = math.sqrt(_list_primes(dimension + 1)[dimension])
    return np.asarray((np.arange(1, n + 1) * step + 0.5 / n) % 1.0)


def _list_primes(count: int) -> list[int]:
    limit = max(
        15, int(count * (math.log(count + 1) + math.log(math.log(count + 3)) + 1))
    )
    prime = np.ones(limit + 1, bool)
    prime[:2] = False
    for i in range(2, math.isqrt(limit) + 1):
        if prime[i]:
            prime[i * i :: i] = False
    return [int(p) for p in np.flatnonzero(prime)[:count]]


def _draw_categories(
    expected: FloatArray, drawn: FloatArray, whole: bool
) -> FloatArray:
    chances = np.maximum(expected, 0.0)
    if whole:  # the last category takes the remaining probability
        chances[:, -1] = np.maximum(1.0 - chances[:, :-1].sum(axis=1), 0.0)
    total = chances.sum(axis=1, keepdims=True)
    chances /= np.maximum(total, 1.0) if not whole else np.maximum(total, 1e-12)
    code = (drawn[:, None] >= np.cumsum(chances, axis=1)).sum(axis=1)
    if whole:
        code = np.minimum(code, expected.shape[1] - 1)
    return np.asarray(
        (code[:, None] == np.arange(expected.shape[1])).astype(np.float64)
    )


def _draw_numbers(
    group: Group, expected: FloatArray, block: FloatArray, n: int
) -> FloatArray:
    drawn = [_draw_uniforms(n, group.start + j) for j in range(group.width)]
    uniforms = np.clip(np.stack(drawn, axis=1), 1e-9, 1.0 - 1e-9)
    if group.width > 1 or group.signed:
        return np.asarray(np.clip(expected + ndtri(uniforms) @ block.T, -1.0, 1.0))
    mean = np.clip(expected, 1e-3, 1.0 - 1e-3)
    spread = np.minimum(block[0, 0] ** 2, 0.9 * mean * (1.0 - mean))
    strength = mean * (1.0 - mean) / spread - 1.0
    return np.asarray(betaincinv(mean * strength, (1.0 - mean) * strength, uniforms))
