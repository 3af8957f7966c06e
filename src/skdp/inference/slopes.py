"""Describe the slopes of records, of which only moments were released.

Records are not available for inference. `surrogate_rows` makes rows that have the
released moments, and the variance and the bias of capped slopes follow from them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, gammainc, ndtri, softmax
from scipy.stats import norm

from skdp.descent.geometry import one_thread
from skdp.descent.matrix import fill_gram
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, Group, IntArray, Layout

# ---- Average capped slopes over the targets that a model expects
#
# The slope of a record is the derivative of its loss with respect to its margin. A fit
# caps the size of each slope. A `Law` is a distribution of targets around the model,
# and so determines how often slopes are capped. This is post-processing, because no
# record is read.


#: Number of Newton steps that correct weights for the bias from capped slopes.
N_NEWTON = 4
#: A cap that no slope reaches, and the smallest norm by which a slope is divided.
NO_CAP, TINY = 1e6, 1e-300
#: Limits on the margins of counts. A margin of 0 means the largest count.
LOWEST, HIGHEST = -50.0, 2.0
#: The largest change of a margin in one of these steps.
LONGEST = 2.0
#: Step in margins for numerical derivatives of the expected slopes of counts.
STEP = 1e-4


@dataclass(frozen=True, eq=False)
class MeanSlopes:
    """The mean derivative and the mean square of capped slopes, (n, k, k) each."""

    curvature: FloatArray
    square: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Weighting:
    """The weights that multiply the slopes of records.

    Attributes
    ----------
    most : float
        The largest possible weight. Steps are shorter by this factor.
    weights, shares : float64 (b,)
        The positive weights that occur, and the share of the records that have each
        weight. All other records have weight zero. Weights are assumed not to depend on
        the columns.
    factors : float64 (k,), optional
        The weight of each class.
    exposed : bool
        Whether the weights are exposures, by which counts were divided.
    """

    most: float = 1.0
    weights: FloatArray
    shares: FloatArray
    factors: FloatArray | None = None
    exposed: bool = False

    @classmethod
    def equal(cls, most: float = 1.0, factors: FloatArray | None = None) -> Weighting:
        """Return the weighting of a table whose rows have equal weights.

        With `factors`, the weight of a row follows from its class.
        """
        one = min(1.0, most) if factors is None else 1.0
        return cls(
            most=most, weights=np.array([one]), shares=np.ones(1), factors=factors
        )


class Law(ABC):
    """The distribution of targets, given their margins (n, k)."""

    @abstractmethod
    def average(self, margins: FloatArray, caps: FloatArray) -> MeanSlopes:
        """Cap slopes at `caps`. Return the means of their derivatives and squares."""

    @abstractmethod
    def steepen(self, margins: FloatArray) -> FloatArray:
        """Return the derivatives (n, k, k) of slopes without weights or caps.

        Derivatives are with respect to the margins.
        """

    def expect(
        self, margins: FloatArray, true: FloatArray, caps: FloatArray
    ) -> FloatArray:
        """Return the mean capped slopes (n, k) at `margins`.

        Targets are drawn with the margins `true`. If `margins` equals `true` and
        `is_even` holds, the mean slopes are zero.
        """
        return np.zeros_like(margins)

    def derive(
        self, margins: FloatArray, true: FloatArray, caps: FloatArray
    ) -> FloatArray:
        """Return the derivatives (n, k, k) of `expect` with respect to `true`."""
        up, down = (self.expect(margins, true + s, caps) for s in (STEP, -STEP))
        return np.asarray((up - down) / (2.0 * STEP))[:, :, None]

    @property
    def is_even(self) -> bool:
        """Whether caps cut as much from positive as from negative slopes."""
        return False

    def expose(self, exposure: float) -> Law:
        """Return the law of rates, which are counts divided by an exposure."""
        raise TypeError("Only counts can have an exposure.")


@dataclass(frozen=True, eq=False)
class Classes(Law):
    """Classes with probabilities softmax(m).

    If there are two classes and one margin m, the second class has probability σ(m).
    The slopes of class y are multiplied by `factors[y]`. A fit that weights classes
    finds margins that are higher by log(factors[y]) than those of the true
    probabilities.
    """

    factors: FloatArray

    def _find_chances(self, margins: FloatArray) -> FloatArray:
        if margins.shape[1] == 1:
            margins = np.hstack([np.zeros_like(margins), margins])
        return np.asarray(softmax(margins, axis=1))

    def _find_true_chances(self, margins: FloatArray) -> FloatArray:
        chances = self._find_chances(margins) / self.factors
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))

    def _cap_slopes(
        self, margins: FloatArray, y: int, caps: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return capped slopes (n, k) of class y, and the factors (n,) of the capping.

        Capping multiplies the slopes of a row by the row's factor.
        """
        slopes = self._find_chances(margins)
        slopes[:, y] -= 1.0
        slopes = self.factors[y] * slopes[:, -margins.shape[1] :]
        factor = np.minimum(
            1.0, caps / np.maximum(np.linalg.norm(slopes, axis=1), TINY)
        )
        return slopes * factor[:, None], factor

    def steepen(self, margins: FloatArray) -> FloatArray:
        """Return the derivatives (n, k, k) of probabilities with respect to margins."""
        k = margins.shape[1]
        return _derive_softmax(self._find_chances(margins))[:, -k:, -k:]

    def average(self, margins: FloatArray, caps: FloatArray) -> MeanSlopes:
        """Return the mean derivative and mean square of capped slopes over classes."""
        true, steep = self._find_true_chances(margins), self.steepen(margins)
        curvature, square = np.zeros_like(steep), np.zeros_like(steep)
        for y in range(len(self.factors)):
            slopes, factor = self._cap_slopes(margins, y, caps)
            turned = self.factors[y] * factor[:, None, None] * steep
            length = np.maximum(np.linalg.norm(slopes, axis=1, keepdims=True), TINY)
            unit = slopes / length
            along = np.einsum("na,nb,nbc->nac", unit, unit, turned)
            turned = turned - (factor < 1.0)[:, None, None] * along
            curvature += true[:, y, None, None] * (turned + turned.swapaxes(1, 2)) / 2
            square += np.einsum("n,na,nb->nab", true[:, y], slopes, slopes)
        return MeanSlopes(curvature, square)

    def expect(
        self, margins: FloatArray, true: FloatArray, caps: FloatArray
    ) -> FloatArray:
        """Return the mean capped slopes (n, k), where the mean is over the classes."""
        chances = self._find_true_chances(true)
        total = np.zeros_like(margins)
        for y in range(len(self.factors)):
            total += chances[:, [y]] * self._cap_slopes(margins, y, caps)[0]
        return total

    def derive(
        self, margins: FloatArray, true: FloatArray, caps: FloatArray
    ) -> FloatArray:
        """Return the derivatives (n, k, k) of `expect` with respect to `true`."""
        k = margins.shape[1]
        steep = _derive_softmax(self._find_true_chances(true))[:, :, -k:]
        total = np.zeros((len(margins), k, k))
        for y in range(len(self.factors)):
            slopes = self._cap_slopes(margins, y, caps)[0]
            total += slopes[:, :, None] * steep[:, y, None, :]
        return total


def _derive_softmax(chances: FloatArray) -> FloatArray:
    """Return the derivatives (n, k, k) of probabilities with respect to margins."""
    each = np.eye(chances.shape[1])[None] * chances[:, :, None]
    return np.asarray(each - chances[:, :, None] * chances[:, None, :])


@dataclass(frozen=True)
class Normal(Law):
    """Numbers with normal residuals of standard deviation `std`."""

    std: float

    @property
    def is_even(self) -> bool:
        """Whether caps cut as much from positive as from negative slopes."""
        return True

    def steepen(self, margins: FloatArray) -> FloatArray:
        """Return ones, because a slope is a margin minus a target."""
        return np.ones((len(margins), 1, 1))

    def average(self, margins: FloatArray, caps: FloatArray) -> MeanSlopes:
        """Return the mean derivative and mean square of capped slopes, over targets."""
        z = np.broadcast_to(caps, (len(margins),)) / self.std
        free = 2.0 * norm.cdf(z) - 1.0
        square = free - 2.0 * z * norm.pdf(z) + z**2 * (1.0 - free)
        return MeanSlopes(free[:, None, None], self.std**2 * square[:, None, None])


@dataclass(frozen=True)
class Counts(Law):
    """Counts with mean μ = exp(m) and variance `dispersion` · μ.

    Counts are divided by the largest possible count. The dispersion is one divided by
    the largest count if counts are Poisson, and larger if they vary more. Counts are
    assumed to have a gamma distribution, because the mean of gamma variables below a
    limit has a closed form.
    """

    dispersion: float

    def _predict(self, margins: FloatArray) -> FloatArray:
        return np.exp(np.clip(margins, LOWEST, HIGHEST))

    def _average_clipped(
        self, margins: FloatArray, true: FloatArray, caps: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the mean and mean square of clipped counts, and the unclipped share.

        Counts are clipped to exp(margins) ± caps. The unclipped share is the share of
        the counts that lie between these limits. Each result has shape (n,).
        """
        mean, middle = self._predict(true)[:, 0], self._predict(margins)[:, 0]
        shape = mean / self.dispersion
        low, high = np.maximum(middle - caps, 0.0), middle + caps
        first, second, free = low, low**2, np.zeros_like(mean)
        for limit, sign in ((high, 1.0), (low, -1.0)):
            below, once, twice = (
                gammainc(shape + k, limit / self.dispersion) for k in range(3)
            )
            beyond = 1.0 - below
            first = first + sign * (mean * once + limit * beyond)
            squares = mean * (mean + self.dispersion) * twice
            second = second + sign * (squares + limit**2 * beyond)
            free = free + sign * below
        return first, second, free

    def steepen(self, margins: FloatArray) -> FloatArray:
        """Return the expected counts exp(m), because slopes are exp(m) - y."""
        return self._predict(margins)[:, :, None]

    def expose(self, exposure: float) -> Law:
        """Return the law of rates. The longer the exposure, the less rates vary."""
        return Counts(self.dispersion / exposure)

    def average(self, margins: FloatArray, caps: FloatArray) -> MeanSlopes:
        """Return the mean derivative and mean square of capped slopes over counts."""
        mean = self._predict(margins)[:, 0]
        first, second, free = self._average_clipped(margins, margins, caps)
        square = np.maximum(mean**2 - 2.0 * mean * first + second, 0.0)
        return MeanSlopes((mean * free)[:, None, None], square[:, None, None])

    def expect(
        self, margins: FloatArray, true: FloatArray, caps: FloatArray
    ) -> FloatArray:
        """Return the mean capped slopes (n, k), where the mean is over the counts."""
        first, _, _ = self._average_clipped(margins, true, caps)
        return np.asarray(self._predict(margins) - first[:, None])


def _list_points(law: Law, weighting: Weighting) -> list[tuple[float, float, Law]]:
    """Return each weight that occurs, with the share and the law of its records."""
    pairs = zip(weighting.weights, weighting.shares, strict=True)
    return [
        (w, share, law.expose(w) if weighting.exposed else law) for w, share in pairs
    ]


def average_slopes(
    law: Law, weighting: Weighting, margins: FloatArray, caps: FloatArray
) -> MeanSlopes:
    """Weight and cap slopes. Return the means of their derivatives and squares."""
    parts = [
        (share, weight, own.average(margins, caps / weight))
        for weight, share, own in _list_points(law, weighting)
    ]
    return MeanSlopes(
        np.asarray(sum(share * w * part.curvature for share, w, part in parts)),
        np.asarray(sum(share * w**2 * part.square for share, w, part in parts)),
    )


def expect_slopes(
    law: Law, weighting: Weighting, margins: FloatArray, caps: FloatArray
) -> FloatArray:
    """Return the means (n, k) of slopes that are weighted, then capped.

    Slopes are computed at `margins`, and targets are drawn with the same margins.
    """
    points = _list_points(law, weighting)
    parts = [s * w * own.expect(margins, margins, caps / w) for w, s, own in points]
    return np.asarray(sum(parts))


def average_products(rows: FloatArray, blocks: FloatArray) -> FloatArray:
    """Return the mean of block ⊗ xxᵀ over rows x (n, d) and blocks (n, k, k).

    The result (kd, kd) is for weights that are sorted by output, then by coordinate.
    """
    d, k = rows.shape[1], blocks.shape[1]
    total = np.empty((k, d, k, d))
    for a in range(k):
        for b in range(k):
            own = blocks[:, a, b, None]
            if own.min() >= 0:  # A symmetric product takes half as long.
                half = rows * np.sqrt(own)
                total[a, :, b] = half.T @ half
            else:
                total[a, :, b] = (rows * own).T @ rows
    return np.asarray(total.reshape(k * d, k * d) / len(rows))


def find_bias(
    law: Law,
    weighting: Weighting,
    rows: FloatArray,
    weights: FloatArray,
    caps: FloatArray,
) -> FloatArray:
    """Return the bias w - w* (d, k) of the weights due to capped slopes.

    Caps affect the slopes of a rare class, or of large counts, more often than others.
    Suppose that targets are drawn with the true weights w*. The mean over rows x of x
    times the capped slope is then zero not at w*, but at other weights w. Given these
    weights w, Newton's method finds w*.
    """
    true, margins = weights.copy(), rows @ weights
    if law.is_even:
        return np.zeros_like(weights)
    points = _list_points(law, weighting)
    for _ in range(N_NEWTON):
        now = rows @ true
        slopes = np.asarray(
            sum(s * w * own.expect(margins, now, caps / w) for w, s, own in points)
        )
        steep = np.asarray(
            sum(s * w * own.derive(margins, now, caps / w) for w, s, own in points)
        )
        normal = average_products(rows, -steep)
        normal += 1e-6 * np.trace(normal) / len(normal) * np.eye(len(normal))
        force = (rows.T @ slopes / len(rows)).T.ravel()
        # Where slopes are all capped, nothing is known, and nothing is moved.
        move = np.linalg.lstsq(normal, force, rcond=1e-12)[0]
        move = move.reshape(true.T.shape).T
        # Far from w, Newton's steps may be far too long.
        true += move * min(1.0, LONGEST / max(float(np.abs(rows @ move).max()), TINY))
    return np.asarray(weights - true)


# ---- Compute the error of an intercept that was corrected after the descent
#
# `descent.matrix` moves the intercepts by -g/h after the last step, where g is the
# released mean of the slopes and h their mean derivative. The other weights w are not
# moved. The correction makes predictions right on average, so errors of w cause an
# error of the intercept. The error that the intercept had before the correction
# vanishes, unless some rows have weights below the largest weight. In that case the
# move is too short, and a part of the earlier error remains.


@dataclass(frozen=True, kw_only=True, eq=False)
class Correction:
    """How correcting the intercepts changes the errors of the weights.

    There are k outputs with d weights each. The correction moves the intercepts by
    -g/h, where g is the released mean of the slopes and h their mean derivative.

    Attributes
    ----------
    last : int array (k,)
        The positions of the intercepts among the kd weights.
    passed_on : float64 (k, kd)
        For each intercept and each weight, the share of the weight's error that is
        subtracted from the intercept. If there is a single intercept and rows have no
        weights, the share of the intercept's error is 1, so this error vanishes.
    noise, sampling : float64 (k, k)
        Covariances of g/h due to the privacy noise and to sampling.
    bias : float64 (k,)
        The part of g/h that is due to the cap on slopes in g.
    complete : bool
        Whether the whole error of the intercept is corrected.
    """

    last: IntArray
    passed_on: FloatArray
    noise: FloatArray
    sampling: FloatArray
    bias: FloatArray
    complete: bool

    @classmethod
    def of(
        cls,
        law: Law,
        weighting: Weighting,
        rows: FloatArray,
        weights: FloatArray,
        noise_std: float,
        cap: float,
        n_rows: float,
    ) -> Correction:
        """Compute the correction of weights (d, k) from surrogate rows (n, d).

        `noise_std` is the standard deviation of the noise in the released sum of
        slopes. Slopes in that sum are capped at `cap`.
        """
        d, k = weights.shape
        margins, most = rows @ weights, weighting.most
        free = np.full(len(rows), NO_CAP)
        plain = law.steepen(margins).mean(axis=0)
        own = average_slopes(law, weighting, margins, free)
        columns = np.einsum("nab,nd->abd", own.curvature, rows) / len(rows)
        inverse = np.linalg.pinv(plain, rcond=1e-9, hermitian=True)
        capped = expect_slopes(
            law, weighting, margins, np.full(len(rows), min(cap, NO_CAP))
        )
        square = own.square.mean(axis=0)
        return cls(
            last=np.arange(1, k + 1) * d - 1,
            passed_on=inverse @ columns.reshape(k, k * d) / most,
            noise=(noise_std / n_rows / most) ** 2 * inverse @ inverse,
            sampling=inverse @ square @ inverse / (n_rows * most**2),
            bias=inverse @ capped.mean(axis=0) / most,
            complete=bool(np.allclose(own.curvature.mean(axis=0), most * plain)),
        )

    def move(self, maps: FloatArray) -> FloatArray:
        """Return a matrix M (m, kd) that describes errors after the correction.

        Let e be the errors of the weights before the correction. After the correction,
        `maps` @ weights has the error M @ e, plus an error caused by the error of g/h.
        """
        return np.asarray(maps - maps[:, self.last] @ self.passed_on)


# ---- Make surrogate rows: artificial rows with the moments of a released Gram matrix
#
# The Gram matrix of the records is known up to noise. The lengths of rows, the capped
# slopes and the curvature of a loss cannot be computed from it. They require rows in
# which each column has one category, or a number in its range. The functions
# below make such rows with the released moments. This is post-processing, because no
# record is read.


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
