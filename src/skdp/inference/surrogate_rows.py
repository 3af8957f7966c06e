"""Rows that look like the table as far as its released Gram matrix tells.

A Gram matrix is known up to noise. How long rows are, which slopes are capped and how a
loss curves depends on more than that: on rows whose columns are one category each, or a
number in its range. Here such rows are made up, with the moments that were released. It
is post-processing: no record is read.
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

#: Covariances below so many standard deviations of their noise are taken as zero.
VISIBLE = 4.0
#: Rows that are made up, at least, and per coordinate.
N_ROWS, ROWS_PER_COORDINATE = 2048, 20
#: Added to variances, relative to them, before columns are regressed on each other.
RIDGE = 1e-2


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean (d,) and covariance (d, d) of encoded rows, and which groups are complete.

    A group of categories is complete if every row has one of them, so that its
    coordinates add up to the intercept's.
    """

    mean: FloatArray
    covariance: FloatArray
    complete: tuple[bool, ...]


def moments(
    layout: Layout, pattern: queries.GramPattern, released: Released, n_rows: float
) -> Moments:
    """Clean a released Gram matrix, of a layout with an intercept.

    What is known is put in: categories exclude each other, variances are positive (each
    is given its mean under a flat prior on positive numbers). Covariances of different
    columns that noise may have made are dropped, and negative eigenvalues too.
    """
    gram = fill_gram(layout, pattern, released.values, n_rows) / n_rows
    std = np.broadcast_to(released.noise_std, released.values.shape)
    noise = fill_gram(layout, pattern, np.asarray(std), 0.0) / n_rows
    mean = gram[:, -1].copy()
    mean[-1] = 1.0
    covariance = gram - np.outer(mean, mean)
    covariance[np.abs(covariance) < VISIBLE * noise] = 0.0
    mean[:-1] += pattern.shift[:-1] / 2.0
    variances = _positive(np.diag(gram) - gram[:, -1] ** 2, np.diag(noise))
    complete = []
    for group in layout.groups:
        at = group.coordinates
        complete.append(False)
        if group.kind == "ones":
            covariance[at, :] = covariance[:, at] = 0.0
        elif group.kind == "code":
            doubt = 3.0 * float(np.linalg.norm(noise[at, at])) + 1e-9
            complete[-1] = 1.0 - float(mean[at].sum()) <= doubt
            mean[at] = _positive(mean[at], noise[at, at])
            if complete[-1] or mean[at].sum() > 1.0:
                mean[at] /= mean[at].sum()
            covariance[np.ix_(at, at)] = np.diag(mean[at]) - np.outer(
                mean[at], mean[at]
            )
        else:
            covariance[at, at] = variances[at]
            if not group.signed:
                mean[at] = np.clip(mean[at], 1e-3, 1.0 - 1e-3)
                most = 0.9 * mean[at] * (1.0 - mean[at])
                covariance[at, at] = np.minimum(covariance[at, at], most)
    return Moments(mean, _valid(covariance, layout, complete), tuple(complete))


def _positive(value: FloatArray, std: FloatArray) -> FloatArray:
    """Mean of a positive number that was seen as `value` with normal noise."""
    safe = np.where(std > 0, std, 1.0)
    ratio = np.maximum(value / safe, -20.0)
    raised = safe * (ratio + np.exp(norm.logpdf(ratio) - norm.logcdf(ratio)))
    return np.asarray(np.where(std > 0, raised, np.maximum(value, 1e-12)))


def _valid(covariance: FloatArray, layout: Layout, complete: list[bool]) -> FloatArray:
    """Without negative eigenvalues, and zero along the sum of a complete group."""
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


def rows(layout: Layout, known: Moments) -> FloatArray:
    """Make up rows (n, d) with these moments, column by column.

    A column is drawn around its linear regression on those before it: a category with
    the regression as its probabilities, a number in [0, 1] from a beta distribution, a
    signed one from a normal. So second moments come out as they should wherever
    probabilities did not have to be kept positive. Draws are those of a Kronecker
    sequence: the same every time, and evener than random ones.
    """
    d = layout.n_features
    n = max(N_ROWS, ROWS_PER_COORDINATE * d)
    redundant = np.zeros(d, bool)  # the last of a complete group follows from the rest
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
        if group.kind == "code":
            made[:, at] = _categories(expected, _uniforms(n, group.start), whole)
        else:
            made[:, at] = _numbers(group, expected, block, n)
        if len(own):
            away = made[:, own] - expected[:, : len(own)]
            innovations[:, own] = np.linalg.solve(block, away.T).T
    return made


def _uniforms(n: int, dimension: int) -> FloatArray:
    """One coordinate of a Kronecker sequence, i·√p mod 1 with p a prime."""
    step = math.sqrt(_primes(dimension + 1)[dimension])
    return np.asarray((np.arange(1, n + 1) * step + 0.5 / n) % 1.0)


def _primes(count: int) -> list[int]:
    limit = max(
        15, int(count * (math.log(count + 1) + math.log(math.log(count + 3)) + 1))
    )
    prime = np.ones(limit + 1, bool)
    prime[:2] = False
    for i in range(2, math.isqrt(limit) + 1):
        if prime[i]:
            prime[i * i :: i] = False
    return [int(p) for p in np.flatnonzero(prime)[:count]]


def _categories(expected: FloatArray, drawn: FloatArray, whole: bool) -> FloatArray:
    chances = np.maximum(expected, 0.0)
    if whole:  # the last takes what the others leave
        chances[:, -1] = np.maximum(1.0 - chances[:, :-1].sum(axis=1), 0.0)
    total = chances.sum(axis=1, keepdims=True)
    chances /= np.maximum(total, 1.0) if not whole else np.maximum(total, 1e-12)
    code = (drawn[:, None] >= np.cumsum(chances, axis=1)).sum(axis=1)
    if whole:
        code = np.minimum(code, expected.shape[1] - 1)
    return np.asarray(
        (code[:, None] == np.arange(expected.shape[1])).astype(np.float64)
    )


def _numbers(
    group: Group, expected: FloatArray, block: FloatArray, n: int
) -> FloatArray:
    drawn = [_uniforms(n, group.start + j) for j in range(group.width)]
    uniforms = np.clip(np.stack(drawn, axis=1), 1e-9, 1.0 - 1e-9)
    if group.width > 1 or group.signed:
        return np.asarray(np.clip(expected + ndtri(uniforms) @ block.T, -1.0, 1.0))
    mean = np.clip(expected, 1e-3, 1.0 - 1e-3)
    spread = np.minimum(block[0, 0] ** 2, 0.9 * mean * (1.0 - mean))
    strength = mean * (1.0 - mean) / spread - 1.0
    return np.asarray(betaincinv(mean * strength, (1.0 - mean) * strength, uniforms))
