"""What a released Gram matrix leaves possible for how much a column varies.

A coefficient is learnt through the variance that its column has beside the others. Its
noise in the released matrix is known, so an estimate and a standard deviation follow.
It is post-processing: no record is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdp.descent.gram import fill_gram
from skdp.inference.surrogate_rows import Moments
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, Layout

#: Standard deviations of noise that a combination of columns must vary by to count.
DOUBT = 1.645
#: The least that is added to the diagonal of a matrix before it is inverted.
TINY = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedGram:
    """A released Gram matrix of a layout, with what is known of its noise.

    Attributes
    ----------
    layout, pattern : Layout, GramPattern
        Which entries were released.
    released : Released
        The entries.
    n_rows : float
        The public or released number of rows.
    """

    layout: Layout
    pattern: queries.GramPattern
    released: Released
    n_rows: float

    @property
    def matrix(self) -> FloatArray:
        """The matrix over n (d, d), of rows taken from their centre."""
        values = self.released.values
        return fill_gram(self.layout, self.pattern, values, self.n_rows) / self.n_rows

    @property
    def noise_std(self) -> float:
        """Standard deviation of a diagonal entry over n."""
        return float(np.max(self.released.noise_std)) / self.n_rows

    def forms(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return qᵀGq for each row of `q` (m, d), and its noise's deviation (m,)."""
        values = np.einsum("md,de,me->m", q, self.matrix, q, optimize=True)
        i, j = self.pattern.rows, self.pattern.columns
        kind = [self.layout.groups[g].kind for g in self.layout.group_of]
        # A category's square also stands beside the intercept, twice.
        code = (i == j) & (np.array(kind)[i] == "code")
        std = np.broadcast_to(self.released.noise_std, i.shape) / self.n_rows
        variances = np.empty(len(q))
        for k, each in enumerate(q):
            times = each[i] * each[j] * np.where(i == j, 1.0, 2.0)
            times[code] += 2.0 * each[i[code]] * each[-1]
            variances[k] = np.square(times * std).sum()
        return values, np.sqrt(variances)

    def centred(self, functionals: FloatArray) -> FloatArray:
        """Rows a (m, d) of aᵀw for the weights of rows taken from their centre."""
        half = self.pattern.shift / 2.0
        return np.asarray(functionals - np.outer(functionals[:, -1], half))

    def encoded(self, weights: FloatArray) -> FloatArray:
        """Weights (m, d) of centred rows as weights of rows as they are encoded."""
        moved = weights.copy()
        moved[:, -1] -= weights @ (self.pattern.shift / 2.0)
        return moved


@dataclass(frozen=True, eq=False)
class Varies:
    """How much remains of each coefficient's column beside the others, (m,) each.

    Attributes
    ----------
    estimate, std : float64 (m,)
        The variance as it was released, and the noise in it.
    residuals : float64 (m, d)
        The weights whose margins have this variance: they change the coefficient by
        one and vary the least, as far as noise allows to tell.
    """

    estimate: FloatArray
    std: FloatArray
    residuals: FloatArray


def remaining(gram: ReleasedGram, known: Moments, functionals: FloatArray) -> Varies:
    """Return the variance that rows have along each coefficient aᵀw, given the rest.

    It is min qᵀGq over weights q with aᵀq = 1. For any q an upper bound, so that q may
    be chosen from the noisy matrix; a ridge of its noise keeps q from following noise.
    """
    at = gram.centred(functionals)
    half = gram.pattern.shift / 2.0
    mean = known.mean - half
    second = known.covariance + np.outer(mean, mean)
    ridge = max(DOUBT * gram.noise_std, TINY)
    matrix = second + ridge * np.eye(len(mean))
    q: FloatArray = np.asarray(np.linalg.solve(matrix, at.T).T, np.float64)
    q /= np.einsum("md,md->m", q, at)[:, None]
    estimate, std = gram.forms(q)
    return Varies(estimate, std, gram.encoded(q))


def explained(gram: ReleasedGram, weights: FloatArray) -> float:
    """Return the variance of the margins of weights (d,), less its noise's deviation.

    A lower bound, because weights of columns that hardly vary are noise themselves.
    """
    centred = weights.copy()
    centred[-1] = 0.0
    centred[-1] = -float(centred @ gram.matrix[:, -1])
    value, std = gram.forms(centred[None])
    return max(0.0, float(value[0] - std[0]))
