"""Define scores, their formulas, and what they need to know of each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from skdp.engines.reference import ROWS, to_dense
from skdp.estimators.fit import PrivateLinearModel
from skdp.estimators.regressors import check_numeric_target
from skdp.models.losses import (
    TABLE_LOW,
    TABLE_STEPS,
    exp_table,
    interpolate,
    sigmoid_table,
)
from skdp.privacy.encoding import Records
from skdp.privacy.grid import FEATURE_BITS, FEATURE_ONE, WeightGrid
from skdp.schema import FloatArray, IntArray, Layout, Schema, check

# ---- Predict encoded rows, such that no bit of a prediction depends on other rows
#
# The sensitivity of a released sum bounds the influence of one row. The number computed
# for a row must therefore not depend on other rows, not even in its last bit. For this
# reason rows are rounded to the same grid as in ``fit``, and margins x·w are computed
# exactly. All further steps are additions, multiplications and table look-ups. Rounding
# to the grid moves a feature by at most 2⁻¹⁴ and a margin by at most 2⁻¹⁴ Σ|w|.


#: Row weights are rounded to multiples of the largest allowed weight / WEIGHT_ONE.
WEIGHT_ONE = 1 << 14
#: Largest loss that the look-up tables cover.
LARGEST_LOSS = -TABLE_LOW


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Some rows of a table, with their margins.

    Attributes
    ----------
    margin : float64 (n, k)
        The exact margins x·w.
    target : array (n,)
        The class codes, or a numeric target scaled from [0, 1] to integers in 0..2¹⁴.
    known : bool (n,)
        Whether the class of the row is in the schema.
    weight : int64 (n,)
        The weight of the row, an integer in 0..`WEIGHT_ONE`.
    divisor : int
        The number m such that every row counts as 1/m. It is 1 unless rows belong to
        persons. In that case each row belongs to a person with at most m rows.
    group : int64 (n,), optional
        The subgroup of each row, if scores are computed for subgroups.
    """

    margin: FloatArray
    target: IntArray
    known: Any
    weight: IntArray
    divisor: int = 1
    group: IntArray | None = None

    def predict_class(self) -> IntArray:
        """Return the code of each row's predicted class, shape (n,)."""
        codes: IntArray = np.argmax(self.margin, axis=1)
        if self.margin.shape[1] == 1:
            codes = (self.margin[:, 0] > 0).astype(np.int64)
        return codes

    def find_right(self) -> Any:
        """Return for each row whether the predicted class is right, shape (n,)."""
        return (self.predict_class() == self.target) & self.known

    def compute_chance(self) -> FloatArray:
        """Return each row's predicted probability of class 1, shape (n,)."""
        return interpolate(sigmoid_table(), self.margin[:, 0])

    def compute_log_loss(self, largest: float) -> FloatArray:
        """Return each row's log-loss divided by `largest`, clipped to [0, 1]."""
        if self.margin.shape[1] == 1:
            wrong = np.where(self.target == 1, -self.margin[:, 0], self.margin[:, 0])
            loss = interpolate(_tabulate_softplus(), wrong)
        else:
            below = self.margin - self.margin.max(axis=1, keepdims=True)
            odds = interpolate(exp_table(0.0), below)
            total = np.zeros(len(odds))
            for column in odds.T:  # in the same order for any number of rows
                total += column
            own = np.take_along_axis(below, self.target[:, None], axis=1)[:, 0]
            table = _tabulate_logarithm(self.margin.shape[1])
            loss = interpolate(table, total - 1.0 + TABLE_LOW) - own
        share = np.clip(loss / largest, 0.0, 1.0)
        return np.asarray(np.where(self.known, share, 1.0))

    def compute_residual(self, link: str, largest: float) -> FloatArray:
        """Return each row's |prediction - target| / `largest`, at most 1.

        Prediction and target are scaled to [0, 1].
        """
        if link == "log":
            predicted = interpolate(exp_table(0.0), self.margin)[:, 0]
        else:
            predicted = np.clip((self.margin[:, 0] + 1.0) / 2.0, 0.0, 1.0)
        size = np.abs(predicted - self.scale_target()) / largest
        return np.asarray(np.minimum(size, 1.0))

    def compute_deviance(self, largest: float) -> FloatArray:
        """Return each row's Poisson deviance divided by `largest`, clipped to [0, 1].

        With target t and prediction e^m, both divided by the largest count, the
        deviance is 2 (t log t - t m - t + e^m). It is in units of that count.
        """
        margin = np.clip(self.margin[:, 0], TABLE_LOW, 0.0)
        rate = interpolate(exp_table(0.0), margin)
        t = self.scale_target()
        half = _tabulate_entropy()[self.target] - t * margin - t + rate
        return np.asarray(np.clip(2.0 * half / largest, 0.0, 1.0))

    def compute_entropy(self, high: float) -> FloatArray:
        """Return -e u log u of each row, where u = t/`high` for the scaled target t.

        Multiplication by Euler's number e puts the result in [0, 1]. Targets above
        `high` are clipped to `high`.
        """
        t = self.scale_target()
        part = (_tabulate_entropy()[self.target] - t * math.log(high)) / high
        return np.asarray(np.clip(np.where(t < high, -math.e * part, 0.0), 0.0, 1.0))

    def scale_target(self, low: float = 0.0, high: float = 1.0) -> FloatArray:
        """Return each row's numeric target, scaled to [0, 1].

        If a part [`low`, `high`] of that range is given, the target is clipped to it
        and scaled to [0, 1] again.
        """
        t = self.target / float(FEATURE_ONE)
        return np.asarray(np.clip((t - low) / (high - low), 0.0, 1.0))


def predict_rows(
    records: Records, weights: FloatArray, weighted: bool, by: int | None = None
) -> Iterator[Rows]:
    """Yield encoded rows with their margins, some rows at a time.

    Parameters
    ----------
    records : Records
        The table.
    weights : float64 (d, k)
        The model's weights.
    weighted : bool
        Whether the user gave weights. If not, a weight of 0 means that the class of the
        row is unknown. Such a row counts fully, as a wrong answer.
    by : int, optional
        The position of the layout's group of codes that names each row's subgroup.
    """
    layout, grid = records.layout, WeightGrid.of(records.layout)
    units, at = grid.units(weights), np.arange(records.layout.n_features)
    used = np.flatnonzero(units.any(axis=1))
    at, units = at[used], units[used]
    scale = math.ldexp(1.0, -grid.bits - FEATURE_BITS)
    for chunk in records.chunks:
        for start in range(0, len(chunk.target), ROWS):
            piece = slice(start, start + ROWS)
            share = chunk.weight[piece].astype(np.float64) / records.max_weight
            weight = np.floor(np.clip(share, 0.0, 1.0) * WEIGHT_ONE).astype(np.int64)
            known = weight > 0 if not weighted else np.ones(len(weight), bool)
            if not weighted:
                weight = np.full(len(weight), WEIGHT_ONE, np.int64)
            yield Rows(
                margin=(to_dense(chunk, piece, at, layout) @ units) * scale,
                target=chunk.target[piece].astype(np.int64),
                known=known,
                weight=weight,
                divisor=chunk.divisor,
                group=None if by is None else chunk.parts[by][piece].astype(np.int64),
            )


@dataclass(frozen=True, eq=False, repr=False)
class PredictedRows:
    """The rows of a table with their margins, computed where the rows are stored."""

    records: Records
    weights: FloatArray
    weighted: bool
    by: int | None = None

    def add_up(self, work: Callable[[Iterable[Rows]], Any]) -> Any:
        """Return the sum of `work` over the rows of all parts of the table."""
        return self.records.add_up(
            partial(_work_on_predictions, work, self.weights, self.weighted, self.by)
        )


def _work_on_predictions(
    work: Any, weights: FloatArray, weighted: bool, by: int | None, records: Records
) -> Any:
    return work(predict_rows(records, weights, weighted, by))


def bound_margins(layout: Layout, weights: FloatArray) -> tuple[float, float]:
    """Return a lower and an upper bound on the margin of any possible row.

    The bounds follow from the weights alone and are clipped to ±`LARGEST_LOSS`.
    """
    low = high = 0.0
    for group in layout.groups:
        own = weights[group.coordinates, 0]
        if group.kind == "ones":
            low, high = low + float(own[0]), high + float(own[0])
        elif group.kind in ("code", "hats"):
            low, high = low + min(0.0, own.min()), high + max(0.0, own.max())
        else:
            reach = float(np.linalg.norm(own))
            signed = group.signed or len(own) > 1
            low -= reach if signed or own[0] < 0 else 0.0
            high += reach if signed or own[0] > 0 else 0.0
    low, high = max(low, -LARGEST_LOSS), min(high, LARGEST_LOSS)
    return (low, high) if low < high else (low - 1.0, low + 1.0)


@cache
def _tabulate_softplus() -> FloatArray:
    """Return a table of log(1 + exp(m)) for m in [-16, 16]."""
    size = round(2 * LARGEST_LOSS * TABLE_STEPS) + 1
    return np.logaddexp(0.0, TABLE_LOW + np.arange(size) / TABLE_STEPS)


@cache
def _tabulate_logarithm(largest: int) -> FloatArray:
    """Return a table of log(x) for x in [1, largest].

    `interpolate` expects tables that start at -16, so it must be called with x - 17.
    """
    return np.log1p(np.arange((largest - 1) * TABLE_STEPS + 2) / TABLE_STEPS)


@cache
def _tabulate_entropy() -> FloatArray:
    """Return t log t for each value t of a scaled target, in steps of 2⁻¹⁴."""
    t = np.arange(FEATURE_ONE + 1) / FEATURE_ONE
    return np.asarray(t * np.log(np.where(t > 0, t, 1.0)))


# ---- Compute scores and their sampling errors from released counts
#
# Counts are arrays (..., cells), so a score can be computed for many plausible counts
# at once. The sampling error of a score is its standard error over tables with the same
# number of rows from the same population. Everything here is post-processing of
# releases.


Counts = Mapping[str, FloatArray]
#: Names of the columns of cells from which scores are computed.
RIGHT, LOSS, SCORES = "right answers", "log-loss", "scores by class"
CONFUSION, CURVE = "predicted classes by class", "probabilities by class"
RESIDUALS, TARGET = "residuals", "target"
DEVIANCE, ENTROPY = "deviance", "entropy of the target"
#: Smallest variance or deviance that scores divide by, for a target in [0, 1].
SMALLEST = 1e-6


@dataclass(frozen=True)
class Scale:
    """The units of scores.

    Attributes
    ----------
    largest : float
        The value at which a row's loss or residual is clipped.
    width : float
        The width of a numeric target's range.
    deviance : float
        The value at which a row's deviance is clipped.
    target : (float, float)
        The part of [0, 1] to which the scaled target is clipped when its variance or
        its entropy is computed.
    """

    largest: float
    width: float = 1.0
    deviance: float = 1.0
    target: tuple[float, float] = (0.0, 1.0)

    @property
    def target_width(self) -> float:
        """The width of the range that targets are clipped to, in the target's units."""
        return self.width * (self.target[1] - self.target[0])


def compute_moment(cells: FloatArray, n: Any, power: int) -> Any:
    """Return the mean of tᵖ over n rows, where p is `power`.

    The d + 1 `cells` b hold the sums of Bernstein polynomials of t, as made by
    `score_cells.make_moments`. The mean is Σ_k (C(k,p)/C(d,p)) b_k/n.
    """
    degree = cells.shape[-1] - 1
    shares = [math.comb(k, power) / math.comb(degree, power) for k in range(degree + 1)]
    return cells @ np.array(shares) / n


def compute_variance(cells: FloatArray, n: Any, power: int = 1) -> Any:
    """Return the variance of tᵖ over n rows, from cells as in `compute_moment`.

    Noise can make the estimate negative. It is then replaced by 0.
    """
    mean = compute_moment(cells, n, power)
    return np.maximum(0.0, compute_moment(cells, n, 2 * power) - mean**2)


# ---- classes


def split_confusion(counts: Counts) -> FloatArray:
    """Return the matrix (..., k, k) of counts by true class and predicted class."""
    cells = counts[CONFUSION][..., :-1]
    k = math.isqrt(cells.shape[-1])
    return cells.reshape(*cells.shape[:-1], k, k)


def compute_accuracy(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the share of right answers among all rows."""
    if CONFUSION in counts:
        return np.trace(split_confusion(counts), axis1=-2, axis2=-1) / n
    return counts[RIGHT][..., 1] / n


def estimate_accuracy_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the accuracy, which is a share of n rows."""
    return float(_estimate_share_error(compute_accuracy(counts, n, scale), n))


def _estimate_share_error(share: Any, n: Any) -> Any:
    inside = np.clip(share, 0.0, 1.0)
    return np.sqrt(inside * (1.0 - inside) / np.maximum(n, 1.0))


def _find_proportion(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return the shares `part` / `whole`. A whole below one row counts as one row.

    Noise can move a share out of [0, 1]. Shares are clipped only when they are shown,
    because intervals depend on how far a share moved.
    """
    return np.asarray(part / np.maximum(whole, 1.0))


def _average(shares: Any) -> Any:
    """Return the share of class 1 if there are two classes, else the mean share."""
    return shares[..., 1] if shares.shape[-1] == 2 else shares.mean(axis=-1)


def _list_shares(counts: Counts) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Count the right answers, predictions and rows of each class, shape (..., k)."""
    matrix = split_confusion(counts)
    right = np.diagonal(matrix, axis1=-2, axis2=-1)
    return right, matrix.sum(axis=-2), matrix.sum(axis=-1)


def _list_precisions(counts: Counts) -> tuple[FloatArray, FloatArray]:
    """Return the precision of each class, and the number of its predictions."""
    right, predicted, _ = _list_shares(counts)
    return _find_proportion(right, predicted), predicted


def _list_recalls(counts: Counts) -> tuple[FloatArray, FloatArray]:
    """Return the recall of each class, and the number of its rows."""
    right, _, rows = _list_shares(counts)
    return _find_proportion(right, rows), rows


def compute_precision(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the share of right answers among the predictions of a class.

    With two classes, this is the precision of class 1. With more classes, it is the
    mean of the precisions of all classes.
    """
    return _average(_list_precisions(counts)[0])


def estimate_precision_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the precision."""
    return _average_errors(_estimate_share_error(*_list_precisions(counts)))


def compute_recall(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the share of right answers among the rows of a class.

    With two classes, this is the recall of class 1. With more classes, it is the mean
    of the recalls of all classes.
    """
    return _average(_list_recalls(counts)[0])


def estimate_recall_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the recall."""
    return _average_errors(_estimate_share_error(*_list_recalls(counts)))


def compute_balanced_accuracy(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the mean of the recalls of all classes."""
    return _list_recalls(counts)[0].mean(axis=-1)


def estimate_balanced_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the mean recall.

    No row is in two classes, so the recalls have independent errors.
    """
    errors = _estimate_share_error(*_list_recalls(counts))
    return float(np.linalg.norm(errors)) / len(errors)


def compute_f1(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return F1, the harmonic mean of precision and recall."""
    right, predicted, rows = _list_shares(counts)
    return _average(_find_proportion(2 * right, predicted + rows))


def estimate_f1_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of F1 = 2s/(1 + s).

    Here s is the share of right answers among the rows that are of the class or
    predicted to be of the class.
    """
    right, predicted, rows = _list_shares(counts)
    either = predicted + rows - right
    share = np.clip(_find_proportion(right, either), 0.0, 1.0)
    return _average_errors(2 / (1 + share) ** 2 * _estimate_share_error(share, either))


def _average_errors(errors: FloatArray) -> float:
    """Return the standard error of class 1 or, with more classes, of the mean share.

    The same row may be in the shares of two classes, so errors may be dependent. For
    this reason the error of the mean is only an upper bound.
    """
    return float(_average(errors))


def split_classes(cells: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return two arrays: the count of class 0 and the count of class 1 in each bin.

    The last cell, which counts rows of unknown class, is left out.
    """
    pairs = np.reshape(cells[..., :-1], (*cells.shape[:-1], -1, 2))
    return pairs[..., 0], pairs[..., 1]


def compute_area(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the area under the ROC curve, computed from bins.

    This is the probability that a random row of class 1 is in a higher bin than a
    random row of class 0, where rows in the same bin count half. The area is slightly
    underestimated, because the order of rows within a bin is not known.
    """
    zeros, ones = split_classes(counts[SCORES])
    below = np.cumsum(zeros, axis=-1) - zeros / 2
    pairs = np.maximum(zeros.sum(-1), 1.0) * np.maximum(ones.sum(-1), 1.0)
    return (ones * below).sum(axis=-1) / pairs


def estimate_area_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the area by Hanley and McNeil's formula.

    The formula is from Radiology 143 (1982).
    """
    zeros, ones = (max(float(c.sum()), 1.0) for c in split_classes(counts[SCORES]))
    area = min(1.0, max(0.0, float(compute_area(counts, n, scale))))
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area)
    spread += (ones - 1) * (one - area**2) + (zeros - 1) * (two - area**2)
    return math.sqrt(max(0.0, spread) / (zeros * ones))


def compute_log_loss(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the mean of the clipped log-losses."""
    return scale.largest * compute_moment(counts[LOSS], n, 1)


def estimate_log_loss_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the mean log-loss."""
    return scale.largest * float(np.sqrt(compute_variance(counts[LOSS], n) / n))


def _share_classes(counts: Counts) -> FloatArray:
    rows = np.maximum(split_confusion(counts).sum(axis=-1), 1e-9)
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))


def compute_class_d2(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return 1 - (log-loss)/(log-loss of the class shares), which is McFadden's R²."""
    share = _share_classes(counts)
    null = -(share * np.log(share)).sum(axis=-1)
    return 1.0 - compute_log_loss(counts, n, scale) / np.maximum(null, SMALLEST)


def estimate_class_d2_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return an upper bound on the standard error of `compute_class_d2`.

    The score is one minus a ratio of two losses. The covariance of numerator and
    denominator is not released, so their standard deviations are added.
    """
    share = _share_classes(counts)
    null = max(float(-(share * np.log(share)).sum()), SMALLEST)
    others = math.sqrt(max(0.0, float((share * np.log(share) ** 2).sum()) - null**2))
    ratio = abs(float(compute_log_loss(counts, n, scale))) / null
    own = estimate_log_loss_error(counts, n, scale)
    return (own + ratio * others / math.sqrt(n)) / null


# ---- numbers


def compute_mae(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the mean of the clipped absolute residuals."""
    return scale.largest * compute_moment(counts[RESIDUALS], n, 1)


def estimate_mae_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the mean absolute residual."""
    return scale.largest * float(np.sqrt(compute_variance(counts[RESIDUALS], n) / n))


def compute_mse(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the mean of the clipped squared residuals."""
    return scale.largest**2 * compute_moment(counts[RESIDUALS], n, 2)


def estimate_mse_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the mean squared residual."""
    spread = compute_variance(counts[RESIDUALS], n, 2)
    return scale.largest**2 * float(np.sqrt(spread / n))


def compute_rmse(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the root of the mean squared residual."""
    return np.sqrt(np.maximum(0.0, compute_mse(counts, n, scale)))


def estimate_rmse_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the root of the mean squared residual."""
    least = 1e-9 * scale.largest
    root = max(2 * float(compute_rmse(counts, n, scale)), least)
    return estimate_mse_error(counts, n, scale) / root


def compute_r2(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return 1 - (mean squared residual)/(variance of the target)."""
    total = np.maximum(compute_variance(counts[TARGET], n), SMALLEST)
    return 1.0 - compute_mse(counts, n, scale) / scale.target_width**2 / total


def estimate_r2_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return an upper bound on the standard error of R².

    R² = 1 - A/B, where A is the mean of the squared residuals r² and B is the variance
    of the target u. The influence of a row is (r² - (A/B)(u - ū)²)/B. The covariance of
    its two terms is not released, so the bound assumes the worst case and adds their
    standard deviations.
    """
    cells = counts[TARGET]
    total = max(float(compute_variance(cells, n)), SMALLEST)
    at, two, three, four = (
        float(compute_moment(cells, n, power)) for power in (1, 2, 3, 4)
    )
    fourth = four - 4 * three * at + 6 * two * at**2 - 3 * at**4
    others = math.sqrt(max(0.0, fourth - total**2) / n)
    own = estimate_mse_error(counts, n, scale) / scale.target_width**2
    unexplained = 1.0 - float(compute_r2(counts, n, scale))
    return (own + abs(unexplained) * others) / total


def compute_deviance(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the mean of the clipped Poisson deviances."""
    return scale.deviance * compute_moment(counts[DEVIANCE], n, 1)


def estimate_deviance_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the mean deviance."""
    return scale.deviance * float(np.sqrt(compute_variance(counts[DEVIANCE], n) / n))


def _compute_null_deviance(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the deviance of the mean count: 2 (mean of y log y - ȳ log ȳ)."""
    logs = -compute_moment(counts[ENTROPY], n, 1) / math.e
    mean = np.clip(compute_moment(counts[TARGET], n, 1), 1e-9, 1.0)
    null = 2 * scale.target_width * (logs - mean * np.log(mean))
    return np.maximum(null, SMALLEST * scale.target_width)


def compute_count_d2(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return 1 - (mean deviance)/(mean deviance of a constant prediction)."""
    null = _compute_null_deviance(counts, n, scale)
    return 1.0 - compute_deviance(counts, n, scale) / null


def estimate_count_d2_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return an upper bound on the standard error of `compute_count_d2`.

    The covariances of deviance, y log y and y are not released, so the standard
    deviations are added.
    """
    null = float(_compute_null_deviance(counts, n, scale))
    mean = min(1.0, max(1e-9, float(compute_moment(counts[TARGET], n, 1))))
    others = math.sqrt(float(compute_variance(counts[ENTROPY], n))) / math.e
    others += abs(math.log(mean) + 1) * math.sqrt(
        float(compute_variance(counts[TARGET], n))
    )
    ratio = abs(float(compute_deviance(counts, n, scale))) / null
    own = estimate_deviance_error(counts, n, scale)
    return (own + ratio * 2 * scale.target_width * others / math.sqrt(n)) / null


# ---- List the scores that can be released, with their formulas and ranges


#: Results that are tables, not single numbers, with the columns of cells they need.
TABLES = {"confusion": (CONFUSION,), "calibration": (CURVE,)}
#: Largest number of classes of a confusion matrix, which has a cell per pair of
#: classes.
MOST_CLASSES = 30


@dataclass(frozen=True, kw_only=True)
class ScoreMetric:
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
        The smallest and the largest value that is shown. R² and D² have no smallest
        value. If they are below -1, -1 is shown.
    limit : callable (scale) -> float
        The largest possible value, which for a loss is the bound on the loss of a row.
    width : float, optional
        If the interval due to the noise alone is wider than this, the score is marked
        as too noisy. The default is the value of the score.
    higher_is_better : bool
        Whether a search maximises the score. Otherwise it minimises the score.
    """

    columns: tuple[str, ...]
    value: Callable[[Counts, Any, Scale], Any]
    spread: Callable[[Counts, Any, Scale], float]
    low: float = 0.0
    high: float = math.inf
    limit: Callable[[Scale], float] = lambda scale: math.inf
    width: float | None = None
    higher_is_better: bool = False


def _make_share(
    column: str, value: Callable[..., Any], spread: Callable[..., Any], width: float
) -> ScoreMetric:
    return ScoreMetric(
        columns=(column,),
        value=value,
        spread=spread,
        high=1.0,
        width=width,
        higher_is_better=True,
    )


def _make_loss(
    column: str,
    value: Callable[..., Any],
    spread: Callable[..., Any],
    limit: Callable[[Scale], float] = lambda scale: scale.largest,
) -> ScoreMetric:
    return ScoreMetric(columns=(column,), value=value, spread=spread, limit=limit)


def _make_explained(
    columns: tuple[str, ...], value: Callable[..., Any], spread: Callable[..., Any]
) -> ScoreMetric:
    return ScoreMetric(
        columns=columns,
        value=value,
        spread=spread,
        low=-1.0,
        high=1.0,
        width=0.5,
        higher_is_better=True,
    )


#: All metrics that are a single number, by name. The metric ``"ece"`` is not listed,
#: because noise makes it larger. `uncertainty.score_calibration` computes it.
METRICS: dict[str, ScoreMetric] = {
    "accuracy": _make_share(RIGHT, compute_accuracy, estimate_accuracy_error, 0.5),
    "balanced_accuracy": _make_share(
        CONFUSION,
        compute_balanced_accuracy,
        estimate_balanced_error,
        0.5,
    ),
    "precision": _make_share(
        CONFUSION, compute_precision, estimate_precision_error, 0.5
    ),
    "recall": _make_share(CONFUSION, compute_recall, estimate_recall_error, 0.5),
    "f1": _make_share(CONFUSION, compute_f1, estimate_f1_error, 0.5),
    "log_loss": _make_loss(LOSS, compute_log_loss, estimate_log_loss_error),
    "auc": _make_share(SCORES, compute_area, estimate_area_error, 0.25),
    "d2": _make_explained((LOSS, CONFUSION), compute_class_d2, estimate_class_d2_error),
    "r2": _make_explained((RESIDUALS, TARGET), compute_r2, estimate_r2_error),
    "mse": _make_loss(
        RESIDUALS,
        compute_mse,
        estimate_mse_error,
        limit=lambda scale: scale.largest**2,
    ),
    "rmse": _make_loss(RESIDUALS, compute_rmse, estimate_rmse_error),
    "mae": _make_loss(RESIDUALS, compute_mae, estimate_mae_error),
    "deviance": _make_loss(
        DEVIANCE,
        compute_deviance,
        estimate_deviance_error,
        limit=lambda scale: scale.deviance,
    ),
    "ece": ScoreMetric(
        columns=(CURVE,),
        value=lambda counts, n, scale: math.nan,
        spread=lambda counts, n, scale: math.nan,
        high=1.0,
        width=0.1,
    ),
}
#: The metric D² for models of counts, with the deviance of Poisson regression.
COUNT_D2 = _make_explained(
    (DEVIANCE, ENTROPY, TARGET),
    compute_count_d2,
    estimate_count_d2_error,
)


def find_metric(name: str, model: PrivateLinearModel) -> ScoreMetric:
    """Return the metric of this name for a model."""
    return COUNT_D2 if name == "d2" and model.link == "log" else METRICS[name]


def list_columns(name: str, model: PrivateLinearModel) -> tuple[str, ...]:
    """Return the names of the columns of cells that a score or table needs."""
    return TABLES[name] if name in TABLES else find_metric(name, model).columns


def list_metrics(model: PrivateLinearModel, schema: Schema) -> list[str]:
    """Return the names of all metrics of a model. The first is a search's default."""
    loss = model._loss(schema)
    if loss.n_classes == 0:
        counts = ["deviance", "d2"] if model.link == "log" else []
        return ["r2", "rmse", "mae", "mse", *counts]
    probabilistic = hasattr(model, "predict_proba")
    names = ["log_loss", "accuracy"] if probabilistic else ["accuracy"]
    if loss.n_classes <= MOST_CLASSES:
        names += ["balanced_accuracy", "precision", "recall", "f1", "confusion"]
        names += ["d2"] if probabilistic else []
    if loss.n_outputs == 1:
        names += ["auc", "ece", "calibration"] if probabilistic else ["auc"]
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
    check(
        1e-100 < width < 1e100,
        "Scores square the target's numbers, so its range must be between 1e-100 and "
        f"1e100 wide, got {width:g}. Choose another unit for the target.",
    )
    largest = width if max_residual is None else float(max_residual)
    check(
        1e-100 < largest <= width,
        f"max_residual must be in (1e-100, {width:g}], where {width:g} is the width of "
        f"the target's range, got {max_residual}.",
    )
    # Predicted rates are clipped to at least e⁻¹⁶ of the largest count, so the deviance
    # of a row is bounded.
    return Scale(largest, width, deviance=2 * LARGEST_LOSS * width)
