"""Average capped slopes over the targets that a model expects.

The slope of a record is the derivative of its loss with respect to its margin. A fit
caps the size of each slope. A `Law` is a distribution of targets around the model, and
so determines how often slopes are capped. This is post-processing, because no record is
read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc, softmax
from scipy.stats import norm

from skdp.schema import FloatArray

#: Number of Newton steps that correct weights for the bias from capped slopes.
N_NEWTON = 4
#: A cap that no slope reaches, and the smallest norm by which a slope is divided.
NO_CAP, TINY = 1e6, 1e-300
#: Upper limit on the margins of counts. A margin of 0 means the largest count.
HIGHEST = 2.0
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
        return np.exp(np.minimum(margins, HIGHEST))

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


def add_up(rows: FloatArray, blocks: FloatArray) -> FloatArray:
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
        normal = add_up(rows, -steep)
        normal += 1e-6 * np.trace(normal) / len(normal) * np.eye(len(normal))
        force = (rows.T @ slopes / len(rows)).T.ravel()
        true += np.linalg.solve(normal, force).reshape(true.T.shape).T
    return np.asarray(weights - true)
