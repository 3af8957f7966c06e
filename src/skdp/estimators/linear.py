"""Private least squares."""

from __future__ import annotations

from skdp.estimators.regression import PrivateRegressor, numeric_target
from skdp.models.losses import Loss, Squared
from skdp.schema import Schema


class LinearRegression(PrivateRegressor):
    """Least squares (ridge by default) under differential privacy.

    The target is scaled to [-1, 1] by its public range, and a record's residual is
    clipped to ``slope_bound`` there (2, its whole range, by default). Parameters and
    attributes are those of `LogisticRegression`; ``target_bounds`` is the target's
    public range.
    """

    def _loss(self, schema: Schema) -> Loss:
        numeric_target(schema)
        return Squared(self._slope_bound(2.0))
