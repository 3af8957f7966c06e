"""The error of an intercept that was corrected after the descent.

`descent.level` moves the intercept by -g/h after the last step, where g is the released
mean of the slopes and h their mean derivative. The other weights w are not moved. An
error of w is thus passed on to the intercept, which keeps predictions right on average.
The intercept's own error before the correction does not matter any more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdp.schema import FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Correction:
    """What the correction of the intercept, the last weight, does to errors.

    Attributes
    ----------
    passed_on : float64 (d,)
        Share of each weight's error that the intercept loses. It is 1 for the intercept
        itself.
    noise, sampling : float
        Variances of g/h due to the privacy noise and to sampling.
    """

    passed_on: FloatArray
    noise: float
    sampling: float

    @classmethod
    def of(
        cls,
        rows: FloatArray,
        curvature: FloatArray,
        noise_std: float,
        variance: float,
        n_rows: float,
    ) -> Correction:
        """Compute the correction from surrogate rows and the derivatives of slopes.

        `noise_std` is that of the released sum of slopes, and `variance` is the
        variance of one slope.
        """
        column = rows.T @ curvature / len(rows)
        steep = float(column[-1])
        return cls(
            passed_on=column / steep,
            noise=(noise_std / n_rows / steep) ** 2,
            sampling=variance / n_rows / steep**2,
        )

    def move(self, maps: FloatArray) -> FloatArray:
        """Return functionals (m, d) whose errors before the correction are passed on.

        Each functional `maps` @ weights has, after the correction, the error of the
        returned functional before it, plus that of g/h.
        """
        return np.asarray(maps - np.outer(maps[:, -1], self.passed_on))
