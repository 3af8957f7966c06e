"""What regressors share: a target scaled to its public range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.preparation import RANGE
from skdp.estimators.training_scores import Scored
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


class PrivateRegressor(Scored, RegressorMixin, PrivateLinearModel):
    """A model of (y - middle) / half-width, which lies in [-1, 1]."""

    def _target(self) -> Any:
        return RANGE if self.target_bounds is None else Numeric(*self.target_bounds)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # On tables as small as those of a test suite, noise drowns what there is.
        tags.regressor_tags.poor_score = self.epsilon != math.inf
        return tags

    def _slope_bound(self, default: float) -> float:
        """The bound on slopes in scaled units, from one in the target's units."""
        return default if self.slope_bound == "auto" else float(self.slope_bound)

    def _target_units(self) -> tuple[float, float]:
        """Middle and half-width of the target's range: predictions are in them."""
        column = numeric_target(self.schema_)
        half = (column.high - column.low) / 2
        return column.low + half, half

    def _set_coefficients(self, coef: FloatArray, intercept: FloatArray) -> None:
        middle, half = self._target_units()
        self.coef_ = coef[0] * half
        self.intercept_ = float(middle + intercept[0] * half)

    def predict(self, X: Any) -> FloatArray:
        """Predicted values, shape (n,)."""
        check_is_fitted(self, "weights_")
        middle, half = self._target_units()
        return np.asarray(middle + half * self._margins(X)[:, 0])
