"""Fit additive models: curves on numbers, and surfaces on pairs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from scipy.special import expit, softmax
from sklearn.utils.validation import check_is_fitted

from skdp.descent.curves import check_choices, find_auto_columns
from skdp.descent.geometry import estimate_variance, one_thread
from skdp.descent.matrix import Space, fill_gram
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
from skdp.estimators.standard_errors import MOST_COORDINATES
from skdp.estimators.summary import TermLine
from skdp.inference.covariances import UNEXPLAINED, find_obstacle, recall_run
from skdp.inference.variances import solve_recursion
from skdp.models.losses import Loss
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import GramPattern, Kind
from skdp.schema import (
    Categorical,
    FloatArray,
    IntArray,
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
# * A straight line beside a curve (`Schema.lines`) is added to the curve.
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

    A line is part of its curve (`Schema.lines`). Without an intercept, the effects are
    weights otherwise. Without `shares`, all categories and
    knots of a column are taken as equally frequent.
    """
    matrix = np.eye(layout.n_features)
    groups = {group.name: group for group in layout.groups if group.kind != "ones"}
    for name, line in schema.lines.items():
        curve, alone = schema.columns[name], groups[line].start
        assert isinstance(curve, Numeric)
        matrix[alone, alone] = 0.0  # the curve takes the line over
        matrix[groups[name].coordinates[: curve.n_knots], alone] = curve.place_knots()
    if layout.groups[-1].kind != "ones":
        return matrix
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


# ---- Shrink bends and interactions by what errors explain
#
# A curve is a line and a bend. A pair has an interaction beside what its two columns
# explain. Where the truth has neither, the released weights show errors alone, from
# noise and from sampling, and the size of such errors is known. So each bend and each
# interaction is multiplied by 1 - (expected square of its errors)/(its square), or by 0
# if that is negative, where squares are averaged over the rows (James and Stein). Lines
# and categories stay as they are, so an additive model of a table without bends comes
# close to the linear model. All of this is post-processing.
#
# Raw weights of a pair also carry a part of its columns' effects. Therefore only the
# interaction is shrunk, which is orthogonal to them.


#: Directions in which noise hides how much rows vary count as if the true Gram matrix
#: had this share of the metric there. The steps moved along them by true gradients.
LEAST_SHARE = 0.15


def shrink_terms(model: Any, shares: FloatArray | None) -> FloatArray:
    """Return the weights (d, k) after bends and interactions were shrunk.

    `shares` are those of `estimate_shares`. Bends and interactions have a mean of zero
    over the rows, so the average margin stays as it is. Without noise nothing is
    shrunk, so that the weights are those of the optimum.
    """
    plan, weights = model.plan_, np.asarray(model.weights_)
    if (
        not isinstance(plan, Plan)
        or plan.epsilon == math.inf
        or shares is None
        or weights.size > MOST_COORDINATES
        or find_obstacle(plan) is not None
    ):
        return weights
    purifying = make_purifying_matrix(model.schema_, plan.layout, shares)
    terms = list(_list_shrinkable(model.schema_, plan.layout, shares, purifying))
    if not terms:
        return weights
    space, histogram, noise_std = recall_run(plan, model.privacy_.transcript)
    with one_thread(weights.size):
        roots = _find_error_roots(plan, space, weights, histogram, noise_std)
    result = weights.copy()
    for at, part, line in terms:
        seen = weight = np.clip(shares[at], 0.0, None)
        if line is not None:  # what is left of the heights after the best line
            margins = (purifying[-1] + part) @ weights
            weight = _weigh_knots(plan.loss, margins, seen)
            w = np.maximum(weight, 1e-6)[:, None]
            best = line @ np.linalg.solve(line.T @ (w * line), (w * line).T @ part)
            part = part - best
        effects = part @ weights
        apart, left = effects, 1.0
        if (k := weights.shape[1]) > 1:
            # What classes have in common is hardly known and changes no prediction.
            apart = effects - effects.mean(axis=1, keepdims=True)
            left = 1.0 - 1.0 / k
        square = float(weight @ np.square(apart).sum(axis=1))
        error = left * float(
            seen @ sum(np.square(part @ root).sum(axis=1) for root in roots)
        )
        kept = max(0.0, 1.0 - error / square) if square > 0 else 0.0
        result[at] -= (1.0 - kept) * effects
    return result


def _list_shrinkable(
    schema: Schema, layout: Layout, shares: FloatArray, purifying: FloatArray
) -> Iterator[tuple[IntArray, FloatArray, FloatArray | None]]:
    """Yield each curve and pair: its coordinates, and the map (m, d) to its effect.

    The effect is at knots or cells. For a curve, the basis (m, 2) of straight lines
    over the knots comes third, and None for a pair.
    """
    groups = {group.name: group for group in layout.groups}
    for name, group in groups.items():
        column, at = schema.columns.get(name), group.coordinates
        if isinstance(column, Pair):
            mains = (groups[column.first].kind, groups[column.second].kind)
            if all(kind in ("code", "hats") for kind in mains):
                yield at, purifying[at], None
        elif isinstance(column, Numeric) and (column.n_knots or 0) > 2:
            n = column.n_knots or 0
            line = np.stack([np.ones(n), column.place_knots()], axis=1)
            yield at[:n], purifying[at[:n]], line


def _weigh_knots(loss: Loss, margins: FloatArray, seen: FloatArray) -> FloatArray:
    """Return how much the heights at knots count, (m,).

    The margins (m, k) are those of rows at the knots whose other columns are as on
    average, and `seen` are the shares of rows there. In models of two classes, rows
    count by the curvature p(1 - p) of the loss: where nearly all rows are of one class,
    heights are hardly known and hardly matter. With three classes or more, each class
    has curvatures of its own, and rows count alike, as they do for numbers and counts.
    """
    if margins.shape[1] > 1 or not loss.n_classes:
        return seen
    chances = expit(margins[:, 0])
    found = seen * chances * (1.0 - chances)
    return np.asarray(found * seen.sum() / max(float(found.sum()), 1e-12))


def _find_error_roots(
    plan: Plan,
    space: Space,
    weights: FloatArray,
    histogram: Released | None,
    noise_std: float,
) -> list[FloatArray]:
    """Return a root R (d, d) of the covariance R Rᵀ of the weights of each output.

    It is that of `skdp.inference.covariances`, but with the curvature of the loss at
    the constant model from which the run started. At fitted probabilities near 0 and 1,
    the curvature would be so small that errors explain every effect.
    """
    inverse = space.white.root.T @ space.white.vectors  # from whitened directions
    share = np.clip(space.white.share, LEAST_SHARE, 1.0)
    roots = []
    for curvature, spread in _find_spreads(plan, space, weights, histogram):
        forces = np.clip(curvature * share, 0.0, plan.loss.curvature)
        noise, response = solve_recursion(
            forces, plan.loss.curvature, space.pull, plan.average(plan.n_steps)
        )
        variances = noise_std**2 * noise + spread * share * response**2 / plan.n_rows
        roots.append(inverse * np.sqrt(variances))
    return roots


def _find_spreads(
    plan: Plan, space: Space, weights: FloatArray, histogram: Released | None
) -> list[tuple[float, float]]:
    """Return the curvature of the loss and the variance of slopes, for each output."""
    start = space.start[-1]
    if plan.loss.n_classes:
        margins = start if len(start) > 1 else np.array([0.0, start[0]])
        chances = softmax(margins)[-len(start) :]
        return [(float(p * (1.0 - p)),) * 2 for p in chances]
    assert histogram is not None  # which find_obstacle requires
    variance, doubt = estimate_variance(histogram, plan.n_rows)
    if plan.loss.target_law == "poisson":
        # Counts are on a scale from 0 to 1, and the histogram on one from -1 to 1.
        return [(math.exp(float(start[0])), max(variance, doubt, 1e-6) / 4.0)]
    explained = float(space.estimate_margins(weights)[1][0, 0])
    return [(1.0, max(variance - explained, UNEXPLAINED * variance, doubt, 1e-6))]


# ---- Define additive models, which have curves for numbers and surfaces for pairs


#: Largest number of coordinates for which an additive model releases a Gram matrix.
MATRIX_LIMIT = 4000
Init = TypeVar("Init", bound=Callable[..., None])
#: The linear model whose loss an additive regressor uses, by the name of the loss.
REGRESSORS: dict[str, type[PrivateRegressor]] = {
    "squared": LinearRegression,
    "huber": HuberRegressor,
    "poisson": PoissonRegressor,
}


def show_parameters(inner: Callable[..., None]) -> Callable[[Init], Init]:
    """Let an ``__init__`` with ``**parameters`` show those of the one that it calls.

    scikit-learn reads names and defaults from the signature, to clone a model and to
    print what was changed.
    """

    def add(init: Init) -> Init:
        own = [*inspect.signature(init).parameters.values()]
        names = {one.name for one in own}
        more = inspect.signature(inner).parameters.values()
        own[-1:] = [one for one in more if one.name not in names]
        changed: Any = init
        changed.__signature__ = inspect.Signature(own)
        return init

    return add


class AdditiveMixin(PrivateLinearModel):
    """Model numeric columns by curves instead of lines, and pairs by surfaces."""

    @show_parameters(PrivateLinearModel.__init__)
    def __init__(self, *, knots: Any = "auto", pairs: Any = "auto", **parameters: Any):
        super().__init__(**parameters)
        self.knots = knots
        self.pairs = pairs

    def _derive(self) -> None:
        self._known_shares = estimate_shares(self)
        self._run_weights = self.weights_
        named = hasattr(self, "feature_names_in_")
        self._set_fitted(shrink_terms(self, self._known_shares), self.schema_, named)

    @property
    def _shares(self) -> FloatArray | None:
        """The share of rows at each category and knot, from released values."""
        return self.__dict__.get("_known_shares")

    def _make_centring_matrix(self) -> FloatArray:
        return make_purifying_matrix(self.schema_, self._layout, self._shares)

    @property
    def _absorbed(self) -> frozenset[str]:
        return frozenset(self.schema_.lines.values())

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
        own = {"knots": self.knots, "pairs": self.pairs, "lines": self._is_usual}
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

    @show_parameters(AdditiveMixin.__init__)
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
