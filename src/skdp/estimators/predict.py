"""Compute margins from features and weights; convert weights to the user's units.

The columns of the schema map cells to features (`skdp.schema.columns`). The functions
here multiply the features by weights. Predictions are computed from released weights
(post-processing), so features are not rounded to a grid and no noise is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from skdp.privacy.encoding import Batch
from skdp.schema import (
    Categorical,
    Column,
    FloatArray,
    Layout,
    Numeric,
    Pair,
    Product,
    Schema,
    level_key,
    split_hats,
)
from skdp.schema.columns import clip_to_fill
from skdp.tables import batches


def compute_margins(
    table: Any, schema: Schema, layout: Layout, weights: FloatArray
) -> FloatArray:
    """Compute the margins x·w of all rows of a table, shape (n, k)."""
    public = Schema(schema.columns, row_norm=schema.row_norm)
    rows = [_add_parts(b, public, layout, weights) for b in batches(table, public)]
    return np.concatenate([np.zeros((0, weights.shape[1])), *rows])


@np.errstate(all="ignore")  # a cell must not cause a warning
def _add_parts(
    batch: Batch, schema: Schema, layout: Layout, weights: FloatArray
) -> FloatArray:
    """Return the margins of a batch: the sum of what each column contributes."""
    parts = [
        column.compute_features(
            clip_to_fill(column, schema.pick_cells(batch.columns, name))
        )
        for name, column in schema.columns.items()
    ]
    if schema.row_norm is not None:
        dense = [column.kind == "dense" for column in schema.columns.values()]
        _shorten_dense(parts, dense, schema.row_norm)
    total = np.zeros((len(parts[0]), weights.shape[1]))
    for group, part in zip(layout.groups, parts, strict=False):
        own = weights[group.coordinates]
        padded = np.vstack([own, np.zeros((1, weights.shape[1]))])
        if group.kind == "code":  # a code equal to the width adds zero
            total += padded[part]
        elif group.kind == "hats":
            places, shares = split_hats(part, group.axes)
            for place, share in zip(places.T, shares.T, strict=True):
                total += padded[place] * share[:, None]
        else:
            total += part @ own
    for group in layout.groups:
        if group.kind == "ones":
            total += weights[group.start]
    return total


def _shorten_dense(parts: list[Any], dense: list[bool], row_norm: float) -> None:
    """Scale down the dense parts of rows whose norm is above `row_norm`.

    Encoding does the same.
    """
    numbers = [i for i, is_dense in enumerate(dense) if is_dense]
    squares = sum((parts[i] ** 2).sum(axis=1) for i in numbers)
    room = np.sqrt(row_norm**2 - (len(parts) - len(numbers)))
    factor = room / np.maximum(np.sqrt(squares), room)
    for i in numbers:
        parts[i] = parts[i] * np.asarray(factor)[:, None]


def read_numbers(table: Any) -> FloatArray:
    """Return the cells of a table as numbers (n, width), with nan for missing cells.

    A cell is read as a model reads it (see `skdp.tables.cells`), whatever its type.
    """
    columns = _split_columns(table)
    schema = Schema(dict.fromkeys(columns, Numeric(0.0, 1.0)))
    parts = [np.zeros((0, len(columns)))]
    for batch in batches(columns, schema):
        cells = [np.asarray(batch.columns[name], np.float64) for name in columns]
        parts.append(np.column_stack(cells))
    return np.concatenate(parts)


def read_levels(table: Any, column: Categorical) -> npt.NDArray[Any]:
    """Return the level of each cell as a string (n, 1), or None for unknown cells.

    `table` has one column. A cell finds its level as in a model (see
    `skdp.tables.cells`), whatever its type.
    """
    texts = [convert_to_text(level) for level in column.levels]
    values = np.array([*texts, None], dtype=object)
    parts = [values[:0]]
    columns = _split_columns(table)
    for batch in batches(columns, Schema(dict.fromkeys(columns, column))):
        (cells,) = batch.columns.values()
        parts.append(values[column.compute_features(cells)])
    return np.concatenate(parts)[:, None]


@np.errstate(all="ignore")
def expand_pair(table: Any, pair: Pair) -> FloatArray:
    """Return the coordinates (n, width) of a pair, from a table with its two columns.

    The cells are read as a model reads them (see `skdp.tables.cells`).
    """
    names = (pair.first, pair.second)
    table = dict(zip(names, _split_columns(table).values(), strict=True))
    columns: dict[str, Column] = dict(zip(names, pair.columns, strict=True))
    schema = Schema(columns | {"pair": pair})
    parts = [np.zeros((0, pair.width))]
    for batch in batches(table, schema):
        features = pair.compute_features(schema.pick_cells(batch.columns, "pair"))
        places, shares = features[:, None], np.ones((len(features), 1))
        if pair.kind == "hats":
            places, shares = split_hats(features, pair.axes)
        part = np.zeros((len(features), pair.width + 1))
        for place, share in zip(places.T, shares.T, strict=True):
            part[np.arange(len(part)), place] += share
        parts.append(part[:, :-1])
    return np.concatenate(parts)


def _split_columns(table: Any) -> dict[str, Any]:
    """Return the columns of a frame, an array or a sparse matrix, each with its type.

    An array of the whole frame would have a type that all columns share. Booleans
    beside floats, for example, would become numbers.
    """
    if hasattr(table, "iloc"):
        columns = [table.iloc[:, i] for i in range(table.shape[1])]
    elif hasattr(table, "get_columns"):  # of polars
        columns = table.get_columns()
    else:
        dense = table.toarray() if hasattr(table, "toarray") else np.asanyarray(table)
        columns = list(dense.T)
    return {str(i): column for i, column in enumerate(columns)}


def convert_to_user_units(
    schema: Schema, layout: Layout, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return coefficients (k, width) and intercepts (k,) in units of the table's cells.

    A value x inside the range of a linear column adds w (x - low) / (high - low) to the
    margin. So the column's coefficient is w / (high - low), and the constant
    -w low / (high - low) is added to the intercept. The coefficient of a log column is
    per unit of log(1 + x - low). Each category and each bin has its own coefficient.
    """
    width = sum(group.width for group in layout.groups if group.kind != "ones")
    coef = weights[:width].T.copy()
    intercept = np.zeros(weights.shape[1])
    for group in layout.groups:
        if group.kind == "ones":
            intercept += weights[group.start]
            continue
        offsets, divisors = schema.columns[group.name].find_units()
        for place in np.flatnonzero(offsets).tolist():
            intercept -= coef[:, group.start + place] * offsets[place]
        with np.errstate(over="ignore"):  # a range may be as short as 5e-324
            coef[:, group.coordinates] /= divisors
    starts = {group.name: group.start for group in layout.groups}
    for name, column in schema.columns.items():
        if isinstance(column, Product) and column.centred:
            _move_centres(column, name, schema, starts, coef, intercept)
    return coef, intercept


def _move_centres(
    product: Product,
    name: str,
    schema: Schema,
    starts: Mapping[str, int],
    coef: FloatArray,
    intercept: FloatArray,
) -> None:
    """Change coefficients, in place, to those of a product without centres.

    (f - a)(g - b) = fg - b f - a g + ab, so the columns f and g and the intercept take
    what was subtracted.
    """
    own = coef[:, starts[name]]
    first, second = product.factors
    for factor, other in ((first, second), (second, first)):
        if other.centre != 0:
            main = product.find_main(factor, schema.columns)
            (key,) = (key for key, one in schema.columns.items() if one is main)
            at = starts[key]
            if isinstance(main, Categorical):
                at += main.codes[level_key(factor.level)]
            coef[:, at] -= other.centre * own
    if first.centre * second.centre != 0:
        intercept += first.centre * second.centre * own


def find_references(schema: Schema, layout: Layout) -> dict[str, int]:
    """Return the code of each column's reference category.

    Without an intercept there are none, because no coordinate could take their effect.
    """
    if layout.groups[-1].kind != "ones":
        return {}
    return {
        name: column.reference_code
        for name, column in schema.columns.items()
        if isinstance(column, Categorical) and column.reference_code is not None
    }


def centre_categories(
    layout: Layout, weights: FloatArray, references: Mapping[str, int] | None = None
) -> FloatArray:
    """Move the mean weight of each column's categories or knots to the intercept.

    For a column of `references`, move the weight of this category instead. Without an
    intercept nothing is moved. The margin of a row stays the same if the row has a
    level in every categorical column.
    """
    moved = weights.copy()
    if layout.groups[-1].kind == "ones":
        for group in layout.groups:
            if group.kind in ("code", "hats"):
                own = moved[group.coordinates]
                place = (references or {}).get(group.name)
                level = own.mean(axis=0) if place is None else own[place]
                moved[group.coordinates] -= level
                moved[-1] += level
    return moved


def convert_to_numbers(levels: Sequence[Any]) -> FloatArray | None:
    """Return levels as floats, or None if any is not a number or a boolean."""
    if all(isinstance(level, (int, float, np.number, np.bool_)) for level in levels):
        return np.array([float(level) for level in levels])
    return None


def convert_to_text(level: object) -> str:
    """Return a level as the string that cells are compared with."""
    return level if isinstance(level, str) else level_key(level)
