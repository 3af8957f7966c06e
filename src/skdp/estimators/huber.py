"""Private robust regression."""

from __future__ import annotations

from skdp.estimators.regression import PrivateRegressor, numeric_target
from skdp.models.losses import Huber, Loss
from skdp.schema import Schema


class HuberRegressor(PrivateRegressor):
    """Huber regression under differential privacy.

    Residuals beyond ``slope_bound`` (0.1 by default, for a target scaled to [-1, 1])
    count linearly: robust to outliers, and less noise. Parameters and attributes are
    those of `LogisticRegression`.
    """

    def _loss(self, schema: Schema) -> Loss:
        numeric_target(schema)
        return Huber(self._slope_bound(0.1))
