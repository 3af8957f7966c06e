"""List the scores that can be released, with their formulas and ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.regressors import check_numeric_target
from skdp.evaluation import score_formulas as formulas
from skdp.evaluation.predictions import LARGEST_LOSS
from skdp.evaluation.score_formulas import (
    CONFUSION,
    CURVE,
    DEVIANCE,
    ENTROPY,
    LOSS,
    RESIDUALS,
    RIGHT,
    SCORES,
    TARGET,
    Counts,
    Scale,
)
from skdp.schema import Schema, check

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
    "accuracy": _make_share(
        RIGHT, formulas.compute_accuracy, formulas.estimate_accuracy_error, 0.5
    ),
    "balanced_accuracy": _make_share(
        CONFUSION,
        formulas.compute_balanced_accuracy,
        formulas.estimate_balanced_error,
        0.5,
    ),
    "precision": _make_share(
        CONFUSION, formulas.compute_precision, formulas.estimate_precision_error, 0.5
    ),
    "recall": _make_share(
        CONFUSION, formulas.compute_recall, formulas.estimate_recall_error, 0.5
    ),
    "f1": _make_share(CONFUSION, formulas.compute_f1, formulas.estimate_f1_error, 0.5),
    "log_loss": _make_loss(
        LOSS, formulas.compute_log_loss, formulas.estimate_log_loss_error
    ),
    "auc": _make_share(
        SCORES, formulas.compute_area, formulas.estimate_area_error, 0.25
    ),
    "d2": _make_explained(
        (LOSS, CONFUSION), formulas.compute_class_d2, formulas.estimate_class_d2_error
    ),
    "r2": _make_explained(
        (RESIDUALS, TARGET), formulas.compute_r2, formulas.estimate_r2_error
    ),
    "mse": _make_loss(
        RESIDUALS,
        formulas.compute_mse,
        formulas.estimate_mse_error,
        limit=lambda scale: scale.largest**2,
    ),
    "rmse": _make_loss(RESIDUALS, formulas.compute_rmse, formulas.estimate_rmse_error),
    "mae": _make_loss(RESIDUALS, formulas.compute_mae, formulas.estimate_mae_error),
    "deviance": _make_loss(
        DEVIANCE,
        formulas.compute_deviance,
        formulas.estimate_deviance_error,
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
    formulas.compute_count_d2,
    formulas.estimate_count_d2_error,
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
