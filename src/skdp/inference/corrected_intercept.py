"""Compute the error of an intercept that was corrected after the descent.

`descent.level` moves the intercepts by -g/h after the last step, where g is the
released mean of the slopes and h their mean derivative. The other weights w are not
moved. The correction makes predictions right on average, so errors of w cause an error
of the intercept. The error that the intercept had before the correction vanishes,
unless some rows have weights below the largest weight. In that case the move is too
short, and a part of the earlier error remains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdp.inference import capped_slopes
from skdp.inference.capped_slopes import NO_CAP, Law, Weighting
from skdp.schema import FloatArray, IntArray


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
        own = capped_slopes.average_slopes(law, weighting, margins, free)
        columns = np.einsum("nab,nd->abd", own.curvature, rows) / len(rows)
        inverse = np.linalg.pinv(plain, rcond=1e-9, hermitian=True)
        capped = capped_slopes.expect_slopes(
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
