"""Private regression of counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from skdp.estimators.regression import PrivateRegressor, numeric_target
from skdp.losses import Loss, Poisson
from skdp.schema import FloatArray, Schema, check


class PoissonRegressor(PrivateRegressor):
    """Poisson regression with a logarithmic link under differential privacy.

    The rate is the largest count times exp(x·w); slopes are clipped to ``slope_bound``
    (1, the whole range of counts, by default). The target's public range starts at 0.
    Parameters and attributes are those of `LogisticRegression`.
    """

    def _loss(self, schema: Schema) -> Loss:
        column = numeric_target(schema)
        check(
            column.low == 0,
            f"Counts start at 0, so the target's range must too. Got {column.low}: "
            "write target_bounds=(0, largest count).",
        )
        return Poisson(self._slope_bound(1.0))

    def _set_coefficients(self, coef: FloatArray, intercept: FloatArray) -> None:
        self.coef_ = coef[0]
        high = numeric_target(self.schema_).high
        self.intercept_ = float(intercept[0] + np.log(high))

    def predict(self, X: Any) -> FloatArray:
        """Predicted rates, shape (n,)."""
        high = numeric_target(self.schema_).high
        return np.asarray(high * np.exp(np.minimum(self._margins(X)[:, 0], 50.0)))
