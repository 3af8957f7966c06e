"""Fit additive models: curves on numbers, and surfaces on pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdp.descent.curves import check_choices, find_auto_columns
from skdp.descent.matrix import fill_gram
from skdp.descent.plan import Plan
from skdp.estimators.classifiers import LogisticRegression
from skdp.estimators.effects import list_terms, make_frame, make_pairs_frame
from skdp.estimators.fit import ESTIMATORS, PrivateLinearModel
from skdp.estimators.regressors import (
    HuberRegressor,
    LinearRegression,
    PoissonRegressor,
    PrivateRegressor,
)
from skdp.estimators.summary import TermLine
from skdp.models.losses import Loss
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.queries import GramPattern, Kind
from skdp.schema import (
    Categorical,
    FloatArray,
    Layout,
    Numeric,
    Pair,
    Schema,
    Target,
    check,
    split_hats,
)

# ---- Separate the effects of curves and pairs in an additive model
#
# A surface over two columns can imitate the curves of both, so the weights of curves
# and pairs are not unique. The effects below are unique. They are linear in the weights
# and make (nearly) the same predictions:
#
# * The effect of a pair has a mean of zero at each value of either column, if the
#   columns are treated as independent. The means that are removed are added to the
#   effects of the two columns.
# * The effect of a column has a mean of zero over the rows. The mean that is removed is
#   added to the intercept.
#
# Boosted additive models show their terms in the same way. The means are weighted by
# the share of rows at each category or knot. These shares follow from the released Gram
# matrix, so all of this is post-processing.


def estimate_shares(model: Any) -> FloatArray | None:
    """Estimate the mean of each coordinate over the rows, shape (d,).

    For a category or a knot, this is the share of rows that are there. It follows from
    the released Gram matrix. Return None if no matrix was released.
    """
    plan = model.plan_
    if not isinstance(plan, Plan) or not model.fit_intercept:
        return None
    pattern = GramPattern.of(plan.layout, plan.neighbours, centred=True)
    released = model.privacy_.find_released(Kind.GRAM, len(pattern.rows))
    if released is None:
        return None
    gram = fill_gram(plan.layout, pattern, released.values, plan.n_rows)
    shares = np.clip(gram[:, -1] / plan.n_rows + pattern.shift / 2.0, 0.0, 1.0)
    for group in plan.layout.groups:
        if group.kind in ("code", "hats"):
            own = shares[group.coordinates]
            total = float(own.sum())
            even = np.full(group.width, 1.0 / group.width)
            shares[group.coordinates] = own / total if total > 0 else even
    return shares


def make_purifying_matrix(
    schema: Schema, layout: Layout, shares: FloatArray | None
) -> FloatArray:
    """Return the matrix (d, d) that maps weights to effects.

    Without an intercept, weights are effects. Without `shares`, all categories and
    knots of a column are taken as equally frequent.
    """
    matrix = np.eye(layout.n_features)
    if layout.groups[-1].kind != "ones":
        return matrix
    groups = {group.name: group for group in layout.groups[:-1]}
    if shares is None:
        shares = np.concatenate(
            [np.full(group.width, 1.0 / group.width) for group in layout.groups]
        )
    for name, column in schema.columns.items():
        if isinstance(column, Pair):
            at = groups[name].coordinates
            mains = [groups[one] for one in (column.first, column.second)]
            if all(main.kind in ("code", "hats") for main in mains):
                rows, means, moved = _split_pair(column, shares[at])
                matrix[np.ix_(at, at)] = rows
                matrix[-1, at] += means
                for main, part in zip(mains, moved, strict=True):
                    matrix[np.ix_(main.coordinates, at)] += part
    for name, group in groups.items():
        if isinstance(schema.columns[name], Pair):
            continue
        if group.kind in ("code", "hats"):
            at = group.coordinates
            mean = shares[at] @ matrix[at]
            matrix[at] -= mean
            matrix[-1] += mean
    return matrix


def _split_pair(
    pair: Pair, shares: FloatArray
) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    """Return the matrices that map a pair's weights to the parts of its effect.

    The parts are the pair's own effect, the mean of the effect, and the amounts that
    are moved to each of the two columns, at the column's categories or knots.
    """
    a, b = (part.width for part in pair.parts)
    table = shares.reshape(a, b)
    first, second = table.sum(axis=1), table.sum(axis=0)
    mean = np.outer(first, second).ravel()
    over_second = np.kron(np.eye(a), second)  # (a, ab), the mean at each first value
    over_first = np.kron(first, np.eye(b))  # (b, ab)
    rows = np.eye(a * b) + mean
    rows -= np.repeat(over_second, b, axis=0) + np.tile(over_first, (a, 1))
    moved = [
        _place_knots(column, part) @ over - mean
        for column, part, over in zip(
            pair.columns, pair.parts, (over_second, over_first), strict=True
        )
    ]
    return rows, mean, moved


def _place_knots(column: Any, part: Any) -> FloatArray:
    """Evaluate a pair's hat functions of one column at the column's knots or levels."""
    if not isinstance(column, Numeric) or column.bins is not None:
        return np.eye(part.width)
    values = column.unscale(column.place_knots())
    if column.indicator:
        values = np.append(values, np.nan)
    positions = part.compute_features(values)
    places, shares = split_hats(positions, (part.width,))
    hats = np.zeros((len(positions), part.width + 1))
    for place, share in zip(places.T, shares.T, strict=True):
        hats[np.arange(len(hats)), place] += share
    return hats[:, :-1]


# ---- Define additive models, which have curves for numbers and surfaces for pairs


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

    @property
    def _references(self) -> dict[str, int]:
        return {}  # terms of a sum are relative to their means over the rows

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

    def _check_options(self, target: Target, table: Any = None) -> None:
        check_choices(self.knots, self.pairs)
        super()._check_options(target, table)

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
