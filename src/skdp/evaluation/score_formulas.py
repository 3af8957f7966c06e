"""Compute scores and their sampling errors from released counts.

Counts are arrays (..., cells), so a score can be computed for many plausible counts at
once. The sampling error of a score is its standard error over tables with the same
number of rows from the same population. Everything here is post-processing of releases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.schema import FloatArray

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


def _divide(part: FloatArray, whole: FloatArray) -> FloatArray:
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
    return _divide(right, predicted), predicted


def _list_recalls(counts: Counts) -> tuple[FloatArray, FloatArray]:
    """Return the recall of each class, and the number of its rows."""
    right, _, rows = _list_shares(counts)
    return _divide(right, rows), rows


def compute_precision(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the share of right answers among the predictions of a class.

    With two classes, this is the precision of class 1. With more classes, it is the
    mean of the precisions of all classes.
    """
    return _average(_list_precisions(counts)[0])


def estimate_precision_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the precision."""
    return _combine(_estimate_share_error(*_list_precisions(counts)))


def compute_recall(counts: Counts, n: Any, scale: Scale) -> Any:
    """Return the share of right answers among the rows of a class.

    With two classes, this is the recall of class 1. With more classes, it is the mean
    of the recalls of all classes.
    """
    return _average(_list_recalls(counts)[0])


def estimate_recall_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of the recall."""
    return _combine(_estimate_share_error(*_list_recalls(counts)))


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
    return _average(_divide(2 * right, predicted + rows))


def estimate_f1_error(counts: Counts, n: Any, scale: Scale) -> float:
    """Return the standard error of F1 = 2s/(1 + s).

    Here s is the share of right answers among the rows that are of the class or
    predicted to be of the class.
    """
    right, predicted, rows = _list_shares(counts)
    either = predicted + rows - right
    share = np.clip(_divide(right, either), 0.0, 1.0)
    return _combine(2 / (1 + share) ** 2 * _estimate_share_error(share, either))


def _combine(errors: FloatArray) -> float:
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
