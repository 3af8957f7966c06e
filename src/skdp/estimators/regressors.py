"""Define the regressors: least squares, Huber regression and Poisson regression."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from skdp.estimators.fit import PrivateLinearModel
from skdp.estimators.fit_warnings import ScoreMixin
from skdp.estimators.opening import RANGE, accept_column, check_pair
from skdp.models.losses import Huber, Loss, Poisson, Squared
from skdp.schema import FloatArray, Numeric, Schema, Target, check
from skdp.tables import readers
from skdp.tables.batches import Exposure, check_rows, divide_counts
from skdp.tables.cells import numbers


def check_numeric_target(target: Target) -> Numeric:
    """Return the target. Raise unless it is a numeric range on a linear scale."""
    if not isinstance(target, Numeric):
        raise ValueError(
            "A regressor needs a numeric target. Describe it in the schema: "
            "Numeric(low, high) in Python, kind = 'numeric' in a TOML file. Or pass "
            "target_bounds=(low, high). To predict classes, use LogisticRegression "
            "(--model logistic)."
        )
    check(
        target.scale == "linear"
        and target.bins is None
        and target.knots is None
        and not target.indicator,
        "A regressor needs a target with scale='linear' and without bins, knots or "
        f"indicator, got {target}. To model a logarithm, put it into the table as a "
        "column.",
    )
    return target


def accept_exposure(
    model: Any, sample_weight: Any, exposure: Any, offset: Any
) -> Exposure:
    """Return exposures or offsets as weights. Raise if the model is not for counts."""
    name = "offset" if exposure is None else "exposure"
    check(
        model.link == "log",
        f"{name} is only for models of counts, got a {type(model).__name__}.",
    )
    check(
        exposure is None or offset is None,
        "offset is the log of exposure. Pass either exposure or offset, not both.",
    )
    check(
        sample_weight is None,
        f"{name} is used as a weight. Pass either {name} or sample_weight, not both.",
    )
    described = model.schema is not None or model.target_bounds is not None
    check(
        described,
        f"With an {name}, the range of counts per unit of exposure must be public. "
        "Pass target_bounds=(0, high) or a schema.",
    )
    given = accept_column(offset if exposure is None else exposure, name)
    return Exposure(given, logarithms=exposure is None)


class PrivateRegressor(ScoreMixin, RegressorMixin, PrivateLinearModel):
    """The base class of all regressors.

    The model is fitted to the scaled target (y - middle) / half_width, which lies in
    [-1, 1]. The middle and the half-width are those of the target's public range.
    """

    def _target(self) -> Any:
        check(
            self.classes is None,
            "classes is for classifiers. A regressor takes target_bounds=(low, high).",
        )
        if self.target_bounds is None:
            return RANGE
        return Numeric(*check_pair(self.target_bounds, "target_bounds"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # On the small tables of scikit-learn's tests, noise hides every effect.
        tags.regressor_tags.poor_score = self.epsilon != math.inf
        return tags

    def _choose_slope_bound(self, default: float) -> float:
        """Return the bound on slopes, in units of the scaled target."""
        given = self.slope_bound
        is_auto = isinstance(given, str) and given == "auto"
        check(
            is_auto or isinstance(given, Real),
            f"slope_bound must be 'auto' or a number, got {given!r}.",
        )
        return default if is_auto else float(given)

    def _target_units(self) -> tuple[float, float]:
        """Return the middle and half-width of the target's range."""
        column = check_numeric_target(self.schema_.target_column)
        half = (column.high - column.low) / 2
        return column.low + half, half

    def _set_coefficients(self, coef: FloatArray, intercept: FloatArray) -> None:
        middle, half = self._target_units()
        self.coef_ = coef[0] * half
        self.intercept_ = float(middle + intercept[0] * half)

    def predict(self, X: Any) -> FloatArray:
        """Return predicted values, shape (n,)."""
        check_is_fitted(self, "weights_")
        middle, half = self._target_units()
        return np.asarray(middle + half * self._margins(X)[:, 0])

    def _compute_score(self, X: Any, y: Any, sample_weight: Any) -> float:
        """Return R² or, for counts, the explained share of the deviance (D²)."""
        from sklearn import metrics  # slow to import

        predicted = self.predict(X)
        weights: Any = {"sample_weight": sample_weight}
        if self.link == "log":
            return float(metrics.d2_tweedie_score(y, predicted, power=1, **weights))
        return float(metrics.r2_score(y, predicted, **weights))


class LinearRegression(PrivateRegressor):
    """Least squares (ridge by default) under differential privacy.

    The target is scaled to [-1, 1] by its public range, which ``target_bounds`` gives.
    Each record's residual on this scale is clipped to ``slope_bound``. The default is
    2, the length of the whole range. This class has the same parameters and attributes
    as `LogisticRegression`.
    """

    short_name = "linear"
    title = "Linear regression by least squares"
    sklearn_class = "sklearn.linear_model:LinearRegression"

    def _make_loss(self, target: Target) -> Loss:
        check_numeric_target(target)
        return Squared(self._choose_slope_bound(2.0))


class HuberRegressor(PrivateRegressor):
    """Huber regression under differential privacy.

    The target is scaled to [-1, 1]. The loss is linear in residuals beyond
    ``slope_bound`` (0.1 by default), which resists outliers and needs less noise than
    `LinearRegression`. This class has the same parameters and attributes as
    `LogisticRegression`.
    """

    short_name = "huber"
    title = "Linear regression by Huber's loss"
    sklearn_class = "sklearn.linear_model:HuberRegressor"

    def _make_loss(self, target: Target) -> Loss:
        check_numeric_target(target)
        return Huber(self._choose_slope_bound(0.1))


class PoissonRegressor(PrivateRegressor):
    """Poisson regression with a logarithmic link under differential privacy.

    The predicted rate is exp(x·w) times the largest count of the target's public range,
    which must start at 0. Slopes are clipped to ``slope_bound``. The default is 1,
    which corresponds to the whole range of counts. This class has the same parameters
    and attributes as `LogisticRegression`.

    If rows were observed for different lengths of time, pass the lengths to ``fit`` as
    `exposure`. The model then predicts rates, which are counts per unit of exposure.
    ``target_bounds`` is the range of the rates, and exposures are clipped to
    ``max_weight``. If the table has the logarithm of the exposure, pass it as `offset`
    instead.
    """

    short_name = "poisson"
    title = "Poisson regression of counts"
    sklearn_class = "sklearn.linear_model:PoissonRegressor"
    link = "log"

    def _make_loss(self, target: Target) -> Loss:
        low = check_numeric_target(target).low
        check(
            low == 0,
            f"The range of a count must start at 0, got {low:g}. Change the target's "
            "low in the schema, or target_bounds.",
        )
        return Poisson(self._choose_slope_bound(1.0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _adapt_target(self, schema: Schema) -> Schema:
        """Make the target's range start at 0, as a range of counts must."""
        high = check_numeric_target(schema.target_column).high
        return replace(schema, target=Numeric(0.0, high if high > 0 else 1.0))

    def _target_units(self) -> tuple[float, float]:
        """Return the shift and scale of margins: log of the largest count, and 1."""
        return math.log(check_numeric_target(self.schema_.target_column).high), 1.0

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        unit: Any = None,
        *,
        exposure: Any = None,
        offset: Any = None,
    ) -> Self:
        """Fit a private model.

        Parameters
        ----------
        X, y, sample_weight, unit
            As for `LogisticRegression`.
        exposure : column or str, optional
            How long, or how much, each row was observed, clipped to ``max_weight``. The
            logarithm of the exposure is the offset of the linear predictor. A row whose
            exposure is not positive is ignored.
        offset : column or str, optional
            The offset of the linear predictor itself, at most log(``max_weight``).

        Returns
        -------
        self
            The fitted estimator.
        """
        if exposure is not None or offset is not None:
            sample_weight = accept_exposure(self, sample_weight, exposure, offset)
        return super().fit(X, y, sample_weight, unit)

    def predict(self, X: Any) -> FloatArray:
        """Return predicted rates, shape (n,)."""
        return np.exp(super().predict(X))

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        offset: Any = None,
    ) -> float:
        """Return D², the share of the Poisson deviance that the model explains.

        The score is that of scikit-learn's ``PoissonRegressor``. It is computed without
        noise, so use rows that need no protection.

        Parameters
        ----------
        X, y, sample_weight
            As for `LogisticRegression`.
        exposure, offset : column, optional
            As for ``fit``. The score is then that of the rates y/exposure, weighted by
            the exposure. A row whose exposure is not positive is ignored.
        """
        if exposure is None and offset is None:
            check(
                not self._exposed or sample_weight is not None,
                "The model was fitted with exposures, so it predicts counts per unit "
                "of exposure. Pass the exposure or the offset of these rows too, or "
                "rates as y and exposures as sample_weight.",
            )
            return super().score(X, y, sample_weight)
        given = accept_exposure(self, sample_weight, exposure, offset)
        counts = numbers(readers.read_column(accept_column(y), "y"))
        cells = numbers(readers.read_column(given.weights, given.role))
        check_rows(len(cells) == len(counts), given.role)
        rates, weights = divide_counts(counts, cells, given.role)
        kept = weights > 0
        # Rows without an exposure must not contribute, whatever their counts are.
        return super().score(X, np.where(kept, rates, 0.0), weights)
