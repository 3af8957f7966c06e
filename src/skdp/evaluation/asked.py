"""Which scores a model has, and what is public about them."""

from __future__ import annotations

from collections.abc import Sequence

from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.regressors import PrivateRegressor, check_numeric_target
from skdp.evaluation import metrics
from skdp.evaluation.predictions import LARGEST_LOSS
from skdp.schema import Schema, check

CALIBRATION = "calibration"


def metrics_of(model: PrivateLinearModel, schema: Schema) -> list[str]:
    """Names of the scores that a model has, the one that decides first."""
    if isinstance(model, PrivateRegressor):
        return ["r2", "rmse", "mae", "mse"]
    found = ["log_loss"] if model.link == "logit" else []
    found.append("accuracy")
    if model._loss(schema).n_outputs == 1:
        found.append("auc")
        found += [CALIBRATION] if model.link == "logit" else []
    return found


def wanted_metrics(
    model: PrivateLinearModel, schema: Schema, asked: Sequence[str] | None
) -> list[str]:
    """Names of the scores to release, refused if the model has none such."""
    known = metrics_of(model, schema)
    if asked is None:
        return [name for name in known if name != "mse"]
    named = [asked] if isinstance(asked, str) else list(asked)
    for name in named:
        check(
            name in known,
            f"metrics of a {type(model).__name__} like this one are {known}. Got "
            f"{name!r}: choose among them.",
        )
    check(bool(named), f"metrics must name a score. Got none: choose among {known}.")
    return list(dict.fromkeys(named))


def scale_of(
    model: PrivateLinearModel,
    schema: Schema,
    max_loss: float,
    max_residual: float | None,
) -> metrics.Scale:
    """What scores are multiples of; what is public and wrong about it raises."""
    if not isinstance(model, PrivateRegressor):
        check(
            0 < max_loss <= LARGEST_LOSS,
            f"max_loss must be in (0, {LARGEST_LOSS:g}]. Got {max_loss}: 5 is usual.",
        )
        return metrics.Scale(max_loss)
    column = check_numeric_target(schema.target_column)
    width = column.high - column.low
    largest = width if max_residual is None else float(max_residual)
    check(
        0 < largest <= width,
        f"max_residual must be in (0, {width:g}], the width of the target's range. Got "
        f"{max_residual}: leave it out.",
    )
    return metrics.Scale(largest, width)
