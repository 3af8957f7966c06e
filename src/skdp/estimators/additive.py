"""Define additive models, which have curves for numbers and surfaces for pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdp.estimators.base import ESTIMATORS, PrivateLinearModel
from skdp.estimators.classifiers import LogisticRegression
from skdp.estimators.effects import list_terms, make_frame, make_pairs_frame
from skdp.estimators.preparation import OpenedTable
from skdp.estimators.purified import estimate_shares, make_purifying_matrix
from skdp.estimators.regressors import (
    HuberRegressor,
    LinearRegression,
    PoissonRegressor,
    PrivateRegressor,
)
from skdp.estimators.summary_lines import TermLine
from skdp.models.losses import Loss
from skdp.planning.curves import check_choices, find_auto_columns
from skdp.privacy.budget import PrivacyRecord
from skdp.schema import Categorical, FloatArray, Layout, Schema, Target, check

#: Largest number of coordinates for which an additive model releases a Gram matrix.
MATRIX_LIMIT = 4000
#: The linear model whose loss an additive regressor uses, by the name of the loss.
REGRESSORS: dict[str, type[PrivateRegressor]] = {
    "squared": LinearRegression,
    "huber": HuberRegressor,
    "poisson": PoissonRegressor,
}


class AdditiveMixin(PrivateLinearModel):
    """Model numeric columns by curves instead of lines, and pairs by surfaces."""

    def __init__(self, *, knots: Any = "auto", pairs: Any = "auto", **parameters: Any):
        super().__init__(**parameters)
        self.knots = knots
        self.pairs = pairs

    @classmethod
    def _get_param_names(cls) -> list[str]:
        # scikit-learn reads only one signature, and ``**parameters`` has no names.
        own = super()._get_param_names()
        return sorted({*own, *PrivateLinearModel._get_param_names(), "knots", "pairs"})

    def _derive(self) -> None:
        self._known_shares = estimate_shares(self)

    @property
    def _shares(self) -> FloatArray | None:
        """The share of rows at each category and knot, from released values."""
        return self.__dict__.get("_known_shares")

    def _make_centring_matrix(self) -> FloatArray:
        return make_purifying_matrix(self.schema_, self._layout, self._shares)

    def _list_terms(self, ratios: bool = False) -> tuple[TermLine, ...]:
        return list_terms(self, ratios)

    def _centre(self, weights: FloatArray) -> FloatArray:
        return self._make_centring_matrix() @ weights

    @property
    def curves_(self) -> Any:
        """The effect of each column as a frame: column, value, effect, low, high.

        A value is a category, a knot in the user's units, or nan for missing numbers.
        If the effect is a line, its values are the two ends of the range. Effects are
        on the scale of the margin (log-odds, units of the target, or logarithms of
        rates), and their mean over the table's rows is about zero. The ends of a 95 %
        interval are low and high. The interval accounts for both sampling error and
        privacy noise. With more than two classes, the frame has a column ``class``, and
        low and high are nan.
        """
        check_is_fitted(self, "weights_")
        return make_frame(self)

    @property
    def surfaces_(self) -> Any:
        """The effect of each pair of columns as a frame.

        It has the columns of ``curves_``, but with first_value and second_value in
        place of value.
        """
        check_is_fitted(self, "weights_")
        return make_pairs_frame(self)

    def plot(self, columns: Sequence[str] | str | None = None) -> Any:
        """Draw the curves with their 95 % bands, and the pairs as maps.

        The panels are ordered by what they explain, and share one scale of the effect.
        Terms that noise cannot be told from are left out and counted below, and so are
        pairs whose errors were not computed. Bands are paler, and dots hollow, where
        noise hides how many rows there are. The interval there is only a guess from the
        noise. A dashed line has no band, because its error is not known.

        Parameters
        ----------
        columns : list of str or str, optional
            The columns and pairs to draw, or one of them, in this order.

        Returns
        -------
        matplotlib.figure.Figure
            The figure. Save it with ``savefig``.
        """
        from skdp.estimators.plots import draw_terms  # needs an extra

        check_is_fitted(self, "weights_")
        return draw_terms(self, [columns] if isinstance(columns, str) else columns)

    def _check_parameters(self, opened: OpenedTable, rows: int | None) -> float:
        check_choices(self.knots, self.pairs)
        return super()._check_parameters(opened, rows)

    def _is_described(self, schema: Schema) -> bool:
        return False

    def _find_curves(self, schema: Schema) -> list[str]:
        return find_auto_columns(schema, self.knots)

    def _describe(
        self, schema: Schema, rows: int, record: PrivacyRecord, **options: Any
    ) -> tuple[Schema, tuple[str, ...]]:
        own = {"knots": self.knots, "pairs": self.pairs}
        return super()._describe(schema, rows, record, **(own | options))

    def _choose_geometry(self, layout: Layout) -> Any:
        """Return the geometry.

        The default is "matrix" for up to `MATRIX_LIMIT` coordinates. For linear models
        this limit is lower.
        """
        full = self.geometry == "auto" and self.sampling in ("auto", "full")
        small = layout.n_features <= MATRIX_LIMIT
        return "matrix" if full and small else self.geometry


class AdditiveClassifier(AdditiveMixin, LogisticRegression):
    """An additive classifier under differential privacy, binary or multinomial.

    The log-odds are a sum of terms. Each numeric column adds a curve, and each
    categorical column adds one number per category. If the table is large enough, pairs
    of columns add surfaces. A curve is linear between knots in the column's public
    range.

    Parameters
    ----------
    knots : int, "auto" or None
        The number of knots of each curve, equally spaced. With "auto", the number
        follows from the number of rows and the budget. A twentieth of the budget is
        then spent on histograms of the numeric columns, to place knots where the rows
        are. With None, the effect of a number is a line. Knots that the schema sets
        have priority.
    pairs : "auto", "all", list of pairs of names, or None
        The pairs of columns that have a surface: as many as the rows and the budget
        support ("auto"), all pairs, the listed pairs, or none.
    **parameters
        The parameters of `LogisticRegression`.

    Attributes
    ----------
    schema_ : Schema
        The schema that was used, with all knots and pairs.
    plan_ : Plan
        The plan. It says which knots and pairs were chosen, and why.
    curves_, surfaces_ : DataFrame
        The effect of each column and of each pair, with 95 % intervals.

    Notes
    -----
    The other attributes are the same as for `LogisticRegression`. ``coef_`` contains
    the height of each curve at each knot.

    Examples
    --------
    >>> import numpy as np, skdp
    >>> X = np.random.default_rng(0).uniform(size=(20_000, 1))
    >>> y = (np.abs(X[:, 0] - 0.5) < 0.25).astype(int)  # not linear in X
    >>> clf = skdp.AdditiveClassifier(epsilon=1.0, bounds=(0, 1), classes=[0, 1])
    >>> bool(clf.fit(X, y).score(X[:500], y[:500]) > 0.9)
    True
    """

    short_name = "additive"
    title = "Additive model of classes"


class AdditiveRegressor(AdditiveMixin, PrivateRegressor):
    """An additive model of a number or a count under differential privacy.

    Parameters
    ----------
    loss : {"squared", "huber", "poisson"}
        The loss of `LinearRegression`, `HuberRegressor` or `PoissonRegressor`.
    knots, pairs
        As in `AdditiveClassifier`.
    **parameters
        The parameters of `LinearRegression`.
    """

    short_name = "additive-regressor"
    title = "Additive model of a number"

    def __init__(self, *, loss: str = "squared", **parameters: Any) -> None:
        super().__init__(**parameters)
        self.loss = loss

    @property
    def _linear(self) -> type[PrivateRegressor]:
        check(
            self.loss in REGRESSORS,
            f"loss must be one of {list(REGRESSORS)}, got {self.loss!r}.",
        )
        return REGRESSORS[self.loss]

    @property
    def link(self) -> Literal["identity", "log", "logit"]:  # type: ignore[override]  # read-only
        """The link function, which is "log" for counts."""
        return self._linear.link

    @property
    def sklearn_class(self) -> str:  # type: ignore[override]  # read-only
        """The class of scikit-learn that ends the pipeline of ``to_sklearn``."""
        return self._linear.sklearn_class

    def _make_loss(self, target: Target) -> Loss:
        return self._linear._make_loss(self, target)

    def _adapt_target(self, schema: Schema) -> Schema:
        return self._linear._adapt_target(self, schema)

    def _target_units(self) -> tuple[float, float]:
        return self._linear._target_units(self)

    def predict(self, X: Any) -> FloatArray:
        """Return predicted values or rates, shape (n,)."""
        predicted = super().predict(X)
        return np.exp(predicted) if self.link == "log" else predicted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        tags.regressor_tags.poor_score = self.epsilon != math.inf
        return tags


def find_estimator(name: str, schema: Schema) -> type[PrivateLinearModel]:
    """Return the estimator with this short name.

    "additive" is a classifier or a regressor, depending on the schema's target.
    """
    if name == "additive" and not isinstance(schema.target_column, Categorical):
        return AdditiveRegressor
    return ESTIMATORS[name]
