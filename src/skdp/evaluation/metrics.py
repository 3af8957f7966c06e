"""Compute the scores of a model from released counts.

The counts are those of the cells that `score_cells` describes. Everything here is
post-processing of releases, or depends on public facts only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.regressors import check_numeric_target
from skdp.evaluation.predictions import LARGEST_LOSS
from skdp.schema import FloatArray, Schema, check

Counts = Mapping[str, FloatArray]
#: Name of the calibration table, which counts rows by predicted probability. It is the
#: only metric that is not a single number.
CALIBRATION = "calibration"
#: Names of the columns of cells from which scores are computed.
RIGHT, LOSS, SCORES = "right answers", "log-loss", "scores by class"
SQUARES, SIZES, TARGET = "squared residuals", "absolute residuals", "target"


@dataclass(frozen=True)
class Scale:
    """The units of scores.

    Attributes
    ----------
    largest : float
        The value at which a row's loss or residual is clipped.
    width : float
        The width of a numeric target's range.
    """

    largest: float
    width: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Metric:
    """How a score is computed from released counts.

    Attributes
    ----------
    columns : tuple of str
        The columns of cells that the score needs.
    value : callable (counts, n, scale) -> float
        Computes the score.
    spread : callable (counts, n, scale) -> float
        Computes the sampling error, which is the score's standard error over tables of
        n rows from the same population. Privacy noise is not included.
    low, high : float
        The smallest and the largest value that the score can have.
    higher_is_better : bool
        Whether a search maximises the score. Otherwise it minimises the score.
    """

    columns: tuple[str, ...]
    value: Callable[[Counts, float, Scale], float]
    spread: Callable[[Counts, float, Scale], float]
    low: float = 0.0
    high: float = math.inf
    higher_is_better: bool = False


def list_metrics(model: PrivateLinearModel, schema: Schema) -> list[str]:
    """Return the names of all metrics of a model. The first is a search's default."""
    loss = model._loss(schema)
    if loss.n_classes == 0:
        return ["r2", "rmse", "mae", "mse"]
    probabilistic = hasattr(model, "predict_proba")
    names = ["log_loss", "accuracy"] if probabilistic else ["accuracy"]
    if loss.n_outputs == 1:
        names += ["auc", CALIBRATION] if probabilistic else ["auc"]
    return names


def choose_metrics(
    model: PrivateLinearModel, schema: Schema, requested: Sequence[str] | None
) -> list[str]:
    """Return the names of the metrics to release.

    Raise ValueError if the model does not have a requested metric.
    """
    known = list_metrics(model, schema)
    if requested is None:
        return [name for name in known if name != "mse"]
    names = [requested] if isinstance(requested, str) else list(requested)
    for name in names:
        check(
            name in known,
            f"metrics of this {type(model).__name__} must be among {known}, got "
            f"{name!r}.",
        )
    check(bool(names), f"metrics must name at least one of {known}, got none.")
    return list(dict.fromkeys(names))


def choose_scale(
    model: PrivateLinearModel,
    schema: Schema,
    max_loss: float,
    max_residual: float | None,
) -> Scale:
    """Check the public bounds on loss or residual, and return the units of scores."""
    if model._loss(schema).n_classes > 0:
        check(
            0 < max_loss <= LARGEST_LOSS,
            f"max_loss must be in (0, {LARGEST_LOSS:g}], got {max_loss}.",
        )
        return Scale(max_loss)
    column = check_numeric_target(schema.target_column)
    width = column.high - column.low
    largest = width if max_residual is None else float(max_residual)
    check(
        0 < largest <= width,
        f"max_residual must be in (0, {width:g}], the width of the target's range, got "
        f"{max_residual}.",
    )
    return Scale(largest, width)


def compute_moment(cells: FloatArray, n: float, power: int) -> float:
    """Return the mean of tᵖ over n rows, where p is `power`.

    The d + 1 `cells` b hold the sums of Bernstein polynomials of t, as made by
    `score_cells.make_moments`. The mean is Σ_k C(k,p)/C(d,p) b_k / n.
    """
    degree = len(cells) - 1
    shares = [math.comb(k, power) / math.comb(degree, power) for k in range(degree + 1)]
    return float(np.array(shares) @ cells) / n


def compute_mean(cells: FloatArray, n: float) -> float:
    """Return the mean of t over n rows, from cells as in `compute_moment`."""
    return compute_moment(cells, n, 1)


def compute_variance(cells: FloatArray, n: float) -> float:
    """Return the variance of t over n rows, from cells as in `compute_moment`.

    Noise can make the estimate negative. It is then replaced by 0.
    """
    return max(0.0, compute_moment(cells, n, 2) - compute_mean(cells, n) ** 2)


def _compute_share(counts: Counts, n: float, scale: Scale) -> float:
    return float(counts[RIGHT][1]) / n


def _estimate_share_error(counts: Counts, n: float, scale: Scale) -> float:
    share = min(1.0, max(0.0, _compute_share(counts, n, scale)))
    return math.sqrt(share * (1.0 - share) / n)


def _make_mean(column: str, power: int = 1) -> Metric:
    """Return a metric that multiplies the mean of a column by `largest` ** `power`.

    The column holds moments, and `largest` is that of `Scale`.
    """
    return Metric(
        columns=(column,),
        value=lambda counts, n, scale: (
            scale.largest**power * compute_mean(counts[column], n)
        ),
        spread=lambda counts, n, scale: (
            scale.largest**power * math.sqrt(compute_variance(counts[column], n) / n)
        ),
    )


def _compute_root(counts: Counts, n: float, scale: Scale) -> float:
    return scale.largest * math.sqrt(max(0.0, compute_mean(counts[SQUARES], n)))


def _estimate_root_error(counts: Counts, n: float, scale: Scale) -> float:
    wide = scale.largest * math.sqrt(compute_variance(counts[SQUARES], n) / n)
    return wide / max(2 * _compute_root(counts, n, Scale(1.0)), 1e-9)


def _compute_r2(counts: Counts, n: float, scale: Scale) -> float:
    total = compute_variance(counts[TARGET], n)
    if total == 0:  # noise hides any variance of the target
        return math.nan
    return 1.0 - _square_part(scale) * compute_mean(counts[SQUARES], n) / total


def _square_part(scale: Scale) -> float:
    """Return (largest residual / width of the target)²."""
    return (scale.largest / scale.width) ** 2


def _estimate_r2_error(counts: Counts, n: float, scale: Scale) -> float:
    """Return an upper bound on the standard error of R².

    R² = 1 - A/B, where A is the mean of the squared residuals r² and B the variance of
    the target u. The influence of a row is (r² - A/B (u - ū)²)/B. The covariance of
    its two terms is not released. The bound adds their standard deviations, which is
    the worst case.
    """
    cells = counts[TARGET]
    total = max(compute_variance(cells, n), 1e-12)
    at, two, three, four = (compute_moment(cells, n, power) for power in (1, 2, 3, 4))
    fourth = four - 4 * three * at + 6 * two * at**2 - 3 * at**4
    others = math.sqrt(max(0.0, fourth - total**2))
    own = _square_part(scale) * math.sqrt(compute_variance(counts[SQUARES], n))
    unexplained = _square_part(scale) * compute_mean(counts[SQUARES], n) / total
    return (own + abs(unexplained) * others) / total / math.sqrt(n)


def split_classes(cells: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return two arrays: the count of class 0 and the count of class 1 in each bin.

    The last cell, which counts rows of unknown class, is left out.
    """
    pairs = np.reshape(cells[:-1], (-1, 2))
    return pairs[:, 0], pairs[:, 1]


def _compute_area(counts: Counts, n: float, scale: Scale) -> float:
    """Return the area under the ROC curve, computed from bins.

    This is the probability that a random row of class 1 is in a higher bin than a
    random row of class 0, where rows in the same bin count half. The area is slightly
    underestimated, because the order of rows within a bin is not known.
    """
    zeros, ones = split_classes(counts[SCORES])
    below = np.cumsum(zeros) - zeros / 2
    pairs = max(float(zeros.sum()), 1.0) * max(float(ones.sum()), 1.0)
    return float(ones @ below) / pairs


def _estimate_area_error(counts: Counts, n: float, scale: Scale) -> float:
    """Return the standard error of the area by Hanley and McNeil's formula.

    The formula is from Radiology 143 (1982).
    """
    zeros, ones = (max(float(c.sum()), 1.0) for c in split_classes(counts[SCORES]))
    area = min(1.0, max(0.0, _compute_area(counts, n, scale)))
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area)
    spread += (ones - 1) * (one - area**2) + (zeros - 1) * (two - area**2)
    return math.sqrt(max(0.0, spread) / (zeros * ones))


#: All metrics that are a single number, by name.
METRICS: dict[str, Metric] = {
    "accuracy": Metric(
        columns=(RIGHT,),
        value=_compute_share,
        spread=_estimate_share_error,
        high=1.0,
        higher_is_better=True,
    ),
    "log_loss": _make_mean(LOSS),
    "auc": Metric(
        columns=(SCORES,),
        value=_compute_area,
        spread=_estimate_area_error,
        high=1.0,
        higher_is_better=True,
    ),
    "r2": Metric(
        columns=(SQUARES, TARGET),
        value=_compute_r2,
        spread=_estimate_r2_error,
        low=-math.inf,
        high=1.0,
        higher_is_better=True,
    ),
    "mse": _make_mean(SQUARES, power=2),
    "rmse": Metric(
        columns=(SQUARES,), value=_compute_root, spread=_estimate_root_error
    ),
    "mae": _make_mean(SIZES),
}
