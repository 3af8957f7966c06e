"""Estimate how much a column varies, from a released Gram matrix.

A coefficient is learnt from the variance of its column given the other columns. This
module estimates that variance from the released matrix. It also computes the standard
deviation of the estimate, since the size of the noise is known. This is
post-processing, because no record is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skdp.descent.gram import fill_gram
from skdp.inference.surrogate_rows import Moments
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, Layout

#: Ridge on the Gram matrix, in standard deviations of the noise. Combinations of
#: columns whose variance is far below this ridge do not matter.
DOUBT = 1.645
#: The smallest addition to the diagonal of a matrix before it is inverted.
TINY = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedGram:
    """A released Gram matrix and the size of its noise.

    Attributes
    ----------
    layout, pattern : Layout, GramPattern
        The layout of the rows, and the positions of the entries that were released.
    released : Released
        The values of these entries.
    n_rows : float
        The public or released number of rows.
    """

    layout: Layout
    pattern: queries.GramPattern
    released: Released
    n_rows: float

    @property
    def matrix(self) -> FloatArray:
        """The Gram matrix (d, d) of the centred rows, divided by n."""
        values = self.released.values
        return fill_gram(self.layout, self.pattern, values, self.n_rows) / self.n_rows

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in a diagonal entry, divided by n."""
        return float(np.max(self.released.noise_std)) / self.n_rows

    def evaluate_forms(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return qᵀGq for each row of `q` (m, d), where G is `matrix`.

        Also return the standard deviation of the noise in each of these values.
        """
        values = np.einsum("md,de,me->m", q, self.matrix, q, optimize=True)
        i, j = self.pattern.rows, self.pattern.columns
        kind = [self.layout.groups[g].kind for g in self.layout.group_of]
        # The diagonal entry of a category also appears in the row and in the column of
        # the intercept.
        code = (i == j) & (np.array(kind)[i] == "code")
        std = np.broadcast_to(self.released.noise_std, i.shape) / self.n_rows
        variances = np.empty(len(q))
        for k, each in enumerate(q):
            times = each[i] * each[j] * np.where(i == j, 1.0, 2.0)
            times[code] += 2.0 * each[i[code]] * each[-1]
            variances[k] = np.square(times * std).sum()
        return values, np.sqrt(variances)

    def centre(self, functionals: FloatArray) -> FloatArray:
        """Convert functionals aᵀw (m, d) from encoded rows to centred rows."""
        half = self.pattern.shift / 2.0
        return np.asarray(functionals - np.outer(functionals[:, -1], half))

    def uncentre(self, weights: FloatArray) -> FloatArray:
        """Convert weights (m, d) for centred rows to weights for encoded rows."""
        moved = weights.copy()
        moved[:, -1] -= weights @ (self.pattern.shift / 2.0)
        return moved


@dataclass(frozen=True, eq=False)
class Varies:
    """The variance of the column of each coefficient, given the other columns.

    Attributes
    ----------
    estimate, std : float64 (m,)
        The variance according to the released matrix, and the standard deviation of the
        noise in this estimate.
    residuals : float64 (m, d)
        A vector q for each coefficient. Adding q to the weights changes the coefficient
        by one. Of all vectors that do so, q has the margins with the smallest variance,
        up to noise. That variance is `estimate`.
    """

    estimate: FloatArray
    std: FloatArray
    residuals: FloatArray

    def take(self, some: npt.NDArray[np.bool_]) -> Varies:
        """Return the variances for some of the coefficients."""
        return Varies(self.estimate[some], self.std[some], self.residuals[some])


def measure_remaining(
    gram: ReleasedGram, known: Moments, functionals: FloatArray
) -> Varies:
    """Return the variance of rows along each coefficient aᵀw, given the other columns.

    The variance is the minimum of qᵀGq over all weights q with aᵀq = 1, where G is the
    Gram matrix of the rows without noise. Any such q gives an upper bound, so q may be
    computed from the noisy matrix. A ridge of the size of the noise keeps q from
    fitting the noise.
    """
    at = gram.centre(functionals)
    half = gram.pattern.shift / 2.0
    mean = known.mean - half
    second = known.covariance + np.outer(mean, mean)
    ridge = max(DOUBT * gram.noise_std, TINY)
    matrix = second + ridge * np.eye(len(mean))
    q: FloatArray = np.asarray(np.linalg.solve(matrix, at.T).T, np.float64)
    q /= np.einsum("md,md->m", q, at)[:, None]
    estimate, std = gram.evaluate_forms(q)
    return Varies(estimate, std, gram.uncentre(q))


def measure_explained(gram: ReleasedGram, weights: FloatArray) -> float:
    """Return a low estimate of the variance of the margins of weights (d,).

    This is the variance according to the released matrix, minus one standard deviation
    of the noise in that variance. The estimate is low on purpose, because the
    weights of columns that hardly vary consist of noise.
    """
    centred = weights.copy()
    centred[-1] = 0.0
    centred[-1] = -float(centred @ gram.matrix[:, -1])
    value, std = gram.evaluate_forms(centred[None])
    return max(0.0, float(value[0] - std[0]))
