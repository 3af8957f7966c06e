"""A fitted model as an ordinary scikit-learn pipeline: post-processing, no privacy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import linear_model, svm
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    StandardScaler,
)

from skdp.estimators.margins import within_norm
from skdp.schema import Categorical, FloatArray, Numeric, Vector, check, level_key
from skdp.tables.source import library

#: The model of scikit-learn that stands for each of ours.
MODELS: dict[str, Any] = {
    "LogisticRegression": linear_model.LogisticRegression,
    "LinearSVC": svm.LinearSVC,
    "LinearRegression": linear_model.LinearRegression,
    "HuberRegressor": linear_model.HuberRegressor,
    "PoissonRegressor": linear_model.PoissonRegressor,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """What becomes of a column.

    Attributes
    ----------
    steps : list
        Named transformers, fitted.
    weights : float64 (width, k)
        Weights of what they give.
    constant : float64 (k,)
        What the column adds to every margin.
    example : list
        Cells that it may hold, to show the pipeline what a table looks like.
    """

    steps: list[tuple[str, Any]]
    weights: FloatArray
    constant: FloatArray
    example: list[Any]


def pipeline(model: Any) -> Pipeline:
    """Return a fitted ``Pipeline`` of scikit-learn that predicts as `model` does.

    Parameters
    ----------
    model : PrivateLinearModel
        A fitted one. Its schema must have no ``row_norm``, which binds columns
        together as no transformer of scikit-learn does.

    Notes
    -----
    The pipeline takes a data frame if the model was fitted to named columns, else an
    array. Its cells must be of a column's type: numbers, None or nan where a range is
    described, and levels as they are written in the schema, or numbers where all
    levels are numbers (others count as unknown). Text in place of a number, which
    `model` takes as missing, raises. It pickles without a trace of skdp, unless
    there is a `Vector`, whose rows a function of ours shortens.

    For ONNX use ``to_onnx()`` of the model: skl2onnx (1.20) refuses the functions of
    this pipeline and its one-hot bins, and reads a level of 1.5 as 1.
    """
    schema, weights = model.schema_, model.weights_
    check(
        schema.row_norm is None,
        "A schema with row_norm has no ordinary pipeline: use the model itself.",
    )
    named = hasattr(model, "feature_names_in_")
    parts: dict[str, tuple[Part, list[Any]]] = {}
    place = 0
    constant = np.zeros(weights.shape[1])
    for group in model._layout.groups:
        if group.kind == "ones":
            constant = constant + weights[group.start]
            continue
        column = schema.columns[group.name]
        own = list(column.names) if isinstance(column, Vector) else [group.name]
        at = own if named else list(range(place, place + len(own)))
        place += len(own)
        parts[group.name] = _part(column, weights[group.coordinates]), at
    for part, _ in parts.values():
        constant = constant + part.constant
    kept = [part.weights for part, _ in parts.values()]
    final = _final(model, np.concatenate(kept), constant)
    columns = _columns(parts, schema.inputs if named else None)
    return Pipeline([("columns", columns), ("model", final)])


def _columns(
    parts: dict[str, tuple[Part, list[Any]]], names: list[str] | None
) -> ColumnTransformer:
    """The transformers of all columns, fitted to rows that the schema itself gives."""
    listed = [
        (key, Pipeline(part.steps) if part.steps else "drop", at)
        for key, (part, at) in parts.items()
    ]
    examples = [
        example for part, at in parts.values() for example in ([part.example] * len(at))
    ]
    table: Any = np.array(examples, dtype=object).T
    if names is not None:
        columns = dict(zip(names, examples, strict=True))
        table = library("pandas").DataFrame(columns)
    elif all(not isinstance(cell, str) for cells in examples for cell in cells):
        table = table.astype(np.float64)
    whole = ColumnTransformer(listed, sparse_threshold=0.3).fit(table)
    # Fitting has fitted copies of the steps to the example rows: put back our own.
    ours = {key: step for key, step, _ in listed}
    whole.transformers_ = [
        (key, ours.get(key, step), at) for key, step, at in whole.transformers_
    ]
    return whole


def _part(column: Any, weights: FloatArray) -> Part:
    none = np.zeros(weights.shape[1])
    if isinstance(column, Vector):
        shorten = FunctionTransformer(within_norm, kw_args={"norm": column.norm})
        return Part(
            steps=[("shorten", shorten)],
            weights=weights,
            constant=none,
            example=[0.0, column.norm, 0.0],
        )
    if isinstance(column, Categorical):
        return _categorical(column, weights)
    return Part(
        steps=list(_numeric(column)),
        weights=weights,
        constant=none,
        example=[column.low, column.high, math.nan],
    )


def _numeric(column: Numeric) -> Iterator[tuple[str, Any]]:
    """Clip, scale, fill in what is missing, cut into bins: exactly as `scaled`."""
    span = column.high - column.low
    edges = {"xp": [column.low, column.high], "fp": [0.0, span]}
    yield "clip", FunctionTransformer(np.interp, kw_args=edges)
    if column.scale == "log":
        yield "log", FunctionTransformer(np.log1p)
        span = math.log1p(span)
    ends = np.array([[0.0], [span], [math.nan]])
    scale = StandardScaler(with_mean=False).fit(ends)
    scale.scale_, scale.var_ = np.array([span]), np.array([span**2])
    yield "scale", scale
    apart = column.indicator and column.bins is not None
    default = float(column.scaled(np.array([math.nan]))[0][0])
    if column.indicator:
        default = 2.0 if apart else 0.0
    missing = SimpleImputer(
        strategy="constant",
        fill_value=default,
        add_indicator=column.indicator and not apart,
    )
    yield "missing", missing.fit(ends / span)
    if column.bins is not None:
        yield "bins", _bins(column.bins, apart)


def _bins(n_bins: int, apart: bool) -> KBinsDiscretizer:
    """Bins of [0, 1] whose edges are where floor(x · n_bins) steps up, to the bit."""
    inner = [_step_up(place, n_bins) for place in range(1, n_bins)]
    inner += [1.5] if apart else []  # what is missing was put at 2
    bins = KBinsDiscretizer(
        n_bins + apart, encode="onehot", strategy="uniform", subsample=None
    ).fit([[0.0], [2.0 if apart else 1.0]])
    edges = np.array([0.0, *inner, 2.0 if apart else 1.0])
    bins.bin_edges_[0] = edges
    return bins


def _step_up(place: int, n_bins: int) -> float:
    """Return the smallest x with floor(x · n_bins) = place."""
    x = place / n_bins
    while math.floor(x * n_bins) < place:
        x = math.nextafter(x, 2.0)
    while math.floor(math.nextafter(x, 0.0) * n_bins) >= place:
        x = math.nextafter(x, 0.0)
    return x


def _categorical(column: Categorical, weights: FloatArray) -> Part:
    """One-hot levels; what is unknown is all zeros.

    The level `other` gets no coordinate but a share of the intercept, which is how
    anything unknown comes to count as it.
    """
    constant = np.zeros(weights.shape[1])
    levels = list(enumerate(column.levels))
    if column.other is not None:
        code = column.default_code
        constant = weights[code].copy()
        levels = [(place, level) for place, level in levels if place != code]
    if not levels:
        example = [column.levels[0]] * 3
        return Part(steps=[], weights=weights[:0], constant=constant, example=example)
    dtype: type = object
    values: Any = as_numbers([level for _, level in levels])
    if values is None:
        values = np.array([as_text(level) for _, level in levels], dtype=object)
    else:
        order = np.argsort(values)
        values, levels, dtype = values[order], [levels[i] for i in order], float
    one_hot = OneHotEncoder(categories=[values], handle_unknown="ignore")
    steps = [
        ("cells", FunctionTransformer(np.asarray, kw_args={"dtype": dtype})),
        ("one-hot", one_hot.fit(values[:, None])),
    ]
    codes = [place for place, _ in levels]
    return Part(
        steps=steps,
        weights=weights[codes] - constant,
        constant=constant,
        example=[values[0]] * 3,
    )


def as_numbers(levels: Sequence[Any]) -> FloatArray | None:
    """Levels that are all numbers, True and False included; None if one is not."""
    if all(isinstance(level, (int, float, np.number, np.bool_)) for level in levels):
        return np.array([float(level) for level in levels])
    return None


def as_text(level: object) -> str:
    """A level among texts, which is compared as a text."""
    return level if isinstance(level, str) else level_key(level)


def _final(model: Any, weights: FloatArray, constant: FloatArray) -> Any:
    """The last step, its coefficients set."""
    name = type(model).__name__
    final = MODELS[name]()
    final.n_features_in_ = len(weights)
    if name in ("LogisticRegression", "LinearSVC"):
        final.classes_ = model.classes_
        final.coef_, final.intercept_ = weights.T.copy(), constant
        final.n_iter_ = np.array([0])
        return final
    if name == "PoissonRegressor":  # what its link is, it learns in fit
        final.fit(np.zeros((1, len(weights))), [1.0])
    middle, half = model._target_units()
    final.coef_ = weights[:, 0] * half
    final.intercept_ = float(middle + half * constant[0])
    return final
