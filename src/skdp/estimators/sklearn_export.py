"""Export a fitted model as a scikit-learn pipeline.

This is post-processing of released weights. `RENDERERS` maps each kind of column to the
function that renders the column's feature map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    SplineTransformer,
    StandardScaler,
)

from skdp.estimators.predict import (
    convert_to_text,
    expand_pair,
    read_levels,
    read_numbers,
)
from skdp.schema import (
    Categorical,
    FloatArray,
    Numeric,
    Pair,
    Product,
    Vector,
    check,
)
from skdp.schema.columns import divide_by_norm
from skdp.tables.readers import import_library


@dataclass(frozen=True, kw_only=True, eq=False)
class RenderedColumn:
    """The transformers and weights of one column.

    Here k is the number of margins of a row: one per class if there are three or more
    classes, and 1 otherwise.

    Attributes
    ----------
    steps : list
        Fitted transformers, each with a name.
    weights : float64 (width, k)
        Weights of the `width` features that the transformers compute.
    constant : float64 (k,)
        Constants that are added to the margins of every row.
    example : list
        Possible cells of the column. The pipeline is fitted to a table of such cells.
        The list is empty for a pair, because both of its columns have examples.
    """

    steps: list[tuple[str, Any]]
    weights: FloatArray
    constant: FloatArray
    example: list[Any]


def make_pipeline(model: Any) -> Pipeline:
    """Return a fitted scikit-learn ``Pipeline`` that makes the predictions of `model`.

    Parameters
    ----------
    model : PrivateLinearModel
        A fitted model. Its schema must have no ``row_norm``, because the pipeline
        transforms each column by itself and ``row_norm`` depends on all columns.

    Notes
    -----
    The pipeline takes a data frame if the model was fitted to named columns, and an
    array otherwise. Its first step reads each cell as `model` does, whatever the type
    of the column is: True, "True", "true" and 1 are the same level of a schema that
    lists only one of them. scikit-learn has no transformer that compares cells in this
    way, so the step is a function of skdp. To load the pickled pipeline, skdp must be
    installed. The graph of ``to_onnx()`` does not need skdp.

    To export to ONNX, use the model's method ``to_onnx()`` and not this pipeline,
    because skl2onnx (1.20) refuses the pipeline's functions and one-hot bins.
    """
    schema, weights = model.schema_, model.weights_
    check(
        schema.row_norm is None,
        "A model whose schema has row_norm cannot be exported as a pipeline.",
    )
    check(
        not any(isinstance(c, Product) for c in schema.columns.values()),
        "A model with interactions or logarithms of a formula cannot be "
        "exported as a pipeline.",
    )
    named = hasattr(model, "feature_names_in_")
    parts: dict[str, tuple[RenderedColumn, list[Any]]] = {}
    places = {name: name if named else i for i, name in enumerate(schema.inputs)}
    constant = np.zeros(weights.shape[1])
    for group in model._layout.groups:
        if group.kind == "ones":
            constant = constant + weights[group.start]
            continue
        column = schema.columns[group.name]
        own = column.list_inputs(group.name)
        if isinstance(column, Pair):
            own = (column.first, column.second)
        render = RENDERERS[type(column)]
        at = [places[name] for name in own]
        parts[group.name] = render(column, weights[group.coordinates]), at
    for part, _ in parts.values():
        constant = constant + part.constant
    kept = [part.weights for part, _ in parts.values()]
    final = _make_final(model, np.concatenate(kept), constant)
    columns = _join_columns(parts, schema.inputs if named else None)
    return Pipeline([("columns", columns), ("model", final)])


def _join_columns(
    parts: dict[str, tuple[RenderedColumn, list[Any]]], names: tuple[str, ...] | None
) -> ColumnTransformer:
    """Join the transformers of all columns, and fit the result to example rows."""
    listed = [
        (_make_step_name(key), Pipeline(part.steps) if part.steps else "drop", at)
        for key, (part, at) in parts.items()
    ]
    examples = [
        example
        for part, at in parts.values()
        for example in ([part.example] * len(at) if part.example else [])
    ]
    table: Any = np.array(examples, dtype=object).T
    if names is not None:
        columns = dict(zip(names, examples, strict=True))
        table = import_library("pandas").DataFrame(columns)
    elif all(not isinstance(cell, str) for cells in examples for cell in cells):
        table = table.astype(np.float64)
    whole = ColumnTransformer(listed, sparse_threshold=0.3).fit(table)
    # Fitting replaced our steps by copies fitted to the example rows. Put ours back.
    ours = {key: step for key, step, _ in listed}
    whole.transformers_ = [
        (key, ours.get(key, step), at) for key, step, at in whole.transformers_
    ]
    return whole


def _make_step_name(column: str) -> str:
    """Return a name for a column's transformer that scikit-learn accepts.

    scikit-learn refuses names that contain two underscores in a row. It also refuses
    the names of the arguments of ``ColumnTransformer``.
    """
    own = {"self", "remainder", *ColumnTransformer([]).get_params()}
    return (
        f"column {column}".replace("__", "_ _")
        if (column in own or "__" in column)
        else column
    )


def _render_vector(column: Vector, weights: FloatArray) -> RenderedColumn:
    """Divide each row by its norm or by `column.norm`, whichever is larger."""
    scale = FunctionTransformer(divide_by_norm, kw_args={"norm": column.norm})
    return RenderedColumn(
        steps=[("cells", FunctionTransformer(read_numbers)), ("shorten", scale)],
        weights=weights,
        constant=np.zeros(weights.shape[1]),
        example=[0.0, column.norm, 0.0],
    )


def _render_numeric(column: Numeric, weights: FloatArray) -> RenderedColumn:
    """Clip, scale and impute values, then apply the column's bins or hat functions."""
    return RenderedColumn(
        steps=list(_list_steps(column)),
        weights=weights,
        constant=np.zeros(weights.shape[1]),
        example=[column.low, column.high, math.nan],
    )


def _list_steps(column: Numeric) -> Iterator[tuple[str, Any]]:
    """Yield transformers whose output equals `Numeric.compute_features` bit for bit."""
    yield "cells", FunctionTransformer(read_numbers)
    edges = {"xp": [*column.ends], "fp": [end - column.low for end in column.ends]}
    yield "clip", FunctionTransformer(np.interp, kw_args=edges)
    if column.scale == "log":
        yield "log", FunctionTransformer(np.log1p)
    span = column.span
    ends = np.array([[0.0], [span], [math.nan]])
    scale = StandardScaler(with_mean=False).fit(ends)
    scale.scale_, scale.var_ = np.array([span]), np.array([span**2])
    yield "scale", scale
    apart = column.indicator and column.kind != "dense"
    default = float(column.rescale(np.array([math.nan]))[0][0])
    if column.indicator:
        default = 2.0 if apart else 0.0
    missing = SimpleImputer(
        strategy="constant",
        fill_value=default,
        add_indicator=column.indicator and not apart,
    )
    yield "missing", missing.fit(ends / span)
    if column.bins is not None:
        yield "bins", _make_bins(column.bins, apart)
    elif column.n_knots is not None:
        yield "hats", _make_hat_steps(column.place_knots(), apart)


def _make_hat_steps(knots: FloatArray, apart: bool) -> Any:
    """Return a transformer that computes hat functions on knots in [0, 1].

    If `apart`, missing values, which have been replaced by 2, get their own coordinate.
    """
    if apart:
        knots = np.append(knots, 2.0)
    made = SplineTransformer(
        n_knots=len(knots),
        degree=1,
        knots=knots[:, None],
        extrapolation="constant",
    )
    return made.fit(np.array([[0.0], [1.0]]))


def _make_bins(n_bins: int, apart: bool) -> KBinsDiscretizer:
    """Return a transformer that cuts [0, 1] into bins where floor(x · n_bins) changes.

    If `apart`, missing values, which have been replaced by 2, get their own bin.
    """
    inner = [_find_edge(place, n_bins) for place in range(1, n_bins)]
    inner += [1.5] if apart else []  # missing values are at 2
    bins = KBinsDiscretizer(
        n_bins + apart, encode="onehot", strategy="uniform", subsample=None
    ).fit([[0.0], [2.0 if apart else 1.0]])
    edges = np.array([0.0, *inner, 2.0 if apart else 1.0])
    bins.bin_edges_[0] = edges
    return bins


def _find_edge(place: int, n_bins: int) -> float:
    """Return the smallest float x for which floor(x · n_bins) equals `place`."""
    x = place / n_bins
    while math.floor(x * n_bins) < place:
        x = math.nextafter(x, 2.0)
    while math.floor(math.nextafter(x, 0.0) * n_bins) >= place:
        x = math.nextafter(x, 0.0)
    return x


def _render_categorical(column: Categorical, weights: FloatArray) -> RenderedColumn:
    """Encode levels as one-hot rows. The row of an unknown cell is all zeros.

    The level `other` has no coordinate, because its weight is added to the intercept.
    So an unknown cell counts as `other`.
    """
    constant = np.zeros(weights.shape[1])
    codes = list(range(len(column.levels)))
    if column.other is not None:
        constant = weights[column.default_code].copy()
        codes.remove(column.default_code)
    example = [column.levels[0]] * 3
    if not codes:
        return RenderedColumn(
            steps=[], weights=weights[:0], constant=constant, example=example
        )
    texts = [convert_to_text(column.levels[code]) for code in codes]
    values = np.array(texts, dtype=object)
    one_hot = OneHotEncoder(categories=[values], handle_unknown="ignore")
    steps = [
        ("cells", FunctionTransformer(read_levels, kw_args={"column": column})),
        ("one-hot", one_hot.fit(values[:, None])),
    ]
    return RenderedColumn(
        steps=steps,
        weights=weights[codes] - constant,
        constant=constant,
        example=example,
    )


def _render_pair(column: Pair, weights: FloatArray) -> RenderedColumn:
    """Compute the products of the hat functions of both columns (`expand_pair`)."""
    steps = [("products", FunctionTransformer(expand_pair, kw_args={"pair": column}))]
    constant = np.zeros(weights.shape[1])
    return RenderedColumn(steps=steps, weights=weights, constant=constant, example=[])


#: Functions that render the feature map of each kind of column.
RENDERERS: dict[type, Callable[[Any, FloatArray], RenderedColumn]] = {
    Numeric: _render_numeric,
    Categorical: _render_categorical,
    Vector: _render_vector,
    Pair: _render_pair,
}


def _make_final(model: Any, weights: FloatArray, constant: FloatArray) -> Any:
    """Return the scikit-learn model with these weights and constants (intercepts)."""
    final = resolve_name(model.sklearn_class)()
    final.n_features_in_ = len(weights)
    if hasattr(model, "classes_"):
        final.classes_ = model.classes_
        final.coef_, final.intercept_ = weights.T.copy(), constant
        final.n_iter_ = np.array([0])
        return final
    if model.link == "log":  # scikit-learn sets the link in fit
        final.fit(np.zeros((1, len(weights))), [1.0])
    middle, half = model._target_units()
    final.coef_ = weights[:, 0] * half
    final.intercept_ = float(middle + half * constant[0])
    return final
