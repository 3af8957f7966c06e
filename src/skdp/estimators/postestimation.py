"""Give a fitted model's results in the words of statsmodels.

Parameters, standard errors, tests, marginal effects and predictions with intervals are
computed from released values (post-processing), so they cost no budget.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, ndtr, ndtri
from scipy.stats import chi2

from skdp.estimators.opening import accept_table, check_width
from skdp.estimators.predict import compute_margins
from skdp.estimators.standard_errors import (
    StandardErrors,
    compute_class_effects,
    find_computed,
    find_reference_rows,
    find_run_weights,
    find_uncertainty,
    make_unit_matrices,
)
from skdp.estimators.summary import INTERCEPT, format_cell
from skdp.inference.covariances import Uncertainty
from skdp.inference.variances import Z
from skdp.schema import Categorical, FloatArray, InputError, Product, Schema, check
from skdp.tables.readers import import_library

# ---- Estimates with standard errors, which every result is


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Numbers with standard errors, tests and intervals.

    Print the estimates, or read them as arrays, or as a frame with `summary_frame`. The
    standard error of what cannot be told is infinite, and its z, p and interval are
    nan. p and intervals are those of a normal distribution, which at 95 % is exact by
    construction and at other levels is an approximation.

    Attributes
    ----------
    names : tuple of str
        The name of each number.
    values : float64 (m,)
        The estimates.
    std : float64 (m,)
        Their standard errors, from sampling and privacy together.
    null : float64 (m,)
        The values that z and p compare the estimates with.
    """

    names: tuple[str, ...]
    values: FloatArray
    std: FloatArray
    null: FloatArray

    @property
    def tvalues(self) -> FloatArray:
        """The estimates less `null`, divided by their standard errors."""
        known = (self.std > 0) & np.isfinite(self.std)
        return np.where(
            known, (self.values - self.null) / np.where(known, self.std, 1.0), math.nan
        )

    @property
    def pvalues(self) -> FloatArray:
        """The probability of a larger |z| if the true value were `null`."""
        return np.asarray(2.0 * ndtr(-np.abs(self.tvalues)))

    def conf_int(self, alpha: float = 0.05) -> FloatArray:
        """Return the ends (m, 2) of intervals that hold with probability 1 - alpha."""
        reach = find_quantile(alpha) * np.where(
            np.isfinite(self.std), self.std, math.nan
        )
        return np.column_stack([self.values - reach, self.values + reach])

    def summary_frame(self, alpha: float = 0.05) -> Any:
        """Return all numbers as a pandas frame, with one row for each estimate."""
        ends = self.conf_int(alpha)
        numbers = self.values, self.std, self.tvalues, self.pvalues, *ends.T
        columns = dict(zip(self._list_heads(alpha), numbers, strict=True))
        index = [*self.names]
        return import_library("pandas").DataFrame(columns, index=index)

    #: The name of the estimates in print and in frames.
    head: ClassVar[str] = "coef"

    def summary(self) -> Self:
        """Return these estimates, whose print is their summary, as in statsmodels."""
        return self

    def _list_heads(self, alpha: float) -> tuple[str, ...]:
        ends = f"[{alpha / 2:.4g}", f"{1 - alpha / 2:.4g}]"
        return self.head, "std err", "z", "p", *ends

    def __str__(self) -> str:
        heads = self._list_heads(0.05)
        numbers = self.values, self.std, self.tvalues, self.pvalues, *self.conf_int().T
        rows = [
            [name, *map(format_cell, heads, cells)]
            for name, *cells in zip(self.names, *numbers, strict=True)
        ]
        table = [["", *heads], *rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(
                f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}"
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

    def __repr__(self) -> str:
        return str(self)


class Contrasts(Estimates):
    """Linear combinations of parameters (`ResultsMixin.t_test`)."""

    @property
    def effect(self) -> FloatArray:
        """The estimates."""
        return self.values

    @property
    def sd(self) -> FloatArray:
        """The standard errors."""
        return self.std

    @property
    def tvalue(self) -> FloatArray:
        """The z of each combination."""
        return self.tvalues

    @property
    def pvalue(self) -> FloatArray:
        """The p of each combination."""
        return self.pvalues


class Margins(Estimates):
    """Average marginal effects (`ResultsMixin.get_margeff`)."""

    head = "dy/dx"

    @property
    def margeff(self) -> FloatArray:
        """The effects."""
        return self.values

    @property
    def margeff_se(self) -> FloatArray:
        """The standard errors."""
        return self.std


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions(Estimates):
    """Predicted means of rows (`ResultsMixin.get_prediction`).

    `values` are on the scale of the target. Their intervals are those of the linear
    predictor, put through the inverse of the link, as in statsmodels' GLM.

    Attributes
    ----------
    link : str
        The link of the model.
    linear, linear_std : float64 (m,)
        The linear predictor and its standard error.
    residual_std : float
        The standard deviation of the target around its mean, or nan if the model has no
        normal residuals.
    """

    link: str
    linear: FloatArray
    linear_std: FloatArray
    residual_std: float

    head = "mean"

    @property
    def predicted(self) -> FloatArray:
        """The predicted means."""
        return self.values

    @property
    def se(self) -> FloatArray:
        """The standard errors of the predicted means."""
        return self.std

    def conf_int(self, alpha: float = 0.05, obs: bool = False) -> FloatArray:
        """Return the ends (m, 2) of the intervals of the means.

        With `obs`, return those of new targets. Only models with normal residuals have
        them.
        """
        std = np.where(np.isfinite(self.linear_std), self.linear_std, math.nan)
        if obs:
            check(
                math.isfinite(self.residual_std),
                "obs=True requires a linear regression, whose residuals are normal.",
            )
            std = np.hypot(std, self.residual_std)
        reach = find_quantile(alpha) * std
        ends = np.column_stack([self.linear - reach, self.linear + reach])
        return invert_link(self.link, ends)

    def summary_frame(self, alpha: float = 0.05) -> Any:
        """Return means and intervals as a frame, with the names of statsmodels."""
        columns = {"mean": self.values, "mean_se": self.std}
        kinds = {"mean": False, "obs": True}
        if not math.isfinite(self.residual_std):
            del kinds["obs"]
        for name, obs in kinds.items():
            low, high = self.conf_int(alpha, obs).T
            columns |= {f"{name}_ci_lower": low, f"{name}_ci_upper": high}
        return import_library("pandas").DataFrame(columns)


@dataclass(frozen=True, kw_only=True)
class WaldTest:
    """A test that several linear combinations of parameters are zero together.

    Attributes
    ----------
    statistic, pvalue : float
        The χ² statistic, and the probability of a larger one. Both are nan if any of
        the combinations cannot be told.
    df_denom : int
        The degrees of freedom, which is the number of combinations.
    """

    statistic: float
    pvalue: float
    df_denom: int

    def __str__(self) -> str:
        return (
            f"chi2 = {self.statistic:.4g}, p = {self.pvalue:.3f}, "
            f"degrees of freedom = {self.df_denom}"
        )


def find_quantile(alpha: float) -> float:
    """Return the normal quantile that intervals of level 1 - alpha reach to."""
    check(0 < alpha < 1, f"alpha must be in (0, 1), got {alpha}.")
    return float(-ndtri(alpha / 2))


def invert_link(link: str, linear: FloatArray) -> FloatArray:
    """Return the mean of the target, given the linear predictor."""
    if link == "logit":
        return np.asarray(expit(linear))
    return np.exp(linear) if link == "log" else np.asarray(linear)


def _find_slopes(link: str, linear: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first and second derivative of the mean by the linear predictor."""
    mean = invert_link(link, linear)
    if link == "logit":
        first = mean * (1.0 - mean)
        return first, first * (1.0 - 2.0 * mean)
    if link == "log":
        return mean, mean
    return np.ones_like(mean), np.zeros_like(mean)


# ---- The results that every fitted model has


class ResultsMixin:
    """What a fitted model says of its coefficients, in the words of statsmodels.

    The numbers are those of ``summary()``. Everything is computed from released values,
    so it costs no budget, however often it is asked for.
    """

    link: ClassVar[Any]
    plan_: Any
    schema_: Schema
    weights_: FloatArray
    _layout: Any
    _standard_errors: Any
    _absorbed: Any

    @property
    def params(self) -> Any:
        """The coefficients and the intercept as a pandas Series.

        A category has the name ``ward[T.b]`` if it is compared with a reference, and
        ``ward[S.b]`` if it is compared with the mean over all categories. With three
        classes or more, the index starts with the class.
        """
        self._check_fitted("params")
        return self._make_series("params", compute_class_effects(self))

    @property
    def bse(self) -> Any:
        """The standard errors of `params`, which are inf for what cannot be told."""
        return self._make_series("bse", self._find_errors("bse").effects_std)

    @property
    def tvalues(self) -> Any:
        """`params` divided by `bse`, which are z statistics."""
        return self._make_series("tvalues", self._estimate("tvalues").tvalues)

    @property
    def pvalues(self) -> Any:
        """Two-sided p-values of `tvalues`, from the normal distribution."""
        return self._make_series("pvalues", self._estimate("pvalues").pvalues)

    def conf_int(self, alpha: float = 0.05) -> Any:
        """Return intervals of `params` as a frame with the columns 0 and 1.

        Parameters
        ----------
        alpha : float
            The probability that an interval does not hold. Intervals are made to hold
            at 0.05. At other levels their widths are scaled as if errors were normal.
        """
        ends = self._estimate("conf_int").conf_int(alpha)
        return import_library("pandas").DataFrame(
            {i: self._make_series("conf_int", ends[:, i]) for i in (0, 1)}
        )

    def cov_params(self) -> Any:
        """Return the covariance matrix of `params` as a frame.

        Its diagonal has the squares of `bse`. Correlations are computed as if the
        released moments were exact. What cannot be told has infinite variance, and nan
        for its covariances.
        """
        found = self._find_uncertainty("cov_params")
        rows = self._shown_rows
        maps = make_unit_matrices(self)[1][rows]
        matrix = found.covary(maps)
        # The errors in `bse` allow for categories that cannot be told.
        std = self._find_errors("cov_params").effects_std[rows, 0]
        own = np.sqrt(np.diag(matrix))
        known = np.isfinite(std) & np.isfinite(own) & (own > 0)
        ratio = np.where(known, std / np.where(known, own, 1.0), math.nan)
        matrix = matrix * np.outer(ratio, ratio)
        np.fill_diagonal(matrix, std**2)
        names = [*self._names]
        return import_library("pandas").DataFrame(matrix, names, names)

    def t_test(self, r_matrix: Any) -> Contrasts:
        """Estimate and test linear combinations of parameters.

        Parameters
        ----------
        r_matrix : str, array (m, p) or tuple of two arrays
            Equations such as ``"age = 0.02, ward[T.b] - ward[T.c] = 0"``, with the
            names of `params`. Or the coefficients of the combinations, in the order of
            `params`, with an optional second array of values to compare with.

        Returns
        -------
        Contrasts
            The estimates, with their z, p and intervals. Each standard error is that of
            the combination itself. If noise hides the combination, it is infinite.
        """
        found = self._find_uncertainty("t_test")
        names, matrix, null = self._read_constraints(r_matrix)
        maps = matrix @ make_unit_matrices(self)[1][self._shown_rows]
        values = matrix @ compute_class_effects(self)[self._shown_rows, 0]
        std = np.sqrt(np.diag(found.covary(maps)))
        return Contrasts(names=names, values=values, std=std, null=null)

    def wald_test(self, r_matrix: Any) -> WaldTest:
        """Test whether linear combinations of parameters are zero, all together.

        Parameters
        ----------
        r_matrix : str, array (m, p) or tuple of two arrays
            As for `t_test`.

        Returns
        -------
        WaldTest
            The χ² statistic, its p and its degrees of freedom.
        """
        found = self._find_uncertainty("wald_test")
        _, matrix, null = self._read_constraints(r_matrix)
        maps = matrix @ make_unit_matrices(self)[1][self._shown_rows]
        away = matrix @ compute_class_effects(self)[self._shown_rows, 0] - null
        covariance = found.covary(maps)
        statistic = math.nan
        if np.isfinite(covariance).all():
            rank = int(np.linalg.matrix_rank(covariance, hermitian=True))
            check(
                rank == len(away),
                f"The combinations must be linearly independent, got {len(away)} of "
                f"rank {rank}.",
            )
            statistic = float(away @ np.linalg.solve(covariance, away))
        p = float(chi2.sf(statistic, len(away)))
        return WaldTest(statistic=statistic, pvalue=p, df_denom=len(away))

    def get_margeff(
        self, at: str = "overall", method: str = "dydx", dummy: bool = False
    ) -> Margins:
        """Return average marginal effects: changes of the mean of the target.

        The average is over rows that are made up from the released means and
        covariances of the columns, because no record is read again.

        Parameters
        ----------
        at : {"overall", "mean"}
            Whether to average the effects over rows, or to take them at the means of
            the columns.
        method : "dydx"
            The derivative of the mean by the column.
        dummy : bool
            Whether the effect of a category is the change of the mean between it and
            the reference, instead of a derivative. Columns without a reference keep the
            derivative.

        Returns
        -------
        Margins
            The effect of each column and category. An interaction has no effect of its
            own. It is part of the effects of its columns.
        """
        check(
            at in ("overall", "mean"),
            "at must be 'overall' or 'mean', because other points are not released, got"
            f" {at!r}. get_prediction gives the means at rows of your choice.",
        )
        check(
            not any(
                isinstance(column, Product) and name not in self._absorbed
                for name, column in self.schema_.columns.items()
            ),
            "get_margeff is not available for models with interactions or logarithms, "
            "whose columns have several coefficients. Compare get_prediction at two "
            "rows instead.",
        )
        check(method == "dydx", f"method must be 'dydx', got {method!r}.")
        found = self._find_uncertainty("get_margeff")
        rows = found.rows if at == "overall" else found.known.mean[None]
        names, values, maps = self._differentiate(rows, dummy)
        std = np.sqrt(np.diag(found.covary(maps)))
        null = np.zeros(len(values))
        return Margins(names=names, values=values, std=std, null=null)

    def get_prediction(self, exog: Any) -> Predictions:
        """Predict the mean of the target for new rows, with intervals.

        Parameters
        ----------
        exog : table
            The rows, in any form that ``predict`` takes. Their privacy is not
            protected.

        Returns
        -------
        Predictions
            The means with their standard errors and intervals. For two classes, the
            mean is the probability of the second one. If noise hides how much rows
            like this one vary, the error is infinite.
        """
        found = self._find_uncertainty("get_prediction")
        table = accept_table(exog)
        check_width(table, len(self.schema_.inputs), type(self).__name__)
        d = len(self.weights_)
        X = compute_margins(table, self.schema_, self._layout, np.eye(d))
        middle, scale = self._find_linear_units()
        linear = middle + scale * (X @ self.weights_[:, 0])
        unique, places = np.unique(X, axis=0, return_inverse=True)
        std = found.find_std(scale * unique)[places.ravel()]
        moved = self.weights_ - find_run_weights(self)  # by shrinking after the run
        std = std + np.abs(scale * (X @ moved[:, 0])) / Z
        first, _ = _find_slopes(self.link, linear)
        normal = self.plan_.loss.target_law == "normal"
        return Predictions(
            names=tuple(map(str, range(len(X)))),
            values=invert_link(self.link, linear),
            std=first * std,
            null=np.zeros(len(X)),
            link=self.link,
            linear=linear,
            linear_std=std,
            residual_std=scale * found.usual_level if normal else math.nan,
        )

    # The parts of the results

    def _find_linear_units(self) -> tuple[float, float]:
        units = getattr(self, "_target_units", None)
        return (0.0, 1.0) if units is None else units()

    @property
    def _shown_rows(self) -> Any:
        return np.flatnonzero(~find_reference_rows(self))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(_list_parameters(self))

    def _check_fitted(self, name: str) -> None:
        if "weights_" not in self.__dict__:
            raise AttributeError(f"The model is not fitted, so it has no {name}.")

    def _make_series(self, name: str, values: FloatArray) -> Any:
        """Return effects (width + 1, k), or shown values of them (m,), as a Series."""
        pandas, names = import_library("pandas"), self._names
        if values.ndim == 2:
            values = values[self._shown_rows].T.ravel()
        k = self.weights_.shape[1]
        index: Any = [*names]
        if k > 1:
            classes = [str(level) for level in getattr(self, "classes_", range(k))]
            index = pandas.MultiIndex.from_product([classes, names])
        return pandas.Series(values, index=index, name=name)

    def _find_errors(self, name: str) -> StandardErrors:
        self._check_fitted(name)
        known = self._standard_errors()
        if isinstance(known, str):
            raise AttributeError(f"There is no {name}. {known}")
        found: StandardErrors = known
        return found

    def _estimate(self, name: str) -> Estimates:
        """Return all parameters of all outputs."""
        errors, rows = self._find_errors(name), self._shown_rows
        values, std = errors.effects[rows].T.ravel(), errors.effects_std[rows].T.ravel()
        names = self._names * errors.effects.shape[1]
        null = np.zeros(len(values))
        return Estimates(names=names, values=values, std=std, null=null)

    def _find_uncertainty(self, name: str) -> Uncertainty:
        self._find_errors(name)
        check(
            self.weights_.shape[1] == 1,
            f"{name} is for models with one output, got one of "
            f"{self.weights_.shape[1]} classes.",
        )
        found = find_uncertainty(self)
        if isinstance(found, str):
            raise AttributeError(
                f"There is no {name} of a loaded model, because the released moments "
                "are not saved. Call it on the model that was fitted."
            )
        check(
            bool(find_computed(self).all()),
            f"{name} requires a model with fewer coefficients of pairs.",
        )
        return found

    def _read_constraints(
        self, given: Any
    ) -> tuple[tuple[str, ...], FloatArray, FloatArray]:
        """Return the names, coefficients (m, p) and null values of combinations."""
        names = self._names
        if isinstance(given, str):
            return parse_constraints(given, names)
        null: Any = 0.0
        if isinstance(given, tuple):
            check(len(given) == 2, "r_matrix must be a string, an array or two arrays.")
            given, null = given
        matrix = np.atleast_2d(np.asarray(given, np.float64))
        check(
            matrix.ndim == 2 and matrix.shape[1] == len(names),
            f"r_matrix must have a column for each of the {len(names)} parameters, got "
            f"shape {matrix.shape}.",
        )
        null = np.broadcast_to(np.asarray(null, np.float64).ravel(), len(matrix)).copy()
        return tuple(f"c{i}" for i in range(len(matrix))), matrix, null

    def _differentiate(
        self, rows: FloatArray, dummy: bool
    ) -> tuple[tuple[str, ...], FloatArray, FloatArray]:
        """Return names, marginal effects, and their gradients by the weights."""
        layout, weights = self._layout, self.weights_[:, 0]
        middle, scale = self._find_linear_units()
        names, shown = self._names, self._shown_rows
        contrasts = make_unit_matrices(self)[1][shown]
        first, second = _find_slopes(self.link, middle + scale * (rows @ weights))
        places = dict(zip(shown.tolist(), range(len(shown)), strict=True))
        kept, values, maps = [], [], []
        for group in layout.groups:
            if group.kind == "ones":
                continue
            column = self.schema_.columns[group.name]
            reference = getattr(column, "reference_code", None)
            for j in group.coordinates.tolist():
                if j not in places:
                    continue
                kept.append(names[places[j]])
                if dummy and isinstance(column, Categorical) and reference is not None:
                    here, there = (
                        self._move_rows(rows, group, code)
                        for code in (j - group.start, reference)
                    )
                    ends = [middle + scale * (x @ weights) for x in (here, there)]
                    gap = np.subtract(*(invert_link(self.link, end) for end in ends))
                    values.append(float(gap.mean()))
                    a, b = (_find_slopes(self.link, end)[0] for end in ends)
                    maps.append(scale * (a @ here - b @ there) / len(rows))
                    continue
                each = contrasts[places[j]][None]
                slope = each @ weights
                values.append(float((first * slope).mean()))
                own = (first[:, None] * each).mean(axis=0)
                maps.append(own + scale * ((second * slope) @ rows) / len(rows))
        return tuple(kept), np.array(values), np.array(maps)

    def _move_rows(self, rows: FloatArray, group: Any, code: int) -> FloatArray:
        """Return rows in which a column of categories has one category everywhere."""
        moved = rows.copy()
        moved[:, group.coordinates] = 0.0
        moved[:, group.start + code] = 1.0
        return moved


def _list_parameters(model: Any) -> Iterator[str]:
    """Yield the name of each shown parameter, in statsmodels' style."""
    references = model._references
    for group in model._layout.groups:
        if group.kind == "ones":
            yield INTERCEPT
            continue
        column = model.schema_.columns[group.name]
        for place, label in enumerate(group.labels):
            if group.name in model._absorbed:
                continue
            if not isinstance(column, Categorical):
                yield label
            elif group.name not in references:
                yield f"{group.name}[S.{column.levels[place]}]"
            elif place != references[group.name]:
                yield f"{group.name}[T.{column.levels[place]}]"


def parse_constraints(
    text: str, names: Sequence[str]
) -> tuple[tuple[str, ...], FloatArray, FloatArray]:
    """Return the equations in a text as names, coefficients (m, p) and null values.

    Equations are separated by commas. A text without an equals sign equals zero.
    """
    # Names may have any characters. They become identifiers, the longest first, because
    # a name may be a part of another one.
    order = sorted(range(len(names)), key=lambda i: -len(names[i]))
    pattern = "|".join(re.escape(names[i]) for i in order)
    places = {name: i for i, name in enumerate(names)}
    coded = re.sub(
        rf"`({pattern})`|(?<![\w.])({pattern})(?![\w.\[:])",
        lambda found: f"_p{places[found[1] or found[2]]}_",
        text,
    )
    rows, labels = [], []
    for part in filter(str.strip, coded.split(",")):
        sides = part.split("=")
        check(len(sides) <= 2, f"{text!r} must have one = in each equation.")
        vectors = [_read_linear(side, len(names), text) for side in sides]
        rows.append(vectors[0] - (vectors[1] if len(vectors) > 1 else 0.0))
        labels.append(re.sub(r"_p(\d+)_", lambda f: names[int(f[1])], sides[0]).strip())
    check(bool(rows), "r_matrix must have at least one equation.")
    found = np.array(rows)
    return tuple(labels), found[:, :-1], -found[:, -1]


def _read_linear(text: str, n: int, whole: str) -> FloatArray:
    """Return the coefficients (n + 1,) of a linear expression, the constant last."""

    def read(node: ast.expr) -> FloatArray:
        found = np.zeros(n + 1)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            found[-1] = node.value
            return found
        if isinstance(node, ast.Name) and (name := re.fullmatch(r"_p(\d+)_", node.id)):
            found[int(name[1])] = 1.0
            return found
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = read(node.operand)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            left, right = read(node.left), read(node.right)
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Mult) and not (left[:-1].any()):
                return np.asarray(left[-1] * right)
            if isinstance(node.op, ast.Mult) and not right[:-1].any():
                return np.asarray(right[-1] * left)
            if isinstance(node.op, ast.Div) and not right[:-1].any() and right[-1]:
                return np.asarray(left / right[-1])
        raise InputError(
            f"{whole!r} must be linear in the names of params, got {ast.unparse(node)}."
        )

    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise InputError(
            f"{whole!r} is not an equation in the names of params."
        ) from None
    return read(tree.body)
