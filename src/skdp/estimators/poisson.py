"""Private regression of counts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from skdp.estimators.regression import PrivateRegressor, numeric_target
from skdp.models.losses import Loss, Poisson
from skdp.schema import FloatArray, Numeric, Schema, check


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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _with_found_target(self, schema: Schema) -> Schema:
        """Counts start at 0, whatever was found."""
        high = numeric_target(schema).high
        return replace(schema, target=Numeric(0.0, high if high > 0 else 1.0))

    def _target_units(self) -> tuple[float, float]:
        """Logarithm of the largest count, and one: the link is a logarithm."""
        return math.log(numeric_target(self.schema_).high), 1.0

    def predict(self, X: Any) -> FloatArray:
        """Predicted rates, shape (n,)."""
        return np.exp(super().predict(X))
