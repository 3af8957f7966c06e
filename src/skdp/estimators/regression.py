"""What regressors share: a target scaled to its public range."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.unknown import RANGE
from skdp.schema import FloatArray, Numeric, Schema, check


def numeric_target(schema: Schema) -> Numeric:
    """The target's description, refused unless it is a plain range."""
    column = schema.target_column
    if not isinstance(column, Numeric):
        raise ValueError(
            "A regressor needs a numeric target: describe it as Numeric(low, high) in "
            "the schema, or pass target_bounds=(low, high)."
        )
    check(
        column.scale == "linear" and column.bins is None and not column.indicator,
        "A regressor needs a target on a linear scale, without bins: transform it.",
    )
    return column


class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """A model of (y - middle) / half-width, which lies in [-1, 1]."""

    def _target(self) -> Any:
        return RANGE if self.target_bounds is None else Numeric(*self.target_bounds)

    def _slope_bound(self, default: float) -> float:
        """The bound on slopes in scaled units, from one in the target's units."""
        return default if self.slope_bound == "auto" else float(self.slope_bound)

    def _set_coefficients(self, coef: FloatArray, intercept: FloatArray) -> None:
        column = numeric_target(self.schema_)
        half = (column.high - column.low) / 2
        self.coef_ = coef[0] * half
        self.intercept_ = float(column.low + half + intercept[0] * half)

    def predict(self, X: Any) -> FloatArray:
        """Predicted values, shape (n,)."""
        column = numeric_target(self.schema_)
        half = (column.high - column.low) / 2
        return np.asarray(column.low + half + half * self._margins(X)[:, 0])
